//! Instructions of ours from a call to its return, over adapters: a small put, a small get, a Short
//! with its answer. Counted by callgrind, so other load of the machine changes nothing.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use crate::Repetitions;
use crate::flow_cost::Scratch;
use crate::row::{Findings, Row, Target, Verdict};
use crate::run::{Failure, Result, Samples, run, sibling};

/// Functions of `bench_path_length`, and what each does.
const PARTS: [(&str, &str); 10] = [
    ("put_word", "put of 8 B"),
    ("write_alone", "write of 8 B by verbs alone"),
    ("get_word", "get of 8 B"),
    ("read_alone", "read of 8 B by verbs alone"),
    ("send_request", "request of a Short"),
    ("answer_request", "poll that takes a Short and answers it"),
    ("take_reply", "wait that takes the answer"),
    ("poll_nothing", "poll that finds nothing"),
    ("start_put", "put of 8 B without event, to its return"),
    ("take_end", "wait that takes the end of such a put"),
];

/// Operations with an event: the word that `bench_path_length` is given, and what both ranks do.
const KINDS: [(&str, &str); 7] = [
    ("put", "a put of 8 B"),
    ("fetch-add", "a fetch-add by the adapter"),
    ("fetch-add-by-owner", "a fetch-add by the owner of the word"),
    ("strided", "a strided put of 16 rows of 64 B"),
    ("barrier", "a barrier"),
    ("broadcast", "a broadcast of 8 B"),
    ("reduce-to-all", "a reduction of 8 B to all"),
];

/// The same while waits spin: the word that `bench_path_length` is given, and what the rank does from
/// the look that finds its message on.
const SPINS: [(&str, &str); 2] = [
    ("answer", "from the look that finds a Short to its answer's post"),
    ("reply", "from the look that finds the answer to the end of the wait"),
];

/// Where counting begins and ends while waits spin; what is inside `hand_over` is left out.
const SPIN_TOGGLES: [&str; 2] = ["*progress*poll_recv*", "bench_path_length::hand_over*"];

/// A Short and its answer, from look to post, at most.
const LOOK_TO_POST: f64 = 1500.0;

/// Times of the two runs whose difference is divided by the difference of these.
const TIMES: [u32; 2] = [200, 600];

/// The library of adapters, whose work is not ours.
const LIBRARY: &str = "libibverbs.so.1";

/// Instructions of a profile, without those of calls into the library.
///
/// Each object is named once, with a number, and later by the number alone. The line after `calls=`
/// has the cost of what was called.
fn own(profile: &str) -> Option<u64> {
    let mut names: HashMap<&str, bool> = HashMap::new();
    let mut is_library = |text| -> Option<bool> {
        let (number, name): (_, &str) = str::split_once(text, ')')?;
        if !name.is_empty() {
            names.insert(number, name.ends_with(LIBRARY));
        }
        names.get(number).copied()
    };
    let (mut inside, mut called, mut costs) = (false, false, false);
    let (mut total, mut below) = (None, 0);
    for line in profile.lines() {
        match line.split_once('=').unwrap_or((line, "")) {
            ("ob", object) => inside = is_library(object)?,
            ("cob", object) => called = is_library(object)?,
            // Within the same object, unless it says otherwise before.
            ("fn", _) => called = inside,
            ("calls", _) => costs = true,
            (_, "") if costs => {
                let cost: u64 = line.split(' ').next_back()?.parse().ok()?;
                below += if called && !inside { cost } else { 0 };
                (called, costs) = (inside, false);
            }
            _ => {}
        }
        if let Some(text) = line.strip_prefix("totals: ") {
            total = text.trim().parse::<u64>().ok();
        }
    }
    total?.checked_sub(below)
}

/// Instructions of ours in so many calls of a part, and in what goes before them.
fn counted(scratch: &Path, part: &str, times: u32) -> Result<u64> {
    let is_word = |words: &[(&str, &str)]| words.iter().any(|(word, _)| *word == part);
    let (spins, kind) = (is_word(&SPINS), is_word(&KINDS));
    let function = format!("*bench_path_length::*{part}");
    let toggles = match () {
        () if spins => &SPIN_TOGGLES[..],
        () if kind => &["bench_path_length::counted*"],
        () => &[function.as_str()],
    };
    let out = scratch.join(format!("{part}-{times}"));
    let mut command = Command::new("valgrind");
    command.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}", out.display()));
    command.args(toggles.iter().map(|toggle| format!("--toggle-collect={toggle}")));
    command.arg(sibling("bench_path_length")?).arg(times.to_string());
    command.args((spins || kind).then_some(part));
    command.env("LD_LIBRARY_PATH", scratch).env("GASNET_PHYSMEM_MAX", "1G");
    run(command, false)?;
    let own = own(&std::fs::read_to_string(out)?);
    own.ok_or_else(|| Failure("callgrind wrote something else".to_owned()))
}

