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

/// Who computes beside the ranks.
#[derive(Clone, Copy)]
enum State {
    Alone,
    /// Processes of the same session: where the system schedules by sessions (autogroup), they share
    /// what the ranks have.
    Beside,
    /// Processes of sessions of their own, as those of other users and of services.
    Foreign,
}

impl State {
    const ALL: [Self; 3] = [Self::Beside, Self::Foreign, Self::Alone];

    const fn key(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Beside => "beside",
            Self::Foreign => "foreign",
        }
    }
}

/// Processes that compute, for as long as this lives.
struct Others(Vec<Child>);

impl Others {
    fn start(count: usize, state: State) -> Result<Self> {
        const LOOP: [&str; 3] = ["sh", "-c", "while :; do :; done"];
        let mut others = Self(Vec::new());
        let count = if matches!(state, State::Alone) { 0 } else { count };
        for _ in 0..count {
            // A child leads no group, so `setsid` becomes the shell itself.
            let mut shell = match state {
                State::Foreign => Command::new("setsid"),
                _ => Command::new("env"),
            };
            others.0.push(shell.args(LOOP).stdin(Stdio::null()).spawn()?);
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
            let key = |state: State| format!("{kind}{ranks}_{}_{place}", state.key());
            for _ in 0..repetitions.pairs {
                for state in State::ALL {
                    let _others = Others::start(count, state)?;
                    let mut command = job(ranks, &[], &sibling("bench_beside")?, &[kind, SECONDS])?;
                    command.envs(variables.iter().copied());
                    let found = run(command, true)?.samples();
                    let rate = found.of(&format!("{kind}_per_s"))?.first();
                    let none = || Failure(format!("bench_beside {kind} says no rate"));
                    samples.add(&key(state), *rate.ok_or_else(none)?);
                }
            }
            for (state, whose) in [(State::Beside, ""), (State::Foreign, " of other sessions")] {
                let figure = format!("{what} over {place} beside {count} others{whose}, alone");
                let keys = [key(state), key(State::Alone)];
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
