//! Decides how a job ends. Pure: no system call, no clock.
//!
//! # Primer
//!
//! The driver tells the machine what happened ([`Event`]) and when (milliseconds on any clock that
//! does not go back), carries out the [`Command`]s in order, and calls with [`Event::Tick`] when
//! [`Machine::deadline`] has come. Rules, in short (`docs/ARCHITECTURE.md` section 4 has the
//! reasons):
//!
//! * The **first cause** is recorded once. What happens after it, our own killing above all, never
//!   replaces it. One thing is noticed long after it happened: the loss of a host that fell silent.
//!   It replaces a rank's failure that came later, and an exit with code 0 at any time.
//! * A death (signal, non-zero exit without announcement, exit 0 after `Hello` without farewell)
//!   ends the job at once: exit decision, TERM, and KILL after the grace.
//! * A rank that announces its exit opens the quiet window. If it passes while another rank is not
//!   exiting, and that is not for want of a CPU ([`Command::SampleCpu`]: with many ranks per core
//!   an exit that all ranks make together is spread over many milliseconds), the exit is
//!   non-collective: exit decision with the largest announced code, SIGQUIT to ranks that have not
//!   seen it, TERM when the exit bound is over. With code 0 nothing of this happens before the exit
//!   bound: nobody failed, and the ranks that stay may be at work on the last result.
//! * A rank that speaks PMI must finalize it before it ends with status 0, as one that said `Hello`
//!   must say its farewell.
//! * A signal to the launcher is forwarded. Ranks that leave in good order with code 0 afterwards
//!   make a good job; a code of their own becomes the job's; ranks that end *by* the signal make it
//!   128 + signal. A second ending signal kills.
//! * When the last rank is gone, everything that it left behind is ended as well.

mod alike;
pub(crate) mod deed;
mod ends;
mod members;

use bootstrap::ExitPath;
use settings::deadlines::Deadline;
use settings::deadlines::agent::{DECISION_ACK, HOST_MISSED, KILL_GRACE, SIGNAL_EFFECT};

use deed::{Deed, Who};
use ends::Phase;
use members::Members;
use serde::{Deserialize, Serialize};

use crate::report::{Cause, CauseKind, End};

/// Exit code of a job whose start failed or whose control broke.
pub(crate) const CODE_LAUNCH: i32 = 125;
/// Exit code of a job that ran into its time limit.
pub(crate) const CODE_TIMEOUT: i32 = 124;

/// Something that a rank did, or that was done to it. Ranks are numbers in the job; times are
/// seconds since the epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum RankEvent {
    /// It is a process.
    Started { rank: u32, pid: i32, at: f64 },
    /// It could not be started, or none of this host could.
    StartFailed { rank: Option<u32>, code: i32, text: String },
    /// It has opened the bootstrap.
    Hello { rank: u32 },
    /// It has begun to exit; `path` is the wire form of an [`bootstrap::ExitPath`].
    Exiting { rank: u32, code: i32, path: u32 },
    /// It has said its farewell.
    Fini { rank: u32, code: i32 },
    /// It wants the job to end.
    Abort { rank: u32, code: i32 },
    /// It has begun to speak PMI, as MPI programs do.
    PmiInit { rank: u32 },
    /// It has finalized that.
    PmiFinalize { rank: u32 },
    /// It sent what no PMI client sends, or waits by PMI for a rank that has ended; no rank: the server
    /// of a host is lost.
    PmiBroken { rank: Option<u32>, text: String },
    /// It broke the protocol of the bootstrap.
    Protocol { rank: u32, text: String },
    /// Its process has ended.
    Ended { rank: u32, end: End, at: f64 },
}

impl RankEvent {
    pub(crate) const fn rank(&self) -> Option<u32> {
        match *self {
            Self::StartFailed { rank, .. } | Self::PmiBroken { rank, .. } => rank,
            Self::Started { rank, .. }
            | Self::Hello { rank }
            | Self::Exiting { rank, .. }
            | Self::Fini { rank, .. }
            | Self::Abort { rank, .. }
            | Self::PmiInit { rank }
            | Self::PmiFinalize { rank }
            | Self::Protocol { rank, .. }
            | Self::Ended { rank, .. } => Some(rank),
        }
    }
}

