//! Logins to other hosts: what to start here, what it runs there, and what a failed login means.
//! Nothing here waits.
//!
//! * [`HostEntry`], [`Ssh`]: whom to reach and how. [`End`]: how a process ended.
//! * [`command`]: the words of the remote shell (OpenSSH), and the script that finds or receives
//!   our program there.
//! * [`builtin`]: a client on libssh2 in place of the remote shell, in a library that is opened at
//!   run time (`spawner-ssh/plugin`).
//! * [`agent`]: what is wrong with the ssh agent of the user.
//! * [`auto`]: which of the two logs in to a host.
//! * [`marker`]: finds our program's first line behind whatever a login prints.
//! * [`diagnosis`]: why a host could not be reached, read from what the remote shell said.

pub mod agent;
pub mod auto;
pub mod builtin;
pub mod command;
pub mod diagnosis;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;
mod host;
pub mod marker;
mod options;

pub use host::{End, HostEntry};
pub use options::{Ssh, StageMode};
