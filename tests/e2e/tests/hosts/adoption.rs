//! Hosts that their parents in the tree cannot reach are started from the launcher; what fails for
//! a while is tried again.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use testkit::process::send;
use testkit::{Bed, Outcome, binary};

use crate::executable;

const HOSTS: &str = "n1 n2 n3 n4";
const LIST: &str = "n1,n2,n3,n4";

/// A remote shell that has no way from a host to another one; its variable.
fn no_way(bed: &Bed, from: &str, to: &str) -> String {
    let path = format!("{}/ssh-no-way-{from}-{to}", bed.share());
    let text = format!(
        "#!/bin/sh\ncase \"$(cat /proc/sys/kernel/hostname):$*\" in {from}:*' {to} '*)\n\
         echo 'ssh: connect to host {to} port 22: No route to host' >&2; exit 255;; esac\nexec ssh \"$@\"\n"
    );
    executable(&path, &text);
    format!("GASNET_SSH_CMD={path}")
}

/// All eight ranks said where they are.
#[track_caller]
fn all_there(outcome: &Outcome) {
    outcome.expect(0);
    for (rank, host) in ["n1", "n1", "n2", "n2", "n3", "n3", "n4", "n4"].iter().enumerate() {
        let line = format!("rank {rank} of 8 on {host},");
        assert!(outcome.out().contains(&line), "{line} in {}", outcome.out());
    }
}

#[test]
fn a_host_that_its_parent_cannot_reach_is_started_from_the_launcher() {
    let Some(bed) = Bed::up("adoption of hosts", HOSTS) else { return };
    let hello = binary("hello").display().to_string();
    let words = ["-v", "-n", "8", "--hosts", LIST, &hello];
    // The first of a chain, the middle, the last; in a tree with two branches a leaf.
    for (degree, from, to) in
        [("1", "n1", "n2"), ("1", "n2", "n3"), ("1", "n3", "n4"), ("2", "n3", "n4")]
    {
        let shape = format!("GASNET_SSH_OUT_DEGREE={degree}");
        let outcome = bed.run(&[&shape, &no_way(&bed, from, to)], &words);
        all_there(&outcome);
        assert!(outcome.err().contains("started from here"), "{}", outcome.err());
    }
    // What is adopted belongs to the job as anything else: its failures, its faults, its collective
    // calls.
    let shape = ["GASNET_SSH_OUT_DEGREE=1", &no_way(&bed, "n1", "n2")];
    let script = "test $GASNETRUN_RANK = 7 && exit 9; sleep 600";
    let outcome = bed.run(&shape, &["-n", "8", "--hosts", LIST, "sh", "-c", script]);
    outcome.expect(9);
    assert!(outcome.err().contains("on host n4"), "{}", outcome.err());
    for (host, code) in [("n1", 125), ("n2", 125), ("n4", 125)] {
        let script = "echo up; sleep 600";
        let running = bed.lasting(8, &shape, &["-n", "8", "--hosts", LIST, "sh", "-c", script]);
        let agent = bed.agents(host).get(1).expect("an agent").pid;
        assert!(send(agent, Signal::SIGKILL));
        let outcome = running.wait();
        outcome.expect(code);
        assert!(outcome.err().contains(&format!("host {host} was lost")), "{}", outcome.err());
        bed.assert_clean();
    }
    // From nowhere is from nowhere: the table has the way that the launcher tried.
    let nowhere = format!("{}/ssh-nowhere", bed.share());
    let text = "#!/bin/sh\ncase \"$*\" in *' n3 '*) echo 'ssh: connect to host n3 port 22: No route to host' >&2; exit 255;; esac\nexec ssh \"$@\"\n";
    executable(&nowhere, text);
    let command = format!("GASNET_SSH_CMD={nowhere}");
    let outcome = bed.run(&["GASNET_SSH_OUT_DEGREE=1", &command], &words);
    outcome.expect(125);
    let said = "1 of 4 hosts (n3), at the step `connect`";
    assert!(outcome.err().contains(said), "{}", outcome.err());
}

#[test]
fn two_hosts_that_do_not_hear_each_other_take_part() {
    let Some(bed) = Bed::up("hosts that do not hear each other", HOSTS) else { return };
    bed.cluster.verb(&["part", "n1", "n2"]);
    let words = ["-v", "-n", "4", "--hosts", LIST, "sh", "-c", "echo $GASNETRUN_RANK"];
    let set = ["GASNET_SSH_OUT_DEGREE=1", "GASNET_SSH_OPTIONS=-o ConnectTimeout=1"];
    let outcome = bed.run(&set, &words);
    outcome.expect(0);
    let mut ranks: Vec<String> = outcome.out().lines().map(str::to_owned).collect();
    ranks.sort();
    assert_eq!(ranks, ["0", "1", "2", "3"]);
    assert!(outcome.err().contains("started from here"), "{}", outcome.err());
    bed.cluster.verb(&["join", "n1", "n2"]);
    let outcome = bed.run(&set, &words);
    outcome.expect(0);
    assert!(!outcome.err().contains("started from here"), "{}", outcome.err());
}

#[test]
fn a_host_that_drops_logins_for_a_while_is_tried_again() {
    let Some(bed) = Bed::up("an sshd that drops connections", HOSTS) else { return };
    let config = bed.cluster.directory().join("ssh/sshd_config");
    let text = std::fs::read_to_string(&config).expect("it has one");
    // One login at a time, and somebody else has it for a moment.
    let strict = text.replace("MaxStartups 10:30:100", "MaxStartups 1:100:1");
    assert_ne!(text, strict);
    std::fs::write(&config, strict).expect("it can be written");
    let listener = |host: &str| {
        let init = bed.cluster.init(host).expect("it is up");
        let all = testkit::process::Process::all();
        let found = all.iter().find(|process| {
            process.parent == init
                && process.command.contains("sshd")
                && process.command.contains("[listener]")
        });
        found.expect("it has an sshd").pid
    };
    let end = |host: &str| {
        let pid = listener(host);
        assert!(send(pid, Signal::SIGKILL));
        let begin = Instant::now();
        while testkit::process::Process::read(pid).is_some_and(|process| !process.is_zombie()) {
            assert!(begin.elapsed() < Duration::from_secs(10));
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let words = ["-n", "4", "--hosts", LIST, "sh", "-c", "echo up"];
    end("n2");
    bed.cluster.verb(&["sshd", "n2"]);
    let hold = "exec 3<>/dev/tcp/n2/22; echo held; sleep 0.5";
    let holder = bed.cluster.on("head", &["bash", "-c", hold]).start();
    holder.wait_stdout("held", 1);
    let outcome = bed.job(&["GASNET_SSH_OUT_DEGREE=2"], &words).run();
    holder.wait().expect(0);
    outcome.expect(0);
    assert_eq!(outcome.out(), "up\n".repeat(4));
    bed.assert_clean();

    // It is started again while the job waits.
    end("n3");
    let running = bed.job(&["GASNET_SSH_OUT_DEGREE=2"], &words).start();
    std::thread::sleep(Duration::from_millis(700));
    bed.cluster.verb(&["sshd", "n3"]);
    running.wait().expect(0);
    bed.assert_clean();
    // It is not: the table says so.
    end("n3");
    let outcome = bed.run(&["GASNET_SSH_OUT_DEGREE=1"], &words);
    outcome.expect(125);
    let said = outcome.err();
    assert!(said.contains("1 of 4 hosts (n3), at the step `connect`"), "{said}");
    assert!(said.contains("Connection refused"), "{said}");
}
