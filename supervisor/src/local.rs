//! The launcher's own process: forks the supervisor of the job, forwards signals to it and collects
//! its report; and what the two say to each other over their socket.
//!
//! The launcher owns the terminal's signals and the exit code; it starts nothing but the agent and
//! is the outer sub-reaper, so that a lost agent leaves nothing behind.

use std::collections::HashSet;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};
use nix::unistd::{ForkResult, getpid};
use serde::{Deserialize, Serialize};
use settings::deadlines::agent::{AFTER_LOSS, AGENT_EXIT, CLEANUP_SLICE, SIGNAL_REPEAT, STUCK};

use spawner_pmi::server::pmix::session;

use crate::agent::record::Asked;
use crate::agent::sys::{self, Reaped};
use crate::agent::{machine, processes, record};
pub use crate::event_loop::OsError;
use crate::event_loop::{self, Poller, Ready, Role, Sender, Signals, Token, cannot, ms};
use crate::plan::{JobPlan, Pmi, Program, StdinTo};
use crate::report::{End, JobReport};
use crate::watch;

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

/// How far the start of the hosts is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostsStart {
    /// Hosts of the job.
    pub total: u32,
    /// Those that are ready for ranks.
    pub ready: u32,
    /// Those that cannot take part.
    pub failed: u32,
    /// Some of the others with the step that they have come to, those that have come least far first.
    pub slowest: Vec<(String, String)>,
}

/// Told about the job while it runs, on the calling thread of [`supervise`].
pub trait Observer {
    /// The counts have changed. Calls are thinned out: not every intermediate state is shown, the
    /// last one is.
    fn event(&mut self, progress: &Progress);
    /// Not every host is ready yet, after some time; again while that is so.
    fn hosts(&mut self, _start: &HostsStart) {}
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
    #[error(transparent)]
    Os(#[from] OsError),
}

/// What the supervisor takes over from the launcher.
#[derive(Debug)]
pub struct Origin {
    pub(crate) launcher: i32,
    pub(crate) channel: Channel,
    /// The launcher's signal mask before it blocked anything: the ranks get it.
    pub(crate) mask: SigSet,
    pub(crate) started: Instant,
}

/// What the launcher's process and the supervisor say to each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Message {
    /// From the launcher: a signal for the ranks, and who sent it.
    Signal(i32, Option<Sender>),
    /// To the launcher: ranks started, that opened the bootstrap, that ended.
    Progress([u32; 3]),
    /// To the launcher: hosts are still being brought up.
    Hosts(HostsStart),
    /// To the launcher, last: the outcome.
    Report(Box<JobReport>),
}

/// Puts a stream back into messages, each of which a zero byte ends.
#[derive(Debug, Default)]
pub(crate) struct Inbox(Vec<u8>);

impl Inbox {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn take(&mut self) -> postcard::Result<Option<Message>> {
        let Some(end) = memchr::memchr(0, &self.0) else { return Ok(None) };
        let mut message: Vec<u8> = self.0.drain(..=end).collect();
        postcard::from_bytes_cobs(&mut message).map(Some)
    }
}

#[derive(Debug)]
pub(crate) struct Channel {
    socket: OwnedFd,
    inbox: Inbox,
}

impl Channel {
    fn new(socket: OwnedFd) -> Self {
        Self { socket, inbox: Inbox::default() }
    }

    /// What has come, in order, and whether nothing more will. Nonsense is the end, too.
    pub(crate) fn read(&mut self) -> (Vec<Message>, bool) {
        let mut bytes = [0; 64 * 1024];
        let over = loop {
            match recv(self.socket.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT) {
                Ok(count) if count > 0 => self.inbox.push(&bytes[..count]),
                Err(nix::Error::EINTR) => {}
                Err(nix::Error::EAGAIN) => break false,
                Ok(_) | Err(_) => break true,
            }
        };
        let mut came = Vec::new();
        loop {
            match self.inbox.take() {
                Ok(Some(message)) => came.push(message),
                Ok(None) => return (came, over),
                Err(_) => return (came, true),
            }
        }
    }

