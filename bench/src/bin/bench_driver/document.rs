//! The dated document with table, samples and machine.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;

use crate::Repetitions;
use crate::row::{Findings, Row};
use crate::run::{Failure, Result};

/// First value of `key` in a file of `key: value` lines.
fn field(file: &str, key: &str) -> String {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let value =
        text.lines().filter_map(|line| line.split_once(':')).find(|(name, _)| name.trim() == key);
    value.map_or_else(|| "unknown".into(), |(_, value)| value.trim().to_owned())
}

fn file(path: &str) -> String {
    std::fs::read_to_string(path).map_or_else(|_| "unknown".into(), |text| text.trim().to_owned())
}

/// Load average of the last minute, as text.
pub(crate) fn load() -> String {
    file("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(" ")
}

/// This process's niceness, which everything measured inherits.
fn niceness() -> String {
    let stat = file("/proc/self/stat");
    // Field 19; the name before may hold spaces and ends with the last parenthesis.
    let fields = stat.rsplit_once(") ").and_then(|(_, fields)| fields.split(' ').nth(16));
    fields.unwrap_or("unknown").to_owned()
}

/// What was measured on.
pub(crate) fn machine(repetitions: Repetitions) -> Vec<(&'static str, String)> {
    let cpus = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let governor = file("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    let hypervisor =
        if field("/proc/cpuinfo", "flags").contains(" hypervisor") { "yes" } else { "no" };
    vec![
        ("processor", field("/proc/cpuinfo", "model name")),
        ("processors", cpus.to_string()),
        ("virtual machine", hypervisor.to_owned()),
        ("frequency governor", governor),
        ("kernel", file("/proc/sys/kernel/osrelease")),
        ("memory", field("/proc/meminfo", "MemTotal")),
        ("niceness", niceness()),
        (
            "ranks with a processor each",
            if repetitions.realtime { "SCHED_FIFO" } else { "normal" }.into(),
        ),
        ("load before", load()),
    ]
}

fn date(format: &str) -> Result<String> {
    let output = Command::new("date").arg("-u").arg(format).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn table(out: &mut String, rows: &[&Row]) {
    out.push_str("| figure, reference | ours | reference | ratio | target | verdict |\n");
    out.push_str("|---|---:|---:|---:|---:|---|\n");
    for row in rows {
        let _ = writeln!(out, "| {} | {} |", row.cells.join(" | "), row.verdict);
    }
}

/// Writes the document and returns its path. An earlier one of the same day stays.
pub(crate) fn write(machine: &[(&str, String)], found: &[(&str, Findings)]) -> Result<PathBuf> {
    let day = date("+%F")?;
    let mut out = format!("# Speed and memory, {}\n\n", date("+%F %H:%M UTC")?);
    out.push_str(
        "Made by `scripts/bench --write`. Times and bandwidths are medians, ratios medians of the ratios of pairs measured \
         one after the other. How to read it: [README](README.md).\n\n",
    );
    let rows: Vec<&Row> = found.iter().flat_map(|(_, findings)| &findings.rows).collect();
    table(&mut out, &rows);
    out.push_str("\n## Machine\n\n");
    for (name, value) in machine {
        let _ = writeln!(out, "* {name}: {value}");
    }
    let _ = writeln!(out, "* load after: {}", load());
    out.push_str("\n## What was compared\n\n");
    for text in found.iter().flat_map(|(_, findings)| findings.explanations()) {
        let _ = writeln!(out, "* {text}");
    }
    out.push_str("\n## Samples\n\nIn order of measurement.\n\n```text\n");
    for (figure, findings) in found {
        for (key, values) in &findings.samples.0 {
            let values: Vec<String> = values.iter().map(|value| format!("{value:.4}")).collect();
            let values: Vec<&str> = values
                .iter()
                .map(|value| value.trim_end_matches('0').trim_end_matches('.'))
                .collect();
            let _ = writeln!(out, "{figure}/{key}: {}", values.join(" "));
        }
    }
    out.push_str("```\n");
    let directory = PathBuf::from("docs/bench");
    std::fs::create_dir_all(&directory)?;
    for number in 1..100 {
        let suffix = if number == 1 { String::new() } else { format!("-{number}") };
        let path = directory.join(format!("{day}{suffix}.md"));
        if !path.exists() {
            std::fs::write(&path, out)?;
            return Ok(path);
        }
    }
    Err(Failure(format!("docs/bench has 99 documents of {day} already")))
}
