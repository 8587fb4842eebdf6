//! Figures that ranks measure themselves, each beside its reference in the same processes: figures
//! 4 to 9.

use std::process::Command;

use crate::Repetitions;
use crate::row::{Findings, Row, Target, Verdict, quantity};
use crate::run::{Result, Samples, job, run, sibling};

/// Runs a rank program and returns what it printed.
fn measure(ranks: u32, options: &[&str], program: &str, args: &[&str]) -> Result<Samples> {
    let program = sibling(program)?;
    Ok(run(job(ranks, options, &program, args)?, true)?.samples())
}

/// As [`measure`], two ranks with a processor each.
pub(crate) fn measure_bound(
    repetitions: Repetitions,
    program: &str,
    args: &[&str],
) -> Result<Samples> {
    let command = job(2, &["-c", "1"], &sibling(program)?, args)?;
    if !repetitions.realtime {
        return Ok(run(command, true)?.samples());
    }
    let mut realtime = Command::new("chrt");
    realtime.args(["-f", "10"]).arg(command.get_program()).args(command.get_args());
    Ok(run(realtime, true)?.samples())
}

fn mean(values: &[f64]) -> f64 {
    // A count of samples is small.
    values.iter().sum::<f64>() / f64::from(u32::try_from(values.len()).unwrap_or(u32::MAX).max(1))
}

/// Memory of the result of an exchange.
pub(crate) fn exchange(_: Repetitions) -> Result<Findings> {
    const SIZES: [u32; 3] = [16, 64, 256];
    let mut samples = Samples::default();
    let mut per_size = Vec::new();
    for ranks in SIZES {
        let found = measure(ranks, &[], "bench_exchange", &[])?;
        let of = |key: &str| found.of(key).map(mean);
        per_size.push([
            of("resident_bytes")?,
            of("proportional_bytes")?,
            of("private_bytes")?,
            of("grown_bytes")?,
        ]);
        for (key, values) in found.0 {
            values.iter().for_each(|value| samples.add(&format!("{key} {ranks} ranks"), *value));
        }
    }
    let mut rows = Vec::new();
    let what = [
        "share (PSS) of the result per rank",
        "private bytes of the result's mapping per rank",
        "private bytes that the call added per rank",
    ];
    for (index, what) in what.into_iter().enumerate() {
        let index = index + 1;
        let [few, _, many] = [0, 1, 2].map(|size| per_size[size][index]);
        let name = format!("exchange of 64 B over 256 ranks: {what}, 16 ranks");
        let judged = index < 3;
        // A page is the unit of residence: less cannot be told apart from nothing.
        let met = many <= few.max(if index == 1 { 4096.0 } else { 0.0 });
        rows.push(Row {
            cells: [
                name,
                quantity(many, "B"),
                quantity(few, "B"),
                String::new(),
                if judged { "no growth".into() } else { String::new() },
            ],
            pairs: None,
            verdict: match (judged, met) {
                (false, _) => Verdict::Information,
                (true, true) => Verdict::Met,
                (true, false) => Verdict::Missed,
            },
        });
    }
    let notes = vec![
        "exchange: bytes of the mapping that holds the result, by /proc/self/smaps of every rank while all ranks hold \
         theirs (PSS divides each page by the number of processes that map it; smaps rounds down to KiB, so small \
         shares are also computed as resident bytes over ranks). The result of 256 ranks has 16384 bytes."
            .to_owned(),
    ];
    Ok(Findings { rows, samples, notes, ..Findings::default() })
}

/// Round trip of a Short.
pub(crate) fn short(repetitions: Repetitions) -> Result<Findings> {
    let count = repetitions.pairs.to_string();
    let samples = measure_bound(repetitions, "bench_am", &["short", &count])?;
    let rows = vec![
        Row::paired(
            "AM Short round trip, ping-pong over two cache lines",
            &samples,
            ["am_short_ns", "pingpong_two_ns"],
            "ns",
            Target::AtMost(2.0),
        )?,
        Row::paired(
            "AM Short round trip, ping-pong over one cache line",
            &samples,
            ["am_short_ns", "pingpong_ns"],
            "ns",
            Target::AtMost(2.0),
        )?,
    ];
    let notes = vec![
        "am: both ranks are bound to a processor each; the ping-pong runs in the same two processes over \
         128-byte lines of memory that both map. With two lines each is written by one side and read by the other, as \
         any pair of queues is: a message moves its line twice, to the sender who writes it and to the receiver who waits \
         for it. With one line the answer goes back in the line of the question, which is already where it is written: \
         half the moves."
            .to_owned(),
    ];
    Ok(Findings { rows, samples, notes, ..Findings::default() })
}