    /// Sends a message. Unless it waits, a small one is sent whole or not at all; the other side
    /// may be stopped, or about to end.
    pub(crate) fn send(&self, message: &Message, wait: bool) -> postcard::Result<()> {
        let bytes = postcard::to_stdvec_cobs(message)?;
        let flags = if wait { MsgFlags::empty() } else { MsgFlags::MSG_DONTWAIT };
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            match send(self.socket.as_raw_fd(), rest, flags | MsgFlags::MSG_NOSIGNAL) {
                Ok(count) => rest = &rest[count..],
                Err(nix::Error::EINTR) => {}
                Err(_) => break,
            }
        }
        Ok(())
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Runs the job of `plan` and returns when every process of it is gone and all output is written.
/// `run` is the supervisor's life in a process of its own: [`crate::run`].
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
    run: fn(&JobPlan, Origin) -> !,
    started: Instant,
    observer: &mut dyn Observer,
) -> Result<JobReport, LocalError> {
    check(plan)?;
    let threads = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    if threads > 1 {
        return Err(LocalError::Threads { threads });
    }
    prctl::set_child_subreaper(true).map_err(cannot("become a sub-reaper"))?;
    // Children that an earlier program of this process left us with are not ours to end.
    let foreign: HashSet<i32> =
        if processes::has_children() { processes::children(getpid().as_raw()) } else { Vec::new() }
            .into_iter()
            .collect();
    Ok(Launcher::start(plan, run, started, observer, foreign).and_then(Launcher::work)?)
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
    if let Some(problem) = Program::problem(&plan.programs, plan.size) {
        return bad(problem);
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
    // A signal that is ignored when we begin (`nohup`, `cmd &` without job control) stays ignored.
    let forwarded = sys::FORWARDED.into_iter().filter(|signal| !sys::is_ignored(*signal as i32));
    Signals::take(poller, &forwarded.chain([Signal::SIGCHLD]).collect::<Vec<_>>())
}

/// What the launcher's process waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The end of the job.
    Job,
    /// The end of the agent, until then.
    Agent(Instant),
    /// The ends of processes that a lost agent left, until then; the next search for them is due at
    /// the other time.
    CleanUp { until: Instant, search_at: Instant },
    /// Nothing more.
    Over,
}

struct Launcher<'a> {
    plan: &'a JobPlan,
    observer: &'a mut dyn Observer,
    poller: Poller,
    signals: Signals,
    foreign: HashSet<i32>,
    channel: Channel,
    agent: i32,
    agent_end: Option<End>,
    report: Option<JobReport>,
    hung_up: bool,
    phase: Phase,
    killed: HashSet<i32>,
    /// The first signal that asked for the end, and when.
    first: Option<(i32, Instant)>,
    /// By what the job is to end, and when its agent counts as stuck.
    asked: Option<(Asked, Instant)>,
    stuck: Option<Asked>,
}

