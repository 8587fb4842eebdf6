//! The network on real verbs devices: Soft-RoCE inside virtual machines, see `scripts/softroce`.
//!
//! A boot takes most of a short run, so each test runs all its steps in one boot.

#![expect(clippy::unwrap_used, reason = "what is missing here fails the test")]

#[expect(dead_code, reason = "the suite of C programs uses all of it")]
#[path = "c_suite/build.rs"]
mod build;
#[path = "soft_roce/machine.rs"]
mod machine;

use std::time::Duration;

use nix::sys::signal::Signal;
use testkit::{Tree, all_requested};

use machine::{Step, step};

/// Seconds that a program of the C suite may take in the emulated machine: some take two minutes there
/// when nothing else runs, and several times that beside other tests.
const PROGRAM: u32 = 900;

/// The conformance suite with these options, its cases that the device cannot do counted as
/// skipped.
fn conformance(name: &str, command: &str) -> Step {
    step(name, 240, command).shows("conformance of verbs").shows("pass order")
}

/// Options that let the suite take the network device below a rail down and up.
fn with_port(rail: u32) -> String {
    format!("--port-down 'ip link set eth{rail} down' --port-up 'ip link set eth{rail} up'")
}

/// Jobs whose ranks share no memory, so that everything goes over the devices.
fn jobs() -> Vec<Step> {
    let verbs = "GASNET_SUPERNODE_MAXSIZE=1 GASNET_IBV_FABRIC=verbs";
    let job = |name: &str, variables: &str, program: &str| {
        let command =
            format!("{verbs} {variables} $programs/gasnetrun_ibv -n 2 $programs/{program}");
        step(name, 60, &command)
    };
    let remap = if all_requested() { "remap 20 2" } else { "remap 4 2" };
    let mut steps = vec![
        step(
            "the choice falls on verbs by itself",
            60,
            "GASNET_SUPERNODE_MAXSIZE=1 $programs/gasnetrun_ibv -n 2 $programs/hello 2>&1 | tee /tmp/hello && \
             ! grep 'software adapter' /tmp/hello",
        )
        .shows("rank 1 of 2 on node1"),
        job("ring", "", "ring 20").shows("around 2 ranks: 40 steps in order"),
        job("ring over both devices", "GASNET_IBV_MAX_HCAS=2", "ring 20").shows("40 steps in order"),
        // It checks what arrives by gather entries.
        job("strided puts over both devices", "GASNET_IBV_MAX_HCAS=2", "bench_vis 1 1 8192")
            .shows("gather_us"),
        // Its pages are pinned: a stale registration would send old bytes.
        job("memory that comes and goes", "GASNET_USE_ODP=0 GASNET_FIREHOSE_VERBOSE=1", remap)
            .shows("all bytes as they were put")
            .shows("registered memory outside segments"),
    ];
    let (few, all) = ([3, 10], (1..=15).chain(51..=55));
    let cases: Vec<i32> = if all_requested() { all.collect() } else { few.to_vec() };
    for case in cases {
        let program = format!("testexit {case} --delay 150");
        steps.push(job(&format!("exit case {case}"), "", &program).code(case));
    }
    // Root may lock what it wants, unless it may not.
    let poor = "setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock bash -c 'ulimit -l 64; exec \"$0\" \"$@\"'";
    let hello = format!("{verbs} {poor} $programs/gasnetrun_ibv -n 2 $programs/hello");
    steps.push(step("too little memory may be locked", 60, &hello).code(1).shows("ulimit -l"));
    if all_requested() {
        for case in [3, 5, 9, 11, 13] {
            let program = format!("testexit {case} --delay 150 --reversed");
            steps.push(job(&format!("exit case {case} reversed"), "", &program).code(case));
        }
        for (case, code) in [(102, 6), (103, 6), (104, 11)] {
            let program = format!("testexit {case} --delay 150");
            let crash = job(&format!("exit case {case}"), "GASNET_BACKTRACE=0", &program);
            steps.push(crash.code(128 + code));
        }
        for (ranks, most) in [(3, 2), (4, 2)] {
            let command = format!(
                "GASNET_SUPERNODE_MAXSIZE={most} GASNET_IBV_FABRIC=verbs GASNET_IBV_MAX_HCAS=2 $programs/gasnetrun_ibv -n {ranks} \
                 $programs/testexit 3 --delay 150"
            );
            let name = format!("exit case 3, {ranks} ranks in neighbourhoods of {most}");
            steps.push(step(&name, 60, &command).code(3));
        }
        // All ranks use the port.
        let down = "ring 1000000000 & sleep 8; ip link set eth0 down; wait $!; code=$?; ip link set eth0 up; exit $code";
        let patience = "GASNET_QP_TIMEOUT=14 GASNET_QP_RETRY_COUNT=3";
        steps.push(
            job("a port that goes down", patience, down)
                .code(1)
                .shows("went down")
                .shows("network: "),
        );
        for (name, variables) in [
            ("connections on demand", "GASNET_CONNECT_STATIC=0"),
            ("shared receive queue", "GASNET_USE_SRQ=1"),
            ("receive queues of their own", "GASNET_USE_SRQ=0"),
            ("credits that move", "GASNET_AM_FLOW_CONTROL=dynamic"),
            ("rings for requests", "GASNET_AM_FLOW_CONTROL=volume"),
        ] {
            steps.push(job(&format!("ring, {name}"), variables, "ring 20").shows("40 steps"));
        }
        steps.push(
            job("random traffic of a Rust program", "", "traffic 200 7")
                .shows("operations as the model says"),
        );
        for scheme in ["dynamic", "volume"] {
            let variables = format!("GASNET_AM_FLOW_CONTROL={scheme}");
            let name = format!("random traffic of a Rust program, {scheme}");
            steps.push(
                job(&name, &variables, "traffic 200 7").shows("operations as the model says"),
            );
        }
        // The first rank found; the other one waits in a barrier.
        let killed =
            "testexit 3 --delay 30000 & sleep 8; kill -9 $(pgrep -x testexit | head -1); wait $!";
        steps.push(job("a killed rank", "", killed).code(128 + 9));
    }
    steps
}