/// What the plan says about time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rules {
    pub(crate) exit_bound: u64,
    /// When the job's time is up, on the driver's clock.
    pub(crate) timeout_at: Option<u64>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Event {
    /// Of one rank.
    Rank(RankEvent),
    /// Of many ranks that did the same.
    Alike { deed: Deed, who: Who },
    /// A host of the job cannot be reached any more; nothing had been heard from it for so many
    /// milliseconds.
    HostLost { silent: u64 },
    /// A signal that somebody sent to the launcher.
    Signal(i32),
    /// The launcher's process has gone.
    LauncherLost,
    /// Answer to [`Command::SampleCpu`]: whether ranks that are not exiting are ready to run, and
    /// together have had next to no CPU time since the first sample after the last `Exiting`.
    CpuSampled { starved: bool },
    /// Answer to [`Command::FindOrphans`], and again whenever a process left behind was reaped:
    /// whether there are children besides the ranks.
    Orphans { left: bool },
    /// Nothing but time.
    Tick,
}

/// What the driver must do with the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Command {
    /// Put the decision into the node memory: the code to leave with, and the rank that caused it.
    ExitDecision { code: i32, cause: Option<u32> },
    /// An exit is about to count as non-collective: note the CPU times of the other ranks now, and
    /// say with [`Event::CpuSampled`] after `rest` milliseconds whether they had a chance to join
    /// it. An answer that comes earlier is no answer; it is asked for again then.
    SampleCpu { rest: u64 },
    /// SIGQUIT to every running rank whose ack can still be claimed.
    QuitUnclaimed,
    /// Pass a signal of the user on to every running rank's group.
    Forward(i32),
    /// TERM (with CONT, so that stopped processes see it) or KILL to every running rank's group.
    End(i32),
    /// Every rank is gone: say with [`Event::Orphans`] whether they left processes behind.
    FindOrphans,
    /// TERM or KILL to the processes left behind.
    EndOrphans(i32),
    /// All done: drain the output and report. Nothing follows.
    Finish,
}

#[derive(Debug, Default)]
pub(crate) struct Machine {
    rules: Rules,
    /// Of the event that is being handled, and what follows from it.
    now: u64,
    out: Vec<Command>,
    members: Members,
    phase: Phase,
    cause: Option<Cause>,
    /// First ending signal of the user, and when.
    asked: Option<(i32, u64)>,
    /// The last rank that announced its exit: when.
    last_exiting: Option<u64>,
    first_exiting: Option<u32>,
    /// When to sample starved ranks again.
    sample_at: Option<u64>,
    pub(crate) end_begins: Option<u64>,
    decided: bool,
    /// There is a non-collective exit with code 0: when the time of the others is up.
    deferred: Option<u64>,
    /// When the output was last seen to be held up by a slow reader, so that ranks may wait in a
    /// write: while that lasts, the time of those who leave in good order does not run.
    held: Option<u64>,
    /// A rank that ended well without ever opening the bootstrap.
    left_plain: Option<u32>,
}

/// Whether a signal to the launcher asks for the end of the job.
pub(crate) const fn ending(signal: i32) -> bool {
    matches!(signal, libc::SIGINT | libc::SIGTERM | libc::SIGQUIT | libc::SIGHUP)
}

#[expect(clippy::cast_possible_wrap, reason = "masked to a byte")]
const fn status(code: u32) -> i32 {
    (code & 0xff) as i32
}

fn after(now: u64, deadline: Deadline) -> u64 {
    now.saturating_add(deadline.ms())
}

impl Machine {
    /// A machine for `size` ranks, none of them started.
    pub(crate) fn new(size: u32, rules: Rules) -> Self {
        Self { rules, members: Members::whole(size), ..Self::default() }
    }

    /// A machine for these ranks of a job alone (ascending), none of them started.
    pub(crate) fn of_some(ranks: Vec<u32>, rules: Rules) -> Self {
        Self { rules, members: Members::some(ranks), ..Self::default() }
    }

