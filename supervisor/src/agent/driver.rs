//! The supervisor of a job on this host alone: carries events to the machine and its actions to the
//! ranks.

use std::os::fd::OwnedFd;
use std::time::Instant;

use nix::sys::prctl;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::unistd::getppid;
use settings::log::LAUNCHER;
use settings::say;

use super::bootstrap_server::BootstrapServer;
use super::capture::Draining;
use super::control::{Control, Supervise};
use super::host_ranks::HostRanks;
use super::input::{self, Feed, Stdin};
use super::local_ranks::LocalRanks;
use super::machine::{CODE_LAUNCH, Command, Event};
use super::rank_event::RankEvent;
use super::sys;
use crate::event_loop::{self, Poller, Ready, Role, Signals, Token};
use crate::plan::JobPlan;

/// What the agent takes over from the launcher.
pub(crate) struct Origin {
    /// Process id of the launcher.
    pub(crate) launcher: i32,
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

/// Becomes a supervisor: sub-reaper, dies with its parent (which TERM announces), and hears of its
/// children's ends.
pub(crate) fn supervise_children(poller: &Poller) -> Result<Signals, AgentError> {
    prctl::set_child_subreaper(true).map_err(os("become a sub-reaper"))?;
    prctl::set_pdeathsig(Signal::SIGTERM).map_err(os("arm the parent-death signal"))?;
    // Terminal signals reach the agent, too; the launcher passes them on, so here they stay blocked
    // and unread.
    let blocked: SigSet = [Signal::SIGTTIN, Signal::SIGTTOU].into_iter().collect();
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&blocked), None).map_err(os("block signals"))?;
    sys::ask_for_short_slices();
    let watched = [Signal::SIGCHLD, Signal::SIGTERM];
    Signals::take(poller, &watched).map_err(io("watch signals"))
}

/// What the supervisor's own signals say.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PendingSignals {
    /// Children may have ended.
    pub(crate) child: bool,
    /// The parent process is gone.
    pub(crate) orphan: bool,
}

/// Reads them.
pub(crate) fn read_signals(signals: &mut Signals, parent: i32) -> PendingSignals {
    let mut pending = PendingSignals::default();
    for (signal, _) in signals.pending() {
        pending.child |= signal == libc::SIGCHLD;
        pending.orphan |= signal == libc::SIGTERM && getppid().as_raw() != parent;
    }
    pending
}

/// Life of the agent; never returns to the caller's code, which belongs to the launcher.
pub(crate) fn run(plan: &JobPlan, origin: Origin) -> ! {
    let outcome = Driver::new(plan, origin).and_then(Driver::work);
    if let Err(error) = outcome {
        say!(ERROR, LAUNCHER, "node agent on {}: {error}", plan.host);
        sys::exit_now(CODE_LAUNCH);
    }
    sys::exit_now(0)
}

struct Driver<'a> {
    control: Control<'a>,
    mask: SigSet,
    ranks: LocalRanks<'a>,
    /// Set once the machine has finished.
    draining: Option<Draining>,
    over: bool,
}

impl<'a> Driver<'a> {
    fn new(plan: &'a JobPlan, origin: Origin) -> Result<Self, AgentError> {
        let mask = origin.mask;
        let control = Control::new(plan, origin)?;
        let stdin = if input::is_terminal() { Stdin::Terminal } else { Stdin::Own };
        let share = HostRanks::whole(plan);
        let ranks = LocalRanks::new(plan, share.clone(), BootstrapServer::new(share), stdin);
        Ok(Self { control, mask, ranks, draining: None, over: false })
    }

    /// The whole job.
    fn work(mut self) -> Result<(), AgentError> {
        let made = self.control.make_directory().map_err(|text| (text, CODE_LAUNCH));
        if let Err((text, code)) = made.and_then(|()| self.ranks.prepare(self.mask)) {
            self.fail_start(None, code, text);
        }
        event_loop::run(&mut self).map_err(io("wait for events"))?;
        let orphans = self.ranks.orphans();
        self.control.report(orphans, Vec::new())
    }

    fn all_happened(&mut self, events: Vec<RankEvent>) {
        for happened in events {
            self.happened(&happened);
        }
    }

    fn start_some(&mut self) -> bool {
        if self.control.job.machine.is_ending() {
            self.ranks.stop();
            return false;
        }
        let mut events = Vec::new();
        let more = self.ranks.start_some(&self.control.poller, &mut events);
        self.all_happened(events);
        more && !self.control.job.machine.is_ending()
    }

