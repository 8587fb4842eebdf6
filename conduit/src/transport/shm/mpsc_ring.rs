//! Bounded multi-producer single-consumer queue in shared memory.
//!
//! # Primer
//!
//! Positions count up for ever; position `p` lives in slot `p mod slots`. A producer claims a
//! position by advancing `tail`, writes the slot and publishes it by storing `p + 1` into the
//! slot's state (`wait.rs` says how a sleeping receiver learns of it). The consumer knows the state
//! that it waits for, copies the slot out and advances `head`. It never writes a slot: between two
//! ranks a message costs one transfer of the slot's line. Producers look at `head` only when the
//! queue seems full by the copy of it (`seen`) that they share.
//!
//! The one store that consumes a message is the advance of `head`. A consumer that is interrupted
//! by a signal handler that never returns can therefore be taken over there at any instruction.

use super::packet::{Packet, Post};
use super::slot::Slot;
use crate::sys::atomic::{AtomicU64, Ordering};
use crate::transport::message::MAX_ARGS;

/// The ends of a queue, each on a pair of lines of its own.
#[repr(C, align(128))]
pub(crate) struct MpscEnds {
    tail: AtomicU64,
    /// Producers' copy of `head`; never ahead of it.
    seen: AtomicU64,
    _pad: [u64; 14],
    head: AtomicU64,
}

impl MpscEnds {
    /// Offset of the consumer's position.
    pub(super) const HEAD: usize = std::mem::offset_of!(Self, head);

    /// Ends of an empty queue whose next position is `start`.
    #[cfg(any(test, loom))]
    pub(crate) fn at(start: u64) -> Self {
        let [tail, seen, head] = [start; 3].map(AtomicU64::new);
        Self { tail, seen, _pad: [0; 14], head }
    }
}

/// A queue: its ends and its slots.
#[derive(Clone, Copy)]
pub(crate) struct MpscRing<'a> {
    ends: &'a MpscEnds,
    slots: &'a [Slot],
}

impl<'a> MpscRing<'a> {
    /// `slots.len()` is a power of two.
    #[inline]
    pub(crate) const fn new(ends: &'a MpscEnds, slots: &'a [Slot]) -> Self {
        Self { ends, slots }
    }

    #[inline(always)]
    fn slot(&self, position: u64) -> &'a Slot {
        #[expect(clippy::cast_possible_truncation, reason = "masked to the number of slots")]
        let index = position as usize & (self.slots.len() - 1);
        &self.slots[index]
    }

    /// Whether a message would find room now. A hint: other producers may take it.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        let used = self
            .ends
            .tail
            .load(Ordering::Relaxed)
            .wrapping_sub(self.ends.head.load(Ordering::Relaxed));
        used.cast_signed() < self.slots.len() as i64
    }

    /// Claims the next position, `None` when the queue is full.
    #[inline(always)]
    fn claim(&self) -> Option<u64> {
        let mut tail = self.ends.tail.load(Ordering::Relaxed);
        loop {
            // Acquire on `seen` and `head`: the slot may be written once its consumer has copied
            // it.
            let free = |head: u64| tail.wrapping_sub(head).cast_signed() < self.slots.len() as i64;
            if !free(self.ends.seen.load(Ordering::Acquire)) {
                let head = self.ends.head.load(Ordering::Acquire);
                if !free(head) {
                    return None;
                }
                self.ends.seen.store(head, Ordering::Release);
            }
            match self.ends.tail.compare_exchange_weak(
                tail,
                tail.wrapping_add(1),
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(tail),
                Err(now) => tail = now,
            }
        }
    }

    /// Sends a message; `false` when the queue is full. The caller rings the receiver's doorbell.
    ///
    /// `post.args` has at most 16 words and `post.inline` fits beside them
    /// ([`Packet::inline_room`]).
    #[inline(always)]
    pub(crate) fn send(&self, post: &Post<'_>) -> bool {
        let nargs = post.args.len();
        debug_assert!(post.inline.len() <= Packet::inline_room(nargs));
        if nargs > MAX_ARGS || post.inline.len() > Packet::inline_room(nargs) {
            return false;
        }
        let Some(position) = self.claim() else { return false };
        let slot = self.slot(position);
        // SAFETY: the position was claimed, so this producer alone writes the slot until it is
        // published, and the consumer has finished with the previous lap (`claim`). Arguments and
        // payload fit (checked above).
        unsafe { slot.write(post) };
        slot.publish(position);
        true
    }

    /// Whether a message is waiting. One load of a line that only changes when something arrives.
    /// Consumer only.
    #[inline(always)]
    pub(crate) fn ready(&self) -> bool {
        let head = self.ends.head.load(Ordering::Relaxed);
        self.slot(head).holds(head)
    }

    /// Takes the next message into `packet`; false when there is none. Only one consumer at a time.
    #[inline]
    pub(crate) fn receive(&self, packet: &mut Packet) -> bool {
        let head = self.ends.head.load(Ordering::Relaxed);
        let slot = self.slot(head);
        if !slot.holds(head) {
            return false;
        }
        // SAFETY: the slot is published and stays unchanged until `head` advances.
        unsafe { slot.copy_to(packet) };
        self.ends.head.store(head.wrapping_add(1), Ordering::Release);
        true
    }
}

