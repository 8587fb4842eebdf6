//! `docs/bench/RESULTS.md`: the newest figures of all records.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use crate::peers;
use crate::record::RUNS;
use crate::run::{Failure, Result};

const PAGE: &str = "docs/bench/RESULTS.md";
/// Suites in the order of the page, with their headings.
const SUITES: [(&str, &str); 9] = [
    ("host", "On one host"),
    ("c", "The C interface"),
    ("net", "The network over the software adapter"),
    ("softroce", "The network on Soft-RoCE"),
    ("peers", "Beside UCX and libfabric"),
    ("ssh", "Jobs on four hosts over ssh"),
    ("hosts", "Jobs on 64 hosts"),
    ("engines", "Starts under other launchers"),
    ("scale", "Many ranks on one host"),
];

pub(crate) fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

/// The day of a record.
pub(crate) fn day(record: &Value) -> &str {
    text(record, "date").split('T').next().unwrap_or_default()
}

/// The records of a folder, oldest first.
fn records(folder: &Path) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let record = serde_json::from_str::<Value>(&std::fs::read_to_string(&path)?);
        all.push(record.map_err(|error| Failure(format!("{}: {error}", path.display())))?);
    }
    all.sort_by(|a, b| text(a, "date").cmp(text(b, "date")));
    Ok(all)
}

/// One line about a machine.
fn machine(record: &Value) -> String {
    let said = &record["machine"];
    let virtual_one = if said["virtual machine"] == "yes" { ", virtual" } else { "" };
    let (processors, processor) = (text(said, "processors"), text(said, "processor"));
    let (memory, kernel) = (text(said, "memory"), text(said, "kernel"));
    format!("{processors} processors {processor}{virtual_one}, {memory}, Linux {kernel}")
}

/// The newest row of each figure, of records that come newest first, with its record. A record of
/// most of the figures ends the search: figures that only older ones have are not measured any
/// more.
fn newest<'a>(records: impl Iterator<Item = &'a Value> + Clone) -> Vec<(&'a Value, &'a Value)> {
    let rows_of = |record: &Value| record["rows"].as_array().map_or(0, Vec::len);
    let most = records.clone().map(rows_of).max().unwrap_or(0);
    let mut known = BTreeSet::new();
    let mut all = Vec::new();
    for record in records {
        let measured = |row: &&Value| !matches!(text(row, "verdict"), "skipped" | "FAILED");
        let rows = record["rows"].as_array().into_iter().flatten().filter(measured);
        let fresh: Vec<&Value> = rows.filter(|row| !known.contains(base(row))).collect();
        // Where the processors were, and how many launches could be compared, differs from run to
        // run.
        known.extend(fresh.iter().map(|row| base(row)));
        all.extend(fresh.into_iter().map(|row| (record, row)));
        if 2 * rows_of(record) > most {
            break;
        }
    }
    all
}

/// The name of a figure without what differs from run to run.
fn base(row: &Value) -> &str {
    let figure = text(row, "figure");
    let figure = figure.split("; processors").next().unwrap_or(figure);
    let counted = figure.rsplit_once(" (").filter(|(_, end)| end.ends_with(" pairs)"));
    counted.map_or(figure, |(figure, _)| figure)
}

/// The page.
fn page(records: &[Value]) -> String {
    let mut out = String::from(
        "# Speed and memory\n\nMade from the records in [runs](runs) by `scripts/bench --results`; do not edit. Each figure is \
         the newest one measured, a median. The ratio is the quotient of the two columns before it, and the verdict compares \
         it, or the figure, with the target. What limits the figures: [README](README.md).\n",
    );
    let mut machines: Vec<String> = Vec::new();
    for (suite, heading) in SUITES {
        let rows = newest(records.iter().rev().filter(|record| record["suite"] == suite));
        if rows.is_empty() {
            continue;
        }
        let _ = write!(
            out,
            "\n## {heading}\n\n| figure, reference | ours | reference | ratio | target | verdict | commit, date, machine |\n|---|---:|---:|---:|---:|---|---|\n"
        );
        for (record, row) in rows {
            let figure = text(row, "figure");
            let machine = machine(record);
            let known = machines.iter().position(|one| *one == machine);
            let number = known.unwrap_or_else(|| {
                machines.push(machine);
                machines.len() - 1
            });
            let cell = |name| text(row, name).trim();
            let date = day(record);
            let _ = writeln!(
                out,
                "| {figure} | {} | {} | {} | {} | {} | {} {date} {} |",
                cell("ours"),
                cell("reference"),
                cell("ratio"),
                cell("target"),
                cell("verdict"),
                text(record, "commit"),
                number + 1
            );
        }
    }
    out.push_str("\n## Machines\n\n");
    for (number, machine) in machines.iter().enumerate() {
        let _ = writeln!(out, "{}. {machine}", number + 1);
    }
    out
}

/// Writes the pages anew.
pub(crate) fn write() -> Result<&'static str> {
    let records = records(Path::new(RUNS))?;
    std::fs::write(PAGE, page(&records))?;
    if let Some(peers) = peers::page(&records) {
        std::fs::write(peers::PAGE, peers)?;
    }
    Ok(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::judge;

    fn kept() -> Vec<Value> {
        records(&testkit::repository().join(RUNS)).expect("the records can be read")
    }

    #[test]
    fn the_page_is_that_of_the_records() {
        let found = std::fs::read_to_string(testkit::repository().join(PAGE));
        assert_eq!(found.expect("the page"), page(&kept()), "run scripts/bench --results");
    }

    #[test]
    fn the_page_of_peers_is_that_of_the_newest_record() {
        let found = std::fs::read_to_string(testkit::repository().join(peers::PAGE)).ok();
        assert_eq!(found, peers::page(&kept()), "run scripts/bench --results");
    }

    #[test]
    fn no_record_has_a_verdict_that_its_columns_deny() {
        for record in kept() {
            for row in record["rows"].as_array().expect("rows") {
                let [ours, reference, target, verdict] =
                    ["ours", "reference", "target", "verdict"].map(|name| text(row, name));
                if matches!(verdict, "skipped" | "FAILED" | "-") {
                    continue;
                }
                // Survivors of a job are counted in the column of the ratio.
                let left = text(row, "ratio").ends_with("survivors")
                    && text(row, "ratio") != "0 survivors";
                let judged = judge(ours, reference, target).1.to_string();
                let wanted = if left { "missed".to_owned() } else { judged };
                assert_eq!(verdict, wanted, "{} {row}", text(&record, "date"));
            }
        }
    }
}
