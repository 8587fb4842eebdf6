//! The bank of a rank: which peer holds how many of its credits.

use std::collections::HashMap;

use super::{Limits, MOST_WANTED, decayed};

/// A peer, or one of several connections with it: whatever number the owner tells them apart by.
pub(crate) type PeerIndex = u32;

/// A peer that is to be asked to give back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) peer: PeerIndex,
    /// It keeps so many, however busy it is, and gives back the others; `None`: those that it has not
    /// used lately.
    pub(crate) keep: Option<u32>,
}

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
    /// What it is asked for, so that peers that wait get their share.
    expected: u32,
    /// It waits for its share, for so many epochs more. 0: it does not.
    waits: u32,
}

/// Epochs that a wish for a share lasts. In one of them all that is under way comes in twice, and a peer
/// that has too little asks with each request.
const PATIENCE: u32 = 2;

/// Most peers that are looked at for a share at once.
const LOOKED_AT: usize = 64;

/// Peers that wait for their share: they asked for more, got less, and hold less than it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Waiting {
    count: u32,
    /// Those of them that hold the least.
    bare: u32,
    /// What they hold beyond the least.
    hold: u32,
}

impl Waiting {
    fn of(loan: &Loan, least: u32) -> Self {
        if loan.waits == 0 {
            return Self::default();
        }
        Self { count: 1, bare: u32::from(loan.held == least), hold: loan.held - least }
    }

    /// One of them has changed.
    fn changed(&mut self, before: Self, after: Self) {
        self.count = self.count + after.count - before.count;
        self.bare = self.bare + after.bare - before.bare;
        self.hold = self.hold + after.hold - before.hold;
    }
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
    /// What there is to be lent, wherever it is.
    total: u32,
    loans: HashMap<PeerIndex, Loan>,
    /// Peers that hold more than the least, in no order.
    rich: Vec<PeerIndex>,
    /// Where in `rich` the next search begins.
    cursor: usize,
    waiting: Waiting,
    /// What peers are asked for because others wait.
    expected: u32,
}

impl Lender {
    /// `banked` credits are there to be lent beyond the least of each peer.
    pub(crate) fn new(limits: Limits, banked: u32) -> Self {
        let (loans, rich) = (HashMap::new(), Vec::new());
        let (total, waiting) = (banked, Waiting::default());
        Self { limits, banked, total, loans, rich, cursor: 0, waiting, expected: 0 }
    }

    /// Requests received in an epoch: what the variable says, and at least twice as many as may be
    /// under way. What a peer did before the first of them would otherwise be forgotten before it is
    /// answered.
    pub(crate) fn epoch(&self) -> u32 {
        let peers = u32::try_from(self.loans.len()).unwrap_or(u32::MAX);
        let under_way = self.limits.least.saturating_mul(peers).saturating_add(self.total);
        self.limits.epoch.max(under_way.saturating_mul(2))
    }

    /// A request of a peer was accepted that asks for `wanted` credits. How many it is granted: what
    /// there is of them, and while others wait for their share no more than its own; peers that must be
    /// asked to give back are appended to `ask`.
    pub(crate) fn requested(
        &mut self,
        peer: PeerIndex,
        wanted: u32,
        ask: &mut Vec<Question>,
    ) -> u32 {
        let limits = self.limits;
        let wanted = wanted.min(MOST_WANTED);
        if wanted == 0 {
            return 0;
        }
        let new = || Loan { held: limits.least, ..Loan::default() };
        let mut loan = *self.loans.entry(peer).or_insert_with(new);
        let share = self.share_of(&loan);
        let others_wait = self.waiting.count > u32::from(loan.waits > 0);
        let most = if others_wait { limits.least + share } else { limits.most };
        let granted = wanted
            .min(self.banked)
            .min(limits.lent.saturating_sub(loan.granted))
            .min(most.saturating_sub(loan.held));
        self.banked -= granted;
        loan.requested += 1;
        loan.held += granted;
        loan.granted += granted;
        let short = loan.held - limits.least < share;
        if !short {
            loan.waits = 0;
        } else if granted < wanted {
            loan.waits = PATIENCE;
        }
        self.set(peer, loan);
        if self.banked < limits.low_water {
            self.search(ask);
        }
        if short && granted < wanted {
            self.share_out(ask);
        }
        granted
    }

    /// Enters what is known of a peer.
    fn set(&mut self, peer: PeerIndex, loan: Loan) {
        let least = self.limits.least;
        let Some(before) = self.loans.insert(peer, loan) else { return };
        self.waiting.changed(Waiting::of(&before, least), Waiting::of(&loan, least));
        match (before.held > least, loan.held > least) {
            (false, true) => self.rich.push(peer),
            (true, false) => self.rich.retain(|other| *other != peer),
            _ => {}
        }
    }

