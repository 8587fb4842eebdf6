//! The ssh client of the launcher itself (`GASNET_SSH_CMD=builtin`, feature `builtin-ssh`), built for this test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use testkit::{Cluster, Input, Outcome, Tree, binary, skip};

/// Far above what a job on a few hosts takes on a busy machine.
const BOUND: Duration = Duration::from_secs(90);
const GONE: Duration = Duration::from_secs(15);
const NAME: &str = "the built-in ssh client";
const HOSTS: [&str; 4] = ["head", "n1", "n2", "n3"];

/// Builds the launcher with the client; `None` after a `SKIP` where that is not possible.
fn launcher() -> Option<PathBuf> {
    let found = Command::new("pkg-config").args(["--exists", "openssl"]).status();
    if !found.is_ok_and(|status| status.success()) {
        skip(NAME, "pkg-config does not find openssl (packages libssl-dev and pkg-config)");
        return None;
    }
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = binary("gasnetrun_ibv").parent()?.join("with-builtin-ssh");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "-p", "gasnetrun-ibv", "--features", "builtin-ssh", "--target-dir"])
        .arg(&target)
        .current_dir(package.parent()?)
        .output()
        .expect("cargo can be run");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(target.join("debug/gasnetrun_ibv"))
}

struct Bed {
    cluster: Cluster,
    launcher: String,
}

impl Bed {
    /// A job; `options` is the value of `GASNET_SSH_OPTIONS`.
    fn job(&self, degree: &str, options: &str, words: &[&str]) -> Tree {
        self.job_under(&[], degree, options, words)
    }

    fn job_under(&self, wrapper: &[&str], degree: &str, options: &str, words: &[&str]) -> Tree {
        let degree = format!("GASNET_SSH_OUT_DEGREE={degree}");
        let options = format!("GASNET_SSH_OPTIONS={options}");
        let mut line = vec!["env", "-C", "/", "GASNET_QUIET=1", "GASNET_IBV_FABRIC=soft"];
        line.extend(["GASNET_IBV_SOFT_ADDRESS=198.18.77.0/24", "GASNET_SSH_CMD=builtin"]);
        line.extend([&degree, options.as_str()]);
        line.extend(wrapper);
        line.push(&self.launcher);
        line.extend(words);
        self.cluster.on("head", &line).deadline("a job on several hosts", BOUND)
    }

    fn run(&self, degree: &str, options: &str, words: &[&str]) -> Outcome {
        let outcome = self.job(degree, options, words).run();
        self.assert_clean();
        outcome
    }

    /// A job that must fail before it starts, with all of this in what it says.
    fn refused(&self, options: &str, hosts: &str, parts: &[&str]) {
        let ranks = (hosts.matches(',').count() + 1).to_string();
        let outcome = self.run("0", options, &["-n", &ranks, "--hosts", hosts, "true"]);
        outcome.expect(125);
        for part in parts {
            assert!(outcome.err().contains(part), "{part} in {}", outcome.err());
        }
    }

