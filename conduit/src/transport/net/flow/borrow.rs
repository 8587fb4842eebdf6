//! What a rank knows of its own demand for the credits of one peer.

use super::{Limits, MOST_WANTED, decayed};
use crate::sys::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::transport::net::credits::Account;

/// Numbers of the recent past beside an account. The epochs are the peer's, which says with its
/// messages that one has ended.
#[derive(Debug, Default)]
pub(crate) struct Demand {
    /// Most requests that were under way at once.
    most_in_use: AtomicU32,
    /// Requests that had to wait for a credit.
    stalls: AtomicU32,
    /// Credits given back.
    revoked: AtomicU32,
    /// Credits that are to be given back as soon as they are not under way (the upper half), and that
    /// were given up for the same answer (the lower half). 0: none are, or a thread is at it.
    owed: AtomicU64,
}

impl Demand {
    /// A request finds no credit: the next message asks for as many as there are already. Counted
    /// once until then.
    #[cold]
    pub(crate) fn stalled(&self, account: &Account) {
        if account.want(account.supply.made().clamp(1, MOST_WANTED)) {
            self.stalls.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// To be called before a request counts as answered. What is under way grows until one is, so
    /// no higher number is missed.
    #[inline]
    pub(crate) fn answered(&self, account: &Account) {
        let count = account.supply.made().saturating_sub(account.available());
        if count > self.most_in_use.load(Ordering::Relaxed) {
            self.most_in_use.fetch_max(count, Ordering::Relaxed);
        }
    }

    /// An epoch of the lender has ended.
    #[cold]
    pub(crate) fn epoch_ended(&self) {
        for number in [&self.most_in_use, &self.stalls, &self.revoked] {
            number.store(decayed(number.load(Ordering::Relaxed)), Ordering::Relaxed);
        }
    }

    /// The lender asks for credits: gives up those that were not used lately, and says how many. A
    /// rank that stalled lately keeps all.
    #[cold]
    pub(crate) fn give_back(&self, account: &Account, limits: &Limits) -> u32 {
        let left = limits.revoked.saturating_sub(self.revoked.load(Ordering::Relaxed));
        if left == 0 || self.stalls.load(Ordering::Relaxed) > 0 {
            return 0;
        }
        let used = self.most_in_use.load(Ordering::Relaxed);
        let given = account.give_up(limits.least.max(used), left);
        self.revoked.fetch_add(given, Ordering::Relaxed);
        given
    }

    /// The lender asks for all but `keep`, however busy this rank is: others wait for their share. The
    /// answer; `None`: credits that are under way belong to it, and [`Demand::collect`] has it when they
    /// are back.
    #[cold]
    pub(crate) fn share(&self, account: &Account, limits: &Limits, keep: u32) -> Option<u32> {
        let left = limits.revoked.saturating_sub(self.revoked.load(Ordering::Relaxed));
        let owed = account.supply.made().saturating_sub(keep.max(limits.least)).min(left);
        if owed == 0 {
            return Some(0);
        }
        self.owed.store(u64::from(owed) << 32, Ordering::Release);
        self.collect(account)
    }

    /// Whether an answer waits for credits that are under way.
    #[inline]
    pub(crate) fn owes(&self) -> bool {
        self.owed.load(Ordering::Acquire) != 0
    }

    /// Credits given up for an answer that is not complete.
    #[cfg(test)]
    pub(crate) fn collected(&self) -> u32 {
        halves(self.owed.load(Ordering::Acquire)).1
    }

    /// To be called after credits have come back, if this rank [owes](Demand::owes) some: the answer,
    /// when all are there.
    #[cold]
    pub(crate) fn collect(&self, account: &Account) -> Option<u32> {
        loop {
            let (owed, given) = halves(self.owed.swap(0, Ordering::AcqRel));
            if owed == 0 {
                return None;
            }
            let now = account.give_up(0, owed);
            self.revoked.fetch_add(now, Ordering::Relaxed);
            if now == owed {
                return Some(given + now);
            }
            let rest = u64::from(owed - now) << 32 | u64::from(given + now);
            self.owed.store(rest, Ordering::SeqCst);
            // What came back meanwhile found nothing owed.
            if account.available() == 0 {
                return None;
            }
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "halves of a word")]
const fn halves(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}
