//! The root of a job with other hosts: one decision about the whole job, the launcher's output and
//! input, and the links to the agents of the hosts. It has no ranks of its own.
//!
//! * `driver`: the loop. `start`: brings the hosts up. `lifetime`: what happens once ranks run.
//!   `told`: what agents tell of many ranks at once. `clocks`: looks at the clocks of the hosts. `search`: looks for processes that ranks left.

mod clocks;
mod driver;
#[cfg(test)]
mod end_sim;
mod lifetime;
mod search;
mod start;
mod told;

pub(crate) use driver::run;
