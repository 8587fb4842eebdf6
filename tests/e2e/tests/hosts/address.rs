//! Hosts without a default route: the software adapter finds the address that others reach by
//! itself.

use testkit::{Bed, Outcome, binary};

use crate::executable;

/// A program whose ranks of different hosts send each other messages over the software adapter.
fn ring(bed: &Bed, hosts: &str, set: &[&str]) -> Outcome {
    let ring = binary("ring").display().to_string();
    let ranks = hosts.split(',').count().to_string();
    bed.run(set, &["-n", &ranks, "--hosts", hosts, &ring, "3"])
}

#[test]
fn hosts_without_a_default_route_talk_to_each_other() {
    let Some(bed) = Bed::up("hosts without a default route", "n1 n2 n3") else { return };
    for host in ["head", "n1", "n2", "n3"] {
        bed.cluster.on(host, &["ip", "route", "del", "default"]).run().expect(0);
    }
    // Over logins from host to host, and with the launching host, to which nobody logged in.
    for (hosts, degree) in [("n1,n2,n3", "1"), ("head,n2,n3", "0"), ("n3,head", "32")] {
        let degree = format!("GASNET_SSH_OUT_DEGREE={degree}");
        let outcome = ring(&bed, hosts, &[&degree]);
        outcome.expect(0);
    }
    // Programs find it, too, and what the user's own login said is not taken for it.
    let words = ["-n", "2", "--hosts", "n1,n2", "sh", "-c", "echo $GASNETRUN_ADDRESS"];
    let outcome = bed.run(&["GASNETRUN_ADDRESS=1.2.3.4"], &words);
    outcome.expect(0);
    let mut lines: Vec<String> = outcome.out().lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["198.18.77.1", "198.18.77.2"]);
    // What is set wins, and is named when the host has none like it.
    ring(&bed, "n1,n2", &["GASNET_IBV_SOFT_ADDRESS=198.18.77.0/24"]).expect(0);
    let outcome = ring(&bed, "n1,n2", &["GASNET_IBV_SOFT_ADDRESS=10.0.0.0/8"]);
    assert_ne!(outcome.code(), 0);
    assert!(outcome.err().contains("no address in 10.0.0.0/8"), "{}", outcome.err());
    // Remote shells other than ssh say nothing of an address.
    let other = format!("{}/other-shell", bed.share());
    let text = "#!/bin/sh\nhost=$1; shift; exec ssh \"$host\" unset SSH_CONNECTION\\; \"$@\"\n";
    executable(&other, text);
    let outcome = ring(&bed, "n1,n2", &[&format!("GASNET_SSH_CMD={other}")]);
    assert_ne!(outcome.code(), 0);
    assert!(outcome.err().contains("no login over ssh, that would tell"), "{}", outcome.err());
}
