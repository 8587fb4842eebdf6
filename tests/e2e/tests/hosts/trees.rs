//! Jobs on several hosts over ssh whose processes are killed, and hosts that cannot take part.

use testkit::process::Process;
use testkit::{Bed, Running, Tree};

const HOSTS: &str = "n1 n2 n3 n4";
const DEGREES: [&str; 4] = ["0", "1", "2", "32"];

/// Prepares the launcher on the head, with the out-degree and these words.
fn job(bed: &Bed, degree: &str, words: &[&str]) -> Tree {
    let degree = format!("GASNET_SSH_OUT_DEGREE={degree}");
    bed.job(&["GASNET_IBV_SOFT_ADDRESS=198.18.77.0/24", &degree], words)
}

/// A job of two ranks on each of four hosts that would last, once all of them run.
fn lasting(bed: &Bed, degree: &str) -> Running {
    let program = "sleep 600 & echo up; sleep 601; true";
    let hosts = "n1,n2,n3,n4";
    let running = job(bed, degree, &["-n", "8", "--hosts", hosts, "sh", "-c", program]).start();
    running.wait_stdout("up", 8);
    running
}

fn kill(process: &Process) {
    let pid = nix::unistd::Pid::from_raw(process.pid);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("it runs");
}

fn killed(bed: &Bed, degree: &str) {
    // The victim: its host, which of the launcher's processes there, code, what is said.
    for (host, which, code, said) in [
        ("head", 1, 125, "the node agent on host head was lost"),
        ("n1", 1, 125, "n1 was lost"),
        ("n3", 0, 125, "was lost"),
    ] {
        let running = lasting(bed, degree);
        let agents = bed.agents(host);
        assert_eq!(agents.len(), 2, "{host}: {agents:?}");
        kill(&agents[which]);
        let outcome = running.wait();
        outcome.expect(code);
        assert!(outcome.err().contains(said), "{said} in {}", outcome.err());
        bed.assert_clean();
    }
    let running = lasting(bed, degree);
    kill(&bed.rank("n4").expect("the agent has started its ranks"));
    let outcome = running.wait();
    outcome.expect(137);
    assert!(outcome.err().contains("on host n4"), "{}", outcome.err());
    bed.assert_clean();
    let running = lasting(bed, degree);
    let ssh = bed.cluster.processes("head");
    kill(ssh.iter().find(|process| process.command.starts_with("(ssh) ")).expect("a link"));
    running.wait().expect(125);
    bed.assert_clean();
}

#[test]
fn processes_that_are_killed_end_the_job_with_every_out_degree() {
    let Some(mut bed) = Bed::up("jobs on several hosts over ssh", HOSTS) else { return };
    // By default there may be no process of ssh.
    bed.set_always(&["GASNET_SSH_CMD=ssh"]);
    let degrees = if testkit::all_requested() { &DEGREES[..] } else { &DEGREES[1..2] };
    for degree in degrees {
        killed(&bed, degree);
    }
}

#[test]
fn hosts_that_cannot_take_part_are_named_with_the_reason() {
    let Some(bed) = Bed::up("hosts that cannot be reached", "n1 n2") else { return };
    let outcome = job(&bed, "32", &["-n", "4", "--hosts", "n1,nx,ny", "true"]).run();
    outcome.expect(125);
    let said = outcome.err();
    for part in ["2 of 3 hosts (nx ny), at the step `resolve`", "Could not resolve", "try:"] {
        assert!(said.contains(part), "{part} in {said}");
    }
    // Nothing listens there; that may pass, so it is tried again first.
    let outcome = job(&bed, "1", &["-n", "3", "--hosts", "n1,root@n2:9", "true"]).run();
    outcome.expect(125);
    assert!(outcome.err().contains("Connection refused"), "{}", outcome.err());
    let words = ["-n", "2", "--hosts", "n1", "--wdir", "/", "sh", "-c", "exit 0"];
    job(&bed, "1", &words).run().expect(0);
}
