//! The table of `--stats`: a line per rank, and the ranks that differ most from the others.

use std::fmt::Write;

use bootstrap::trace::{Cause, Counter, Slot, Timer};

/// Outliers that are named.
const NAMED: usize = 3;
/// Times the middle value that make an outlier.
const FAR: f64 = 1.5;

/// What the columns of a rank say.
#[derive(Clone, Debug, Default)]
struct Row {
    sent: (u64, u64),
    handled: (u64, u64),
    puts: (u64, u64),
    gets: (u64, u64),
    /// Bytes of receive buffers.
    receive: u64,
    waiting: u64,
    stalled: u64,
    /// Causes with their times, the longest first.
    stalls: Vec<(Cause, Timer)>,
}

impl Row {
    fn of(slot: &Slot) -> Self {
        let waits = || Cause::ALL.iter().filter(|cause| cause.is_wait());
        let timers = || waits().map(|cause| (*cause, slot.timer(*cause)));
        let mut stalls: Vec<(Cause, Timer)> =
            timers().filter(|(cause, timer)| cause.is_stall() && timer.count > 0).collect();
        stalls.sort_by_key(|(_, timer)| std::cmp::Reverse(timer.sum));
        Self {
            sent: slot.counter(Counter::SentAm),
            handled: slot.counter(Counter::HandledAm),
            puts: slot.counter(Counter::Put),
            gets: slot.counter(Counter::Get),
            receive: slot.counter(Counter::ReceiveBuffer).1,
            waiting: timers().map(|(_, timer)| timer.sum).sum(),
            stalled: stalls.iter().map(|(_, timer)| timer.sum).sum(),
            stalls,
        }
    }
}

/// The table. `hosts`: of the ranks.
pub(super) fn text(slots: &[Option<Slot>], hosts: &[String]) -> String {
    let rows: Vec<Option<Row>> = slots.iter().map(|slot| slot.as_ref().map(Row::of)).collect();
    let mut lines = vec![HEAD.map(str::to_owned).to_vec()];
    for (rank, row) in rows.iter().enumerate() {
        let host = hosts.get(rank).map_or("?", String::as_str);
        lines.push(cells(rank, host, row.as_ref()));
    }
    let mut text = "statistics".to_owned();
    for line in aligned(&lines) {
        let _ = write!(text, "\n  {line}");
    }
    for line in outliers(&rows) {
        let _ = write!(text, "\n  {line}");
    }
    text
}

const HEAD: [&str; 10] =
    ["rank", "host", "sent", "bytes", "handled", "put", "got", "buffers", "waiting", "stalls"];

fn cells(rank: usize, host: &str, row: Option<&Row>) -> Vec<String> {
    let Some(row) = row else {
        return vec![rank.to_string(), host.to_owned(), "nothing recorded".to_owned()];
    };
    let stall = |(cause, timer): &(Cause, Timer)| {
        format!("{} {} ({})", cause.name(), timer.count, seconds(timer.sum))
    };
    let stalls: Vec<String> = row.stalls.iter().map(stall).collect();
    let stalls = if stalls.is_empty() { "none".to_owned() } else { stalls.join(", ") };
    vec![
        rank.to_string(),
        host.to_owned(),
        row.sent.0.to_string(),
        row.sent.1.to_string(),
        row.handled.0.to_string(),
        row.puts.1.to_string(),
        row.gets.1.to_string(),
        format!("{} KiB", row.receive / 1024),
        seconds(row.waiting),
        stalls,
    ]
}

fn seconds(ns: u64) -> String {
    format!("{}.{:03} s", ns / 1_000_000_000, ns / 1_000_000 % 1000)
}

/// Columns of equal width; numbers to the right, words to the left.
fn aligned(lines: &[Vec<String>]) -> Vec<String> {
    let width = |column: usize| {
        let cells = lines.iter().filter(|line| line.len() == HEAD.len());
        cells
            .filter_map(|line| line.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..HEAD.len()).map(width).collect();
    let line = |line: &Vec<String>| {
        let mut text = String::new();
        for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
            let gap = if column == 0 { "" } else { "  " };
            let _ = match column {
                1 | 9 => write!(text, "{gap}{cell:<width$}"),
                _ => write!(text, "{gap}{cell:>width$}"),
            };
        }
        text.trim_end().to_owned()
    };
    lines.iter().map(line).collect()
}

