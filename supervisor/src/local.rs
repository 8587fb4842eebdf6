//! The front half on the launching host: forks the agent, forwards signals to it and collects its report.
//!
//! The front owns the terminal's signals and the exit code; it starts nothing but the agent and is the outer sub-reaper,
//! so that a lost agent leaves nothing behind.

use std::collections::HashSet;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};
use nix::unistd::getpid;
use settings::deadlines::agent::{AFTER_LOSS, AGENT_EXIT, CLEANUP_SLICE};

use crate::agent::sys::{self, Forked, Reaped};
use crate::agent::{self, Origin, tree};
use crate::plan::{JobPlan, StdinTo};
use crate::report::{End, JobReport};
use crate::root;
use crate::wire::{Inbox, Message};

/// How far the job has come. Counts of ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Ranks of the job.
    pub total: u32,
    /// Ranks started so far.
    pub started: u32,
    /// Ranks that have opened the bootstrap so far; plain programs never do.
    pub hello: u32,
    /// Ranks that have ended so far.
    pub ended: u32,
}

/// Told about the job while it runs, on the calling thread of [`supervise`].
pub trait Observer {
    /// The counts have changed. Calls are thinned out: not every intermediate state is shown, the last one is.
    fn event(&mut self, progress: &Progress);
}

/// Why a job could not be supervised at all. What goes wrong *inside* a job is the report's cause instead.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// The plan contradicts itself.
    #[error("the job plan is unusable: {problem}")]
    Plan {
        /// What is wrong with it.
        problem: String,
    },
    /// The process has more than one thread, so it must not fork the agent.
    #[error("cannot start the node agent: this process has {threads} threads, it must have one")]
    Threads {
        /// Threads counted.
        threads: usize,
    },
    /// The system refused something that is needed before the first rank starts.
    #[error("cannot {operation}: {source}")]
    Os {
        /// What was tried.
        operation: &'static str,
        /// Why not.
        source: std::io::Error,
    },
}

/// Runs the job of `plan` on this host and returns when every process of it is gone and all output is written.
///
/// `started` is when the launcher began; the phase times of the report count from it. Must be called by a process with
/// one thread, at most once at a time: it makes the process a child sub-reaper, blocks the forwarded signals for the
/// duration of the call and collects every child that ends meanwhile.
///
/// # Errors
/// [`LocalError`]: nothing was started.
pub fn supervise(
    plan: &JobPlan,
    started: Instant,
    observer: &mut dyn Observer,
) -> Result<JobReport, LocalError> {
    check(plan)?;
    let threads = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    if threads > 1 {
        return Err(LocalError::Threads { threads });
    }
    prctl::set_child_subreaper(true).map_err(os("become a sub-reaper"))?;
    // Children that an earlier program of this process left us with are not ours to end.
    let foreign: HashSet<i32> =
        if tree::has_children() { tree::children(getpid().as_raw()) } else { Vec::new() }
            .into_iter()
            .collect();
    let blocked = Blocked::new()?;
    let outcome = Front::start(plan, started, observer, &blocked, foreign).and_then(Front::work);
    drop(blocked);
    outcome
}

fn os(operation: &'static str) -> impl Fn(nix::Error) -> LocalError {
    move |errno| LocalError::Os { operation, source: errno.into() }
}

fn check(plan: &JobPlan) -> Result<(), LocalError> {
    let bad = |problem: String| Err(LocalError::Plan { problem });
    if plan.size == 0 {
        return bad("no ranks".into());
    }
    if plan.argv.is_empty() {
        return bad("no argument vector".into());
    }
    if !plan.cpus.is_empty() && plan.cpus.len() != plan.size as usize {
        return bad(format!("{} CPU sets for {} ranks", plan.cpus.len(), plan.size));
    }
    if let StdinTo::Rank(rank) = plan.stdin
        && rank.0 >= plan.size
    {
        return bad(format!("standard input for rank {rank}, the job has {} ranks", plan.size));
    }
    Ok(())
}

/// The forwarded signals, blocked and readable, until dropped.
struct Blocked {
    before: SigSet,
    fd: SignalFd,
}

impl Blocked {
    fn new() -> Result<Self, LocalError> {
        use Signal::{
            SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2,
        };
        // A signal that is ignored when we begin (`nohup`, `cmd &` without job control) stays ignored.
        let forwarded = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT];
        let forwarded = forwarded.into_iter().filter(|signal| !sys::is_ignored(*signal as i32));
        let set: SigSet = forwarded.chain([SIGCHLD]).collect();
        let mut before = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&set), Some(&mut before))
            .map_err(os("block signals"))?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        match SignalFd::with_flags(&set, flags) {
            Ok(fd) => Ok(Self { before, fd }),
            Err(errno) => {
                let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None);
                Err(os("watch signals")(errno))
            }
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&self.before), None);
    }
}

struct Front<'a> {
    plan: &'a JobPlan,
    started: Instant,
    observer: &'a mut dyn Observer,
    blocked: &'a Blocked,
    foreign: HashSet<i32>,
    socket: OwnedFd,
    inbox: Inbox,
    agent: i32,
    agent_end: Option<End>,
    report: Option<JobReport>,
    /// The agent closed its socket.
    hung_up: bool,
}

