//! The supervisor of ranks: of a whole job on one host, and the parts that agents of other hosts
//! use as well. One process, one thread.
//!
//! * `machine`: decides how the job ends (pure); `rank_event`: what it hears of ranks.
//! * `control`: what surrounds it for a whole job; `driver`: a job on this host alone; `job`: what
//!   is known of the job; `launcher_link`: the socket to the launcher's process.
//! * `local_ranks`: the ranks of one host; `host_ranks`: which those are; `spawn`: starts them;
//!   `bootstrap_server`: serves their bootstrap calls; `capture`, `output`, `sink`, `input`: their
//!   standard streams.
//! * `processes`: finds what ranks leave behind. `record`: writes down what happened. `sys`: system
//!   calls.

pub(crate) mod bootstrap_server;
pub(crate) mod capture;
pub(crate) mod control;
pub(crate) mod driver;
pub(crate) mod host_ranks;
pub(crate) mod input;
pub(crate) mod job;
pub(crate) mod launcher_link;
pub(crate) mod local_ranks;
pub mod machine;
#[cfg(test)]
mod machine_sim;
pub(crate) mod output;
pub(crate) mod processes;
mod rank_event;
pub(crate) mod record;
mod sink;
mod spawn;
pub(crate) mod sys;

pub(crate) use driver::{Origin, run};
pub(crate) use local_ranks::CpuSample;
pub(crate) use rank_event::RankEvent;
pub(crate) use record::lost;
