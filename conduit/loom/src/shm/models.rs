//! What must hold in shared memory whatever the order of steps.

use loom::sync::Arc;
use loom::thread;

use super::arena::{Arena, blocks_in};
use super::board::{Board, Seat};
use super::mpsc_ring::{MpscEnds, MpscRing};
use super::packet::{Kind, Packet, Post};
use super::slot::Slot;
use super::spsc_ring::{LaneOwners, Producer, SLOTS, SpscHead, SpscRing, SpscSlot};
use crate::sys::atomic::{AtomicU32, Ordering};

/// Every order with at most three preemptions: more take minutes.
fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

fn short<'a>(handler: u8, args: &'a [i32]) -> Post<'a> {
    Post { kind: Kind::Short, handler, source: 0, len: 0, place: 0, args, inline: &[] }
}

/// The arguments of a packet.
fn args(packet: &mut Packet) -> Vec<i32> {
    packet.parts().expect("counts").0.to_vec()
}

#[test]
fn producers_of_a_shared_queue_lose_nothing() {
    check(|| {
        let queue = Arc::new((MpscEnds::at(0), [Slot::new(), Slot::new()]));
        let producers: Vec<_> = (1..=2)
            .map(|number| {
                let queue = Arc::clone(&queue);
                thread::spawn(move || {
                    let ring = MpscRing::new(&queue.0, &queue.1);
                    assert!(ring.send(&short(7, &[number, -number])), "there is room for both");
                })
            })
            .collect();
        let ring = MpscRing::new(&queue.0, &queue.1);
        let (mut packet, mut seen) = (Packet::empty(), Vec::new());
        let mut take = |seen: &mut Vec<i32>| {
            if ring.receive(&mut packet) {
                let words = args(&mut packet);
                assert_eq!(words[0], -words[1], "a message is whole");
                seen.push(words[0]);
            }
        };
        take(&mut seen);
        for producer in producers {
            producer.join().unwrap();
        }
        take(&mut seen);
        take(&mut seen);
        seen.sort_unstable();
        assert_eq!(seen, [1, 2]);
    });
}

#[test]
fn a_slot_is_used_again_only_when_it_was_copied() {
    check(|| {
        let queue = Arc::new((MpscEnds::at(0), [Slot::new()]));
        let producer = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                let ring = MpscRing::new(&queue.0, &queue.1);
                let sent = (1..=2).filter(|number| ring.send(&short(7, &[*number]))).count();
                assert!(sent >= 1, "an empty queue has room");
                sent
            })
        };
        let ring = MpscRing::new(&queue.0, &queue.1);
        let (mut packet, mut seen) = (Packet::empty(), Vec::new());
        if ring.receive(&mut packet) {
            seen.extend(args(&mut packet));
        }
        let sent = producer.join().unwrap();
        while ring.receive(&mut packet) {
            seen.extend(args(&mut packet));
        }
        assert_eq!(seen.len(), sent);
        assert!(seen.is_sorted(), "order of one producer");
    });
}

#[test]
fn messages_of_a_lane_arrive_whole_and_in_order() {
    check(|| {
        let lane = Arc::new((SpscHead::at(0), std::array::from_fn(|_| SpscSlot::zeroed())));
        // Three slots, then two that begin in one lap and end in the next.
        let long: [&[i32]; 2] = [&[1, 2, 3, 4, 5, 6, 7], &[11, 12, 13, 14]];
        let producer = {
            let lane: Arc<(SpscHead, [SpscSlot; SLOTS])> = Arc::clone(&lane);
            thread::spawn(move || {
                let (tail, ring) = (Producer::at(0), SpscRing::new(&lane.0, &lane.1));
                long.iter().take_while(|words| ring.send(&tail, &short(9, words))).count()
            })
        };
        let ring = SpscRing::new(&lane.0, &lane.1);
        let mut packet = Packet::empty();
        let mut count = 0;
        let mut take = |count: &mut usize| {
            if ring.receive(3, &mut packet) {
                assert_eq!(args(&mut packet), long[*count], "whole, and in order");
                *count += 1;
            }
        };
        take(&mut count);
        let sent = producer.join().unwrap();
        assert!(sent >= 1, "an empty lane has room");
        take(&mut count);
        take(&mut count);
        assert_eq!(count, sent);
    });
}

