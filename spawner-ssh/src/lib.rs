//! Starts the ranks of a job and brings them to an end.
//!
//! * [`plan`]: what is to be started, as data (pure).
//! * [`hostlist`]: host lists and maps, from text to data (pure).
//! * [`report`]: what became of it, as data.
//! * [`agent`]: the supervisor of one host's ranks: a pure machine and the driver around it.
//! * [`local`]: the front half on the launching host: forks the agent, forwards signals, collects the report.
//! * [`doctor`]: all steps of a start without a job.
//! * `stage`: the job's program on hosts that do not have it.
//! * `root`, [`node`], [`tree`], `link`: jobs with other hosts. The root is what the front forks then; a node is the agent
//!   of one host; they talk over links (`docs/design/tree.md`).

pub mod agent;
pub mod doctor;
pub mod hostlist;
mod layout;
mod link;
pub mod local;
pub mod node;
pub mod plan;
pub mod report;
mod root;
mod stage;
pub mod tree;
mod wire;
