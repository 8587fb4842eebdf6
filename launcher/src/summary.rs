//! The last words on a job that did not end well: the first cause, and what to try.

use std::fmt::Write;

use nix::sys::signal::Signal::{self, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGKILL, SIGSEGV};
use settings::log::line;
use spawner_pmi::launch::Call;
use supervisor::report::{Cause, CauseKind, JobReport};

use crate::parts::Found;

/// The summary, or nothing when the job ended well. Several lines, the first without prefix, the
/// others indented.
#[must_use]
pub fn text(
    report: &JobReport,
    level: u8,
    conduit_program: bool,
    parts: &[Found],
) -> Option<String> {
    let cause = report.cause.as_ref()?;
    let program = cause.rank.and_then(|rank| parts.iter().rfind(|part| part.first <= rank));
    let program = program.map(|part| part.name().to_string_lossy());
    let mut text = headline(cause, report.ranks.len(), program.as_deref());
    // These say nothing that the first line does not.
    if !matches!(
        cause.kind,
        CauseKind::ExitCode | CauseKind::Signal | CauseKind::CollectiveExit | CauseKind::Timeout
    ) {
        let _ = write!(text, "\n  {}", cause.text.trim_end());
    }
    // Exiting together is a result, not an accident that the last lines would explain.
    if !cause.stderr_tail.is_empty() && cause.kind != CauseKind::CollectiveExit {
        let _ = write!(text, "\n  last lines of its standard error:");
        for line in &cause.stderr_tail {
            let _ = write!(text, "\n    {line}");
        }
    }
    killed(&mut text, report, "further processes of the job that had to be killed");
    if let Some(advice) = advice(cause, level, conduit_program) {
        let _ = write!(text, "\n  try: {advice}");
    }
    Some(text)
}

/// The summary of a job whose ranks another launcher started, or nothing when it ended well. What
/// became of single ranks is known to that launcher alone.
#[must_use]
pub fn of_engine(report: &JobReport, call: &Call) -> Option<String> {
    let cause = report.cause.as_ref()?;
    let who = with_pid(call.dialect.title.to_owned(), cause);
    let (code, why) = (cause.code, cause.text.trim_end());
    let mut text = match (cause.kind, cause.signal.map(signal_name)) {
        (CauseKind::ExitCode, _) => format!("{who} ended with code {code}"),
        (CauseKind::Signal, Some(signal)) => format!("{who} was killed by {signal}; code {code}"),
        (CauseKind::LauncherSignal, Some(signal)) => {
            format!("gasnetrun_ibv got {signal} and ended the job with code {code}")
        }
        (CauseKind::Timeout, _) => format!("{why}; the job was ended with code {code}"),
        _ => format!("{who}: {why} (code {code})"),
    };
    let more = match cause.kind {
        CauseKind::LauncherSignal if cause.text.contains(" from pid ") => why,
        CauseKind::ExitCode => call.dialect.codes,
        _ => "",
    };
    if !more.is_empty() {
        let _ = write!(text, "\n  {more}");
    }
    killed(&mut text, report, "processes that it left behind and that had to be killed");
    Some(text)
}

fn killed(text: &mut String, report: &JobReport, which: &str) {
    if report.orphans_killed > 0 {
        let _ = write!(text, "\n  {which}: {}", report.orphans_killed);
    }
}

fn with_pid(who: String, cause: &Cause) -> String {
    cause.pid.map_or(who.clone(), |pid| format!("{who} (pid {pid})"))
}

/// `program` is that of the rank, in a job of several.
fn headline(cause: &Cause, size: usize, program: Option<&str>) -> String {
    let mut who = cause.rank.map_or("the job".to_owned(), |rank| format!("rank {rank} of {size}"));
    if let Some(program) = program {
        let _ = write!(who, " ({program})");
    }
    if let Some(host) = &cause.host {
        let _ = write!(who, " on host {}", line(host));
    }
    let who = with_pid(who, cause);
    let signal = cause.signal.map_or_else(String::new, signal_name);
    let code = cause.code;
    let ended = format!("the job was ended with code {code}");
    match (cause.kind, &cause.host) {
        (CauseKind::ExitCode, _) => format!("{who} exited with code {code} and so ended the job"),
        (CauseKind::Signal, _) => {
            format!("{who} was killed by {signal} and so ended the job with code {code}")
        }
        (CauseKind::NonCollectiveExit, _) => {
            format!("{who} exited alone with code {code} while others went on; the job was ended")
        }
        (CauseKind::NoFini, _) => format!("{who} ended without finishing the job's exit; {ended}"),
        (CauseKind::NoMpiFinalize, _) => format!("{who} ended without MPI_Finalize; {ended}"),
        (CauseKind::Pmi, _) => format!("{who} cannot be an MPI program of this job; {ended}"),
        (CauseKind::Abort, _) => format!("{who} aborted the job with code {code}"),
        (CauseKind::CollectiveExit, _) => format!("all ranks exited together, with code {code}"),
        (CauseKind::LauncherSignal, _) => {
            format!("the launcher got {signal} and ended the job with code {code}")
        }
        (CauseKind::Timeout, _) => format!("{}; {ended}", cause.text.trim_end()),
        (CauseKind::Start, _) => format!("{who} could not be started; code {code}"),
        (CauseKind::Protocol, _) => format!("{who} broke the bootstrap protocol; {ended}"),
        (CauseKind::AgentLost, Some(host)) => {
            format!("the node agent on host {host} was lost; {ended}")
        }
        (CauseKind::AgentLost, None) => format!("the node agent has gone; {ended}"),
        (CauseKind::Unkillable, _) => format!("{who} did not end, not even by SIGKILL; {ended}"),
    }
}

