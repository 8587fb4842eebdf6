//! Acks: messages that only return credits. One is due when more credits of a peer are banked than
//! *slack* allows.

use std::sync::atomic::Ordering;

use super::send::Sender;
use crate::transport::net::context::NetContext;
use crate::transport::net::error::Error;
use crate::transport::net::peer::Peer;
use crate::transport::net::post::Sent;

#[derive(Clone, Copy)]
pub(crate) struct Acks<'a>(pub(crate) &'a NetContext);

impl Acks<'_> {
    /// Whether acks are due that found no room.
    #[inline]
    pub(crate) fn any_pending(self) -> bool {
        self.0.acks_pending.load(Ordering::Relaxed) != 0
    }

    /// Tries acks that could not be sent when they were due.
    #[cold]
    pub(crate) fn flush(self) -> Result<usize, Error> {
        let mut count = 0;
        for peer in self.0.peers.iter() {
            for (index, connection) in peer.connections.iter().enumerate() {
                if !connection.ack_pending.swap(false, Ordering::AcqRel) {
                    continue;
                }
                self.0.acks_pending.fetch_sub(1, Ordering::AcqRel);
                count += 1;
                self.send_if_due(peer, index)?;
            }
        }
        Ok(count)
    }

    /// Sends an ack when too much is banked; when that is not possible now, a later poll does, or
    /// the service thread.
    pub(crate) fn send_if_due(self, peer: &Peer, index: usize) -> Result<(), Error> {
        let connection = &peer.connections[index];
        if !connection.account.is_ack_due() || self.0.failure.is_ignored() {
            return Ok(());
        }
        let sent = if peer.is_open() { Sender(self.0).ack(peer, index)? } else { Sent::Full };
        if sent == Sent::Full && !connection.ack_pending.swap(true, Ordering::AcqRel) {
            self.0.acks_pending.fetch_add(1, Ordering::AcqRel);
            // Without polls only the service thread can send it.
            if self.0.has_receivers() {
                self.0.connect_queue.wake_thread();
            }
        }
        Ok(())
    }
}
