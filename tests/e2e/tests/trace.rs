//! `--trace`, `--stats` and the variables of the same: what is in the files, also after a kill, and
//! that nothing is left.
//!
//! A timeline is checked against the rules of the Trace Event format and those that Perfetto adds
//! when it reads it: slices of a thread lie inside each other or apart, and both ends of an arrow
//! lie in a slice. (Perfetto's own parser is a program that its packages fetch when they run.)

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use testkit::apart::{neighbourhoods, ranks};
use testkit::process::send;
use testkit::report::skip;
use testkit::{Outcome, Tree, binary, launcher};

const BOUND: Duration = Duration::from_secs(60);

/// `gasnetrun_ibv OPTIONS -n RANKS PROGRAM`.
fn traced(options: &[&str], count: u32, program: &str) -> Tree {
    launcher(options.iter().copied())
        .args(["-n", &count.to_string()])
        .arg(binary(program))
        .deadline("traced job", BOUND)
}

/// A timeline that follows the rules.
struct Timeline {
    events: Vec<Value>,
    whole: Value,
}

impl Timeline {
    fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).expect("the file is there");
        let whole: Value = serde_json::from_str(&text).expect("one JSON object");
        let events = whole["traceEvents"].as_array().expect("a list of events").clone();
        let timeline = Self { events, whole };
        timeline.check();
        timeline
    }

    /// Whether some event of a rank has this name, or one that begins so.
    fn has(&self, rank: u64, name: &str) -> bool {
        let named = |event: &&Value| event["name"].as_str().is_some_and(|n| n.starts_with(name));
        self.events.iter().filter(named).any(|event| event["pid"] == rank)
    }

    fn arrows(&self) -> usize {
        self.events.iter().filter(|event| event["ph"] == "s").count()
    }

    fn check(&self) {
        let mut slices: BTreeMap<(u64, u64), Vec<(f64, f64)>> = BTreeMap::new();
        let mut arrows: BTreeMap<u64, Vec<&Value>> = BTreeMap::new();
        for event in &self.events {
            let number =
                |name: &str| event[name].as_f64().unwrap_or_else(|| panic!("no {name} in {event}"));
            assert!(event["name"].is_string() && event["pid"].is_u64(), "{event}");
            let ph = event["ph"].as_str().expect("a phase");
            if ph == "M" {
                continue;
            }
            assert!(event["tid"].is_u64() && number("ts") >= 0.0, "{event}");
            match ph {
                "X" => {
                    assert!(number("dur") > 0.0, "{event}");
                    let thread = slices.entry(place(event)).or_default();
                    thread.push((number("ts"), number("ts") + number("dur")));
                }
                "i" => assert_eq!(event["s"], "t", "{event}"),
                "s" | "f" => {
                    assert!(ph == "s" || event["bp"] == "e", "{event}");
                    arrows.entry(event["id"].as_u64().expect("an id")).or_default().push(event);
                }
                other => panic!("phase {other}"),
            }
        }
        slices.values_mut().for_each(|thread| assert_nested(thread));
        for (id, ends) in arrows {
            let [from, to] = ends[..] else { panic!("arrow {id} has {} ends", ends.len()) };
            let (from, to) = if from["ph"] == "s" { (from, to) } else { (to, from) };
            assert!(from["ts"].as_f64() <= to["ts"].as_f64(), "{from} {to}");
            assert_eq!((&from["ph"], &to["ph"]), (&Value::from("s"), &Value::from("f")));
            for end in [from, to] {
                let at = end["ts"].as_f64().expect("a time");
                let around =
                    |(begin, over): &(f64, f64)| *begin <= at + 0.002 && at <= *over + 0.002;
                assert!(slices[&place(end)].iter().any(around), "{end} is in no slice");
            }
        }
    }
}

fn place(event: &Value) -> (u64, u64) {
    let of = |name: &str| event[name].as_u64().expect("a number");
    (of("pid"), of("tid"))
}

