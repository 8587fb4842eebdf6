//! Counts that threads share, or that one thread has to itself: then no locked instruction changes
//! them. Each would take about 20 cycles of a small operation, which has several.

use crate::sys::atomic::{AtomicU32, Ordering};

/// Who uses a count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sharing {
    #[default]
    Threads,
    /// One thread, and no signal handler while that is about to change it. A thread that comes in
    /// beside it to end the job may lose a change, so a count may be too high or too low by it then:
    /// nothing that is unsafe may follow from one.
    OneThread,
}

impl Sharing {
    /// Adds to a count, which wraps; returns what it was.
    #[inline(always)]
    pub(crate) fn add(self, count: &AtomicU32, more: u32) -> u32 {
        match self {
            Self::Threads => count.fetch_add(more, Ordering::AcqRel),
            Self::OneThread => {
                let before = count.load(Ordering::Relaxed);
                count.store(before.wrapping_add(more), Ordering::Relaxed);
                before
            }
        }
    }
}

/// A count. Who takes from it sees what those did who gave before.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    value: AtomicU32,
    sharing: Sharing,
}

impl Tally {
    pub(crate) fn new(value: u32, sharing: Sharing) -> Self {
        Self { value: AtomicU32::new(value), sharing }
    }

    #[inline]
    pub(crate) fn get(&self) -> u32 {
        self.value.load(Ordering::Acquire)
    }

    /// As [`Tally::get`], where nothing follows from it for other memory.
    #[inline]
    pub(crate) fn peek(&self) -> u32 {
        self.value.load(Ordering::Relaxed)
    }

    /// Changes it, unless `change` says `None`: that is the error. Returns what it was in either case.
    #[inline]
    pub(crate) fn update(&self, change: impl Fn(u32) -> Option<u32>) -> Result<u32, u32> {
        match self.sharing {
            Sharing::Threads => {
                self.value.fetch_update(Ordering::AcqRel, Ordering::Acquire, change)
            }
            Sharing::OneThread => {
                let before = self.peek();
                self.set(change(before).ok_or(before)?);
                Ok(before)
            }
        }
    }

    /// Returns what it was.
    #[inline]
    pub(crate) fn add(&self, count: u32) -> u32 {
        self.sharing.add(&self.value, count)
    }

    #[inline]
    pub(crate) fn set_bits(&self, bits: u32) {
        match self.sharing {
            Sharing::Threads => {
                self.value.fetch_or(bits, Ordering::AcqRel);
            }
            Sharing::OneThread => self.set(self.peek() | bits),
        }
    }

    /// Returns what it was.
    #[inline]
    pub(crate) fn replace(&self, value: u32) -> u32 {
        match self.sharing {
            Sharing::Threads => self.value.swap(value, Ordering::AcqRel),
            Sharing::OneThread => {
                let before = self.peek();
                self.set(value);
                before
            }
        }
    }

    #[inline]
    fn set(&self, value: u32) {
        self.value.store(value, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_the_same_whoever_shares_it() {
        for sharing in [Sharing::Threads, Sharing::OneThread] {
            let tally = Tally::new(3, sharing);
            let less = |count: u32| count.checked_sub(2);
            assert_eq!((tally.update(less), tally.get()), (Ok(3), 1));
            assert_eq!((tally.update(less), tally.get()), (Err(1), 1));
            assert_eq!(tally.add(4), 1);
            tally.set_bits(0x30);
            assert_eq!((tally.peek(), tally.replace(7), tally.get()), (0x35, 0x35, 7));
            assert_eq!((tally.add(u32::MAX), tally.get()), (7, 6));
        }
    }
}
