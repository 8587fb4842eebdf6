//! The exit protocol as a pure state machine: no I/O, no clock, no environment.
//!
//! # Primer
//!
//! Each rank has one machine. It starts in `Running` and is told what happens with
//! [`Machine::handle`]; what has to be done comes back as [`Action`]s, in order.
//! [`Machine::deadline`] is the only way it asks to be woken.
//!
//! * **Reducing.** A rank that exits contributes the first code that was given locally, and the
//!   codes of all ranks are reduced to their maximum, first in each neighbourhood, up a tree to its
//!   leader ([`Tree`]). The leaders of the N neighbourhoods follow the pattern of the dissemination
//!   barrier: ceil(log2 N) rounds, in round `i` a leader sends its running maximum to the one that
//!   is `2^i` ahead and waits for the one that far behind. The outcome goes down the trees. Values
//!   that come early are merged (the maximum does not mind) and their rounds kept in a bit set.
//!   Complete means that all ranks exit: *graceful*.
//! * **Electing.** The reduction timed out: some rank does not exit. Rank 0 makes the first
//!   candidate the leader.
//! * **Leading.** The leader sends an exit request with the code to every rank and counts the
//!   replies.
//! * **Following.** The others wait for that request. A rank that gets one answers, and exits if it
//!   was not exiting yet.
//! * **Draining.** The end is decided: streams are flushed, queued messages leave.
//! * **Finishing**, **Aborting**: terminal. The provider hears that the rank is done when
//!   coordination succeeded, else that it shall end the whole job.
//!
//! The control tree shortens all this: its decision takes a machine from any phase straight to
//! Draining.
//!
//! The tree leaves an exit that it believes all ranks take in good order to the reduction. A rank
//! whose reduction stalls decides for the host itself.
//!
//! Memory per rank is constant but for the leader's one bit per rank, held while its requests are
//! in flight. Nothing is allocated outside Leading, because the machine also runs in signal
//! handlers.
#![forbid(unsafe_code)]

use bootstrap::ExitPath;

pub use super::protocol::{
    Action, Actions, Code, Config, Event, MAX_ACTIONS, MAX_ROUNDS, Message, Phase,
};
pub use super::timeouts::{Millis, Timeouts};
pub use super::tree::Tree;

/// Code of an end without a code; no phase after Running is without one.
const UNKNOWN_CODE: Code = Code(1);

/// Ranks that have not answered the leader: one bit each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Missing {
    bits: Box<[u64]>,
    count: u32,
}

impl Missing {
    fn all_but(rank: u32, size: u32) -> Self {
        let mut missing =
            Self { bits: vec![u64::MAX; (size as usize).div_ceil(64)].into(), count: size };
        missing.answered(rank);
        missing
    }

    fn answered(&mut self, rank: u32) {
        let bit = 1 << (rank % 64);
        if let Some(word) = self.bits.get_mut(rank as usize / 64)
            && *word & bit != 0
        {
            *word &= !bit;
            self.count -= 1;
        }
    }
}

fn push(out: &mut Actions, action: Action) {
    let pushed = out.push(action);
    debug_assert!(pushed.is_ok(), "more actions than MAX_ACTIONS");
}

/// One rank's exit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Machine {
    config: Config,
    phase: Phase,
    /// Maximum of this rank's code and of all that arrived.
    code: Option<Code>,
    /// Children whose codes have arrived: a bit each.
    gathered: u8,
    /// This rank's code and those of its children went to its parent, or to the first leader ahead.
    passed_on: bool,
    /// Round between leaders that is waited for.
    round: u8,
    /// Rounds whose message has arrived.
    seen: u32,
    graceful: bool,
    /// End of the phase.
    until: Option<Millis>,
    /// When to decide alone, inside Reducing.
    decide_at: Option<Millis>,
    /// Rank 0 only: who leads.
    leader: Option<u32>,
    /// Leader only.
    missing: Option<Missing>,
}

impl Machine {
    /// A machine in `Running`.
    ///
    /// # Panics
    /// When `rank` is not below `size`.
    #[must_use]
    pub const fn new(config: Config) -> Self {
        assert!(config.rank < config.size, "rank outside its job");
        Self {
            config,
            phase: Phase::Running,
            code: None,
            gathered: 0,
            passed_on: false,
            round: 0,
            seen: 0,
            graceful: false,
            until: None,
            decide_at: None,
            leader: None,
            missing: None,
        }
    }

    /// Where the machine stands.
    #[must_use]
    pub const fn state(&self) -> Phase {
        self.phase
    }

    /// When [`Event::Timer`] is due, if ever.
    #[must_use]
    pub fn deadline(&self) -> Option<Millis> {
        match (self.until, self.decide_at) {
            (Some(until), Some(decide_at)) => Some(until.min(decide_at)),
            (until, decide_at) => until.or(decide_at),
        }
    }

