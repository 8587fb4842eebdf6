//! Puts and gets of all sizes and alignments, from and to every kind of memory.

use super::*;
use crate::transport::place::Place;

const SIZES: [usize; 13] =
    [1, 7, 8, 72, 73, 4095, 4096, 65_535, 65_536, 65_537, 200_000, 1 << 20, (1 << 20) + 13];
const SEGMENT: usize = 8 << 20;
/// Where transfers land in the target's segment, and where own data begins.
const REMOTE: usize = 1 << 20;
const OWN: usize = 4 << 20;

/// The network of a member, and where its arrivals are counted: what threads can share.
pub(super) type By<'a> = (&'a NetTransport, &'a AtomicU32);

pub(super) fn finish((net, met): By<'_>, counter: &Arc<OpCounter>, mut post: impl FnMut() -> Sent) {
    let begin = Instant::now();
    let mut posted = false;
    while !posted || !counter.is_complete() {
        posted = posted || post() == Sent::Yes;
        let _ =
            net.poll::<Par, _>(&TestSink(met, &|_| {}), Poll::All).expect("open").expect("poll");
        assert!(begin.elapsed() < PATIENCE);
    }
    assert!(counter.is_local_complete());
}

/// A counter of which the first ones have numbers, and one without, by turns of lengths.
fn counter_for(len: usize) -> Arc<OpCounter> {
    Arc::new(if len.is_multiple_of(2) { OpCounter::lasting() } else { OpCounter::default() })
}

pub(super) fn put_by(by: By<'_>, to: Rank, offset: usize, bytes: &[u8]) {
    let counter = counter_for(bytes.len());
    let mut source = RawSource::new(bytes);
    finish(by, &counter, || by.0.put((to, offset as u64), &mut source, &counter).expect("put"));
}

pub(super) fn get_by(by: By<'_>, from: Rank, offset: usize, mut into: RawTarget) {
    let counter = counter_for(into.left);
    finish(by, &counter, || by.0.get((from, offset as u64), &mut into, &counter).expect("get"));
}

pub(super) fn put(member: &Member<'_>, to: Rank, offset: usize, bytes: &[u8]) {
    put_by((member.net, &member.met), to, offset, bytes);
}

pub(super) fn get(member: &Member<'_>, from: Rank, offset: usize, into: RawTarget) {
    get_by((member.net, &member.met), from, offset, into);
}

pub(super) fn all_sizes(kind: &Kind) {
    let send_qp = kind.per_host;
    run(2 * send_qp, SEGMENT, kind, |member| {
        let peer = Rank((member.rank + send_qp) % (2 * send_qp));
        let side = lasting(2 << 20);
        // Each rank has its own part of the other's segment.
        let base = REMOTE + (member.rank / send_qp) as usize * (3 << 19);
        for (round, len) in SIZES.into_iter().enumerate() {
            let (odd, seed) = (round % 9, round + member.rank as usize);
            let bytes = pattern(seed, len);
            put(member, peer, base + odd, &bytes);
            get(member, peer, base + odd, side.target(odd, len));
            assert!(side.read(odd, len) == bytes, "{len} bytes through buffers");
            let again = pattern(seed + 1, len);
            member.memory.write((OWN + odd) as u64, &again);
            put(member, peer, base + 3, member.memory.part(OWN + odd, len));
            get(member, peer, base + 3, member.memory.target(OWN + (2 << 20), len));
            assert!(member.memory.read(OWN + (2 << 20), len) == again, "{len} bytes in place");
        }
        member.meet(&|_| {});
    });
}

#[test]
fn every_size() {
    all_sizes(&PLAIN);
}

#[test]
fn every_size_with_the_smallest_queues() {
    all_sizes(&Kind { sizes: Sizes { ops_per_connection: 1, ..TINY }, ..SMALL });
}

#[test]
fn every_size_over_two_rails() {
    all_sizes(&Kind { rails: 2, connections: 2, ..PLAIN });
}

#[test]
fn every_size_in_stripes() {
    let kind = Kind { rails: 2, connections: 3, stripe: 5000, ..PLAIN };
    all_sizes(&kind);
    all_sizes(&Kind { fenced: true, ..kind });
    bound_memory(&kind);
}

