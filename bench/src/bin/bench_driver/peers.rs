//! Ours beside UCX, libfabric and bare means, on one wire: TCP of this machine, and Soft-RoCE.

use std::fmt::Write as _;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::Repetitions;
use crate::network::guest;
use crate::results::{day, text};
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

/// Shorts of a flood on a real device take at most 1.1 of the time of perftest's sends.
const LEAST_RATE: f64 = 1.0 / 1.1;

fn target(figure: &Figure, who: &str, wire: Wire) -> Target {
    match (who, wire, figure.more_is_better) {
        ("bare means", Wire::Roce, _) if figure.ours == "short_rate" => Target::AtLeast(LEAST_RATE),
        // Bare means have other programs between them and the wire than we; they are no peer.
        ("bare means", ..) => Target::None,
        (_, _, true) => Target::AtLeast(1.0),
        (_, _, false) => Target::AtMost(1.0),
    }
}

/// A row for each of the others that has such a test, and was there.
fn rows(samples: &Samples, wire: Wire) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for figure in &FIGURES {
        for (who, key) in OTHERS.into_iter().zip(figure.others) {
            let target = target(figure, who, wire);
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
            "one round in each of a series of boots, in it all",
            "rc_verbs",
            "perftest (sends of 64 B for the rate); all but libfabric, which finds its way by IPv4 addresses, over the GID of IPv6, UCX's only one here",
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

/// Over Soft-RoCE, one round in each of a series of boots of a virtual machine: how programs lie in its
/// memory changes a figure by a tenth, of each program in its own way, and stays the same in a boot.
pub(crate) fn soft_roce(repetitions: Repetitions) -> Result<Findings> {
    let mut samples = Samples::default();
    for _ in 0..2 * repetitions.exits {
        match guest(SCRIPT, &[Wire::Roce.words().0, "1"].map(str::to_owned))? {
            Ok(more) => samples.extend(more),
            Err(reason) => {
                let rows = vec![Row::without("peers over Soft-RoCE", Verdict::Skipped(reason))];
                return Ok(Findings { rows, ..Findings::default() });
            }
        }
    }
    findings(samples, Wire::Roce)
}

/// The tables of the newest records that have them, for people who compare.
pub(crate) fn page(records: &[Value]) -> Option<String> {
    let newest = |wire: Wire| {
        let tells =
            |record: &&Value| record["suite"] == "peers" && !rows_of(record, wire).is_empty();
        Some((wire, records.iter().rev().find(tells)?))
    };
    let wires: Vec<(Wire, &Value)> =
        [Wire::Tcp, Wire::Roce].into_iter().filter_map(newest).collect();
    if wires.is_empty() {
        return None;
    }
    let mut out = String::from(
        "# Beside UCX and libfabric\n\nMade from the newest records of the suite `peers` in [runs](runs) by `scripts/bench --results`; \
         do not edit. Ours was measured by turns with each of the others. In brackets: ours divided by it; then the quartiles \
         of that round by round: a range around 1 does not tell who is ahead.\n",
    );
    for (wire, record) in wires {
        let rows = rows_of(record, wire);
        let (commit, date) = (text(record, "commit"), day(record));
        let _ = write!(
            out,
            "\n## {}\n\nCommit {commit}, {date}.\n\n| figure | better | ours | UCX | libfabric | bare means |\n|---|---|---:|---:|---:|---:|\n",
            wire.words().1
        );
        for figure in &FIGURES {
            let (mut ours, mut others) = ("", [None; 3]);
            for (name, who, row) in &rows {
                let who = OTHERS.iter().position(|one| one == who);
                if let Some(at) = who.filter(|_| *name == figure.name) {
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
        let notes = record["notes"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let begin = format!("peers, {}:", wire.words().1);
        for note in notes.filter(|note| note.starts_with(&begin)) {
            let _ = write!(out, "\n{note}\n");
        }
    }
    Some(out)
}

/// The rows of a record over one wire: the figure, and beside whom.
fn rows_of(record: &Value, wire: Wire) -> Vec<(&str, &str, &Value)> {
    let over = format!(" over {}, ", wire.words().1);
    let rows = record["rows"].as_array().into_iter().flatten();
    rows.filter_map(|row| {
        let (figure, who) = text(row, "figure").split_once(&over)?;
        Some((figure, who, row))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_means_bound_the_rate_of_messages_on_a_real_device_alone() {
        let bound = |wire, ours| {
            let figure = FIGURES.iter().find(|figure| figure.ours == ours).unwrap();
            OTHERS.map(|who| match target(figure, who, wire) {
                Target::AtLeast(least) => format!("at least {least:.2}"),
                Target::AtMost(most) => format!("at most {most:.2}"),
                other => format!("{other:?}"),
            })
        };
        let least = "at least 1.00";
        assert_eq!(bound(Wire::Roce, "short_rate"), [least, least, "at least 0.91"]);
        assert_eq!(bound(Wire::Tcp, "short_rate"), [least, least, "None"]);
        assert_eq!(bound(Wire::Roce, "am_short_us"), ["at most 1.00", "at most 1.00", "None"]);
    }
}