/// Slices lie inside each other or apart; a nanosecond is a rounding error.
fn assert_nested(slices: &mut [(f64, f64)]) {
    slices.sort_by(|one, other| one.0.total_cmp(&other.0).then(other.1.total_cmp(&one.1)));
    let mut open: Vec<f64> = Vec::new();
    for (begin, end) in slices {
        open.retain(|over| *over > *begin + 0.002);
        let fits = open.iter().all(|over| *end <= *over + 0.002);
        assert!(fits, "{begin} to {end} overlaps with what ends at {open:?}");
        open.push(*end);
    }
}

fn assert_said(outcome: &Outcome, text: &str) {
    assert!(outcome.err().contains(text), "{text:?} is not in {}", outcome.err());
}

#[test]
fn a_timeline_and_a_table_of_a_job() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("job.json");
    let file = path.to_str().expect("a plain path");
    let outcome = traced(&["--trace", file, "--stats"], 4, "ring").run();
    outcome.expect(0);
    let timeline = Timeline::read(&path);
    for rank in 0..4 {
        for name in ["init begins", "init ends", "Short request to", "step", "barrier", "exit"] {
            assert!(timeline.has(rank, name), "rank {rank} has no {name}");
        }
        assert!(timeline.has(rank, "process_name"));
    }
    // Each of 400 steps is a message to another rank.
    assert!(timeline.arrows() >= 300, "{} arrows", timeline.arrows());
    assert_eq!(timeline.whole["otherData"]["cut"], Value::Null);
    assert_eq!(timeline.whole["otherData"]["ranks without records"], 0);
    assert_said(&outcome, "statistics");
    let err = outcome.err();
    let rows = err.lines().filter(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.len() >= 9 && words[0].parse::<u32>().is_ok_and(|rank| rank < 4) && words[2] == "100"
    });
    assert_eq!(rows.count(), 4, "each rank has sent 100 messages: {err}");
}

#[test]
fn over_the_network_there_are_connections_and_registrations() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("job.json");
    let file = path.to_str().expect("a plain path");
    let tree = traced(&["--trace", file, "--stats"], 3, "stencil");
    let outcome = neighbourhoods(tree, 1).deadline("traced job", BOUND).run();
    outcome.expect(0);
    let timeline = Timeline::read(&path);
    for rank in 0..3 {
        for name in ["connected to", "register", "segment attached", "exit"] {
            assert!(timeline.has(rank, name), "rank {rank} has no {name}");
        }
    }
    assert_said(&outcome, "statistics");
}

#[test]
fn what_a_killed_rank_has_recorded_is_kept() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("job.json");
    let file = path.to_str().expect("a plain path");
    let tree = traced(&["--trace", file, "--stats"], 3, "ring").arg("100000000");
    let running = tree.env("GASNET_TRACE_MEMORY", "256K").start();
    let found = ranks(&running, "ring", 3);
    // In the middle: by then there are more records than the memory holds.
    std::thread::sleep(Duration::from_millis(1500));
    let victim = found.iter().find(|process| testkit::apart::rank_of(process.pid) == Some(1));
    assert!(send(victim.expect("rank 1").pid, Signal::SIGKILL));
    let outcome = running.wait();
    outcome.expect(137);
    let timeline = Timeline::read(&path);
    assert!(timeline.has(1, "Short request to 2"), "the killed rank has left nothing");
    assert!(timeline.arrows() > 100, "{} arrows", timeline.arrows());
    assert_said(&outcome, "statistics");
    assert!(outcome.survivors.is_empty());
}

#[test]
fn a_small_memory_keeps_the_newest() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("job.json");
    let file = path.to_str().expect("a plain path");
    let tree = traced(&["-v", "--trace", file], 2, "ring").arg("2000");
    let outcome = tree.env("GASNET_TRACE_MEMORY", "16K").run();
    outcome.expect(0);
    let timeline = Timeline::read(&path);
    assert!(timeline.whole["otherData"]["overwritten"].as_u64() > Some(1000));
    assert!(timeline.has(0, "exit") && !timeline.has(0, "init begins"));
    assert_said(&outcome, "GASNET_TRACE_MEMORY");
}

