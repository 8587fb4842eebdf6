//! Counting the parts of one-sided operations that are in flight.

use crate::sys::atomic::{AtomicU8, AtomicU32, Ordering};
use crate::sys::tally::Sharing;

/// How much of an operation, or of a group of operations, is still to come. It may be used again
/// when it is complete.
#[derive(Debug, Default)]
pub(crate) struct OpCounter {
    /// Parts whose local memory is still in use.
    local: AtomicU32,
    /// Parts that have not taken effect.
    remote: AtomicU32,
    /// Its number among those that requests of a network name (`net/numbered_counters.rs`); 0: it has
    /// none, [`OpCounter::UNNUMBERED`]: it was not asked for one.
    number: AtomicU8,
}

impl OpCounter {
    /// A part is about to be posted; `local` when its local memory stays in use.
    pub(crate) fn begin(&self, local: bool) {
        self.begin_by(Sharing::Threads, local);
    }

    /// As [`OpCounter::begin`], where it is known who begins and ends parts.
    #[inline]
    pub(crate) fn begin_by(&self, by: Sharing, local: bool) {
        if local {
            by.add(&self.local, 1);
        }
        by.add(&self.remote, 1);
    }

    /// A part that was begun with the same `local` is complete, or was not posted after all.
    pub(crate) fn end(&self, local: bool) {
        self.end_by(Sharing::Threads, local);
    }

    /// As [`OpCounter::end`], where it is known who begins and ends parts.
    #[inline]
    pub(crate) fn end_by(&self, by: Sharing, local: bool) {
        self.end_parts(by, local, 1);
    }

    /// As [`OpCounter::end_by`], of several that were begun alike.
    #[inline]
    pub(crate) fn end_parts(&self, by: Sharing, local: bool, count: u32) {
        if local {
            by.add(&self.local, count.wrapping_neg());
        }
        by.add(&self.remote, count.wrapping_neg());
    }

    /// See [`OpCounter::number`].
    pub(crate) const UNNUMBERED: u8 = u8::MAX;

    /// One that is used again and again, and may have a number.
    pub(crate) fn lasting() -> Self {
        Self { number: AtomicU8::new(Self::UNNUMBERED), ..Self::default() }
    }

    #[inline(always)]
    pub(crate) fn number(&self) -> u8 {
        self.number.load(Ordering::Acquire)
    }

    pub(crate) fn set_number(&self, number: u8) {
        self.number.store(number, Ordering::Release);
    }

    /// Whether the source may be changed (of a get: whether the data is there).
    pub(crate) fn is_local_complete(&self) -> bool {
        self.local.load(Ordering::Acquire) == 0
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.remote.load(Ordering::Acquire) == 0 && self.is_local_complete()
    }
}
