//! What a job reaches beside processes of others that compute.

use std::process::{Child, Command, Stdio};

use crate::Repetitions;
use crate::network::SOFT;
use crate::row::{Findings, Row, Target};
use crate::run::{Failure, Result, Samples, job, run, sibling};

/// What `bench_beside` does, on how many ranks, and in words.
const KINDS: [(&str, u32, &str); 5] = [
    ("short", 2, "round trips of a Short"),
    ("put", 2, "puts of 8 B"),
    ("barrier", 2, "barriers"),
    ("barrier", 4, "barriers of 4 ranks"),
    ("queue", 2, "floods of 200 Shorts"),
];
/// Length of a run.
const SECONDS: &str = "0.5";

/// Who computes beside the ranks, and what starts them: processes of the same session, which share what
/// the ranks have where the system schedules by sessions (autogroup); processes of sessions of their
/// own, as those of other users and of services; nobody.
const STATES: [(&str, Option<&str>); 3] =
    [("beside", Some("env")), ("foreign", Some("setsid")), ("alone", None)];

/// Processes that compute, for as long as this lives.
struct Others(Vec<Child>);

impl Others {
    /// `count` of them, if anything starts them. A child leads no group, so `setsid` becomes the shell
    /// itself.
    fn start(count: usize, starter: Option<&str>) -> Result<Self> {
        let mut others = Self(Vec::new());
        for starter in starter.into_iter().cycle().take(count) {
            let mut shell = Command::new(starter);
            shell.args(["sh", "-c", "while :; do :; done"]).stdin(Stdio::null());
            others.0.push(shell.spawn()?);
        }
        Ok(others)
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        for other in &mut self.0 {
            let _ = other.kill();
            let _ = other.wait();
        }
    }
}

/// Calls in a second of a few ranks, beside as many others as processors and alone, in turn.
pub(crate) fn beside(repetitions: Repetitions) -> Result<Findings> {
    let count = std::thread::available_parallelism()?.get();
    let (mut samples, mut rows) = (Samples::default(), Vec::new());
    for (place, variables) in [("shared memory", &[][..]), ("soft", &SOFT[..])] {
        for (kind, ranks, what) in KINDS {
            let key = |state: &str| format!("{kind}{ranks}_{state}_{place}");
            for _ in 0..repetitions.pairs {
                for (state, starter) in STATES {
                    let _others = Others::start(count, starter)?;
                    let mut command = job(ranks, &[], &sibling("bench_beside")?, &[kind, SECONDS])?;
                    command.envs(variables.iter().copied());
                    let found = run(command, true)?.samples();
                    let rate = found.of(&format!("{kind}_per_s"))?.first();
                    let none = || Failure(format!("bench_beside {kind} says no rate"));
                    samples.add(&key(state), *rate.ok_or_else(none)?);
                }
            }
            for (state, whose) in [("beside", ""), ("foreign", " of other sessions")] {
                let figure = format!("{what} over {place} beside {count} others{whose}, alone");
                let keys = [key(state), key("alone")];
                let keys = keys.each_ref().map(String::as_str);
                rows.push(Row::paired(&figure, &samples, keys, "/s", Target::AtLeast(0.4))?);
            }
        }
    }
    let autogroup = std::fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled");
    let by_sessions = autogroup.is_ok_and(|text| text.trim() == "1");
    let notes = vec![format!(
        "net-beside: ranks for {SECONDS} s, beside as many shell loops as there are processors and alone, in turn. One of two ranks has half \
         of its processor's time then. Others of other sessions are foreign to the ranks' session, as those of other users are; the \
         system schedules by sessions (kernel.sched_autogroup_enabled): {}.",
        if by_sessions { "yes" } else { "no" }
    )];
    Ok(Findings { rows, samples, notes, ..Findings::default() })
}