/// The ranks that are furthest from the middle one in something, worst first, in words.
fn outliers(rows: &[Option<Row>]) -> Vec<String> {
    type Value = fn(&Row) -> u64;
    type Shown = fn(u64) -> String;
    let about: [(&str, Value, Shown); 5] = [
        ("waited", |row| row.waiting, seconds),
        ("stalled", |row| row.stalled, seconds),
        ("sent messages", |row| row.sent.0, |count| count.to_string()),
        ("sent bytes", |row| row.sent.1, |count| count.to_string()),
        ("put and got bytes", |row| row.puts.1 + row.gets.1, |count| count.to_string()),
    ];
    let mut found: Vec<(f64, usize, String)> = Vec::new();
    for (what, value, shown) in about {
        let mut values: Vec<u64> = rows.iter().flatten().map(value).collect();
        values.sort_unstable();
        let Some(middle) = values.get(values.len().saturating_sub(1) / 2).copied() else {
            continue;
        };
        for (rank, row) in rows.iter().enumerate() {
            let Some(own) = row.as_ref().map(value) else { continue };
            let far = distance(own, middle);
            if far >= FAR {
                let (own, middle) = (shown(own), shown(middle));
                found.push((
                    far,
                    rank,
                    format!("rank {rank} {what}: {own}, the middle rank {middle}"),
                ));
            }
        }
    }
    found.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
    let named = found.into_iter().take(NAMED).map(|(_, _, text)| format!("outlier: {text}"));
    let named: Vec<String> = named.collect();
    if named.is_empty() { vec!["no rank differs much from the others".to_owned()] } else { named }
}

/// How many times one is the other, whichever is more.
#[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
fn distance(one: u64, other: u64) -> f64 {
    one.max(other).max(1) as f64 / one.min(other).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(sent: u64, bytes: u64, wait: u64, stall: u64) -> Option<Slot> {
        let mut slot = Slot {
            counters: vec![(0, 0); Counter::ALL.len()],
            timers: vec![Timer::default(); Cause::ALL.len()],
            ..Slot::default()
        };
        slot.counters[Counter::SentAm as usize] = (sent, bytes);
        slot.counters[Counter::ReceiveBuffer as usize] = (117, 117 << 16);
        let timer = |sum| Timer { count: 2, sum, least: 1, most: sum };
        slot.timers[Cause::Barrier as usize] = timer(wait);
        if stall > 0 {
            slot.timers[Cause::Credit as usize] = timer(stall);
        }
        Some(slot)
    }

    #[test]
    fn a_line_per_rank_and_the_worst_named() {
        let second = 1_000_000_000;
        let slots = [
            slot(100, 5_000, second, 0),
            slot(100, 5_000, second, 0),
            slot(100, 5_000, 9 * second, second / 2),
            slot(700, 5_100, second, 0),
            None,
        ];
        let hosts = ["n0", "n0", "host-one", "host-one", "n2"].map(str::to_owned);
        let text = text(&slots, &hosts);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 1 + 1 + 5 + 3, "{text}");
        assert!(lines[4].contains("GET_AMREQ_CREDIT_STALL 2 (0.500 s)"), "{text}");
        assert!(lines[4].contains("9.500 s"), "{text}");
        assert!(lines[1].contains("  buffers  ") && lines[4].contains("  7488 KiB  "), "{text}");
        assert!(lines[6].ends_with("nothing recorded"), "{text}");
        assert!(lines[7].contains("rank 2 stalled: 0.500 s, the middle rank 0.000 s"), "{text}");
        assert!(lines[8].contains("rank 2 waited: 9.500 s"), "{text}");
        assert!(lines[9].contains("rank 3 sent messages: 700, the middle rank 100"), "{text}");
        let ends: Vec<usize> =
            lines[1..6].iter().filter_map(|line| line.find("  n").map(|_| line.len())).collect();
        assert!(!ends.is_empty());
    }

    #[test]
    fn ranks_that_are_alike_have_no_outlier() {
        let slots = [slot(10, 10, 1_000, 0), slot(11, 10, 1_100, 0)];
        assert!(
            text(&slots, &["a", "a"].map(str::to_owned))
                .ends_with("no rank differs much from the others")
        );
        assert!(text(&[None], &["a".to_owned()]).contains("nothing recorded"));
        assert!(!text(&[], &[]).is_empty());
    }
}
