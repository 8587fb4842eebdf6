//! Ends of jobs with very many ranks on one host: 4,096 with `scripts/test --all`, else 128.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use testkit::{Running, Tree, all_requested, launcher};

/// Far above what 4,096 processes take on a busy machine of two processors.
const BOUND: Duration = Duration::from_secs(600);

fn size() -> usize {
    if all_requested() { 4096 } else { 128 }
}

fn job(script: &str) -> Tree {
    let words = ["-n", &size().to_string(), "/bin/sh", "-c", script];
    launcher(words).env("GASNET_QUIET", "1").deadline("a job of many ranks", BOUND)
}

/// Ranks that are up and wait.
fn waiting(tree: Tree) -> Running {
    let running = tree.start();
    running.wait_stdout("up\n", size());
    running
}

const WAIT: &str = "echo up; exec sleep 10000";

#[test]
fn all_ranks_fail_at_once() {
    let running = job("kill -STOP $$; exit 3").start();
    let limit = Instant::now() + BOUND;
    let stopped = || running.descendants().iter().filter(|process| process.state == 'T').count();
    while stopped() < size() {
        assert!(Instant::now() < limit, "{} of {} ranks wait", stopped(), size());
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(running.signal(Signal::SIGCONT));
    let outcome = running.wait();
    outcome.expect(3);
    // One rank is the first cause, and only that is told.
    let err = outcome.err();
    assert_eq!(err.matches("exited with code 3").count(), 1, "{err}");
}

#[test]
fn the_launcher_is_killed() {
    let running = waiting(job(WAIT).grace(Duration::from_secs(60)));
    assert!(running.signal(Signal::SIGKILL));
    running.wait().expect(137);
}

#[test]
fn the_user_interrupts() {
    let running = waiting(job(WAIT));
    assert!(running.signal(Signal::SIGINT));
    running.wait().expect(130);
}