/// Barriers of every kind between neighbourhoods: by writes into the memory of others, and by
/// messages. The folder of the program, which the machine has to see.
fn barriers() -> Option<(String, Vec<Step>)> {
    if !all_requested() || !build::ready() {
        return None;
    }
    let program = build::built("barriers", "seq", build::Kind::Static);
    let folder = program.parent()?.display().to_string();
    let mut steps = Vec::new();
    for kind in ["DISSEM", "AMDISSEM"] {
        for (ranks, most) in [(2, 1), (4, 2)] {
            let command = format!(
                "GASNET_BARRIER={kind} GASNET_SUPERNODE_MAXSIZE={most} GASNET_IBV_FABRIC=verbs \
                 $programs/gasnetrun_ibv -n {ranks} {}",
                program.display()
            );
            let name = format!("barriers {kind}, {ranks} ranks in neighbourhoods of {most}");
            steps.push(step(&name, 120, &command).shows("PASS barriers"));
        }
    }
    Some((folder, steps))
}

fn count_skips(done: &[machine::Done]) {
    let skipped = done.iter().flat_map(|done| done.output.lines());
    for line in skipped.filter_map(|line| line.strip_prefix("skip ")) {
        testkit::skip("conformance of verbs on Soft-RoCE", line);
    }
}

#[test]
fn one_machine() {
    if !machine::ready("Soft-RoCE, one machine") {
        return;
    }
    let steps = vec![
        step("ibv_devinfo", 10, "ibv_devinfo -v")
            .shows("rxe0")
            .shows("PORT_ACTIVE")
            .shows("10.77.0.1"),
        step("two ranks by shared memory", 30, "$programs/gasnetrun_ibv -n 2 $programs/hello")
            .shows("rank 1 of 2 on node1"),
        step(
            "a rank that fails",
            30,
            "$programs/gasnetrun_ibv -n 2 $programs/testexit 3 --delay 100",
        )
        .code(3),
    ];
    // Under emulation it takes longer than all else; a short run has it over the fake library
    // (`fabric`, conformance).
    let suite = all_requested().then(|| {
        conformance(
            "conformance suite, two processes",
            &format!("$programs/fabric-conformance verbs --processes {}", with_port(0)),
        )
    });
    let (folder, barriers) = barriers().unzip();
    let steps = steps.into_iter().chain(suite).chain(jobs());
    let steps: Vec<Step> = steps.chain(barriers.into_iter().flatten()).collect();
    let mut options = vec!["--rails", "2"];
    options.extend(folder.iter().flat_map(|folder| ["--see", folder.as_str()]));
    count_skips(&machine::run("Soft-RoCE, one machine", &options, &steps));
}

