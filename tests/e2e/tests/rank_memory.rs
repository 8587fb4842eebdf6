//! What a rank holds does not grow with the ranks of its host. Only what the program asks for may:
//! `Client::neighbours`, `Client::host_ranks` and their like make lists, which nothing here calls.
//! Where messages went to a rank there is a page for it and those next to it.

use std::time::Duration;

use testkit::job;

/// Far above what 512 processes take on a busy machine.
const BOUND: Duration = Duration::from_secs(120);

/// Medians of what the ranks of a job, all in shared memory, have after attach more than before
/// init: bytes that are allocated, and bytes of memory of their own.
fn held(ranks: usize) -> [u64; 2] {
    let job = job(u32::try_from(ranks).expect("few"), "bench_net_memory");
    let outcome = job.env("GASNET_QUIET", "1").deadline("a job of many ranks", BOUND).run();
    outcome.expect(0);
    let out = outcome.out();
    ["attached_heap_bytes ", "attached_anonymous_bytes "].map(|key| {
        let numbers = out.lines().filter_map(|line| line.strip_prefix(key)?.parse().ok());
        let mut numbers: Vec<u64> = numbers.collect();
        assert_eq!(numbers.len(), ranks, "{out}");
        numbers.sort_unstable();
        numbers[ranks / 2]
    })
}

#[test]
fn a_rank_does_not_grow_with_those_of_its_host() {
    const FEW: usize = 64;
    const MANY: usize = 512;
    // Where they grew it was by 136 bytes for each rank of the host: 60,928.
    let ([heap, own], [heap_of_many, own_of_many]) = (held(FEW), held(MANY));
    let bound = (MANY - FEW) as u64;
    assert!(
        heap_of_many <= heap + bound,
        "allocated: {heap} bytes of {FEW} ranks, {heap_of_many} of {MANY}"
    );
    // Whole pages, and where the heap ends depends on what came and went.
    let bound = 4 * 4096;
    assert!(
        own_of_many <= own + bound,
        "own memory: {own} bytes of {FEW} ranks, {own_of_many} of {MANY}"
    );
}
