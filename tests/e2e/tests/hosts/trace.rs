//! Traces of jobs on several hosts, whose clocks are far apart: what ranks have left there comes to
//! the launching one.

use std::time::Duration;

use e2e::recorded::until_recorded;
use nix::sys::signal::Signal;
use testkit::process::send;
use testkit::{Bed, Outcome, binary};

use crate::timeline::Timeline;

/// Seconds by which the clocks of hosts are ahead of the launching one's.
const CLOCKS: &str = "n1=5000 n2=70000";

fn assert_one_table(outcome: &Outcome) {
    let err = outcome.err();
    assert_eq!(err.matches("statistics").count(), 1, "{err}");
    assert!(!err.contains("nothing recorded"), "{err}");
}

/// Files of a host and of the share; the name of the trace is not among them.
fn files(bed: &Bed, file: &str) -> String {
    let all = ["head", "n1", "n2"].map(|host| {
        let list = format!("find /tmp /dev/shm {} -type f ! -path {file} | sort", bed.share());
        format!("{host}:\n{}", bed.shell(host, &list))
    });
    all.join("\n")
}

#[test]
fn traces_of_other_hosts_arrive() {
    let name = "traces of other hosts";
    let Some(bed) = Bed::up_with_clocks(name, "n1 n2", CLOCKS) else { return };
    let ring = binary("ring").display().to_string();
    let file = format!("{}/job.json", bed.share());
    let before = files(&bed, &file);
    let words = ["-n", "4", "--hosts", "n1,n2", "--trace", &file, "--stats", &ring, "200"];
    let outcome = bed.run(&[], &words);
    outcome.expect(0);
    let timeline = Timeline::read(file.as_ref());
    for rank in 0..4 {
        assert!(timeline.has(rank, "step") && timeline.has(rank, "exit, code 0"), "rank {rank}");
    }
    let messages = timeline.arrows() as u64 + timeline.without_arrow();
    assert!(messages >= 4 * 200, "{messages} messages of 4 ranks");
    timeline.assert_aligned();
    assert_eq!(timeline.whole["otherData"]["ranks without records"], 0);
    assert_one_table(&outcome);
    assert_eq!(files(&bed, &file), before);

    // A rank of another host is killed: what it has recorded was in its agent's memory.
    let words = ["-n", "4", "--hosts", "n1,n2", "--trace", &file, "--stats", &ring, "100000000"];
    let running = bed.job(&["GASNET_TRACE_MEMORY=256K"], &words).start();
    let begin = std::time::Instant::now();
    let victim = loop {
        let found = bed.find("n2", "(ring)");
        if found.len() == 2 {
            break found[0].pid;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "no ranks on n2");
        std::thread::sleep(Duration::from_millis(10));
    };
    // More than the memory holds; ranks on the other host sent before these could.
    until_recorded(victim, 2, |slot| slot.lost > 0);
    assert!(send(victim, Signal::SIGKILL));
    let outcome = running.wait();
    outcome.expect(137);
    bed.assert_clean();
    let text = std::fs::read_to_string(&file).expect("the file is there");
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let events = value["traceEvents"].as_array().expect("events");
    for rank in 0..4_u64 {
        let sent = |event: &&serde_json::Value| {
            event["pid"] == rank
                && event["name"].as_str().is_some_and(|name| name.starts_with("Short request to"))
        };
        assert!(events.iter().any(|event| sent(&event)), "rank {rank} left nothing");
    }
    assert_one_table(&outcome);
    assert_eq!(files(&bed, &file), before);

    // A disk that is too small for the timeline: what is there can be read.
    bed.shell("head", "mkdir -p /tmp/disk && mount -t tmpfs -o size=64k tmpfs /tmp/disk");
    let words = ["-n", "4", "--hosts", "n1,n2", "--trace", "/tmp/disk/job.json", &ring, "200"];
    let outcome = bed.run(&[], &words);
    outcome.expect(0);
    let said = outcome.err();
    assert_eq!(
        said.matches("No space left on device (os error 28): cut after").count(),
        1,
        "{said}"
    );
    assert!(said.contains("--trace /tmp/disk/job.json"), "{said}");
    let value: serde_json::Value =
        serde_json::from_str(&bed.shell("head", "cat /tmp/disk/job.json")).expect("JSON");
    assert!(value["traceEvents"].as_array().is_some_and(|events| events.len() > 20));
    assert!(value["otherData"]["cut"].is_string(), "{value}");
}
