//! Figures of the C face: each Rust figure again from C, and what C programs pay beside
//! hand-written C.
//!
//! `scripts/bench --c` compiles `bench/c/bench_c.c` for each thread mode and puts the programs
//! beside this one.

use std::process::Command;

use bench::timing::median;

use crate::Repetitions;
use crate::ranks::measure_bound;
use crate::row::{Findings, Row, Target, Verdict};
use crate::run::{Failure, Result, Samples, sibling};

/// Pairs inside one launch; their median is one sample.
const INNER: &str = "3";

const SEQ: &str = "bench_c_seq";
const MODES: [(&str, &str); 2] = [("SEQ", SEQ), ("PAR", "bench_c_par")];

/// Runs `program` once and adds the median of each of its figures to `samples`, under `prefix`.
fn sample(
    samples: &mut Samples,
    repetitions: Repetitions,
    prefix: &str,
    program: &str,
    args: &[&str],
) -> Result<()> {
    let mut args = args.to_vec();
    args.push(INNER);
    for (key, values) in measure_bound(repetitions, program, &args)?.0 {
        samples.add(&format!("{prefix}{key}"), median(&values));
    }
    Ok(())
}

/// Alternates launches of the C programs of all modes for `kind` with the Rust program.
fn alternate(repetitions: Repetitions, kind: &str, rust: &[&str]) -> Result<Samples> {
    let mut samples = Samples::default();
    for turn in 0..repetitions.pairs {
        let mut order: Vec<usize> = (0..=MODES.len()).collect();
        order.rotate_left(turn % (MODES.len() + 1));
        for which in order {
            match (MODES.get(which), rust) {
                (Some((mode, program)), _) => {
                    sample(&mut samples, repetitions, &format!("{mode} "), program, &[kind])?;
                }
                (None, [program, args @ ..]) => {
                    sample(&mut samples, repetitions, "Rust ", program, args)?;
                }
                (None, []) => {}
            }
        }
    }
    Ok(samples)
}

/// A figure of the C programs beside what it is compared with in the same launch.
struct Beside<'a> {
    figure: &'static str,
    ours: &'static str,
    references: &'a [(&'static str, &'static str, Target)],
    unit: &'static str,
}

/// Where the two processors can be: times of a two-line ping-pong from, to (ns), see
/// docs/bench/README.md.
const PLACES: [(&str, f64, f64); 3] = [
    ("two threads of one core", 0.0, 50.0),
    ("processors near", 50.0, 200.0),
    ("processors far", 200.0, f64::INFINITY),
];
/// Launches without which a place gets no row.
const FEW: usize = 3;

/// The launches of one mode that found the processors at one place.
fn at_place(samples: &Samples, mode: &str, from: f64, to: f64) -> Result<Samples> {
    let distances = samples.of(&format!("{mode} c_distance_ns"))?;
    let is_there: Vec<bool> = distances.iter().map(|ns| (from..to).contains(ns)).collect();
    let mut there = Samples::default();
    for (key, values) in &samples.0 {
        if key.starts_with(mode) {
            let kept = values.iter().zip(&is_there).filter(|(_, is_there)| **is_there);
            kept.for_each(|(value, _)| there.add(key, *value));
        }
    }
    Ok(there)
}

impl Beside<'_> {
    /// As [`Beside::rows`] for what depends on how far apart the processors are: rows for each
    /// place where they were.
    fn rows_by_place(&self, samples: &Samples, rows: &mut Vec<Row>) -> Result<()> {
        for (mode, _) in MODES {
            let before = rows.len();
            for (place, from, to) in PLACES {
                let there = at_place(samples, mode, from, to)?;
                let launches = there.0.values().next().map_or(0, Vec::len);
                if launches < FEW {
                    continue;
                }
                let place = format!("; {place} ({launches} launches)");
                self.rows_of(mode, &place, &there, rows)?;
            }
            if rows.len() == before {
                let reason = format!("no place of the processors was seen in {FEW} launches");
                let figure = format!("C {mode}: {}", self.figure);
                rows.push(Row::without(&figure, Verdict::Skipped(reason)));
            }
        }
        Ok(())
    }

    fn rows(&self, samples: &Samples, rows: &mut Vec<Row>) -> Result<()> {
        MODES.iter().try_for_each(|(mode, _)| self.rows_of(mode, "", samples, rows))
    }

    /// A row for each reference, of one mode; `place` stands behind its name.
    fn rows_of(
        &self,
        mode: &str,
        place: &str,
        samples: &Samples,
        rows: &mut Vec<Row>,
    ) -> Result<()> {
        for (name, reference, target) in self.references {
            let figure = format!("C {mode}: {}, {name}{place}", self.figure);
            let keys = [format!("{mode} {}", self.ours), format!("{mode} {reference}")];
            let keys = keys.each_ref().map(String::as_str);
            rows.push(Row::paired(&figure, samples, keys, self.unit, *target)?);
        }
        Ok(())
    }
}

