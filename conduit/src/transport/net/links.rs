//! The queue pairs of a rank as the handshake of connections sees them.

use std::sync::Arc;

use bootstrap::Rank;
use fabric::Address;

use super::connect::{Failure, Numbers, Peers as Handshake};
use super::context::NetContext;
use super::flow::volume::NUMBERS as RING_NUMBERS;
use super::peer::{Peer, Phase};
use super::peer_addresses::PeerAddresses;
use super::xrc::NUMBERS;

/// The context as connections see it.
#[derive(Clone, Debug)]
pub(super) struct Links {
    pub(super) context: Arc<NetContext>,
    pub(super) others: PeerAddresses,
}

impl Handshake for Links {
    fn prepare(&self, rank: Rank) -> Result<Numbers, Failure> {
        let numbers = self.context.prepare(rank)?.numbers();
        let count = numbers.len();
        Numbers::new(&numbers).ok_or_else(|| format!("{count} queue pairs are too many").into())
    }

    fn receive_ready(&self, rank: Rank, numbers: &Numbers) -> Result<(), Failure> {
        let peer = self.context.prepare(rank)?;
        let address = |rail| self.others.rail(rank, rail);
        Ok(self.context.receive_ready(peer, numbers.as_slice(), address)?)
    }

    fn send_ready(&self, rank: Rank) -> Result<(), Failure> {
        Ok(self.context.send_ready(self.context.prepare(rank)?)?)
    }

    fn open(&self, rank: Rank) {
        if let Some(peer) = self.context.peers.get(rank) {
            peer.set_phase(Phase::Open);
        }
    }

    fn is_open(&self, rank: Rank) -> bool {
        self.context.peers.get(rank).is_some_and(Peer::is_open)
    }

    fn address(&self, rank: Rank) -> (Address, u32) {
        let (address, ..) = self.others.rail(rank, 0);
        let own = self.context.rails.first().map_or(0, |rail| rail.address.sgid_index);
        (Address { sgid_index: own, ..address }, self.others.datagrams(rank))
    }
}

impl Links {
    /// Numbers that the ranks of a pair tell each other: of queue pairs, of receive queues, and of
    /// rings.
    pub(super) fn count(&self) -> usize {
        let numbers = if self.context.xrc.is_some() { NUMBERS } else { 1 };
        let rings = self.context.plan.sizes.volume.map_or(0, |_| RING_NUMBERS);
        let plan = &self.context.plan;
        plan.queue_pairs() * numbers + plan.connections.len() * rings
    }
}