#[test]
fn variables_name_files_masks_and_ranks() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    let text = |name: &str| path(name).to_str().expect("a plain path").to_owned();
    let read = |name: &str| std::fs::read_to_string(path(name)).expect(name);
    let outcome = traced(&[], 3, "ring")
        .env("GASNET_TRACEFILE", text("trace-%"))
        .env("GASNET_STATSFILE", text("stats-%"))
        .env("GASNET_TRACEMASK", "A")
        .env("GASNET_STATSNODES", "1")
        .run();
    outcome.expect(0);
    for rank in 0..3 {
        let trace = read(&format!("trace-{rank}"));
        assert!(trace.lines().all(|line| line.starts_with(&format!("{rank}("))), "{trace}");
        assert!(trace.lines().all(|line| line.contains(" (A) ")), "{trace}");
        let sent = trace.lines().filter(|line| line.contains("send Short request to")).count();
        assert_eq!(sent, 100, "{trace}");
        assert_eq!(path(&format!("stats-{rank}")).exists(), rank == 1);
    }
    let stats = read("stats-1");
    assert!(stats.contains("1> (A) SEND_AM 100 times, 0 bytes"), "{stats}");
    assert!(stats.contains("(B) BARRIER 2 times"), "{stats}");

    // All but some.
    let outcome = traced(&[], 2, "ring")
        .env("GASNET_TRACEFILE", text("less-%"))
        .env("GASNET_TRACEMASK", "^AS")
        .run();
    outcome.expect(0);
    let less = read("less-0");
    assert!(!less.contains("(A)") && !less.contains("(S)") && less.contains("(B)"), "{less}");
    assert!(less.contains("(X) exit code 0"), "{less}");

    // Standard error, and a file that cannot be made.
    let outcome = traced(&[], 2, "ring").env("GASNET_STATSFILE", "-").run();
    outcome.expect(0);
    assert_said(&outcome, "0> (A) SEND_AM 100 times");
    let outcome = traced(&[], 2, "ring").env("GASNET_TRACEFILE", "/nowhere/trace").run();
    outcome.expect(0);
    assert_said(&outcome, "cannot make /nowhere/trace");
}

#[test]
fn a_full_disk_under_a_ranks_file_is_said_and_the_job_goes_on() {
    let outcome = traced(&[], 2, "ring").env("GASNET_TRACEFILE", "/dev/full").run();
    outcome.expect(0);
    assert_said(&outcome, "/dev/full: No space left on device");
    assert_said(&outcome, "cut here");
    assert!(outcome.out().contains("steps in order"));
}

#[test]
fn what_cannot_be_traced_is_refused_before_anything_starts() {
    let outcome = traced(&["--trace", "/nowhere/job.json"], 2, "ring").run();
    outcome.expect(125);
    assert_said(&outcome, "--trace /nowhere/job.json: cannot write it");
}

/// A traced job of 3 ranks that another launcher starts, called by `template`.
fn elsewhere(file: &str, template: &str) -> Outcome {
    traced(&["-spawner=pmi", "--trace", file, "--stats"], 3, "ring")
        .env("PMIRUN_CMD", template)
        .env("GASNET_QUIET", "1")
        .run()
}

fn is_here(program: &str) -> bool {
    let path = settings::variable("PATH").unwrap_or_default();
    let here = std::env::split_paths(&path).any(|directory| directory.join(program).is_file());
    if !here {
        skip("traces of ranks of another launcher", &format!("no {program} here"));
    }
    here
}

fn assert_gathered(path: &Path, outcome: &Outcome) {
    outcome.expect(0);
    let timeline = Timeline::read(path);
    for rank in 0..3 {
        for name in ["init begins", "Short request to", "step", "exit"] {
            assert!(timeline.has(rank, name), "rank {rank} has no {name}");
        }
    }
    assert!(timeline.arrows() >= 200, "{} arrows", timeline.arrows());
    assert_eq!(timeline.whole["otherData"]["ranks without records"], 0);
    assert_said(outcome, "statistics");
    assert!(!outcome.err().contains("nothing recorded"), "{}", outcome.err());
}

#[test]
fn ranks_of_another_launcher_write_into_the_memory_of_ours() {
    if !is_here("mpiexec.hydra") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("job.json");
    let outcome = elsewhere(path.to_str().expect("a plain path"), "mpiexec.hydra -n %N %C");
    assert_gathered(&path, &outcome);
}

