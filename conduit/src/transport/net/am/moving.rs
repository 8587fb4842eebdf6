//! Credits that move between peers: books what messages carry of it, and sends the messages that
//! exist for it alone. The rules are `flow`'s.
//!
//! Those messages are acks with arguments: one of 1 asks the peer to give back what it does not need,
//! 3 and a number all but so many; 2 and a number gives so many back. They use the buffers for messages
//! of the library; at most one question and one answer are under way between two ranks.

use bootstrap::Rank;

use super::header::{FIRST_CLIENT_HANDLER, Head};
use super::send::Sender;
use crate::transport::net::context::NetContext;
use crate::transport::net::credits::Carried;
use crate::transport::net::error::Error;
use crate::transport::net::flow::bank::{Bank, Borrowed};
use crate::transport::net::flow::lend::{PeerIndex, Question};
use crate::transport::net::peer::{Connection, Peer};
use crate::transport::net::post::{Sent, Via};

/// Argument of an ack that asks the peer to give back.
pub(super) const REVOKE: i32 = 1;
/// First argument of an ack that asks the peer for what is beyond its share.
pub(super) const SHARE: i32 = 3;
/// First argument of an ack that gives back.
pub(super) const RETURN: i32 = 2;

/// A connection whose credits move.
#[derive(Clone, Copy)]
pub(super) struct Origin<'a> {
    pub(super) via: Via<'a>,
    pub(super) borrowed: &'a Borrowed,
}

impl<'a> Origin<'a> {
    /// `None`: credits of the connection do not move.
    #[inline]
    pub(super) fn of(peer: &'a Peer, index: usize) -> Option<Self> {
        let connection = peer.connections.get(index)?;
        let borrowed = connection.flow.borrowed()?;
        Some(Self { via: Via { peer, index, connection }, borrowed })
    }
}

/// What a peer did wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Wrong {
    #[error("it asks twice to be given back credits")]
    AskedTwice,
    #[error("it gives back credits twice")]
    ReturnedTwice,
    #[error("it moves credits, which are fixed here")]
    Fixed,
    #[error("it says {0:#x} of credits, which nobody can have sent")]
    Word(u16),
    #[error("it lends {granted} credits more, where {made} are there and {most} are the most")]
    LentTooMany { granted: u32, made: u32, most: u32 },
    #[error("{seen} arguments in a message about credits, the first is {first}")]
    Unknown { seen: usize, first: i32 },
}

impl NetContext {
    /// Books what a message carries beside returned credits. To be called before those are booked,
    /// for every message of a connection whose credits move.
    #[inline(always)]
    pub(super) fn moving(&self, from: Origin<'_>, head: &Head) -> Result<(), Error> {
        let carried = head.carried;
        if carried.moves() {
            self.told(from, carried)?;
        }
        if head.reply || carried.returned() > 0 {
            from.borrowed.demand.answered(&from.via.connection.account);
        }
        if !head.reply
            && head.handler >= FIRST_CLIENT_HANDLER
            && let Some(bank) = self.bank(from.via.connection)
            && bank.tick()
        {
            self.end_epoch(bank, from.via.connection.rail);
        }
        if carried.wanted() > 0 { self.lend(from, carried) } else { Ok(()) }
    }

    /// The peer's epoch has ended, it lends more, or it wants more.
    #[cold]
    fn told(&self, from: Origin<'_>, carried: Carried) -> Result<(), Error> {
        if !carried.is_known() {
            return Err(self.wrong_credits(from.via.peer.rank, &Wrong::Word(carried.0)));
        }
        if carried.epoch() {
            from.borrowed.demand.epoch_ended();
        }
        let (granted, account) = (carried.granted(), &from.via.connection.account);
        if granted > 0 {
            let (made, most) = (account.supply.made(), self.bank(from.via.connection));
            let most = most.map_or(u32::MAX, |bank| bank.limits.most);
            if made + granted > most {
                let wrong = Wrong::LentTooMany { granted, made, most };
                return Err(self.wrong_credits(from.via.peer.rank, &wrong));
            }
            account.lent(granted);
        }
        Ok(())
    }

    /// A message moves credits over a connection where none move.
    #[cold]
    pub(super) fn not_moving(&self, peer: Rank) -> Error {
        self.wrong_credits(peer, &Wrong::Fixed)
    }

    #[inline(always)]
    fn bank(&self, connection: &Connection) -> Option<&Bank> {
        self.rails[connection.rail].shared.as_ref()?.bank.as_ref()
    }

    /// Grants what a peer wants, with the next message to it, and asks others to give back.
    #[cold]
    fn lend(&self, from: Origin<'_>, carried: Carried) -> Result<(), Error> {
        let Some(bank) = self.bank(from.via.connection) else { return Ok(()) };
        let mut ask = Vec::new();
        let key = self.lender_key(from.via.peer, from.via.index);
        let granted = bank.requested(key, carried.wanted(), &mut ask);
        let Some(granted) = granted else { return Ok(()) };
        from.via.connection.account.lend(granted);
        ask.into_iter().try_for_each(|question| self.revoke(question))
    }

