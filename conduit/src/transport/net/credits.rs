//! Flow control between two ranks, and counting permits. Pure: atomic numbers and rules, no lock,
//! so that a signal handler may use what its thread was using.
//!
//! A request takes a credit, which stands for two receive buffers: one at the target for the
//! request, one here for what answers it. Those at the target are there from the start; those here
//! are posted when so many requests are under way for the first time ([`Supply`]), so an account
//! begins with fewer credits than the target grants. A reply or an ack gives the credit back, and
//! each message may carry more that the responder had banked. A responder banks at most *slack*
//! credits; one more makes an ack due. Slack is below the number of credits: otherwise all could
//! lie banked on both sides, and nobody could send.

use crate::sys::atomic::{AtomicU32, Ordering};

/// Permits for something of which there is a fixed number.
#[derive(Debug, Default)]
pub(crate) struct Permits(AtomicU32);

impl Permits {
    pub(crate) fn new(count: u32) -> Self {
        Self(AtomicU32::new(count))
    }

    /// Takes one if more than `reserve` are left.
    #[inline]
    pub(crate) fn take(&self, reserve: u32) -> bool {
        let less = |count: u32| (count > reserve).then(|| count - 1);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less).is_ok()
    }

    #[inline]
    pub(crate) fn give(&self, count: u32) {
        self.0.fetch_add(count, Ordering::AcqRel);
    }

    #[inline]
    pub(crate) fn left(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }
}

/// Things of which some are made at first, and more when they are all in use.
#[derive(Debug)]
pub(crate) struct Supply {
    made: AtomicU32,
    most: AtomicU32,
}

impl Supply {
    /// `first` are there, more can be made up to `most`.
    pub(crate) fn new(first: u32, most: u32) -> Self {
        Self { made: AtomicU32::new(first.min(most)), most: AtomicU32::new(most) }
    }

    pub(crate) fn made(&self) -> u32 {
        self.made.load(Ordering::Acquire)
    }

    /// How many to make now: at first few, later as many as there are. They count as made; 0: there
    /// will be no more.
    pub(crate) fn more(&self) -> u32 {
        let most = self.most.load(Ordering::Acquire);
        let step = |made: u32| made.clamp(1, MOST_AT_ONCE).min(most.saturating_sub(made));
        let more = |made: u32| (step(made) > 0).then(|| made + step(made));
        self.made.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).map_or(0, step)
    }

    /// So many were made elsewhere.
    fn grow(&self, count: u32) {
        self.made.fetch_add(count, Ordering::AcqRel);
    }

    /// So many are gone.
    fn shrink(&self, count: u32) {
        self.made.fetch_sub(count, Ordering::AcqRel);
    }

    /// So many could not be made: no more are tried.
    pub(crate) fn end(&self, missing: u32) {
        let made = self.made.fetch_sub(missing, Ordering::AcqRel) - missing;
        self.most.fetch_min(made, Ordering::AcqRel);
    }
}

/// Most that [`Supply::more`] gives.
const MOST_AT_ONCE: u32 = 64;

/// One rank's view of the credits between it and a peer, on one pair of queue pairs.
#[derive(Debug)]
pub(crate) struct Account {
    available: AtomicU32,
    /// Credits of the peer that wait here to be carried back.
    banked: AtomicU32,
    /// Credits that there is a buffer for an answer for.
    pub(crate) supply: Supply,
    slack: u32,
}

/// A peer returned more credits than it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{returned} credits returned where at most {possible} can be out")]
pub(crate) struct TooMany {
    returned: u32,
    possible: u32,
}

impl Account {
    /// All credits may be used at once.
    #[cfg(any(test, loom))]
    pub(crate) fn new(credits: u32, slack: u32) -> Self {
        Self::growing((credits, credits), slack)
    }

    /// `first` of the credits may be used at once. `slack` is cut to what cannot block.
    pub(crate) fn growing((first, credits): (u32, u32), slack: u32) -> Self {
        let slack = slack.min(credits.saturating_sub(1)).min(u32::from(u8::MAX));
        let supply = Supply::new(first, credits);
        let available = AtomicU32::new(supply.made());
        Self { available, banked: AtomicU32::new(0), supply, slack }
    }

    /// More credits may be used, which [`Supply::more`] of this account has counted.
    pub(crate) fn add(&self, count: u32) {
        self.available.fetch_add(count, Ordering::AcqRel);
    }

    /// The peer has lent so many credits more.
    pub(crate) fn lent(&self, count: u32) {
        self.supply.grow(count);
        self.add(count);
    }

    /// Gives up to `most` credits for good that are not in use, and keeps at least `keep` with those
    /// in use. How many were given up.
    pub(crate) fn give_up(&self, keep: u32, most: u32) -> u32 {
        let spare = self.supply.made().saturating_sub(keep).min(most);
        let given = |available: u32| spare.min(available);
        let less = |available: u32| Some(available - given(available));
        let before = self.available.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        let given = before.map_or(0, given);
        self.supply.shrink(given);
        given
    }

    /// Takes the credit of a request.
    #[inline]
    pub(crate) fn take(&self) -> bool {
        let less = |count: u32| count.checked_sub(1);
        self.available.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less).is_ok()
    }

    /// Undoes [`Account::take`] for a request that was not sent.
    pub(crate) fn untake(&self) {
        self.available.fetch_add(1, Ordering::AcqRel);
    }

    /// Requests that may be sent now.
    pub(crate) fn available(&self) -> u32 {
        self.available.load(Ordering::Acquire)
    }

    /// Books credits that came back. Credits of a peer are not believed beyond what it can have.
    #[inline]
    pub(crate) fn returned(&self, count: u32) -> Result<(), TooMany> {
        if count == 0 {
            return Ok(());
        }
        // The supply is read after what is available: another thread may add to both meanwhile,
        // and it counts in the supply first.
        let more = |now: u32| now.checked_add(count).filter(|sum| *sum <= self.supply.made());
        match self.available.fetch_update(Ordering::AcqRel, Ordering::Acquire, more) {
            Ok(_) => Ok(()),
            Err(now) => {
                let possible = self.supply.made().saturating_sub(now);
                Err(TooMany { returned: count, possible })
            }
        }
    }

    /// Banked credits for the next message to the peer, which must then be sent, or
    /// [`Account::uncarry`] called.
    #[inline]
    pub(crate) fn carry(&self) -> u8 {
        if self.banked.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let banked = self.banked.swap(0, Ordering::AcqRel);
        let carried = u8::try_from(banked).unwrap_or(u8::MAX);
        if u32::from(carried) < banked {
            self.banked.fetch_add(banked - u32::from(carried), Ordering::AcqRel);
        }
        carried
    }

    pub(crate) fn uncarry(&self, count: u8) {
        self.banked.fetch_add(u32::from(count), Ordering::AcqRel);
    }

    /// A request was handled and not answered. Whether an ack is due.
    #[inline]
    pub(crate) fn bank(&self) -> bool {
        self.banked.fetch_add(1, Ordering::AcqRel) >= self.slack
    }

    /// Whether more is banked than may be.
    pub(crate) fn is_ack_due(&self) -> bool {
        self.banked.load(Ordering::Acquire) > self.slack
    }
}

#[cfg(test)]
#[cfg(not(loom))]
#[path = "credits_tests.rs"]
mod tests;
