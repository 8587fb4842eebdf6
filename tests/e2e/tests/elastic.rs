//! A checkpoint before the hosts are taken back: `--checkpoint-signal`, `--requeue-code`; and what
//! `--retry` and `--spares` refuse.

use std::time::Duration;

use nix::sys::signal::Signal;
use testkit::{Outcome, Running, launcher};

const SAVES: &str = "trap 'echo saved; exit 0' USR1; echo ready; while :; do sleep 0.05; done";
const IGNORES: &str = "trap '' USR1; echo ready; while :; do sleep 0.05; done";

fn job(options: &[&str], script: &str) -> Running {
    let words = [&["-n", "2"], options, &["sh", "-c", script]].concat();
    let running = launcher(words).deadline("checkpoint", Duration::from_secs(60)).start();
    running.wait_stdout("ready", 2);
    running
}

fn end(running: Running, code: i32) -> Outcome {
    let outcome = running.wait();
    outcome.expect(code);
    outcome
}

#[test]
fn ranks_save_and_the_job_is_to_be_queued_again() {
    let options =
        ["--checkpoint-signal", "USR1", "--checkpoint-grace", "30", "--requeue-code", "85"];
    let running = job(&options, SAVES);
    assert!(running.signal(Signal::SIGTERM));
    let outcome = end(running, 85);
    assert_eq!(outcome.out().matches("saved").count(), 2, "{}", outcome.out());
    assert!(outcome.err().contains("the ranks get SIGUSR1 and have 30 s"), "{}", outcome.err());
    assert!(outcome.err().contains("the job ends with code 85"), "{}", outcome.err());
    // Without a signal nothing changes, and without a code it is a success.
    launcher(["-n", "2"].iter().chain(&options).chain(&["true"])).run().expect(0);
    let running = job(&options[..2], SAVES);
    assert!(running.signal(Signal::SIGTERM));
    end(running, 0);
}

#[test]
fn who_does_not_save_in_time_is_ended() {
    let options =
        ["--checkpoint-signal", "USR1", "--requeue-code", "85", "--checkpoint-grace", "0.3"];
    let running = job(&options, IGNORES);
    assert!(running.signal(Signal::SIGTERM));
    end(running, 143);
    // A second signal does not wait for the grace.
    let running = job(&options[..4], IGNORES);
    assert!(running.signal(Signal::SIGTERM));
    running.wait_stderr("the ranks get SIGUSR1 and have 30 s", 1);
    assert!(running.signal(Signal::SIGTERM));
    end(running, 143);
}

#[test]
fn what_cannot_be_had_is_refused() {
    for (words, said) in [
        (&["--checkpoint-signal", "NOTHING"][..], "write a signal"),
        (&["--requeue-code", "0", "--checkpoint-signal", "USR1"], "from 1 to 255"),
        (&["--requeue-code", "85"], "--checkpoint-signal"),
        (&["--spares", "1"], "no host list is set"),
        (&["--spares", "0"], "at least 1"),
        (&["--spares", "2", "--hosts", "n1,n2"], "names 2 hosts"),
        (&["--spares", "1", "--hosts", "n1,n2", "-N", "2"], "names 2 hosts"),
        (&["--retry", "1", "-spawner=pmi"], "--retry"),
    ] {
        let all = [&["-n", "2"], words, &["true"]].concat();
        let outcome = launcher(all).run();
        assert!(outcome.code() > 0, "{words:?}");
        assert!(outcome.err().contains(said), "{words:?}: {}", outcome.err());
    }
}
