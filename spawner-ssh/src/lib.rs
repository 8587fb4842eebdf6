//! Starts the ranks of a job and brings them to an end.
//!
//! * [`plan`]: what is to be started, as data (pure).
//! * [`hostlist`]: host lists and maps, from text to data (pure).
//! * [`report`]: what became of it, as data.
//! * [`agent`]: the supervisor of one host's ranks: a pure machine and the driver around it.
//! * [`local`]: the front half on the launching host: forks the agent, forwards signals, collects the report.

pub mod agent;
pub mod hostlist;
mod layout;
pub mod local;
pub mod plan;
pub mod report;
mod wire;
