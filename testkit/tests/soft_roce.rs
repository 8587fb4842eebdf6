//! The network on real verbs devices: Soft-RoCE inside virtual machines, see `scripts/softroce`.
//!
//! A boot takes most of a short run, so each test runs all its steps in one boot.

#[path = "soft_roce/machine.rs"]
mod machine;

use std::time::Duration;

use nix::sys::signal::Signal;
use testkit::{Tree, all_requested};

use machine::{Step, step};

/// The conformance suite with these options, its cases that the device cannot do counted as skipped.
fn conformance(name: &str, command: &str) -> Step {
    step(name, 240, command).shows("conformance of verbs").shows("pass order")
}

/// Options that let the suite take the network device below a rail down and up.
fn with_port(rail: u32) -> String {
    format!("--port-down 'ip link set eth{rail} down' --port-up 'ip link set eth{rail} up'")
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
        conformance(
            "conformance suite, two processes",
            &format!("$programs/fabric-conformance verbs --processes {}", with_port(0)),
        ),
    ];
    count_skips(&machine::run("Soft-RoCE, one machine", &["--rails", "2"], &steps));
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
