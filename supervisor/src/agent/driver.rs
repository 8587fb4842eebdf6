//! The loop around the machine for a job on this host alone: carries events to it and its actions out.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use nix::sys::prctl;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::getppid;

use super::body::Body;
use super::boot::Boot;
use super::capture::Draining;
use super::front::FrontLink;
use super::happened::Happened;
use super::input::{self, Feed, Stdin};
use super::job::Job;
use super::machine::{Action, CODE_LAUNCH, Event};
use super::output::Output;
use super::poller::{Poller, Ready, Token};
use super::share::Share;
use super::sys;
use crate::plan::JobPlan;

/// Rounds with events that may pass before a deadline that has come is acted on: what has been sent is heard first.
pub(crate) const TICK_PATIENCE: u32 = 64;

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

/// Why an agent cannot work at all.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AgentError {
    #[error("cannot {operation}: {source}")]
    Os { operation: &'static str, source: std::io::Error },
}

pub(crate) fn os(operation: &'static str) -> impl Fn(nix::Error) -> AgentError {
    move |errno| AgentError::Os { operation, source: errno.into() }
}

/// The same for errors of the standard library.
pub(crate) fn io(operation: &'static str) -> impl Fn(std::io::Error) -> AgentError {
    move |source| AgentError::Os { operation, source }
}

/// Becomes a supervisor: sub-reaper, dies with its parent (which TERM announces), and hears of its children's ends.
pub(crate) fn supervise_children(poller: &Poller) -> Result<SignalFd, AgentError> {
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
    poller.add_read(signals.as_fd(), Token::Signals).map_err(io("watch signals"))?;
    Ok(signals)
}

/// What the supervisor's own signals say.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Told {
    /// Children may have ended.
    pub(crate) child: bool,
    /// The parent process is gone.
    pub(crate) orphan: bool,
}

/// Reads them.
pub(crate) fn read_signals(signals: &SignalFd, parent: i32) -> Told {
    let mut told = Told::default();
    while let Ok(Some(info)) = signals.read_signal() {
        told.child |= info.ssi_signo == Signal::SIGCHLD as u32;
        told.orphan |= info.ssi_signo == Signal::SIGTERM as u32 && getppid().as_raw() != parent;
    }
    told
}

/// Life of the agent; never returns to the caller's code, which belongs to the front.
pub(crate) fn run(plan: &JobPlan, origin: Origin) -> ! {
    let outcome = Driver::new(plan, origin).and_then(Driver::work);
    if let Err(error) = outcome {
        let text = format!("gasnetrun_ibv: node agent on {}: {error}\n", plan.host);
        let _ = nix::unistd::write(std::io::stderr(), text.as_bytes());
        sys::exit_now(CODE_LAUNCH);
    }
    sys::exit_now(0)
}

struct Driver<'a> {
    plan: &'a JobPlan,
    front_pid: i32,
    mask: SigSet,
    poller: Poller,
    signals: SignalFd,
    front: FrontLink,
    job: Job<'a>,
    body: Body<'a>,
    output: Output,
    feed: Option<Feed>,
    actions: Vec<Action>,
}

impl<'a> Driver<'a> {
    fn new(plan: &'a JobPlan, origin: Origin) -> Result<Self, AgentError> {
        let poller = Poller::new().map_err(io("make an epoll set"))?;
        let signals = supervise_children(&poller)?;
        poller.add_read(origin.socket.as_fd(), Token::Front).map_err(io("watch the front"))?;
        let stdin = if input::is_terminal() { Stdin::Terminal } else { Stdin::Own };
        let share = Share::whole(plan);
        Ok(Self {
            plan,
            front_pid: origin.front,
            mask: origin.mask,
            poller,
            signals,
            front: FrontLink::new(origin.socket),
            job: Job::new(plan, origin.started),
            body: Body::new(plan, share.clone(), Boot::new(share), stdin),
            output: Output::new(&plan.output, plan.size, plan.stdin),
            feed: None,
            actions: Vec::new(),
        })
    }