    /// A connection by one number.
    fn lender_key(&self, peer: &Peer, index: usize) -> PeerIndex {
        let count = self.plan.connections.len();
        let key = peer.rank.0 as usize * count + index;
        PeerIndex::try_from(key).unwrap_or(PeerIndex::MAX)
    }

    fn revoke(&self, Question { peer, keep }: Question) -> Result<(), Error> {
        let count = self.plan.connections.len();
        let (rank, index) = (peer as usize / count, peer as usize % count);
        let rank = u32::try_from(rank).unwrap_or(u32::MAX);
        let Some(peer) = self.peers.get(Rank(rank)) else { return Ok(()) };
        let borrowed = peer.connections.get(index).and_then(|it| it.flow.borrowed());
        let Some(borrowed) = borrowed else { return Ok(()) };
        borrowed.revoke(keep);
        self.ack_if_due(peer, index)
    }

    /// Halves twice what is known of the past here, and has every peer do the same with the next
    /// message to it.
    #[cold]
    fn end_epoch(&self, bank: &Bank, rail: usize) {
        let Some(mut lender) = bank.try_lender() else { return };
        lender.end_epoch();
        drop(lender);
        let connections = self.peers.iter().flat_map(|peer| &peer.connections);
        connections.filter(|it| it.rail == rail).for_each(|it| it.account.tell_epoch());
    }

    /// A message that exists for credits alone.
    #[cold]
    pub(super) fn about_credits(&self, from: Origin<'_>, args: &[i32]) -> Result<(), Error> {
        let Some(bank) = self.bank(from.via.connection) else { return Ok(()) };
        let rank = from.via.peer.rank;
        let wrong = |wrong: Wrong| self.wrong_credits(rank, &wrong);
        let (demand, account) = (&from.borrowed.demand, &from.via.connection.account);
        match *args {
            [REVOKE] | [SHARE, _] if demand.owes() => return Err(wrong(Wrong::AskedTwice)),
            [REVOKE] => self.answer(from, demand.give_back(account, &bank.limits))?,
            [SHARE, keep] if keep >= 0 => {
                if let Some(given) = demand.share(account, &bank.limits, keep.unsigned_abs()) {
                    self.answer(from, given)?;
                }
            }
            [RETURN, count] if count >= 0 => {
                if !from.borrowed.returned(count.unsigned_abs()) {
                    return Err(wrong(Wrong::ReturnedTwice));
                }
                self.book_returned(from)?;
            }
            _ => {
                let first = args.first().copied().unwrap_or(0);
                return Err(wrong(Wrong::Unknown { seen: args.len(), first }));
            }
        }
        self.ack_if_due(from.via.peer, from.via.index)
    }

    /// Has the next message about credits give a peer back what it has asked for.
    fn answer(&self, from: Origin<'_>, given: u32) -> Result<(), Error> {
        let twice = || self.wrong_credits(from.via.peer.rank, &Wrong::AskedTwice);
        if from.borrowed.answer(given) { Ok(()) } else { Err(twice()) }
    }

    /// Puts what a peer gave back into the bank. Left for later when somebody is at the bank.
    pub(super) fn book_returned(&self, from: Origin<'_>) -> Result<(), Error> {
        let Some(bank) = self.bank(from.via.connection) else { return Ok(()) };
        let Some(mut lender) = bank.try_lender() else { return Ok(()) };
        let Some(count) = from.borrowed.take_booking() else { return Ok(()) };
        let booked = lender.returned(self.lender_key(from.via.peer, from.via.index), count);
        booked.map_err(|wrong| self.wrong_credits(from.via.peer.rank, &wrong))
    }

    /// Sends what waits to be said about credits.
    pub(super) fn send_about_credits(&self, to: Origin<'_>) -> Result<Sent, Error> {
        self.book_returned(to)?;
        if let Some(given) = to.borrowed.demand.collect(&to.via.connection.account) {
            self.answer(to, given)?;
        }
        let (revoke, given) = to.borrowed.take();
        let sender = Sender(self);
        let keep = to.borrowed.keep().map(|keep| i32::try_from(keep).unwrap_or(i32::MAX));
        let question = keep.map_or([REVOKE, 0], |keep| [SHARE, keep]);
        let question = &question[..if keep.is_some() { 2 } else { 1 }];
        if revoke && sender.about_credits(to.via.peer, to.via.index, question)? == Sent::Full {
            to.borrowed.put_back((true, given));
            return Ok(Sent::Full);
        }
        let Some(count) = given else { return Ok(Self::all_booked(to)) };
        let args = [RETURN, i32::try_from(count).unwrap_or(i32::MAX)];
        if sender.about_credits(to.via.peer, to.via.index, &args)? == Sent::Full {
            to.borrowed.put_back((false, given));
            return Ok(Sent::Full);
        }
        Ok(Self::all_booked(to))
    }

    /// Whether nothing is left to be done later.
    fn all_booked(from: Origin<'_>) -> Sent {
        if from.borrowed.has_to_book() { Sent::Full } else { Sent::Yes }
    }

    fn wrong_credits(&self, peer: Rank, wrong: &dyn std::fmt::Display) -> Error {
        Error::Malformed { rank: self.members.rank, peer, problem: wrong.to_string() }
    }
}
