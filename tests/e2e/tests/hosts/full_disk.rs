//! Disks that fill up while a job runs: it goes on or ends in a defined way, with one line that
//! names host and path.

use std::time::Duration;

use testkit::{Bed, Running};

const HOSTS: &str = "n1 n2";

/// A disk of its own, a small one, on a host; what is below it is not on the others.
fn disk(bed: &Bed, host: &str) {
    bed.shell(host, "mkdir -p /tmp/disk && mount -t tmpfs -o size=256k tmpfs /tmp/disk");
}

fn fill(bed: &Bed, host: &str) {
    bed.shell(host, "cat /dev/zero > /tmp/disk/fill 2>/dev/null; true");
}

fn empty(bed: &Bed, host: &str) {
    bed.shell(host, "rm -rf /tmp/disk/*");
}

/// A job of one rank on each host that says `up`, waits for the file `go`, and then does the rest
/// of the script.
fn started(bed: &Bed, words: &[&str], script: &str) -> Running {
    let go = format!("{}/go", bed.share());
    let _ = std::fs::remove_file(&go);
    let script = format!("echo up; until test -e {go}; do sleep 0.02; done; {script}");
    let line = [&["-n", "2", "--hosts", "n1,n2"], words, &["sh", "-c", &script]].concat();
    bed.lasting(2, &[], &line)
}

fn go(bed: &Bed) {
    std::fs::write(format!("{}/go", bed.share()), "").expect("the share can be written");
}

/// How often a text is there.
fn count(text: &str, part: &str) -> usize {
    text.matches(part).count()
}

const NO_SPACE: &str = "No space left on device";

#[test]
fn disks_that_fill_up_during_a_job() {
    let Some(bed) = Bed::up("disks that fill up", HOSTS) else { return };
    disk(&bed, "head");

    // The report: the job is over by then, and its own code matters more. No half report is left.
    for (end, code) in [("true", 125), ("exit 3", 3)] {
        let running = started(&bed, &["--report", "/tmp/disk/report"], end);
        fill(&bed, "head");
        go(&bed);
        let outcome = running.wait();
        outcome.expect(code);
        let said = outcome.err();
        let line = "--report /tmp/disk/report: cannot write it on host head: No space left";
        assert_eq!(count(&said, line), 1, "{said}");
        assert_eq!(bed.shell("head", "stat -c %s /tmp/disk/report"), "0");
        bed.assert_clean();
        empty(&bed, "head");
    }

    // Files of the ranks' output: the job goes on, all is still shown, and it does not end with 0.
    let words = ["--output-dir", "/tmp/disk/out"];
    let running = started(&bed, &words, "seq 20000; echo over");
    fill(&bed, "head");
    go(&bed);
    let outcome = running.wait();
    outcome.expect(1);
    let said = outcome.err();
    assert_eq!(count(&outcome.out(), "over\n"), 2);
    assert_eq!(count(&said, NO_SPACE), 1, "{said}");
    assert!(said.contains("cannot write /tmp/disk/out/rank."), "{said}");
    assert!(said.contains(".out on host head: No space left on device"), "{said}");
    bed.assert_clean();
    empty(&bed, "head");

    // The launcher's own standard output is a file there: ranks that write meet a closed pipe, as
    // without a launcher.
    let launcher = testkit::binary("gasnetrun_ibv").display().to_string();
    let script = format!(
        "cd / && exec {launcher} -n 2 --hosts n1,n2 sh -c 'seq 200000; echo over >&2' > /tmp/disk/output"
    );
    let outcome = bed.cluster.on("head", &["sh", "-c", &script]);
    let outcome = outcome.deadline("a job on several hosts", Duration::from_secs(90)).run();
    assert_ne!(outcome.code(), 0);
    let said = outcome.err();
    let line =
        "cannot write standard output, /tmp/disk/output on host head: No space left on device";
    assert_eq!(count(&said, line), 1, "{said}");
    bed.assert_clean();
    empty(&bed, "head");
}

/// A job of one rank on each host whose program only the launching host has, once both ranks run;
/// they do `script` when [`go`] says so.
fn sent(bed: &Bed, script: &str) -> Running {
    let go = format!("{}/go", bed.share());
    let _ = std::fs::remove_file(&go);
    let file = format!("{}/script", bed.share());
    let text = format!("#!/bin/sh\necho up\nuntil test -e {go}; do sleep 0.02; done\n{script}\n");
    std::fs::write(&file, text).expect("the share can be written");
    bed.shell("head", &format!("mkdir -p /tmp/only && install -m 755 {file} /tmp/only/work"));
    bed.lasting(2, &["GASNET_SSH_OUT_DEGREE=1"], &["-n", "2", "--hosts", "n1,n2", "/tmp/only/work"])
}

/// What lies where programs are sent to.
fn kept(bed: &Bed, host: &str) -> String {
    bed.shell(host, "ls -A /tmp/gasnetrun-0 | grep -v '^[0-9a-f]\\{64\\}$'; true")
}

#[test]
fn a_disk_of_another_host_that_fills_up_during_a_job() {
    let Some(bed) = Bed::up("a disk of another host that fills up", HOSTS) else { return };
    bed.shell("n2", "mount -o remount,size=1m /tmp");
    let fill = "cat /dev/zero > /tmp/fill 2>/dev/null; true";

    // The program was sent to that disk and runs from it: the job does not notice, and takes its
    // directory away.
    let running = sent(&bed, "seq 20000; echo over");
    assert!(!kept(&bed, "n2").is_empty(), "a directory of the job");
    bed.shell("n2", fill);
    go(&bed);
    let outcome = running.wait();
    outcome.expect(0);
    assert_eq!((count(&outcome.out(), "over\n"), outcome.err().as_str()), (2, ""));
    bed.assert_clean();
    assert_eq!(kept(&bed, "n2"), "");
    bed.shell("n2", "rm /tmp/fill");

    // A rank cannot write there: its words and its code are the job's, with the name of the host.
    let write = "dd if=/dev/zero of=/tmp/data bs=100000 count=1 status=none || exit 9; sleep 60";
    let running = sent(&bed, write);
    bed.shell("n2", fill);
    go(&bed);
    let outcome = running.wait();
    outcome.expect(9);
    let said = outcome.err();
    assert!(said.contains("'/tmp/data': No space left on device"), "{said}");
    let line = said.lines().find(|line| line.contains("rank 1 of 2 on host n2"));
    assert!(line.is_some_and(|line| line.contains("exited with code 9")), "{said}");
    bed.assert_clean();
    assert_eq!((kept(&bed, "n1"), kept(&bed, "n2")), (String::new(), String::new()));

    // It is still full when the next job comes with another program.
    bed.shell(
        "head",
        "echo 'exit 4' >> /tmp/only/work; head -c 100000 /dev/zero >> /tmp/only/work",
    );
    let outcome = bed.run(&[], &["-n", "2", "--hosts", "n1,n2", "/tmp/only/work"]);
    outcome.expect(125);
    let said = outcome.err();
    assert_eq!(count(&said, NO_SPACE), 1, "{said}");
    let line = said.lines().find(|line| line.contains(NO_SPACE)).unwrap_or_default();
    assert!(line.contains("1 of 2 hosts (n2)") && line.contains("/tmp/gasnetrun-0"), "{said}");
    assert_eq!((kept(&bed, "n1"), kept(&bed, "n2")), (String::new(), String::new()));
}
