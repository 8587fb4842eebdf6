//! The ssh client of our own (`GASNET_SSH_CMD=builtin`): a thread for each link instead of a
//! process, on libssh2. To the rest of a link it looks like the process: three pipes, words on
//! standard error in the manner of OpenSSH, which [`crate::diagnosis`] knows, and an exit code. Who
//! closes the pipes ends the connection, and so does the end of our process.
//!
//! It is there with the cargo feature `builtin-ssh`; without it, [`start`] refuses.

mod options;
#[cfg(feature = "builtin-ssh")]
mod session;

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

use options::Settings;

use crate::{End, HostEntry, Ssh};

/// Value of `GASNET_SSH_CMD`.
pub const NAME: &str = "builtin";

/// Whether this build has it.
#[must_use]
pub const fn is_there() -> bool {
    cfg!(feature = "builtin-ssh")
}

/// Checks the options of `GASNET_SSH_OPTIONS`: the client knows a few of those of OpenSSH.
///
/// # Errors
/// The text about the first that it does not know or understand.
pub fn check_options(options: &[OsString]) -> Result<(), String> {
    Settings::read(options).map(drop)
}

/// Our ends of the pipes, and how it ended, once its output has ended.
#[derive(Debug)]
pub struct Session {
    /// Its standard input.
    pub to: OwnedFd,
    /// Its standard output.
    pub from: OwnedFd,
    /// Its standard error.
    pub err: OwnedFd,
    /// How it ended.
    pub end: Arc<OnceLock<End>>,
}

/// Starts a client that runs `command` on `host`.
///
/// # Errors
/// The options are not understood, the system refuses pipes or a thread, or this build has none.
pub fn start(ssh: &Ssh, host: &HostEntry, command: &str) -> std::io::Result<Session> {
    let settings = Settings::read(&ssh.options).map_err(std::io::Error::other)?;
    #[cfg(feature = "builtin-ssh")]
    return session::start(host.clone(), settings, command.to_owned());
    #[cfg(not(feature = "builtin-ssh"))]
    {
        let _ = (settings, host, command);
        Err(std::io::Error::other("this program was built without the feature builtin-ssh"))
    }
}