/// A figure of the C program in SEQ beside the same of the Rust program, in launches that agree
/// about `distances`, where the figure depends on how far apart the processors are.
fn like_rust(
    figure: &str,
    samples: &Samples,
    ours: &str,
    rust: &str,
    distances: Option<[&str; 2]>,
    unit: &str,
    target: Target,
) -> Result<Row> {
    let figure = format!("C SEQ: {figure}, the same from Rust");
    let keys = |[c, rust]: [&str; 2]| [format!("SEQ {c}"), format!("Rust {rust}")];
    let compared = keys([ours, rust]);
    let compared = compared.each_ref().map(String::as_str);
    match distances.map(keys) {
        None => Row::paired(&figure, samples, compared, unit, target),
        Some(far) => {
            let far = far.each_ref().map(String::as_str);
            Row::equally_far(&figure, samples, compared, far, unit, target)
        }
    }
}

const TIME_LIKE_RUST: Target = Target::AtMost(1.05);
const SPEED_LIKE_RUST: Target = Target::AtLeast(0.95);

/// Round trip of a Short.
pub(crate) fn short(repetitions: Repetitions) -> Result<Findings> {
    let samples = alternate(repetitions, "short", &["bench_am", "short"])?;
    let figure = "AM Short round trip";
    let mut rows = vec![like_rust(
        figure,
        &samples,
        "c_short_ns",
        "am_short_ns",
        Some(["c_pingpong_two_ns", "pingpong_two_ns"]),
        "ns",
        TIME_LIKE_RUST,
    )?];
    let references = &[
        ("ping-pong over two cache lines", "c_pingpong_two_ns", Target::AtMost(2.0)),
        ("ping-pong over one cache line", "c_pingpong_ns", Target::AtMost(2.0)),
    ];
    Beside { figure, ours: "c_short_ns", references, unit: "ns" }
        .rows_by_place(&samples, &mut rows)?;
    rows.push(locked_instructions()?);
    let notes = vec![
        "c-am: launches of the C programs and of the Rust program alternate; a sample is the median of 3 pairs of one \
         launch. The locked instructions are all in the machine code of gexi_AM_RequestShort0 in SEQ (objdump). A message \
         of a row executes none of them: they ring the doorbell of a receiver that sleeps. The first messages to a rank go \
         through the queue that all senders share and claim a place in it, which is code of another function."
            .to_owned(),
    ];
    Ok(Findings { rows, samples, notes, ..Findings::default() })
}

/// Instructions with a lock prefix, and exchanges with memory, which lock without one.
fn locked_instructions() -> Result<Row> {
    let figure = "C SEQ: locked instructions in the code that sends a Short";
    let mut command = Command::new("objdump");
    command.args(["-d", "--no-show-raw-insn", "--disassemble=gexi_AM_RequestShort0"]);
    let Ok(output) = command.arg(sibling(SEQ)?).output() else {
        return Ok(Row::without(figure, Verdict::Skipped("objdump is not installed".into())));
    };
    let code = String::from_utf8_lossy(&output.stdout).into_owned();
    if !code.contains("<gexi_AM_RequestShort0>:") {
        return Err(Failure("objdump shows no gexi_AM_RequestShort0".into()));
    }
    let locks =
        |line: &&str| line.contains("lock ") || (line.contains("xchg ") && line.contains('('));
    let mut samples = Samples::default();
    let count = u32::try_from(code.lines().filter(locks).count()).unwrap_or(u32::MAX);
    samples.add("locked", f64::from(count));
    Row::alone(figure, &samples, "locked", "", Target::None)
}

/// Flood of Shorts.
pub(crate) fn flood(repetitions: Repetitions) -> Result<Findings> {
    let samples = alternate(repetitions, "flood", &[])?;
    let mut rows = Vec::new();
    let references =
        &[("ring of cache lines, one writer", "c_line_ring_per_us", Target::AtLeast(0.6))];
    Beside {
        figure: "flood of AM Shorts",
        ours: "c_flood_per_us",
        references,
        unit: "messages/us",
    }
    .rows_by_place(&samples, &mut rows)?;
    let notes = vec![
        "c-flood: a message of the reference is a cache line with its number in the first word; the writer looks at \
         the reader's line only when the ring of 256 seems full. Nothing orders its stores but the processor, nobody may \
         sleep, and nobody else may write."
            .to_owned(),
    ];
    Ok(Findings { rows, samples, notes, ..Findings::default() })
}