#[test]
fn every_size_with_fences() {
    let fenced = Kind { fenced: true, ..PLAIN };
    all_sizes(&fenced);
    all_sizes(&Kind {
        sizes: Sizes { ops_per_connection: 1, ..TINY },
        ..Kind { fenced: true, ..SMALL }
    });
    all_sizes(&Kind { sizes: Sizes { srq: Some(SHARED), ..USUAL }, ..fenced });
    parts(&Kind { rails: 2, connections: 2, ..fenced });
    bound_memory(&fenced);
}

#[test]
fn every_size_beside_shared_queues() {
    all_sizes(&Kind { sizes: Sizes { srq: Some(SHARED), ..USUAL }, ..PLAIN });
}

#[test]
fn a_range_outside_the_segment_is_refused() {
    run(2, 4096, &PLAIN, |member| {
        let peer = Rank(1 - member.rank);
        let counter = Arc::new(OpCounter::default());
        for (offset, len) in [(4090u64, 7usize), (4097, 1), (u64::MAX, 2), (0, 4097)] {
            let bytes = vec![0; len];
            let mut source = RawSource::new(&bytes);
            let error = member.net.put((peer, offset), &mut source, &counter);
            let text = error.expect_err("outside").to_string();
            assert!(text.contains("(4096 bytes)"), "{text}");
            let mut into = member.memory.target(0, len.min(4096));
            let outside = offset.saturating_add(len.min(4096) as u64) > 4096;
            let got = member.net.get((peer, offset), &mut into, &counter);
            assert_eq!(got.is_err(), outside);
        }
        member.poll_until(&|_| {}, || counter.is_complete());
        assert_eq!(member.net.segment(peer).expect("attached").len, 4096);
        member.meet(&|_| {});
    });
}

#[test]
fn a_put_that_wants_its_source_back_is_copied() {
    run(2, SEGMENT, &PLAIN, |member| {
        let peer = Rank(1 - member.rank);
        for (len, copied) in [(65_536, true), (65_537, false)] {
            let bytes = pattern(member.rank as usize, len);
            member.memory.write(OWN as u64, &bytes);
            let counter = Arc::new(OpCounter::default());
            let mut source = RawSource::at_once(member.memory.part(OWN, len));
            let sent = member.net.put((peer, REMOTE as u64), &mut source, &counter);
            assert_eq!(sent.expect("put"), Sent::Yes);
            assert!(!copied || counter.is_local_complete());
            member.poll_until(&|_| {}, || counter.is_complete());
            member.meet(&|_| {});
            let expected = pattern(peer.0 as usize, len);
            assert!(member.memory.read(REMOTE, len) == expected);
            member.meet(&|_| {});
        }
    });
}

/// Memory at an odd place and of an odd size, bound to two endpoints and published, beside the
/// attached segment.
pub(super) fn bound_memory(kind: &Kind) {
    const BYTES: usize = 200_003;
    run(2 * kind.per_host, 4096, kind, |member| {
        let peer = Rank((member.rank + kind.per_host) % (2 * kind.per_host));
        let own = lasting(BYTES + 4096).within(17, BYTES);
        let net = member.net;
        // The second time it is not registered again.
        for endpoint in [3, 5] {
            net.bind(endpoint, own).expect("registered");
        }
        assert_eq!(net.keys(3), net.keys(5));
        assert!(net.keys(4).iter().all(|byte| *byte == 0));
        let mut said = own.address().to_ne_bytes().to_vec();
        said.extend(net.keys(5));
        let all = member.services.borrow_mut().exchange(&said).expect("exchanged");
        let theirs = &all[peer.0 as usize * said.len()..][..said.len()];
        let (base, keys) = theirs.split_first_chunk().expect("a word");
        assert!(!net.reaches(peer, Place { endpoint: 5, offset: 0 }.word().expect("fits"), 1));
        net.learn(peer, 5, (u64::from_ne_bytes(*base), BYTES as u64), keys);
        member.meet(&|_| {});
        // What was put is there when its put is complete.
        let all_done = || member.services.borrow_mut().barrier().expect("everybody comes");
        let place = |offset: usize| {
            let word = Place { endpoint: 5, offset: offset as u64 }.word();
            usize::try_from(word.expect("an offset that fits")).expect("a word")
        };
        for (round, len) in [1, 73, 4097, 70_000].into_iter().enumerate() {
            let at = BYTES - round - len;
            let bytes = pattern(round + member.rank as usize, len);
            put(member, peer, place(at), &bytes);
            // In place at this end, too.
            get(member, peer, place(at), own.target(round, len));
            assert!(own.read(round, len) == bytes, "{len} bytes");
            put(member, peer, place(at), own.part(round, len));
            all_done();
            let expected = pattern(round + peer.0 as usize, len);
            assert!(own.read(at, len) == expected, "{len} bytes");
            all_done();
        }
        let counter = Arc::new(OpCounter::default());
        for (endpoint, offset) in [(5, BYTES as u64), (3, 0), (0, 4096), (u16::MAX, 0)] {
            let word = Place { endpoint, offset }.word().expect("fits");
            let mut source = RawSource::new(&[1]);
            let refused = net.put((peer, word), &mut source, &counter);
            assert!(refused.expect_err("outside").to_string().contains("outside the segment"));
        }
        member.meet(&|_| {});
    });
}