/// The programs of `tests/c`, in C with each rank a neighbourhood of its own and in C++ with
/// neighbourhoods of two, modes taking turns.
#[test]
fn every_program() {
    const SPECIAL: [&str; 4] = ["exits", "wrong", "wrong_teams", "destructors"];
    let test = "Soft-RoCE, programs in C and C++";
    if !all_requested() || !build::ready() {
        // The long run has it.
        return;
    }
    if !machine::ready(test) {
        return;
    }
    let (mut steps, mut folder) = (Vec::new(), None);
    for (turn, source) in build::sources().iter().enumerate() {
        let name = source.file_stem().unwrap().to_string_lossy().into_owned();
        if SPECIAL.contains(&name.as_str()) {
            continue;
        }
        let mode = |language| build::MODES[(turn + language) % build::MODES.len()];
        let ways = [
            ("C", mode(0), 2, 1, build::built(&name, mode(0), build::Kind::Static)),
            ("C++", mode(1), 4, 2, build::built_as_cxx(&name, mode(1), build::Kind::Static)),
        ];
        for (language, mode, ranks, most, program) in ways {
            let path = program.display();
            let command = format!(
                "GASNET_SUPERNODE_MAXSIZE={most} GASNET_IBV_FABRIC=verbs GASNET_IBV_MAX_HCAS=2 $programs/gasnetrun_ibv -n {ranks} {path}"
            );
            let title = format!("{name}, {language}, {mode}, {ranks} ranks by {most}");
            let schemes = if name.starts_with("am_") { &["dynamic", "volume"][..] } else { &[] };
            for scheme in schemes {
                let command = format!("GASNET_AM_FLOW_CONTROL={scheme} {command}");
                let title = format!("{title}, {scheme}");
                steps.push(step(&title, PROGRAM, &command).shows(&format!("PASS {name}")));
            }
            steps.push(step(&title, PROGRAM, &command).shows(&format!("PASS {name}")));
            folder = program.parent().map(|folder| folder.display().to_string());
        }
    }
    let folder = folder.expect("programs");
    machine::run(test, &["--rails", "2", "--see", &folder], &steps);
}

#[test]
fn two_machines_with_two_rails() {
    let test = "Soft-RoCE, two machines with two rails";
    if !all_requested() {
        // The long run has it.
        return;
    }
    if !machine::ready(test) {
        return;
    }
    let ping_pong = "ping=\"ibv_rc_pingpong -g 1 -n 100 -d rxe1\"; ssh node2 $ping & \
                     for turn in 1 2 3 4 5 6 7 8 9; do sleep 2; $ping node2-1 && break; done && wait $!";
    let steps = vec![
        step(
            "both machines have both devices",
            60,
            "for node in node1 node2; do ssh $node ibv_devices; done | grep -c rxe",
        )
        .shows("4"),
        step("ibv_rc_pingpong over the second rail", 60, ping_pong).shows("::ffff:10.77.1.2"),
        conformance(
            "conformance suite between the machines, second rail",
            &format!(
                "suite=\"$programs/fabric-conformance verbs --device rxe1 --meet 10.77.0.1:7777\"; \
                 ssh node2 $suite --role 1 & $suite --role 0 {} && wait $!",
                with_port(1)
            ),
        ),
    ];
    count_skips(&machine::run(test, &["--guests", "2", "--rails", "2"], &steps));
}

/// The script, with survivors counted.
fn script(args: &[&str]) -> Tree {
    Tree::new(machine::script()).args(args).deadline("scripts/softroce", Duration::from_secs(120))
}

#[test]
fn the_script_says_what_is_wrong_and_leaves_nothing() {
    for (args, words) in [
        (&[][..], "no command"),
        (&["--rails", "9", "true"][..], "--rails takes a number from 1 to 4"),
        (&["--guests=3", "true"][..], "--guests takes a number from 1 to 2"),
        (&["--see", "/no/such", "true"][..], "'/no/such' is not a directory"),
        (&["--env", "1=2", "true"][..], "'1=2' is not NAME"),
        (&["--colour", "red", "true"][..], "unknown option '--colour'"),
        (&["--limit"][..], "--limit needs a value"),
    ] {
        let outcome = script(args).run();
        outcome.expect(2);
        assert!(outcome.err().contains(words), "{args:?}: {}", outcome.err());
    }
    if !machine::ready("ends of scripts/softroce") {
        return;
    }
    let outcome = script(&["--limit", "1", "--", "sleep", "60"]).run();
    outcome.expect(124);
    assert!(outcome.err().contains("out of time after 1 s"), "{}", outcome.err());
    let running = script(&["--", "sleep", "60"]).start();
    std::thread::sleep(Duration::from_secs(1));
    assert!(running.signal(Signal::SIGTERM));
    running.wait().expect(143);
}
