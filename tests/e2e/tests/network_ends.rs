//! Jobs over the software adapter whose network or start goes wrong: a rank that is cut off, a port
//! or a device that fails, a rank killed at any step of the start, limits that are too small. Each
//! ends, in bounded time, with the right code, naming the cause, and nothing survives.

#![expect(clippy::unwrap_used, reason = "what is missing here fails the test")]

use std::fmt::Write;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use testkit::apart::{neighbourhoods, rank_of};
use testkit::process::send;
use testkit::{Outcome, Running, Table, Tree, all_requested, binary, job, launcher};

/// Below the last resorts of the exit, above the patience of the network (8.6 s as it is) and what
/// a busy machine adds.
const BOUND: Duration = Duration::from_secs(40);

/// When the network fails in these jobs, after the adapter was opened, and when they begin to do
/// something, after all have met. The first must be later than the start of the job, the second
/// later than the first.
const FAILS: &str = "3s";
const BEGIN: &str = "4000";

/// A job of the workspace's program whose rank R has the address 127.0.0.(R+1), so that a script
/// can name it.
fn with_addresses(ranks: u32, program: &str, args: &[&str]) -> Tree {
    let script = "GASNET_IBV_SOFT_ADDRESS=127.0.0.$((GASNETRUN_RANK + 1)) exec \"$0\" \"$@\"";
    let tree = launcher(["-n", &ranks.to_string(), "/bin/sh", "-c", script]);
    let tree = tree.arg(binary(program)).args(args).env("GASNET_QUIET", "1");
    neighbourhoods(tree, 1).deadline("job with a network that fails", BOUND)
}

/// Script that cuts one rank off, in both directions.
fn cut(victim: u32, ranks: u32) -> String {
    let others = (0..ranks).filter(|rank| *rank != victim).map(|rank| rank.to_string());
    let others = others.collect::<Vec<_>>().join(",");
    format!("{victim}: partition=all@{FAILS}; {others}: partition=127.0.0.{}@{FAILS}", victim + 1)
}

