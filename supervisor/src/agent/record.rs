//! What happened to each rank, and the first cause in words.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bootstrap::ExitPath;
use settings::deadlines::agent::{REAP, STUCK};
use settings::log;

use super::machine::deed::{Deed, Run};
use super::machine::{CODE_LAUNCH, CODE_TIMEOUT, RankEvent};
use super::sys::signal_name;
use crate::event_loop::Sender;
use crate::plan::{JobPlan, Pmi};
use crate::report::{Cause, CauseKind, End, JobReport, Phases, RankRecord};

pub(crate) fn epoch_now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

pub(crate) struct Record<'a> {
    pub(crate) plan: &'a JobPlan,
    /// By rank; a rank that was started has a pid here.
    pub(crate) ranks: Vec<RankRecord>,
    /// Ranks started, that opened the bootstrap, that ended.
    pub(crate) counts: [u32; 3],
    pub(crate) phases: Phases,
    /// What many ranks did alike and is not in their records yet, and when that was heard.
    later: Vec<(Deed, Vec<Run>, f64)>,
    /// A rank has begun to speak PMI.
    in_pmi: bool,
    start_error: Option<String>,
    protocol_error: Option<String>,
    /// Name of the first host that was lost, and what was seen.
    pub(crate) host_lost: Option<(String, String)>,
    /// Who sent the first signal of each number to the launcher.
    pub(crate) senders: HashMap<i32, Sender>,
}

impl<'a> Record<'a> {
    pub(crate) fn new(plan: &'a JobPlan) -> Self {
        let host = |rank: u32| {
            let host = plan.map.host_of.get(rank as usize);
            let entry = host.and_then(|host| plan.map.hosts.get(*host as usize));
            entry.filter(|_| !plan.map.is_here_only()).map_or(&plan.host, |entry| &entry.name)
        };
        let blank = |rank| RankRecord { rank, host: host(rank).clone(), ..Default::default() };
        Self {
            plan,
            ranks: (0..plan.size).map(blank).collect(),
            counts: [0; 3],
            phases: Phases::default(),
            later: Vec::new(),
            in_pmi: false,
            start_error: None,
            protocol_error: None,
            host_lost: None,
            senders: HashMap::new(),
        }
    }

    /// Writes down what happened, `elapsed` seconds after the launcher began.
    pub(crate) fn note(&mut self, happened: &RankEvent, elapsed: f64) {
        if matches!(happened, RankEvent::Ended { .. } | RankEvent::Hello { .. }) {
            self.settle();
        }
        let record = happened.rank().and_then(|rank| self.ranks.get_mut(rank as usize));
        let [started, hello, ended] = &mut self.counts;
        match (happened, record) {
            (RankEvent::Started { pid, at, .. }, Some(record)) => {
                *started += u32::from(record.pid.is_none());
                (record.pid, record.started) = (Some(*pid), Some(*at));
                if *started == self.plan.size {
                    self.phases.spawn = elapsed;
                }
            }
            (RankEvent::Ended { end, at, .. }, Some(record)) => {
                *ended += u32::from(record.pid.is_some() && record.end.is_none());
                (record.end, record.ended) = (Some(*end), Some(*at));
            }
            (RankEvent::Hello { .. }, Some(record)) => {
                *hello += u32::from(!std::mem::replace(&mut record.hello, true));
                if *hello == self.plan.size {
                    self.phases.hello.get_or_insert(elapsed);
                }
            }
            (RankEvent::PmiInit { .. }, _) => self.in_pmi = true,
            (RankEvent::StartFailed { text, .. }, _) => {
                self.start_error.get_or_insert_with(|| text.clone());
            }
            (RankEvent::Protocol { text, .. } | RankEvent::PmiBroken { text, .. }, _) => {
                self.protocol_error.get_or_insert_with(|| text.clone());
            }
            _ => {}
        }
    }

    /// Writes down what many ranks did alike, so that `hello` have opened the bootstrap now and
    /// `ended` have ended; each rank's own record waits for [`Record::settle`].
    pub(crate) fn note_alike(
        &mut self,
        (deed, runs): (Deed, Vec<Run>),
        [hello, ended]: [u32; 2],
        elapsed: f64,
    ) {
        (self.counts[1], self.counts[2]) = (hello, ended);
        if hello == self.plan.size {
            self.phases.hello.get_or_insert(elapsed);
        }
        if matches!(deed, Deed::Hello | Deed::Ended { .. }) {
            self.later.push((deed, runs, epoch_now()));
        }
    }

