//! The conformance suite over every provider of this crate.
#![expect(clippy::unwrap_used, reason = "a failure here is a failure of the test")]

mod server;

use bootstrap::deadlines::Bounds;
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
