//! Barriers in shared memory, without names and rules of the client: arrive, and see whether all
//! have. Where there are several neighbourhoods, this gathers one of them, and it may go on when
//! its leader releases it (`barrier::drive`).
//!
//! A word speaks of one generation: generation (30 bits), state of the merged name (2 bits), name
//! (32 bits).
//!
//! * Up to [`FEW`] ranks: everybody writes a word of his own and looks at all. One transfer of a
//!   cache line each way.
//! * More: arrivals are merged into one word with a compare-exchange; the last one opens the
//!   barrier. A rank needs no help of others after it has arrived, so one that computes between
//!   notify and wait holds up nobody.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::endpoint::ShmTransport;
use super::layout::CentralBarrier;

const FEW: u32 = 8;
const GENERATIONS: u32 = (1 << 30) - 1;

/// What a set of ranks says about the name of a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BarrierName {
    /// Nobody gave one.
    Anonymous,
    /// All who gave one gave this.
    Named(i32),
    /// They differ, or somebody asked for failure.
    Mismatch,
}

impl BarrierName {
    pub(crate) const fn merge(self, other: Self) -> Self {
        match (self, other) {
            (Self::Mismatch, _) | (_, Self::Mismatch) => Self::Mismatch,
            (Self::Anonymous, name) | (name, Self::Anonymous) => name,
            (Self::Named(a), Self::Named(b)) if a == b => self,
            (Self::Named(_), Self::Named(_)) => Self::Mismatch,
        }
    }

    pub(crate) const fn encode(self) -> u64 {
        match self {
            Self::Anonymous => 0,
            Self::Named(id) => 1 << 32 | id.cast_unsigned() as u64,
            Self::Mismatch => 2 << 32,
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "the low half of the word")]
    pub(crate) const fn decode(word: u64) -> Self {
        match word >> 32 & 3 {
            0 => Self::Anonymous,
            1 => Self::Named((word as u32).cast_signed()),
            _ => Self::Mismatch,
        }
    }
}

const fn word(count: u32, name: BarrierName) -> u64 {
    (count as u64) << 34 | name.encode()
}

const fn count(word: u64) -> u32 {
    (word >> 34) as u32
}

/// This rank's part in one of its neighbourhood's barriers.
#[repr(C)]
pub(crate) struct Progress {
    generation: AtomicU32,
    under_way: AtomicBool,
    result: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// The client's.
    Client,
    /// The library's: init and attach.
    Inner,
}

impl Progress {
    pub(crate) const fn new() -> Self {
        Self {
            generation: AtomicU32::new(0),
            under_way: AtomicBool::new(false),
            result: AtomicU64::new(0),
        }
    }

    /// Arrived, and not yet seen complete.
    #[inline]
    pub(crate) fn under_way(&self) -> bool {
        self.under_way.load(Ordering::Relaxed)
    }

    pub(crate) fn generation(&self) -> u32 {
        self.generation.load(Ordering::Relaxed)
    }

    pub(crate) fn result(&self) -> BarrierName {
        BarrierName::decode(self.result.load(Ordering::Relaxed))
    }

    #[inline]
    fn finish(&self, name: BarrierName) -> BarrierName {
        self.result.store(name.encode(), Ordering::Relaxed);
        self.under_way.store(false, Ordering::Relaxed);
        name
    }
}

impl ShmTransport {
    #[inline]
    pub(crate) const fn progress_of(&self, which: Which) -> &Progress {
        match which {
            Which::Client => &self.client_barrier,
            Which::Inner => &self.inner_barrier,
        }
    }

    #[inline]
    fn central_of(&self, which: Which) -> &CentralBarrier {
        match which {
            Which::Client => &self.memory.control().client,
            Which::Inner => &self.memory.control().inner,
        }
    }

    #[inline]
    const fn few(&self, which: Which) -> bool {
        matches!(which, Which::Client) && self.span.locals <= FEW && !self.central
    }

    /// This rank arrives with `name`. It must not have a barrier under way.
    #[inline(always)]
    pub(crate) fn arrive(&self, which: Which, name: BarrierName) {
        let progress = self.progress_of(which);
        let generation = progress.generation.load(Ordering::Relaxed).wrapping_add(1) & GENERATIONS;
        progress.generation.store(generation, Ordering::Relaxed);
        progress.under_way.store(true, Ordering::Relaxed);
        if self.few(which) {
            let mine = &self.memory.member(self.local()).arrived[generation as usize & 1];
            mine.0.swap(word(generation, name), Ordering::SeqCst);
            for other in (0..self.memory.layout.locals).filter(|other| *other != self.local()) {
                self.slot_of(other).ring_if_sleeping();
            }
        } else {
            self.arrive_central(self.central_of(which), generation, name);
        }
    }

