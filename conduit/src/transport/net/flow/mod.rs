//! Flow control of requests ([`of_connection::Flow`]) beyond fixed numbers of credits: credits that move between
//! peers with the demand (`GASNET_AM_FLOW_CONTROL=dynamic`), and rings (`volume`). The rules are pure;
//! `docs/design/flow.md` has them.
//!
//! Each rank lends the buffers of its shared queue for requests to its peers as credits
//! ([`lend::Lender`]), and uses what it has borrowed from them ([`borrow::Demand`] beside the
//! account of the connection). A rank that stalls asks for more with its next request; the answer
//! carries what the lender can spare; a lender that has little left asks idle peers to give back.

use crate::sys::atomic::{AtomicU32, Ordering};

pub(crate) mod bank;
pub(crate) mod borrow;
pub(crate) mod lend;
pub(crate) mod of_connection;
pub(crate) mod ring;
pub(crate) mod volume;

#[cfg(test)]
mod fan_in;
#[cfg(test)]
mod late;
#[cfg(test)]
mod sim;

/// Bounds of one rank. All ranks of a job have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Credits that a peer keeps whatever happens: with them it goes on.
    pub(crate) least: u32,
    /// Most credits that one peer holds.
    pub(crate) most: u32,
    /// Most credits that are granted to one peer in an epoch.
    pub(crate) lent: u32,
    /// Most credits that a rank gives back to one lender in an epoch.
    pub(crate) revoked: u32,
    /// With fewer credits in the bank than this, idle peers are asked to give back.
    pub(crate) low_water: u32,
    /// Most peers that are asked at once.
    pub(crate) asked: u32,
    /// Requests received in an epoch.
    pub(crate) epoch: u32,
}

impl Limits {
    /// For what no variable sets. A peer is granted at most half of the bank in an epoch, so that the
    /// one that begins first leaves as much for another: peers that stall lose nothing, and it could
    /// keep all for as long as it is busy. The rest is as in the portals document: a peer gives back
    /// at most half of what it may hold in an epoch, and idle peers are asked, four at once, when
    /// less than an eighth of the bank is left.
    pub(crate) fn of(least: u32, most: u32, banked: u32, epoch: u32) -> Self {
        let revoked = (most / 2).max(1);
        let (low_water, lent) = (banked.div_ceil(8), banked.div_ceil(2).max(1).min(most));
        Self { least, most, lent, revoked, low_water, asked: 4, epoch }
    }
}

/// Most credits that one message asks for, or grants: three bits.
pub(crate) const MOST_WANTED: u32 = 7;

/// A number of the recent past after the end of an epoch: what is not renewed is 0 after eight.
const fn decayed(number: u32) -> u32 {
    number >> 2
}

/// Counts requests received, so that epochs end.
#[derive(Debug, Default)]
pub(crate) struct EpochClock(AtomicU32);

impl EpochClock {
    /// Counts one; whether an epoch of so many has ended. True for one caller.
    #[inline]
    pub(crate) fn tick(&self, epoch: u32) -> bool {
        let count = self.0.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let ends = count == epoch;
        if ends {
            self.0.fetch_sub(epoch, Ordering::Relaxed);
        }
        ends
    }
}

#[cfg(test)]
mod tests {
    use super::lend::Lender;
    use super::*;

    /// Of two peers that want all they can get, the second finds as much as the first has taken.
    #[test]
    fn who_begins_first_leaves_half_of_the_bank() {
        let mut lender = Lender::new(Limits::of(1, 400, 48, 1024), 48);
        let mut ask = Vec::new();
        for peer in [1, 2] {
            for _ in 0..100 {
                lender.requested(peer, MOST_WANTED, &mut ask);
            }
        }
        assert_eq!([1, 2].map(|peer| lender.held(peer)), [25, 25]);
        // With the next epoch one that is alone gets more.
        let mut lender = Lender::new(Limits::of(1, 400, 48, 1024), 48);
        for _ in 0..3 {
            for _ in 0..100 {
                lender.requested(1, MOST_WANTED, &mut ask);
            }
            lender.end_epoch();
        }
        assert_eq!(lender.held(1), 49);
        assert_eq!(Limits::of(2, 2, 0, 1).lent, 1);
    }
}
