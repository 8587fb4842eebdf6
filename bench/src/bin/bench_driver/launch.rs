//! Starting processes: figures 1 to 3.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Repetitions;
use crate::row::{Findings, Row, Target, Verdict};
use crate::run::{Result, Samples, job, run, sibling};

/// The hand-written loops of `bench_raw`.
const LOOPS: [(&str, &str); 3] = [
    ("fork", "256 no-op processes, fork+exec"),
    ("spawn", "256 no-op processes, posix_spawn"),
    ("spawn-threads", "256 no-op processes, posix_spawn from one thread per processor"),
];

/// A program in the directories of `PATH`.
pub(crate) fn in_path(name: &str) -> Option<PathBuf> {
    let path = settings::variable("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|file| file.is_file())
}

/// Milliseconds of one bare loop, by its own clock: its own start is not counted.
pub(crate) fn bare(kind: &str, count: u32, program: &Path) -> Result<f64> {
    let mut command = Command::new(sibling("bench_raw")?);
    command.arg(kind).arg(count.to_string()).arg(program);
    let ended = run(command, true)?;
    let nanos: f64 = ended.out.trim().parse()?;
    Ok(nanos / 1e6)
}

/// 256 ranks that do nothing.
pub(crate) fn launch(repetitions: Repetitions) -> Result<Findings> {
    let noop = sibling("noop")?;
    let hydra = in_path("mpiexec.hydra");
    let mut samples = Samples::default();
    let measure = |which: usize| -> Result<(&str, f64)> {
        match (which, &hydra) {
            (0, _) => Ok(("gasnetrun_ibv", run(job(256, &[], &noop, &[])?, false)?.wall_ms)),
            (4, Some(hydra)) => {
                let mut command = Command::new(hydra);
                command.args(["-n", "256"]).arg(&noop);
                Ok(("mpiexec.hydra", run(command, false)?.wall_ms))
            }
            (other, _) => Ok((LOOPS[other - 1].0, bare(LOOPS[other - 1].0, 256, &noop)?)),
        }
    };
    let kinds = if hydra.is_some() { 5 } else { 4 };
    for repetition in 0..=repetitions.launches {
        for step in 0..kinds {
            // Each goes first in turn, so that none always follows the same one.
            let (key, value) = measure((repetition + step) % kinds)?;
            // The first round fills the caches.
            if repetition > 0 {
                samples.add(key, value);
            }
        }
    }
    let mut fastest = LOOPS[0];
    for candidate in LOOPS {
        if samples.median(candidate.0)? < samples.median(fastest.0)? {
            fastest = candidate;
        }
    }
    let ours = "gasnetrun_ibv";
    let mut rows = Vec::new();
    for (key, name) in LOOPS {
        let target = if key == fastest.0 { Target::AtMost(1.15) } else { Target::None };
        rows.push(Row::paired(&format!("launch of {name}"), &samples, [ours, key], "ms", target)?);
    }
    let name = "launch of 256 no-op ranks, mpiexec.hydra";
    rows.push(if hydra.is_some() {
        Row::paired(name, &samples, [ours, "mpiexec.hydra"], "ms", Target::AtMost(1.0))?
    } else {
        let reason = "no mpiexec.hydra in PATH; scripts/bench --install, or apt-get install mpich";
        Row::without(name, Verdict::Skipped(reason.into()))
    });
    let notes = vec![format!(
        "launch: gasnetrun_ibv and mpiexec.hydra are timed from outside, the loops by their own clock (without their own \
         start). The verdict is against {}, the loop with the lowest median.",
        fastest.0
    )];
    Ok(Findings { rows, samples, notes, ..Findings::default() })
}

/// One rank, against running the program directly.
pub(crate) fn one(repetitions: Repetitions) -> Result<Findings> {
    let noop = sibling("noop")?;
    let mut samples = Samples::default();
    for repetition in 0..=2 * repetitions.launches {
        let mut pair = [0.0; 2];
        for step in 0..2 {
            let which = (repetition + step) % 2;
            let command = if which == 0 { job(1, &[], &noop, &[])? } else { Command::new(&noop) };
            pair[which] = run(command, false)?.wall_ms;
        }
        if repetition > 0 {
            samples.add("one rank", pair[0]);
            samples.add("direct", pair[1]);
        }
    }
    let target = Target::MoreByAtMost(10.0);
    let rows = vec![Row::paired(
        "1 no-op rank, run directly",
        &samples,
        ["one rank", "direct"],
        "ms",
        target,
    )?];
    Ok(Findings { rows, samples, notes: Vec::new(), ..Findings::default() })
}

/// Init, attach, barrier and exit on 64 ranks, against 64 that do nothing.
pub(crate) fn hello(repetitions: Repetitions) -> Result<Findings> {
    let programs = [("hello", sibling("hello")?), ("noop", sibling("noop")?)];
    let mut samples = Samples::default();
    for repetition in 0..=repetitions.launches {
        for step in 0..2 {
            let (key, program) = &programs[(repetition + step) % 2];
            let value = run(job(64, &[], program, &[])?, false)?.wall_ms;
            if repetition > 0 {
                samples.add(key, value);
            }
        }
    }
    let target = Target::AtMost(2.0);
    let rows = vec![Row::paired(
        "hello on 64 ranks, 64 no-op ranks",
        &samples,
        ["hello", "noop"],
        "ms",
        target,
    )?];
    Ok(Findings { rows, samples, notes: Vec::new(), ..Findings::default() })
}
