//! The phases of a job's end: TERM, KILL, what ranks left behind, and what is due when.

use std::time::Duration;

use settings::deadlines::agent::{
    KILL_GRACE, QUIET_BASE, QUIET_LIMIT, QUIET_RETRY, QUIET_WINDOW, REAP, SIGNAL_REPEAT,
    STRAY_GRACE, STRAY_GRACE_FAILED,
};
use settings::deadlines::exit::STALL;

use super::{CODE_LAUNCH, CODE_TIMEOUT, Command, Machine, after, ending};
use crate::report::{Cause, CauseKind};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing is decided.
    #[default]
    Running,
    /// Decided; ranks are given time to leave.
    Leaving { quit_at: Option<u64>, term_at: u64 },
    /// TERM is out.
    Terminating { kill_at: u64 },
    /// KILL is out.
    Killing { give_up_at: u64 },
    /// Ranks are gone, TERM is out to what they left; no deadline before the first answer.
    Orphans { kill_at: Option<u64> },
    /// KILL is out to those too.
    KillingOrphans { give_up_at: u64 },
    /// Nothing follows.
    Finished,
}

impl Machine {
    pub(crate) fn deadline(&self) -> Option<u64> {
        match self.phase {
            Phase::Running => {
                [self.rules.timeout_at, self.exit_deadline()].into_iter().flatten().min()
            }
            Phase::Leaving { quit_at, term_at } => {
                Some(quit_at.map_or(term_at, |at| at.min(term_at)))
            }
            Phase::Terminating { kill_at } => Some(kill_at),
            Phase::Killing { give_up_at } | Phase::KillingOrphans { give_up_at } => {
                Some(give_up_at)
            }
            Phase::Orphans { kill_at } => kill_at,
            Phase::Finished => None,
        }
    }

    /// When something must be done about an announced exit although nothing further is heard.
    fn exit_deadline(&self) -> Option<u64> {
        let last = self.last_exiting?;
        let counts = self.members.counts();
        if counts.pending > 0 || counts.staying > 0 {
            return Some(self.sample_at.unwrap_or_else(|| after(last, QUIET_BASE)));
        }
        let stalled = STALL.after(Duration::from_millis(self.rules.exit_bound));
        let stalled = u64::try_from(stalled.as_millis()).unwrap_or(u64::MAX);
        let running = last.max(self.held.unwrap_or(0));
        (counts.mute == 0).then(|| match self.decided {
            false => last.saturating_add(stalled),
            true => after(running.saturating_add(self.rules.exit_bound), KILL_GRACE),
        })
    }

    fn runs(&self) -> bool {
        self.members.counts().running > 0
    }

    pub(super) fn terminate(&mut self) {
        if !self.orders_end() {
            self.phase = Phase::Terminating { kill_at: after(self.now, KILL_GRACE) };
            if self.runs() {
                self.members.mark_killed();
                self.out.push(Command::End(libc::SIGTERM));
            }
        }
    }

    pub(super) fn kill(&mut self) {
        match self.phase {
            Phase::Running | Phase::Leaving { .. } | Phase::Terminating { .. } => {
                self.phase = Phase::Killing { give_up_at: after(self.now, REAP) };
                self.members.mark_killed();
                self.out.push(Command::End(libc::SIGKILL));
            }
            Phase::Orphans { .. } => {
                self.phase = Phase::KillingOrphans { give_up_at: after(self.now, REAP) };
                self.out.push(Command::EndOrphans(libc::SIGKILL));
            }
            Phase::Killing { .. } | Phase::KillingOrphans { .. } | Phase::Finished => {}
        }
    }

