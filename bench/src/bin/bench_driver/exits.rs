//! The end of a job: figure 10.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::Repetitions;
use crate::row::{Findings, Row, Target, Verdict};
use crate::run::{Failure, RUN, Result, Running, Samples, job, millis, sibling, start};
use bench::sys::now_ns;

const RANKS: u32 = 64;

/// A way to end, its name in the table, and the code that the launcher returns.
const CASES: [(&str, &str, i32); 6] = [
    ("collective", "collective exit of 64 ranks, after the last call", 0),
    ("lone", "exit of 1 of 64, others in a barrier", 3),
    ("lone-compute", "exit of 1 of 64, others compute", 3),
    ("hold", "kill -9 of 1 of 64, others in a barrier", 137),
    ("hold-compute", "kill -9 of 1 of 64 that sleeps, others compute", 137),
    ("compute", "kill -9 of 1 of 64, all compute", 137),
];

/// Process id of the last rank once every rank has said that it is where the case wants it.
fn victim(running: &Running) -> Result<Pid> {
    let begin = Instant::now();
    loop {
        let so_far = running.so_far()?;
        let ready: Vec<&str> =
            so_far.lines().filter_map(|line| line.strip_prefix("ready ")).collect();
        if ready.len() >= RANKS as usize {
            let last = (RANKS - 1).to_string();
            let pid = ready
                .iter()
                .filter_map(|line| line.split_once(' '))
                .find(|(rank, _)| *rank == last);
            let (_, pid) = pid.ok_or_else(|| Failure("the last rank said nothing".into()))?;
            // Time for the others to enter the barrier after their line.
            std::thread::sleep(Duration::from_millis(300));
            return Ok(Pid::from_raw(pid.trim().parse()?));
        }
        if begin.elapsed() > RUN {
            return Err(Failure(format!("only {} of {RANKS} ranks became ready", ready.len())));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Milliseconds from the event to the launcher's return, and survivors at that moment.
fn once(mode: &str, code: i32) -> Result<(f64, usize)> {
    let program = sibling("bench_exit")?;
    let running = start(job(RANKS, &[], &program, &[mode])?, true)?;
    let killed = if code == 137 {
        let pid = victim(&running)?;
        let at = now_ns();
        kill(pid, Signal::SIGKILL)?;
        Some(at)
    } else {
        None
    };
    let ended = running.wait()?.expect(code)?;
    let last_call =
        ended.out.lines().filter_map(|line| line.strip_prefix("call ")?.parse::<u64>().ok()).max();
    let event = killed
        .or(last_call)
        .ok_or_else(|| Failure(format!("{mode}: no rank said when it exits")))?;
    Ok((millis(ended.at.saturating_sub(event)), ended.survivors))
}

pub(crate) fn exits(repetitions: Repetitions) -> Result<Findings> {
    let mut samples = Samples::default();
    let mut failures: [Option<String>; 6] = Default::default();
    for _ in 0..repetitions.exits {
        for ((mode, _, code), failure) in CASES.iter().zip(&mut failures) {
            if failure.is_some() {
                continue;
            }
            match once(mode, *code) {
                Ok((after, survivors)) => {
                    samples.add(mode, after);
                    // A count of processes is small.
                    samples.add(&format!("{mode} survivors"), f64::from(u32::try_from(survivors)?));
                }
                Err(Failure(text)) => *failure = Some(text),
            }
        }
    }
    let mut rows = Vec::new();
    for ((mode, name, _), failure) in CASES.iter().zip(failures) {
        if let Some(text) = failure {
            rows.push(Row::without(name, Verdict::Failed(text)));
            continue;
        }
        let target = Target::Bound(100.0);
        let mut row = Row::alone(name, &samples, mode, "ms", target)?;
        let most = samples.of(&format!("{mode} survivors"))?.iter().copied().fold(0.0, f64::max);
        row.cells[3] = format!("{most:.0} survivors");
        row.cells[4].push_str(", 0 survivors");
        if most > 0.0 {
            row.verdict = Verdict::Missed;
        }
        rows.push(row);
    }
    let notes = vec![
        "exit: survivors are processes with the run's token in their environment, looked for in /proc right after the \
         launcher's return; the largest number of any run is shown."
            .to_owned(),
        "exit: a rank that computes dies of kill -9 only when it gets its processor again, which takes up to the slices of \
         all ranks that share it (32 here). With `all compute` that time of the kernel is most of what is measured; with \
         a killed rank that sleeps it is not contained."
            .to_owned(),
    ];
    Ok(Findings { rows, samples, notes, ..Findings::default() })
}