#[cfg(all(test, not(loom)))]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small numbers of tests"
)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::super::packet::{BODY, Kind};
    use super::*;

    struct Owned {
        ends: Box<MpscEnds>,
        slots: Vec<Slot>,
    }

    impl Owned {
        fn new(slots: usize, start: u64) -> Self {
            // Each slot is as the lap before `start` left it.
            let raw = |position: u64| {
                let mut raw = Packet::empty().0;
                if start != 0 {
                    raw._state = (position as u32).wrapping_add(1).wrapping_sub(slots as u32);
                }
                Slot::of(raw)
            };
            let mut all: Vec<Slot> = Vec::new();
            for index in 0..slots as u64 {
                let behind = index.wrapping_sub(start) & (slots as u64 - 1);
                all.push(raw(start.wrapping_add(behind)));
            }
            Self { ends: Box::new(MpscEnds::at(start)), slots: all }
        }

        fn ring(&self) -> MpscRing<'_> {
            MpscRing::new(&self.ends, &self.slots)
        }
    }

    fn post<'a>(source: u32, args: &'a [i32], inline: &'a [u8]) -> Post<'a> {
        let len = u32::try_from(inline.len()).expect("small");
        let kind = if inline.is_empty() { Kind::Short } else { Kind::MediumInline };
        Post { kind, handler: 7, source, len, place: u64::from(source) << 40, args, inline }
    }

    proptest! {
        #[test]
        fn is_a_bounded_fifo(
            slots in 0_u32..5,
            start in prop_oneof![Just(0), Just(u64::from(u32::MAX) - 3), Just(u64::MAX - 3)],
            steps in proptest::collection::vec(
                (any::<bool>(), proptest::collection::vec(any::<i32>(), 0..=16), 0usize..=104), 1..200)
        ) {
            let owned = Owned::new(1 << slots, start);
            let ring = owned.ring();
            let mut model: VecDeque<(u32, Vec<i32>, Vec<u8>)> = VecDeque::new();
            let mut packet = Packet::empty();
            for (number, (send, args, bytes)) in (0_u32..).zip(steps) {
                prop_assert_eq!(ring.ready(), !model.is_empty());
                prop_assert_eq!(ring.has_room(), model.len() < 1 << slots);
                if send {
                    let inline = vec![number as u8; bytes.min(Packet::inline_room(args.len()))];
                    let sent = ring.send(&post(number, &args, &inline));
                    prop_assert_eq!(sent, model.len() < 1 << slots);
                    if sent {
                        model.push_back((number, args, inline));
                    }
                } else if let Some((number, args, inline)) = model.pop_front() {
                    prop_assert!(ring.receive(&mut packet));
                    prop_assert_eq!(packet.0.source, number);
                    if !inline.is_empty() {
                        prop_assert_eq!(packet.0.place, u64::from(number) << 40);
                    }
                    let (got, bytes) = packet.parts().expect("counts");
                    prop_assert_eq!(got, &args[..]);
                    prop_assert_eq!(&*bytes, &inline[..]);
                } else {
                    prop_assert!(!ring.receive(&mut packet));
                }
            }
        }

        #[test]
        fn counts_from_elsewhere_are_not_trusted(kind: u8, nargs: u8, len: u32) {
            let mut packet = Packet::empty();
            (packet.0.kind, packet.0.nargs, packet.0.len) = (kind, nargs, len);
            let _ = packet.extent();
            if let Some((args, inline)) = packet.parts() {
                prop_assert!(args.len() <= 16 && 8 * args.len().div_ceil(2) + inline.len() <= BODY);
            }
        }
    }

    #[test]
    fn producers_do_not_disturb_each_other() {
        const EACH: i32 = 20_000;
        for slots in [1, 4, 64] {
            let owned = Owned::new(slots, 0);
            let ring = owned.ring();
            std::thread::scope(|scope| {
                for source in 0..3 {
                    scope.spawn(move || {
                        for n in 0..EACH {
                            let args = [n, n ^ 0x5555, source];
                            let source = source.cast_unsigned();
                            // Long enough for the second line of the slot.
                            let inline = [n as u8; 60];
                            while !ring.send(&post(source, &args, &inline)) {
                                std::thread::yield_now();
                            }
                        }
                    });
                }
                let mut next = [0; 3];
                let mut packet = Packet::empty();
                while next.iter().any(|n| *n < EACH) {
                    if !ring.receive(&mut packet) {
                        std::thread::yield_now();
                        continue;
                    }
                    let source = packet.0.source as usize;
                    let (args, inline) = packet.parts().expect("counts");
                    let n = next[source];
                    assert_eq!(args[..2], [n, n ^ 0x5555], "order of one producer");
                    assert!(inline.len() == 60 && inline.iter().all(|b| *b == n as u8));
                    next[source] += 1;
                }
                assert!(!ring.receive(&mut packet));
            });
        }
    }
}
