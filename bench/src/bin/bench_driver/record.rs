//! The record of a run, `docs/bench/runs/DATE-COMMIT-SUITE.json`.

use std::path::{Path, PathBuf};
use std::process::Command;

use bench::timing::median;
use serde_json::{Map, Value, json};

use crate::machine;
use crate::row::{Findings, Row};
use crate::run::{Failure, Result};

/// Where records are.
pub(crate) const RUNS: &str = "docs/bench/runs";
/// So many samples are kept one by one, in the order of measurement; of more, how they are
/// distributed.
const EACH: usize = 48;
/// Into how many parts of equal width their range is cut.
const PARTS: usize = 12;

fn said(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The commit that was measured; with `+` when the checkout has changes.
pub(crate) fn commit() -> Result<String> {
    let commit = said("git", &["rev-parse", "--short", "HEAD"])?;
    let changed = said("git", &["status", "--porcelain", "--untracked-files=no"])?;
    Ok(if changed.is_empty() { commit } else { commit + "+" })
}

/// The samples themselves, or counts of those in each part of their range.
fn samples(values: &[f64]) -> Value {
    let round = |value: f64| (value * 1e4).round() / 1e4;
    if values.len() <= EACH {
        return values.iter().map(|value| round(*value)).collect();
    }
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let parts = u32::try_from(PARTS).map_or(1.0, f64::from);
    let width = (most - least) / parts;
    let begins = std::iter::successors(Some(least), |begin| Some(begin + width)).take(PARTS);
    let histogram: Vec<Value> = begins
        .map(|begin| {
            let last = begin + width * 1.5 > most;
            let inside = |value: &&f64| **value >= begin && (last || **value < begin + width);
            json!([round(begin), values.iter().filter(inside).count()])
        })
        .filter(|part| part[1] != 0)
        .collect();
    json!({
        "count": values.len(), "least": round(least), "median": round(median(values)), "most": round(most),
        "begin and count of parts": histogram,
    })
}

fn row(row: &Row) -> Value {
    let [figure, ours, reference, ratio, target] = &row.cells;
    let mut value = json!({ "figure": figure, "ours": ours, "verdict": row.verdict.to_string() });
    let more = [("reference", reference), ("ratio", ratio), ("target", target)];
    for (name, text) in more.into_iter().filter(|(_, text)| !text.is_empty()) {
        value[name] = json!(text);
    }
    if let Some(pairs) = &row.pairs {
        value["ratio of pairs, median and quartiles"] = json!(pairs);
    }
    value
}

/// Writes the record and returns its path. Earlier ones stay.
pub(crate) fn write(
    suite: &str,
    machine: &[(&str, String)],
    found: &[(&str, Findings)],
) -> Result<PathBuf> {
    let (date, commit) = (said("date", &["-u", "+%F"])?, commit()?);
    let mut described: Map<String, Value> =
        machine.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    described.insert("load after".to_owned(), json!(machine::load()));
    let rows = found.iter().flat_map(|(_, findings)| &findings.rows).map(row);
    let notes = found.iter().flat_map(|(_, findings)| findings.explanations());
    let kept = found.iter().flat_map(|(figure, findings)| {
        let keys = findings.samples.0.iter();
        keys.map(move |(key, values)| (format!("{figure}/{key}"), samples(values)))
    });
    let record = json!({
        "date": said("date", &["-u", "+%FT%RZ"])?,
        "commit": commit,
        "suite": suite,
        "machine": described,
        "rows": rows.collect::<Vec<_>>(),
        "notes": notes.collect::<Vec<_>>(),
        "samples": kept.collect::<Map<_, _>>(),
    });
    let path = free(&format!("{date}-{commit}-{suite}"))?;
    std::fs::write(&path, text(&record))?;
    Ok(path)
}

/// The record as text: a line for each row, note and list of samples.
fn text(record: &Value) -> String {
    let mut out = String::from("{\n");
    let fields = record.as_object().into_iter().flatten();
    let fields: Vec<String> = fields
        .map(|(name, value)| {
            let lines: Vec<String> = match value {
                Value::Array(all) => all.iter().map(|one| format!("  {one}")).collect(),
                Value::Object(all) => {
                    all.iter().map(|(name, one)| format!("  {}: {one}", json!(name))).collect()
                }
                other => return format!("{}: {other}", json!(name)),
            };
            let [open, close] = if value.is_array() { ["[", "]"] } else { ["{", "}"] };
            format!("{}: {open}\n{}\n{close}", json!(name), lines.join(",\n"))
        })
        .collect();
    out += &fields.join(",\n");
    out + "\n}\n"
}

fn free(name: &str) -> Result<PathBuf> {
    std::fs::create_dir_all(RUNS)?;
    let numbered = (2..100).map(|number| format!("{name}-{number}"));
    let mut paths = std::iter::once(name.to_owned())
        .chain(numbered)
        .map(|name| Path::new(RUNS).join(format!("{name}.json")));
    paths.find(|path| !path.exists()).ok_or_else(|| Failure(format!("{RUNS} has 99 of {name}")))
}
