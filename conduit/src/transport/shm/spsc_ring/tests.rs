#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small numbers of tests"
)]

use std::collections::{HashSet, VecDeque};

use proptest::prelude::*;

use super::producer::{LOOK_AGAIN, WARM_UP};
use super::*;

struct Owned {
    head: Box<SpscHead>,
    slots: Box<[SpscSlot; SLOTS]>,
    tail: Producer,
}

impl Owned {
    /// A lane whose next position is `start`, as the lap before left it, with any words behind the
    /// tags.
    fn new(start: u32) -> Self {
        let slot = |index: usize| {
            if start == 0 {
                return slot_of(0, [0; WORDS]);
            }
            let behind = (index as u32).wrapping_sub(start) % SLOTS as u32;
            let before = start.wrapping_add(behind).wrapping_sub(SLOTS as u32);
            let words = [start, lap(start), lap(start) | tag(Kind::Short, 200, 1)];
            slot_of(
                lap(before) | if index.is_multiple_of(3) { MORE } else { tag(Kind::Long, 7, 3) },
                words,
            )
        };
        let head = Box::new(SpscHead::at(start));
        Self { head, slots: Box::new(std::array::from_fn(slot)), tail: Producer::at(start) }
    }

    fn lane(&self) -> SpscRing<'_> {
        SpscRing::new(&self.head, &self.slots)
    }
}

fn slot_of(tag: u32, words: [u32; WORDS]) -> SpscSlot {
    let slot = SpscSlot::zeroed();
    slot.write(tag, words, WORDS, Ordering::Relaxed);
    slot
}

fn post<'a>(number: u32, args: &'a [i32], inline: &'a [u8]) -> Post<'a> {
    let kind = match number % 3 {
        _ if !inline.is_empty() => Kind::MediumInline,
        0 => Kind::Long,
        _ => Kind::Short,
    };
    let place = u64::from(number) << 32 | 5;
    let len = if inline.is_empty() { number } else { inline.len() as u32 };
    Post { kind, handler: number as u8, source: 0, len, place, args, inline }
}

/// Slots of a message, by the words that it has.
fn slots(post: &Post<'_>) -> usize {
    let payload = post.inline.len();
    if post.kind == Kind::Short {
        return post.args.len().max(1).div_ceil(3);
    }
    let padded = if payload > 0 { post.args.len().next_multiple_of(2) } else { post.args.len() };
    1 + (padded + payload.div_ceil(4)).div_ceil(3)
}

fn starts() -> impl Strategy<Value = u32> {
    prop_oneof![
        Just(0),
        Just(u32::MAX - 3),
        Just(7),
        Just(SLOTS as u32 * 0xffff - 9),
        Just(SLOTS as u32 * 0x1_0000 - 9),
        any::<u32>()
    ]
}

/// A message of the model: number, arguments, payload.
type Sent = (u32, Vec<i32>, Vec<u8>);