    /// What each peer has beyond the least when all is shared out among those that have or want some
    /// of it; this one has asked.
    fn share_of(&self, loan: &Loan) -> u32 {
        let counted = loan.held > self.limits.least || loan.waits > 0;
        self.share(u32::from(!counted))
    }

    fn share(&self, more: u32) -> u32 {
        let rich = u32::try_from(self.rich.len()).unwrap_or(u32::MAX);
        let users = rich.saturating_add(self.waiting.bare).saturating_add(more).max(1);
        let share = (self.total / users).max(u32::from(self.total > 0));
        share.min(self.limits.most - self.limits.least)
    }

    /// Chooses peers that hold more than the least and have not asked for more lately.
    fn search(&mut self, ask: &mut Vec<Question>) {
        let most = ask.len() + self.limits.asked as usize;
        for _ in 0..self.rich.len() {
            if ask.len() >= most {
                break;
            }
            let idle = |loan: &Loan| loan.requested == 0 && loan.waits == 0;
            self.look_at_next(ask, |loan| idle(loan).then_some((None, 0)));
        }
    }

    /// Chooses peers that hold more than their share until what they hold of it does for those that
    /// wait, beside what is banked and was asked for before.
    fn share_out(&mut self, ask: &mut Vec<Question>) {
        let share = self.share(0);
        let keep = self.limits.least + share;
        let wanted = self.waiting.count.saturating_mul(share).saturating_sub(self.waiting.hold);
        for _ in 0..self.rich.len().min(LOOKED_AT) {
            if wanted <= self.banked.saturating_add(self.expected) {
                break;
            }
            let rest = |loan: &Loan| loan.held.saturating_sub(keep);
            let question = |loan: &Loan| (rest(loan) > 0).then_some((Some(keep), rest(loan)));
            self.look_at_next(ask, question);
        }
    }

    /// Asks the next peer, unless it has been asked; a search goes on behind the last that was looked
    /// at. `question`: what it keeps and what is expected of it.
    fn look_at_next(
        &mut self,
        ask: &mut Vec<Question>,
        question: impl FnOnce(&Loan) -> Option<(Option<u32>, u32)>,
    ) {
        self.cursor = (self.cursor + 1) % self.rich.len();
        let peer = self.rich[self.cursor];
        let Some(loan) = self.loans.get_mut(&peer) else { return };
        if loan.asked || loan.empty {
            return;
        }
        if let Some((keep, expected)) = question(loan) {
            loan.asked = true;
            loan.expected = expected;
            self.expected += expected;
            ask.push(Question { peer, keep });
        }
    }

    /// A peer that was asked gives so many back.
    pub(crate) fn returned(&mut self, peer: PeerIndex, count: u32) -> Result<(), WrongReturn> {
        let least = self.limits.least;
        let unasked = WrongReturn::Unasked { returned: count };
        let loan = self.loans.get(&peer).filter(|loan| loan.asked).ok_or(unasked)?;
        if count > loan.held - least {
            return Err(WrongReturn::TooMany { returned: count, held: loan.held, least });
        }
        self.expected -= loan.expected;
        let held = loan.held - count;
        let empty = count == 0;
        self.set(peer, Loan { held, empty, asked: false, expected: 0, ..*loan });
        self.banked += count;
        Ok(())
    }

    /// An epoch has ended: each peer must be told once.
    pub(crate) fn end_epoch(&mut self) {
        let least = self.limits.least;
        for loan in self.loans.values_mut() {
            let before = Waiting::of(loan, least);
            loan.requested = decayed(loan.requested);
            loan.granted = decayed(loan.granted);
            loan.empty = false;
            loan.waits = loan.waits.saturating_sub(1);
            self.waiting.changed(before, Waiting::of(loan, least));
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

    /// What the books say of those that wait and of what is expected, and what the loans say.
    #[cfg(test)]
    pub(crate) fn books(&self) -> [(u32, u32, u32, u32); 2] {
        let mut waiting = Waiting::default();
        for loan in self.loans.values() {
            waiting.changed(Waiting::default(), Waiting::of(loan, self.limits.least));
        }
        let expected = self.loans.values().map(|loan| loan.expected).sum();
        [(self.waiting, self.expected), (waiting, expected)]
            .map(|(it, expected)| (it.count, it.bare, it.hold, expected))
    }
}
