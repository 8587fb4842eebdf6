//! Figures of strided transfers, in shared memory and over the software adapter.

use crate::Repetitions;
use crate::row::{Findings, Row, Target};
use crate::run::{Result, Samples, job, run, sibling};

/// Runs `bench_vis` on two ranks, `most` of which share memory.
fn measure(repetitions: Repetitions, most: &str) -> Result<Samples> {
    let pairs = repetitions.pairs.to_string();
    let mut command = job(2, &["-c", "1"], &sibling("bench_vis")?, &[&pairs])?;
    command.envs([("GASNET_SUPERNODE_MAXSIZE", most), ("GASNET_IBV_FABRIC", "soft")]);
    Ok(run(command, true)?.samples())
}

/// A strided put inside a host.
pub(crate) fn shared(repetitions: Repetitions) -> Result<Findings> {
    let samples = measure(repetitions, "2")?;
    let rows = vec![Row::paired(
        "strided put of 1024 x 64 B, a loop of copies",
        &samples,
        ["strided_us", "loop_us"],
        "µs",
        Target::AtMost(1.25),
    )?];
    Ok(Findings { rows, samples, notes: Vec::new(), ..Findings::default() })
}

/// A strided put over the software adapter.
pub(crate) fn soft(repetitions: Repetitions) -> Result<Findings> {
    let samples = measure(repetitions, "1")?;
    let row = |figure, keys, target| Row::paired(figure, &samples, keys, "µs", target);
    let rows = vec![
        row(
            "strided put of 1024 x 64 B over soft, 1024 puts",
            ["strided_us", "puts_us"],
            Target::AtMost(0.33),
        )?,
        row(
            "strided put of 1024 x 64 B over soft, one put of 64 KB",
            ["strided_us", "contiguous_us"],
            Target::AtMost(1.67),
        )?,
        row(
            "strided get of 1024 x 64 B over soft, one put of 64 KB",
            ["get_us", "contiguous_us"],
            Target::None,
        )?,
    ];
    let notes = vec![
        "net-strided: 200 transfers a sample, each complete before the next; rows 256 bytes apart on both sides. The 1024 \
         puts are implicit, with one wait."
            .to_owned(),
    ];
    Ok(Findings { rows, samples, notes, ..Findings::default() })
}
