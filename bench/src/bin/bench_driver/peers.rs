//! Ours beside UCX, libfabric and bare means, on one wire: TCP of this machine, and Soft-RoCE.

use std::fmt::Write as _;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::Repetitions;
use crate::network::{BOOTS, guest};
use crate::results::text;
use crate::row::{Findings, Row, Target, Verdict};
use crate::run::{Failure, Result, Samples, run_within, sibling};

/// Prints `KEY VALUE` lines.
const SCRIPT: &str = include_str!("peers.sh");
/// Of the whole script, without a boot.
const LIMIT: Duration = Duration::from_secs(1500);
/// The page of the table.
pub(crate) const PAGE: &str = "docs/bench/PEERS.md";

/// What everybody is asked for.
struct Figure {
    name: &'static str,
    ours: &'static str,
    /// Of UCX, libfabric and bare means: the key of each, where it has such a test.
    others: [&'static str; 3],
    unit: &'static str,
    more_is_better: bool,
}

const FIGURES: [Figure; 8] = [
    Figure {
        name: "round trip of a message of 8 B (ours: Short)",
        ours: "am_short_us",
        others: ["ucx_short", "ofi_short", "raw_short"],
        unit: "µs",
        more_is_better: false,
    },
    Figure {
        name: "the same, UCX's tagged message",
        ours: "am_short_us",
        others: ["ucx_tag", "", ""],
        unit: "µs",
        more_is_better: false,
    },
    Figure {
        name: "put of 8 B seen by the other side",
        ours: "put8_seen_turns_us",
        others: ["ucx_put_seen", "", "raw_put_seen"],
        unit: "µs",
        more_is_better: false,
    },
    Figure {
        name: "get of 8 B",
        ours: "get8_turns_us",
        others: ["ucx_get8", "", "raw_get8"],
        unit: "µs",
        more_is_better: false,
    },
    Figure {
        name: "messages of 8 B one way",
        ours: "short_rate",
        others: ["ucx_rate", "", "raw_rate"],
        unit: "k/s",
        more_is_better: true,
    },
    Figure {
        name: "puts of 8 B, many under way",
        ours: "puts8_rate",
        others: ["ucx_puts8", "", "raw_puts8"],
        unit: "k/s",
        more_is_better: true,
    },
    Figure {
        name: "messages of 64 KB one way (ours: Medium)",
        ours: "medium_mbps",
        others: ["ucx_medium", "", "raw_medium"],
        unit: "MB/s",
        more_is_better: true,
    },
    Figure {
        name: "puts of 1 MB, many under way",
        ours: "put_mbps",
        others: ["ucx_put", "", "raw_put"],
        unit: "MB/s",
        more_is_better: true,
    },
];

/// Keys of `bench_net tcp` that are bare means here.
const BARE_TCP: [(&str, &str); 3] =
    [("tcp_spin_us", "raw_short"), ("send_rate", "raw_rate"), ("tcp_mbps", "raw_medium")];

const OTHERS: [&str; 3] = ["UCX", "libfabric", "bare means"];

#[derive(Clone, Copy)]
enum Wire {
    Tcp,
    Roce,
}

impl Wire {
    const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Tcp => ("tcp", "TCP"),
            Self::Roce => ("roce", "Soft-RoCE"),
        }
    }
}

/// A row for each of the others that has such a test, and was there.
fn rows(samples: &Samples, wire: Wire) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for figure in &FIGURES {
        for (who, key) in OTHERS.into_iter().zip(figure.others) {
            // Bare means have other programs between them and the wire than we; they are no peer.
            let target = match (who, figure.more_is_better) {
                ("bare means", _) => Target::None,
                (_, true) => Target::AtLeast(1.0),
                (_, false) => Target::AtMost(1.0),
            };
            let name = format!("{} over {}, {who}", figure.name, wire.words().1);
            if samples.0.contains_key(key) {
                let keys = [figure.ours, key];
                rows.push(Row::paired(&name, samples, keys, figure.unit, target)?);
            } else if who != "bare means" && !key.is_empty() {
                let reason = "not installed here: scripts/bench --peers installs ucx-utils and libfabric-bin as root";
                rows.push(Row::without(&name, Verdict::Skipped(reason.into())));
            }
        }
    }
    Ok(rows)
}

