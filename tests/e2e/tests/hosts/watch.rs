//! Ranks of other hosts are seen, and their stacks.

use std::time::Instant;

use nix::sys::signal::Signal;
use settings::deadlines::tree::{CHILD_SILENT, HEARTBEAT};
use testkit::process::send;
use testkit::{Bed, binary};

#[test]
fn ranks_and_stacks_of_other_hosts_are_seen() {
    let Some(bed) = Bed::up("jobs on hosts that are watched", "n1 n2") else { return };
    let runtime = format!("XDG_RUNTIME_DIR={}/run-time", bed.share());
    let program = binary("watched").display().to_string();
    let words = ["-n", "4", "--hosts", "n1,n2", &program, "barrier"];
    let running = bed.lasting(4, &[&runtime], &words);
    let ask = |words: &[&str]| {
        let outcome = bed.job(&[&runtime], words).run();
        outcome.expect(0);
        outcome.out()
    };
    let limit = Instant::now() + std::time::Duration::from_secs(60);
    let shown = loop {
        let shown = ask(&["top", "--once", "--interval", "0.2"]);
        if shown.contains("3 in barrier") {
            break shown;
        }
        assert!(Instant::now() < limit, "{shown}");
    };
    for (rank, host) in [(0, "n1"), (1, "n1"), (2, "n2"), (3, "n2")] {
        let mut lines = shown.lines().skip_while(|line| !line.starts_with("RANK"));
        let line = lines.find(|line| line.starts_with(&format!("{rank} ")));
        assert!(line.is_some_and(|line| line.contains(host)), "rank {rank}: {shown}");
    }
    let stacks = ask(&["stacks", "--json"]);
    assert_eq!(stacks.lines().count(), 4, "{stacks}");
    // A debugger runs where the rank is, by the remote shell of the job.
    let show = "sh -c 'cat /proc/sys/kernel/hostname /proc/$1/comm'";
    let job = ask(&["ps", "--json"]);
    assert!(job.contains("\"logins\":[{\"name\":\"n1\""), "{job}");
    let job: serde_json::Value = serde_json::from_str(&job).expect("JSON");
    let job = job["job"].as_str().expect("a name");
    for (rank, host) in [("0", "n1"), ("3", "n2")] {
        let set = [runtime.as_str(), "GASNET_SSH_OPTIONS=-q"];
        let outcome = bed.job(&set, &["attach", "--debugger", show, job, rank]).run();
        outcome.expect(0);
        assert_eq!(outcome.out().replace('\r', ""), format!("{host}\nwatched\n"));
    }
    let job: serde_json::Value = serde_json::from_str(&ask(&["ps", "--json"])).expect("JSON");
    ask(&["kill", job["job"].as_str().expect("a name")]);
    running.wait().expect(143);
    bed.assert_clean();
}

/// It is named, and the others are shown.
#[test]
fn a_host_that_is_stopped_does_not_answer() {
    let Some(bed) = Bed::up("a host that is stopped and watched", "n1 n2") else { return };
    let runtime = format!("XDG_RUNTIME_DIR={}/run-time", bed.share());
    let program = binary("watched").display().to_string();
    // A host that is stopped for longer than that is lost, as it would be where `top` starts slowly.
    for _ in 0..5 {
        let running =
            bed.lasting(4, &[&runtime], &["-n", "4", "--hosts", "n1,n2", &program, "barrier"]);
        let agent = bed.agents("n2").get(1).expect("an agent").pid;
        assert!(send(agent, Signal::SIGSTOP));
        let begin = Instant::now();
        let outcome = bed.job(&[&runtime], &["top", "--once", "--interval", "0.1"]).run();
        assert!(send(agent, Signal::SIGCONT));
        let stopped = begin.elapsed();
        let front = bed.agents("head").first().map_or(0, |process| process.pid);
        let _ = front > 0 && send(front, Signal::SIGTERM);
        let end = running.wait();
        if stopped < CHILD_SILENT.limit {
            outcome.expect(0);
            assert!(outcome.err().contains("without an answer: n2"), "{}", outcome.err());
            assert!(outcome.out().contains("2 unknown"), "{}", outcome.out());
            // What was heard of it last may be as old as a heartbeat.
            let may_be_lost = stopped + HEARTBEAT.limit >= CHILD_SILENT.limit;
            if !may_be_lost || !end.err().contains("host n2 was lost") {
                end.expect(143);
                return bed.assert_clean();
            }
        }
    }
    panic!("each `top` took longer than {:?}", CHILD_SILENT.limit);
}
