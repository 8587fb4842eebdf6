//! Every rank on a "host" of its own on this host, over the software adapter: the same programs, the same results, the same
//! ends as over shared memory, and nothing that survives.

#![expect(clippy::unwrap_used, reason = "what is missing here fails the test")]

#[expect(dead_code, reason = "the suite of C programs uses all of it")]
#[path = "c_suite/build.rs"]
mod build;

use std::fmt::Write;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use testkit::process::{Process, send};
use testkit::{Outcome, Running, Table, Tree, all_requested, job, launcher};

/// Far above what any of these takes, below the last resorts of the exit.
const BOUND: Duration = Duration::from_secs(30);

/// The whole job goes over the software adapter: no two ranks share memory.
fn apart(tree: Tree) -> Tree {
    neighbourhoods(tree, "1").deadline("job over the network", BOUND)
}

fn neighbourhoods(tree: Tree, most: &str) -> Tree {
    tree.env("GASNET_SUPERNODE_MAXSIZE", most).env("GASNET_IBV_FABRIC", "soft")
}

/// Settings that change how messages travel; each must give the same results.
const WAYS: [(&str, &[(&str, &str)]); 6] = [
    ("as it is", &[]),
    ("connections on demand", &[("GASNET_CONNECT_STATIC", "0")]),
    ("shared receive queue", &[("GASNET_USE_SRQ", "1")]),
    ("receive queues of their own", &[("GASNET_USE_SRQ", "0")]),
    ("small MTU", &[("GASNET_MAX_MTU", "256")]),
    ("two devices", &[("GASNET_IBV_SOFT_DEVICES", "2"), ("GASNET_NUM_QPS", "2")]),
];

#[test]
fn hello_and_ring_in_every_way() {
    let counts = [2, 3, 4];
    let columns = ["way", "hello 2", "3", "4", "ring 2", "3", "4"];
    let mut table = Table::new("Jobs over the software adapter, milliseconds", &columns);
    let mut faults = String::new();
    for (way, variables) in WAYS {
        let mut cells = vec![way.to_owned()];
        for program in ["hello", "ring"] {
            for ranks in counts {
                let tree = variables
                    .iter()
                    .fold(apart(job(ranks, program)), |tree, (name, value)| tree.env(name, value));
                let outcome = tree.run();
                let out = outcome.out();
                let right = match program {
                    "hello" => {
                        (0..ranks).all(|rank| out.contains(&format!("rank {rank} of {ranks} on ")))
                    }
                    _ => out
                        .contains(&format!("around {ranks} ranks: {} steps in order", 100 * ranks)),
                };
                let fault = outcome.fault(0).or_else(|| (!right).then(|| format!("printed {out}")));
                cells.push(outcome.ms().to_string());
                if let Some(fault) = fault {
                    cells.last_mut().unwrap().push_str(" !");
                    writeln!(faults, "{program} on {ranks}, {way}: {fault}\n{}", outcome.err())
                        .unwrap();
                }
            }
        }
        table.row(cells);
    }
    table.show();
    assert!(faults.is_empty(), "{faults}");
}

#[test]
fn words_are_counted_as_over_shared_memory() {
    let files = testkit::texts::files(if all_requested() { 2000 } else { 200 });
    if files.len() < 10 {
        testkit::skip("wordcount over the network", "fewer than 10 text files below /usr/share");
        return;
    }
    let count = |tree: Tree| {
        let tree = tree.args(["-k", "2000"]).args(&files);
        let outcome = tree.deadline("wordcount", Duration::from_secs(120)).run();
        outcome.expect(0);
        // The last line has the time.
        let out = outcome.out();
        let lines = out.lines().filter(|line| !line.contains(" distinct, ")).map(str::to_owned);
        lines.collect::<Vec<_>>()
    };
    let expected = count(job(3, "wordcount"));
    assert!(expected.len() > 100, "{expected:?}");
    for (ranks, most) in [(2, "1"), (4, "1"), (5, "2"), (4, "3")] {
        let found = count(neighbourhoods(job(ranks, "wordcount"), most));
        assert!(found == expected, "{ranks} ranks in neighbourhoods of {most} count otherwise");
    }
}