    pub(super) fn signal(&mut self, signal: i32) {
        if !ending(signal) {
            if self.runs() {
                self.out.push(Command::Forward(signal));
            }
            return;
        }
        match self.asked {
            Some((_, at)) if self.now < after(at, SIGNAL_REPEAT) => {}
            Some((first, _)) => {
                if self.cause.is_none() {
                    self.cause = Some(Self::of_signal(first));
                    self.end_begins.get_or_insert(self.now);
                }
                self.kill();
            }
            None => {
                self.asked = Some((signal, self.now));
                if self.cause.is_some() || self.is_cleaning_up() {
                    // It is ending already: hurry.
                    self.terminate();
                } else if self.runs() {
                    self.out.push(Command::Forward(signal));
                }
                if self.members.counts().pending > 0 {
                    self.fail(Self::of_signal(signal));
                }
            }
        }
    }

    pub(super) fn orphans(&mut self, left: bool) {
        if !self.is_cleaning_up() {
            return;
        }
        if !left {
            self.phase = Phase::Finished;
            self.out.push(Command::Finish);
            return;
        }
        match self.phase {
            Phase::Orphans { kill_at } => {
                let grace = if self.cause.is_some() { STRAY_GRACE_FAILED } else { STRAY_GRACE };
                self.phase = Phase::Orphans {
                    kill_at: Some(kill_at.unwrap_or_else(|| after(self.now, grace))),
                };
                self.out.push(Command::EndOrphans(libc::SIGTERM));
            }
            _ => self.out.push(Command::EndOrphans(libc::SIGKILL)),
        }
    }

    /// Moves on when the last rank is gone or a deadline has come.
    pub(super) fn advance(&mut self) {
        let over = !self.runs() && (self.members.counts().pending == 0 || self.is_ending());
        if over && !self.is_cleaning_up() && self.phase != Phase::Finished {
            self.end_begins.get_or_insert(self.now);
            self.phase = Phase::Orphans { kill_at: None };
            self.out.push(Command::FindOrphans);
            return;
        }
        if self.deadline().is_none_or(|at| self.now < at) {
            return;
        }
        match self.phase {
            Phase::Running => self.running_deadline(),
            Phase::Leaving { quit_at: Some(at), term_at } if self.now >= at => {
                self.phase = Phase::Leaving { quit_at: None, term_at };
                self.out.push(Command::QuitUnclaimed);
            }
            Phase::Leaving { .. } => self.terminate(),
            Phase::Terminating { .. } | Phase::Orphans { .. } => self.kill(),
            Phase::Killing { .. } | Phase::KillingOrphans { .. } => {
                self.blame_survivor();
                self.phase = Phase::Finished;
                self.out.push(Command::Finish);
            }
            Phase::Finished => {}
        }
    }

    /// The job is given up: with a rank that is still there it is no success.
    fn blame_survivor(&mut self) {
        let left = self.members.iter().find(|(_, member)| member.running());
        if let Some((rank, _)) = left
            && self.cause.as_ref().is_none_or(|cause| cause.code == 0)
        {
            self.cause = Some(Cause::new(CauseKind::Unkillable, Some(rank), CODE_LAUNCH));
        }
    }

    pub(super) fn running_deadline(&mut self) {
        if self.rules.timeout_at.is_some_and(|at| self.now >= at) {
            self.fail(Cause::new(CauseKind::Timeout, None, CODE_TIMEOUT));
            return;
        }
        let counts = self.members.counts();
        let stuck = counts.mute == 0 && counts.pending == 0;
        if stuck && !self.decided {
            self.replace_reduction();
        } else if stuck {
            if let Some(announced) = self.announced() {
                self.fail(Self::of_exit(CauseKind::CollectiveExit, announced));
                self.terminate();
            }
        } else {
            let window = self.last_exiting.map_or(self.now, |last| after(last, QUIET_WINDOW));
            self.sample_at = Some(after(self.now, QUIET_RETRY).max(window));
            self.out.push(Command::SampleCpu { rest: window.saturating_sub(self.now) });
        }
    }

    pub(super) fn cpu_sampled(&mut self, starved: bool) {
        let asked = self.phase == Phase::Running && self.sample_at.is_some();
        let Some(last) = self.last_exiting.filter(|_| asked) else { return };
        let over = self.now >= after(last, QUIET_WINDOW);
        if over && (!starved || self.now >= after(last, QUIET_LIMIT)) {
            self.decide_non_collective();
        }
    }
}
