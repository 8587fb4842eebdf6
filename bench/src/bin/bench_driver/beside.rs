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

/// Processes that compute, for as long as this lives.
struct Others(Vec<Child>);

impl Others {
    fn start(count: usize) -> Result<Self> {
        let mut others = Self(Vec::new());
        for _ in 0..count {
            let mut shell = Command::new("sh");
            shell.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
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
            let keys = ["beside", "alone"].map(|state| format!("{kind}{ranks}_{state}_{place}"));
            for _ in 0..repetitions.pairs {
                for (key, others) in keys.iter().zip([count, 0]) {
                    let _others = Others::start(others)?;
                    let mut command = job(ranks, &[], &sibling("bench_beside")?, &[kind, SECONDS])?;
                    command.envs(variables.iter().copied());
                    let found = run(command, true)?.samples();
                    let rate = found.of(&format!("{kind}_per_s"))?.first();
                    let none = || Failure(format!("bench_beside {kind} says no rate"));
                    samples.add(key, *rate.ok_or_else(none)?);
                }
            }
            let figure = format!("{what} over {place} beside {count} others, alone");
            let keys = [&keys[0], &keys[1]].map(String::as_str);
            rows.push(Row::paired(&figure, &samples, keys, "/s", Target::AtLeast(0.4))?);
        }
    }
    let notes = vec![format!(
        "net-beside: ranks for {SECONDS} s, beside as many shell loops as there are processors and alone, in turn. One of two ranks has half \
         of its processor's time then."
    )];
    Ok(Findings { rows, samples, notes, ..Findings::default() })
}
