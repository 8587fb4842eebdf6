//! Disks that fill up while a job runs: it goes on or ends in a defined way, with one line that names host and path.

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

/// A job of one rank on each host that says `up`, waits for the file `go`, and then does the rest of the script.
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

    // The launcher's own standard output is a file there: ranks that write meet a closed pipe, as without a launcher.
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
