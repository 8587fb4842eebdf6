//! A whole job as seen by the one who decides about it: the machine, and the record of what
//! happened.

use std::collections::HashMap;
use std::time::Instant;

use super::machine::{Command, Event, Machine, Rules};
use super::rank_event::RankEvent;
use super::record::{self, Details};
use crate::event_loop::Sender;
use crate::plan::JobPlan;
use crate::report::{JobReport, Phases, RankRecord};

/// See the module.
pub(crate) struct Job<'a> {
    plan: &'a JobPlan,
    started: Instant,
    pub(crate) machine: Machine,
    /// By rank; a rank that was started has a pid here.
    ranks: Vec<RankRecord>,
    /// Ranks started so far.
    pub(crate) count: u32,
    start_error: Option<String>,
    protocol_error: Option<String>,
    host_lost: Option<(String, String)>,
    /// Who sent the first signal of each number to the launcher.
    senders: HashMap<i32, Sender>,
    pub(crate) phases: Phases,
    /// The user does not want to wait for the rest of the output.
    pub(crate) impatient: bool,
}

impl<'a> Job<'a> {
    pub(crate) fn new(plan: &'a JobPlan, started: Instant) -> Self {
        let ms = |d: std::time::Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        let timeout_at = plan.timeout.map(|limit| ms(started.elapsed()).saturating_add(ms(limit)));
        let rules = Rules { exit_bound: ms(plan.exit_bound), timeout_at };
        Self {
            plan,
            started,
            machine: Machine::new(plan.size, rules),
            ranks: record::blank(plan),
            count: 0,
            start_error: None,
            protocol_error: None,
            host_lost: None,
            senders: HashMap::new(),
            phases: Phases::default(),
            impatient: false,
        }
    }

    /// Milliseconds since the launcher began.
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Seconds since the launcher began.
    pub(crate) fn elapsed(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Through the machine.
    pub(crate) fn handle(&mut self, event: Event, actions: &mut Vec<Command>) {
        match event {
            Event::Signal(signal) => {
                self.impatient |= self.machine.is_finished() && signal != libc::SIGCONT;
            }
            Event::LauncherLost => self.impatient = true,
            _ => {}
        }
        let now = self.now();
        self.machine.handle(now, event, actions);
    }

    /// Writes down what happened.
    pub(crate) fn note(&mut self, happened: &RankEvent) {
        let elapsed = self.elapsed();
        let record = happened.rank().and_then(|rank| self.ranks.get_mut(rank as usize));
        match (happened, record) {
            (RankEvent::Started { pid, at, .. }, Some(record)) => {
                self.count += u32::from(record.pid.is_none());
                record.pid = Some(*pid);
                record.started = Some(*at);
                if self.count == self.plan.size {
                    self.phases.spawn = elapsed;
                }
            }
            (RankEvent::Ended { end, at, .. }, Some(record)) => {
                record.end = Some(*end);
                record.ended = Some(*at);
            }
            (RankEvent::Hello { .. }, Some(record)) => {
                record.hello = true;
                if self.machine.counts().0 + 1 == self.plan.size {
                    self.phases.hello = Some(elapsed);
                }
            }
            (RankEvent::StartFailed { text, .. }, _) => {
                self.start_error.get_or_insert_with(|| text.clone());
            }
            (RankEvent::Protocol { text, .. }, _) => {
                self.protocol_error.get_or_insert_with(|| text.clone());
            }
            _ => {}
        }
    }

    /// A host cannot be reached any more: its name, and what was seen.
    pub(crate) fn lose(&mut self, host: &str, text: String) {
        self.host_lost.get_or_insert_with(|| (host.to_owned(), text));
    }

    /// The launcher got a signal, and this is who sent it.
    pub(crate) fn signal_sent_by(&mut self, signal: i32, sender: Sender) {
        self.senders.entry(signal).or_insert(sender);
    }

    /// Ranks that run, of those given.
    pub(crate) fn is_running(&self, rank: u32) -> bool {
        self.ranks.get(rank as usize).is_some_and(|r| r.pid.is_some() && r.end.is_none())
    }

    /// Ranks started, with the bootstrap open, ended.
    pub(crate) fn counts(&self) -> [u32; 3] {
        let (hello, ended) = self.machine.counts();
        [self.count, hello, ended]
    }

    /// The finished report. `tail` gives the last lines of a rank's standard error.
    pub(crate) fn report(
        &mut self,
        orphans: u32,
        tail: impl FnOnce(u32) -> Vec<String>,
    ) -> JobReport {
        self.phases.end_begins = self.machine.end_begins().map(seconds);
        self.phases.done = self.elapsed();
        let mut ranks = std::mem::take(&mut self.ranks);
        for record in &mut ranks {
            (record.hello, record.killed_by_launcher) = self.machine.fate(record.rank);
        }
        let rank = self.machine.cause().and_then(|cause| cause.rank);
        let details = Details {
            start: self.start_error.as_deref(),
            protocol: self.protocol_error.as_deref(),
            host_lost: self.host_lost.as_ref(),
            senders: &self.senders,
            stderr_tail: rank.map(tail).unwrap_or_default(),
        };
        let phases = std::mem::take(&mut self.phases);
        record::report(self.plan, &self.machine, ranks, phases, orphans, details)
    }
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds of a job's life are far below 2^52")]
fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}