#[test]
fn a_lane_has_one_owner() {
    check(|| {
        let owners = Arc::new(LaneOwners::none());
        let claim = |source: u32| {
            let owners = Arc::clone(&owners);
            thread::spawn(move || (source, owners.claim(0, source).expect("lanes are free")))
        };
        let claims = [claim(4), claim(5)];
        // Who sees a lane in use knows whose it is.
        for lane in (0..8).filter(|lane| owners.used() >> lane & 1 != 0) {
            assert!([4, 5].contains(&owners.source(lane)));
        }
        let [(first, one), (second, two)] = claims.map(|claim| claim.join().unwrap());
        assert_ne!(one, two);
        assert_eq!((owners.source(one), owners.source(two)), (first, second));
    });
}

#[test]
fn a_block_is_given_again_only_when_it_was_released() {
    const BYTES: usize = 4 * 65_536;
    check(|| {
        let arena = Arena::new(BYTES);
        let freed: Arc<Vec<AtomicU32>> =
            Arc::new((0..blocks_in(BYTES)).map(|_| AtomicU32::new(0)).collect());
        // The largest blocks are few.
        let held: Vec<_> = std::iter::from_fn(|| arena.allocate(&freed, 65_536)).collect();
        let [first, ..] = held[..] else { panic!("an arena has blocks") };
        let payload = Arc::new(loom::cell::UnsafeCell::new(0));
        let receiver = {
            let (freed, payload) = (Arc::clone(&freed), Arc::clone(&payload));
            thread::spawn(move || {
                // The receiver reads, then releases.
                payload.with(|_| {});
                freed[first.index as usize].store(first.generation, Ordering::Release);
            })
        };
        if let Some(again) = arena.allocate(&freed, 65_536) {
            assert_eq!(again.index, first.index, "the others are busy");
            assert_ne!(again.generation, first.generation);
            payload.with_mut(|_| {});
        }
        receiver.join().unwrap();
    });
}

/// The sum of two ranks, in two turns, is the same for both, whoever comes first.
#[test]
fn a_turn_of_the_board_has_the_operands_of_all() {
    check(|| {
        let seats: Arc<Vec<Seat>> = Arc::new((0..4).map(|_| Seat::empty()).collect());
        let rank = |me: usize, seats: Arc<Vec<Seat>>| {
            for turn in 0..2_u32 {
                let seat = |rank: usize| &seats[rank * 2 + turn as usize];
                let board = Board { ranks: 2, me, turn, seat };
                let add = |sum: &mut [u8], next: &mut [u8]| sum[0] += next[0];
                board.put(0, &[1 + me as u8; 8], &add).expect("they agree");
                while !board.is_ready() {
                    thread::yield_now();
                }
                let mut sum = board.result::<1>(0, 8, &add).expect("they agree");
                assert_eq!(sum.bytes()[0], 3);
            }
        };
        let other = {
            let seats = Arc::clone(&seats);
            thread::spawn(move || rank(1, seats))
        };
        rank(0, seats);
        other.join().unwrap();
    });
}

/// The last one of a group sees the operands of all that came before it.
#[test]
fn the_last_of_a_group_has_all_operands() {
    check(|| {
        // Seven have come; two come now.
        let seats: Arc<Vec<Seat>> = Arc::new((0..9).map(|_| Seat::empty()).collect());
        let put = |me: usize, seats: &[Seat]| {
            let board = Board { ranks: 9, me, turn: 0, seat: |rank: usize| &seats[rank] };
            let add = |sum: &mut [u8], next: &mut [u8]| sum[0] += next[0];
            board.put(0, &[1; 8], &add).expect("they agree");
            let result = || board.result::<1>(0, 8, &add).expect("they agree").bytes()[0];
            board.is_ready().then(result)
        };
        (0..7).for_each(|me| assert_eq!(put(me, &seats), None));
        let other = {
            let seats = Arc::clone(&seats);
            thread::spawn(move || put(7, &seats))
        };
        let mine = put(8, &seats);
        let theirs = other.join().unwrap();
        assert!(mine == Some(9) || theirs == Some(9), "the last one has seen it");
        assert!([mine, theirs].into_iter().flatten().all(|sum| sum == 9));
    });
}
