//! The sender's side of a lane.

use std::sync::atomic::{AtomicPtr, compiler_fence};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use bootstrap::node_shm::RankSlot;

use super::super::map::SharedLayout;
use super::{Kind, SpscRing, SpscSlot, WORDS, lap, tag};
use super::{LAP, SLOTS, advanced};
use crate::sys;

/// Messages that a sender sends through the shared queue before it claims a lane. A lane is memory
/// and the receiver looks at it from then on, so a greeting is not worth one.
pub(super) const WARM_UP: u32 = 4;
/// Messages after which a sender that found no lane free looks again.
pub(super) const LOOK_AGAIN: u32 = 1 << 16;
/// How far ahead, in a row of messages, a producer asks for lines.
const AHEAD: u32 = 64;
/// Slots of a line.
const LINE: u32 = 4;

/// What a sender remembers of its way to one receiver, in its own memory. Used by the thread in
/// `owner` alone; any thread in modes where one at a time is in the library. Zero bytes are one that
/// nothing was sent through, so that a rank has memory only for those that it sends to.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct Producer {
    owner: AtomicUsize,
    /// A lane ([`Producer::lane`]), or messages until the next attempt to claim one
    /// ([`messages_until`]).
    lane: AtomicU32,
    tail: AtomicU32,
    /// Position up to which slots are free by the last seen `head`; before that was looked at, as if
    /// the lane were full.
    free: AtomicU32,
    /// Slots of the lane and doorbell of the receiver, for [`Producer::send_short`]; null when
    /// there is no lane.
    slots: AtomicPtr<SpscSlot>,
    bell: AtomicPtr<RankSlot>,
}

// SAFETY: atomics, and zero bytes are null pointers.
unsafe impl SharedLayout for Producer {}

/// In `Producer::lane`: the rest is a lane.
const CLAIMED: u32 = 1 << 31;

/// What `Producer::lane` is with so many messages to go until a claim, and the other way round.
const fn messages_until(claim: u32) -> u32 {
    claim ^ WARM_UP
}

/// Slots in use before position `next`; [`LAP`] or more when none is free.
#[inline(always)]
const fn used(next: u32, free: u32) -> u32 {
    next.wrapping_sub(free).wrapping_add(LAP)
}

impl Producer {
    /// As it is when the lane is at a position.
    #[cfg(any(test, loom))]
    pub(crate) fn at(position: u32) -> Self {
        let new = Self::default();
        new.tail.store(position, Ordering::Relaxed);
        new.saw(position);
        new
    }

    /// The lane, `None` when there is none yet.
    #[inline(always)]
    pub(crate) fn lane(&self) -> Option<usize> {
        let word = self.lane.load(Ordering::Relaxed);
        (word & CLAIMED != 0).then_some((word & !CLAIMED) as usize)
    }

    /// Whether so many slots were free when the consumer's position was last looked at.
    #[inline(always)]
    pub(super) fn seems_free(&self, slots: usize) -> bool {
        let (next, free) = (self.tail.load(Ordering::Relaxed), self.free.load(Ordering::Relaxed));
        used(next, free) as usize + slots <= SLOTS
    }

    /// The consumer's position was looked at.
    #[inline(always)]
    pub(super) fn saw(&self, head: u32) {
        self.free.store(head.wrapping_add(LAP), Ordering::Relaxed);
    }

    /// Takes slots for a message: the first position.
    #[inline(always)]
    pub(super) fn advance(&self, slots: usize) -> u32 {
        let next = self.tail.load(Ordering::Relaxed);
        self.tail.store(advanced(next, slots), Ordering::Relaxed);
        next
    }

    /// Notes where the lane and the doorbell are.
    ///
    /// # Safety
    /// Both stay valid while `self` is used; called by the thread whose claim succeeded, before its
    /// next message.
    pub(crate) unsafe fn point_at(&self, lane: SpscRing<'_>, bell: &RankSlot) {
        self.bell.store(std::ptr::from_ref(bell).cast_mut(), Ordering::Relaxed);
        self.slots.store(lane.slots.as_ptr().cast_mut(), Ordering::Relaxed);
    }

    /// Sends a Short of a row: as [`SpscRing::send`] and the ring of the doorbell, with everything
    /// at hand, for ranks that need no barrier between the two. `false` when nothing went through
    /// the lane yet, it seems full, or the message takes more than a slot.
    #[inline(always)]
    pub(crate) fn send_short(&self, handler: u8, args: &[i32]) -> bool {
        let next = self.tail.load(Ordering::Relaxed);
        let used = used(next, self.free.load(Ordering::Relaxed));
        if used >= LAP || args.len() > WORDS {
            return false;
        }
        // SAFETY: slots were free, so the lane was looked at, and that is done after `point_at`:
        // both are valid since then.
        let slots = unsafe { &*self.slots.load(Ordering::Relaxed).cast::<[SpscSlot; SLOTS]>() };
        // SAFETY: as above.
        let bell = unsafe { &*self.bell.load(Ordering::Relaxed) };
        self.tail.store(next.wrapping_add(1), Ordering::Relaxed);
        if next.is_multiple_of(LINE) && used < LAP.saturating_sub(AHEAD) {
            // The line of later messages is in the consumer's cache, and fetching it takes longer
            // than a message. Not a line with messages that the consumer has yet to read: it would
            // have to fetch it back.
            sys::ask_to_write(&raw const slots[next.wrapping_add(AHEAD) as usize % SLOTS]);
        }
        let word = |at: usize| args.get(at).map_or(0, |arg| arg.cast_unsigned());
        let tag = tag(Kind::Short, handler, args.len()) | lap(next);
        let words = [word(0), word(1), word(2)];
        slots[next as usize % SLOTS].write(tag, words, args.len(), Ordering::Release);
        compiler_fence(Ordering::SeqCst);
        bell.ring_if_sleeping();
        true
    }

    /// Whether thread `me` is the one that uses this.
    #[inline(always)]
    pub(crate) fn is_of(&self, me: usize) -> bool {
        self.owner.load(Ordering::Relaxed) == me
    }

    /// Counts a message of thread `me` that went another way; claims a lane when it is time. At
    /// most one claim ever succeeds, and its thread stays the owner.
    pub(crate) fn approach(
        &self,
        me: usize,
        claim: impl FnOnce() -> Option<usize>,
    ) -> Option<usize> {
        let word = self.lane.load(Ordering::Relaxed);
        if word & CLAIMED != 0 {
            return None;
        }
        if let Some(less) = messages_until(word).checked_sub(1) {
            // Other threads count too; a message that goes uncounted does no harm.
            let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
            let _ = self.lane.compare_exchange(word, messages_until(less), set, fetch);
            return None;
        }
        let (set, fetch) = (Ordering::AcqRel, Ordering::Relaxed);
        if self.owner.compare_exchange(0, me, set, fetch).is_err() {
            return None;
        }
        // Another thread may have been the owner meanwhile and found no lane.
        let due = self.lane.load(Ordering::Acquire) == messages_until(0);
        let lane = if due { claim() } else { None };
        match lane {
            Some(lane) => {
                let word = u32::try_from(lane).unwrap_or(u32::MAX);
                self.lane.store(CLAIMED | word, Ordering::Relaxed);
            }
            None => {
                self.lane.store(messages_until(LOOK_AGAIN), Ordering::Release);
                self.owner.store(0, Ordering::Release);
            }
        }
        lane
    }
}
