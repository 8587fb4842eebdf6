//! What the network of a rank is made of: which ports, which connections, how much of everything.

use std::sync::Arc;

use fabric::{Address, Device, Mtu, PortInfo};

use super::settings::sizes::Sizes;

/// A port to use.
#[derive(Clone, Debug)]
pub(super) struct RailPlan {
    pub(super) device: Arc<dyn Device>,
    pub(super) port: u8,
    pub(super) pkey_index: u16,
    /// Position of the own GID in the port's table.
    pub(super) gid_index: u8,
    /// Addressed by GID, not by LID.
    pub(super) global: bool,
    pub(super) mtu: Mtu,
    pub(super) rd_atom: u8,
}

impl RailPlan {
    /// The port's address, as peers use it.
    pub(super) fn address(&self, port: &PortInfo) -> Address {
        let own = port.gids.iter().find(|entry| entry.index == self.gid_index);
        Address {
            lid: port.lid,
            service: port.service,
            gid: own.map(|entry| entry.gid).unwrap_or_default(),
            sgid_index: self.gid_index,
            global: self.global,
        }
    }
}

/// All of it.
#[derive(Clone, Debug)]
pub(super) struct NetPlan {
    pub(super) rails: Vec<RailPlan>,
    /// The rail of each connection that a pair of ranks has.
    pub(super) connections: Vec<usize>,
    pub(super) sizes: Sizes,
}

impl NetPlan {
    /// Queue pairs of a pair of ranks.
    pub(super) fn queue_pairs(&self) -> usize {
        self.connections.len() * if self.sizes.srq.is_some() { 2 } else { 1 }
    }
}
