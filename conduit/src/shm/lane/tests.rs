#![expect(clippy::cast_possible_truncation, reason = "small numbers of tests")]

use std::collections::{HashSet, VecDeque};

use proptest::prelude::*;

use super::super::ring::Kind;
use super::*;

struct Owned {
    head: Box<LaneHead>,
    lines: Box<[Line; LINES]>,
    tail: Tail,
}

impl Owned {
    /// A lane whose next position is `start`, as the lap before left it.
    fn new(start: u32) -> Self {
        let line = |index: usize| {
            let mut words = [0_u32; LINE / 4];
            if start != 0 {
                let behind = (index as u32).wrapping_sub(start) % LINES as u32;
                words[0] = start.wrapping_add(behind).wrapping_add(1).wrapping_sub(LINES as u32);
            }
            Line(UnsafeCell::new(words))
        };
        let tail = Tail::new();
        tail.tail.store(start, Ordering::Relaxed);
        tail.seen.store(start, Ordering::Relaxed);
        let head = Box::new(LaneHead(AtomicU32::new(start)));
        Self { head, lines: Box::new(std::array::from_fn(line)), tail }
    }

    fn lane(&self) -> Lane<'_> {
        Lane::new(&self.head, &self.lines)
    }
}

fn post<'a>(number: u32, args: &'a [i32], inline: &'a [u8]) -> Post<'a> {
    let kind = if inline.is_empty() { Kind::Short } else { Kind::MediumInline };
    let len = inline.len() as u32;
    Post { kind, handler: 200, source: number, len, place: u64::from(number), args, inline }
}

proptest! {
    #[test]
    fn is_a_bounded_fifo(
        start in prop_oneof![Just(0), Just(u32::MAX - 3), Just(7), any::<u32>()],
        steps in proptest::collection::vec(
            (0_u32..8, any::<bool>(), proptest::collection::vec(any::<i32>(), 0..=10), 0_usize..=40), 1..200)
    ) {
        let owned = Owned::new(start);
        let (lane, tail) = (owned.lane(), &owned.tail);
        let mut model: VecDeque<(u32, Vec<i32>, Vec<u8>)> = VecDeque::new();
        let mut packet = Packet::empty();
        let mut number = 0_u32;
        for (times, send, args, bytes) in steps {
            for _ in 0..=times * times {
                prop_assert_eq!(lane.ready(), !model.is_empty());
                prop_assert_eq!(lane.has_room(tail), model.len() < LINES);
                if send {
                    number += 1;
                    let room = BODY - super::super::ring::inline_at(args.len());
                    let inline = vec![number as u8; bytes.min(room)];
                    prop_assert!(Lane::fits(args.len(), inline.len()));
                    let sent = lane.send(tail, &post(number, &args, &inline));
                    prop_assert_eq!(sent, model.len() < LINES);
                    if sent {
                        model.push_back((number, args.clone(), inline));
                    }
                } else if let Some((number, args, inline)) = model.pop_front() {
                    prop_assert!(lane.receive(&mut packet));
                    prop_assert_eq!(packet.source(), number);
                    let (got, bytes) = packet.parts().expect("counts");
                    prop_assert_eq!(got, &args[..]);
                    prop_assert_eq!(&*bytes, &inline[..]);
                } else {
                    prop_assert!(!lane.receive(&mut packet));
                }
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_not_sent(args in 0_usize..=16, bytes in 0_usize..=64) {
        let owned = Owned::new(0);
        let (args, inline) = (vec![1; args], vec![2; bytes]);
        let fits = Lane::fits(args.len(), inline.len());
        let needed = args.len().next_multiple_of(2) * 4 + bytes;
        prop_assert_eq!(fits, args.len() <= LANE_ARGS && needed <= BODY);
        prop_assert_eq!(owned.lane().send(&owned.tail, &post(1, &args, &inline)), fits);
    }

    #[test]
    fn counts_from_elsewhere_are_not_trusted(words: [u32; LINE / 4]) {
        let owned = Owned::new(0);
        // SAFETY: nobody else has the line.
        unsafe { *owned.lines[0].0.get() = words };
        owned.lines[0].state().store(1, Ordering::Release);
        let mut packet = Packet::empty();
        prop_assert!(owned.lane().receive(&mut packet));
        if let Some((args, inline)) = packet.parts() {
            prop_assert!(args.len() <= LANE_ARGS && args.len() * 4 + inline.len() <= BODY);
        }
    }
}

#[test]
fn a_flood_arrives_complete_and_in_order() {
    const EACH: i32 = 200_000;
    let owned = Owned::new(u32::MAX - 1000);
    let owned = &owned;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for n in 0..EACH {
                while !owned.lane().send(&owned.tail, &post(9, &[n, !n, n ^ 0x5555], &[])) {
                    std::thread::yield_now();
                }
            }
        });
        let mut packet = Packet::empty();
        let mut next = 0;
        while next < EACH {
            if !owned.lane().receive(&mut packet) {
                std::thread::yield_now();
                continue;
            }
            let (args, _) = packet.parts().expect("counts");
            assert_eq!(args, [next, !next, next ^ 0x5555]);
            next += 1;
        }
        assert!(!owned.lane().receive(&mut packet));
    });
}

#[test]
fn a_lane_has_one_owner() {
    let zero = || AtomicU32::new(0);
    let owners = LaneOwners { used: zero(), owners: std::array::from_fn(|_| zero()) };
    let claimed: Vec<usize> = std::thread::scope(|scope| {
        let claim = |source| owners.claim(source as usize % 2, source);
        let threads: Vec<_> = (0..40).map(|source| scope.spawn(move || claim(source))).collect();
        threads.into_iter().filter_map(|thread| thread.join().expect("claim")).collect()
    });
    assert_eq!(claimed.len(), 2 * LANES);
    assert_eq!(claimed.iter().collect::<HashSet<_>>().len(), 2 * LANES);
    assert_eq!(owners.used(), MASK);
    assert_eq!(lanes_of(0) | lanes_of(1), MASK);
    assert_eq!(lanes_of(0) & lanes_of(1), 0);
}

#[test]
fn a_tail_is_claimed_by_one_thread() {
    for _ in 0..50 {
        let tail = Tail::new();
        let claims = AtomicU32::new(0);
        let winners: usize = std::thread::scope(|scope| {
            let race = |me: usize| {
                let mut won = 0;
                for _ in 0..20 {
                    let claim = || Some(claims.fetch_add(1, Ordering::Relaxed) as usize);
                    won += usize::from(tail.approach(me, claim).is_some());
                }
                assert_eq!(won == 1, tail.is_of(me));
                won
            };
            let threads: Vec<_> = (1..5).map(|me| scope.spawn(move || race(me * 8))).collect();
            threads.into_iter().map(|thread| thread.join().expect("race")).sum()
        });
        assert_eq!((winners, claims.into_inner()), (1, 1));
        assert_eq!(tail.lane(), Some(0));
    }
}

#[test]
fn a_sender_without_a_lane_looks_again_later() {
    let tail = Tail::new();
    let mut asked = 0;
    for _ in 0..=WARM_UP {
        assert_eq!(
            tail.approach(1, || {
                asked += 1;
                None
            }),
            None
        );
    }
    assert_eq!((asked, tail.lane(), tail.is_of(0)), (1, None, true));
    for _ in 0..LOOK_AGAIN {
        assert_eq!(tail.approach(2, || Some(3)), None);
    }
    assert_eq!(tail.approach(2, || Some(3)), Some(3));
    assert_eq!((tail.lane(), tail.is_of(2)), (Some(3), true));
}