    /// Whether the end is decided: no further rank may be started.
    pub(crate) fn is_ending(&self) -> bool {
        self.phase != Phase::Running
    }

    /// Whether whatever of the ranks is still there has been told to end.
    const fn orders_end(&self) -> bool {
        !matches!(self.phase, Phase::Running | Phase::Leaving { .. })
    }

    /// Time has come, but the reader of the output is slow.
    pub(crate) const fn output_held(&mut self, now: u64) {
        self.held = Some(now);
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.phase == Phase::Finished
    }

    /// Whether every rank is gone and what they left is being searched for.
    pub(crate) const fn is_cleaning_up(&self) -> bool {
        matches!(self.phase, Phase::Orphans { .. } | Phase::KillingOrphans { .. })
    }

    /// Whether the rank ended because of us.
    pub(crate) fn is_killed(&self, rank: u32) -> bool {
        self.members.get(rank).is_some_and(|m| m.killed)
    }

    /// Whether the rank has a process.
    pub(crate) fn is_running(&self, rank: u32) -> bool {
        self.members.get(rank).is_some_and(|member| member.running())
    }

    /// Whether all have announced their exit.
    #[cfg(test)]
    pub(crate) fn all_exit(&self) -> bool {
        let counts = self.members.counts();
        self.last_exiting.is_some() && counts.mute == 0 && counts.pending == 0
    }