#[test]
fn ranks_that_do_not_see_that_memory_leave_theirs_over_a_connection() {
    let unshares = std::process::Command::new("unshare")
        .args(["--pid", "--fork", "--mount-proc", "true"])
        .status()
        .is_ok_and(|status| status.success());
    if !is_here("mpiexec.hydra") {
        return;
    }
    if !unshares {
        skip("ranks that do not see the launcher", "no space of processes of their own");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("job.json");
    // In a space of processes of their own the launcher has no number.
    let template = "unshare --pid --fork --mount-proc mpiexec.hydra -n %N %C";
    let outcome = elsewhere(path.to_str().expect("a plain path"), template);
    assert_gathered(&path, &outcome);
}

#[test]
fn ranks_of_another_launcher_that_leave_nothing_are_named() {
    if !is_here("mpiexec.hydra") {
        return;
    }
    // Hydra may end by SIGPIPE where ranks end at once.
    let outcome = launcher(["-spawner=pmi", "--stats", "-n", "2", "/bin/sleep", "0.3"])
        .env("PMIRUN_CMD", "mpiexec.hydra -n %N %C")
        .deadline("plain job of another launcher", BOUND)
        .run();
    outcome.expect(0);
    assert_said(&outcome, "nothing came from these ranks");
    assert_said(&outcome, ": 0 1");
}

/// Whether the statistics of a rank count something.
fn counts(stats: &str, name: &str) -> bool {
    let number = |line: &str| line.split_whitespace().nth(3).and_then(|n| n.parse::<u64>().ok());
    let mut lines = stats.lines().filter(|line| line.split_whitespace().nth(2) == Some(name));
    lines.any(|line| number(line) > Some(0))
}

#[test]
fn connections_fences_threads_and_the_registration_cache_are_counted() {
    let directory = tempfile::tempdir().expect("a directory");
    let pattern = directory.path().join("stats-%");
    let tree = traced(&[], 2, "remap").args(["1", "2"]);
    let outcome = neighbourhoods(tree, 1)
        .env("GASNET_STATSFILE", pattern.to_str().expect("a plain path"))
        .env("GASNET_CONNECT_STATIC", "0")
        .env("GASNET_USE_FENCED_PUTS", "1")
        .env("GASNET_SND_THREAD", "1")
        .env("GASNET_FIREHOSE_MAXVICTIM_R", "4")
        .deadline("counted job", BOUND)
        .run();
    outcome.expect(0);
    let read = |rank: u32| {
        std::fs::read_to_string(directory.path().join(format!("stats-{rank}"))).expect("statistics")
    };
    let both = [read(0), read(1)].join("\n");
    let mut names = vec![
        "CONN_DYNAMIC",
        "POST_SR",
        "POST_SR_SPLIT",
        "SND_REAP",
        "SND_REAP_THR",
        "RDMA_PUT_ZEROCP",
        "RDMA_GET_ZEROCP",
    ];
    let cache =
        ["HIT", "PIN", "UNPIN", "EVICT", "UNMAP", "MOVE"].map(|one| format!("FIREHOSE_{one}"));
    if counts(&both, "FIREHOSE_PIN") {
        names.extend(cache.iter().map(String::as_str));
    } else {
        skip("counters of the registration cache", "no userfaultfd here");
    }
    for name in names {
        assert!(counts(&both, name), "{name} is not counted: {both}");
    }
    // One rank asks and the other answers, or both ask at once and take that for an answer.
    assert!(counts(&both, "CONN_TIME_ACTV"), "{both}");
    let one_asks = ["CONN_TIME_PASV", "CONN_TIME_A2P"].iter().any(|name| counts(&both, name));
    let answered = one_asks && counts(&both, "CONN_REP") || counts(&both, "CONN_AAA");
    assert!(answered, "{both}");
}

#[test]
fn plain_programs_leave_nothing_and_that_is_said() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("job.json");
    let file = path.to_str().expect("a plain path");
    let outcome = launcher(["--trace", file, "--stats", "-n", "2", "/bin/true"])
        .deadline("plain job", BOUND)
        .run();
    outcome.expect(0);
    assert_said(&outcome, "nothing recorded");
    let timeline = Timeline::read(&path);
    assert_eq!(timeline.whole["otherData"]["ranks without records"], 2);
}
