//! Traces of jobs on several hosts: what ranks have left there comes to the launching one.

use serde_json::Value;
use testkit::{Bed, binary};

fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

#[test]
fn traces_of_other_hosts_arrive() {
    let Some(bed) = Bed::up("traces of other hosts", "n1 n2") else { return };
    let ring = binary("ring").display().to_string();
    let file = format!("{}/job.json", bed.share());
    let words = ["-n", "4", "--hosts", "n1,n2", "--trace", &file, "--stats", &ring, "200"];
    let outcome = bed.run(&[], &words);
    outcome.expect(0);
    let value = read(&std::fs::read_to_string(&file).expect("the file is there"));
    let events = value["traceEvents"].as_array().expect("events");
    let named = |rank: u64, name: &str| {
        events.iter().any(|event| event["pid"] == rank && event["name"] == name)
    };
    for rank in 0..4 {
        assert!(named(rank, "step") && named(rank, "exit, code 0"), "rank {rank}");
    }
    let arrows = events.iter().filter(|event| event["ph"] == "s").count();
    assert!(arrows > 600, "{arrows} arrows: clocks of hosts are not aligned");
    assert_eq!(value["otherData"]["ranks without records"], 0);
    let err = outcome.err();
    assert!(err.contains("statistics") && !err.contains("nothing recorded"), "{err}");

    // A disk that is too small for the timeline: what is there can be read.
    bed.shell("head", "mkdir -p /tmp/disk && mount -t tmpfs -o size=64k tmpfs /tmp/disk");
    let words = ["-n", "4", "--hosts", "n1,n2", "--trace", "/tmp/disk/job.json", &ring, "200"];
    let outcome = bed.run(&[], &words);
    outcome.expect(0);
    let said = outcome.err();
    assert!(said.contains("No space left on device") && said.contains("cut after"), "{said}");
    let value = read(&bed.shell("head", "cat /tmp/disk/job.json"));
    assert!(value["traceEvents"].as_array().is_some_and(|events| events.len() > 20));
    assert!(value["otherData"]["cut"].is_string(), "{value}");
}
