//! Jobs of up to 4,096 ranks on this host: time and memory of launcher and agent, memory of a rank.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bench::plot::Series;

use crate::Repetitions;
use crate::curves::{Curve, series};
use crate::launch::bare;
use crate::network::SOFT;
use crate::row::{Findings, Row, Target};
use crate::run::{Failure, Result, Samples, job, largest_resident, sibling, start};
use crate::tables;

const MOST: u32 = 4096;
/// Ranks that share no memory each hold connections, which 4,096 would not find room for here.
const MOST_APART: u32 = 256;
const LOOK: Duration = Duration::from_millis(5);
const MIB: f64 = 1024.0;

/// The largest memory that the launcher and its agent were seen with, KiB.
#[derive(Clone, Copy, Debug, Default)]
struct Peak {
    launcher: f64,
    agent: f64,
}

/// Looks at a launcher until it is told to stop. The system keeps the largest resident memory of a
/// process itself, so only what comes in the last moments is missed; the pages of the program,
/// which both have, count twice.
fn watch(launcher: u32, stop: Arc<AtomicBool>) -> JoinHandle<Peak> {
    std::thread::spawn(move || {
        let (mut peak, mut agent) = (Peak::default(), None);
        while !stop.load(Ordering::Relaxed) {
            let children = format!("/proc/{launcher}/task/{launcher}/children");
            agent = agent.or_else(|| {
                let text = std::fs::read_to_string(&children).ok()?;
                text.split_ascii_whitespace().next()?.parse::<u32>().ok()
            });
            let most = |pid| largest_resident(pid).ok().flatten().unwrap_or(0.0);
            peak.launcher = peak.launcher.max(most(launcher));
            peak.agent = peak.agent.max(agent.map_or(0.0, most));
            std::thread::sleep(LOOK);
        }
        peak
    })
}

/// Runs a job and adds its time and the memory of launcher and agent under `name`; its output.
fn measured(
    samples: &mut Samples,
    name: &str,
    ranks: u32,
    mut command: Command,
) -> Result<Samples> {
    command.env("GASNET_QUIET", "1");
    let running = start(command, true)?;
    let stop = Arc::new(AtomicBool::new(false));
    let watching = watch(running.id(), Arc::clone(&stop));
    let ended = running.wait();
    stop.store(true, Ordering::Relaxed);
    let peak = watching.join().map_err(|_| Failure("the watching thread failed".into()))?;
    let ended = ended?.expect(0)?;
    let mut add = |what: &str, value| samples.add(&format!("{name}/{what}/{ranks}"), value);
    add("ms", ended.wall_ms);
    // A job of one rank may be over before a process was looked at.
    for (what, kib) in [("launcher_kib", peak.launcher), ("agent_kib", peak.agent)] {
        if kib > 0.0 {
            add(what, kib);
        }
    }
    Ok(ended.samples())
}

/// 4,096 ranks that do nothing, and as many that open the bootstrap.
pub(crate) fn launch(repetitions: Repetitions) -> Result<Findings> {
    let (noop, hello) = (sibling("noop")?, sibling("hello")?);
    let mut samples = Samples::default();
    let rounds = repetitions.launches.div_ceil(3);
    for round in 0..=rounds {
        let mut seen = Samples::default();
        for step in 0..2 {
            match (round + step) % 2 {
                0 => drop(measured(&mut seen, "noop", MOST, job(MOST, &[], &noop, &[])?)?),
                _ => seen.add("bare", bare("spawn", MOST, &noop)?),
            }
        }
        // The first round fills the caches.
        if round > 0 {
            samples.extend(seen);
        }
    }
    measured(&mut samples, "hello", MOST, job(MOST, &[], &hello, &[])?)?;
    let mut rows = vec![Row::paired(
        "launch of 4096 no-op ranks, posix_spawn",
        &samples,
        ["noop/ms/4096", "bare"],
        "ms",
        Target::AtMost(1.15),
    )?];
    for (name, what) in [("noop", "4096 no-op ranks"), ("hello", "hello on 4096 ranks")] {
        let [launcher, agent] =
            ["launcher", "agent"].map(|who| samples.of(&format!("{name}/{who}_kib/{MOST}")));
        let sums: Vec<f64> = launcher?.iter().zip(agent?).map(|(a, b)| (a + b) / MIB).collect();
        let key = format!("{name}/together");
        sums.iter().for_each(|sum| samples.add(&key, *sum));
        let figure = format!("largest memory of launcher and agent together, {what}");
        rows.push(Row::alone(&figure, &samples, &key, "MB", Target::Bound(24.0))?);
    }
    rows.push(Row::alone("hello on 4096 ranks", &samples, "hello/ms/4096", "ms", Target::None)?);
    let notes = vec![
        "scale-launch: memory is the sum of the largest resident memory of both processes as the system counts it (VmHWM), so \
         the pages of their common program count twice."
            .to_owned(),
    ];
    Ok(Findings { rows, samples, notes, ..Findings::default() })
}

