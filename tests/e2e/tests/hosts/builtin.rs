//! The ssh client of the launcher itself (`GASNET_SSH_CMD=builtin`, package `gasnetrun-ibv-ssh`).

use std::path::Path;
use std::process::Command;

use testkit::{Bed, Input, Outcome, Tree, binary, skip};

const NAME: &str = "the built-in ssh client";
const FILE: &str = "libgasnetrun_ibv_ssh.so";
/// The key of the hosts, which this client does not look up in ssh's configuration.
pub(crate) const KEY: &str = "GASNET_SSH_OPTIONS=-i /etc/ssh/id_root";

/// Path of a launcher with the client; `None` after a `SKIP` where that is not built.
pub(crate) fn launcher() -> Option<String> {
    let words = ["-t", "-n", "1", "--hosts", "gx@nowhere", "true"];
    let outcome = testkit::launcher(words).env("GASNET_SSH_CMD", "builtin").run();
    if outcome.err().contains("the built-in ssh client cannot be used") {
        skip(NAME, "it is not built (cargo build -p gasnetrun-ibv-ssh)");
        return None;
    }
    Some(binary("gasnetrun_ibv").display().to_string())
}

/// A job that must fail before it starts, with all of this in what it says. `options` is the value
/// of `GASNET_SSH_OPTIONS`.
fn refused(bed: &Bed, options: &str, hosts: &str, parts: &[&str]) {
    let ranks = (hosts.matches(',').count() + 1).to_string();
    let options = format!("GASNET_SSH_OPTIONS={options}");
    let outcome = bed.run(&[&options], &["-n", &ranks, "--hosts", hosts, "true"]);
    outcome.expect(125);
    for part in parts {
        assert!(outcome.err().contains(part), "{part} in {}", outcome.err());
    }
}

/// Another user, a port, IPv6, and the keys of an agent. (Jobs as such: `transports`.)
fn logins(bed: &Bed) {
    let outcome = bed.run(&[KEY], &["-n", "1", "--hosts", "gx@n1:22", "id", "-un"]);
    outcome.expect(0);
    assert_eq!(outcome.out(), "gx\n");
    let known = bed.cluster.directory().join("share/known");
    let key = std::fs::read_to_string(bed.cluster.directory().join("ssh/host_head.pub"));
    std::fs::write(&known, format!("::1 {}", key.expect("a key"))).expect("written");
    let options = format!("{KEY} -o UserKnownHostsFile={}", known.display());
    let outcome = bed.run(&[&options], &["-n", "1", "--hosts", "gx@[::1]:22", "id", "-un"]);
    outcome.expect(0);
    assert_eq!(outcome.out(), "gx\n");
    let agent = ["ssh-agent", "sh", "-c", "ssh-add -q /etc/ssh/id_root && exec \"$@\"", "sh"];
    bed.job_under(&agent, &[], &["-n", "2", "--hosts", "n1,n2", "true"]).run().expect(0);
}

fn failures(bed: &Bed) {
    let key = KEY.split_once('=').expect("a value").1;
    refused(bed, key, "nx,n1", &["(nx), at the step `resolve`"]);
    refused(bed, key, "root@n1:9", &["at the step `connect`", "Connection refused"]);
    let denied = ["at the step `authentication`", "Permission denied (publickey", "/nowhere/key"];
    refused(bed, "-i /nowhere/key", "n1,n2", &denied);
    refused(bed, "-J n1", "n1", &["GASNET_SSH_OPTIONS", "-J", "IdentityFile"]);
    let known = bed.cluster.directory().join("ssh/ssh_known_hosts");
    let right = std::fs::read_to_string(&known).expect("known hosts");
    let of = |host: &str| {
        let line = right.lines().find(|line| line.starts_with(host)).expect("a line");
        line.split_once(' ').expect("a key").1.to_owned()
    };
    std::fs::write(&known, right.replace(&of("n2,"), &of("n1,"))).expect("written");
    refused(bed, key, "n1,n2", &["1 of 2 hosts (n2), at the step `host key`", "HAS CHANGED"]);
    let without: String = right.lines().filter(|line| !line.starts_with("n2,")).collect();
    std::fs::write(&known, without).expect("written");
    let parts = ["(n2), at the step `host key`", "No ED25519 host key is known", "log in once"];
    refused(bed, key, "n2", &parts);
    std::fs::write(&known, &right).expect("written");
    // A host that takes the connection and says nothing.
    bed.shell("n2", "kill -STOP $(cat /run/sshd.pid)");
    let options = format!("{key} -o ConnectTimeout=1");
    refused(bed, &options, "n2", &["(n2), at the step `connect`", "Connection timed out"]);
    bed.shell("n2", "kill -CONT $(cat /run/sshd.pid)");
}

