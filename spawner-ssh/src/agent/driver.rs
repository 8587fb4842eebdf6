//! The loop around the machine: carries events to it and its actions out.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Instant;

use nix::sys::prctl;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{MsgFlags, recv, send};
use nix::unistd::{getpid, getppid};

use super::boot::Boot;
use super::deadlines::DRAIN;
use super::input::{self, Feed};
use super::machine::{Action, Event, Machine, Rules};
use super::output::Output;
use super::poller::{Poller, Ready, Token};
use super::record::{self, Details, epoch_now};
use super::spawn::{SpawnError, Spawner, Started};
use super::sys::{self, Reaped};
use super::tree;
use crate::plan::JobPlan;
use crate::report::{JobReport, Phases, RankRecord};
use crate::wire::{Inbox, Message};

/// Ranks started at the same time, between two looks at everything else.
const SPAWN_BATCH: u32 = 16;
/// Rounds with events that may pass before a deadline that has come is acted on: what has been sent is heard first.
const TICK_PATIENCE: u32 = 64;
/// Milliseconds between two progress messages.
const PROGRESS_EVERY: u64 = 50;

/// CPU time in which ranks that are about to exit with the others get to say so.
const FAIR_SHARE_NS: u64 = 2_000_000;

/// Ranks that are looked at for it.
const LOOK_SAMPLE: usize = 8;

/// What the agent takes over from the front.
pub(crate) struct Origin {
    /// Process id of the front.
    pub(crate) front: i32,
    /// The agent's end of the socket.
    pub(crate) socket: OwnedFd,
    /// The launcher's signal mask before it blocked anything: the ranks get it.
    pub(crate) mask: SigSet,
    /// When the launcher began.
    pub(crate) started: Instant,
}

/// Why the agent cannot work at all.
#[derive(Debug, thiserror::Error)]
enum AgentError {
    #[error("cannot {operation}: {source}")]
    Os { operation: &'static str, source: std::io::Error },
}

fn os(operation: &'static str) -> impl Fn(nix::Error) -> AgentError {
    move |errno| AgentError::Os { operation, source: errno.into() }
}

/// Life of the agent; never returns to the caller's code, which belongs to the front.
pub(crate) fn run(plan: &JobPlan, origin: Origin) -> ! {
    let outcome = Driver::new(plan, origin).and_then(Driver::work);
    if let Err(error) = outcome {
        let text = format!("gasnetrun_ibv: node agent on {}: {error}\n", plan.host);
        let _ = nix::unistd::write(std::io::stderr(), text.as_bytes());
        sys::exit_now(super::machine::CODE_LAUNCH);
    }
    sys::exit_now(0)
}

struct Driver<'a> {
    plan: &'a JobPlan,
    origin: Origin,
    poller: Poller,
    signals: SignalFd,
    inbox: Inbox,
    machine: Machine,
    spawner: Option<Spawner<'a>>,
    output: Output,
    feed: Option<Feed>,
    terminal: bool,
    boot: Boot,
    /// By rank; a rank that was started has a pid here.
    ranks: Vec<RankRecord>,
    /// Rank of each running process.
    by_pid: HashMap<i32, u32>,
    next: u32,
    start_error: Option<String>,
    phases: Phases,
    strays: HashSet<i32>,
    actions: Vec<Action>,
    told: [u32; 3],
    told_at: u64,
    /// `Exiting` messages so far, and how many there were at the last look at CPU times.
    exits_heard: u32,
    looked_after: u32,
    cpu_times: HashMap<u32, u64>,
    /// The user does not want to wait for the rest of the output.
    impatient: bool,
    front_gone: bool,
}

