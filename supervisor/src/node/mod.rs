//! The agent of one host of several. Two processes: a reaper, which ends everything when the agent
//! is killed, and the agent, which owns the ranks of this host and the links to the agents below.
//!
//! Standard input and output are the link to the parent. When that ends, or is silent for too long,
//! the agent is on its own: it ends its ranks by the same rules as a job whose launcher was lost.
//!
//! * `driver`: the loop, and its own decisions once the parent is lost. `setup`: what it is told
//!   first. `messages`: what comes from the parent and from the agents below.
//! * `parent`: the link up. `relay`: what goes up it, output above all. `check`: whether the job
//!   can run here, `libraries`: with its libraries.

mod check;
mod driver;
mod libraries;
mod messages;
mod parent;
mod relay;
mod setup;

use std::fs::OpenOptions;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use nix::unistd::{ForkResult, getpid};
use settings::deadlines::agent::{AFTER_LOSS, CLEANUP_HOST};
use settings::deadlines::tree::SETUP;
use settings::log::LAUNCHER;
use settings::say;

use crate::agent::machine::CODE_LAUNCH;
use crate::agent::processes;
use crate::agent::sys::{self, Reaped};
use crate::report::End;
use crate::stage;
use spawner_pmi::server::pmix::session;
use spawner_ssh::command::{LINES, LINES_WORD};
use spawner_ssh::marker;

pub use spawner_ssh::command::AGENT_WORD;

/// What an agent takes over from its process.
pub(crate) struct Origin {
    input: OwnedFd,
    output: OwnedFd,
    reaper: i32,
    mask: SigSet,
    /// Name of the job's directory on this host; the reaper removes it.
    job: String,
    started: Instant,
}

/// Life of a process that was started as an agent; the process must have one thread.
pub fn main() -> ! {
    let started = Instant::now();
    let code = match start(started) {
        Ok(code) => code,
        Err(error) => {
            say!(ERROR, LAUNCHER, "node agent: {error}");
            CODE_LAUNCH
        }
    };
    sys::exit_now(code)
}

fn start(started: Instant) -> std::io::Result<i32> {
    let mut mask = SigSet::empty();
    sigprocmask(SigmaskHow::SIG_BLOCK, None, Some(&mut mask))?;
    if std::env::args_os().nth(2).is_some_and(|word| word == LINES_WORD) {
        skip_lines(std::io::stdin().as_fd(), started)?;
    }
    let (input, output) = private_streams()?;
    // While the parent gathers what to say, the rest gets ready.
    parent::greet(&output, &marker::line())?;
    prctl::set_child_subreaper(true)?;
    let reaper = getpid().as_raw();
    let job = stage::job_directory_name();
    match sys::fork()? {
        ForkResult::Child => driver::run(Origin { input, output, reaper, mask, job, started }),
        ForkResult::Parent { child } => {
            drop((input, output));
            let code = watch(child.as_raw());
            stage::forget_job(&job);
            session::forget(&job);
            Ok(code)
        }
    }
}

/// Reads what was meant for the script. Nothing else comes before our first word.
fn skip_lines(input: BorrowedFd<'_>, started: Instant) -> std::io::Result<()> {
    let (mut lines, mut buffer) = (0, [0; 4096]);
    while lines < LINES {
        let left = SETUP.limit.saturating_sub(started.elapsed());
        let count = match processes::is_readable(input, left) {
            Ok(false) => {
                let text = format!("its parent said nothing for {} s", SETUP.limit.as_secs());
                return Err(std::io::Error::other(text));
            }
            Ok(true) => nix::unistd::read(input, &mut buffer),
            Err(errno) => Err(errno),
        };
        match count {
            Ok(0) => return Err(std::io::Error::other("its parent closed the connection")),
            Ok(count) => lines += buffer[..count].iter().filter(|byte| **byte == b'\n').count(),
            Err(nix::Error::EINTR | nix::Error::EAGAIN) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Makes the link to the parent ours alone: standard input and output become the empty file.
fn private_streams() -> std::io::Result<(OwnedFd, OwnedFd)> {
    let input = std::io::stdin().as_fd().try_clone_to_owned()?;
    let output = std::io::stdout().as_fd().try_clone_to_owned()?;
    let empty = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    nix::unistd::dup2_stdin(&empty)?;
    nix::unistd::dup2_stdout(&empty)?;
    for fd in [&input, &output] {
        let flags = OFlag::from_bits_truncate(fcntl(fd, FcntlArg::F_GETFL)?);
        fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    }
    Ok((input, output))
}

/// The reaper: waits for the agent, and kills what it leaves; after an orderly end there is
/// nothing.
fn watch(agent: i32) -> i32 {
    use nix::sys::wait::{Id, WaitPidFlag, waitid};
    let mut code = CODE_LAUNCH;
    // Children that fall to us while the agent lives are collected as they end.
    loop {
        let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        let _ = waitid(Id::All, look);
        match sys::reap() {
            Reaped::Child(pid, End::Code(status)) if pid == agent => {
                code = status;
                break;
            }
            Reaped::Child(pid, End::Signal(_)) if pid == agent => break,
            Reaped::Child(..) | Reaped::Running => {}
            Reaped::NoChildren => break,
        }
    }
    let deadline = Instant::now() + AFTER_LOSS.limit;
    loop {
        while matches!(sys::reap(), Reaped::Child(..)) {}
        let left = processes::descendants(getpid().as_raw(), |_| false);
        if left.is_empty() || Instant::now() >= deadline {
            return code;
        }
        for pid in left {
            let _ = sys::kill(pid, libc::SIGKILL);
        }
        std::thread::sleep(CLEANUP_HOST.limit);
    }
}