    /// Brings the records of the ranks up to date.
    pub(crate) fn settle(&mut self) {
        for (deed, runs, at) in std::mem::take(&mut self.later) {
            for (first, count) in runs {
                let (from, until) = (first as usize, first.saturating_add(count) as usize);
                let until = until.min(self.ranks.len());
                let all = self.ranks.get_mut(from..until).unwrap_or_default();
                for record in all.iter_mut().filter(|r| r.pid.is_some() && r.end.is_none()) {
                    match deed {
                        Deed::Ended { end, .. } => {
                            (record.end, record.ended) = (Some(end), Some(at))
                        }
                        _ => record.hello = true,
                    }
                }
            }
        }
    }

    /// When a rank really ended that was told of with others.
    pub(crate) fn time(&mut self, rank: u32, at: f64) {
        let record = self.ranks.get_mut(rank as usize);
        if let Some(record) = record.filter(|record| record.ended.is_some()) {
            record.ended = Some(at);
        }
    }

    /// What is to be said of ranks of Open MPI that have never asked for each other.
    pub(crate) fn strangers(&self) -> Option<&'static str> {
        match self.plan.pmi {
            _ if self.plan.size == 1 || self.in_pmi => None,
            Pmi::OpenMpi => Some(
                "no rank has asked for the others by PMI: if they called MPI_Init, each was an MPI job of its own (--pmi=pmix \
                 serves Open MPI 5, which speaks PMIx alone)",
            ),
            // GASNet programs, and those behind a script, need not.
            Pmi::Pmix if !self.is_gasnet() => Some(
                "no rank has asked for the others by PMIx: if they called MPI_Init, each was an MPI job of its own",
            ),
            Pmi::Pmix | Pmi::On | Pmi::Off => None,
        }
    }

    /// The program is one of GASNet.
    pub(crate) const fn is_gasnet(&self) -> bool {
        self.plan.conduit_program
    }

    pub(crate) fn explain(&self, cause: Cause, stderr_tail: Vec<String>) -> Cause {
        let record = cause.rank.and_then(|rank| self.ranks.get(rank as usize));
        let host = match (cause.kind, &self.host_lost) {
            (CauseKind::AgentLost, Some((host, _))) => Some(host.clone()),
            _ => record.map(|r| r.host.clone()),
        };
        let (pid, mut text) = (record.and_then(|r| r.pid), self.text(&cause, record));
        // Why a start failed may be a table, in which every word is a line's already.
        if cause.kind != CauseKind::Start {
            text = log::line(&text).into_owned();
        }
        Cause { host, pid, text, stderr_tail, ..cause }
    }

    fn text(&self, cause: &Cause, record: Option<&RankRecord>) -> String {
        let (rank, code) = (cause.rank.unwrap_or(0), cause.code);
        match cause.kind {
            CauseKind::ExitCode => format!("rank {rank} exited with code {code}"),
            CauseKind::Signal => format!("rank {rank} was killed by {}", signal_of(cause)),
            CauseKind::NonCollectiveExit => {
                format!("rank {rank} exited alone with code {code}{}", path_text(cause.path))
            }
            CauseKind::NoFini if record.is_some_and(|r| r.hello) => format!(
                "rank {rank} ended with status 0 without finishing the bootstrap (no exit call, no farewell)"
            ),
            CauseKind::NoFini => format!(
                "rank {rank} ended before it opened the bootstrap, which other ranks have open"
            ),
            CauseKind::NoMpiFinalize => {
                format!("rank {rank} ended with status 0 after MPI_Init and without MPI_Finalize")
            }
            CauseKind::Pmi => {
                let how = self.protocol_error.as_deref().unwrap_or("unknown");
                if cause.rank.is_some() { format!("rank {rank}, {how}") } else { how.to_owned() }
            }
            CauseKind::Abort => format!("rank {rank} aborted the job with code {code}"),
            CauseKind::CollectiveExit if record.is_some_and(|r| r.killed_by_launcher) => format!(
                "the collective exit with code {code} did not complete within {} s (GASNET_EXITTIMEOUT)",
                self.plan.exit_bound.as_secs_f64()
            ),
            CauseKind::CollectiveExit => {
                format!("collective exit with code {code}{}", path_text(cause.path))
            }
            CauseKind::LauncherSignal => self.launcher_signal(cause, record.and_then(|r| r.end)),
            CauseKind::Timeout => {
                let limit = self.plan.timeout.unwrap_or_default().as_secs_f64();
                format!("the time limit of {limit} s has passed")
            }
            CauseKind::Start => {
                self.start_error.clone().unwrap_or_else(|| "a rank could not be started".into())
            }
            CauseKind::Protocol => {
                let how = self.protocol_error.as_deref().unwrap_or("unknown");
                format!("rank {rank} broke the bootstrap protocol: {how}")
            }
            CauseKind::AgentLost => match &self.host_lost {
                Some((host, seen)) => format!("host {host} was lost: {seen}"),
                None => "the node agent ended unexpectedly".into(),
            },
            CauseKind::Unkillable => {
                format!("rank {rank} was still there {} s after SIGKILL", REAP.limit.as_secs())
            }
        }
    }

    fn launcher_signal(&self, cause: &Cause, ended: Option<End>) -> String {
        if cause.signal == Some(libc::SIGKILL) {
            return "the launcher was killed".into();
        }
        let mut text = format!("the launcher got {}", signal_of(cause));
        if let Some(sender) = cause.signal.and_then(|signal| self.senders.get(&signal)) {
            text += &format!(" from {sender}");
        }
        match (cause.rank, ended) {
            (Some(rank), Some(End::Signal(signal))) => {
                format!("{text}; rank {rank} then ended by {}", signal_name(signal))
            }
            (Some(rank), _) => format!("{text}; rank {rank} then exited with code {}", cause.code),
            (None, _) => text,
        }
    }
}