/// Flood of Mediums.
pub(crate) fn medium(repetitions: Repetitions) -> Result<Findings> {
    let count = repetitions.pairs.to_string();
    let samples = measure_bound(repetitions, "bench_am", &["medium", &count])?;
    let row = |name, reference, target| {
        Row::paired(name, &samples, ["medium_mbps", reference], "MB/s", target)
    };
    let rows = vec![
        row(
            "Medium 1 KB flood, (a) memcpy 1 KB through large buffers",
            "memcpy_mbps",
            Target::AtLeast(0.5),
        )?,
        row(
            "Medium 1 KB flood, (b) hand-written ring between the ranks",
            "ring_mbps",
            Target::None,
        )?,
        row(
            "Medium 1 KB flood, (c) memcpy 1 KB in the first-level cache",
            "memcpy_hot_mbps",
            Target::None,
        )?,
    ];
    let notes = vec![
        "medium: the verdict uses (a), copies of 1 KB blocks that walk through two private buffers larger than the \
         caches. (b) is the bound of what two processes can do: copy into a ring of shared memory, flag, read one word \
         per cache line on the other side, as the handler of the flood does. (c) is the same block copied over and over, \
         which no message between processors can reach."
            .to_owned(),
    ];
    Ok(Findings { rows, samples, notes, ..Findings::default() })
}

/// Puts and gets of 1 MB.
pub(crate) fn put_get(repetitions: Repetitions) -> Result<Findings> {
    let count = repetitions.pairs.to_string();
    let samples = measure_bound(repetitions, "bench_putget", &[&count])?;
    let row = |name, keys| Row::paired(name, &samples, keys, "MB/s", Target::AtLeast(0.95));
    let rows = vec![
        row("put of 1 MB, memcpy into a segment", ["put_mbps", "copy_in_mbps"])?,
        row("get of 1 MB, memcpy out of a segment", ["get_mbps", "copy_out_mbps"])?,
    ];
    let notes = vec![
        "putget: memcpy goes to and from the rank's own segment, which is the same mapping as the peer's segment that \
         put and get use."
            .to_owned(),
    ];
    Ok(Findings { rows, samples, notes, ..Findings::default() })
}

/// Barriers.
pub(crate) fn barrier(repetitions: Repetitions) -> Result<Findings> {
    let count = repetitions.pairs.to_string();
    let two = measure_bound(repetitions, "bench_barrier", &["rounds", &count])?;
    let many = measure(64, &[], "bench_barrier", &["rounds", &count])?;
    let rows = vec![
        Row::paired(
            "barrier of 2 ranks, cache-line ping-pong",
            &two,
            ["barrier_ns", "pingpong_ns"],
            "ns",
            Target::AtMost(2.0),
        )?,
        Row::paired(
            "barrier of 2 ranks, counter and spinning",
            &two,
            ["barrier_ns", "counter_ns"],
            "ns",
            Target::None,
        )?,
        Row::paired(
            "barrier of 64 ranks, counter and yield",
            &many,
            ["barrier_ns", "counter_ns"],
            "ns",
            Target::AtMost(1.0),
        )?,
    ];
    let mut samples = Samples::default();
    for (ranks, found) in [(2, two), (64, many)] {
        for (key, values) in found.0 {
            values.iter().for_each(|value| samples.add(&format!("{key} {ranks} ranks"), *value));
        }
    }
    Ok(Findings { rows, samples, notes: Vec::new(), ..Findings::default() })
}

/// Collectives inside a host.
pub(crate) fn collectives(repetitions: Repetitions) -> Result<Findings> {
    let count = repetitions.pairs.to_string();
    let two = measure_bound(repetitions, "bench_coll", &["to-all", &count])?;
    let many = measure(64, &[], "bench_coll", &["to-all", &count])?;
    let large = measure(16, &[], "bench_coll", &["broadcast", &count])?;
    let most = Target::AtMost;
    let rows = [
        (
            "8 B to all, 2 ranks, cache-line ping-pong",
            &two,
            ["to_all_ns", "pingpong_ns"],
            most(3.0),
        ),
        ("8 B to all, 64 ranks, tree in memory", &many, ["to_all_ns", "tree_ns"], most(1.5)),
        ("1 MB broadcast, 16 ranks, a copy each", &large, ["broadcast_ns", "copies_ns"], most(1.5)),
    ];
    let row = |(what, found, keys, target)| Row::paired(what, found, keys, "ns", target);
    let rows = rows.map(row).into_iter().collect::<Result<Vec<_>>>()?;
    let mut samples = Samples::default();
    for (ranks, found) in [(2, two), (64, many), (16, large)] {
        for (key, values) in found.0 {
            values.iter().for_each(|value| samples.add(&format!("{key} {ranks} ranks"), *value));
        }
    }
    Ok(Findings { rows, samples, notes: Vec::new(), ..Findings::default() })
}

/// Processor time of ranks that wait.
pub(crate) fn idle(repetitions: Repetitions) -> Result<Findings> {
    let mut samples = Samples::default();
    for _ in 0..repetitions.exits.min(3) {
        samples.extend(measure(8, &[], "bench_barrier", &["idle"])?);
    }
    let name = "8 ranks wait 2 s in a barrier: processor time of a rank";
    let rows = vec![
        Row::alone(name, &samples, "cpu_ms", "ms", Target::Bound(10.0))?,
        Row::alone(
            "8 ranks wait 2 s in a barrier: wake-ups of a rank",
            &samples,
            "wakeups",
            "",
            Target::None,
        )?,
    ];
    let notes = vec![
        "idle: getrusage around the barrier on the ranks that wait; 10 ms are half a percent of the wait.".to_owned(),
    ];
    Ok(Findings { rows, samples, notes, ..Findings::default() })
}
