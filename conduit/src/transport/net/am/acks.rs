//! Acks: messages that only return credits. One is due when more credits of a peer are banked than
//! *slack* allows, or when the peer might lack room in a ring. One with arguments tells a limit of
//! this rank's own credits: the peer banks fewer of them then.

use std::sync::atomic::Ordering;

use super::moving::Origin;
use super::send::Sender;
use crate::transport::net::context::NetContext;
use crate::transport::net::error::Error;
use crate::transport::net::peer::{Connection, Peer};
use crate::transport::net::post::{Sent, Via};

/// First argument of an ack that tells how many credits its sender has for good; others are of
/// `moving.rs`.
const LIMIT: i32 = 4;

/// The ack that became due in a batch of messages. It goes out behind the batch, or when half of the
/// peer's credits wait here, so that a flood has few acks and the peer gets its credits in rows.
pub(super) struct AcksOfBatch<'a>(Option<Via<'a>>);

impl<'a> AcksOfBatch<'a> {
    pub(super) const NONE: Self = Self(None);

    /// One is due to the sender of a message. One that another sender waits for goes out.
    #[inline]
    pub(super) fn note(&mut self, net: &NetContext, from: Via<'a>) -> Result<(), Error> {
        if let Some(before) = self.0.replace(from)
            && !std::ptr::eq(before.connection, from.connection)
        {
            net.ack_if_due(before.peer, before.index)?;
        }
        if from.connection.account.is_half_banked() {
            return self.send(net);
        }
        Ok(())
    }

    /// The batch is over.
    #[inline]
    pub(super) fn send(&mut self, net: &NetContext) -> Result<(), Error> {
        match self.0.take() {
            Some(from) => net.ack_if_due(from.peer, from.index),
            None => Ok(()),
        }
    }
}

impl NetContext {
    /// Whether acks are due that found no room.
    #[inline]
    pub(crate) fn has_pending_acks(&self) -> bool {
        self.acks_pending.load(Ordering::Relaxed) != 0
    }

    /// Tries acks that could not be sent when they were due.
    #[cold]
    pub(crate) fn flush_acks(&self) -> Result<usize, Error> {
        let mut count = 0;
        for peer in self.peers.iter() {
            for (index, connection) in peer.connections.iter().enumerate() {
                if !connection.ack_pending.swap(false, Ordering::AcqRel) {
                    continue;
                }
                self.acks_pending.fetch_sub(1, Ordering::AcqRel);
                count += 1;
                self.ack_if_due(peer, index)?;
            }
        }
        Ok(count)
    }

    /// Sends an ack when too much is banked; when that is not possible now, a later poll does, or
    /// the service thread.
    pub(crate) fn ack_if_due(&self, peer: &Peer, index: usize) -> Result<(), Error> {
        let connection = &peer.connections[index];
        let origin = Origin::of(peer, index);
        let rings = connection.flow.rings();
        let due = connection.account.is_ack_due()
            || rings.is_some_and(|rings| rings.is_due(&connection.account));
        let moves = origin.is_some_and(|it| it.borrowed.has_something());
        let limited = connection.account.has_limit();
        if !due && !moves && !limited || self.failure.is_ignored() {
            return Ok(());
        }
        let sent = match origin {
            _ if !peer.is_open() => Sent::Full,
            Some(origin) if moves => self.send_about_credits(origin)?,
            None if limited => self.tell_limit(peer, index)?,
            _ => Sent::Yes,
        };
        let sent = if due && sent == Sent::Yes { Sender(self).ack(peer, index)? } else { sent };
        if sent == Sent::Full {
            self.ack_later(connection);
        }
        Ok(())
    }

    /// Tells a peer that this rank will have no more credits than it has.
    #[cold]
    fn tell_limit(&self, peer: &Peer, index: usize) -> Result<Sent, Error> {
        let account = &peer.connections[index].account;
        let Some(limit) = account.take_limit() else { return Ok(Sent::Yes) };
        let args = [LIMIT, i32::try_from(limit).unwrap_or(i32::MAX)];
        let sent = Sender(self).about_credits(peer, index, &args);
        if !matches!(sent, Ok(Sent::Yes)) {
            account.untold(limit);
        }
        sent
    }

    /// An ack with arguments over a connection whose credits do not move.
    #[cold]
    pub(super) fn told_limit(&self, peer: &Peer, index: usize, args: &[i32]) -> Result<(), Error> {
        match *args {
            [LIMIT, limit] if limit > 0 => {
                peer.connections[index].account.peer_ends(limit.unsigned_abs());
                self.ack_if_due(peer, index)
            }
            _ => Err(self.not_moving(peer.rank)),
        }
    }

    /// A request was not sent. No answer will bring back its credit, which may be promised.
    pub(super) fn untake(&self, connection: &Connection) {
        connection.account.untake();
        if connection.flow.borrowed().is_some_and(|it| it.demand.owes()) {
            self.ack_later(connection);
        }
    }

    /// A later poll does it, or the service thread, as without polls nobody else can.
    pub(crate) fn ack_later(&self, connection: &Connection) {
        if !connection.ack_pending.swap(true, Ordering::AcqRel) {
            self.acks_pending.fetch_add(1, Ordering::AcqRel);
            if self.has_receivers() {
                self.connect_queue.wake_thread();
            }
        }
    }
}
