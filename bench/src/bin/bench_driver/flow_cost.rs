//! Instructions of a Short and its answer, by flow control: counted by callgrind, so other load of the
//! machine changes nothing.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Repetitions;
use crate::network::SOFT;
use crate::row::{Findings, Row, Target, Verdict};
use crate::run::{Failure, Result, Samples, job, run, sibling};

/// What is counted: sending a request, and taking a message with its handler and its answer …
const COUNTED: [&str; 2] = ["*NetTransport::send", "*Receiver::received"];
/// … without what the software adapter does in between, whose ways depend on the time.
const ADAPTER: &str = "*QpHandle*::post_send";

/// Round trips of the two runs whose difference is divided by the difference of these.
const TRIPS: [u32; 2] = [400, 1200];

const SCHEMES: [&str; 3] = ["static", "dynamic", "volume"];

/// Where callgrind writes, until it is dropped.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    /// Of this process; `name` says what for.
    pub(crate) fn new(name: &str) -> Result<Self> {
        let scratch = Self(std::env::temp_dir().join(format!("{name}-{}", std::process::id())));
        std::fs::create_dir_all(&scratch.0)?;
        Ok(scratch)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Instructions of the two ranks, of so many round trips and what goes before them.
fn counted(scheme: &str, trips: u32) -> Result<[f64; 2]> {
    let scratch = Scratch::new("bench-flow-cost")?;
    let out = format!("--callgrind-out-file={}/%q{{GASNETRUN_RANK}}", scratch.0.display());
    let mut args = vec!["--tool=callgrind".to_owned(), out];
    let toggled = COUNTED.iter().chain([&ADAPTER]);
    args.extend(toggled.map(|name| format!("--toggle-collect={name}")));
    args.push(sibling("bench_net")?.display().to_string());
    // A pair warms up and a pair counts.
    args.extend(["short".to_owned(), "1".to_owned(), (trips / 2).to_string()]);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut command = job(2, &[], Path::new("valgrind"), &args)?;
    command.envs(SOFT);
    command.env("GASNET_USE_SRQ", "1").env("GASNET_AM_FLOW_CONTROL", scheme);
    // A send queue of as many entries with each: an attempt that finds it full is counted, too, and how
    // many there are depends on the time.
    command.env("GASNET_AM_CREDITS_PP", "64");
    run(command, false)?;
    let total = |rank: &str| {
        let text = std::fs::read_to_string(scratch.0.join(rank))?;
        let totals = text.lines().find_map(|line| line.strip_prefix("totals: "));
        let totals = totals.and_then(|word| word.trim().parse::<f64>().ok());
        totals.ok_or_else(|| Failure("callgrind wrote no totals".to_owned()))
    };
    Ok([total("0")?, total("1")?])
}

/// Each flow control beside fixed credits.
pub(crate) fn instructions(_: Repetitions) -> Result<Findings> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        let skipped = Verdict::Skipped("valgrind is not installed".to_owned());
        let rows = vec![Row::without("instructions of a Short by flow control", skipped)];
        return Ok(Findings { rows, ..Findings::default() });
    }
    let mut samples = Samples::default();
    for scheme in SCHEMES {
        let (few, many) = (counted(scheme, TRIPS[0])?, counted(scheme, TRIPS[1])?);
        for (rank, side) in ["asker", "answerer"].into_iter().enumerate() {
            let each = (many[rank] - few[rank]) / f64::from(TRIPS[1] - TRIPS[0]);
            samples.add(&format!("{scheme} {side}"), each);
        }
    }
    let mut rows = Vec::new();
    for scheme in &SCHEMES[1..] {
        for side in ["asker", "answerer"] {
            let figure =
                format!("instructions of a Short and its answer, {side}, {scheme}, static");
            let keys = [format!("{scheme} {side}"), format!("static {side}")];
            let keys = [keys[0].as_str(), keys[1].as_str()];
            rows.push(Row::paired(&figure, &samples, keys, "", Target::AtMost(1.05))?);
        }
    }
    let notes = vec![
        "net-flow: callgrind, two ranks with shared receive queues. The asker sends a request and takes its reply; the answerer \
         takes the request, runs its handler and sends the reply. Polls that find nothing and the software adapter's posting are \
         not counted."
            .to_owned(),
    ];
    Ok(Findings { rows, samples, notes, ..Findings::default() })
}