/// What is missing here, if anything.
fn missing() -> Option<&'static str> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return Some("valgrind is not installed");
    }
    let header = Path::new("/usr/include/infiniband/verbs.h").is_file();
    (!header).then_some("no infiniband/verbs.h (package libibverbs-dev)")
}

/// Each part; puts and gets beside verbs alone.
pub(crate) fn instructions(_: Repetitions) -> Result<Findings> {
    if let Some(missing) = missing() {
        let skipped = Verdict::Skipped(missing.to_owned());
        let rows = vec![Row::without("instructions of small operations", skipped)];
        return Ok(Findings { rows, ..Findings::default() });
    }
    let scratch = Scratch::new("bench-path-length")?;
    let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/fake-verbs/build");
    let mut command = Command::new(build);
    command.arg(scratch.0.join(LIBRARY)).arg("-DFAKE_MOVES");
    run(command, false)?;
    let mut samples = Samples::default();
    for (part, _) in PARTS.into_iter().chain(SPINS).chain(KINDS) {
        let [few, many] = TIMES.map(|times| counted(&scratch.0, part, times));
        let more = u32::try_from(many?.saturating_sub(few?))?;
        samples.add(part, f64::from(more) / f64::from(TIMES[1] - TIMES[0]));
    }
    for (sum, parts) in [
        ("trip", ["send_request", "answer_request", "take_reply"]),
        ("look to post", ["send_request", "answer", "reply"]),
    ] {
        let all = parts.iter().map(|part| samples.median(part)).sum::<Result<f64>>()?;
        samples.add(sum, all);
    }
    let what = |part| PARTS.iter().find(|(name, _)| *name == part).map_or("", |(_, what)| what);
    let mut rows = Vec::new();
    for keys @ [ours, reference] in [["put_word", "write_alone"], ["get_word", "read_alone"]] {
        let figure = format!("instructions of a {}, {}", what(ours), what(reference));
        rows.push(Row::paired(&figure, &samples, keys, "", Target::None)?);
    }
    for (part, what) in &PARTS[4..] {
        let figure = format!("instructions of the {what}");
        rows.push(Row::alone(&figure, &samples, part, "", Target::None)?);
    }
    let figure = "instructions of these three, a Short and its answer";
    rows.push(Row::alone(figure, &samples, "trip", "", Target::None)?);
    for (part, what) in &SPINS {
        let figure = format!("instructions {what}");
        rows.push(Row::alone(&figure, &samples, part, "", Target::None)?);
    }
    let figure = "instructions of a Short and its answer, from look to post";
    rows.push(Row::alone(figure, &samples, "look to post", "", Target::Bound(LOOK_TO_POST))?);
    for (kind, what) in &KINDS {
        let figure = format!("instructions of {what} with an event, both ranks");
        rows.push(Row::alone(&figure, &samples, kind, "", Target::None)?);
    }
    let notes = vec![
        "net-path: callgrind, two ranks in one process over adapters that move data in the call that posts it; what lies below \
         calls of libibverbs is not counted. The completion is there at the first look; the poll and the wait find one message."
            .to_owned(),
        "net-path: from look to post is the request and what both ranks do while their waits spin, from the look that finds a \
         message on; whole polls between such looks are not on that way."
            .to_owned(),
        "net-path: operations with an event are counted with the polls of both ranks, which run in turns until it is over."
            .to_owned(),
    ];
    Ok(Findings { rows, samples, notes, ..Findings::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_into_the_library_are_left_out_once() {
        let profile = "\
events: Ir
ob=(1) /bin/bench_path_length
fl=(1) post.rs
fn=(1) post
10 4
cob=(2) /tmp/libibverbs.so.1
cfi=(2) ???
cfn=(2) post_send
calls=1 0
11 30
cfn=(3) other
calls=2 0
12 6

ob=(2)
fn=(2)
0 20
cfn=(4) helper
calls=1 0
0 10
cob=(1)
cfn=(5) back
calls=1 0
0 2

fn=(4)
0 10

ob=(1)
fn=(3)
+3 6
totals: 40
";
        assert_eq!(own(profile), Some(10));
        assert_eq!(own("ob=(1) x\n"), None, "no totals");
        assert_eq!(own("ob=(7)\n"), None, "a number that was never given");
    }
}