/// `SIGSEGV (11)`; real-time signals by number only.
fn signal_name(number: i32) -> String {
    Signal::try_from(number)
        .map_or_else(|_| format!("signal {number}"), |signal| format!("{signal} (signal {number})"))
}

fn advice(cause: &Cause, level: u8, conduit_program: bool) -> Option<&'static str> {
    let crashed = [SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE].map(|signal| signal as i32);
    match cause.kind {
        CauseKind::Signal
            if conduit_program && cause.signal.is_some_and(|s| crashed.contains(&s)) =>
        {
            Some(
                "GASNET_BACKTRACE=1 shows where it crashed; GASNET_FREEZE_ON_ERROR=1 waits there for a debugger",
            )
        }
        CauseKind::Signal if cause.signal == Some(SIGKILL as i32) => {
            Some("dmesg shows whether the kernel ran out of memory; fewer ranks (-n) need less")
        }
        CauseKind::NoFini => {
            Some("let every rank leave through the conduit's exit, not through _exit or exec")
        }
        CauseKind::NoMpiFinalize => {
            Some("call MPI_Finalize on every rank before it ends, or MPI_Abort")
        }
        CauseKind::Pmi => Some(
            "let all ranks of the job run one MPI program, or several that start together; --pmi=off lets each rank start alone",
        ),
        CauseKind::NonCollectiveExit => {
            Some("a barrier before the end of main, if all ranks should end together")
        }
        CauseKind::Timeout if conduit_program => {
            Some("a longer --timeout, or GASNET_BACKTRACE=1 to see where the ranks were")
        }
        CauseKind::Timeout => Some("a longer --timeout"),
        CauseKind::Protocol => {
            Some("rebuild the program with the conduit of this launcher's version")
        }
        CauseKind::Unkillable => Some(
            "ps -o pid,stat,wchan shows what it waits for in the kernel (state D); it ends when that is over",
        ),
        CauseKind::ExitCode | CauseKind::Start | CauseKind::AgentLost if level == 0 => {
            Some("-v shows every step; -t shows what is started; --tag-output shows who wrote what")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use supervisor::report::Phases;

    use super::*;

    fn report(kind: CauseKind, signal: Option<i32>, tail: &[&str]) -> JobReport {
        let cause = Cause {
            host: Some("n1".into()),
            pid: Some(77),
            signal,
            text: "it happened".into(),
            stderr_tail: tail.iter().map(ToString::to_string).collect(),
            ..Cause::new(kind, Some(3), signal.map_or(7, |s| 128 + s))
        };
        JobReport {
            job: "j".into(),
            exit_code: cause.code,
            cause: Some(cause),
            ranks: Vec::new(),
            hosts: Vec::new(),
            phases: Phases::default(),
            orphans_killed: 0,
            clocks: Vec::new(),
            checkpointed: false,
        }
    }

    #[test]
    fn names_rank_host_pid_signal_and_last_lines() {
        let text = text(&report(CauseKind::Signal, Some(11), &["one", "two"]), 0, true, &[])
            .expect("a cause");
        for part in [
            "rank 3",
            "host n1",
            "pid 77",
            "SIGSEGV (signal 11)",
            "code 139",
            "    two",
            "GASNET_BACKTRACE",
        ] {
            assert!(text.contains(part), "{part} missing in {text}");
        }
    }

    #[test]
    fn real_time_signals_have_numbers() {
        assert!(
            text(&report(CauseKind::Signal, Some(40), &[]), 0, false, &[])
                .expect("a cause")
                .contains("killed by signal 40")
        );
    }

    #[test]
    fn exiting_together_and_a_time_limit_are_one_line_each() {
        let together = text(&report(CauseKind::CollectiveExit, None, &["one"]), 0, true, &[])
            .expect("a cause");
        assert_eq!(together, "all ranks exited together, with code 7");
        let limit = text(&report(CauseKind::Timeout, None, &[]), 0, false, &[]).expect("a cause");
        assert!(
            limit.starts_with(
                "it happened; the job was ended with code 7\n  try: a longer --timeout"
            ),
            "{limit}"
        );
    }

    #[test]
    fn nothing_to_say_about_success() {
        let mut good = report(CauseKind::Abort, None, &[]);
        good.cause = None;
        assert_eq!(text(&good, 2, true, &[]), None);
    }
}
