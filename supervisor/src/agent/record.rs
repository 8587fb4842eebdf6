//! Writes down what happened to each rank, and puts the first cause into words.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use bootstrap::ExitPath;

use super::machine::Machine;
use super::sys::signal_name;
use crate::event_loop::Sender;
use crate::plan::JobPlan;
use crate::report::{Cause, CauseKind, End, JobReport, Phases, RankRecord};

/// Seconds since the epoch.
pub(crate) fn epoch_now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Name of a rank's host.
pub(crate) fn host_of(plan: &JobPlan, rank: u32) -> &str {
    let host = plan.map.host_of.get(rank as usize);
    let entry = host.and_then(|host| plan.map.hosts.get(*host as usize));
    entry.filter(|_| !plan.map.is_here_only()).map_or(&plan.host, |entry| &entry.name)
}

/// The records of all ranks, none started.
pub(crate) fn blank(plan: &JobPlan) -> Vec<RankRecord> {
    let record = |rank| RankRecord {
        rank,
        host: host_of(plan, rank).to_owned(),
        pid: None,
        started: None,
        ended: None,
        end: None,
        hello: false,
        killed_by_launcher: false,
    };
    (0..plan.size).map(record).collect()
}

/// What the driver knows besides the machine's decision.
pub(super) struct Details<'a> {
    /// Why a rank could not be started.
    pub(super) start: Option<&'a str>,
    /// How a rank broke the protocol.
    pub(super) protocol: Option<&'a str>,
    /// Name of a host that was lost, and what was seen.
    pub(super) host_lost: Option<&'a (String, String)>,
    /// Who sent which signal to the launcher.
    pub(super) senders: &'a HashMap<i32, Sender>,
    /// Last lines of the standard error of the rank behind the cause.
    pub(super) stderr_tail: Vec<String>,
}

const fn path_text(path: Option<ExitPath>) -> &'static str {
    match path {
        Some(ExitPath::Hook) => " (end of main or exit)",
        Some(ExitPath::Signal) => " (after a termination signal)",
        Some(ExitPath::Remote) => " (on request)",
        Some(ExitPath::Explicit) | None => "",
    }
}

fn launcher_signal(cause: &Cause, ended: Option<End>, sender: Option<&Sender>) -> String {
    let mut name = cause.signal.map_or_else(|| "a signal".into(), signal_name);
    if let Some(sender) = sender {
        name = format!("{name} from {sender}");
    }
    if cause.signal == Some(libc::SIGKILL) {
        return "the launcher was killed".into();
    }
    match (cause.rank, ended) {
        (Some(rank), Some(End::Signal(signal))) => {
            format!("the launcher got {name}; rank {rank} then ended by {}", signal_name(signal))
        }
        (Some(rank), _) => {
            format!("the launcher got {name}; rank {rank} then exited with code {}", cause.code)
        }
        (None, _) => format!("the launcher got {name}"),
    }
}

/// The cause in one line.
fn text(
    plan: &JobPlan,
    cause: &Cause,
    record: Option<&RankRecord>,
    details: &Details<'_>,
) -> String {
    let rank = cause.rank.unwrap_or(0);
    let code = cause.code;
    match cause.kind {
        CauseKind::ExitCode => format!("rank {rank} exited with code {code}"),
        CauseKind::Signal => {
            let name = cause.signal.map_or_else(|| "a signal".into(), signal_name);
            format!("rank {rank} was killed by {name}")
        }
        CauseKind::NonCollectiveExit => {
            format!("rank {rank} exited alone with code {code}{}", path_text(cause.path))
        }
        CauseKind::NoFini if record.is_some_and(|r| r.hello) => {
            format!(
                "rank {rank} ended with status 0 without finishing the bootstrap (no exit call, no farewell)"
            )
        }
        CauseKind::NoFini => {
            format!("rank {rank} ended before it opened the bootstrap, which other ranks have open")
        }
        CauseKind::Abort => format!("rank {rank} aborted the job with code {code}"),
        CauseKind::CollectiveExit if record.is_some_and(|r| r.killed_by_launcher) => {
            let bound = plan.exit_bound.as_secs_f64();
            format!(
                "the collective exit with code {code} did not complete within {bound} s (GASNET_EXITTIMEOUT)"
            )
        }
        CauseKind::CollectiveExit => {
            format!("collective exit with code {code}{}", path_text(cause.path))
        }
        CauseKind::LauncherSignal => {
            let sender = cause.signal.and_then(|signal| details.senders.get(&signal));
            launcher_signal(cause, record.and_then(|r| r.end), sender)
        }
        CauseKind::Timeout => {
            let limit = plan.timeout.unwrap_or_default().as_secs_f64();
            format!("the time limit of {limit} s has passed")
        }
        CauseKind::Start => details.start.unwrap_or("a rank could not be started").to_owned(),
        CauseKind::Protocol => {
            format!(
                "rank {rank} broke the bootstrap protocol: {}",
                details.protocol.unwrap_or("unknown")
            )
        }
        CauseKind::AgentLost => match details.host_lost {
            Some((host, seen)) => format!("host {host} was lost: {seen}"),
            None => "the node agent ended unexpectedly".into(),
        },
    }
}

/// The finished report.
pub(super) fn report(
    plan: &JobPlan,
    machine: &Machine,
    ranks: Vec<RankRecord>,
    phases: Phases,
    orphans_killed: u32,
    details: Details<'_>,
) -> JobReport {
    let cause = machine.cause().map(|cause| {
        let record = cause.rank.and_then(|rank| ranks.get(rank as usize));
        Cause {
            host: match (cause.kind, details.host_lost) {
                (CauseKind::AgentLost, Some((host, _))) => Some(host.clone()),
                _ => record.map(|r| r.host.clone()),
            },
            pid: record.and_then(|r| r.pid),
            text: text(plan, &cause, record, &details),
            stderr_tail: details.stderr_tail,
            ..cause
        }
    });
    let exit_code = machine.exit_code();
    JobReport {
        job: plan.job_id.clone(),
        exit_code,
        cause,
        ranks,
        phases,
        orphans_killed,
        hosts: Vec::new(),
    }
}

/// The report of a job whose agent was lost.
pub(crate) fn lost(plan: &JobPlan, end: Option<End>, done: f64, orphans_killed: u32) -> JobReport {
    let how = match end {
        Some(End::Signal(signal)) => format!("was killed by {}", signal_name(signal)),
        Some(End::Code(code)) => format!("exited with code {code} and no report"),
        None => "closed its connection".into(),
    };
    let text =
        format!("the node agent on {} {how}; every process of the job was killed", plan.host);
    let signal = match end {
        Some(End::Signal(signal)) => Some(signal),
        _ => None,
    };
    let exit_code = super::machine::CODE_LAUNCH;
    let host = Some(plan.host.clone());
    let cause = Cause { host, signal, text, ..Cause::new(CauseKind::AgentLost, None, exit_code) };
    let phases = Phases { done, ..Phases::default() };
    let (job, ranks) = (plan.job_id.clone(), blank(plan));
    JobReport {
        job,
        exit_code,
        cause: Some(cause),
        ranks,
        phases,
        orphans_killed,
        hosts: Vec::new(),
    }
}