fn signal_of(cause: &Cause) -> String {
    cause.signal.map_or_else(|| "a signal".into(), signal_name)
}

const fn path_text(path: Option<ExitPath>) -> &'static str {
    match path {
        Some(ExitPath::Hook) => " (end of main or exit)",
        Some(ExitPath::Signal) => " (after a termination signal)",
        Some(ExitPath::Remote) => " (on request)",
        Some(ExitPath::Explicit) | None => "",
    }
}

/// The report of a job whose agent was lost.
pub(crate) fn lost(plan: &JobPlan, end: Option<End>, done: f64, orphans_killed: u32) -> JobReport {
    let (how, signal) = match end {
        Some(End::Signal(signal)) => {
            (format!("was killed by {}", signal_name(signal)), Some(signal))
        }
        Some(End::Code(code)) => (format!("exited with code {code} and no report"), None),
        None => ("closed its connection".into(), None),
    };
    let text =
        format!("the node agent on {} {how}; every process of the job was killed", plan.host);
    let cause = Cause { signal, text, ..Cause::new(CauseKind::AgentLost, None, CODE_LAUNCH) };
    without_report(plan, cause, done, orphans_killed)
}

/// What a job is to end by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    TimeLimit(Duration),
    /// A second one after this.
    Signal(i32),
}

/// The report of a job whose agent did not end it in time.
pub(crate) fn stuck(plan: &JobPlan, asked: Asked, done: f64, orphans_killed: u32) -> JobReport {
    let (what, cause) = match asked {
        Asked::TimeLimit(limit) => (
            format!("the time limit of {} s", limit.as_secs_f64()),
            Cause::new(CauseKind::Timeout, None, CODE_TIMEOUT),
        ),
        Asked::Signal(signal) => {
            let cause = Cause::new(CauseKind::LauncherSignal, None, 128 + signal);
            let what = format!("a second signal after {}", signal_name(signal));
            (what, Cause { signal: Some(signal), ..cause })
        }
    };
    let text = format!(
        "the node agent on {} was stuck: it had not ended the job {} s after {what}; it and every process of the job were killed",
        plan.host,
        STUCK.limit.as_secs()
    );
    without_report(plan, Cause { text, ..cause }, done, orphans_killed)
}

fn without_report(plan: &JobPlan, cause: Cause, done: f64, orphans_killed: u32) -> JobReport {
    let text = log::line(&cause.text).into_owned();
    let cause = Cause { host: Some(plan.host.clone()), text, ..cause };
    JobReport {
        job: plan.job_id.clone(),
        exit_code: cause.code,
        cause: Some(cause),
        ranks: Record::new(plan).ranks,
        phases: Phases { done, ..Phases::default() },
        orphans_killed,
        hosts: Vec::new(),
        checkpointed: false,
        clocks: Vec::new(),
    }
}