/// Flood of Mediums.
pub(crate) fn medium(repetitions: Repetitions) -> Result<Findings> {
    let samples = alternate(repetitions, "medium", &["bench_am", "medium"])?;
    let figure = "Medium 1 KB flood";
    let mut rows = vec![like_rust(
        figure,
        &samples,
        "c_medium_mbps",
        "medium_mbps",
        Some(["c_ring_mbps", "ring_mbps"]),
        "MB/s",
        SPEED_LIKE_RUST,
    )?];
    let references = &[
        ("(a) memcpy 1 KB through large buffers", "c_memcpy_mbps", Target::AtLeast(0.6)),
        ("(b) hand-written ring between the ranks", "c_ring_mbps", Target::None),
        ("(c) memcpy 1 KB in the first-level cache", "c_memcpy_hot_mbps", Target::None),
    ];
    Beside { figure, ours: "c_medium_mbps", references, unit: "MB/s" }
        .rows_by_place(&samples, &mut rows)?;
    Ok(Findings { rows, samples, notes: Vec::new(), ..Findings::default() })
}

/// Mediums of many sizes: how far the worst one is above the line through its neighbours, and 4 KB
/// with a reply as large.
pub(crate) fn medium_sizes(repetitions: Repetitions) -> Result<Findings> {
    let mut samples = alternate(repetitions, "sizes", &[])?;
    let mut rows = Vec::new();
    for (mode, _) in MODES {
        let size = worst_size(&mut samples, mode)?;
        let figure =
            format!("C {mode}: Medium round trip, the worst size ({size} B), its neighbours");
        let keys = [format!("{mode} c_trip_{size}_ns"), format!("{mode} line at {size}")];
        let keys = keys.each_ref().map(String::as_str);
        rows.push(Row::paired(&figure, &samples, keys, "ns", Target::AtMost(1.15))?);
    }
    let references = &[("memcpy of as many bytes", "c_echo_copy_mbps", Target::AtLeast(0.6))];
    Beside {
        figure: "Medium 4 KB flood with replies of 4 KB",
        ours: "c_echo_mbps",
        references,
        unit: "MB/s",
    }
    .rows_by_place(&samples, &mut rows)?;
    let note = "c-sizes: round trips of Mediums of 22 sizes up to 4096 B, replies as large; sizes take turns, 400 trips each. The \
                line goes through the next smaller and the next larger size.";
    Ok(Findings { rows, samples, notes: vec![note.to_owned()], ..Findings::default() })
}

/// The size whose round trip is farthest above the line through those of the next smaller and the
/// next larger size, which becomes `line at SIZE`.
fn worst_size(samples: &mut Samples, mode: &str) -> Result<u32> {
    let prefix = format!("{mode} c_trip_");
    let size = |key: &str| key.strip_prefix(&prefix)?.strip_suffix("_ns")?.parse::<u32>().ok();
    let mut sizes: Vec<(u32, Vec<f64>)> =
        samples.0.iter().filter_map(|(key, values)| Some((size(key)?, values.clone()))).collect();
    sizes.sort_by_key(|(size, _)| *size);
    let mut worst = (0.0, 0);
    for three in sizes.windows(3) {
        let [(small, below), (size, here), (large, above)] = three else { continue };
        let part = f64::from(size - small) / f64::from(large - small);
        let line: Vec<f64> =
            below.iter().zip(above).map(|(low, high)| low + (high - low) * part).collect();
        let over = median(here) / median(&line);
        line.iter().for_each(|value| samples.add(&format!("{mode} line at {size}"), *value));
        if over > worst.0 {
            worst = (over, *size);
        }
    }
    if worst.1 == 0 { Err(Failure(format!("no sizes of {mode}"))) } else { Ok(worst.1) }
}

/// Puts and gets of 1 MB.
pub(crate) fn put_get(repetitions: Repetitions) -> Result<Findings> {
    let samples = alternate(repetitions, "putget", &["bench_putget"])?;
    let mut rows = Vec::new();
    let parts = [
        ("put of 1 MB", "c_put_mbps", "put_mbps", "memcpy into a segment", "c_copy_in_mbps"),
        ("get of 1 MB", "c_get_mbps", "get_mbps", "memcpy out of a segment", "c_copy_out_mbps"),
    ];
    for (figure, ours, rust, name, reference) in parts {
        rows.push(like_rust(figure, &samples, ours, rust, None, "MB/s", SPEED_LIKE_RUST)?);
        for (mode, _) in MODES {
            rows.push(Row::paired(
                &format!("C {mode}: {figure}, {name}"),
                &samples,
                [&format!("{mode} {ours}"), &format!("{mode} {reference}")],
                "MB/s",
                Target::AtLeast(0.95),
            )?);
        }
    }
    Ok(Findings { rows, samples, notes: Vec::new(), ..Findings::default() })
}

