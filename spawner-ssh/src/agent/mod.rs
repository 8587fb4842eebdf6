//! The node agent: supervises the ranks of one host. One process, one thread.
//!
//! * `machine`: decides how the job ends (pure).
//! * `driver`: the loop around it; `poller` its epoll set.
//! * `spawn`: starts ranks. `boot`: serves their bootstrap calls. `output`, `sink`, `input`: their standard streams.
//! * `tree`: finds what they leave behind. `record`: writes down what happened.
//! * [`deadlines`]: every time limit.

mod boot;
pub mod deadlines;
mod driver;
mod input;
pub mod machine;
#[cfg(test)]
mod machine_sim;
mod output;
mod poller;
mod record;
mod sink;
mod spawn;
pub(crate) mod sys;
pub(crate) mod tree;

pub(crate) use driver::{Origin, run};
pub(crate) use record::lost;
