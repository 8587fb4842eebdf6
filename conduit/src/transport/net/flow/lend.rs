//! The bank of a rank: which peer holds how many of its credits.

use std::collections::HashMap;

use super::{Limits, MOST_WANTED, decayed};

/// A peer, or one of several connections with it: whatever number the owner tells them apart by.
pub(crate) type PeerIndex = u32;

/// What a rank knows of one peer that borrows from it.
#[derive(Clone, Copy, Debug, Default)]
struct Loan {
    /// Credits that the peer holds, or that are on their way to it or from it.
    held: u32,
    /// Times that it asked for more lately.
    requested: u32,
    /// Credits granted to it lately.
    granted: u32,
    /// It was asked to give back, and has not answered.
    asked: bool,
    /// It had nothing to give back in this epoch.
    empty: bool,
}

/// A peer gave back credits that it was not asked for, or does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WrongReturn {
    #[error("{returned} credits given back although none were asked for")]
    Unasked { returned: u32 },
    #[error("{returned} credits given back of {held}, of which {least} stay")]
    TooMany { returned: u32, held: u32, least: u32 },
}

/// The credits of a rank beyond the least that each peer has from the start. Their number is
/// constant. Peers are entered when they first ask for something.
#[derive(Debug)]
pub(crate) struct Lender {
    limits: Limits,
    banked: u32,
    loans: HashMap<PeerIndex, Loan>,
    /// Peers that hold more than the least, in no order.
    rich: Vec<PeerIndex>,
    /// Where in `rich` the next search begins.
    cursor: usize,
}

impl Lender {
    /// `banked` credits are there to be lent beyond the least of each peer.
    pub(crate) fn new(limits: Limits, banked: u32) -> Self {
        Self { limits, banked, loans: HashMap::new(), rich: Vec::new(), cursor: 0 }
    }

    /// A request of a peer was accepted that asks for `wanted` credits. How many it is granted: what
    /// there is of them; peers that must be asked to give back are appended to `ask`.
    pub(crate) fn requested(
        &mut self,
        peer: PeerIndex,
        wanted: u32,
        ask: &mut Vec<PeerIndex>,
    ) -> u32 {
        let limits = self.limits;
        if wanted == 0 {
            return 0;
        }
        let new = || Loan { held: limits.least, ..Loan::default() };
        let loan = self.loans.entry(peer).or_insert_with(new);
        loan.requested += 1;
        let granted = wanted
            .min(MOST_WANTED)
            .min(self.banked)
            .min(limits.lent.saturating_sub(loan.granted))
            .min(limits.most.saturating_sub(loan.held));
        if granted > 0 {
            if loan.held == limits.least {
                self.rich.push(peer);
            }
            self.banked -= granted;
            loan.held += granted;
            loan.granted += granted;
        }
        if self.banked < limits.low_water {
            self.search(ask);
        }
        granted
    }

    /// Chooses peers that hold more than the least and have not asked for more lately. The next
    /// search goes on behind the last that was looked at.
    fn search(&mut self, ask: &mut Vec<PeerIndex>) {
        let mut left = self.limits.asked;
        for _ in 0..self.rich.len() {
            if left == 0 {
                break;
            }
            self.cursor = (self.cursor + 1) % self.rich.len();
            let peer = self.rich[self.cursor];
            let Some(loan) = self.loans.get_mut(&peer) else { continue };
            if loan.asked || loan.empty || loan.requested > 0 {
                continue;
            }
            loan.asked = true;
            ask.push(peer);
            left -= 1;
        }
    }

    /// A peer that was asked gives so many back.
    pub(crate) fn returned(&mut self, peer: PeerIndex, count: u32) -> Result<(), WrongReturn> {
        let least = self.limits.least;
        let unasked = WrongReturn::Unasked { returned: count };
        let loan = self.loans.get_mut(&peer).filter(|loan| loan.asked).ok_or(unasked)?;
        if count > loan.held - least {
            return Err(WrongReturn::TooMany { returned: count, held: loan.held, least });
        }
        loan.asked = false;
        loan.empty = count == 0;
        loan.held -= count;
        self.banked += count;
        if count > 0 && loan.held == least {
            self.rich.retain(|other| *other != peer);
        }
        Ok(())
    }

    /// An epoch has ended: each peer must be told once.
    pub(crate) fn end_epoch(&mut self) {
        for loan in self.loans.values_mut() {
            loan.requested = decayed(loan.requested);
            loan.granted = decayed(loan.granted);
            loan.empty = false;
        }
    }

    /// Credits beyond the least of each peer, wherever they are.
    #[cfg(test)]
    pub(crate) fn total(&self) -> u32 {
        self.banked + self.loans.values().map(|loan| loan.held - self.limits.least).sum::<u32>()
    }

    /// Credits that a peer holds.
    #[cfg(test)]
    pub(crate) fn held(&self, peer: PeerIndex) -> u32 {
        self.loans.get(&peer).map_or(self.limits.least, |loan| loan.held)
    }
}