fn findings(samples: Samples, wire: Wire) -> Result<Findings> {
    let mut samples = samples;
    for (from, to) in BARE_TCP {
        if let Some(values) = samples.0.remove(from) {
            values.into_iter().for_each(|value| samples.add(to, value));
        }
    }
    let rows = rows(&samples, wire)?;
    let (how, over, bare) = match wire {
        Wire::Tcp => (
            "all",
            "tcp",
            "one TCP connection of two ranks (a ping-pong of 32 B that spins, sends of 32 B, writes of 64 KB)",
        ),
        Wire::Roce => (
            "boots one after the other, in each all",
            "rc_verbs",
            "perftest (sends of 64 B for the rate)",
        ),
    };
    let notes = vec![format!(
        "peers, {}: {how} by turns, figure by figure, on the same two processors, one process on each: one runs, the others are stopped. Ours and \
         UCX: medians of the trips of a round; libfabric (fi_pingpong) tells the average alone. Puts that are seen are not waited for. UCX: ucp_am_lat, tag_lat, ucp_put_lat, ucp_get, ucp_am_bw and \
         ucp_put_bw over {over}; latencies of one way are doubled. Bare means: {bare}.",
        wire.words().1
    )];
    Ok(Findings { rows, samples, notes, ..Findings::default() })
}

/// Over TCP of this machine.
pub(crate) fn tcp(repetitions: Repetitions) -> Result<Findings> {
    let launcher = sibling("gasnetrun_ibv")?;
    let programs = launcher.parent().ok_or_else(|| Failure("no build directory".into()))?;
    let mut command = Command::new("bash");
    command.args(["-c", SCRIPT, "peers"]).arg(programs);
    command.args([Wire::Tcp.words().0, &repetitions.exits.to_string()]);
    findings(run_within(LIMIT, command)?.samples(), Wire::Tcp)
}

/// Over Soft-RoCE, in a series of boots of a virtual machine: how programs lie in its memory, which
/// changes a figure by a tenth, stays the same for all rounds of one boot.
pub(crate) fn soft_roce(repetitions: Repetitions) -> Result<Findings> {
    let rounds = (repetitions.exits / 2).max(1).to_string();
    let mut samples = Samples::default();
    for _ in 0..repetitions.exits.min(BOOTS) {
        match guest(SCRIPT, &[Wire::Roce.words().0.to_owned(), rounds.clone()])? {
            Ok(more) => samples.extend(more),
            Err(reason) => {
                let rows = vec![Row::without("peers over Soft-RoCE", Verdict::Skipped(reason))];
                return Ok(Findings { rows, ..Findings::default() });
            }
        }
    }
    findings(samples, Wire::Roce)
}

/// The table of the newest record that has one, for people who compare.
pub(crate) fn page(records: &[Value]) -> Option<String> {
    let record = records.iter().rev().find(|record| record["suite"] == "peers")?;
    let mut out = format!(
        "# Beside UCX and libfabric\n\nMade from the newest record of the suite `peers` in [runs](runs) (commit {}, {}) by \
         `scripts/bench --results`; do not edit. Ours was measured by turns with each of the others. In brackets: ours \
         divided by it; then the quartiles of that round by round: a range around 1 does not tell who is ahead.\n",
        text(record, "commit"),
        text(record, "date").split('T').next().unwrap_or_default(),
    );
    for wire in [Wire::Tcp, Wire::Roce] {
        let wire = wire.words().1;
        let _ = write!(
            out,
            "\n## {wire}\n\n| figure | better | ours | UCX | libfabric | bare means |\n|---|---|---:|---:|---:|---:|\n"
        );
        for figure in &FIGURES {
            let (mut ours, mut others) = ("", [None; 3]);
            for row in record["rows"].as_array().into_iter().flatten() {
                let name = text(row, "figure");
                let who = name.strip_prefix(figure.name).and_then(|rest| {
                    rest.strip_prefix(" over ")?.strip_prefix(wire)?.strip_prefix(", ")
                });
                if let Some(at) = who.and_then(|who| OTHERS.iter().position(|one| *one == who)) {
                    ours = text(row, "ours");
                    let pairs = text(row, "ratio of pairs, median and quartiles");
                    let quartiles = pairs.split_once(", ").map_or("", |(_, quartiles)| quartiles);
                    others[at] = Some((text(row, "reference"), text(row, "ratio"), quartiles));
                }
            }
            let [ucx, libfabric, bare] = others.map(|other| match other {
                Some((value, ratio, quartiles)) if !ratio.is_empty() => {
                    format!("{value} ({ratio}; {quartiles})")
                }
                _ => String::new(),
            });
            let better = if figure.more_is_better { "more" } else { "less" };
            let _ = writeln!(
                out,
                "| {} | {better} | {ours} | {ucx} | {libfabric} | {bare} |",
                figure.name
            );
        }
    }
    for note in record["notes"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let _ = write!(out, "\n{note}\n");
    }
    Some(out)
}
