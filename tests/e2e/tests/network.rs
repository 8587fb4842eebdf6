//! Every rank on a "host" of its own on this host, over the software adapter: the same programs,
//! the same results, the same ends as over shared memory, and nothing that survives.

use std::fmt::Write;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use testkit::apart::{neighbourhoods, ranks};
use testkit::process::send;
use testkit::{Table, Tree, all_requested, job};

/// Far above what any of these takes, below the last resorts of the exit.
const BOUND: Duration = Duration::from_secs(30);

/// The whole job goes over the software adapter: no two ranks share memory.
fn apart(tree: Tree) -> Tree {
    neighbourhoods(tree, 1).deadline("job over the network", BOUND)
}

/// Over two devices.
const FENCED: [(&str, &str); 5] = [
    ("GASNET_IBV_SOFT_DEVICES", "2"),
    ("GASNET_IBV_MAX_HCAS", "2"),
    ("GASNET_USE_FENCED_PUTS", "1"),
    ("GASNET_PUT_STRIPE_SZ", "4"),
    ("GASNET_GET_STRIPE_SZ", "4"),
];
const SECURE: (&str, &str) = ("GASNET_IBV_SOFT_SECURE", "1");
/// Settings that change how messages travel; each must give the same results.
const WAYS: [(&str, &[(&str, &str)]); 10] = [
    ("as it is", &[]),
    ("connections on demand", &[("GASNET_CONNECT_STATIC", "0")]),
    ("shared receive queue", &[("GASNET_USE_SRQ", "1")]),
    ("receive queues of their own", &[("GASNET_USE_SRQ", "0")]),
    ("small MTU", &[("GASNET_MAX_MTU", "256")]),
    ("two devices", &[("GASNET_IBV_SOFT_DEVICES", "2"), ("GASNET_IBV_MAX_HCAS", "2")]),
    ("a device of two for each rank", &[("GASNET_IBV_SOFT_DEVICES", "2")]),
    ("fenced puts, stripes", &FENCED),
    ("encrypted", &[SECURE]),
    ("encrypted, connections on demand", &[SECURE, ("GASNET_CONNECT_STATIC", "0")]),
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

/// Threads that give memory back to the system and take it again, under the registration cache.
#[test]
fn memory_that_comes_and_goes_is_transferred_as_it_is() {
    const SETTINGS: [(&str, &str); 3] = [
        ("GASNET_FIREHOSE_MAXVICTIM_R", "4"),
        ("GASNET_USE_FIREHOSE", "0"),
        ("GASNET_FIREHOSE_MAXREGION_SIZE", "0"),
    ];
    let seconds = if all_requested() { "60" } else { "2" };
    let ways = [None].into_iter().chain(SETTINGS.map(Some));
    for (turn, way) in ways.enumerate() {
        let tree = apart(job(2, "remap")).arg(if turn == 0 { seconds } else { "1" }).arg("2");
        let tree = tree.deadline("job over the network", 3 * BOUND);
        let outcome = match way {
            Some((name, value)) => tree.env(name, value),
            None => tree.env("GASNET_FIREHOSE_VERBOSE", "1"),
        }
        .run();
        outcome.expect(0);
        let (out, err) = (outcome.out(), outcome.err());
        assert_eq!(out.matches("all bytes as they were put").count(), 2, "{way:?}: {out}");
        let told =
            err.contains("registered memory outside segments") || err.contains("userfaultfd");
        assert!(way.is_some() || told, "{err}");
    }
}

/// The documents' defaults, said aloud, are no error anywhere.
#[test]
fn what_adapters_lack_ends_no_job() {
    for (name, value) in [
        ("GASNET_USE_ODP", "1"),
        ("GASNET_ODP_VERBOSE", "3"),
        ("GASNET_PHYSMEM_MAX", "2/3"),
        ("GASNET_PHYSMEM_PROBE", "1"),
        ("GASNET_PINNED_REGIONS_MAX", "0.5"),
    ] {
        let outcome = apart(job(2, "hello")).env(name, value).run();
        outcome.expect(0);
        assert!(!outcome.err().contains(name), "{}", outcome.err());
    }
    let outcome = apart(job(2, "hello")).env("GASNET_PINNED_REGIONS_MAX", "3").run();
    outcome.expect(1);
    assert!(outcome.err().contains("GASNET_PINNED_REGIONS_MAX"), "{}", outcome.err());
}

#[test]
fn a_histogram_is_that_of_a_serial_run() {
    let histogram = |ranks| job(ranks, "histogram").arg("3000");
    let trees = [histogram(3), apart(histogram(3)), neighbourhoods(histogram(4), 2)];
    for (tree, ranks) in trees.into_iter().zip([3, 3, 4]) {
        let outcome = tree.run();
        outcome.expect(0);
        let words = format!("{} values in 64 bins of {ranks} ranks", 3000 * ranks);
        assert!(outcome.out().contains(&words), "{}", outcome.out());
    }
}

#[test]
fn a_sample_sort_is_that_of_a_serial_run() {
    let sort = |ranks| job(ranks, "sample_sort").arg("3000");
    let trees = [sort(3), apart(sort(3)), neighbourhoods(sort(4), 2)];
    for (tree, ranks) in trees.into_iter().zip([3, 3, 4]) {
        let outcome = tree.run();
        outcome.expect(0);
        let words = format!("{} numbers in order on {ranks} ranks", 3000 * ranks);
        assert!(outcome.out().contains(&words), "{}", outcome.out());
    }
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
    for (ranks, most) in [(2, 1), (4, 1), (5, 2), (4, 3)] {
        let found = count(neighbourhoods(job(ranks, "wordcount"), most));
        assert!(found == expected, "{ranks} ranks in neighbourhoods of {most} count otherwise");
    }
}

fn exit_case((ranks, most): (u32, u32), number: u32, reversed: bool) -> Tree {
    let tree = job(ranks, "testexit").arg(number.to_string()).args(["--delay", "150"]);
    let tree = neighbourhoods(tree, most).deadline("exit case over the network", BOUND);
    let tree = tree.env("GASNET_BACKTRACE_TYPE", "EXECINFO");
    if reversed { tree.arg("--reversed") } else { tree }
}

/// Ranks, and how many of them at most share memory. The short run has the first, and one of the
/// next five in turns.
const LAYOUTS: [(u32, u32); 8] = [(2, 1), (3, 1), (3, 2), (4, 2), (5, 2), (5, 3), (4, 1), (8, 1)];
const ALWAYS: usize = 1;
const IN_TURNS: usize = 5;

fn exit_cases() -> Vec<(u32, bool)> {
    let mut cases: Vec<(u32, bool)> = (1..=15).chain(51..=55).map(|case| (case, false)).collect();
    cases.extend([3, 4, 5, 7, 8, 9, 11, 12, 13, 14, 15, 52, 53, 54, 55].map(|case| (case, true)));
    cases.extend([(102, false), (103, false), (104, false), (204, false), (304, false)]);
    cases
}

/// What is wrong with the end of a case, if anything.
fn wrong_end(number: u32, outcome: &testkit::Outcome) -> Option<String> {
    let code = match number {
        102 | 103 => 128 + 6,
        104 | 204 | 304 => 128 + 11,
        number => number.cast_signed(),
    };
    let returned = outcome.err().contains("TEST FAILED");
    outcome.fault(code).or_else(|| returned.then(|| "a call returned that must not".into()))
}

#[test]
fn every_exit_case_ends_with_its_code() {
    let names = LAYOUTS.map(|(ranks, most)| format!("{ranks} by {most}"));
    let columns: Vec<&str> =
        std::iter::once("case").chain(names.iter().map(String::as_str)).collect();
    let title = "Exit cases over the software adapter, ranks by ranks that share memory: code of the job, milliseconds (! = wrong)";
    let mut table = Table::new(title, &columns);
    let mut faults = String::new();
    for (turn, (number, reversed)) in exit_cases().into_iter().enumerate() {
        let name = format!("{number}{}", if reversed { " reversed" } else { "" });
        let mut cells = vec![name.clone()];
        for (column, layout) in LAYOUTS.into_iter().enumerate() {
            if !all_requested() && column >= ALWAYS && column != ALWAYS + turn % IN_TURNS {
                cells.push("-".to_owned());
                continue;
            }
            let outcome = exit_case(layout, number, reversed).run();
            let fault = wrong_end(number, &outcome);
            cells.push(format!("{}: {}", outcome.code(), outcome.ms()));
            if let Some(fault) = fault {
                cells.last_mut().unwrap().push_str(" !");
                writeln!(faults, "case {name} in {layout:?}: {fault}\n{}", outcome.err()).unwrap();
            }
        }
        table.row(cells);
    }
    table.show();
    assert!(faults.is_empty(), "{faults}");
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
            &["Error: setting GASNET_IBV_SOFT_FAULTS: fault script, column 1: \"nonsense\" is not"],
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
        // As words, not as a value of the program.
        assert!(!err.contains("Network(") && !err.contains("Setting {"), "{err}");
    }
}

