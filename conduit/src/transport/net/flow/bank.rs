//! What the network keeps of credits that move: a bank for each port, and for each connection what
//! it borrows. The driver is `am/moving.rs`.
//!
//! The bank has a lock, which is never waited for: an exit from a signal handler may find it taken by
//! the thread that it interrupted. What finds it taken is done later, or, if it is a wish, not.

use std::sync::{Mutex, MutexGuard, TryLockError};

use super::borrow::Demand;
use super::lend::Lender;
use super::{EpochClock, Limits};
use crate::sys::atomic::{AtomicU32, Ordering};

#[derive(Debug)]
pub(crate) struct Bank {
    pub(crate) limits: Limits,
    lender: Mutex<Lender>,
    pub(crate) clock: EpochClock,
}

impl Bank {
    pub(crate) fn new(limits: Limits, banked: u32) -> Self {
        let lender = Mutex::new(Lender::new(limits, banked));
        Self { limits, lender, clock: EpochClock::default() }
    }

    /// `None`: somebody is at it.
    pub(crate) fn try_lender(&self) -> Option<MutexGuard<'_, Lender>> {
        match self.lender.try_lock() {
            Ok(lender) => Some(lender),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// What a connection has beside its account ([`Flow::Moving`](super::of_connection::Flow)).
#[derive(Debug, Default)]
pub(crate) struct Borrowed {
    pub(crate) demand: Demand,
    /// What is to be sent about credits: [`Borrowed::REVOKE`], and what is given back plus one.
    to_send: AtomicU32,
    /// What the peer has given back plus one, until it is in the bank.
    to_book: AtomicU32,
}

impl Borrowed {
    /// The peer is asked to give back.
    const REVOKE: u32 = 1 << 31;

    pub(crate) fn revoke(&self) {
        self.to_send.fetch_or(Self::REVOKE, Ordering::AcqRel);
    }

    /// Answers a peer that asked. `false`: the last answer was not sent yet, so the peer has asked
    /// twice.
    pub(crate) fn answer(&self, given: u32) -> bool {
        let none = |word: u32| word & !Self::REVOKE == 0;
        let more = |word: u32| none(word).then(|| word | (given + 1));
        self.to_send.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).is_ok()
    }

    #[inline]
    pub(crate) fn has_to_send(&self) -> bool {
        self.to_send.load(Ordering::Acquire) != 0
    }

    /// Takes what is to be sent: whether the peer is asked, and what it is given back.
    pub(crate) fn take(&self) -> (bool, Option<u32>) {
        let word = self.to_send.swap(0, Ordering::AcqRel);
        (word & Self::REVOKE != 0, (word & !Self::REVOKE).checked_sub(1))
    }

    /// Undoes [`Borrowed::take`].
    pub(crate) fn put_back(&self, (revoke, given): (bool, Option<u32>)) {
        let word = given.map_or(0, |given| given + 1);
        let word = if revoke { word | Self::REVOKE } else { word };
        self.to_send.fetch_or(word, Ordering::AcqRel);
    }

    /// The peer has given back so many. `false`: the last answer is not in the bank yet, so the peer
    /// has answered twice.
    pub(crate) fn returned(&self, count: u32) -> bool {
        let count = count.saturating_add(1);
        self.to_book.compare_exchange(0, count, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    pub(crate) fn has_to_book(&self) -> bool {
        self.to_book.load(Ordering::Acquire) != 0
    }

    pub(crate) fn take_booking(&self) -> Option<u32> {
        self.to_book.swap(0, Ordering::AcqRel).checked_sub(1)
    }
}