    #[inline(never)]
    fn arrive_central(&self, central: &CentralBarrier, generation: u32, name: BarrierName) {
        let before = if name == BarrierName::Anonymous {
            // No name to merge: one instruction, which fetches the line once.
            central.filling.fetch_add(word(1, BarrierName::Anonymous), Ordering::AcqRel)
        } else {
            let arrive =
                |before| Some(word(count(before) + 1, BarrierName::decode(before).merge(name)));
            let (set, fetch) = (Ordering::AcqRel, Ordering::Relaxed);
            central.filling.fetch_update(set, fetch, arrive).unwrap_or_else(|before| before)
        };
        if count(before) + 1 == self.span.locals {
            // Everybody has arrived, and nobody can arrive again before the barrier opens.
            let merged = BarrierName::decode(before).merge(name);
            central.filling.store(0, Ordering::Relaxed);
            central.open.swap(word(generation, merged), Ordering::SeqCst);
            if central.sleepers.load(Ordering::Relaxed) != 0 {
                self.wake_sleepers();
            }
        }
    }

    #[cold]
    fn wake_sleepers(&self) {
        for other in 0..self.memory.layout.locals {
            self.slot_of(other).ring_if_sleeping();
        }
    }

    /// Whether all ranks have arrived at the barrier under way; changes nothing.
    #[inline]
    pub(crate) fn is_open(&self, which: Which) -> bool {
        self.opened(which).is_some()
    }

    #[inline(always)]
    fn opened(&self, which: Which) -> Option<BarrierName> {
        if self.networked { self.released(which) } else { self.gathered(which) }
    }

    /// What the whole job has said, once the leader of this neighbourhood has released it.
    fn released(&self, which: Which) -> Option<BarrierName> {
        let generation = self.progress_of(which).generation.load(Ordering::Relaxed);
        let released = self.central_of(which).released.load(Ordering::Acquire);
        (count(released) == generation).then(|| BarrierName::decode(released))
    }

    /// Lets the neighbourhood go on: the whole job has said `name`.
    pub(crate) fn release(&self, which: Which, generation: u32, name: BarrierName) {
        self.central_of(which).released.swap(word(generation, name), Ordering::SeqCst);
        self.wake_sleepers();
    }

    /// What the neighbourhood has said, when all of it has arrived.
    #[inline(always)]
    pub(crate) fn gathered(&self, which: Which) -> Option<BarrierName> {
        let generation = self.progress_of(which).generation.load(Ordering::Relaxed);
        if !self.few(which) {
            let open = self.central_of(which).open.load(Ordering::Acquire);
            return (count(open) == generation).then(|| BarrierName::decode(open));
        }
        let mut merged = BarrierName::Anonymous;
        for local in 0..self.memory.layout.locals {
            let word = self.memory.member(local).arrived[generation as usize & 1]
                .0
                .load(Ordering::Acquire);
            if count(word) != generation {
                return None;
            }
            merged = merged.merge(BarrierName::decode(word));
        }
        Some(merged)
    }

    /// Completes the barrier under way when all ranks have arrived.
    #[inline(always)]
    pub(crate) fn try_pass(&self, which: Which) -> Option<BarrierName> {
        self.opened(which).map(|name| self.progress_of(which).finish(name))
    }

    /// Ranks that sleep until a barrier under way is complete, with this one as long as it is not.
    pub(crate) fn sleepers_of(&self, which: Which) -> Option<&AtomicU32> {
        let waiting = self.progress_of(which).under_way() && !self.is_open(which);
        waiting.then(|| &self.central_of(which).sleepers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names() -> impl Strategy<Value = BarrierName> {
        prop_oneof![
            Just(BarrierName::Anonymous),
            any::<i32>().prop_map(BarrierName::Named),
            (0..3).prop_map(BarrierName::Named),
            Just(BarrierName::Mismatch)
        ]
    }

    proptest! {
        #[test]
        fn names_survive_the_word(name in names(), counted in 0..GENERATIONS) {
            let word = word(counted, name);
            prop_assert_eq!(BarrierName::decode(word), name);
            prop_assert_eq!(count(word), counted);
        }

        #[test]
        fn merging_has_no_order(a in names(), b in names(), c in names()) {
            prop_assert_eq!(a.merge(b), b.merge(a));
            prop_assert_eq!(a.merge(b).merge(c), a.merge(b.merge(c)));
            prop_assert_eq!(a.merge(BarrierName::Anonymous), a);
        }
    }
}