/// Parts of the own segment, and of other memory as far as it goes inline, are one range at the
/// peer.
fn parts(kind: &Kind) {
    run(2, SEGMENT, kind, |member| {
        let peer = Rank(1 - member.rank);
        // Connected.
        put(member, peer, 0, &[0]);
        let limits = |put| member.net.part_limits(peer, put);
        assert!(limits(true).parts == 16 && limits(false).parts == 16);
        assert!(limits(false).inline == 0 && limits(true).bytes <= 1 << 20);
        let side = lasting(1 << 16);
        for (round, len) in [1, 9, 700, 5000].into_iter().enumerate() {
            for count in [2, 3, 16_usize] {
                let bytes = pattern(round + count + member.rank as usize, count * len);
                let own = count * len > limits(true).inline;
                let memory = if own { member.memory.within(OWN, 1 << 20) } else { side };
                let far = |part: usize| (count - 1 - part) * (len + 13);
                let places = (0..count).map(|part| (far(part), part * len));
                for (at, from) in places.clone() {
                    assert!(memory.write(at as u64, &bytes[from..from + len]));
                }
                let sources: Vec<_> = (0..count).map(|part| memory.part(far(part), len)).collect();
                let counter = Arc::new(OpCounter::default());
                let place = (peer, REMOTE as u64 + 5);
                finish((member.net, &member.met), &counter, || {
                    member.net.put_parts(place, &sources, &counter).expect("put")
                });
                get(member, peer, REMOTE + 5, side.target(0, (count * len).min(1 << 16)));
                let same = side.read(0, (count * len).min(1 << 16));
                assert!(bytes.starts_with(&same), "{count} times {len}");
                let into = member.memory.within(2 * OWN - (1 << 20), 1 << 20);
                let targets: Vec<_> = (0..count)
                    .map(|part| OwnPart { address: into.part(far(part), len).as_ptr().addr(), len })
                    .collect();
                assert!(targets.iter().all(|part| member.net.covers(*part)));
                let counter = Arc::new(OpCounter::default());
                finish((member.net, &member.met), &counter, || {
                    member.net.get_parts(place, &targets, &counter).expect("get")
                });
                for (at, from) in places {
                    assert!(into.read(at, len) == bytes[from..from + len], "{count} times {len}");
                }
            }
        }
        let counter = Arc::new(OpCounter::default());
        let (two, end) = ([&[1_u8, 2][..], &[3]], SEGMENT as u64 - 2);
        let outside = member.net.put_parts((peer, end), &two, &counter);
        assert!(outside.expect_err("outside").to_string().contains("outside the segment"));
        assert!(!member.net.covers(OwnPart { address: side.part(0, 1).as_ptr().addr(), len: 1 }));
        member.meet(&|_| {});
    });
}

