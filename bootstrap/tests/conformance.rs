//! The conformance suite over every provider of this crate.
#![expect(clippy::unwrap_used, reason = "a failure here is a failure of the test")]

mod server;

use std::io::Write as _;

use bootstrap::wait::Bounds;
use bootstrap::{HostId, conformance, memory, solo};

fn over_memory(size: u32) {
    conformance::check(|| memory::job(size).unwrap()).unwrap();
}

#[test]
fn memory_of_1() {
    over_memory(1);
}

#[test]
fn memory_of_2() {
    over_memory(2);
}

#[test]
fn memory_of_3() {
    over_memory(3);
}

#[test]
fn memory_of_8() {
    over_memory(8);
}

#[test]
fn memory_of_64() {
    over_memory(64);
}

#[test]
fn memory_on_several_hosts() {
    for hosts in [&[0, 1][..], &[0, 0, 1], &[0, 1, 0, 2, 2, 1, 0]] {
        let hosts: Vec<HostId> = hosts.iter().copied().map(HostId).collect();
        conformance::check(|| memory::job_on_hosts(&hosts).unwrap()).unwrap();
    }
}

/// Ranks in turn over the hosts, or in blocks of equal size.
fn over_tree(hosts: u32, each: u32, cyclic: bool, degree: usize) {
    let host = |rank| HostId(if cyclic { rank % hosts } else { rank / each });
    let map: Vec<HostId> = (0..hosts * each).map(host).collect();
    let what = |failure| format!("{hosts} hosts, out-degree {degree}, {map:?}: {failure}");
    conformance::check(|| memory::job_with(&map, degree, Bounds::default()).unwrap())
        .map_err(what)
        .unwrap();
}

#[test]
fn trees_of_few_hosts() {
    over_tree(1, 3, false, 2);
    over_tree(2, 2, true, 1);
    over_tree(3, 2, false, 0);
    over_tree(5, 3, true, 2);
}

#[test]
fn tree_of_16_hosts() {
    over_tree(16, 2, true, 1);
    over_tree(16, 1, false, 0);
}

#[test]
fn trees_of_64_ranks() {
    over_tree(16, 4, true, 2);
    over_tree(64, 1, false, 32);
}

/// Hosts, ranks on each and out-degrees in all combinations: minutes, so only when everything is
/// asked for.
#[test]
fn trees_of_every_kind() {
    if settings::variable("TESTKIT_ALL").is_none_or(|value| value.is_empty() || value == "0") {
        // Past the harness, which shows nothing of a test that passes.
        let why = "takes minutes; scripts/test --all runs it";
        return writeln!(std::io::stdout(), "SKIP trees_of_every_kind: {why}").unwrap();
    }
    for hosts in [1, 2, 3, 5, 16] {
        for each in [1, 2, 4] {
            for degree in [0, 1, 2, 32] {
                over_tree(hosts, each, false, degree);
                over_tree(hosts, each, true, degree);
            }
        }
    }
}

#[test]
fn solo_job() {
    conformance::check(|| vec![solo::job().unwrap()]).unwrap();
}

fn over_agent(size: u32) {
    let mut servers = Vec::new();
    let outcome = conformance::check(|| {
        let (job, thread) = server::job(size, Bounds::default());
        servers.push(thread);
        job
    });
    outcome.unwrap();
    for thread in servers {
        thread.join().unwrap();
    }
}

#[test]
fn agent_of_1() {
    over_agent(1);
}

#[test]
fn agent_of_3() {
    over_agent(3);
}

#[test]
fn agent_of_64() {
    over_agent(64);
}
