//! Hosts that do not start are replaced, and jobs that hosts have failed are started again.

use nix::sys::signal::Signal;
use testkit::Bed;
use testkit::process::send;

use crate::executable;

const LIST: &str = "n1,n2,n3";

/// Hosts of the ranks, as they print them.
fn hosts(out: &str) -> Vec<String> {
    let mut hosts: Vec<String> = out.lines().map(str::to_owned).collect();
    hosts.sort();
    hosts
}

#[test]
fn a_spare_takes_the_place_of_a_host_that_does_not_start() {
    let Some(bed) = Bed::up("spare hosts", "n1 n2 n3") else { return };
    let path = format!("{}/ssh-without-n2", bed.share());
    let text = "#!/bin/sh\ncase \"$*\" in *' n2 '*) echo 'ssh: connect to host n2 port 22: No route to host' >&2; exit 255;; esac\nexec ssh \"$@\"\n";
    executable(&path, text);
    let command = format!("GASNET_SSH_CMD={path}");
    let script = "cat /proc/sys/kernel/hostname";
    let words = ["-n", "4", "--hosts", LIST, "--spares", "1", "sh", "-c", script];
    let outcome = bed.run(&[&command], &words);
    outcome.expect(0);
    assert_eq!(hosts(&outcome.out()), ["n1", "n1", "n3", "n3"], "{}", outcome.err());
    let said = "n3 takes the place of n2, which failed: ssh: connect to host n2";
    assert!(outcome.err().contains(said), "{}", outcome.err());
    // Without one the job fails as ever; spares that nobody needs are not used.
    let none = ["-n", "2", "-N", "2", "--hosts", LIST, "sh", "-c", script];
    bed.run(&[&command], &none).expect(125);
    let outcome = bed.run(&[], &words);
    outcome.expect(0);
    assert_eq!(hosts(&outcome.out()), ["n1", "n1", "n2", "n2"]);
}

#[test]
fn a_slow_host_is_named_while_it_is_waited_for() {
    let Some(bed) = Bed::up("slow hosts", "n1 n2") else { return };
    let path = format!("{}/ssh-slow-n2", bed.share());
    let text = "#!/bin/sh\ncase \"$*\" in *' n2 '*) sleep 13;; esac\nexec ssh \"$@\"\n";
    executable(&path, text);
    let command = format!("GASNET_SSH_CMD={path}");
    let words = ["-n", "2", "--hosts", "n1,n2", "echo", "up"];
    let outcome = bed.run(&[&command], &words);
    outcome.expect(0);
    assert_eq!(outcome.err().matches("1 of 2 hosts are ready; waiting for n2 (").count(), 1);
    let silent = [&["--progress", "none"][..], &words].concat();
    let outcome = bed.run(&[&command], &silent);
    outcome.expect(0);
    assert!(!outcome.err().contains("waiting for"), "{}", outcome.err());
}

#[test]
fn a_job_whose_host_is_lost_is_started_again() {
    let Some(bed) = Bed::up("jobs that are started again", "n1 n2 n3") else { return };
    let mark = format!("{}/second", bed.share());
    // The first attempt lasts, the second one ends.
    let script =
        format!("test -e {mark} && cat /proc/sys/kernel/hostname && exit 0; echo up; sleep 600");
    let options = ["-n", "2", "--stdin", "none", "--hosts", LIST, "--spares", "1", "--retry", "1"];
    let words = [&options[..], &["sh", "-c", &script]].concat();
    let running = bed.lasting(2, &[], &words);
    std::fs::write(&mark, "").expect("the share can be written");
    assert!(send(bed.agents("n2").get(1).expect("an agent").pid, Signal::SIGKILL));
    let outcome = running.wait();
    outcome.expect(0);
    let shown = outcome.out().replace("up\n", "");
    assert_eq!(hosts(&shown), ["n1", "n3"], "{}", outcome.err());
    assert!(outcome.err().contains("the job is started again, because host n2 was lost"));
    bed.assert_clean();
    // A program that fails is not run again.
    let count = format!("{}/runs", bed.share());
    let failing = format!("echo x >>{count}; exit 3");
    let words = [&options[..], &["sh", "-c", &failing]].concat();
    bed.run(&[], &words).expect(3);
    assert!(std::fs::read_to_string(&count).expect("it ran").lines().count() <= 2);
}
