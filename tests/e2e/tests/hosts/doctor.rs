//! `gasnetrun_ibv doctor` on hosts that are well and on hosts that are broken, against golden texts
//! in `tests/hosts/golden/`.
//!
//! `GASNETRUN_UPDATE_DOCUMENTS=1 cargo test -p e2e --test hosts doctor` writes them anew.

use std::path::{Path, PathBuf};
use std::time::Duration;

use testkit::{Bed, Outcome, binary};

/// Far above what it takes on a busy machine, retries included.
const BOUND: Duration = Duration::from_secs(120);
const HOSTS: &str = "n1,n2,n3";

/// The doctor, called on the head.
fn doctor(bed: &Bed, launcher: &str, directory: &str, words: &[&str]) -> Outcome {
    // What is said is that of the ssh program; for who logs in by default, see `clients`.
    let mut line = vec!["env", "-C", directory, "GASNET_SSH_CMD=ssh", launcher, "doctor"];
    line.extend(words);
    bed.cluster.on("head", &line).deadline("an examination", BOUND).run()
}

/// Examines three hosts from `/` and compares with a golden file; `code` is the exit code.
fn golden(bed: &Bed, name: &str, code: i32) {
    let launcher = binary("gasnetrun_ibv").display().to_string();
    compare(name, &doctor(bed, &launcher, "/", &["--hosts", HOSTS]), code);
}

/// Compares what was printed, without what differs from machine to machine.
fn compare(name: &str, outcome: &Outcome, code: i32) {
    outcome.expect(code);
    let text: String = outcome.out().lines().map(|line| steady(line) + "\n").collect();
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path: PathBuf = package.join("tests/hosts/golden").join(format!("{name}.txt"));
    if settings::variable("GASNETRUN_UPDATE_DOCUMENTS").is_some() {
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        std::fs::write(&path, text).expect("written");
        return;
    }
    let golden = std::fs::read_to_string(&path).expect("a golden file");
    assert_eq!(text, golden, "{}: {}", path.display(), outcome.err());
}

/// A line without the limits, versions and installed tools of this machine.
fn steady(line: &str) -> String {
    let varies = ["version ", "locked memory ", "adapters ", "MPI programs ", "other launchers "];
    let of_this_machine = line.starts_with("ok ") && varies.iter().any(|name| line.contains(name));
    match line.split_once(": ").filter(|_| of_this_machine) {
        Some((head, _)) => format!("{head}: *"),
        None => line.to_owned(),
    }
}