/// Devices of which rank 0 uses a port, as its lists say: one of adapters, one of software devices.
fn used_devices(outcome: &testkit::Outcome) -> Vec<String> {
    let (mut own, mut device, mut used) = (false, "", Vec::new());
    let err = outcome.err();
    for line in err.lines() {
        if line.contains("adapters seen by rank ") {
            own = line.contains("adapters seen by rank 0 ");
        }
        let name = line.trim_start().split([',', ' ']).next().unwrap_or_default();
        if name.starts_with("soft") {
            device = name;
        } else if own && name == "port" && line.ends_with("(used)") {
            used.push(device.to_owned());
        }
    }
    used
}

#[test]
fn a_filter_chooses_software_devices_where_those_were_asked_for() {
    let run = |filter: &str| {
        let tree = apart(job(2, "hello")).env("GASNET_IBV_PORTS", filter);
        let tree = tree.env("GASNET_IBV_MAX_HCAS", "3");
        tree.env("GASNET_IBV_LIST_PORTS", "1").env("GASNET_IBV_SOFT_DEVICES", "3").run()
    };
    for (filter, devices) in
        [("soft1", &["soft1"][..]), ("soft0+soft2", &["soft0", "soft2"]), ("soft2:1", &["soft2"])]
    {
        let outcome = run(filter);
        outcome.expect(0);
        assert_eq!(used_devices(&outcome), devices, "{filter}: {}", outcome.err());
    }
    let outcome = run("mlx5_0");
    assert_eq!(outcome.fault(1), None, "{}", outcome.err());
    let err = outcome.err();
    let words = ["GASNET_IBV_PORTS=mlx5_0", "soft0", "soft2"];
    assert!(words.iter().all(|word| err.contains(word)), "{err}");
}

