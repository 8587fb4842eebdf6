//! System calls of operations over the software adapter, counted by strace: what sends something,
//! and what takes something in. Calls that find nothing and waits depend on the time, and are left
//! out.

use std::path::Path;
use std::process::Command;

use crate::Repetitions;
use crate::flow_cost::Scratch;
use crate::network::SOFT;
use crate::row::{Findings, Row, Target, Verdict};
use crate::run::{Result, Samples, job, run, sibling};

/// A program, what it does, in words, and how many of it in the shorter run.
const KINDS: [(&str, &str, &str, usize); 11] = [
    ("bench_net", "short", "round trip of a Short", 10_000),
    ("bench_net", "rate", "Short of a flood", 10_000),
    ("bench_net", "medium", "Medium of 64 KB of a flood", 1000),
    ("bench_calls", "put", "put of 8 B", 10_000),
    ("bench_calls", "get", "get of 8 B", 10_000),
    ("bench_calls", "fetch-add", "fetch-add by the adapter", 10_000),
    ("bench_calls", "fetch-add-by-owner", "fetch-add by the owner", 10_000),
    ("bench_calls", "strided", "strided put of 16 rows of 64 B", 10_000),
    ("bench_calls", "barrier", "barrier of 2 ranks", 10_000),
    ("bench_calls", "broadcast", "broadcast of 8 B to 2 ranks", 10_000),
    ("bench_calls", "reduce-to-all", "reduction of 8 B to all of 2 ranks", 10_000),
];
/// Series of a run: one for each pair, and one that warms up.
const SERIES: f64 = 2.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Sends,
    Takes,
}

/// What a line of strace says, if it is one of these calls and moved something.
fn call(line: &str) -> Option<Call> {
    // `PID name(arguments) = result`, and the end of one that was interrupted by another thread's:
    // `PID <... name resumed>arguments) = result`.
    let text = line.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start();
    let text = text.strip_prefix("<... ").unwrap_or(text);
    let name = text.split(['(', ' ']).next()?;
    let result: i64 = line.rsplit_once(" = ")?.1.split(' ').next()?.parse().ok()?;
    match name {
        "send" | "sendto" | "sendmsg" | "write" | "writev" if result > 0 => Some(Call::Sends),
        "recv" | "recvfrom" | "recvmsg" | "read" | "readv" if result > 0 => Some(Call::Takes),
        _ => None,
    }
}

/// Calls of both ranks in a run.
fn counted(scratch: &Path, (program, kind): (&str, &str), count: usize) -> Result<[f64; 2]> {
    let out = scratch.join(format!("{kind}-{count}"));
    let script = r#"exec strace -f -qq -e trace=desc,network -o "$0.$GASNETRUN_RANK" "$@""#;
    let (out, program, count) =
        (out.display().to_string(), sibling(program)?.display().to_string(), count.to_string());
    let words = ["-c", script, &out, &program, kind, "1", &count];
    let mut command: Command = job(2, &[], Path::new("sh"), &words)?;
    command.envs(SOFT);
    run(command, false)?;
    let mut sums = [0.0; 2];
    for rank in 0..2 {
        let text = std::fs::read(format!("{out}.{rank}"))?;
        for found in String::from_utf8_lossy(&text).lines().filter_map(call) {
            sums[usize::from(found == Call::Takes)] += 1.0;
        }
    }
    Ok(sums)
}

/// Calls of both ranks for each operation.
pub(crate) fn system_calls(_: Repetitions) -> Result<Findings> {
    let (mut samples, mut rows) = (Samples::default(), Vec::new());
    let name =
        |what: &str, how: &str| format!("system calls of both ranks, {what} over soft: {how}");
    if Command::new("strace").arg("-V").output().is_err() {
        let reason = Verdict::Skipped("strace is not installed".to_owned());
        let rows = KINDS.map(|(_, _, what, _)| Row::without(&name(what, "all"), reason.clone()));
        return Ok(Findings { rows: rows.into(), ..Findings::default() });
    }
    let scratch = Scratch::new("bench-calls")?;
    for (program, kind, what, count) in KINDS {
        let (few, many) = (
            counted(&scratch.0, (program, kind), count)?,
            counted(&scratch.0, (program, kind), 2 * count)?,
        );
        for (at, how) in ["sends", "takes in"].into_iter().enumerate() {
            let calls = (many[at] - few[at]) / (SERIES * count as f64);
            let key = format!("{kind}_{how}").replace([' ', '-'], "_");
            samples.add(&key, calls);
            rows.push(Row::alone(&name(what, how), &samples, &key, "", Target::None)?);
        }
    }
    let notes = vec![
        "net-calls: strace of both ranks; the difference of a run and one twice as long. A rank that is traced is slower, so \
         fewer messages are on their way at the same time than in a flood that is not."
            .to_owned(),
    ];
    Ok(Findings { rows, samples, notes, ..Findings::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_something_is_counted() {
        let cases = [
            ("12 sendmsg(5, {msg_name=NULL}, MSG_NOSIGNAL) = 64", Some(Call::Sends)),
            ("12 recvfrom(5, \"a = b\", 10, 0, NULL, NULL) = 3", Some(Call::Takes)),
            ("7 <... recvmsg resumed>{}, 0) = 8", Some(Call::Takes)),
            ("12 recvmsg(5, {}, 0) = -1 EAGAIN (Resource temporarily unavailable)", None),
            ("12 read(5, <unfinished ...>", None),
            ("12 epoll_wait(3, [], 8, 0) = 1", None),
            ("12 read(5, \"\", 8) = 0", None),
        ];
        for (line, expected) in cases {
            assert_eq!(call(line), expected, "{line}");
        }
    }
}
