//! 64 ranks over the software adapter: senders that fan in to few, by flow control, and a barrier of
//! neighbourhoods beside a hand-written one.

use std::process::Command;
use std::time::Duration;

use bench::plot::Series;

use crate::Repetitions;
use crate::curves::{Curve, series};
use crate::network::SOFT;
use crate::row::{Findings, Row, Target};
use crate::run::{Failure, Result, Samples, job, run, run_within, sibling};

const RANKS: u32 = 64;

/// Who sends to whom: name, receivers, busy senders, and requests of each, which take some epochs.
type Traffic = (&'static str, u32, u32, u32);
const TRAFFIC: [Traffic; 3] =
    [("2 of 63 to one", 1, 2, 4096), ("63 to one", 1, 63, 256), ("60 to four", 4, 60, 256)];

/// A flow control, and the variable that sets how much memory it takes.
struct Scheme {
    name: &'static str,
    variable: &'static str,
    usual: &'static str,
    settings: &'static [&'static str],
}

const SCHEMES: [Scheme; 3] = [
    Scheme {
        name: "static",
        variable: "GASNET_AM_CREDITS_PP",
        usual: "12",
        settings: &["1", "2", "4", "8", "12", "16", "20", "24", "32", "48", "64"],
    },
    Scheme {
        name: "dynamic",
        variable: "GASNET_AM_CREDITS_BANK",
        usual: "48",
        settings: &["8", "16", "32", "48", "64", "128", "256"],
    },
    Scheme {
        name: "volume",
        variable: "GASNET_NETWORKDEPTH_SPACE",
        usual: "262144",
        settings: &["131072", "262144", "524288"],
    },
];

/// Runs of each setting, whose medians are taken: stalls vary from run to run.
const RUNS: usize = 3;

/// What `bench_fan_in` found.
fn measure(scheme: &Scheme, setting: &str, traffic: Traffic) -> Result<Samples> {
    let args = [traffic.1, traffic.2, traffic.3].map(|number| number.to_string());
    let args = args.each_ref().map(String::as_str);
    let mut found = Samples::default();
    for _ in 0..RUNS {
        let mut command = job(RANKS, &[], &sibling("bench_fan_in")?, &args)?;
        command.envs(SOFT);
        // So that fixed credits are not bounded by it.
        command.env("GASNET_USE_SRQ", "1").env("GASNET_RBUF_COUNT", "8192");
        // Else all buffers are there when the ranks are initialized.
        command.env("GASNET_CONNECT_STATIC", "0");
        command.env("GASNET_AM_FLOW_CONTROL", scheme.name).env(scheme.variable, setting);
        found.extend(run(command, true)?.samples());
    }
    Ok(found)
}

/// Two busy senders with each setting of a flow control.
fn by_setting(scheme: &Scheme) -> Result<Vec<(&'static str, Samples)>> {
    let measured = scheme.settings.iter().map(|setting| {
        let found = measure(scheme, setting, TRAFFIC[0])?;
        Ok((*setting, found))
    });
    measured.collect()
}

