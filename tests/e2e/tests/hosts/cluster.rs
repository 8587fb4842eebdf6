//! `scripts/cluster`: hosts that can be reached by ssh, that fail as they are told to, and that
//! leave nothing behind.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use testkit::Cluster;
use testkit::process::Process;

/// Far above what one login takes on a busy machine.
const LOGIN: Duration = Duration::from_secs(30);

fn login(cluster: &Cluster, from: &str, to: &str, command: &str) -> testkit::Outcome {
    let words = ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", to, command];
    cluster.as_user("gx", from, &words).deadline("a login", LOGIN).run()
}

/// A login that must fail, soon.
fn refused(cluster: &Cluster, to: &str) {
    let words = ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=1", to, "true"];
    let outcome = cluster.on("n1", &words).deadline("a login that must fail", LOGIN).run();
    assert_eq!(outcome.code(), 255, "{}", outcome.err());
}

#[test]
fn hosts_can_be_reached_fail_and_leave_nothing() {
    let Some(cluster) = Cluster::up("hosts on one machine", "head n1 n2") else { return };
    let outcome = login(&cluster, "n1", "n2", "cat /proc/sys/kernel/hostname; id -un");
    outcome.expect(0);
    assert_eq!(outcome.out(), "n2\ngx\n");

    // The user of every installed login shell, from another host.
    let accounts =
        std::fs::read_to_string(cluster.directory().join("etc/passwd")).expect("accounts");
    let shells: Vec<_> = accounts
        .lines()
        .filter(|line| line.starts_with("gx-"))
        .filter_map(|line| Some((line.split(':').next()?, Path::new(line.rsplit(':').next()?))))
        .collect();
    assert!(shells.iter().any(|(user, _)| *user == "gx-sh"), "{accounts}");
    for (user, shell) in &shells {
        let outcome = login(&cluster, "head", &format!("{user}@n1"), "echo $SHELL; id -un");
        outcome.expect(0);
        assert_eq!(outcome.out(), format!("{}\n{user}\n", shell.display()));
    }

    for (cut, mend) in [
        ("unplug", "plug"),
        ("drop", "pass"),
        ("freeze", "thaw"),
        ("kill", "boot"),
        ("crash", "boot"),
    ] {
        if cut == "freeze" && !can_freeze() {
            testkit::skip("hosts that are frozen", "no control group for freezing");
            continue;
        }
        cluster.verb(&[cut, "n2"]);
        refused(&cluster, "n2");
        cluster.verb(&[mend, "n2"]);
        login(&cluster, "n1", "n2", "true").expect(0);
    }

    // Only what runs there is counted, and it ends with its host.
    let sleeper = cluster.on("n2", &["sleep", "1000"]).deadline("a sleeper", LOGIN).start();
    let begin = Instant::now();
    let seen = loop {
        let seen: Vec<Process> = cluster
            .processes("n2")
            .into_iter()
            .filter(|p| p.command.contains("sleep 1000"))
            .collect();
        if !seen.is_empty() {
            break seen;
        }
        assert!(begin.elapsed() < LOGIN, "the sleeper does not start");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(seen.len(), 1, "{seen:?}");
    let inits: Vec<i32> =
        ["head", "n1", "n2"].iter().filter_map(|host| cluster.init(host)).collect();
    assert_eq!(inits.len(), 3);
    cluster.verb(&["up"]);
    assert_eq!(cluster.init("n1"), Some(inits[1]), "up changes nothing that is up");
    let state = cluster.directory().to_owned();
    drop(cluster);
    drop(sleeper);
    assert!(!state.exists(), "{} is still there", state.display());
    for pid in inits.into_iter().chain([seen[0].pid]) {
        assert!(Process::read(pid).is_none_or(|process| process.is_zombie()), "{pid} survived");
    }
    let left =
        Process::all().into_iter().filter(|p| p.command.contains(&state.display().to_string()));
    assert_eq!(left.collect::<Vec<_>>(), []);
}

fn can_freeze() -> bool {
    ["/sys/fs/cgroup/freezer", "/sys/fs/cgroup/cgroup.procs"]
        .iter()
        .any(|path| Path::new(path).exists())
}

#[test]
fn a_directory_of_somebody_else_is_left_alone() {
    let script = testkit::repository().join("scripts/cluster");
    let directory = tempfile::tempdir().expect("scratch directory");
    std::fs::write(directory.path().join("thesis"), "years").expect("a file");
    for (verb, code) in [("up", 1), ("down", 0), ("on", 2), ("nonsense", 2)] {
        let mut command = Command::new(&script);
        let done = command.arg(verb).env("CLUSTER_DIR", directory.path()).output().expect("run");
        if done.status.code() == Some(77) {
            testkit::skip(
                "a directory that is no cluster's",
                &String::from_utf8_lossy(&done.stderr),
            );
            return;
        }
        assert_eq!(
            done.status.code(),
            Some(code),
            "{verb}: {}",
            String::from_utf8_lossy(&done.stderr)
        );
    }
    assert!(directory.path().join("thesis").exists());
}
