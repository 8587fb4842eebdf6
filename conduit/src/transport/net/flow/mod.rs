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
    /// The portals document's rules for what no variable sets: a peer is granted at most what may be
    /// lent to it at all, gives back at most half of that in an epoch, and idle peers are asked, four
    /// at once, when less than an eighth of the bank is left.
    pub(crate) fn of(least: u32, most: u32, banked: u32, epoch: u32) -> Self {
        let revoked = (most / 2).max(1);
        let low_water = banked.div_ceil(8);
        Self { least, most, lent: most, revoked, low_water, asked: 4, epoch }
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