#[test]
fn hosts_that_are_well_and_hosts_that_are_broken() {
    let Some(bed) = Bed::up("the doctor's hosts", "n1 n2 n3") else { return };
    golden(&bed, "healthy", 0);

    bed.cluster.verb(&["unplug", "n2"]);
    golden(&bed, "unplugged", 1);
    bed.cluster.verb(&["plug", "n2"]);

    let known = bed.cluster.directory().join("ssh/ssh_known_hosts");
    let right = std::fs::read_to_string(&known).expect("known hosts");
    let key = |host: &str| {
        let line = right.lines().find(|line| line.starts_with(host)).expect("a line");
        line.split_once(' ').expect("a key").1.to_owned()
    };
    std::fs::write(&known, right.replace(&key("n2,"), &key("n1,"))).expect("written");
    golden(&bed, "other-host-key", 1);
    std::fs::write(&known, &right).expect("written");

    bed.shell("n2", "mount --bind /dev/null /etc/ssh/authorized_keys");
    bed.shell("n3", "mount --bind /dev/null /etc/ssh/authorized_keys");
    golden(&bed, "key-not-accepted", 1);
    bed.shell("n2", "umount /etc/ssh/authorized_keys");
    bed.shell("n3", "umount /etc/ssh/authorized_keys");

    bed.shell("n1", "mount -o remount,size=1m /dev/shm");
    bed.shell("n3", "mount -o remount,ro /dev/shm");
    golden(&bed, "dev-shm", 1);
    bed.shell("n1", "mount -o remount,size=50% /dev/shm");
    bed.shell("n3", "mount -o remount,rw /dev/shm");

    bed.shell("n1", "ip route del default");
    golden(&bed, "no-default-route", 0);
    bed.shell("n1", "ip route add default dev eth0");

    // The launcher is where only the head has it, and so is the working directory.
    bed.shell("head", "mkdir /tmp/only");
    bed.shell("head", &format!("cp {} /tmp/only/", binary("gasnetrun_ibv").display()));
    let launcher = "/tmp/only/gasnetrun_ibv";
    let words = ["--stage", "never", "n1", "n2", "n3"];
    compare("agent-missing", &doctor(&bed, launcher, "/", &words), 1);
    bed.shell("n2", "mount -o remount,noexec /tmp");
    compare("directory-missing", &doctor(&bed, launcher, "/tmp/only", &["n[1-2]"]), 1);
    bed.shell("n2", "mount -o remount,exec /tmp");

    // Where a job could not send its program.
    for (host, options) in [("n1", "size=64k"), ("n2", "ro"), ("n3", "size=63m")] {
        let mount = format!("mount -t tmpfs -o mode=700,{options} tmpfs /tmp/gasnetrun-0");
        bed.shell(host, &format!("mkdir -p /tmp/gasnetrun-0 && {mount}"));
    }
    golden(&bed, "staging", 1);
    let words = ["--stage", "never", "n1", "n2", "n3"];
    let outcome = doctor(&bed, &binary("gasnetrun_ibv").display().to_string(), "/", &words);
    outcome.expect(0);
    assert!(outcome.out().contains("0 problems, 3 warnings"), "{}", outcome.out());
    for host in ["n1", "n2", "n3"] {
        bed.shell(host, "umount /tmp/gasnetrun-0");
    }

    // What a job would use, and the report.
    let report = bed.cluster.directory().join("share/report.json");
    let list = format!("GASNET_SSH_SERVERS={HOSTS}");
    let program = binary("gasnetrun_ibv").display().to_string();
    let path = report.display().to_string();
    let words =
        ["env", "-C", "/", "GASNET_SSH_CMD=ssh", &list, &program, "doctor", "--report", &path];
    let outcome = bed.cluster.on("head", &words).deadline("an examination", BOUND).run();
    compare("healthy", &outcome, 0);
    let text = std::fs::read_to_string(&report).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((&report["format"], &report["exit_code"]), (&1.into(), &0.into()));
    let hosts = report["hosts"].as_array().expect("hosts");
    assert_eq!(hosts.len(), 3);
    for host in hosts {
        assert_eq!(host["failure"], serde_json::Value::Null);
        let findings = host["findings"].as_array().expect("findings");
        assert!(findings.len() > 9 && findings.iter().all(|one| one["level"] == "ok"), "{host}");
    }
    // The last one: not everybody may raise a limit again.
    bed.shell("n1", "prlimit --nofile=100:100 --pid $(cat /run/sshd.pid)");
    bed.shell("n2", "prlimit --nofile=512:512 --pid $(cat /run/sshd.pid)");
    golden(&bed, "descriptors", 1);
    bed.assert_clean();
}

#[test]
fn this_host_alone_and_wrong_command_lines() {
    let outcome = testkit::launcher(["doctor"]).run();
    assert!([0, 1].contains(&outcome.code()), "{}", outcome.err());
    assert!(outcome.out().contains("1 of 1 host: the agent answers"), "{}", outcome.out());
    for words in [&["doctor", "--nothing"][..], &["doctor", "--hosts", "a", "b"]] {
        let outcome = testkit::launcher(words).run();
        outcome.expect(2);
        assert!(outcome.out().is_empty() && outcome.err().contains("doctor"), "{}", outcome.err());
    }
    let outcome = testkit::launcher(["doctor", "n[1-"]).run();
    outcome.expect(125);
    let outcome = testkit::launcher(["doctor", "--help"]).run();
    outcome.expect(0);
    assert!(outcome.out().contains("--stage"), "{}", outcome.out());
}
