//! Jobs on several hosts over ssh: every shape of the tree, exit codes, input and output, and processes that are killed.

use std::time::{Duration, Instant};

use testkit::process::Process;
use testkit::{Cluster, Outcome, Running, Tree, binary};

/// Far above what a job on a few hosts takes on a busy machine.
const BOUND: Duration = Duration::from_secs(90);
/// The same for what the end of a job must bring about.
const GONE: Duration = Duration::from_secs(15);

const HOSTS: &str = "head n1 n2 n3 n4";
const DEGREES: [&str; 4] = ["0", "1", "2", "32"];

struct Bed(Cluster);

impl Bed {
    /// Prepares the launcher on the head, with the out-degree and these words.
    fn job(&self, degree: &str, words: &[&str]) -> Tree {
        let launcher = binary("gasnetrun_ibv").display().to_string();
        let degree = format!("GASNET_SSH_OUT_DEGREE={degree}");
        let mut line = vec!["env", "-C", "/", "GASNET_QUIET=1", "GASNET_IBV_FABRIC=soft"];
        line.extend(["GASNET_IBV_SOFT_ADDRESS=198.18.77.0/24", &degree, &launcher]);
        line.extend(words);
        self.0.on("head", &line).deadline("a job on several hosts", BOUND)
    }

    fn run(&self, degree: &str, words: &[&str]) -> Outcome {
        let outcome = self.job(degree, words).run();
        self.assert_clean();
        outcome
    }

    /// A job of two ranks on each of four hosts that would last, once all of them run.
    fn lasting(&self, degree: &str) -> Running {
        let program = "sleep 600 & echo up; sleep 601; true";
        let hosts = "n1,n2,n3,n4";
        let running = self.job(degree, &["-n", "8", "--hosts", hosts, "sh", "-c", program]).start();
        running.wait_stdout("up", 8);
        running
    }

    /// Nothing of a job is left on any host that is up.
    fn assert_clean(&self) {
        let begin = Instant::now();
        for host in HOSTS.split(' ') {
            while !self.0.processes(host).is_empty() {
                let left = self.0.processes(host);
                assert!(begin.elapsed() < GONE, "{host}: {left:?}");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    /// The launcher's programs on a host, oldest first: guard and agent, on the head front and root.
    fn agents(&self, host: &str) -> Vec<Process> {
        let mut found = self.0.processes(host);
        found.retain(|process| process.command.starts_with("(gasnetrun_ibv) "));
        found.sort_by_key(|process| process.pid);
        found
    }
}

fn kill(process: &Process) {
    let pid = nix::unistd::Pid::from_raw(process.pid);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("it runs");
}

fn results(bed: &Bed, degree: &str) {
    let hello = binary("hello").display().to_string();
    let outcome = bed.run(degree, &["-n", "8", "--hosts", "n1,n2,n3,n4", &hello]);
    outcome.expect(0);
    for (rank, host) in ["n1", "n1", "n2", "n2", "n3", "n3", "n4", "n4"].iter().enumerate() {
        let line = format!("rank {rank} of 8 on {host},");
        assert!(outcome.out().contains(&line), "{line} in {}", outcome.out());
    }
    let seven = "test $GASNETRUN_RANK = 5 && exit 7; sleep 600";
    let outcome = bed.run(degree, &["-n", "6", "--hosts", "n1,n2,n3", "sh", "-c", seven]);
    outcome.expect(7);
    assert!(outcome.err().contains("rank 5 of 6 on host n3"), "{}", outcome.err());
}

fn killed(bed: &Bed, degree: &str) {
    // The victim: its host, which of the launcher's processes there, code, what is said.
    for (host, which, code, said) in [
        ("head", 1, 125, "the node agent on host head was lost"),
        ("n1", 1, 125, "n1 was lost"),
        ("n3", 0, 125, "was lost"),
    ] {
        let running = bed.lasting(degree);
        let agents = bed.agents(host);
        assert_eq!(agents.len(), 2, "{host}: {agents:?}");
        kill(&agents[which]);
        let outcome = running.wait();
        outcome.expect(code);
        assert!(outcome.err().contains(said), "{said} in {}", outcome.err());
        bed.assert_clean();
    }
    let running = bed.lasting(degree);
    let ranks = bed.0.processes("n4");
    let rank =
        ranks.iter().find(|process| process.command == "(sleep) sleep 601").expect("it runs");
    let shell = ranks.iter().find(|process| process.pid == rank.parent).expect("so does its shell");
    kill(shell);
    let outcome = running.wait();
    outcome.expect(137);
    assert!(outcome.err().contains("on host n4"), "{}", outcome.err());
    bed.assert_clean();
    let running = bed.lasting(degree);
    let ssh = bed.0.processes("head");
    kill(ssh.iter().find(|process| process.command.starts_with("(ssh) ")).expect("a link"));
    running.wait().expect(125);
    bed.assert_clean();
}

#[test]
fn jobs_on_four_hosts_with_every_out_degree() {
    let Some(cluster) = Cluster::up("jobs on several hosts over ssh", HOSTS) else { return };
    let bed = Bed(cluster);
    for degree in DEGREES {
        results(&bed, degree);
    }
    let degrees = if testkit::all_requested() { &DEGREES[..] } else { &DEGREES[1..2] };
    for degree in degrees {
        killed(&bed, degree);
    }
}

#[test]
fn hosts_that_cannot_take_part_are_named_with_the_reason() {
    let Some(cluster) = Cluster::up("hosts that cannot be reached", "head n1 n2") else { return };
    let bed = Bed(cluster);
    let outcome = bed.job("32", &["-n", "4", "--hosts", "n1,nx,ny", "true"]).run();
    outcome.expect(125);
    let said = outcome.err();
    for part in ["2 of 3 hosts (nx ny), at the step `resolve`", "Could not resolve", "try:"] {
        assert!(said.contains(part), "{part} in {said}");
    }
    // Nothing listens there; that may pass, so it is tried again first.
    let job = bed.job("1", &["-n", "3", "--hosts", "n1,root@n2:9", "true"]);
    let outcome = job.run();
    outcome.expect(125);
    assert!(outcome.err().contains("Connection refused"), "{}", outcome.err());
    let words = ["-n", "2", "--hosts", "n1", "--wdir", "/", "sh", "-c", "exit 0"];
    bed.job("1", &words).run().expect(0);
}
