//! What the engine is made of: which ports, how many of everything.

use std::sync::Arc;

use fabric::{Address, Device, Mtu, PortInfo, Retry};

use super::am::header::{self, BUFFER};
use super::sizes::Agreement;

/// Receive buffers of a connection beyond those that credits stand for: for messages of the library.
pub(super) const INTERNAL: u32 = 4;
/// Send queue slots of a connection that only replies, acks and the library's messages may use.
pub(super) const KEPT: u32 = 2;

/// A port to use.
#[derive(Clone, Debug)]
pub(super) struct RailChoice {
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

impl RailChoice {
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

/// Buffers of the shared receive queues of a rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SharedLimits {
    /// For requests.
    pub(super) requests: u32,
    /// For replies: as many as requests may be under way.
    pub(super) replies: u32,
    /// On top, for messages of the library.
    pub(super) internal: u32,
}

/// Depths and numbers. Those of a *lane* are for one connection to one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Operations of a lane in flight.
    pub(super) send_lane: u32,
    /// Requests of a lane without answer.
    pub(super) credits: u32,
    /// Requests of this rank without answer.
    pub(super) credits_total: u32,
    pub(super) slack: u32,
    /// Entries of the completion queues of a rail.
    pub(super) send_cq: u32,
    pub(super) recv_cq: u32,
    /// Send buffers.
    pub(super) bounce: u32,
    /// Spare receive buffers of a rail.
    pub(super) spares: u32,
    pub(super) shared: Option<SharedLimits>,
    /// Inline bytes wanted; `None`: all that the device can do.
    pub(super) inline: Option<u32>,
    /// The user asked for so much: less is worth a line.
    pub(super) inline_is_set: bool,
    /// Greatest put that is copied when its source is to be free at once.
    pub(super) put_bounce: u64,
    /// Greatest Long that travels with its header.
    pub(super) packed_long: u32,
    /// Least payload that is gathered; `None`: never.
    pub(super) gather_min: Option<u32>,
    pub(super) retry: Retry,
}

impl Limits {
    /// Bytes of a message buffer.
    #[expect(clippy::cast_possible_truncation, reason = "64 KiB")]
    pub(super) const fn buffer(&self) -> u32 {
        BUFFER as u32
    }

    /// Receive requests of a lane: its share of the peer's requests, of replies to its own, and of the library's messages.
    pub(super) const fn receives(&self) -> u32 {
        match self.shared {
            Some(_) => 0,
            None => 2 * self.credits + INTERNAL,
        }
    }

    /// Requests in flight of a lane, where they have a queue pair of their own.
    pub(super) const fn request_sends(&self) -> u32 {
        if self.credits == 0 { 1 } else { self.credits }
    }

    /// Send requests of a lane.
    pub(super) const fn sends(&self) -> u32 {
        self.send_lane + KEPT
    }
}

/// All of it.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) rails: Vec<RailChoice>,
    /// The rail of each connection that a pair of ranks has.
    pub(super) lanes: Vec<usize>,
    pub(super) limits: Limits,
    /// What must be the same on all ranks.
    pub(super) agreement: Agreement,
}

impl Setup {
    /// Bytes of a send buffer: the largest message, and room for the longest header before a payload whose place was chosen
    /// before its arguments were known.
    pub(super) const fn bounce_len() -> usize {
        BUFFER + header::MAX_HEADER
    }
}
