//! Puts and gets from and to memory outside segments, which is registered for them.

use super::rma::{get, get_by, put, put_by};
use super::*;
use crate::transport::net::memory::watch::testing::{discard, fill, map, map_at, unmap};

const SEGMENT: usize = 8 << 20;
const LEN: usize = 1 << 20;

/// More bytes than are copied, in the program's read-only data.
static CONSTANT: [u8; 100_000] = {
    let mut bytes = [0; 100_000];
    let mut at = 0;
    while at < bytes.len() {
        bytes[at] = at.to_le_bytes()[0];
        at += 1;
    }
    bytes
};

fn counts(member: &Member<'_>) -> memory::cache::Counts {
    member.net.context.memory.counts()
}

/// Whether memory can be registered here; says why not.
fn can_watch() -> bool {
    match memory::watch::Watch::new() {
        Ok(_) => true,
        Err(error) => {
            println!("SKIP: no userfaultfd here ({error})");
            false
        }
    }
}

fn transfers(kind: &Kind) {
    run(2, SEGMENT, kind, |member| {
        let peer = Rank(1 - member.rank);
        let (from, into) = (lasting(LEN + 4096), lasting(LEN + 4096));
        let base = member.rank as usize * (SEGMENT / 2);
        for (round, len) in [20_000, 65_537, LEN, LEN].into_iter().enumerate() {
            let bytes = pattern(round + member.rank as usize, len);
            from.write(17, &bytes);
            put(member, peer, base + 5, from.part(17, len));
            get(member, peer, base + 5, into.target(33, len));
            assert!(into.read(33, len) == bytes, "{len} bytes");
        }
        if can_watch() && kind.registers {
            let counts = counts(member);
            // Puts of the two small sizes may go inline.
            assert!(counts.hits >= 6 && counts.made >= 16, "{counts:?}");
        } else if !kind.registers {
            assert_eq!(counts(member), Default::default());
        }
        member.meet(&|_| {});
    });
}

#[test]
fn large_transfers_are_made_in_place() {
    transfers(&PLAIN);
    transfers(&Kind { rails: 2, connections: 2, ..PLAIN });
    transfers(&SMALL);
}

#[test]
fn without_a_cache_they_are_copied() {
    transfers(&Kind { registers: false, ..PLAIN });
}

#[test]
fn a_source_may_be_read_only() {
    run(2, SEGMENT, &PLAIN, |member| {
        let peer = Rank(1 - member.rank);
        let base = member.rank as usize * (SEGMENT / 2);
        let into = lasting(CONSTANT.len());
        let protected = map(LEN);
        fill(protected, LEN, 0x0101_0101_0101_0101);
        memory::watch::testing::protect(protected, LEN);
        for _ in 0..2 {
            put(member, peer, base, &CONSTANT);
            get(member, peer, base, into.target(0, CONSTANT.len()));
            assert!(into.read(0, CONSTANT.len()) == CONSTANT);
            put(member, peer, base, memory::watch::testing::bytes(protected, LEN));
            get(member, peer, base + LEN - 100, into.target(0, 100));
            assert_eq!(into.read(0, 100), [1; 100]);
        }
        member.meet(&|_| {});
        unmap(protected, LEN);
    });
}

/// Several threads of two ranks map, fill, put, get back, and unmap the same places again and again.
#[test]
fn memory_that_comes_and_goes_is_transferred_as_it_is() {
    const THREADS: usize = 2;
    const BYTES: usize = 300_000;
    let end = Instant::now() + Duration::from_secs(2);
    run(2, SEGMENT, &PLAIN, |member| {
        let peer = Rank(1 - member.rank);
        let (by, rank) = ((member.net, &member.met), member.rank);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || {
                    let number = rank as usize * THREADS + thread;
                    let place = 0x3000_0000_0000 + ((number as u64) << 32);
                    let remote = number * (SEGMENT / 4);
                    let into = lasting(BYTES);
                    let mut word = number as u64;
                    while Instant::now() < end {
                        word += 4;
                        assert!(map_at(place, LEN));
                        fill(place, LEN, word);
                        if word.is_multiple_of(3) {
                            discard(place, LEN);
                            fill(place, LEN, word);
                        }
                        let source = memory::watch::testing::bytes(place, BYTES);
                        put_by(by, peer, remote, source);
                        get_by(by, peer, remote, into.target(0, BYTES));
                        assert!(into.read(0, BYTES) == source, "round {word}");
                        unmap(place, LEN);
                    }
                });
            }
        });
        member.meet(&|_| {});
    });
}