    /// Whether nothing will follow.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Finishing | Phase::Aborting)
    }

    /// Code of the job as far as it is known: the largest that was heard, or the one that was
    /// decided.
    #[must_use]
    pub const fn code(&self) -> Option<Code> {
        self.code
    }

    /// Takes notice of something that happened at `now` (which never goes back) and appends what
    /// has to be done.
    pub fn handle(&mut self, now: Millis, event: Event, out: &mut Actions) {
        if self.is_over() {
            return;
        }
        match event {
            Event::LocalExit { code, path } => self.local_exit(now, code, path, out),
            Event::Message { from, message } => self.message(now, from, message, out),
            Event::ExitDecision(code) => self.exit_decision(now, code, out),
            Event::Flushed if self.phase == Phase::Draining => self.finish(out),
            Event::Flushed => {}
            Event::Timer => self.timer(now, out),
        }
    }

    fn local_exit(&mut self, now: Millis, code: Code, path: ExitPath, out: &mut Actions) {
        if self.phase != Phase::Running {
            return;
        }
        self.merge(code);
        push(out, Action::Announce { code, path });
        push(out, Action::StopClientHandlers);
        let timeouts = self.config.timeouts;
        // The others may be at work on the last result, in the library too.
        let control = self.config.control;
        let patience = if control { timeouts.patience } else { timeouts.reduce };
        self.enter(Phase::Reducing, now, patience);
        self.decide_at = self.until.filter(|_| control);
        // What was heard before counts as well.
        self.hurry(now);
        self.reduce(now, out);
    }

    /// A failure is known: nobody has that much time.
    fn hurry(&mut self, now: Millis) {
        if self.known() != Code(0) {
            let timeouts = self.config.timeouts;
            self.until = self.until.min(Some(now.plus(timeouts.non_collective)));
            self.decide_at = self.decide_at.min(Some(now.plus(timeouts.stall)));
        }
    }

    fn merge(&mut self, code: Code) {
        self.code = self.code.max(Some(code));
    }

    const fn enter(&mut self, phase: Phase, now: Millis, length: Millis) {
        self.phase = phase;
        self.until = Some(now.plus(length));
        self.decide_at = None;
    }

    fn known(&self) -> Code {
        self.code.unwrap_or(UNKNOWN_CODE)
    }

    fn send_round(&self, out: &mut Actions) {
        if let Some(&to) = self.config.tree.ahead.get(usize::from(self.round)) {
            let message = Message::Reduce { round: self.round, code: self.known() };
            push(out, Action::Send { to, message });
        }
    }

    /// Passes on what is complete: the codes of the children, then all rounds.
    fn reduce(&mut self, now: Millis, out: &mut Actions) {
        let tree = &self.config.tree;
        if (self.gathered.count_ones() as usize) < tree.children.len() {
            return;
        }
        let (parent, rounds) = (tree.parent, tree.rounds());
        let first = !std::mem::replace(&mut self.passed_on, true);
        if let Some(to) = parent {
            if first {
                push(out, Action::Send { to, message: Message::Gather(self.known()) });
            }
            return;
        }
        if first {
            self.send_round(out);
        }
        while self.round < rounds && self.seen & 1 << self.round != 0 {
            self.round += 1;
            self.send_round(out);
        }
        if self.round == rounds {
            self.complete(now, out);
        }
    }

    /// The codes of all ranks are known: those below hear it.
    fn complete(&mut self, now: Millis, out: &mut Actions) {
        let message = Message::Outcome(self.known());
        for &to in &self.config.tree.children {
            push(out, Action::Send { to, message });
        }
        self.drain(now, true, out);
    }

    fn decide(&mut self, out: &mut Actions) {
        self.decide_at = None;
        push(out, Action::Decide(self.known()));
    }

    fn drain(&mut self, now: Millis, graceful: bool, out: &mut Actions) {
        self.graceful = graceful;
        self.missing = None;
        self.enter(Phase::Draining, now, self.config.timeouts.drain);
        push(out, Action::Flush(graceful));
    }

    fn finish(&mut self, out: &mut Actions) {
        let code = self.known();
        self.until = None;
        let (phase, end) = match self.graceful {
            true => (Phase::Finishing, Action::Fini(code)),
            false => (Phase::Aborting, Action::Abort(code)),
        };
        self.phase = phase;
        push(out, end);
        push(out, Action::Terminate(code));
    }

    fn message(&mut self, now: Millis, from: u32, message: Message, out: &mut Actions) {
        if from >= self.config.size {
            return;
        }
        match message {
            Message::Gather(code) => {
                if let Some(child) = self.config.tree.child(from) {
                    self.gather_arrived(now, child, code, out);
                }
            }
            Message::Reduce { round, code } => self.reduce_arrived(now, from, round, code, out),
            Message::Outcome(code) if self.config.tree.parent == Some(from) => {
                self.outcome_arrived(now, code, out);
            }
            Message::RoleRequest if self.config.rank == 0 => {
                let leader = *self.leader.get_or_insert(from);
                let message = Message::RoleReply(leader == from);
                push(out, Action::Send { to: from, message });
            }
            Message::RoleReply(leader) if from == 0 && self.phase == Phase::Electing => {
                if leader {
                    self.lead(now, out);
                } else {
                    self.enter(Phase::Following, now, self.config.timeouts.coordinate);
                }
            }
            Message::ExitRequest(code) if from != self.config.rank => {
                self.requested(now, from, code, out)
            }
            Message::ExitReply if self.phase == Phase::Leading => {
                if let Some(missing) = &mut self.missing {
                    missing.answered(from);
                }
                self.lead_complete(now, out);
            }
            _ => {}
        }
    }

    fn gather_arrived(&mut self, now: Millis, child: usize, code: Code, out: &mut Actions) {
        if self.contributed(now, code) {
            self.gathered |= 1 << child;
            self.reduce_on(now, out);
        }
    }

    fn reduce_arrived(&mut self, now: Millis, from: u32, round: u8, code: Code, out: &mut Actions) {
        let sound = self.config.tree.behind.get(usize::from(round)) == Some(&from);
        if sound && self.contributed(now, code) {
            self.seen |= 1 << round;
            self.reduce_on(now, out);
        }
    }

    /// Merges a code of the reduction. After Reducing the result is somebody else's to decide.
    fn contributed(&mut self, now: Millis, code: Code) -> bool {
        let wanted = matches!(self.phase, Phase::Running | Phase::Reducing);
        if wanted {
            self.merge(code);
        }
        if self.phase == Phase::Reducing {
            self.hurry(now);
        }
        wanted
    }

    fn reduce_on(&mut self, now: Millis, out: &mut Actions) {
        if self.phase == Phase::Reducing {
            self.reduce(now, out);
        }
    }

    /// All ranks exit: so it is also for a rank whose patience ended before it heard.
    fn outcome_arrived(&mut self, now: Millis, code: Code, out: &mut Actions) {
        let waits = matches!(
            self.phase,
            Phase::Reducing | Phase::Electing | Phase::Leading | Phase::Following
        );
        if waits && self.passed_on {
            self.merge(code);
            self.complete(now, out);
        }
    }

    fn lead(&mut self, now: Millis, out: &mut Actions) {
        let (rank, size) = (self.config.rank, self.config.size);
        self.missing = Some(Missing::all_but(rank, size));
        self.enter(Phase::Leading, now, self.config.timeouts.coordinate);
        push(out, Action::SendAll(Message::ExitRequest(self.known())));
        self.lead_complete(now, out);
    }

    fn lead_complete(&mut self, now: Millis, out: &mut Actions) {
        if self.missing.as_ref().is_some_and(|missing| missing.count == 0) {
            self.drain(now, true, out);
        }
    }

    /// A leader's request: answered always.
    fn requested(&mut self, now: Millis, from: u32, code: Code, out: &mut Actions) {
        push(out, Action::Send { to: from, message: Message::ExitReply });
        // A second leader can only exist when rank 0 was replaced.
        if self.phase != Phase::Leading {
            self.exit_decision(now, code, out);
        }
    }

    /// The end is decided elsewhere. Where no exit began here the user's handler may run, then
    /// ours.
    fn exit_decision(&mut self, now: Millis, code: Code, out: &mut Actions) {
        if matches!(self.phase, Phase::Draining | Phase::Finishing | Phase::Aborting) {
            return;
        }
        self.code = Some(code);
        if self.phase == Phase::Running {
            push(out, Action::Announce { code, path: ExitPath::Remote });
            push(out, Action::RaiseQuit);
            push(out, Action::StopClientHandlers);
        }
        self.drain(now, true, out);
    }

    fn timer(&mut self, now: Millis, out: &mut Actions) {
        if self.decide_at.is_some_and(|at| at <= now) {
            return self.decide(out);
        }
        if self.until.is_none_or(|until| now < until) {
            return;
        }
        match self.phase {
            Phase::Reducing => {
                self.enter(Phase::Electing, now, self.config.timeouts.elect);
                push(out, Action::Send { to: 0, message: Message::RoleRequest });
            }
            Phase::Electing | Phase::Leading | Phase::Following => self.drain(now, false, out),
            Phase::Draining => self.finish(out),
            Phase::Running | Phase::Finishing | Phase::Aborting => {}
        }
    }
}
