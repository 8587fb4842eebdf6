//! The ssh client of our own (`GASNET_SSH_CMD=builtin`): a thread for each link instead of a
//! process, on libssh2. To the rest of a link it looks like the process: three pipes, words on
//! standard error in the manner of OpenSSH, which [`crate::diagnosis`] knows, and an exit code. Who
//! closes the pipes ends the connection, and so does the end of our process.
//!
//! The client is a library of its own (`spawner-ssh/plugin`), which is opened when it is asked for
//! first: what libssh2 needs would make every start of the launcher slower.

mod options;
mod plugin;
mod settings;

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

use nix::fcntl::OFlag;
use nix::unistd::pipe2;
use serde::{Deserialize, Serialize};

use crate::{End, HostEntry, Ssh};

pub use options::GLOBAL_KNOWN_HOSTS;
pub use plugin::{CODE_FAILED, CODE_PROGRAM, Run, VERSION, Version, candidates};
pub use settings::{AgentAt, Algorithms, Family, Settings, Strict, Wanted};

/// Value of `GASNET_SSH_CMD`.
pub const NAME: &str = "builtin";

/// What a client does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Where it logs in.
    pub host: HostEntry,
    /// How.
    pub settings: Settings,
    /// What it runs there.
    pub command: String,
}

/// Opens the client's library.
///
/// # Errors
/// Where it was looked for, and what is wrong there.
pub fn open() -> Result<(), String> {
    plugin::open().map(drop)
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

/// The client's ends of the pipes.
type Ends = [OwnedFd; 3];

/// Starts a client that runs `command` on `host`.
///
/// # Errors
/// The library cannot be opened, the options are not understood, or the system refuses pipes or a
/// thread.
pub fn start(ssh: &Ssh, host: &HostEntry, command: &str) -> std::io::Result<Session> {
    plugin::open().map_err(std::io::Error::other)?;
    let settings = Settings::read(&ssh.options).map_err(std::io::Error::other)?;
    let (host, command) = (host.clone(), command.to_owned());
    session(move |ends| run(host, settings, command, ends))
}

/// A client until its end; its exit code.
pub(crate) fn run(host: HostEntry, settings: Settings, command: String, ends: &Ends) -> i32 {
    let request = postcard::to_stdvec(&Request { host, settings, command });
    match (plugin::open(), request) {
        (Ok(plugin), Ok(request)) => plugin.run(&request, ends),
        (Err(problem), _) => failed(ends, CODE_FAILED, &problem),
        (_, Err(problem)) => failed(ends, CODE_FAILED, &problem.to_string()),
    }
}

/// Says why there is no login, as the client's library does; the `code`.
pub(crate) fn failed(ends: &Ends, code: i32, text: &str) -> i32 {
    // Who closed the other end wants to hear nothing.
    let _ = nix::unistd::write(&ends[2], format!("ssh: {text}\n").as_bytes());
    code
}

/// Pipes, and a thread with their other ends that returns an exit code.
pub(crate) fn session(
    work: impl FnOnce(&Ends) -> i32 + Send + 'static,
) -> std::io::Result<Session> {
    let (input, to) = pipe2(OFlag::O_CLOEXEC)?;
    let (from, output) = pipe2(OFlag::O_CLOEXEC)?;
    let (err, err_end) = pipe2(OFlag::O_CLOEXEC)?;
    let (ends, end) = ([input, output, err_end], Arc::new(OnceLock::new()));
    let set = Arc::clone(&end);
    let life = move || {
        let code = work(&ends);
        let _ = set.set(End::Code(code));
        let [input, output, err] = ends;
        // The end of the output says that all else is there.
        drop((input, err));
        drop(output);
    };
    std::thread::Builder::new().name("ssh".to_owned()).spawn(life)?;
    Ok(Session { to, from, err, end })
}
