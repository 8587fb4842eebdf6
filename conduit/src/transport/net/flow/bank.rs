//! What the network keeps of credits that move: a bank for each port, and for each connection what
//! it borrows. The driver is `am/moving.rs`.
//!
//! The bank has a lock, which is never waited for: an exit from a signal handler may find it taken by
//! the thread that it interrupted. What finds it taken is done later, or, if it is a wish, not.

use std::sync::{Mutex, MutexGuard, TryLockError};

use super::borrow::Demand;
use super::lend::{Lender, PeerIndex, Question};
use super::{EpochClock, Limits};
use crate::sys::atomic::{AtomicU32, Ordering};

#[derive(Debug)]
pub(crate) struct Bank {
    pub(crate) limits: Limits,
    lender: Mutex<Lender>,
    clock: EpochClock,
    /// [`Lender::epoch`], for those who do not have the lock.
    epoch: AtomicU32,
}

impl Bank {
    pub(crate) fn new(limits: Limits, banked: u32) -> Self {
        let lender = Lender::new(limits, banked);
        let epoch = AtomicU32::new(lender.epoch());
        Self { limits, lender: Mutex::new(lender), clock: EpochClock::default(), epoch }
    }

    /// `None`: somebody is at it.
    pub(crate) fn try_lender(&self) -> Option<MutexGuard<'_, Lender>> {
        match self.lender.try_lock() {
            Ok(lender) => Some(lender),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Counts a request received; whether an epoch has ended.
    #[inline]
    pub(crate) fn tick(&self) -> bool {
        self.clock.tick(self.epoch.load(Ordering::Relaxed))
    }

    /// A peer asks for credits, as [`Lender::requested`]; `None`: somebody is at it.
    pub(crate) fn requested(
        &self,
        peer: PeerIndex,
        wanted: u32,
        ask: &mut Vec<Question>,
    ) -> Option<u32> {
        let mut lender = self.try_lender()?;
        let granted = lender.requested(peer, wanted, ask);
        self.epoch.store(lender.epoch(), Ordering::Relaxed);
        Some(granted)
    }
}

/// What a connection has beside its account ([`Flow::Moving`](super::of_connection::Flow)).
#[derive(Debug, Default)]
pub(crate) struct Borrowed {
    pub(crate) demand: Demand,
    /// What is to be sent about credits: [`Borrowed::REVOKE`], and what is given back plus one.
    to_send: AtomicU32,
    /// What the peer keeps when it is asked, plus one; 0: what it used lately.
    keep: AtomicU32,
    /// What the peer has given back plus one, until it is in the bank.
    to_book: AtomicU32,
}

impl Borrowed {
    /// The peer is asked to give back.
    const REVOKE: u32 = 1 << 31;

    /// Asks the peer to give back: all but `keep`, or what it has not used lately. It is not asked again
    /// before it has answered.
    pub(crate) fn revoke(&self, keep: Option<u32>) {
        self.keep.store(keep.map_or(0, |keep| keep.saturating_add(1)), Ordering::Release);
        self.to_send.fetch_or(Self::REVOKE, Ordering::AcqRel);
    }

    /// Answers a peer that asked. `false`: the last answer was not sent yet, so the peer has asked
    /// twice.
    pub(crate) fn answer(&self, given: u32) -> bool {
        let none = |word: u32| word & !Self::REVOKE == 0;
        let more = |word: u32| none(word).then(|| word | (given + 1));
        self.to_send.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).is_ok()
    }

    /// What the peer keeps that is asked.
    pub(crate) fn keep(&self) -> Option<u32> {
        self.keep.load(Ordering::Acquire).checked_sub(1)
    }

    fn has_to_send(&self) -> bool {
        self.to_send.load(Ordering::Acquire) != 0
    }

    /// Whether there is anything to be done about credits beside what messages carry.
    pub(crate) fn has_something(&self) -> bool {
        self.has_to_send() || self.has_to_book() || self.demand.owes()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Bad input: a question that is answered twice before the first answer is in the bank, or asked
    /// twice before it was answered.
    #[test]
    fn a_second_answer_and_a_second_question_are_seen() {
        let borrowed = Borrowed::default();
        assert_eq!([3, 0].map(|count| borrowed.returned(count)), [true, false]);
        assert_eq!(borrowed.take_booking(), Some(3));
        assert!(borrowed.returned(0));
        assert_eq!([2, 2].map(|given| borrowed.answer(given)), [true, false]);
        assert_eq!(borrowed.take(), (false, Some(2)));
        assert!(borrowed.answer(0));
    }

    /// What is kept stays with the question until it is sent.
    #[test]
    fn a_question_says_what_is_kept() {
        let borrowed = Borrowed::default();
        for keep in [Some(7), None, Some(0)] {
            borrowed.revoke(keep);
            let taken = borrowed.take();
            assert_eq!((taken, borrowed.keep()), ((true, None), keep));
            borrowed.put_back(taken);
            assert!(borrowed.has_something());
            assert_eq!((borrowed.take(), borrowed.keep()), ((true, None), keep));
        }
    }
}