/// Runs all jobs at the same time (they mostly wait) and judges each; shows a table.
fn all_at_once(title: &str, jobs: Vec<(String, Tree, Judge)>) {
    let done: Vec<(String, Outcome, Judge)> = std::thread::scope(|scope| {
        let run = |(name, tree, judge): (String, Tree, Judge)| {
            scope.spawn(move || (name, tree.run(), judge))
        };
        let threads: Vec<_> = jobs.into_iter().map(run).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut table = Table::new(title, &["job", "code", "ms"]);
    let mut faults = String::new();
    for (name, outcome, judge) in done {
        let fault = judge.fault(&outcome);
        let mark = if fault.is_some() { " !" } else { "" };
        table.row(vec![
            name.clone(),
            format!("{}{mark}", outcome.code()),
            outcome.ms().to_string(),
        ]);
        if let Some(fault) = fault {
            writeln!(faults, "{name}: {fault}\n{}\n{}", outcome.out(), outcome.err()).unwrap();
        }
    }
    table.show();
    assert!(faults.is_empty(), "{faults}");
}

/// What must be true of a job.
struct Judge {
    code: i32,
    /// Texts of standard error.
    says: Vec<String>,
    never: &'static str,
}

fn code(code: i32) -> Judge {
    Judge { code, says: Vec::new(), never: "TEST FAILED" }
}

impl Judge {
    fn says(mut self, texts: &[&str]) -> Self {
        self.says.extend(texts.iter().map(|text| (*text).to_owned()));
        self
    }

    /// The program itself notices: its own code, and no complaint about what it says.
    const fn noticed(mut self) -> Self {
        self.never = "panicked";
        self
    }

    fn fault(&self, outcome: &Outcome) -> Option<String> {
        let err = outcome.err();
        let missing = self.says.iter().find(|text| !err.contains(text.as_str()));
        let missing = missing.map(|text| format!("{text:?} is not said"));
        let never = err.contains(self.never).then(|| format!("said {:?}", self.never));
        outcome.fault(self.code).or(missing).or(never)
    }
}

/// A case of `testexit` that begins after a rank was cut off.
fn exit_after_cut(case: u32, ranks: u32, victim: u32) -> (String, Tree, Judge) {
    let name = format!("case {case}, rank {victim} of {ranks} cut off");
    let args = [case.to_string(), "--calm".into(), BEGIN.into(), "--delay".into(), "200".into()];
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let tree = with_addresses(ranks, "testexit", &args);
    (name, tree.env("GASNET_IBV_SOFT_FAULTS", cut(victim, ranks)), code(case.cast_signed()))
}

#[test]
fn a_rank_that_is_cut_off_does_not_keep_an_exit_from_ending() {
    // All together, returns from main, one alone (others in a barrier, spinning, polling), a
    // request to exit of ranks that are not cut off; the one that begins, the one in the middle and
    // rank 0 are cut off.
    let mut jobs: Vec<_> = [(1, 1), (2, 2), (3, 2), (5, 0), (9, 1), (11, 1), (54, 0)]
        .map(|(case, victim)| exit_after_cut(case, 3, victim))
        .into();
    if all_requested() {
        let cases = [1, 2, 3, 4, 5, 8, 9, 14, 51, 52, 53, 54];
        let pairs = cases.into_iter().flat_map(|case| [(case, 0), (case, 2), (case, 3)]);
        jobs.extend(pairs.map(|(case, victim)| exit_after_cut(case, 4, victim)));
    }
    while !jobs.is_empty() {
        let rest = jobs.split_off(jobs.len().min(8));
        all_at_once("Exits after a rank was cut off from the others", jobs);
        jobs = rest;
    }
}

#[test]
fn what_cannot_reach_a_rank_is_named_and_ends_the_job() {
    // A message, or what says that one was taken.
    let named = ["network: a", " between rank ", "the peer does not answer"];
    let tree = |program, args: &[&str], script: &str| {
        // Patience of 0.5 s.
        let tree = with_addresses(3, program, args).env("GASNET_QP_TIMEOUT", "14");
        tree.env("GASNET_IBV_SOFT_FAULTS", script)
    };
    let asks = ["11", "--calm", BEGIN];
    let down = format!("2: port-down=soft0:1@{FAILS}; 0,1: partition=127.0.0.3@{FAILS}");
    let ring = ["1000000000"];
    let mut jobs = vec![
        (
            "a request to a rank that is cut off".to_owned(),
            tree("testexit", &asks, &cut(2, 3)),
            code(99).says(&named).says(&["an active message between rank 0 and rank 2"]).noticed(),
        ),
        (
            "a ring with a rank that is cut off".to_owned(),
            tree("ring", &ring, &cut(1, 3)),
            code(1).says(&named),
        ),
        (
            "a port that goes down for good".to_owned(),
            tree("ring", &ring, &down),
            code(1).says(&named).says(&["rank 2: soft0 port 1: port 1 went down"]),
        ),
        (
            "a port that is down for a while".to_owned(),
            tree("testexit", &["1", "--calm", BEGIN], "1: port-down=soft0:1@2s+500ms"),
            code(1).says(&[
                "rank 1: soft0 port 1: port 1 went down",
                "rank 1: soft0 port 1: port 1 is up",
            ]),
        ),
        (
            "a device that fails".to_owned(),
            tree("ring", &ring, &format!("1: death={FAILS}")),
            code(1).says(&["network: soft0 port 1 on rank 1: the device failed"]),
        ),
        (
            "a queue pair that fails".to_owned(),
            tree("ring", &ring, "1: kill-qp=1st@1s"),
            code(1).says(&["network: a", " between rank "]),
        ),
    ];
    if all_requested() {
        // As it is: 8.6 s.
        let tree = tree("ring", &ring, &cut(1, 3)).env("GASNET_QP_TIMEOUT", "18");
        jobs.push((
            "a ring with a rank that is cut off, usual patience".to_owned(),
            tree,
            code(1).says(&named),
        ));
    }
    all_at_once("Networks that fail during a job", jobs);
}

#[test]
fn what_only_one_side_knows_to_be_cut_off_ends_the_job_too() {
    // Rank 2 hears nothing from a moment on; the others go on to send to it. Patience of 0.5 s.
    let tree = |program, args: &[&str], script: &str| {
        let tree = with_addresses(3, program, args).env("GASNET_QP_TIMEOUT", "14");
        tree.env("GASNET_IBV_SOFT_FAULTS", script)
    };
    let named = ["network: a", " between rank ", "the peer does not answer"];
    let asks = ["11", "--calm", BEGIN];
    let (cut, down) =
        (format!("2: partition=all@{FAILS}"), format!("2: port-down=soft0:1@{FAILS}"));
    let message = "an active message between rank 0 and rank 2";
    let jobs = vec![
        (
            "a request to a rank that does not hear".to_owned(),
            tree("testexit", &asks, &cut),
            code(99).says(&named).says(&[message]).noticed(),
        ),
        (
            "a request to a rank whose port is down".to_owned(),
            tree("testexit", &asks, &down),
            code(99).says(&named).says(&[message, "port 1 went down"]).noticed(),
        ),
        (
            "a ring with a rank that does not hear".to_owned(),
            tree("ring", &["1000000000"], &cut),
            code(1).says(&named),
        ),
    ];
    all_at_once("Networks of which one side fails during a job", jobs);
}

#[test]
fn limits_that_are_too_small_are_named() {
    let limited = |limit: u32| {
        let script = format!("ulimit -n {limit} && exec \"$0\" \"$@\"");
        let tree = launcher(["-n", "3", "/bin/sh", "-c", &script]).arg(binary("hello"));
        neighbourhoods(tree, 1).env("GASNET_QUIET", "1").deadline("few descriptors", BOUND)
    };
    let mut passed = 0;
    for limit in 4..26 {
        let outcome = limited(limit).run();
        if outcome.code() == 0 {
            passed += 1;
            continue;
        }
        assert_eq!(passed, 0, "{limit} descriptors do not suffice, but fewer did");
        assert_eq!(outcome.fault(1), None, "{limit}: {}", outcome.err());
        let err = outcome.err();
        assert!(err.contains("oo many open files"), "{limit} descriptors: {err}");
    }
    assert!(passed > 0, "25 descriptors do not suffice");
    // A device that cannot register memory says so as one under a limit on locked memory.
    for which in ["1st", "2nd", "3rd"] {
        let script = format!("1: register-fail={which}+");
        let tree = neighbourhoods(job(3, "ring"), 1).env("GASNET_IBV_SOFT_FAULTS", script);
        let outcome = tree.deadline("registration that fails", BOUND).run();
        assert_eq!(outcome.fault(1), None, "{which}: {}", outcome.err());
        assert!(outcome.err().contains("cannot register"), "{which}: {}", outcome.err());
    }
}

/// Waits for the process of a rank.
fn process_of(running: &Running, rank: u32) -> i32 {
    let limit = Instant::now() + BOUND;
    loop {
        let found =
            running.descendants().into_iter().find(|process| rank_of(process.pid) == Some(rank));
        if let Some(process) = found {
            return process.pid;
        }
        assert!(Instant::now() < limit, "rank {rank} never appears");
    }
}

#[test]
fn a_rank_killed_at_any_step_of_the_start_ends_the_job() {
    const RANKS: u32 = 4;
    let most = if all_requested() { 400 } else { 120 };
    // Finer where more happens.
    let mut delays = vec![0];
    while *delays.last().unwrap() < most {
        let last = *delays.last().unwrap();
        delays.push(last + if all_requested() { 3 } else { 3 + last / 3 });
    }
    let mut forced = Vec::new();
    let mut table = Table::new(
        "A rank killed so many milliseconds after it began to start, over the software adapter: milliseconds to the end",
        &["delay", "connected at the start", "connected on demand"],
    );
    for (turn, delay) in (0..).zip(delays) {
        let mut cells = vec![delay.to_string()];
        for is_static in ["1", "0"] {
            // All ranks send to each other at once, and for ever.
            let tree = launcher(["-v", "-v", "-n", &RANKS.to_string()]).arg(binary("testexit"));
            let tree = neighbourhoods(tree, 1).args(["55", "2", "--delay", "60000"]);
            let tree =
                tree.env("GASNET_CONNECT_STATIC", is_static).deadline("killed at the start", BOUND);
            let running = tree.start();
            let victim = process_of(&running, turn % RANKS);
            std::thread::sleep(Duration::from_millis(delay));
            assert!(send(victim, Signal::SIGKILL));
            let begin = Instant::now();
            let outcome = running.wait();
            let what = format!("{delay} ms, static {is_static}");
            assert_eq!(outcome.fault(128 + 9), None, "{what}: {}", outcome.err());
            assert!(begin.elapsed() < Duration::from_secs(10), "{what}: {:?}", begin.elapsed());
            let err = outcome.err();
            assert!(
                err.contains("signal 9") && err.contains(&format!("rank {}", turn % RANKS)),
                "{what}: {err}"
            );
            // The others end by themselves, also one that is told while it is inside the network.
            let is_forced = err.contains("action End(9)");
            if is_forced {
                forced.push(what);
            }
            let mark = if is_forced { " !" } else { "" };
            cells.push(format!("{}{mark}", begin.elapsed().as_millis()));
        }
        table.row(cells);
    }
    table.show();
    // One may have had no processor for the whole grace.
    assert!(forced.len() <= 1, "ranks had to be killed: {forced:?}");
}
