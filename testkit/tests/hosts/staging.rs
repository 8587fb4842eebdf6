//! Programs that only the launching host has: every host has a `/tmp` of its own, and the job's program, or the launcher
//! itself, is in that of the first one.

use std::time::{Duration, Instant};

use testkit::{Cluster, Outcome, Tree, binary};

/// Far above what a job on a few hosts takes on a busy machine.
const BOUND: Duration = Duration::from_secs(120);
/// The same for what the end of a job must bring about.
const GONE: Duration = Duration::from_secs(20);

struct Bed {
    cluster: Cluster,
    hosts: Vec<&'static str>,
}

impl Bed {
    /// Hosts whose head has `hello` and the launcher in its own `/tmp/only`.
    fn up(test: &str, hosts: &'static str) -> Option<Self> {
        let cluster = Cluster::up(test, hosts)?;
        let bed = Self { cluster, hosts: hosts.split(' ').collect() };
        bed.shell("head", "mkdir -m 755 /tmp/only");
        for program in ["hello", "gasnetrun_ibv"] {
            let copy = format!("cp {} /tmp/only/", binary(program).display());
            bed.shell("head", &copy);
        }
        Some(bed)
    }

    /// What a command on a host prints.
    fn shell(&self, host: &str, command: &str) -> String {
        let outcome = self.cluster.on(host, &["sh", "-c", command]).run();
        outcome.expect(0);
        outcome.out().trim().to_owned()
    }

    fn job(&self, user: &str, launcher: &str, degree: &str, words: &[&str]) -> Tree {
        let degree = format!("GASNET_SSH_OUT_DEGREE={degree}");
        let mut line = vec!["env", "-C", "/", "GASNET_QUIET=1", "GASNET_IBV_FABRIC=soft"];
        line.extend(["GASNET_IBV_SOFT_ADDRESS=198.18.77.0/24", &degree, launcher]);
        line.extend(words);
        self.cluster.as_user(user, "head", &line).deadline("a job on several hosts", BOUND)
    }

    /// Runs a job of one rank on each host but the head.
    fn run(&self, degree: &str, words: &[&str]) -> Outcome {
        let launcher = binary("gasnetrun_ibv").display().to_string();
        self.run_by("root", &launcher, degree, words)
    }

    fn run_by(&self, user: &str, launcher: &str, degree: &str, words: &[&str]) -> Outcome {
        let (ranks, hosts) = ((self.hosts.len() - 1).to_string(), self.hosts[1..].join(","));
        let mut all = vec!["-n", &ranks, "--hosts", &hosts];
        all.extend(words);
        let outcome = self.job(user, launcher, degree, &all).run();
        self.wait_for_the_end();
        outcome
    }

