//! All steps of a start without a job, on every host.
//!
//! * `drive`: links and agents as for a job; agents are told to examine their host instead of the
//!   program.
//! * `apart`: the checks of one host run in a process of its own, because drivers of adapters are
//!   loaded there: one that hangs or crashes must not take the agent along. Which checks there are
//!   is the launcher's business.

mod apart;
mod drive;
pub(crate) mod finding;

pub use apart::CHECKS_WORD;
pub(crate) use apart::findings;
pub use drive::{Request, examine};
pub use finding::{CLIENT, Finding, Health, Level};