fn exit_case(ranks: u32, number: u32, reversed: bool) -> Tree {
    let tree = job(ranks, "testexit").arg(number.to_string()).args(["--delay", "150"]);
    let tree = apart(tree).env("GASNET_BACKTRACE_TYPE", "EXECINFO");
    if reversed { tree.arg("--reversed") } else { tree }
}

#[test]
fn every_exit_case_ends_with_its_code() {
    let counts: &[u32] = if all_requested() { &[2, 3, 4, 8] } else { &[2, 3] };
    let mut cases: Vec<(u32, bool)> = (1..=15).chain(51..=55).map(|case| (case, false)).collect();
    cases.extend([3, 5, 9, 11, 13].map(|case| (case, true)));
    cases.extend([(102, false), (103, false), (104, false)]);
    let mut table = Table::new(
        "Exit cases over the software adapter: code of the job, milliseconds (! = wrong)",
        &["case", "2 ranks", "3 ranks", "4 ranks", "8 ranks"],
    );
    let mut faults = String::new();
    for (number, reversed) in cases {
        let name = format!("{number}{}", if reversed { " reversed" } else { "" });
        let mut cells = vec![name.clone()];
        let code = match number {
            102 | 103 => 128 + 6,
            104 => 128 + 11,
            number => number.cast_signed(),
        };
        for ranks in counts {
            let outcome = exit_case(*ranks, number, reversed).run();
            let returned = outcome.err().contains("TEST FAILED");
            let fault = outcome
                .fault(code)
                .or_else(|| returned.then(|| "a call returned that must not".into()));
            cells.push(format!("{}: {}", outcome.code(), outcome.ms()));
            if let Some(fault) = fault {
                cells.last_mut().unwrap().push_str(" !");
                writeln!(faults, "case {name} on {ranks} ranks: {fault}\n{}", outcome.err())
                    .unwrap();
            }
        }
        table.row(cells);
    }
    table.show();
    assert!(faults.is_empty(), "{faults}");
}

/// The rank that a process is.
fn rank_of(pid: i32) -> u32 {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let text = String::from_utf8_lossy(&environment).into_owned();
    let value = text.split('\0').find_map(|word| word.strip_prefix("GASNETRUN_RANK="));
    value.and_then(|value| value.parse().ok()).unwrap_or(u32::MAX)
}