impl<'a> Front<'a> {
    fn start(
        plan: &'a JobPlan,
        started: Instant,
        observer: &'a mut dyn Observer,
        blocked: &'a Blocked,
        foreign: HashSet<i32>,
    ) -> Result<Self, LocalError> {
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC)
                .map_err(os("make the agent's socket"))?;
        // What is buffered here must not be written twice.
        let _ = std::io::stdout().flush();
        let front = getpid().as_raw();
        let forked = sys::fork()
            .map_err(|source| LocalError::Os { operation: "fork the node agent", source })?;
        match forked {
            Forked::Child => {
                drop(ours);
                let origin = Origin { front, socket: theirs, mask: blocked.before, started };
                if plan.map.is_here_only() {
                    agent::run(plan, origin)
                }
                root::run(plan, origin)
            }
            Forked::Parent(agent) => Ok(Self {
                plan,
                started,
                observer,
                blocked,
                foreign,
                socket: ours,
                inbox: Inbox::default(),
                agent,
                agent_end: None,
                report: None,
                hung_up: false,
            }),
        }
    }

    fn work(mut self) -> Result<JobReport, LocalError> {
        while self.report.is_none() && !self.hung_up {
            self.wait(None)?;
        }
        let deadline = Instant::now() + AGENT_EXIT.limit;
        while self.agent_end.is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                // Collected by `clean_up`.
                let _ = sys::kill(self.agent, libc::SIGKILL);
                break;
            }
            self.wait(Some(left))?;
        }
        let killed = self.clean_up()?;
        let done = self.started.elapsed().as_secs_f64();
        Ok(match self.report {
            Some(mut report) => {
                report.strays_killed = report.strays_killed.saturating_add(killed);
                report.phases.done = done;
                report
            }
            None => agent::lost(self.plan, self.agent_end, done, killed),
        })
    }

    /// Waits for a signal or a message, at most `limit`, and serves it.
    fn wait(&mut self, limit: Option<Duration>) -> Result<(), LocalError> {
        let timeout = limit.map_or(PollTimeout::NONE, |limit| {
            // Rounded up: a limit below a millisecond must not become a busy loop.
            PollTimeout::from(u16::try_from(limit.as_millis() + 1).unwrap_or(u16::MAX))
        });
        let mut fds = vec![PollFd::new(self.blocked.fd.as_fd(), PollFlags::POLLIN)];
        if !self.hung_up {
            fds.push(PollFd::new(self.socket.as_fd(), PollFlags::POLLIN));
        }
        match poll(&mut fds, timeout) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(errno) => return Err(os("wait for the node agent")(errno)),
        }
        let message = fds.get(1).is_some_and(|fd| fd.any().unwrap_or(false));
        self.signals();
        if message {
            self.messages();
        }
        Ok(())
    }

    fn signals(&mut self) {
        while let Ok(Some(info)) = self.blocked.fd.read_signal() {
            let signal = i32::try_from(info.ssi_signo).unwrap_or(0);
            match signal {
                libc::SIGCHLD => {
                    self.reap();
                }
                libc::SIGTSTP => {
                    self.forward(signal);
                    // The shell must see us stop; SIGCONT brings us back here and is forwarded next.
                    let _ = sys::kill(getpid().as_raw(), libc::SIGSTOP);
                }
                _ => self.forward(signal),
            }
        }
    }

    fn forward(&mut self, signal: i32) {
        let mut bytes = Vec::new();
        if Message::Signal(signal).encode(&mut bytes).is_ok() {
            // An agent that does not read any more is ending, or its end is noticed in a moment.
            let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
            let _ = send(self.socket.as_raw_fd(), &bytes, flags);
        }
    }

    fn reap(&mut self) -> bool {
        loop {
            match sys::reap() {
                Reaped::Child(pid, end) if pid == self.agent => self.agent_end = Some(end),
                Reaped::Child(..) => {}
                Reaped::Running => return true,
                Reaped::NoChildren => return false,
            }
        }
    }

    fn messages(&mut self) {
        let mut bytes = [0; 64 * 1024];
        loop {
            match recv(self.socket.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT) {
                Ok(0) => {
                    self.hung_up = true;
                    break;
                }
                Ok(count) => self.inbox.push(&bytes[..count]),
                Err(nix::Error::EINTR) => {}
                Err(nix::Error::EAGAIN) => break,
                Err(_) => {
                    self.hung_up = true;
                    break;
                }
            }
        }
        loop {
            match self.inbox.take() {
                Ok(Some(Message::Progress([started, hello, ended]))) => {
                    self.observer.event(&Progress { total: self.plan.size, started, hello, ended });
                }
                Ok(Some(Message::Report(report))) => self.report = Some(*report),
                Ok(Some(Message::Signal(_)) | None) => break,
                Err(_) => {
                    self.hung_up = true;
                    break;
                }
            }
        }
    }

    /// Kills whatever the agent left; after an orderly end there is nothing. Returns how many processes that were.
    fn clean_up(&mut self) -> Result<u32, LocalError> {
        let deadline = Instant::now() + AFTER_LOSS.limit;
        let mut killed = HashSet::new();
        while self.reap() {
            let left = tree::descendants(getpid().as_raw(), |pid| self.foreign.contains(&pid));
            if left.is_empty() || Instant::now() >= deadline {
                break;
            }
            for pid in left {
                let _ = sys::kill(pid, libc::SIGKILL);
                if pid != self.agent {
                    killed.insert(pid);
                }
            }
            // Their ends come as SIGCHLD; a short limit covers processes whose parent is still to be collected.
            self.hung_up = true;
            self.wait(Some(CLEANUP_SLICE.limit))?;
        }
        Ok(u32::try_from(killed.len()).unwrap_or(u32::MAX))
    }
}
