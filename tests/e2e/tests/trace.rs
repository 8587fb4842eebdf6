//! `--trace`, `--stats` and the variables of the same: what is in the files, also after a kill, and
//! that nothing is left.

#[path = "timeline/mod.rs"]
mod timeline;

use std::path::Path;
use std::time::{Duration, Instant};

use bootstrap::trace::{Kind, Slot};
use e2e::recorded::until_recorded;
use nix::sys::signal::Signal;
use serde_json::Value;
use testkit::apart::{neighbourhoods, ranks};
use testkit::process::{Process, send, variable};
use testkit::report::skip;
use testkit::{Outcome, Running, Tree, binary, launcher};
use timeline::Timeline;

const BOUND: Duration = Duration::from_secs(60);

/// `gasnetrun_ibv OPTIONS -n RANKS PROGRAM`.
fn traced(options: &[&str], count: u32, program: &str) -> Tree {
    launcher(options.iter().copied())
        .args(["-n", &count.to_string()])
        .arg(binary(program))
        .deadline("traced job", BOUND)
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
    // In the middle: there are more records than the memory holds.
    until_recorded(found[0].pid, 3, |slot| slot.lost > 0);
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
    let directory = tempfile::tempdir().expect("a directory");
    // Nobody can make a file there, root included.
    let cases = [
        (directory.path().display().to_string(), "Is a directory"),
        ("/sys/job.json".to_owned(), "Permission denied"),
    ];
    for (file, why) in cases {
        let outcome = traced(&["--trace", &file], 2, "ring").run();
        outcome.expect(125);
        assert_said(&outcome, &format!("--trace {file}: cannot write it: {why}"));
        assert_eq!(outcome.err().matches(&file).count(), 1, "{}", outcome.err());
    }
}

#[test]
fn a_full_disk_under_the_timeline_leaves_the_jobs_code() {
    // What cannot be cut is left as it is; the reason is that of the first failure.
    for code in ["1", "3"] {
        let outcome = traced(&["--trace", "/dev/full", "--stats"], 2, "testexit").arg(code).run();
        outcome.expect(code.parse().expect("a number"));
        assert_said(&outcome, "--trace /dev/full: No space left on device");
        assert_eq!(outcome.err().matches("/dev/full").count(), 1, "{}", outcome.err());
        assert_one_table(&outcome);
    }
}

#[test]
fn a_limit_of_the_length_of_files_that_comes_in_the_middle_of_a_job_cuts_the_timeline() {
    if !is_here("prlimit") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("job.json");
    let file = path.to_str().expect("a plain path");
    let running = traced(&["--trace", file], 2, "ring").arg("100000000").start();
    let found = ranks(&running, "ring", 2);
    until_recorded(found[0].pid, 2, |slot| slot.records.len() > 1000);
    // The launcher has the ranks' agent as its child.
    let agent = Process::read(found[0].parent).expect("the agent is there");
    let words = ["--pid", &agent.parent.to_string(), "--fsize=16384"];
    let done = std::process::Command::new("prlimit").args(words).status();
    assert!(done.is_ok_and(|status| status.success()), "prlimit {words:?}");
    assert!(send(found[1].pid, Signal::SIGKILL));
    let outcome = running.wait();
    outcome.expect(137);
    let timeline = Timeline::read(&path);
    assert!(timeline.whole["otherData"]["cut"].is_string());
    assert_said(&outcome, &format!("--trace {file}: File too large (os error 27): cut after"));
    assert_alone(&path);
}

/// Calls of other launchers, by their programs.
const HYDRA: (&str, &str) = ("mpiexec.hydra", "mpiexec.hydra -n %N %C");
const OPEN_MPI: (&str, &str) = ("mpirun.openmpi", "mpirun.openmpi --oversubscribe -np %N %C");

/// A traced job of 3 ranks that another launcher starts, called by `template`.
fn elsewhere(file: &str, template: &str) -> Tree {
    traced(&["-spawner=pmi", "--trace", file, "--stats"], 3, "ring")
        .env("PMIRUN_CMD", template)
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("GASNET_QUIET", "1")
        // mpirun does not wait for those that it kills.
        .grace(Duration::from_secs(2))
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
    timeline.assert_aligned();
    assert_eq!(timeline.whole["otherData"]["ranks without records"], 0);
    assert_one_table(outcome);
    assert!(!outcome.err().contains("nothing recorded"), "{}", outcome.err());
    assert_alone(path);
}

fn assert_one_table(outcome: &Outcome) {
    assert_eq!(outcome.err().matches("statistics").count(), 1, "{}", outcome.err());
}

/// No other file is where the trace is.
fn assert_alone(path: &Path) {
    let all = path.parent().expect("a directory").read_dir().expect("it can be read");
    let all: Vec<_> = all.flatten().map(|entry| entry.path()).collect();
    assert_eq!(all, [path]);
}

#[test]
fn ranks_of_another_launcher_write_into_the_memory_of_ours() {
    for (program, template) in [HYDRA, OPEN_MPI] {
        if is_here(program) {
            let directory = tempfile::tempdir().expect("a directory");
            let path = directory.path().join("job.json");
            let outcome = elsewhere(path.to_str().expect("a plain path"), template).run();
            assert_gathered(&path, &outcome);
        }
    }
}

/// Whether a rank has recorded that it sent something.
fn has_sent(slot: &Slot) -> bool {
    slot.records.iter().any(|record| record.kind == Kind::Sent)
}

/// A process of a job whose environment has this variable, and its value.
fn with_variable(running: &Running, name: &str) -> (i32, String) {
    let begin = Instant::now();
    loop {
        for process in running.descendants() {
            if !process.command.starts_with("(ring)") {
                continue;
            }
            if let Some(value) = variable(process.pid, name) {
                return (process.pid, value);
            }
        }
        assert!(begin.elapsed() < BOUND, "no rank has {name}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_killed_rank_of_another_launcher_is_kept_and_the_key_is_in_no_command_line() {
    // By words of its own the third passes nothing; Hydra passes all.
    let unknown = (HYDRA.0, HYDRA.1, "unknown");
    let cases = [(HYDRA.0, HYDRA.1, ""), (OPEN_MPI.0, OPEN_MPI.1, ""), unknown];
    for (program, template, dialect) in cases.into_iter().filter(|case| is_here(case.0)) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("job.json");
        let mut tree = elsewhere(path.to_str().expect("a plain path"), template).arg("100000000");
        if !dialect.is_empty() {
            tree = tree.env("GASNET_IBV_DIALECT", dialect);
        }
        let running = tree.env("GASNET_TRACE_MEMORY", "256K").start();
        let (victim, key) = with_variable(&running, "GASNETRUN_TRACE_KEY");
        assert_eq!(key.len(), 32);
        until_recorded(victim, 3, has_sent);
        let seen = running.descendants().into_iter().filter(|one| one.command.contains(&key));
        assert_eq!(seen.collect::<Vec<_>>(), [], "{program} {dialect}");
        assert!(send(victim, Signal::SIGKILL));
        let outcome = running.wait();
        assert_ne!(outcome.code(), 0, "{}", outcome.err());
        let timeline = Timeline::read(&path);
        for rank in 0..3 {
            assert!(timeline.has(rank, "Short request to"), "{program}: rank {rank} left nothing");
        }
        assert!(!outcome.err().contains(&key) && !outcome.out().contains(&key));
        assert_one_table(&outcome);
        assert_alone(&path);
    }
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
    let outcome = elsewhere(path.to_str().expect("a plain path"), template).run();
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