impl<'a> Driver<'a> {
    fn new(plan: &'a JobPlan, origin: Origin) -> Result<Self, AgentError> {
        prctl::set_child_subreaper(true).map_err(os("become a sub-reaper"))?;
        prctl::set_pdeathsig(Signal::SIGTERM).map_err(os("arm the parent-death signal"))?;
        // Terminal signals reach the agent, too; the front passes them on, so here they stay blocked and unread.
        let blocked = [Signal::SIGTTIN, Signal::SIGTTOU, Signal::SIGCHLD, Signal::SIGTERM];
        let blocked: SigSet = blocked.into_iter().collect();
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&blocked), None).map_err(os("block signals"))?;
        sys::ask_for_short_slices();
        let watched: SigSet = [Signal::SIGCHLD, Signal::SIGTERM].into_iter().collect();
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let signals = SignalFd::with_flags(&watched, flags).map_err(os("watch signals"))?;
        let io = |operation| move |source| AgentError::Os { operation, source };
        let poller = Poller::new().map_err(io("make an epoll set"))?;
        poller.add_read(signals.as_fd(), Token::Signals).map_err(io("watch signals"))?;
        poller.add_read(origin.socket.as_fd(), Token::Front).map_err(io("watch the front"))?;
        let output = Output::new(&plan.output, plan.size, plan.stdin);
        let ms = |d: std::time::Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        let timeout_at =
            plan.timeout.map(|limit| ms(origin.started.elapsed()).saturating_add(ms(limit)));
        let rules = Rules { exit_bound: ms(plan.exit_bound), timeout_at };
        Ok(Self {
            plan,
            origin,
            poller,
            signals,
            inbox: Inbox::default(),
            machine: Machine::new(plan.size, rules),
            spawner: None,
            output,
            feed: None,
            terminal: input::is_terminal(),
            boot: Boot::new(plan.size),
            ranks: record::blank(plan),
            by_pid: HashMap::with_capacity(plan.size as usize),
            next: 0,
            start_error: None,
            phases: Phases::default(),
            strays: HashSet::new(),
            actions: Vec::new(),
            told: [0; 3],
            told_at: 0,
            exits_heard: 0,
            looked_after: 0,
            cpu_times: HashMap::new(),
            impatient: false,
            front_gone: false,
        })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.origin.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn say(&mut self, level: u8, text: impl FnOnce() -> String) {
        if self.plan.verbose >= level {
            let at = self.origin.started.elapsed().as_secs_f64() * 1000.0;
            self.output.message(&self.poller, &format!("{at:.1} ms: {}", text()));
        }
    }

    /// The whole job.
    fn work(mut self) -> Result<(), AgentError> {
        self.prepare();
        let mut ready = Vec::new();
        let mut busy = 0;
        while !self.machine.is_finished() {
            let more = self.start_some();
            let again = self.step_input();
            self.tell_front(false);
            let timeout = if more || again { Some(0) } else { self.timeout() };
            self.turn(timeout, &mut ready)?;
            busy = if ready.is_empty() { 0 } else { busy + 1 };
            let due = self.machine.deadline().is_some_and(|at| self.now() >= at);
            if due && (ready.is_empty() || busy > TICK_PATIENCE) {
                busy = 0;
                self.event(Event::Tick);
            }
        }
        self.finish(ready)
    }

    fn prepare(&mut self) {
        self.phases.prepare = self.origin.started.elapsed().as_secs_f64();
        match self.make_spawner() {
            Ok(spawner) => self.spawner = Some(spawner),
            Err((text, code)) => {
                self.start_error = Some(text);
                self.event(Event::StartFailed { rank: None, code });
            }
        }
    }

    /// What can fail before the first rank; the error with the exit code that follows.
    fn make_spawner(&mut self) -> Result<Spawner<'a>, (String, i32)> {
        let plain = |text| (text, super::machine::CODE_LAUNCH);
        let made = self.output.make_directory();
        made.map_err(|(path, error)| {
            plain(format!("cannot make the output directory {}: {error}", path.display()))
        })?;
        let directory = &self.plan.directory;
        std::env::set_current_dir(directory).map_err(|error| {
            plain(format!("cannot change to the directory {}: {error}", directory.display()))
        })?;
        Spawner::new(self.plan, self.origin.mask).map_err(|error| (error.to_string(), error.code()))
    }

    /// How long nothing needs to be done.
    fn timeout(&self) -> Option<u64> {
        let feed = self.feed.as_ref().and_then(Feed::deadline);
        let told = (self.told != self.counts()).then(|| self.told_at + PROGRESS_EVERY);
        let at = [self.machine.deadline(), feed, told].into_iter().flatten().min();
        let left = at.map(|at| at.saturating_sub(self.now()));
        [left, self.output.prompt_in()].into_iter().flatten().min()
    }

    /// Waits once and serves what is ready.
    fn turn(&mut self, timeout: Option<u64>, ready: &mut Vec<Ready>) -> Result<(), AgentError> {
        let waited = self.poller.wait(timeout, ready);
        waited.map_err(|source| AgentError::Os { operation: "wait for events", source })?;
        for event in ready.iter() {
            self.serve(*event);
        }
        self.output.show_prompt(&self.poller);
        Ok(())
    }

    fn serve(&mut self, ready: Ready) {
        match ready.token {
            Token::Signals => self.own_signals(),
            Token::Front => self.front(),
            Token::Input | Token::Feed(_) => {}
            Token::Sink(number) => self.output.writable(&self.poller, number),
            Token::Stream(rank, which) => self.output.readable(&self.poller, rank, which),
            Token::Socket(rank) => {
                if ready.writable {
                    self.boot.writable(&self.poller, rank);
                }
                if ready.readable {
                    let mut events = Vec::new();
                    self.boot.readable(&self.poller, rank, &mut events);
                    self.events(events);
                }
            }
        }
    }

    fn events(&mut self, events: Vec<Event>) {
        for event in events {
            self.event(event);
        }
    }

    /// One event through the machine, and everything that follows from it.
    fn event(&mut self, event: Event) {
        self.note(event);
        let now = self.now();
        let mut actions = std::mem::take(&mut self.actions);
        self.machine.handle(now, event, &mut actions);
        for action in actions.drain(..) {
            self.act(action);
        }
        self.actions = actions;
    }

    fn note(&mut self, event: Event) {
        if self.plan.verbose >= 2 && event != Event::Tick {
            self.say(2, || format!("event {event:?}"));
        }
        self.exits_heard += u32::from(matches!(event, Event::Exiting { .. }));
        if let Event::Hello(rank) = event {
            self.ranks[rank as usize].hello = true;
            if self.machine.counts().0 + 1 == self.plan.size {
                self.phases.hello = Some(self.origin.started.elapsed().as_secs_f64());
            }
        }
    }

    fn act(&mut self, action: Action) {
        self.say(2, || format!("action {action:?}"));
        match action {
            Action::Notice { code, cause } => {
                self.feed = None;
                self.boot.notice(code, cause);
            }
            Action::Look => self.look(),
            Action::QuitUnclaimed => {
                let running: Vec<u32> = self.by_pid.values().copied().collect();
                for to in running.into_iter().filter_map(|rank| self.boot.claim_quit(rank)) {
                    let _ = sys::kill(to, libc::SIGQUIT);
                }
            }
            Action::Forward(signal) => {
                self.to_groups(signal);
                if let (libc::SIGCONT, Some(feed)) = (signal, &mut self.feed) {
                    feed.unpark();
                }
            }
            Action::End(signal) => {
                self.feed = None;
                self.to_groups(signal);
                if signal == libc::SIGTERM {
                    self.to_groups(libc::SIGCONT);
                }
            }
            Action::Sweep => {
                self.feed = None;
                self.reap();
            }
            Action::EndStrays(signal) => self.end_strays(signal),
            Action::Finish => {}
        }
    }

    /// Whether ranks that are not exiting are only waiting for a CPU. The first look after an `Exiting` notes what they
    /// have used; a later one sees whether they got anything since. Together: while any of them is given CPUs and none
    /// joins the exit, the others wait for each other, not for the machine.
    fn look(&mut self) {
        let exits = self.exits_heard;
        if std::mem::replace(&mut self.looked_after, exits) != exits {
            self.cpu_times.clear();
        }
        // A sample: an agent that reads much is itself put behind computing ranks by a fair scheduler.
        let staying: Vec<u32> = self.machine.staying().collect();
        let step = staying.len().div_ceil(LOOK_SAMPLE).max(1);
        let (mut waiting, mut given) = (false, 0);
        for &rank in staying.iter().step_by(step) {
            let Some((ready, time)) = self.boot.speaker(rank).and_then(tree::activity) else {
                continue;
            };
            let before = *self.cpu_times.entry(rank).or_insert(time);
            waiting |= ready;
            given += time.saturating_sub(before);
        }
        self.event(Event::Looked { starved: waiting && given * (step as u64) < FAIR_SHARE_NS });
    }

    fn to_groups(&self, signal: i32) {
        for pid in self.by_pid.keys() {
            // A rank that is a zombie already, or has changed its user: nothing more can be done here.
            let _ = sys::kill(-pid, signal);
        }
    }

    fn end_strays(&mut self, signal: i32) {
        for pid in tree::descendants(getpid().as_raw(), |_| false) {
            if self.strays.insert(pid) || signal == libc::SIGKILL {
                let _ = sys::kill(pid, signal);
                let _ = sys::kill(pid, libc::SIGCONT);
            }
        }
    }

    /// Starts a few ranks; whether there are more.
    fn start_some(&mut self) -> bool {
        if self.machine.is_ending() {
            return false;
        }
        let first = self.next;
        let until = first.saturating_add(SPAWN_BATCH).min(self.plan.size);
        let Some(spawner) = &mut self.spawner else { return false };
        let (plan, terminal) = (self.plan, self.terminal);
        let inputs = (first..until).map(|rank| input::for_rank(plan, rank, terminal));
        for (rank, started) in (first..).zip(spawner.start(first, inputs)) {
            match started {
                Ok(started) if self.start_error.is_none() => self.adopt(rank, started),
                // Made at the same time as one that failed: it does not belong to the job any more.
                Ok(started) => drop(sys::kill(-started.pid, libc::SIGKILL)),
                Err(error) => self.not_started(rank, &error),
            }
        }
        let more = self.next < self.plan.size && !self.machine.is_ending();
        if !more {
            self.spawner = None;
        }
        more
    }

    /// Takes a new rank in.
    fn adopt(&mut self, rank: u32, started: Started) {
        self.next = rank + 1;
        let record = &mut self.ranks[rank as usize];
        record.pid = Some(started.pid);
        record.started = Some(epoch_now());
        self.by_pid.insert(started.pid, rank);
        self.event(Event::Started(rank));
        let adopted = self
            .boot
            .adopt(&self.poller, started.pid, started.socket)
            .and_then(|()| self.output.adopt(&self.poller, started.stdout, started.stderr));
        if let Err(error) = adopted {
            self.start_error = Some(format!("cannot connect rank {rank}: {error}"));
            self.event(Event::StartFailed { rank: Some(rank), code: super::machine::CODE_LAUNCH });
        }
        if let Some(pipe) = started.stdin {
            self.feed.get_or_insert_with(Feed::new).add(rank, pipe);
        }
        self.say(1, || format!("rank {rank} runs as process {}", started.pid));
        if self.next == self.plan.size {
            self.phases.spawn = self.origin.started.elapsed().as_secs_f64();
        }
    }

    fn not_started(&mut self, rank: u32, error: &SpawnError) {
        if self.start_error.is_none() {
            self.start_error = Some(error.to_string());
            self.event(Event::StartFailed { rank: Some(rank), code: error.code() });
        }
    }

    fn step_input(&mut self) -> bool {
        let now = self.now();
        // Every reader must be there before the first byte moves.
        let complete = self.next == self.plan.size;
        self.feed.as_mut().filter(|_| complete).is_some_and(|feed| feed.step(&self.poller, now))
    }

    fn own_signals(&mut self) {
        let mut child = false;
        while let Ok(Some(info)) = self.signals.read_signal() {
            child |= info.ssi_signo == Signal::SIGCHLD as u32;
            if info.ssi_signo == Signal::SIGTERM as u32 && getppid().as_raw() != self.origin.front {
                self.front_lost();
            }
        }
        if child {
            self.reap();
        }
    }

    fn reap(&mut self) {
        let left = loop {
            match sys::reap() {
                Reaped::Child(pid, end) => {
                    let Some(rank) = self.by_pid.remove(&pid) else { continue };
                    let mut events = Vec::new();
                    // What the rank said before it ended comes first.
                    self.boot.drain(&self.poller, rank, &mut events);
                    let record = &mut self.ranks[rank as usize];
                    record.end = Some(end);
                    record.ended = Some(epoch_now());
                    self.say(1, || format!("rank {rank} (process {pid}) ended: {end:?}"));
                    self.events(events);
                    self.event(Event::Ended { rank, end });
                }
                Reaped::Running => break true,
                Reaped::NoChildren => break false,
            }
        };
        if self.machine.is_sweeping() {
            self.event(Event::Strays { left });
        }
    }

    /// Messages of the front, or its end.
    fn front(&mut self) {
        let mut bytes = [0; 4096];
        loop {
            match recv(self.origin.socket.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT) {
                Ok(0) => return self.front_lost(),
                Ok(count) => self.inbox.push(&bytes[..count]),
                Err(nix::Error::EINTR) => {}
                Err(nix::Error::EAGAIN) => break,
                Err(_) => return self.front_lost(),
            }
        }
        loop {
            match self.inbox.take() {
                Ok(Some(Message::Signal(signal))) => {
                    self.impatient |= self.machine.is_finished() && signal != libc::SIGCONT;
                    self.event(Event::Signal(signal));
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => return self.front_lost(),
            }
        }
    }

    fn front_lost(&mut self) {
        if !std::mem::replace(&mut self.front_gone, true) {
            self.poller.remove(&self.origin.socket);
            self.impatient = true;
            self.event(Event::FrontLost);
        }
    }

    fn counts(&self) -> [u32; 3] {
        let (hello, ended) = self.machine.counts();
        [self.next, hello, ended]
    }

    /// Sends the counts when they have changed, not too often.
    fn tell_front(&mut self, now_or_never: bool) {
        let (counts, now) = (self.counts(), self.now());
        let early = now < self.told_at + PROGRESS_EVERY && !now_or_never;
        if counts == self.told || early || self.front_gone {
            return;
        }
        self.told = counts;
        self.told_at = now;
        let mut bytes = Vec::new();
        if Message::Progress(counts).encode(&mut bytes).is_ok() {
            // A front that is stopped does not read: then it misses a count, nothing else. A message this small is
            // sent whole or not at all.
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            let _ = send(self.origin.socket.as_raw_fd(), &bytes, flags);
        }
    }

    /// Drains the output, reports.
    fn finish(mut self, mut ready: Vec<Ready>) -> Result<(), AgentError> {
        if !self.by_pid.is_empty() {
            let pids: Vec<String> = self.by_pid.keys().map(i32::to_string).collect();
            let text = format!("gave up on processes that SIGKILL did not end: {}", pids.join(" "));
            self.output.message(&self.poller, &text);
        }
        let give_up = self.now() + DRAIN.ms();
        while !self.output.is_drained() {
            let now = self.now();
            let hurry = self.impatient && self.front_gone;
            if now >= give_up || hurry {
                self.output.close_pipes(&self.poller);
            }
            if self.impatient || self.output.is_drained() {
                break;
            }
            let timeout = (now < give_up).then(|| give_up - now);
            self.turn(timeout, &mut ready)?;
        }
        self.phases.end_begins = self.machine.end_begins().map(seconds);
        self.phases.done = self.origin.started.elapsed().as_secs_f64();
        self.tell_front(true);
        let report = self.report();
        let mut bytes = Vec::new();
        let encoded = Message::Report(Box::new(report)).encode(&mut bytes);
        encoded.map_err(|error| AgentError::Os {
            operation: "write the report",
            source: std::io::Error::other(error),
        })?;
        let mut rest = &bytes[..];
        while !rest.is_empty() && !self.front_gone {
            match send(self.origin.socket.as_raw_fd(), rest, MsgFlags::MSG_NOSIGNAL) {
                Ok(count) => rest = &rest[count..],
                Err(nix::Error::EINTR) => {}
                Err(_) => break,
            }
        }
        Ok(())
    }

    fn report(&mut self) -> JobReport {
        let mut ranks = std::mem::take(&mut self.ranks);
        for record in &mut ranks {
            (record.hello, record.killed_by_launcher) = self.machine.fate(record.rank);
        }
        let rank = self.machine.cause().and_then(|cause| cause.rank);
        let details = Details {
            start: self.start_error.as_deref(),
            protocol: self.boot.problem(),
            stderr_tail: rank.map(|rank| self.output.tail(rank)).unwrap_or_default(),
        };
        let strays = u32::try_from(self.strays.len()).unwrap_or(u32::MAX);
        let phases = std::mem::take(&mut self.phases);
        let mut report = record::report(self.plan, &self.machine, ranks, phases, strays, details);
        if report.exit_code == 0 && self.output.is_lost() {
            report.exit_code = 1;
        }
        report
    }
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds of a job's life are far below 2^52")]
fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}