#[test]
fn each_rank_uses_a_device_of_its_own_in_turn() {
    let tree = |devices: &str| {
        let tree = apart(job(2, "hello")).env("GASNET_IBV_SOFT_DEVICES", devices);
        tree.env("GASNET_IBV_PORTS_VERBOSE", "2").run()
    };
    let outcome = tree("2");
    outcome.expect(0);
    let err = outcome.err();
    for line in ["rank 0: uses soft0:1, ", "rank 1: uses soft1:1, "] {
        assert!(err.contains(line), "{err}");
    }
    // All are in use.
    assert!(!err.contains("leaves out"), "{err}");
    let outcome = tree("4");
    outcome.expect(0);
    let err = outcome.err();
    let line = "rank 0: GASNET_IBV_MAX_HCAS=1 leaves out soft1, soft2, soft3: raise it";
    assert_eq!((err.matches(line).count(), err.matches("leaves out").count()), (1, 1), "{err}");
}

#[test]
fn a_mistake_in_a_filter_is_found_before_anything_starts() {
    for (name, filter, place) in [
        ("GASNET_IBV_PORTS", "soft0:x", "character 7"),
        ("GASNET_IBV_PORTS_0_1", "soft0+", "character 7"),
    ] {
        let outcome = apart(job(2, "hello")).env(name, filter).run();
        assert_ne!(outcome.code(), 0);
        let err = outcome.err();
        let line = format!("environment variable {name}={filter:?}: {place}: ");
        assert_eq!(err.matches(&line).count(), 1, "{err}");
        assert!(!outcome.out().contains("rank"), "{}", outcome.out());
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
    assert!(!outcome.err().contains("GASNET_IBV_PORTS"), "{}", outcome.err());
    // A filter was about adapters: what is used instead, and why, is said in the same line.
    let listed = |tree: Tree| {
        let tree = tree.env("GASNET_IBV_LIST_PORTS", "1").env("GASNET_IBV_SOFT_DEVICES", "2");
        tree.env("GASNET_IBV_MAX_HCAS", "2")
    };
    let outcome = listed(tree()).env("GASNET_IBV_PORTS", "mlx5_7").run();
    outcome.expect(0);
    let err = outcome.err();
    let said: Vec<&str> = err.lines().filter(|one| one.starts_with(line)).collect();
    let words =
        ["GASNET_IBV_PORTS=mlx5_7 counts for adapters only", "any software device may be used"];
    assert!(said.len() == 1 && words.iter().all(|word| said[0].contains(word)), "{err}");
    assert_eq!(used_devices(&outcome), ["soft0", "soft1"], "{err}");
    let outcome = tree().env("GASNET_IBV_FABRIC", "verbs").run();
    outcome.expect(1);
    assert!(outcome.err().contains("verbs was asked for"), "{}", outcome.err());
}