    fn now(&self) -> u64 {
        self.job.now()
    }

    fn say(&mut self, level: u8, text: impl FnOnce() -> String) {
        if self.plan.verbose >= level {
            let at = self.job.elapsed() * 1000.0;
            self.output.message(&self.poller, &format!("{at:.1} ms: {}", text()));
        }
    }

    /// The whole job.
    fn work(mut self) -> Result<(), AgentError> {
        self.prepare();
        let mut ready = Vec::new();
        let mut busy = 0;
        while !self.job.machine.is_finished() {
            let more = self.start_some();
            let again = self.step_input();
            // A start that failed may have been the end; nothing would wake us any more.
            if self.job.machine.is_finished() {
                break;
            }
            self.front.tell(self.job.counts(), self.now(), false);
            let timeout = if more || again { Some(0) } else { self.timeout() };
            self.turn(timeout, &mut ready)?;
            busy = if ready.is_empty() { 0 } else { busy + 1 };
            let due = self.job.machine.deadline().is_some_and(|at| self.now() >= at);
            if due && (ready.is_empty() || busy > TICK_PATIENCE) {
                busy = 0;
                self.event(Event::Tick);
            }
        }
        self.finish(ready)
    }

    fn prepare(&mut self) {
        self.job.phases.prepare = self.job.elapsed();
        let made = self.output.make_directory().map_err(|(path, error)| {
            (format!("cannot make the output directory {}: {error}", path.display()), CODE_LAUNCH)
        });
        if let Err((text, code)) = made.and_then(|()| self.body.prepare(self.mask)) {
            self.happened(vec![Happened::StartFailed { rank: None, code, text }]);
        }
    }

    /// How long nothing needs to be done.
    fn timeout(&self) -> Option<u64> {
        let feed = self.feed.as_ref().and_then(Feed::deadline);
        let told = self.front.due(self.job.counts());
        let at = [self.job.machine.deadline(), feed, told].into_iter().flatten().min();
        let left = at.map(|at| at.saturating_sub(self.now()));
        [left, self.output.prompt_in()].into_iter().flatten().min()
    }

    /// Waits once and serves what is ready.
    fn turn(&mut self, timeout: Option<u64>, ready: &mut Vec<Ready>) -> Result<(), AgentError> {
        self.poller.wait(timeout, ready).map_err(io("wait for events"))?;
        for event in ready.iter() {
            self.serve(*event);
        }
        self.output.show_prompt(&self.poller);
        self.body.capture.settle(&self.poller, &mut self.output);
        Ok(())
    }

    fn serve(&mut self, ready: Ready) {
        match ready.token {
            Token::Signals => self.own_signals(),
            Token::Front => {
                let events = self.front.hear(&self.poller);
                self.events(events);
            }
            Token::Sink(number) => self.output.writable(&self.poller, number),
            _ => {
                let mut events = Vec::new();
                self.body.serve(&self.poller, ready, &mut self.output, &mut events);
                self.output.settle(&self.poller);
                self.happened(events);
            }
        }
    }

    fn happened(&mut self, events: Vec<Happened>) {
        for happened in events {
            self.job.note(&happened);
            self.event(happened.event());
            match happened {
                Happened::Started { rank, pid, .. } => {
                    if let Err(error) = self.output.adopt(rank) {
                        let text = format!("cannot make the output files of rank {rank}: {error}");
                        let code = CODE_LAUNCH;
                        let failed = Happened::StartFailed { rank: Some(rank), code, text };
                        self.job.note(&failed);
                        self.event(failed.event());
                    }
                    self.say(1, || format!("rank {rank} runs as process {pid}"));
                }
                Happened::Ended { rank, end, .. } => {
                    self.say(1, || format!("rank {rank} ended: {end:?}"));
                }
                _ => {}
            }
        }
    }

