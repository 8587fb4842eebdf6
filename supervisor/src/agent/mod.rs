//! The node agent: supervises the ranks of one host. One process, one thread.
//!
//! * `machine`: decides how the job ends (pure).
//! * `control`: what surrounds it for a whole job; `driver`: a job on this host alone; `job` what is known of the job,
//!   `front` the link to the front.
//! * `body`: the ranks of one host, `share` which those are, `rank_event` what they do. Agents of other hosts have it, too.
//! * `spawn`: starts ranks. `boot`: serves their bootstrap calls. `capture`, `output`, `sink`, `input`: their standard
//!   streams.
//! * `tree`: finds what they leave behind. `record`: writes down what happened.

pub(crate) mod body;
pub(crate) mod boot;
pub(crate) mod capture;
pub(crate) mod control;
pub(crate) mod driver;
pub(crate) mod front;
pub(crate) mod input;
pub(crate) mod job;
pub mod machine;
#[cfg(test)]
mod machine_sim;
pub(crate) mod output;
mod rank_event;
pub(crate) mod record;
pub(crate) mod share;
mod sink;
mod spawn;
pub(crate) mod sys;
pub(crate) mod tree;

pub(crate) use body::Look;
pub(crate) use driver::{Origin, run};
pub(crate) use rank_event::RankEvent;
pub(crate) use record::lost;
