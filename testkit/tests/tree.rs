//! The fixture itself: it must see what it is there to see.

use std::time::Duration;

use nix::sys::signal::Signal;
use testkit::{End, Input, Output, Tree};

fn shell(script: &str) -> Tree {
    Tree::new("/bin/sh").arg("-c").arg(script)
}

#[test]
fn code_streams_and_environment_come_back() {
    let outcome =
        shell("cat; echo $V >&2; exit 7").stdin(Input::Bytes(b"in".to_vec())).env("V", "out").run();
    outcome.expect(7);
    assert_eq!((outcome.out().as_str(), outcome.err().as_str()), ("in", "out\n"));
}

#[test]
fn a_survivor_in_its_own_session_is_found_and_killed() {
    let script = "setsid sh -c 'sleep 300 >/dev/null 2>&1 & echo $!'";
    let outcome = shell(script).run();
    assert_eq!(outcome.survivors.len(), 1, "{outcome:?}");
    assert!(outcome.fault(0).is_some_and(|text| text.contains("1 survivors")));
    let pid: i32 = outcome.out().trim().parse().unwrap();
    assert!(testkit::process::Process::read(pid).is_none_or(|found| found.is_zombie()));
}

#[test]
fn a_passed_deadline_is_an_outcome() {
    let outcome = shell("sleep 300").deadline("short", Duration::from_millis(100)).run();
    assert_eq!(outcome.end, End::Deadline);
    assert!(outcome.fault(0).is_some_and(|text| text.contains("deadline short")));
}

#[test]
fn signals_reach_the_command_and_are_reported() {
    let running = shell("echo ready; exec sleep 300").start();
    running.wait_stdout("ready", 1);
    assert!(running.signal(Signal::SIGKILL));
    let outcome = running.wait();
    assert_eq!(outcome.end, End::Signal(9));
    assert_eq!(outcome.code(), 137);
}

#[test]
fn a_large_input_is_summed_without_being_kept() {
    let len = 3_000_001;
    let outcome = Tree::new("/bin/cat").stdin(Input::Pattern(len)).stdout(Output::Digest).run();
    outcome.expect(0);
    assert_eq!((outcome.stdout_len, outcome.stdout.len()), (len, 0));
    assert_eq!(outcome.stdout_crc, testkit::tree::pattern_crc(len));
}
