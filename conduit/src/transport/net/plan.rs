//! What the network of a rank is made of: which ports, which connections, how much of everything.

use std::sync::Arc;

use fabric::{Address, AtomicCap, Device, Mtu};

use super::settings::sizes::Sizes;

#[derive(Clone, Debug)]
pub(super) struct RailPlan {
    pub(super) device: Arc<dyn Device>,
    pub(super) port: u8,
    pub(super) pkey_index: u16,
    /// As peers use it.
    pub(super) address: Address,
    pub(super) mtu: Mtu,
    pub(super) rd_atom: u8,
    pub(super) max_message: u32,
}

#[derive(Clone, Debug)]
pub(super) struct NetPlan {
    pub(super) rails: Vec<RailPlan>,
    /// The rail of each connection that a pair of ranks has.
    pub(super) connections: Vec<usize>,
    pub(super) sizes: Sizes,
}

impl NetPlan {
    /// What atomics are atomic to. All those on words of a rank come through its first rail.
    pub(super) fn atomics(&self) -> AtomicCap {
        self.rails.first().map_or(AtomicCap::None, |rail| rail.device.caps().atomics)
    }

    /// Queue pairs of a pair of ranks.
    pub(super) fn queue_pairs(&self) -> usize {
        self.connections.len() * if self.sizes.srq.is_some() { 2 } else { 1 }
    }
}