    fn events(&mut self, events: impl IntoIterator<Item = Event>) {
        for event in events {
            self.event(event);
        }
    }

    /// One event through the machine, and everything that follows from it.
    fn event(&mut self, event: Event) {
        if self.plan.verbose >= 2 && event != Event::Tick {
            self.say(2, || format!("event {event:?}"));
        }
        let mut actions = std::mem::take(&mut self.actions);
        self.job.handle(event, &mut actions);
        for action in actions.drain(..) {
            self.act(action);
        }
        self.actions = actions;
    }

    fn act(&mut self, action: Action) {
        self.say(2, || format!("action {action:?}"));
        match action {
            Action::Notice { code, cause } => {
                self.close_input();
                self.body.boot.notice(code, cause);
            }
            Action::Look => {
                let starved = self.body.look().is_starved();
                self.event(Event::Looked { starved });
            }
            Action::QuitUnclaimed => self.body.quit_unclaimed(),
            Action::Forward(signal) => {
                self.body.to_groups(signal);
                if let (libc::SIGCONT, Some(feed)) = (signal, &mut self.feed) {
                    feed.unpark();
                }
            }
            Action::End(signal) => {
                self.close_input();
                self.body.end(signal);
            }
            Action::Sweep => {
                self.close_input();
                self.reap();
            }
            Action::EndStrays(signal) => self.body.end_strays(signal, |_| false),
            Action::Finish => {}
        }
    }

    fn close_input(&mut self) {
        self.feed = None;
        self.body.readers.close();
    }

    fn start_some(&mut self) -> bool {
        if self.job.machine.is_ending() {
            self.body.stop();
            return false;
        }
        let mut events = Vec::new();
        let more = self.body.start_some(&self.poller, &mut events);
        self.happened(events);
        more && !self.job.machine.is_ending()
    }

    fn step_input(&mut self) -> bool {
        let now = self.now();
        // Every reader must be there before the first byte moves.
        if !self.body.is_complete() || self.body.readers.is_empty() {
            return false;
        }
        let feed = self.feed.get_or_insert_with(Feed::new);
        feed.step(&self.poller, &mut self.body.readers, now)
    }

    fn own_signals(&mut self) {
        let told = read_signals(&self.signals, self.front_pid);
        if told.orphan {
            let lost = self.front.lose(&self.poller);
            self.events(lost);
        }
        if told.child {
            self.reap();
        }
    }

    fn reap(&mut self) {
        let mut events = Vec::new();
        let others = self.body.reap(&self.poller, &mut events);
        self.happened(events);
        if self.job.machine.is_sweeping() {
            self.event(Event::Strays { left: others.left });
        }
    }

    /// Drains the output, reports.
    fn finish(mut self, mut ready: Vec<Ready>) -> Result<(), AgentError> {
        let pids: Vec<String> = self.body.pids().map(|pid| pid.to_string()).collect();
        if !pids.is_empty() {
            let text = format!("gave up on processes that SIGKILL did not end: {}", pids.join(" "));
            self.output.message(&self.poller, &text);
        }
        let mut draining = Draining::new(self.now());
        while !self.is_drained() {
            let now = self.now();
            let mut closed = draining.step(now, &mut self.body.capture, &mut self.output);
            if self.job.impatient && self.front.gone {
                self.body.capture.close_all(&mut self.output);
                closed = true;
            }
            if closed {
                self.output.settle(&self.poller);
            }
            if self.job.impatient || self.is_drained() {
                break;
            }
            let late = self.body.capture.is_over();
            let timeout = (!late).then(|| draining.deadline().saturating_sub(now));
            self.turn(timeout, &mut ready)?;
        }
        let strays = self.body.strays();
        let told = self.front.report(&mut self.job, &self.output, strays, Vec::new());
        told.map_err(|error| io("write the report")(std::io::Error::other(error)))
    }

    fn is_drained(&self) -> bool {
        self.body.capture.is_over() && self.output.is_written()
    }
}