/// Launcher and client are on the launching host only: agents that are sent to others have no
/// client, and the launcher logs in where they cannot.
fn staged(bed: &mut Bed) {
    bed.shell("head", "mkdir -m 755 /tmp/only");
    for file in ["gasnetrun_ibv", FILE] {
        bed.shell("head", &format!("cp {} /tmp/only/", binary(file).display()));
    }
    bed.set_launcher("/tmp/only/gasnetrun_ibv");
    let words = ["-v", "-n", "2", "--hosts", "n1,n2", "uname", "-n"];
    let outcome = bed.run(&[KEY, "GASNET_SSH_OUT_DEGREE=1"], &words);
    outcome.expect(0);
    let out = outcome.out();
    let mut hosts: Vec<&str> = out.lines().collect();
    hosts.sort_unstable();
    assert_eq!(hosts, ["n1", "n2"]);
    assert!(outcome.err().contains("started from here"), "{}", outcome.err());
}

#[test]
fn a_client_of_our_own_instead_of_ssh() {
    let Some(launcher) = launcher() else { return };
    let Some(mut bed) = Bed::up(NAME, "n1 n2") else { return };
    bed.set_launcher(&launcher);
    bed.set_always(&["GASNET_SSH_CMD=builtin"]);
    logins(&bed);
    failures(&bed);
    // Much input to every rank.
    let words = ["-n", "2", "--hosts", "n1,n2", "--stdin", "all", "sh", "-c", "cat; seq 100000"];
    let text: String = (0..20_000).map(|line| format!("in {line}\n")).collect();
    let outcome = bed.job(&[KEY], &words).stdin(Input::Bytes(text.into_bytes())).run();
    outcome.expect(0);
    assert_eq!(outcome.out().lines().count(), 2 * (20_000 + 100_000));
    assert_eq!(outcome.out().lines().filter(|line| *line == "in 19999").count(), 2);
    staged(&mut bed);
    bed.assert_clean();
}

/// A launcher in an empty directory, with the client asked for.
fn alone(directory: &Path) -> Outcome {
    let launcher = directory.join("gasnetrun_ibv");
    std::fs::copy(binary("gasnetrun_ibv"), &launcher).expect("it can be copied");
    let words = ["-n", "1", "--hosts", "gx@nowhere", "true"];
    let job = Tree::new(launcher).args(words).env("GASNET_SSH_CMD", "builtin");
    let outcome = job.env("GASNET_QUIET", "1").run();
    outcome.expect(125);
    outcome
}

#[test]
fn a_launcher_without_the_client_says_where_it_looked() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join(FILE);
    let missing = format!("{}: no such file", file.display());
    let outcome = alone(directory.path());
    for part in [&missing, "/lib/gasnetrun_ibv/", "cargo build -p gasnetrun-ibv-ssh"] {
        assert!(outcome.err().contains(part), "{part} in {}", outcome.err());
    }
    // One of another version.
    let source = directory.path().join("other.c");
    std::fs::write(&source, "unsigned gasnetrun_ibv_ssh_version(void) { return 77; }\n")
        .expect("written");
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-o"]).arg(&file).arg(&source);
    assert!(compile.status().expect("a C compiler").success());
    let outcome = alone(directory.path());
    let other = format!("{}: it has version 77, this program needs", file.display());
    assert!(outcome.err().contains(&other), "{}", outcome.err());
}
