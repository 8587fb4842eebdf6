//! Every way to end a job × ranks: exit code, duration, survivors. Prints the table.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Mutex;
use std::time::Duration;

use testkit::{Outcome, Table, all_requested, job};

/// What the acting rank waits for the others, milliseconds.
const DELAY: u64 = 150;
/// Far above what any case takes, below the protocol's own last resort at 64 ranks.
const BOUND: Duration = Duration::from_secs(15);
/// Every rank reads the debug information of the program for its backtrace: that takes a processor
/// seconds, and 64 ranks share a few.
const BACKTRACE_BOUND: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Case {
    number: u32,
    reversed: bool,
}

impl Case {
    fn name(self) -> String {
        format!("{}{}", self.number, if self.reversed { " reversed" } else { "" })
    }

    /// Exit code of the job.
    fn code(self) -> i32 {
        match self.number {
            number @ 1..=55 => number.cast_signed(),
            number => match number % 100 {
                0 | 1 => 0,
                2 | 3 => 128 + 6,
                4 => 128 + 11,
                5 => 128 + 7,
                _ => 128 + 8,
            },
        }
    }

    fn run(self, ranks: u32) -> Outcome {
        let delay = DELAY.to_string();
        let mut tree = job(ranks, "testexit").arg(self.number.to_string());
        let bound = if self.code() == 0 { BACKTRACE_BOUND } else { BOUND };
        tree = tree.args(["--delay", &delay]).deadline("exit case", bound);
        // The same on all machines, and without a debugger's start-up time.
        tree = tree.env("GASNET_BACKTRACE_TYPE", "EXECINFO");
        if self.reversed { tree.arg("--reversed").run() } else { tree.run() }
    }

    fn fault(self, outcome: &Outcome) -> Option<String> {
        if outcome.err().contains("TEST FAILED") {
            return Some("a call returned that must not".to_owned());
        }
        outcome.fault(self.code())
    }
}

fn cases() -> Vec<Case> {
    let crashes = (0..4).flat_map(|variant| (100..=106).map(move |case| case + variant * 100));
    let forward = (1..=15).chain(51..=55).chain(crashes);
    let forward = forward.map(|number| Case { number, reversed: false });
    // Where nobody is "last", the other direction is the same.
    let lone = [3, 4, 5, 7, 8, 9, 11, 12, 13, 14, 15, 52, 53, 54, 55, 102, 103, 104, 105, 106];
    forward.chain(lone.map(|number| Case { number, reversed: true })).collect()
}

#[test]
fn every_exit_case_on_every_number_of_ranks() {
    let counts = [1, 2, 3, 8, 64];
    // 64 ranks the other way round only in the long run.
    let wanted = |case: Case, ranks: u32| all_requested() || ranks < 64 || !case.reversed;
    let all: Vec<(Case, u32)> = counts
        .into_iter()
        .flat_map(|ranks| cases().into_iter().map(move |case| (case, ranks)))
        .filter(|(case, ranks)| wanted(*case, *ranks))
        .collect();
    // Two jobs at a time: most of the time of a case is its delay. The big ones run alone.
    let (many, few): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, ranks)| *ranks == 64);
    let cells = Mutex::new(BTreeMap::new());
    let faults = Mutex::new(String::new());
    let run = |list: &[(Case, u32)]| {
        for (case, ranks) in list {
            let outcome = case.run(*ranks);
            let mut cell = format!("{}: {} ms", outcome.code(), outcome.ms());
            if let Some(fault) = case.fault(&outcome) {
                cell.push_str(" !");
                let mut faults = faults.lock().unwrap();
                let (name, err) = (case.name(), outcome.err());
                writeln!(faults, "case {name} on {ranks} ranks: {fault}\n{err}").unwrap();
            }
            cells.lock().unwrap().insert((*case, *ranks), cell);
        }
    };
    let (one, two) = few.split_at(few.len() / 2);
    std::thread::scope(|scope| {
        scope.spawn(|| run(one));
        run(two);
    });
    run(&many);

    let columns = ["case", "1 rank", "2 ranks", "3 ranks", "8 ranks", "64 ranks"];
    let title = "Exit cases: code of the job and time from launch to return (! = wrong)";
    let mut table = Table::new(title, &columns);
    let cells = cells.into_inner().unwrap();
    for case in cases() {
        let cell = |ranks: u32| cells.get(&(case, ranks)).cloned().unwrap_or_else(|| "-".into());
        table.row([case.name()].into_iter().chain(counts.map(cell)).collect());
    }
    table.show();
    let faults = faults.into_inner().unwrap();
    assert!(faults.is_empty(), "{faults}");
}

/// How often each rank's own SIGQUIT handler ran. (The launcher's summary repeats last lines,
/// indented.)
fn handler_runs(outcome: &Outcome, ranks: u32) -> Vec<usize> {
    let err = outcome.err();
    let line = |rank: u32| format!("testexit: SIGQUIT handler on rank {rank:04}");
    (0..ranks).map(|rank| err.lines().filter(|seen| *seen == line(rank)).count()).collect()
}

#[test]
fn the_users_quit_handler_runs_exactly_once_on_every_rank_that_did_not_ask_for_the_end() {
    for repetition in 0..5 {
        for (number, expected) in [
            (1, [0, 0, 0, 0]),
            (3, [1, 1, 1, 0]),
            (4, [1, 1, 1, 1]),
            (5, [1, 1, 1, 0]),
            (7, [1, 1, 1, 0]),
            (8, [1, 1, 1, 0]),
            (9, [1, 1, 1, 0]),
        ] {
            let case = Case { number, reversed: false };
            let outcome = case.run(4);
            outcome.expect(case.code());
            let seen = handler_runs(&outcome, 4);
            assert_eq!(seen, expected, "case {number}, run {repetition}: {}", outcome.err());
        }
    }
}

#[test]
fn a_crash_prints_a_backtrace_when_asked_to() {
    let gdb = std::process::Command::new("gdb").arg("--version").output().is_ok();
    if !gdb {
        testkit::skip("backtraces by gdb", "gdb is not installed");
    }
    for mechanism in ["EXECINFO", "GDB"] {
        if mechanism == "GDB" && !gdb {
            continue;
        }
        for number in [100, 101, 102, 103, 104, 304] {
            let outcome = job(2, "testexit")
                .args([number.to_string().as_str(), "--delay", "50"])
                .env("GASNET_BACKTRACE", "1")
                .env("GASNET_BACKTRACE_TYPE", mechanism)
                .deadline("crash with backtrace", BACKTRACE_BOUND)
                .run();
            outcome.expect(Case { number, reversed: false }.code());
            let err = outcome.err();
            // Names depend on what was inlined, the place does not.
            let frame = "src/bin/testexit.rs:";
            assert!(err.contains(frame), "case {number} by {mechanism}: no {frame:?} in\n{err}");
        }
    }
}
