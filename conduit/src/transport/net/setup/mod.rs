//! What the context is made of: which ports, how many of everything.

use std::sync::Arc;

use fabric::{Address, Device, Mtu, PortInfo, Retry};

use super::am::header::{self, BUFFER};
use super::settings::sizes::Agreement;

pub(crate) mod fabric_caps;
pub(crate) mod open;
pub(crate) mod peer_addresses;
pub(crate) mod start;

/// Receive buffers of a connection beyond those that credits stand for: for messages of the library.
pub(crate) const INTERNAL: u32 = 4;
/// Send queue slots of a connection that only replies, acks and the library's messages may use.
pub(crate) const RESERVED_SQ_SLOTS: u32 = 2;

/// A port to use.
#[derive(Clone, Debug)]
pub(crate) struct RailChoice {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) port: u8,
    pub(crate) pkey_index: u16,
    /// Position of the own GID in the port's table.
    pub(crate) gid_index: u8,
    /// Addressed by GID, not by LID.
    pub(crate) global: bool,
    pub(crate) mtu: Mtu,
    pub(crate) rd_atom: u8,
}

impl RailChoice {
    /// The port's address, as peers use it.
    pub(crate) fn address(&self, port: &PortInfo) -> Address {
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

/// Buffers of the shared receive queues of a rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SharedLimits {
    /// For requests.
    pub(crate) requests: u32,
    /// For replies: as many as requests may be under way.
    pub(crate) replies: u32,
    /// On top, for messages of the library.
    pub(crate) internal: u32,
}

/// Depths and numbers. Those of a *lane* are for one connection to one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Operations of a lane in flight.
    pub(crate) send_lane: u32,
    /// Requests of a lane without answer.
    pub(crate) credits: u32,
    /// Requests of this rank without answer.
    pub(crate) credits_total: u32,
    pub(crate) slack: u32,
    /// Entries of the completion queues of a rail.
    pub(crate) send_cq: u32,
    pub(crate) recv_cq: u32,
    /// Send buffers.
    pub(crate) bounce: u32,
    /// Spare receive buffers of a rail.
    pub(crate) spares: u32,
    pub(crate) shared: Option<SharedLimits>,
    /// Inline bytes wanted; `None`: all that the device can do.
    pub(crate) inline: Option<u32>,
    /// The user asked for so much: less is worth a line.
    pub(crate) inline_is_set: bool,
    /// Greatest put that is copied when its source is to be free at once.
    pub(crate) put_bounce: u64,
    /// Greatest Long that travels with its header.
    pub(crate) packed_long: u32,
    /// Least payload that is gathered; `None`: never.
    pub(crate) gather_min: Option<u32>,
    pub(crate) retry: Retry,
}

impl Limits {
    /// Bytes of a message buffer.
    #[expect(clippy::cast_possible_truncation, reason = "64 KiB")]
    pub(crate) const fn buffer(&self) -> u32 {
        BUFFER as u32
    }

    /// Receive requests of a lane: its share of the peer's requests, of replies to its own, and of the library's messages.
    pub(crate) const fn receives(&self) -> u32 {
        match self.shared {
            Some(_) => 0,
            None => 2 * self.credits + INTERNAL,
        }
    }

    /// Requests in flight of a lane, where they have a queue pair of their own.
    pub(crate) const fn request_sends(&self) -> u32 {
        if self.credits == 0 { 1 } else { self.credits }
    }

    /// Send requests of a lane.
    pub(crate) const fn sends(&self) -> u32 {
        self.send_lane + RESERVED_SQ_SLOTS
    }
}

/// All of it.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) rails: Vec<RailChoice>,
    /// The rail of each connection that a pair of ranks has.
    pub(crate) lanes: Vec<usize>,
    pub(crate) limits: Limits,
    /// What must be the same on all ranks.
    pub(crate) agreement: Agreement,
}

impl Setup {
    /// Bytes of a send buffer: the largest message, and room for the longest header before a payload whose place was chosen
    /// before its arguments were known.
    pub(crate) const fn bounce_len() -> usize {
        BUFFER + header::MAX_HEADER
    }
}
