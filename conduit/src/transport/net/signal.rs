//! Which requests report their success (selective signalling; pure).
//!
//! A request that needs nothing back but its slot is posted *unsignalled*: the next signalled one of
//! its queue pair says that it is done, too, because a queue pair completes in order. A failure is
//! reported by each request for itself.
//!
//! Two bounds keep a sender from waiting for a slot that nobody reports. A request is unsignalled
//! only while more than half of the send queue is left, so the other half comes back by itself. And
//! an unsignalled request takes one of a few slots of the completion queue ([`MOST_UNSIGNALED`])
//! that no other request uses: a queue pair that fails reports all of its requests, and there is
//! room for that. Who finds none left is signalled.

use super::settings::sizes::RESERVED_SQ_SLOTS;
use crate::sys::tally::{Sharing, Tally};

/// Every so many requests of a queue pair one is signalled, or a quarter of its depth if that is
/// less.
const SIGNAL_EVERY: u32 = 16;

/// Slots of a completion queue for failures of unsignalled requests: as many of these may be under
/// way on a rail.
pub(super) const MOST_UNSIGNALED: u32 = 64;

const _: () = assert!(MOST_UNSIGNALED <= Signal::MOST);

/// Polls between two looks for failures where nothing but unsignalled requests is under way.
pub(super) const SELDOM: u32 = 64;

/// How the end of a request is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// Only when it fails.
    Failure,
    /// Always, and then so many unsignalled ones before it are done, too.
    End { before: u32 },
}

impl Signal {
    /// Most that `before` can be.
    const MOST: u32 = 0xff;
    /// Place in the number of an operation, which leaves it nine bits.
    pub(super) const SHIFT: u32 = 22;
    const FAILURE: u64 = 1 << (Self::SHIFT + 8);

    /// As a part of the number of an operation.
    #[inline]
    pub(super) const fn bits(self) -> u64 {
        match self {
            Self::Failure => Self::FAILURE,
            Self::End { before } => ((before & Self::MOST) as u64) << Self::SHIFT,
        }
    }

    /// What [`Signal::bits`] made.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "eight bits of it")]
    pub(super) const fn of(number: u64) -> Self {
        if number & Self::FAILURE != 0 {
            return Self::Failure;
        }
        Self::End { before: (number >> Self::SHIFT) as u32 & Self::MOST }
    }
}

/// The unsignalled requests of a queue pair that no signalled one follows yet.
#[derive(Debug)]
pub(super) struct Unsignaled {
    count: Tally,
    /// So many at most.
    most: u32,
    /// Only while more slots of the send queue than this are left.
    above: u32,
}

impl Unsignaled {
    /// Entries that a send queue has more than the `depth` that is asked for, so that as many
    /// requests as that can be under way although some slots wait for a signalled one.
    pub(super) fn room(depth: u32) -> u32 {
        SIGNAL_EVERY.min(depth / 4).saturating_sub(1)
    }

    /// Of a send queue of `depth` entries and `room`.
    pub(super) fn new((depth, room): (u32, u32), sharing: Sharing) -> Self {
        let above = (depth / 2).max(RESERVED_SQ_SLOTS);
        Self { count: Tally::new(0, sharing), most: room, above }
    }

    /// Whether the request whose slot left so many may be unsignalled.
    #[inline]
    pub(super) fn may_be(&self, left: u32) -> bool {
        left > self.above && self.count.peek() < self.most
    }

    /// One was posted. (Counted after its post, so that whatever is counted is before the post of
    /// who takes the count.)
    #[inline]
    pub(super) fn posted(&self) {
        self.count.add(1);
    }

    /// A signalled request is about to be posted: how many are done when it is.
    #[inline]
    pub(super) fn take(&self) -> u32 {
        if self.count.peek() == 0 { 0 } else { self.count.replace(0) }
    }

    /// It was not posted after all.
    #[inline]
    pub(super) fn put_back(&self, count: u32) {
        if count > 0 {
            self.count.add(count);
        }
    }