    fn assert_clean(&self) {
        let begin = Instant::now();
        for host in HOSTS {
            while !self.cluster.processes(host).is_empty() {
                let left = self.cluster.processes(host);
                assert!(begin.elapsed() < GONE, "{host}: {left:?}");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    fn shell(&self, host: &str, command: &str) {
        self.cluster.on(host, &["sh", "-c", command]).run().expect(0);
    }
}

const KEY: &str = "-i /etc/ssh/id_root";

fn jobs(bed: &Bed) {
    let hello = binary("hello").display().to_string();
    for degree in ["0", "1"] {
        let outcome = bed.run(degree, KEY, &["-n", "6", "--hosts", "n1,n2,n3", &hello]);
        outcome.expect(0);
        for (rank, host) in ["n1", "n1", "n2", "n2", "n3", "n3"].iter().enumerate() {
            let line = format!("rank {rank} of 6 on {host},");
            assert!(outcome.out().contains(&line), "{line} in {}", outcome.out());
        }
    }
    let seven = "test $GASNETRUN_RANK = 2 && exit 7; sleep 600";
    bed.run("1", KEY, &["-n", "3", "--hosts", "n1,n2,n3", "sh", "-c", seven]).expect(7);
    // Much output, and input to every rank.
    let words = ["-n", "2", "--hosts", "n1,n2", "--stdin", "all", "sh", "-c", "cat; seq 100000"];
    let text: String = (0..20_000).map(|line| format!("in {line}\n")).collect();
    let outcome = bed.job("0", KEY, &words).stdin(Input::Bytes(text.into_bytes())).run();
    outcome.expect(0);
    assert_eq!(outcome.out().lines().count(), 2 * (20_000 + 100_000));
    assert_eq!(outcome.out().lines().filter(|line| *line == "in 19999").count(), 2);
    // Another user, a port, IPv6, and the keys of an agent.
    let whoami = ["-n", "1", "--hosts", "gx@n1:22", "id", "-un"];
    let outcome = bed.run("0", KEY, &whoami);
    outcome.expect(0);
    assert_eq!(outcome.out(), "gx\n");
    let known = bed.cluster.directory().join("share/known");
    let key = std::fs::read_to_string(bed.cluster.directory().join("ssh/host_head.pub"));
    std::fs::write(&known, format!("::1 {}", key.expect("a key"))).expect("written");
    let options = format!("{KEY} -o UserKnownHostsFile={}", known.display());
    let outcome = bed.run("0", &options, &["-n", "1", "--hosts", "gx@[::1]:22", "id", "-un"]);
    outcome.expect(0);
    assert_eq!(outcome.out(), "gx\n");
    let agent = ["ssh-agent", "sh", "-c", "ssh-add -q /etc/ssh/id_root && exec \"$@\"", "sh"];
    bed.job_under(&agent, "0", "", &["-n", "2", "--hosts", "n1,n2", "true"]).run().expect(0);
}

fn failures(bed: &Bed) {
    bed.refused(KEY, "nx,n1", &["(nx), at the step `resolve`"]);
    bed.refused(KEY, "root@n1:9", &["at the step `connect`", "Connection refused"]);
    let denied = ["at the step `authentication`", "Permission denied (publickey", "/nowhere/key"];
    bed.refused("-i /nowhere/key", "n1,n2", &denied);
    bed.refused("-J n1", "n1", &["GASNET_SSH_OPTIONS", "-J", "IdentityFile"]);
    let known = bed.cluster.directory().join("ssh/ssh_known_hosts");
    let right = std::fs::read_to_string(&known).expect("known hosts");
    let of = |host: &str| {
        let line = right.lines().find(|line| line.starts_with(host)).expect("a line");
        line.split_once(' ').expect("a key").1.to_owned()
    };
    std::fs::write(&known, right.replace(&of("n2,"), &of("n1,"))).expect("written");
    bed.refused(KEY, "n1,n2", &["1 of 2 hosts (n2), at the step `host key`", "HAS CHANGED"]);
    let without: String = right.lines().filter(|line| !line.starts_with("n2,")).collect();
    std::fs::write(&known, without).expect("written");
    let parts = ["(n2), at the step `host key`", "No ED25519 host key is known", "log in once"];
    bed.refused(KEY, "n2", &parts);
    std::fs::write(&known, &right).expect("written");
    // A host that takes the connection and says nothing.
    bed.shell("n2", "kill -STOP $(cat /run/sshd.pid)");
    let begin = Instant::now();
    let options = format!("{KEY} -o ConnectTimeout=1");
    bed.refused(&options, "n2", &["(n2), at the step `connect`", "Connection timed out"]);
    assert!(begin.elapsed() < BOUND);
    bed.shell("n2", "kill -CONT $(cat /run/sshd.pid)");
}

#[test]
fn a_client_of_our_own_instead_of_ssh() {
    let Some(launcher) = launcher() else { return };
    let Some(cluster) = Cluster::up(NAME, "head n1 n2 n3") else { return };
    let bed = Bed { cluster, launcher: launcher.display().to_string() };
    jobs(&bed);
    failures(&bed);
    // No process of ssh, and nothing is left when the launcher is killed.
    let words = ["-n", "3", "--hosts", "n1,n2,n3", "sh", "-c", "echo up; sleep 600"];
    let running = bed.job("1", KEY, &words).start();
    running.wait_stdout("up", 3);
    for host in HOSTS {
        let all = bed.cluster.processes(host);
        assert!(!all.is_empty());
        assert!(!all.iter().any(|process| process.command.starts_with("(ssh)")), "{all:?}");
    }
    let mut ours = bed.cluster.processes("head");
    ours.retain(|process| process.command.starts_with("(gasnetrun_ibv) "));
    ours.sort_by_key(|process| process.pid);
    let front = ours.first().expect("the launcher runs").pid;
    assert!(testkit::process::send(front, nix::sys::signal::Signal::SIGKILL));
    bed.assert_clean();
    drop(running);
}

#[test]
fn a_build_without_the_client_says_so() {
    let outcome = testkit::launcher(["-n", "1", "--hosts", "gx@nowhere", "true"])
        .env("GASNET_SSH_CMD", "builtin")
        .env("GASNET_QUIET", "1")
        .run();
    outcome.expect(125);
    let said = outcome.err();
    assert!(said.contains("--features builtin-ssh") || said.contains("resolve"), "{said}");
}