/// Receive memory that the usual setting of credits that move takes, beside that of the least
/// number of fixed credits with which senders stall as rarely.
fn as_rarely(
    fixed: &[(&'static str, Samples)],
    moving: &[(&'static str, Samples)],
    samples: &mut Samples,
) -> Result<Row> {
    let [fixed_scheme, moving_scheme, _] = &SCHEMES;
    let usual = moving.iter().find(|(setting, _)| *setting == moving_scheme.usual);
    let (_, usual) = usual.ok_or_else(|| Failure("the usual bank was not measured".to_owned()))?;
    let most = usual.median("stall_percent")?;
    let mut found = None;
    for one in fixed {
        if one.1.median("stall_percent")? <= most {
            found = Some(one);
            break;
        }
    }
    let (setting, like) = found.or(fixed.last()).ok_or_else(|| Failure("no runs".to_owned()))?;
    let own = format!("{} {} receive_mib", moving_scheme.name, moving_scheme.usual);
    let other = format!("{} {setting} receive_mib", fixed_scheme.name);
    usual.of("receive_mib")?.iter().for_each(|value| samples.add(&own, *value));
    like.of("receive_mib")?.iter().for_each(|value| samples.add(&other, *value));
    let what = match found {
        Some(_) => format!("of static that stalls as rarely ({setting} credits)"),
        None => format!("of static, which stalls more often with up to {setting} credits"),
    };
    let figure = format!("{}: receive memory of dynamic, {what}", TRAFFIC[0].0);
    Row::paired(&figure, samples, [&own, &other], "MiB", Target::AtMost(0.1))
}

fn curve(name: &'static str, title: &str, series: Vec<Series>) -> Curve {
    let x = ("receive memory of the receiver, MiB", true);
    Curve { name, title: title.to_owned(), x, y: ("requests that stall, %", false), series }
}

/// A row for each traffic with the usual setting of a flow control.
fn usual(scheme: &Scheme, samples: &mut Samples, rows: &mut Vec<Row>) -> Result<()> {
    for traffic in TRAFFIC {
        let found = measure(scheme, scheme.usual, traffic)?;
        let keys = ["receive_mib", "memory_mib", "stall_percent", "even_percent"];
        let [receive, memory, stalls, even] = keys.map(|key| found.median(key));
        let value =
            format!("{:.1} MiB, {:.1} MiB, {:.1} %, {:.0} %", receive?, memory?, stalls?, even?);
        let name = format!(
            "{}, {}: receive memory of a receiver, all that it gained, stalls, evenness",
            traffic.0, scheme.name
        );
        rows.push(Row::single(&name, value, String::new()));
        for (key, values) in found.0 {
            let key = format!("{} {} {key}", scheme.name, traffic.0);
            values.into_iter().for_each(|value| samples.add(&key, value));
        }
    }
    Ok(())
}

/// Senders by flow control; the plot has two busy ones, with more and less memory.
pub(crate) fn fan_in(_: Repetitions) -> Result<Findings> {
    let (mut samples, mut rows) = (Samples::default(), Vec::new());
    let (mut lines, mut measured) = (Vec::new(), Vec::new());
    for scheme in &SCHEMES {
        usual(scheme, &mut samples, &mut rows)?;
        let found = by_setting(scheme)?;
        let mut points = Vec::new();
        for (_, found) in &found {
            points.push((found.median("receive_mib")?, found.median("stall_percent")?));
        }
        lines.push(series(scheme.name, points));
        measured.push(found);
    }
    rows.push(as_rarely(&measured[0], &measured[1], &mut samples)?);
    let title = "2 of 63 ranks send to one, over the software adapter";
    let curves = vec![curve("fan-in", title, lines)];
    let notes = vec![format!(
        "scale-fan-in: {RANKS} ranks, each a neighbourhood, connected on demand; {} Shorts of each of 2 senders, {} of each of more; medians of {RUNS} runs. \
         Receive memory is that of the receiver's buffers for requests and replies, and of rings; what it gained since init has queues and connections, too. \
         A stall is a request that found no credit; evenness is how far the slowest sender has come, beside the fastest, when half of all requests are there.",
        TRAFFIC[0].3, TRAFFIC[1].3
    )];
    Ok(Findings { rows, samples, notes, curves })
}

/// Longest that the simulation may take, with its build.
const SIMULATION: Duration = Duration::from_secs(1200);

/// The same of 10,000 ranks in a simulation, which is a test of the library.
pub(crate) fn simulated_fan_in(_: Repetitions) -> Result<Findings> {
    const TOOL: &str = "fan_in::print_curve";
    let mut command = Command::new("cargo");
    command.args(["test", "--quiet", "--release", "-p", "gasnet-ibv", "--lib", TOOL]);
    command.args(["--", "--ignored", "--nocapture"]);
    let out = run_within(SIMULATION, command)?.out;
    let mut found: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    for line in out.lines().filter_map(|line| line.strip_prefix("curve ")) {
        let words: Vec<&str> = line.split(' ').collect();
        let &[name, x, y] = &words[..] else { return Err(Failure(format!("not a point: {line}"))) };
        let point = (x.parse()?, y.parse()?);
        match found.iter_mut().find(|one| one.0 == name) {
            Some((_, points)) => points.push(point),
            None => found.push((name.to_owned(), vec![point])),
        }
    }
    if found.is_empty() {
        return Err(Failure(format!("{TOOL} printed no curve")));
    }
    let title = "16 of 10,000 ranks send to one, simulated";
    let mut rows = Vec::new();
    for (name, points) in &found {
        let text: Vec<_> = points.iter().map(|(x, y)| format!("{y:.0} % at {x:.0} MiB")).collect();
        let figure = format!("{title}, {name}: stalls by memory of the receiver");
        rows.push(Row::single(&figure, text.join(", "), String::new()));
    }
    let lines = found.into_iter().map(|(name, points)| series(&name, points)).collect();
    let curves = vec![curve("fan-in-simulated", title, lines)];
    Ok(Findings { rows, curves, ..Findings::default() })
}

/// A barrier of 64 ranks in four neighbourhoods.
pub(crate) fn barrier(repetitions: Repetitions) -> Result<Findings> {
    let program = sibling("bench_net_barrier")?;
    let mut command = job(RANKS, &[], &program, &[&repetitions.pairs.to_string()])?;
    command.env("GASNET_SUPERNODE_MAXSIZE", "16").env("GASNET_IBV_FABRIC", "soft");
    let samples = run(command, true)?.samples();
    let rows = vec![Row::paired(
        "barrier of 64 ranks in 4 neighbourhoods over soft, hand-written dissemination",
        &samples,
        ["net_barrier_us", "hand_written_us"],
        "µs",
        Target::AtMost(1.3),
    )?];
    let notes = vec![
        "scale-barrier: the hand-written one gathers at a counter in shared memory, its leaders disseminate by Shorts of the \
         library, and a generation releases; who waits yields."
            .to_owned(),
    ];
    Ok(Findings { rows, samples, notes, ..Findings::default() })
}