#[test]
fn several_parts_are_one_request() {
    parts(&PLAIN);
    parts(&SMALL);
    parts(&Kind { rails: 2, connections: 2, ..PLAIN });
    parts(&Kind { fake: true, ..SMALL });
    parts(&Kind { fake: true, single: true, ..SMALL });
}

/// Rows of both kinds of memory, short and long, each with its own place at the peer.
fn rows(kind: &Kind) {
    run(2, SEGMENT, kind, |member| {
        let peer = Rank(1 - member.rank);
        for (round, len) in [1, 60, 3000, 20_000].into_iter().enumerate() {
            let (count, apart) = (40, len + 17);
            let bytes = pattern(round + member.rank as usize, count * len);
            for memory in [lasting(1 << 20), member.memory.within(OWN, 1 << 20)] {
                let at = |row: usize| (count - 1 - row) * apart;
                let places = || (0..count).map(|row| (REMOTE + 3 + row * (len + 5)) as u64);
                for (row, part) in bytes.chunks_exact(len).enumerate() {
                    assert!(memory.write(at(row) as u64, part));
                }
                let source = |row: usize| RawSource::new(memory.part(at(row), len));
                let mut sources: Vec<_> = places().zip((0..count).map(source)).collect();
                let counter = counter_for(len);
                let by = (member.net, &member.met);
                finish(by, &counter, || {
                    member.net.put_rows(peer, &mut sources, &counter).expect("put")
                });
                let target = |row: usize| memory.target(at(row), len);
                for row in 0..count {
                    assert!(memory.write(at(row) as u64, &vec![0; len]));
                }
                let mut targets: Vec<_> = places().zip((0..count).map(target)).collect();
                let counter = counter_for(len);
                finish(by, &counter, || {
                    member.net.get_rows(peer, &mut targets, &counter).expect("get")
                });
                for (row, part) in bytes.chunks_exact(len).enumerate() {
                    assert!(memory.read(at(row), len) == part, "row {row} of {len}");
                }
                let mut outside = [(SEGMENT as u64, RawSource::new(&[1]))];
                let refused = member.net.put_rows(peer, &mut outside, &counter);
                assert!(refused.expect_err("outside").to_string().contains("outside the segment"));
            }
        }
        member.meet(&|_| {});
    });
}

#[test]
fn rows_are_posted_together() {
    rows(&PLAIN);
    rows(&Kind { sizes: Sizes { ops_per_connection: 1, ..TINY }, ..SMALL });
    rows(&Kind { rails: 2, connections: 2, stripe: 5000, ..PLAIN });
    rows(&Kind { fenced: true, ..PLAIN });
    rows(&Kind { fake: true, ..SMALL });
    rows(&Kind { fake: true, single: true, ..SMALL });
}

#[test]
fn memory_that_was_bound_and_published_is_reached() {
    bound_memory(&PLAIN);
    bound_memory(&Kind { rails: 2, connections: 2, ..PLAIN });
}

#[test]
fn many_in_flight_with_one_counter() {
    run(3, SEGMENT, &PLAIN, |member| {
        let counter = Arc::new(OpCounter::default());
        for round in 0..200usize {
            for peer in member.others() {
                let bytes = pattern(member.rank as usize, 5000);
                let offset = member.rank as usize * (1 << 20) + round * 5000;
                let mut source = RawSource::new(&bytes);
                let begin = Instant::now();
                while member.net.put((peer, offset as u64), &mut source, &counter).expect("put")
                    == Sent::Full
                {
                    let _ = member
                        .net
                        .poll::<Par, _>(&TestSink(&member.met, &|_| {}), Poll::All)
                        .expect("open")
                        .expect("poll");
                    assert!(begin.elapsed() < PATIENCE);
                }
            }
        }
        member.poll_until(&|_| {}, || counter.is_complete());
        member.meet(&|_| {});
        for peer in member.others() {
            let expected = pattern(peer.0 as usize, 5000);
            for round in 0..200 {
                let at = peer.0 as usize * (1 << 20) + round * 5000;
                assert!(member.memory.read(at, 5000) == expected, "round {round} of rank {peer}");
            }
        }
        member.meet(&|_| {});
    });
}
