//! Ranks in containers that a command in front of them makes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use testkit::{Input, Tree, binary, launcher, skip};

const BOUND: Duration = Duration::from_secs(120);
/// All files of this machine, processes of its own.
const BWRAP: &str = "bwrap --dev-bind / / --unshare-pid --proc /proc";

fn on_path(name: &str) -> Option<PathBuf> {
    let path = settings::variable("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|place| place.join(name)).find(|path| path.is_file())
}

fn has_bwrap(test: &str) -> bool {
    if on_path("bwrap").is_none() {
        skip(test, "bwrap is not installed (package bubblewrap)");
        return false;
    }
    let words = BWRAP.split(' ').skip(1).chain(["true"]);
    let ran = Command::new("bwrap").args(words).output();
    let works = ran.as_ref().is_ok_and(|ran| ran.status.success());
    if !works {
        let said = ran.map(|ran| String::from_utf8_lossy(&ran.stderr).trim().to_owned());
        skip(test, &format!("bwrap cannot make a container here: {}", said.unwrap_or_default()));
    }
    works
}

fn job(ranks: &str, container: &str, words: &[&str]) -> Tree {
    let line = [&["-n", ranks, "--container", container], words].concat();
    launcher(line).deadline("a job in containers", BOUND)
}

#[test]
fn ranks_in_namespaces_of_processes_talk_and_end() {
    let test = "ranks in bubblewrap";
    if !has_bwrap(test) {
        return;
    }
    let hello = binary("hello").display().to_string();
    let outcome = job("3", BWRAP, &[&hello]).run();
    outcome.expect(0);
    let out = outcome.out();
    for rank in 0..3 {
        assert!(out.contains(&format!("rank {rank} of 3 on ")), "{out}");
    }
    // The number of a process inside is that of its own namespace.
    assert_eq!(out.matches("process 2\n").count(), 3, "{out}");
    // Codes and signals are those of the program.
    for (script, code) in [("exit 7", 7), ("kill -SEGV $$", 139), ("kill -KILL $$", 137)] {
        let outcome = job("2", BWRAP, &["sh", "-c", script]).run();
        outcome.expect(code);
    }
    // What exits of ranks do; the agent must know whom it asks.
    let testexit = binary("testexit").display().to_string();
    for case in ["1", "3", "5"] {
        let outcome = job("3", BWRAP, &[&testexit, case]).run();
        outcome.expect(case.parse().expect("a number"));
        assert!(!outcome.out().contains("TEST FAILED"), "{}", outcome.out());
    }
    let outcome = job("2", BWRAP, &["sh", "-c", "read line && echo got $line; true"]);
    let outcome = outcome.stdin(Input::Bytes(b"hello\n".to_vec())).run();
    outcome.expect(0);
    assert_eq!(outcome.out(), "got hello\n");
}

#[test]
fn a_rank_in_a_container_is_seen_and_signalled() {
    let test = "ranks in bubblewrap that are watched";
    if !has_bwrap(test) {
        return;
    }
    let user = tempfile::tempdir().expect("a directory");
    let (program, runtime) = (binary("watched").display().to_string(), "XDG_RUNTIME_DIR");
    let running = job("2", BWRAP, &[&program, "barrier"]).env(runtime, user.path()).start();
    running.wait_stdout("up", 2);
    let show = "sh -c 'cat /proc/$1/comm'";
    let words = ["attach", "--debugger", show, &running.pid().to_string(), "1"];
    let outcome = launcher(words).env(runtime, user.path()).deadline("a debugger", BOUND).run();
    outcome.expect(0);
    assert_eq!(outcome.out(), "watched\n");
    assert!(running.signal(Signal::SIGTERM));
    running.wait().expect(143);
}

/// A program that is nowhere but in the container, also under a debugger.
#[test]
fn the_program_is_that_of_the_container() {
    let test = "a program that only a container has";
    if !has_bwrap(test) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::copy(binary("hello"), directory.path().join("inside")).expect("a program");
    let container = format!("{BWRAP} --tmpfs /mnt --bind {} /mnt", directory.path().display());
    for debugger in [&[][..], &["--debugger", "env A=b"]] {
        let outcome = job("2", &container, &[debugger, &["/mnt/inside"]].concat()).run();
        outcome.expect(0);
        assert_eq!(outcome.out().matches(" of 2 on ").count(), 2, "{}", outcome.out());
    }
    let outcome = job("2", &container, &["/mnt/nowhere"]).run();
    assert_ne!(outcome.code(), 0);
    assert!(outcome.err().contains("/mnt/nowhere"), "{}", outcome.err());
    // Several programs.
    let words = ["/mnt/inside", ":", "-n", "1", "env", "A=b", "/mnt/inside"];
    job("1", &container, &words).run().expect(0);
}

#[test]
fn what_keeps_a_rank_from_its_agent_is_refused() {
    for (container, said) in [
        ("docker run image", "its daemon starts containers"),
        ("bwrap --clearenv --dev-bind / /", "which --clearenv keeps from them"),
        ("no-such-runtime image", "\"no-such-runtime\" not found"),
    ] {
        let outcome = job("2", container, &["true"]).run();
        assert_ne!(outcome.code(), 0);
        assert!(outcome.err().contains(said), "{container}: {}", outcome.err());
    }
}

/// The words of a podman that works here: with an empty system whose files are those of this machine.
fn podman(test: &str, root: &Path) -> Option<String> {
    for name in ["bin", "dev", "etc", "lib", "lib64", "proc", "run", "sys", "tmp", "usr", "work"] {
        std::fs::create_dir_all(root.join(name)).expect("a directory");
    }
    let mut line = String::from("podman");
    if on_path("runc").is_some() {
        line += " --runtime runc";
    }
    line += " run --rm --ulimit nofile=1024:1024 --ulimit nproc=1000:1000";
    let target = binary("hello");
    let target = target.parent().expect("a directory").display().to_string();
    for place in ["/usr", "/bin", "/lib", "/lib64", &target] {
        line += &format!(" -v {place}:{place}");
    }
    line += &format!(" --rootfs {}", root.display());
    if on_path("podman").is_none() {
        skip(test, "podman is not installed");
        return None;
    }
    let words = line.split(' ').skip(1).chain(["true"]);
    let ran = Command::new("podman").args(words).output().expect("podman");
    if !ran.status.success() {
        let said = String::from_utf8_lossy(&ran.stderr);
        skip(test, &format!("podman cannot make a container here: {}", said.trim()));
        return None;
    }
    Some(line)
}

#[test]
fn ranks_in_podman_talk_and_end() {
    let root = tempfile::tempdir().expect("a directory");
    let Some(podman) = podman("ranks in podman", root.path()) else { return };
    let hello = binary("hello").display().to_string();
    let outcome = job("2", &podman, &[&hello]).run();
    outcome.expect(0);
    assert_eq!(outcome.out().matches(" of 2 on ").count(), 2, "{}", outcome.out());
    let set = "echo $A $GASNETRUN_RANK $GASNET_QUIET; exit 5";
    let words = ["-n", "1", "--container", &podman, "--env", "A=1 2", "sh", "-c", set];
    let outcome = launcher(words).env("GASNET_QUIET", "1").deadline("podman", BOUND).run();
    outcome.expect(5);
    assert_eq!(outcome.out(), "1 2 0 1\n");
    let outcome = job("1", &podman, &["sh", "-c", "kill -SEGV $$"]).run();
    outcome.expect(139);
}
