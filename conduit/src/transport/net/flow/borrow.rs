//! What a rank knows of its own demand for the credits of one peer.

use super::{Limits, MOST_WANTED, decayed};
use crate::sys::atomic::{AtomicU32, Ordering};
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
}
