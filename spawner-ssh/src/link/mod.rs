//! Links to agents of other hosts: one process each (a remote shell, or our own program for this host), with messages
//! over its standard streams.
//!
//! * `builtin`: a thread with libssh2 in place of the process, if it is asked for.
//! * `command`: the words of the process and the script on the other side. `state`: one link. `links`: all of them.

mod builtin;
mod builtin_options;
#[cfg(feature = "builtin-ssh")]
mod builtin_session;
mod command;
mod links;
mod state;

pub use builtin::{
    NAME as BUILTIN, check_options as check_builtin_options, is_there as has_builtin,
};
pub use command::AGENT_WORD;
pub(crate) use command::{LINES, LINES_WORD};
pub(crate) use links::{LinkEvent, Links};