    /// One failed. `false`: a signalled request that was posted later counts it.
    pub(super) fn failed(&self) -> bool {
        let less = |count: u32| count.checked_sub(1);
        self.count.update(less).is_ok()
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> u32 {
        self.count.get()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;
    use crate::transport::net::credits::Permits;

    /// A send queue that completes in order.
    struct Queue {
        slots: Permits,
        unsignaled: Unsignaled,
        posted: VecDeque<Signal>,
    }

    impl Queue {
        fn new(depth: u32) -> Self {
            let room = Unsignaled::room(depth);
            let (slots, unsignaled) =
                (Permits::new(depth + room), Unsignaled::new((depth, room), Sharing::Threads));
            Self { slots, unsignaled, posted: VecDeque::new() }
        }

        fn post(&mut self, reserve: u32, needs_end: bool) -> bool {
            let Some(left) = self.slots.take_one(reserve) else { return false };
            if !needs_end && self.unsignaled.may_be(left) {
                self.posted.push_back(Signal::Failure);
                self.unsignaled.posted();
            } else {
                self.posted.push_back(Signal::End { before: self.unsignaled.take() });
            }
            true
        }

        /// The oldest one ends.
        fn end(&mut self, well: bool) {
            let signal = self.posted.pop_front().map(|signal| Signal::of(signal.bits()));
            match signal {
                Some(Signal::End { before }) => self.slots.give(1 + before),
                Some(Signal::Failure) if !well && self.unsignaled.failed() => self.slots.give(1),
                _ => {}
            }
        }
    }

    proptest! {
        /// When all that was posted is done, as many requests have room as the queue was made for,
        /// and what is missing are the slots of unsignalled ones.
        #[test]
        fn slots_come_back(
            depth in 1u32..80,
            steps in proptest::collection::vec((any::<bool>(), any::<bool>(), 0u32..3), 1..400),
        ) {
            let (mut queue, all) = (Queue::new(depth), depth + Unsignaled::room(depth));
            for (posts, needs_end, reserve) in steps {
                if posts {
                    queue.post(reserve, needs_end);
                } else {
                    queue.end(true);
                }
                prop_assert!(queue.slots.left() <= all);
            }
            while !queue.posted.is_empty() {
                queue.end(true);
            }
            prop_assert_eq!(queue.slots.left() + queue.unsignaled.count(), all);
            prop_assert!(queue.slots.left() >= depth);
        }

        /// Of a queue pair that fails all slots come back but those of unsignalled requests that were
        /// done before.
        #[test]
        fn slots_of_a_failed_queue_pair_come_back(
            depth in 1u32..80,
            kinds in proptest::collection::vec(any::<bool>(), 1..80),
            well in 0usize..80,
        ) {
            let (mut queue, all) = (Queue::new(depth), depth + Unsignaled::room(depth));
            let posted = kinds.into_iter().filter(|needs_end| queue.post(0, *needs_end)).count();
            for at in 0..posted {
                queue.end(at < well);
                prop_assert!(queue.slots.left() <= all);
            }
            prop_assert_eq!(queue.slots.left() + queue.unsignaled.count(), all);
        }

        #[test]
        fn a_signal_comes_back(before in 0..=Signal::MOST) {
            for signal in [Signal::Failure, Signal::End { before }] {
                prop_assert_eq!(Signal::of(signal.bits()), signal);
            }
        }
    }

    #[test]
    fn one_of_some_is_signalled_while_there_is_room() {
        for (depth, every) in [(1, 1), (4, 1), (12, 3), (26, 6), (64, 16), (1000, 16)] {
            let mut queue = Queue::new(depth);
            for turn in 1..100 {
                assert!(queue.post(0, false));
                let signaled = queue.posted.back() != Some(&Signal::Failure);
                assert_eq!(signaled, turn % every == 0, "request {turn} of a queue of {depth}");
                queue.end(true);
            }
        }
    }
}