/// Puts and gets of a word.
pub(crate) fn put_word(repetitions: Repetitions) -> Result<Findings> {
    let samples = alternate(repetitions, "put8", &[])?;
    let mut rows = Vec::new();
    let copy = ("loop of a load and a store, same mapping", "c_store_ns");
    let value = ("store loop, same mapping", "c_store_value_ns");
    let back = ("loop of a load and a store, same mapping", "c_load_ns");
    for (figure, ours, (name, reference), most) in [
        ("8 B put to a neighbour, gex_RMA_PutBlocking", "c_put8_blocking_ns", copy, 1.1),
        ("8 B put to a neighbour, gex_RMA_PutNBI", "c_put8_nbi_ns", copy, 1.3),
        ("8 B put to a neighbour, gex_RMA_PutBlockingVal", "c_put8_value_ns", value, 1.1),
        ("8 B get from a neighbour, gex_RMA_GetBlocking", "c_get8_blocking_ns", back, 1.1),
        ("8 B get from a neighbour, gex_RMA_GetNBI", "c_get8_nbi_ns", back, 1.3),
        ("8 B get from a neighbour, gex_RMA_GetBlockingVal", "c_get8_value_ns", back, 1.1),
    ] {
        let references: &[_] = &[(name, reference, Target::AtMost(most))];
        Beside { figure, ours, references, unit: "ns" }.rows(&samples, &mut rows)?;
    }
    let notes = vec![
        "c-put8: words of the neighbour's segment in turn, team and rank in local variables; the reference stores (gets: \
         loads) through the local address of the same segment, each as its own instruction, from and to the same array \
         (PutBlockingVal: from a register). Compiled with -O3, as the installed make fragment does; with -O2 gcc leaves \
         the branch between neighbours and others in the loop, which costs 0.05 to 0.09 ns (1.2x, values 1.5x). Loops begin \
         at a cache line of the code (-falign-loops=64): one that lies across two takes twice as long on some processors, \
         whatever it does. Each number is the fastest of 200 loops of 100000."
            .to_owned(),
    ];
    Ok(Findings { rows, samples, notes, ..Findings::default() })
}

/// Adds to a word of a neighbour.
pub(crate) fn atomic(repetitions: Repetitions) -> Result<Findings> {
    let samples = alternate(repetitions, "atomic", &[])?;
    let mut rows = Vec::new();
    for (figure, ours, reference) in [
        ("add to a neighbour's word, gex_AD_OpNBI_U64", "c_atomic_add_ns", "c_raw_add_ns"),
        (
            "fetch-add on a neighbour's word, gex_AD_OpNB_U64",
            "c_atomic_fetch_add_ns",
            "c_raw_fetch_add_ns",
        ),
    ] {
        let references: &[_] = &[("instruction on the mapping", reference, Target::AtMost(1.2))];
        Beside { figure, ours, references, unit: "ns" }.rows(&samples, &mut rows)?;
    }
    let note = "c-atomic: words of the neighbour's segment in turn; the reference is the processor's instruction on the local address \
                of the same word, what it fetches stored to a variable as the call does it.";
    Ok(Findings { rows, samples, notes: vec![note.to_owned()], ..Findings::default() })
}

/// Barriers of two ranks.
pub(crate) fn barrier(repetitions: Repetitions) -> Result<Findings> {
    let samples = alternate(repetitions, "barrier", &["bench_barrier", "rounds"])?;
    let figure = "barrier of 2 ranks";
    let mut rows = vec![like_rust(
        figure,
        &samples,
        "c_barrier_ns",
        "barrier_ns",
        Some(["c_barrier_pingpong_ns", "pingpong_ns"]),
        "ns",
        TIME_LIKE_RUST,
    )?];
    let references = &[("cache-line ping-pong", "c_barrier_pingpong_ns", Target::AtMost(2.0))];
    Beside { figure, ours: "c_barrier_ns", references, unit: "ns" }
        .rows_by_place(&samples, &mut rows)?;
    Ok(Findings { rows, samples, notes: Vec::new(), ..Findings::default() })
}