impl<'a> Launcher<'a> {
    fn start(
        plan: &'a JobPlan,
        run: fn(&JobPlan, Origin) -> !,
        started: Instant,
        observer: &'a mut dyn Observer,
        foreign: HashSet<i32>,
    ) -> Result<Self, OsError> {
        let poller = Poller::new(started).map_err(cannot("make an epoll set"))?;
        let signals = take_signals(&poller).map_err(cannot("watch signals"))?;
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC)
                .map_err(cannot("make the agent's socket"))?;
        poller.add_read(&ours, Token::Control).map_err(cannot("watch the agent"))?;
        // What is buffered here must not be written twice.
        let _ = std::io::stdout().flush();
        let launcher = getpid().as_raw();
        match sys::fork().map_err(cannot("fork the node agent"))? {
            ForkResult::Child => {
                drop((ours, poller));
                let mask = signals.before;
                signals.give_up();
                run(plan, Origin { launcher, channel: Channel::new(theirs), mask, started })
            }
            ForkResult::Parent { child } => Ok(Self {
                plan,
                observer,
                poller,
                signals,
                foreign,
                channel: Channel::new(ours),
                agent: child.as_raw(),
                agent_end: None,
                report: None,
                hung_up: false,
                phase: Phase::Job,
                killed: HashSet::new(),
                first: None,
                asked: plan.timeout.and_then(|limit| {
                    let until = Instant::now().checked_add(limit)?.checked_add(STUCK.limit)?;
                    Some((Asked::TimeLimit(limit), until))
                }),
                stuck: None,
            }),
        }
    }

    fn work(mut self) -> Result<JobReport, OsError> {
        event_loop::run(&mut self).map_err(cannot("wait for the node agent"))?;
        // A supervisor that was killed leaves its socket.
        watch::place::forget(&self.plan.job_id);
        if self.plan.pmi == Pmi::Pmix {
            session::forget(&self.plan.job_id);
        }
        let done = self.poller.started.elapsed().as_secs_f64();
        let killed = u32::try_from(self.killed.len()).unwrap_or(u32::MAX);
        Ok(match self.report {
            Some(mut report) => {
                report.orphans_killed = report.orphans_killed.saturating_add(killed);
                report.phases.done = done;
                report
            }
            None => match self.stuck {
                Some(asked) => record::stuck(self.plan, asked, done, killed),
                None => record::lost(self.plan, self.agent_end, done, killed),
            },
        })
    }

    fn own_signals(&mut self) {
        for (signal, sender) in self.signals.pending() {
            if signal == libc::SIGCHLD {
                self.reap();
                continue;
            }
            let _ = self.channel.send(&Message::Signal(signal, sender), false);
            self.hear_ending(signal);
            if signal == libc::SIGTSTP {
                // The shell must see us stop; SIGCONT brings us back here and is forwarded next.
                let _ = sys::kill(getpid().as_raw(), libc::SIGSTOP);
            }
        }
    }

    /// A second signal that asks for the end is the user's last word to an agent.
    fn hear_ending(&mut self, signal: i32) {
        let now = Instant::now();
        match self.first {
            _ if !machine::ending(signal) => {}
            None => self.first = Some((signal, now)),
            Some((first, at)) if now >= at + SIGNAL_REPEAT.limit => {
                let until = now + STUCK.limit;
                if self.asked.is_none_or(|(_, earlier)| earlier > until) {
                    self.asked = Some((Asked::Signal(first), until));
                }
            }
            Some(_) => {}
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
            self.poller.remove(&self.channel);
        }
    }

    fn messages(&mut self) {
        let (came, over) = self.channel.read();
        for message in came {
            match message {
                Message::Progress([started, hello, ended]) => {
                    self.observer.event(&Progress { total: self.plan.size, started, hello, ended });
                }
                Message::Hosts(start) => self.observer.hosts(&start),
                Message::Report(report) => self.report = Some(*report),
                Message::Signal(..) => {}
            }
        }
        if over {
            self.hang_up();
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
    fn sources(&self) -> (&Poller, &Signals) {
        (&self.poller, &self.signals)
    }

    fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    fn step(&mut self) -> bool {
        if self.phase == Phase::Job && (self.report.is_some() || self.hung_up) {
            self.phase = Phase::Agent(Instant::now() + AGENT_EXIT.limit);
        }
        if self.phase == Phase::Job
            && let Some((asked, until)) = self.asked
            && Instant::now() >= until
        {
            self.stuck = Some(asked);
            self.phase = Phase::Agent(until);
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
            Phase::Job => self.asked?.1,
            Phase::Over => return None,
            Phase::Agent(until) => until,
            Phase::CleanUp { search_at, .. } => search_at,
        };
        // Rounded up: a rest below a millisecond must not become a busy loop.
        Some(ms(at.saturating_duration_since(self.poller.started)) + 1)
    }

    fn serve(&mut self, ready: Ready) {
        match ready.token {
            Token::Signals => self.own_signals(),
            _ => self.messages(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn take_all(inbox: &mut Inbox) -> postcard::Result<Vec<Message>> {
        let mut found = Vec::new();
        while let Some(message) = inbox.take()? {
            found.push(message);
        }
        Ok(found)
    }

    proptest! {
        #[test]
        fn any_cut_of_the_stream_gives_the_same_messages(
            signals in proptest::collection::vec(any::<i32>(), 1..20), cut in 1usize..9,
        ) {
            let sent: Vec<Message> = signals.iter()
                .flat_map(|s| [Message::Signal(*s, None), Message::Progress([s.unsigned_abs(), 1, 2])]).collect();
            let mut bytes = Vec::new();
            for message in &sent {
                bytes.extend(postcard::to_stdvec_cobs(message).unwrap());
            }
            let mut inbox = Inbox::default();
            let mut seen = Vec::new();
            for piece in bytes.chunks(cut) {
                inbox.push(piece);
                seen.extend(take_all(&mut inbox).unwrap());
            }
            prop_assert_eq!(seen, sent);
        }

        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut inbox = Inbox::default();
            inbox.push(&bytes);
            let _ = take_all(&mut inbox);
        }
    }
}