/// The processes of the ranks, in rank order.
fn ranks(running: &Running, program: &str, count: usize) -> Vec<Process> {
    let limit = Instant::now() + BOUND;
    loop {
        let mut found = running.descendants();
        found.retain(|process| process.command.contains(program));
        // The front and its forks carry the program's name among their own arguments.
        found.retain(|process| !process.command.contains("gasnetrun_ibv"));
        if found.len() == count {
            let rank = |process: &Process| rank_of(process.pid);
            found.sort_by_key(rank);
            return found;
        }
        assert!(Instant::now() < limit, "never {count} ranks, but {found:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_killed_rank_ends_the_job_whatever_the_others_do() {
    // 3: the others are in a barrier; 5 and 9: they spin and never look; 54: threads poll.
    for case in ["3", "5", "9", "54"] {
        let tree = job(3, "testexit").args([case, "--delay", "20000"]);
        let running = apart(tree).start();
        running.wait_stderr(&format!("case {case}"), 1);
        let victims = ranks(&running, "testexit", 3);
        std::thread::sleep(Duration::from_millis(200));
        assert!(send(victims[1].pid, Signal::SIGKILL));
        let begin = Instant::now();
        let outcome = running.wait();
        outcome.expect(128 + 9);
        assert!(begin.elapsed() < Duration::from_secs(10), "case {case}: {:?}", begin.elapsed());
        assert!(
            outcome.err().contains("killed") || outcome.err().contains("signal 9"),
            "{}",
            outcome.err()
        );
    }
}

#[test]
fn a_stopped_rank_does_not_keep_an_exit_from_ending() {
    // Rank 2 exits after its delay; rank 1 cannot take part in anything.
    let running = apart(job(3, "testexit").args(["3", "--delay", "3000"]))
        .env("GASNET_EXITTIMEOUT", "2")
        .start();
    running.wait_stderr("case 3", 1);
    let all = ranks(&running, "testexit", 3);
    // The line comes before the last barrier.
    std::thread::sleep(Duration::from_secs(1));
    assert!(send(all[1].pid, Signal::SIGSTOP));
    let outcome = running.wait();
    assert!([3, 4].contains(&outcome.code()), "{}\n{}", outcome.code(), outcome.err());
    assert!(outcome.survivors.is_empty(), "{:?}", outcome.survivors);
    assert!(outcome.duration < Duration::from_secs(20), "{:?}", outcome.duration);
}

#[test]
fn c_programs_pass_over_the_network() {
    if !build::ready() {
        return;
    }
    let names = [
        "hello",
        "am_arguments",
        "am_negotiated",
        "am_torture",
        "broadcast",
        "events",
        "flags",
        "flood",
        "legacy",
        "limits",
        "rma",
        "waiting",
    ];
    let mut table = Table::new(
        "C programs over the software adapter, milliseconds (! = wrong)",
        &["program", "2 ranks", "4 in two neighbourhoods"],
    );
    let mut faults = String::new();
    for name in names {
        let program = build::built(name, "seq", build::Kind::Static);
        let mut cells = vec![name.to_owned()];
        for (ranks, most) in [(2, "1"), (4, "2")] {
            let tree = neighbourhoods(launcher(["-n", &ranks.to_string()]).arg(&program), most);
            let outcome: Outcome =
                tree.deadline("C program over the network", Duration::from_secs(120)).run();
            let said = outcome.out().matches(&format!("PASS {name}\n")).count();
            let fault =
                outcome.fault(0).or_else(|| (said != 1).then(|| format!("said PASS {said} times")));
            cells.push(outcome.ms().to_string());
            if let Some(fault) = fault {
                cells.last_mut().unwrap().push_str(" !");
                writeln!(faults, "{name} on {ranks} ranks: {fault}\n{}", outcome.err()).unwrap();
            }
        }
        table.row(cells);
    }
    table.show();
    assert!(faults.is_empty(), "{faults}");
}

#[test]
fn what_cannot_be_had_is_said_by_name() {
    let run = |variables: &[(&str, &str)]| {
        let tree = job(2, "hello").env("GASNET_SUPERNODE_MAXSIZE", "1").deadline("refusal", BOUND);
        variables.iter().fold(tree, |tree, (name, value)| tree.env(name, value)).run()
    };
    for (variables, words) in [
        (&[("GASNET_IBV_FABRIC", "pigeon")][..], &["GASNET_IBV_FABRIC", "pigeon"][..]),
        (
            &[("GASNET_IBV_FABRIC", "soft"), ("GASNET_IBV_SOFT_DEVICES", "99")],
            &["GASNET_IBV_SOFT_DEVICES"],
        ),
        (
            &[("GASNET_IBV_FABRIC", "soft"), ("GASNET_IBV_SOFT_FAULTS", "nonsense")],
            &["GASNET_IBV_SOFT_FAULTS"],
        ),
        // A thread that runs handlers is nothing for a program of mode SEQ.
        (
            &[("GASNET_IBV_FABRIC", "soft"), ("GASNET_RCV_THREAD", "1")],
            &["GASNET_RCV_THREAD", "SEQ"],
        ),
    ] {
        let outcome = run(variables);
        assert_ne!(outcome.code(), 0, "{variables:?}");
        assert!(outcome.survivors.is_empty(), "{variables:?}: {:?}", outcome.survivors);
        let err = outcome.err();
        let missing = words.iter().find(|word| !err.contains(**word));
        assert!(missing.is_none(), "{variables:?}: {missing:?} is not in\n{err}");
    }
}

#[test]
fn without_an_adapter_the_choice_says_why() {
    if std::fs::read_dir("/sys/class/infiniband").is_ok_and(|mut devices| devices.next().is_some())
    {
        testkit::skip("choice of the fabric without an adapter", "this host has an adapter");
        return;
    }
    let tree = || job(2, "hello").env("GASNET_SUPERNODE_MAXSIZE", "1").deadline("choice", BOUND);
    let outcome = tree().run();
    outcome.expect(0);
    let line = "gasnet_ibv: the job uses the software adapter (TCP): ";
    assert_eq!(outcome.err().matches(line).count(), 1, "{}", outcome.err());
    let outcome = tree().env("GASNET_IBV_FABRIC", "verbs").run();
    outcome.expect(1);
    assert!(outcome.err().contains("verbs was asked for"), "{}", outcome.err());
}
