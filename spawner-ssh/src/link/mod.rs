//! Links to agents of other hosts: one process each (a remote shell, or our own program for this host), with messages
//! over its standard streams.
//!
//! * `command`: the words of the process and the script on the other side. `state`: one link. `links`: all of them.

mod command;
mod links;
mod state;

pub use command::AGENT_WORD;
pub(crate) use links::{LinkEvent, Links};
