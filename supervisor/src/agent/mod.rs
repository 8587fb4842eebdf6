//! The supervisor of ranks: of a whole job on one host, and the parts that agents of other hosts
//! use as well. One process, one thread.
//!
//! * `machine`: decides how the job ends (pure). `control`: what surrounds it for a whole job, and
//!   a job on this host alone. `record`: writes down what happened.
//! * `local_ranks`: the ranks of one host; `host_ranks`: which those are; `limits`: whether the
//!   system lets them be so many; `spawn`: starts them;
//!   `bootstrap_server`: serves their bootstrap calls; `pmi_server`: those of MPI programs, `pmix`: those
//!   of PMIx, through a helper process, `answers`: whether that answers;
//!   `outbox`: what waits to be written to either; `capture`, `output`, `sink`, `input`,
//!   `standard`, `unread`: their standard streams and ours.
//! * `watched`: programs that watch a job. `processes`: children, and what ranks leave behind. `sys`: system calls.

mod answers;
pub(crate) mod bootstrap_server;
pub(crate) mod capture;
pub(crate) mod control;
pub(crate) mod host_ranks;
pub(crate) mod input;
pub(crate) mod limits;
pub(crate) mod local_ranks;
pub(crate) mod machine;
#[cfg(test)]
mod machine_sim;
mod outbox;
pub(crate) mod output;
pub(crate) mod pmi_server;
pub(crate) mod pmix;
pub(crate) mod processes;
pub(crate) mod record;
mod sink;
mod spawn;
mod standard;
pub(crate) mod sys;
mod unread;
pub(crate) mod watched;