    fn wait_for_the_end(&self) {
        let begin = Instant::now();
        for host in &self.hosts {
            while !self.cluster.processes(host).is_empty() {
                let left = self.cluster.processes(host);
                assert!(begin.elapsed() < GONE, "{host}: {left:?}");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    /// What is in a user's directory on a host: programs that are kept, and directories of jobs.
    fn kept(&self, host: &str, user: u32) -> (usize, usize) {
        let names = self.shell(host, &format!("ls -A /tmp/gasnetrun-{user} 2>/dev/null; true"));
        let content = names.lines().filter(|name| name.len() == 64).count();
        (content, names.lines().count() - content)
    }

    /// The numbers of the files that are kept on a host, which change when something is sent again.
    fn files(&self, host: &str) -> String {
        self.shell(host, "stat -c %i /tmp/gasnetrun-0/????????????????* | sort")
    }
}

fn assert_everybody_said_hello(bed: &Bed, outcome: &Outcome) {
    outcome.expect(0);
    for (rank, host) in bed.hosts[1..].iter().enumerate() {
        let line = format!("rank {rank} of {} on {host},", bed.hosts.len() - 1);
        assert!(outcome.out().contains(&line), "{line} in {}", outcome.out());
    }
}

const HELLO: &str = "/tmp/only/hello";

#[test]
fn a_program_that_only_the_launching_host_has() {
    let Some(bed) = Bed::up("a program that only one host has", "head n1 n2 n3") else { return };
    // From host to host, one after the other; what was sent is kept, the job's own directory is not.
    assert_everybody_said_hello(&bed, &bed.run("1", &[HELLO]));
    for host in ["n1", "n2", "n3"] {
        assert_eq!(bed.kept(host, 0), (1, 0), "{host}");
        assert_eq!(bed.shell(host, "stat -c %a /tmp/gasnetrun-0"), "700");
    }
    assert_eq!(bed.kept("head", 0), (0, 0), "the launching host needs none");
    // The next job finds it there, also behind a wrapper.
    let before = bed.files("n2");
    assert_everybody_said_hello(&bed, &bed.run("32", &["env", "A=b", HELLO]));
    assert_eq!(bed.files("n2"), before, "it was sent again");
    // What was damaged meanwhile is sent again.
    bed.shell("n2", "for f in /tmp/gasnetrun-0/*; do echo broken > $f; done");
    assert_everybody_said_hello(&bed, &bed.run("0", &[HELLO]));
    let before = bed.files("n2");
    assert_everybody_said_hello(&bed, &bed.run("2", &["--stage", "always", HELLO]));
    assert_ne!(bed.files("n2"), before, "it was not sent, although always was asked for");
    // A GASNet program of the same name is another one.
    bed.shell("n3", "mkdir /tmp/only && cp /bin/false /tmp/only/hello");
    assert_everybody_said_hello(&bed, &bed.run("1", &[HELLO]));
    // Nothing is kept when nothing may be; -k keeps the job's directory.
    let launcher = binary("gasnetrun_ibv").display().to_string();
    let none = ["GASNET_SSH_STAGE_CACHE=0", launcher.as_str(), "-n", "3", "--hosts", "n1,n2,n3"];
    let words = [&none[1..], &["-k", HELLO]].concat();
    let mut line = vec!["env", "-C", "/", "GASNET_QUIET=1", none[0], "GASNET_IBV_FABRIC=soft"];
    line.extend(["GASNET_IBV_SOFT_ADDRESS=198.18.77.0/24"]);
    line.extend(words);
    let outcome = bed.cluster.on("head", &line).deadline("a job", BOUND).run();
    assert_everybody_said_hello(&bed, &outcome);
    assert!(outcome.err().contains("n1: kept /tmp/gasnetrun-0/kept."), "{}", outcome.err());
    assert_eq!(bed.kept("n1", 0), (0, 1));
    // Without leave to send, the hosts without it are named; a tool is where it is.
    let outcome = bed.run("1", &["--stage", "never", HELLO]);
    outcome.expect(125);
    for part in ["2 of 3 hosts (n1 n2)", "program check", "No such file", "--stage auto"] {
        assert!(outcome.err().contains(part), "{part} in {}", outcome.err());
    }
    bed.run("1", &["--stage", "never", "true"]).expect(0);
}

#[test]
fn an_agent_that_only_the_launching_host_has() {
    let Some(bed) = Bed::up("an agent that only one host has", "head n1 n2") else { return };
    let launcher = "/tmp/only/gasnetrun_ibv";
    assert_everybody_said_hello(&bed, &bed.run_by("root", launcher, "1", &[HELLO]));
    for host in ["n1", "n2"] {
        assert_eq!(bed.kept(host, 0), (2, 0), "{host}: agent and program, no directory of a job");
    }
    let before = bed.files("n2");
    assert_everybody_said_hello(&bed, &bed.run_by("root", launcher, "1", &[HELLO]));
    assert_eq!(bed.files("n2"), before, "it was sent again");
    let outcome = bed.run_by("root", launcher, "1", &["--stage", "never", HELLO]);
    outcome.expect(125);
    assert!(outcome.err().contains("no agent at /tmp/only/gasnetrun_ibv"), "{}", outcome.err());
    // Killed agents leave nothing either.
    let words = ["-n", "2", "--hosts", "n1,n2", "sh", "-c", "echo up; sleep 600"];
    bed.shell("n1", "rm -rf /tmp/gasnetrun-0");
    let running = bed.job("root", launcher, "1", &words).start();
    running.wait_stdout("up", 2);
    let mut agents = bed.cluster.processes("n1");
    agents.retain(|one| {
        one.command.starts_with("(gasnetrun") && one.command.contains("--node-agent")
    });
    // The agent and not its guard: nobody could end what a rank has started if both were gone at once.
    let agent = agents.iter().find(|one| agents.iter().any(|guard| guard.pid == one.parent));
    let agent = agent.expect("a guard and its agent").pid;
    assert!(testkit::process::send(agent, nix::sys::signal::Signal::SIGKILL), "it runs");
    assert_ne!(running.wait().code(), 0);
    bed.wait_for_the_end();
    assert_eq!(bed.kept("n1", 0), (1, 0));
}

#[test]
fn hosts_that_cannot_take_a_program_are_named_with_the_reason() {
    let name = "hosts that cannot take a program";
    let Some(bed) = Bed::up(name, "head n1 n2 n3 n4") else { return };
    bed.shell("n2", "mount -o remount,size=1m /tmp");
    bed.shell("n3", "mount -o remount,noexec /tmp");
    bed.shell("n4", "chmod 755 /tmp");
    let launcher = binary("gasnetrun_ibv").display().to_string();
    let outcome = bed.run_by("gx", &launcher, "1", &[HELLO]);
    outcome.expect(125);
    let said = outcome.err();
    for part in [
        "1 of 4 hosts (n2), at the step `program check`",
        "No space left on device",
        "1 of 4 hosts (n3), at the step `program check`",
        "noexec",
        "1 of 4 hosts (n4), at the step `program check`",
        "Permission denied",
        "XDG_CACHE_HOME",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    let user = bed.shell("head", "id -u gx").parse().expect("a number");
    assert_eq!(bed.kept("n1", user), (1, 0));
    for host in ["n2", "n3", "n4"] {
        assert_eq!(bed.kept(host, user), (0, 0), "{host}");
    }
}