/// Numbers of ranks up to `most`.
fn sizes(most: u32) -> impl Iterator<Item = u32> {
    [1, 4, 16, 64, 256, 1024, MOST].into_iter().filter(move |ranks| *ranks <= most)
}

/// What one rank, the agent and the launcher hold over the number of ranks.
pub(crate) fn memory(repetitions: Repetitions) -> Result<Findings> {
    let most = if repetitions.launches < 5 { 256 } else { MOST };
    let (noop, held) = (sibling("noop")?, sibling("bench_net_memory")?);
    let mut samples = Samples::default();
    for ranks in sizes(most) {
        measured(&mut samples, "noop", ranks, job(ranks, &[], &noop, &[])?)?;
        let said = measured(&mut samples, "shared", ranks, job(ranks, &[], &held, &[])?)?;
        keep(&mut samples, "shared", ranks, said);
    }
    for ranks in sizes(MOST_APART.min(most)) {
        let mut command = job(ranks, &[], &held, &[])?;
        command.envs(SOFT);
        let said = measured(&mut samples, "apart", ranks, command)?;
        keep(&mut samples, "apart", ranks, said);
    }
    let mut rows = Vec::new();
    for (name, figure) in [
        ("shared/anonymous", "private memory of a rank after attach, shared memory"),
        ("shared/memfd", "share of the host's memory of a rank after attach"),
        ("apart/anonymous", "private memory of a rank after attach, network"),
    ] {
        let mut found = points(&samples, name, sizes(MOST)).into_iter();
        let last = found.next_back();
        let Some((ranks, kib)) = last else { continue };
        let figure = format!("{figure}, {ranks} ranks");
        rows.push(Row::single(&figure, crate::row::quantity(kib, "KiB"), String::new()));
    }
    let notes = vec![
        "scale-memory: launcher and agent by VmHWM; a rank by /proc/self/smaps_rollup after attach of 64 KiB, the median of all \
         ranks."
            .to_owned(),
    ];
    let curves = of_memory(&samples);
    Ok(Findings { rows, samples, notes, curves })
}

/// Keeps what ranks have said of themselves.
fn keep(samples: &mut Samples, name: &str, ranks: u32, said: Samples) {
    for (key, what) in
        [("attached_anonymous_bytes", "anonymous"), ("attached_memfd_bytes", "memfd")]
    {
        let values = said.0.get(key).map(Vec::as_slice).unwrap_or_default();
        values
            .iter()
            .for_each(|bytes| samples.add(&format!("{name}/{what}/{ranks}"), bytes / 1024.0));
    }
}

/// The medians of `name/RANKS`, by rank.
fn points(samples: &Samples, name: &str, sizes: impl Iterator<Item = u32>) -> Vec<(u32, f64)> {
    let of = |ranks| Some((ranks, samples.median(&format!("{name}/{ranks}")).ok()?));
    sizes.filter_map(of).collect()
}

fn over_ranks(name: &str, points: impl IntoIterator<Item = (u32, f64)>) -> Series {
    series(name, points.into_iter().map(|(ranks, value)| (f64::from(ranks), value)))
}

fn curve(name: &'static str, title: String, y: &'static str, series: Vec<Series>) -> Curve {
    Curve { name, title, x: ("ranks", true), y: (y, true), series }
}

/// What [`memory`] found.
fn of_memory(samples: &Samples) -> Vec<Curve> {
    let of = |key| points(samples, key, sizes(MOST));
    let supervisors = [
        ("launcher, no-op", "noop/launcher_kib"),
        ("agent, no-op", "noop/agent_kib"),
        ("launcher, conduit", "shared/launcher_kib"),
        ("agent, conduit", "shared/agent_kib"),
    ];
    let whole = supervisors.map(|(name, key)| over_ranks(name, of(key))).to_vec();
    let each = |(ranks, kib)| (ranks, kib / f64::from(ranks));
    let parts =
        supervisors.map(|(name, key)| over_ranks(name, of(key).into_iter().map(each))).to_vec();
    let ranks = vec![
        over_ranks("private, shared memory", of("shared/anonymous")),
        over_ranks("share of the host's memory", of("shared/memfd")),
        over_ranks("private, network, each rank apart", of("apart/anonymous")),
    ];
    let title = || "Peak memory of launcher and agent".to_owned();
    let title_of_rank = "Memory of one rank after attach".to_owned();
    vec![
        curve("launcher-memory", title(), "KiB", whole),
        curve("launcher-memory-per-rank", title(), "KiB per rank", parts),
        // A share may be nothing.
        Curve { y: ("KiB", false), ..curve("rank-memory", title_of_rank, "KiB", ranks) },
    ]
}

/// What is found of tables.
pub(crate) fn of_tables(samples: &Samples) -> Vec<Curve> {
    let sizes = || tables::POWERS.map(|power| 1 << power).into_iter();
    let of = |(key, name)| over_ranks(name, points(samples, key, sizes()));
    let title =
        format!("Tables of one process for a job of {} ranks on each host", tables::PER_HOST);
    vec![curve("tables", title, "KiB", tables::NAMES.map(of).to_vec())]
}