    /// Ranks that have opened the bootstrap, and that have ended.
    pub(crate) fn progress(&self) -> [u32; 2] {
        let counts = self.members.counts();
        let ended = self.members.size().saturating_sub(counts.pending + counts.running);
        [counts.hello, ended].map(|count| u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// Whether the rank has announced its exit or said farewell.
    pub(crate) fn is_exiting(&self, rank: u32) -> bool {
        self.members.get(rank).is_some_and(|member| member.said().is_some())
    }

    /// The first cause; a collective exit with a non-zero code is one, too. `None`: the job ended
    /// well.
    pub(crate) fn cause(&self) -> Option<Cause> {
        self.cause.clone().or_else(|| self.collective_cause())
    }

    /// Whether it is known that the job does not end well, or somebody wants its end.
    pub(crate) fn is_failing(&self) -> bool {
        self.asked.is_some() || self.exit_code() != 0
    }

    pub(crate) fn exit_code(&self) -> i32 {
        self.cause().map_or(0, |cause| cause.code)
    }

    /// Takes one event; appends what is to be done to `out`. Events about ranks that do not exist
    /// are ignored.
    pub(crate) fn handle(&mut self, now: u64, event: Event, out: &mut Vec<Command>) {
        if self.phase == Phase::Finished {
            return;
        }
        self.now = now;
        match event {
            Event::Rank(event) => self.rank_event(&event),
            Event::Alike { deed, who } => self.alike(deed, &who),
            Event::HostLost { silent } => self.host_lost(silent),
            Event::Signal(signal) => self.signal(signal),
            Event::LauncherLost => {
                let signal = libc::SIGKILL;
                self.fail(Self::of_signal(signal));
                self.asked.get_or_insert((signal, now));
                self.terminate();
            }
            Event::CpuSampled { starved } => self.cpu_sampled(starved),
            Event::Orphans { left } => self.orphans(left),
            Event::Tick => {}
        }
        self.advance();
        out.append(&mut self.out);
    }

    fn rank_event(&mut self, event: &RankEvent) {
        match *event {
            RankEvent::Started { rank, .. } => self.started(rank),
            RankEvent::StartFailed { rank, code, .. } => {
                self.fail(Cause::new(CauseKind::Start, rank, code));
            }
            RankEvent::Hello { rank } => self.on_hello(rank),
            RankEvent::Exiting { rank, code, path } => {
                self.exiting(rank, code, ExitPath::from_wire(path));
            }
            RankEvent::Fini { rank, code } => self.fini(rank, code),
            RankEvent::Abort { rank, code } => {
                let code = status(code.cast_unsigned());
                self.fail(Cause::new(CauseKind::Abort, Some(rank), code));
            }
            RankEvent::PmiInit { rank } => {
                self.members.change(rank, |member| member.in_pmi = true);
            }
            RankEvent::PmiFinalize { rank } => {
                self.members.change(rank, |member| member.in_pmi = false);
            }
            RankEvent::PmiBroken { rank, .. } => {
                self.fail(Cause::new(CauseKind::Pmi, rank, CODE_LAUNCH));
            }
            RankEvent::Protocol { rank, .. } => {
                self.fail(Cause::new(CauseKind::Protocol, Some(rank), CODE_LAUNCH));
            }
            RankEvent::Ended { rank, end, .. } => self.ended(rank, end),
        }
    }

    /// A signal of the user.
    fn of_signal(signal: i32) -> Cause {
        Cause { signal: Some(signal), ..Cause::new(CauseKind::LauncherSignal, None, 128 + signal) }
    }

    /// The exit that `rank` announced.
    fn of_exit(kind: CauseKind, (code, rank, path): (u32, u32, ExitPath)) -> Cause {
        Cause { path: Some(path), ..Cause::new(kind, Some(rank), status(code)) }
    }

    fn started(&mut self, rank: u32) {
        // The order to end reaches one that starts behind it as well.
        let ending = self.orders_end();
        self.members.change(rank, |member| {
            member.started = true;
            member.killed |= ending;
        });
    }

    fn on_hello(&mut self, rank: u32) {
        if self.members.change(rank, |member| member.hello = true).is_none() {
            return;
        }
        self.opened();
    }

    fn exiting(&mut self, rank: u32, code: i32, path: ExitPath) {
        let begins = |member: &members::Member| member.exiting.is_none() && member.end.is_none();
        if !self.members.get(rank).as_ref().is_some_and(begins) {
            return;
        }
        let announced = Some((code.cast_unsigned(), path));
        self.members.change(rank, |member| member.exiting = announced);
        self.exit_announced(rank);
    }

    fn fini(&mut self, rank: u32, code: i32) {
        self.members.change(rank, |member| {
            member.fini.get_or_insert(code.cast_unsigned());
        });
    }

    /// Largest announced code and who announced first, over `Exiting`.
    fn announced(&self) -> Option<(u32, u32, ExitPath)> {
        let first = self.first_exiting?;
        let path = self.members.get(first).and_then(|member| member.exiting);
        let path = path.map_or(ExitPath::Explicit, |(_, path)| path);
        Some((self.members.largest().unwrap_or(0), first, path))
    }

    fn ended(&mut self, rank: u32, end: End) {
        let Some(member) = self.members.get(rank).filter(members::Member::running) else {
            return;
        };
        self.members.change(rank, |member| member.end = Some(end));
        if self.cause.is_some() {
            return;
        }
        let cause = match end {
            End::Signal(signal) => Cause {
                signal: Some(signal),
                ..Cause::new(CauseKind::Signal, Some(rank), 128 + signal)
            },
            End::Code(code) => match (member.fini, member.exiting) {
                (Some(said), _) if code == 0 || code == status(said) => return,
                (None, Some((said, _))) if code == 0 || code == status(said) => {
                    return self.decide_non_collective();
                }
                _ if code != 0 => Cause::new(CauseKind::ExitCode, Some(rank), code),
                _ if member.in_pmi => Cause::new(CauseKind::NoMpiFinalize, Some(rank), 1),
                _ if self.members.counts().hello > 0 => {
                    Cause::new(CauseKind::NoFini, Some(rank), 1)
                }
                _ => {
                    self.left_plain.get_or_insert(rank);
                    return;
                }
            },
        };
        self.fail(cause);
    }

    /// Ends the job for `cause` unless it is already ending for another.
    fn fail(&mut self, cause: Cause) {
        if self.cause.is_some() {
            return;
        }
        let cause = self.explained(self.now, cause);
        self.end_begins.get_or_insert(self.now);
        self.announce(&cause);
        let kind = cause.kind;
        self.cause = Some(cause);
        if kind == CauseKind::LauncherSignal && self.phase == Phase::Running {
            // The others got the signal too and may be cleaning up.
            self.phase = Phase::Leaving { quit_at: None, term_at: after(self.now, KILL_GRACE) };
        } else {
            self.terminate();
        }
    }

    /// Ranks that talk to a host which cannot be reached may fail before the host counts as lost.
    /// If it had missed a heartbeat when the first sign of the end was seen, the loss came first. And
    /// a rank that left with code 0 is no cause of a failure: without a host no job is a success.
    fn host_lost(&mut self, silent: u64) {
        let lost = Cause::new(CauseKind::AgentLost, None, CODE_LAUNCH);
        let missed = after(self.now.saturating_sub(silent), HOST_MISSED);
        let first = self.end_begins.is_some_and(|begins| missed <= begins);
        let of_rank =
            |cause: &Cause| cause.rank.is_some() && cause.kind != CauseKind::LauncherSignal;
        let replaced = |cause: &Cause| cause.code == 0 || (first && of_rank(cause));
        if self.cause.as_ref().is_some_and(replaced) {
            self.cause = Some(lost.clone());
        }
        self.fail(lost);
    }

    /// A rank's end that follows from a signal to the launcher has that signal as its cause.
    fn explained(&self, now: u64, cause: Cause) -> Cause {
        let Some((signal, at)) = self.asked else { return cause };
        let fresh = now <= after(at, SIGNAL_EFFECT);
        let by_signal = 128 + signal;
        let code =
            match (cause.kind, cause.path) {
                (CauseKind::Signal, _) if fresh || cause.signal == Some(signal) => by_signal,
                (
                    CauseKind::NonCollectiveExit | CauseKind::CollectiveExit,
                    Some(ExitPath::Signal),
                ) if fresh => by_signal,
                (CauseKind::NoFini | CauseKind::NoMpiFinalize, _) if fresh => by_signal,
                (
                    CauseKind::ExitCode | CauseKind::NonCollectiveExit | CauseKind::CollectiveExit,
                    _,
                ) if fresh => cause.code,
                _ => return cause,
            };
        if code == 0 {
            return cause;
        }
        Cause { kind: CauseKind::LauncherSignal, signal: Some(signal), code, ..cause }
    }

    fn announce(&mut self, cause: &Cause) {
        if !std::mem::replace(&mut self.decided, true) {
            self.out.push(Command::ExitDecision { code: cause.code, cause: cause.rank });
        }
    }

    fn decide_non_collective(&mut self) {
        let undecided = self.phase == Phase::Running;
        let Some(announced) = self.announced().filter(|_| undecided) else { return };
        let alone = Self::of_exit(CauseKind::NonCollectiveExit, announced);
        let cause = self.explained(self.now, alone);
        let mut term_at = self.now.saturating_add(self.rules.exit_bound);
        if cause.code == 0 {
            // Whoever reads a decision leaves. The others may be at work on the last result, or
            // about to hear that a barrier which those that exit have passed is complete.
            let held = self.held.map(|at| at.saturating_add(self.rules.exit_bound));
            let until = held.unwrap_or(0).max(*self.deferred.get_or_insert(term_at));
            if self.now < until {
                self.sample_at = Some(until);
                return;
            }
            term_at = after(self.now, KILL_GRACE);
        }
        self.announce(&cause);
        self.cause = Some(cause);
        self.phase = Phase::Leaving { quit_at: Some(after(self.now, DECISION_ACK)), term_at };
    }

    /// All ranks have begun to exit long ago, but their reduction does not end: some of its
    /// messages are lost. Here all codes are known.
    fn replace_reduction(&mut self) {
        if let Some(announced) = self.announced() {
            self.announce(&Self::of_exit(CauseKind::CollectiveExit, announced));
        }
    }

    /// A non-collective exit that is a failure: the others leave now.
    fn collective_cause(&self) -> Option<Cause> {
        let code = self.members.said().filter(|code| status(*code) != 0)?;
        let mut exits = self.members.iter().filter_map(|(rank, m)| Some((rank, m.exiting?)));
        let by = exits.find(|(_, (said, _))| *said == code);
        let (rank, path) = (by.map(|(rank, _)| rank), by.map(|(_, (_, path))| path));
        let cause = Cause { path, ..Cause::new(CauseKind::CollectiveExit, rank, status(code)) };
        Some(self.explained(self.end_begins.unwrap_or(0), cause))
    }
}