proptest! {
    #[test]
    fn is_a_bounded_fifo(
        start in starts(),
        steps in proptest::collection::vec(
            (0_u32..8, any::<bool>(), proptest::collection::vec(any::<i32>(), 0..=16), 0_usize..=104), 1..200)
    ) {
        let owned = Owned::new(start);
        let (lane, tail) = (owned.lane(), &owned.tail);
        let mut model: VecDeque<Sent> = VecDeque::new();
        let (mut packet, mut number, mut used) = (Packet::empty(), 0_u32, 0);
        for (times, send, args, bytes) in steps {
            for _ in 0..=times * times {
                prop_assert_eq!(lane.ready(), !model.is_empty());
                let elsewhere = 1 + args.len().div_ceil(3);
                prop_assert_eq!(lane.has_room(tail, args.len()), used + elsewhere <= SLOTS);
                if send {
                    number += 1;
                    let bytes = if number.is_multiple_of(2) { bytes } else { 0 };
                    let inline = vec![number as u8; bytes.min(Packet::inline_room(args.len()))];
                    let post = post(number, &args, &inline);
                    let sent = lane.send(tail, &post);
                    prop_assert_eq!(sent, used + slots(&post) <= SLOTS);
                    if sent {
                        used += slots(&post);
                        model.push_back((number, args.clone(), inline));
                    }
                } else if let Some((number, args, inline)) = model.pop_front() {
                    let sent = post(number, &args, &inline);
                    used -= slots(&sent);
                    prop_assert!(lane.receive(9, &mut packet));
                    prop_assert_eq!((packet.0.source, packet.0.handler), (9, number as u8));
                    prop_assert_eq!(packet.kind(), Some(sent.kind));
                    if sent.kind != Kind::Short {
                        prop_assert_eq!((packet.0.len, packet.0.place), (sent.len, sent.place));
                    }
                    let (got, bytes) = packet.parts().expect("counts");
                    prop_assert_eq!(got, &args[..]);
                    prop_assert_eq!(&*bytes, &inline[..]);
                } else {
                    prop_assert!(!lane.receive(9, &mut packet));
                }
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_not_sent(args in 0_usize..=20, bytes in 0_usize..=128) {
        let owned = Owned::new(0);
        let (args, inline) = (vec![1; args], vec![2; bytes]);
        let fits = args.len() <= MAX_ARGS && bytes <= Packet::inline_room(args.len());
        prop_assert_eq!(owned.lane().send(&owned.tail, &post(1, &args, &inline)), fits);
        prop_assert_eq!(owned.lane().ready(), fits);
    }

    #[test]
    fn words_from_elsewhere_are_not_trusted(
        start in starts(), tag: u16, words: [u32; WORDS], more: [u32; WORDS],
    ) {
        let owned = Owned::new(start);
        for at in 1..16 {
            owned.lane().slot(start.wrapping_add(at)).write(u32::MAX, more, WORDS, Ordering::Relaxed);
        }
        let tag = u32::from(tag) | lap(start);
        owned.lane().slot(start).write(tag, words, WORDS, Ordering::Release);
        let mut packet = Packet::empty();
        prop_assert!(owned.lane().receive(0, &mut packet));
        if let Some((args, inline)) = packet.parts() {
            prop_assert!(args.len() <= MAX_ARGS);
            prop_assert!(inline.len() <= Packet::inline_room(args.len()));
        }
        let head = owned.head.0.load(Ordering::Relaxed).wrapping_sub(start) as usize;
        prop_assert!((1..=slots_of_other(0, 104)).contains(&head));
    }
}

proptest! {
    #[test]
    fn a_row_is_what_is_alike(
        start in starts(),
        sent in proptest::collection::vec((0_usize..=16, 0_usize..20), 1..30),
        flood: bool,
        most in 1_usize..100,
    ) {
        let owned = Owned::new(start);
        let lane = owned.lane();
        let mut model = VecDeque::new();
        for (number, (nargs, times)) in (0..).zip(sent) {
            let (handler, args) = (100 + nargs as u8, vec![number; nargs]);
            let (kind, len, place) = (Kind::Short, 0, 0);
            let post = Post { kind, handler, source: 0, len, place, args: &args, inline: &[] };
            for _ in 0..times {
                if lane.send(&owned.tail, &post) {
                    model.push_back((handler, args.clone()));
                }
            }
        }
        let mut words = [0; BURST_ARGS];
        while let Some(mut row) = BurstReader::begin(lane) {
            let mut count = 0;
            let (handler, nargs) = (row.handler(), row.nargs());
            let mut arrived = |words: &[i32]| {
                let expected = model.pop_front().expect("sent");
                assert_eq!((handler, &words[..nargs]), (expected.0, &expected.1[..]));
                count += 1;
                count < most
            };
            if nargs <= WORDS {
                let served = row.serve(most, || flood, |words| arrived(&words));
                prop_assert!((1..=most).contains(&served));
            } else {
                while row.take(&mut words) && arrived(&words) {}
            }
            drop(row);
            if count == most {
                continue;
            }
            prop_assert!(count > 0);
            let row = (handler, nargs);
            let next = model.front().map(|(handler, args)| (*handler, args.len()));
            prop_assert!(next != Some(row));
        }
        prop_assert!(model.is_empty());
        let free = owned.head.0.load(Ordering::Relaxed);
        prop_assert!(owned.tail.advance(0) == free);
    }

    #[test]
    fn rows_do_not_trust_counts(start in starts(), tag: u16, words: [u32; WORDS]) {
        let owned = Owned::new(start);
        let tag = u32::from(tag) | lap(start);
        owned.lane().slot(start).write(tag, words, WORDS, Ordering::Release);
        if let Some(mut row) = BurstReader::begin(owned.lane()) {
            prop_assert!(row.nargs() <= MAX_ARGS);
            prop_assert!(row.take(&mut [0; BURST_ARGS]));
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
                let all = [n, !n, n ^ 0x5555, n, !n];
                while !owned
                    .lane()
                    .send(&owned.tail, &post(n.cast_unsigned(), &all[..n as usize % 6], &[]))
                {
                    std::thread::yield_now();
                }
            }
        });
        let mut packet = Packet::empty();
        let mut next = 0;
        while next < EACH {
            if !owned.lane().receive(0, &mut packet) {
                std::thread::yield_now();
                continue;
            }
            let (args, _) = packet.parts().expect("counts");
            let all = [next, !next, next ^ 0x5555, next, !next];
            assert_eq!(args, &all[..next as usize % 6]);
            next += 1;
        }
        assert!(!owned.lane().receive(0, &mut packet));
    });
}

#[test]
fn a_lane_has_one_owner() {
    let owners = LaneOwners::none();
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
        let tail = Producer::default();
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
    let tail = Producer::default();
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
