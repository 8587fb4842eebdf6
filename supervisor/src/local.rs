//! The launcher's own process: forks the supervisor of the job, forwards signals to it and collects
//! its report.
//!
//! The launcher owns the terminal's signals and the exit code; it starts nothing but the agent and
//! is the outer sub-reaper, so that a lost agent leaves nothing behind.

use std::collections::HashSet;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};
use nix::unistd::getpid;
use settings::deadlines::agent::{AFTER_LOSS, AGENT_EXIT, CLEANUP_SLICE};

use crate::agent::sys::{self, Forked, Reaped};
use crate::agent::{self, Origin, processes};
use crate::event_loop::{self, Poller, Ready, Role, Sender, Signals, Token};
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
    /// The counts have changed. Calls are thinned out: not every intermediate state is shown, the
    /// last one is.
    fn event(&mut self, progress: &Progress);
}

/// Why a job could not be supervised at all. What goes wrong *inside* a job is the report's cause
/// instead.
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

/// Runs the job of `plan` on this host and returns when every process of it is gone and all output
/// is written.
///
/// `started` is when the launcher began; the phase times of the report count from it. Must be
/// called by a process with one thread, at most once at a time: it makes the process a child
/// sub-reaper, blocks the forwarded signals for the duration of the call and collects every child
/// that ends meanwhile.
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
        if processes::has_children() { processes::children(getpid().as_raw()) } else { Vec::new() }
            .into_iter()
            .collect();
    Launcher::start(plan, started, observer, foreign).and_then(Launcher::work)
}

fn os(operation: &'static str) -> impl Fn(nix::Error) -> LocalError {
    move |errno| LocalError::Os { operation, source: errno.into() }
}

fn io(operation: &'static str) -> impl Fn(std::io::Error) -> LocalError {
    move |source| LocalError::Os { operation, source }
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

/// Takes the signals that are forwarded, and those about children.
fn take_signals(poller: &Poller) -> std::io::Result<Signals> {
    use Signal::{SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2};
    // A signal that is ignored when we begin (`nohup`, `cmd &` without job control) stays ignored.
    let forwarded = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT];
    let forwarded = forwarded.into_iter().filter(|signal| !sys::is_ignored(*signal as i32));
    Signals::take(poller, &forwarded.chain([SIGCHLD]).collect::<Vec<_>>())
}

/// What the launcher's process waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The report.
    Job,
    /// The end of the agent, until then.
    Agent(Instant),
    /// The ends of processes that a lost agent left, until then; the next search for them is due at
    /// the other time.
    CleanUp { until: Instant, search_at: Instant },
    /// Nothing any more.
    Over,
}

struct Launcher<'a> {
    plan: &'a JobPlan,
    started: Instant,
    observer: &'a mut dyn Observer,
    poller: Poller,
    signals: Signals,
    foreign: HashSet<i32>,
    socket: OwnedFd,
    inbox: Inbox,
    agent: i32,
    agent_end: Option<End>,
    report: Option<JobReport>,
    /// The agent closed its socket.
    hung_up: bool,
    phase: Phase,
    killed: HashSet<i32>,
}