    fn step_input(&mut self) -> bool {
        let now = self.now();
        // Every reader must be there before the first byte moves.
        if !self.ranks.is_complete() || self.ranks.readers.is_empty() {
            return false;
        }
        let feed = self.control.feed.get_or_insert_with(Feed::new);
        feed.step(&self.control.poller, &mut self.ranks.readers, now)
    }

    fn reap(&mut self) {
        let mut events = Vec::new();
        let others = self.ranks.reap(&self.control.poller, &mut events);
        self.all_happened(events);
        if self.control.job.machine.is_cleaning_up() {
            self.event(Event::Orphans { left: others.left });
        }
    }

    /// The machine has finished: the output is read to its end.
    fn begin_draining(&mut self) -> Draining {
        let pids: Vec<String> = self.ranks.pids().map(|pid| pid.to_string()).collect();
        if !pids.is_empty() {
            let text = format!("gave up on processes that SIGKILL did not end: {}", pids.join(" "));
            self.control.output.message(&self.control.poller, &text);
        }
        Draining::new(self.now())
    }

    fn drain(&mut self, mut draining: Draining) {
        let now = self.now();
        if !self.is_drained() {
            let Control { poller, output, job, launcher, .. } = &mut self.control;
            let mut closed = draining.step(now, &mut self.ranks.capture, output);
            if job.impatient && launcher.gone {
                self.ranks.capture.close_all(output);
                closed = true;
            }
            if closed {
                output.settle(poller);
            }
        }
        self.over = self.control.job.impatient || self.is_drained();
        self.draining = Some(draining);
    }

    fn is_drained(&self) -> bool {
        self.ranks.capture.is_over() && self.control.output.is_written()
    }
}

impl Role for Driver<'_> {
    fn sources(&mut self) -> (&Poller, &Signals) {
        (&self.control.poller, &self.control.signals)
    }

    fn now(&self) -> u64 {
        self.control.job.now()
    }

    fn is_over(&self) -> bool {
        self.over
    }

    fn step(&mut self) -> bool {
        if self.draining.is_none() && !self.control.job.machine.is_finished() {
            let more = self.start_some();
            let again = self.step_input();
            if !self.control.job.machine.is_finished() {
                self.control.tell_progress();
                return more || again;
            }
        }
        let draining = self.draining.take().unwrap_or_else(|| self.begin_draining());
        self.drain(draining);
        false
    }

    fn deadline(&self) -> Option<u64> {
        match &self.draining {
            None => self.control.deadline(),
            Some(draining) => (!self.ranks.capture.is_over()).then(|| draining.deadline()),
        }
    }

    fn serve(&mut self, ready: Ready) {
        match ready.token {
            Token::Signals => {
                if self.own_signals() {
                    self.reap();
                }
            }
            Token::Control => self.hear_launcher(),
            Token::Sink(number) => self.control.output.writable(&self.control.poller, number),
            _ => {
                let mut events = Vec::new();
                let Control { poller, output, .. } = &mut self.control;
                self.ranks.serve(poller, ready, output, &mut events);
                output.settle(poller);
                self.all_happened(events);
            }
        }
    }

    fn settle(&mut self) {
        let Control { poller, output, .. } = &mut self.control;
        output.show_prompt(poller);
        self.ranks.capture.settle(poller, output);
    }

    fn decision_due(&self) -> Option<u64> {
        self.control.job.machine.deadline()
    }

    fn tick(&mut self) {
        self.event(Event::Tick);
    }
}

impl<'a> Supervise<'a> for Driver<'a> {
    fn control(&mut self) -> &mut Control<'a> {
        &mut self.control
    }

    fn act(&mut self, action: Command) {
        match action {
            Command::ExitDecision { code, cause } => self.ranks.boot.publish_exit(code, cause),
            Command::SampleCpu => {
                let starved = self.ranks.sample_cpu().is_starved();
                self.event(Event::CpuSampled { starved });
            }
            Command::QuitUnclaimed => self.ranks.quit_unclaimed(),
            Command::Forward(signal) => self.ranks.to_groups(signal),
            Command::End(signal) => self.ranks.end(signal),
            Command::FindOrphans => self.reap(),
            Command::EndOrphans(signal) => self.ranks.end_orphans(signal, |_| false),
            Command::Finish => {}
        }
    }

    fn close_input(&mut self) {
        self.control.feed = None;
        self.ranks.readers.close();
    }
}