impl<'a> Launcher<'a> {
    fn start(
        plan: &'a JobPlan,
        started: Instant,
        observer: &'a mut dyn Observer,
        foreign: HashSet<i32>,
    ) -> Result<Self, LocalError> {
        let poller = Poller::new().map_err(io("make an epoll set"))?;
        let signals = take_signals(&poller).map_err(io("watch signals"))?;
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC)
                .map_err(os("make the agent's socket"))?;
        poller.add_read(ours.as_fd(), Token::Control).map_err(io("watch the agent"))?;
        // What is buffered here must not be written twice.
        let _ = std::io::stdout().flush();
        let launcher = getpid().as_raw();
        match sys::fork().map_err(io("fork the node agent"))? {
            Forked::Child => {
                drop((ours, poller));
                let mask = signals.before();
                signals.give_up();
                let origin = Origin { launcher, socket: theirs, mask, started };
                if plan.map.is_here_only() {
                    agent::run(plan, origin)
                }
                root::run(plan, origin)
            }
            Forked::Parent(agent) => Ok(Self {
                plan,
                started,
                observer,
                poller,
                signals,
                foreign,
                socket: ours,
                inbox: Inbox::default(),
                agent,
                agent_end: None,
                report: None,
                hung_up: false,
                phase: Phase::Job,
                killed: HashSet::new(),
            }),
        }
    }

    fn work(mut self) -> Result<JobReport, LocalError> {
        event_loop::run(&mut self).map_err(io("wait for the node agent"))?;
        let done = self.started.elapsed().as_secs_f64();
        let killed = u32::try_from(self.killed.len()).unwrap_or(u32::MAX);
        Ok(match self.report {
            Some(mut report) => {
                report.orphans_killed = report.orphans_killed.saturating_add(killed);
                report.phases.done = done;
                report
            }
            None => agent::lost(self.plan, self.agent_end, done, killed),
        })
    }

    fn forward(&mut self, signal: i32, sender: Option<Sender>) {
        if let Ok(bytes) = Message::Signal(signal, sender).encode() {
            // An agent that does not read any more is ending, or its end is noticed in a moment.
            let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
            let _ = send(self.socket.as_raw_fd(), &bytes, flags);
        }
    }

    fn own_signals(&mut self) {
        for (signal, sender) in self.signals.pending() {
            if signal == libc::SIGCHLD {
                self.reap();
                continue;
            }
            self.forward(signal, sender);
            if signal == libc::SIGTSTP {
                // The shell must see us stop; SIGCONT brings us back here and is forwarded next.
                let _ = sys::kill(getpid().as_raw(), libc::SIGSTOP);
            }
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

    fn hang_up(&mut self) {
        if !std::mem::replace(&mut self.hung_up, true) {
            self.poller.remove(&self.socket);
        }
    }

    fn messages(&mut self) {
        let mut bytes = [0; 64 * 1024];
        loop {
            match recv(self.socket.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT) {
                Ok(count) if count > 0 => self.inbox.push(&bytes[..count]),
                Err(nix::Error::EINTR) => {}
                Err(nix::Error::EAGAIN) => break,
                Ok(_) | Err(_) => {
                    self.hang_up();
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
                Ok(Some(Message::Signal(..)) | None) => break,
                Err(_) => {
                    self.hang_up();
                    break;
                }
            }
        }
    }

    /// Kills whatever the agent left; after an orderly end there is nothing.
    fn clean_up(&mut self, until: Instant) -> Phase {
        if !self.reap() {
            return Phase::Over;
        }
        let now = Instant::now();
        let left = processes::descendants(getpid().as_raw(), |pid| self.foreign.contains(&pid));
        if left.is_empty() || now >= until {
            return Phase::Over;
        }
        for pid in left {
            let _ = sys::kill(pid, libc::SIGKILL);
            if pid != self.agent {
                self.killed.insert(pid);
            }
        }
        // Their ends come as SIGCHLD; a short limit covers processes whose parent is still to be
        // collected.
        self.hang_up();
        Phase::CleanUp { until, search_at: now + CLEANUP_SLICE.limit }
    }
}

impl Role for Launcher<'_> {
    fn sources(&mut self) -> (&Poller, &Signals) {
        (&self.poller, &self.signals)
    }

    fn now(&self) -> u64 {
        ms(self.started.elapsed())
    }

    fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    fn step(&mut self) -> bool {
        if self.phase == Phase::Job && (self.report.is_some() || self.hung_up) {
            self.phase = Phase::Agent(Instant::now() + AGENT_EXIT.limit);
        }
        if let Phase::Agent(until) = self.phase {
            let late = Instant::now() >= until;
            if late {
                // Collected by `clean_up`.
                let _ = sys::kill(self.agent, libc::SIGKILL);
            }
            if late || self.agent_end.is_some() {
                self.phase = self.clean_up(Instant::now() + AFTER_LOSS.limit);
            }
        } else if let Phase::CleanUp { until, .. } = self.phase {
            self.phase = self.clean_up(until);
        }
        false
    }

    fn deadline(&self) -> Option<u64> {
        let at = match self.phase {
            Phase::Job | Phase::Over => return None,
            Phase::Agent(until) => until,
            Phase::CleanUp { search_at, .. } => search_at,
        };
        // Rounded up: a rest below a millisecond must not become a busy loop.
        Some(ms(at.saturating_duration_since(self.started)) + 1)
    }

    fn serve(&mut self, ready: Ready) {
        match ready.token {
            Token::Signals => self.own_signals(),
            _ => self.messages(),
        }
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
