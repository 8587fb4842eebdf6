//! Queue pairs, and how they are connected.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use super::device::{Gid, Mtu};
use crate::device::{CompletionQueue, SharedReceiveQueue};

/// Kind of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpType {
    /// Reliable connection.
    Rc,
    /// Unreliable datagrams.
    Ud,
    /// The sending half of an extended reliable connection: each request names a receive queue of
    /// the peer's host ([`crate::QueuePair::post_send_to`]). Its `recv_cq` is not used. Where
    /// `Caps::xrc`.
    XrcSend,
    /// The receiving half: never in a [`QpSpec`], made by [`crate::XrcDomain::receiver`].
    XrcRecv,
}

/// State of a queue pair, as the InfiniBand specification names it; the numbers are those of verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpState {
    /// Made.
    Reset = 0,
    /// Receives may be posted.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to send.
    Rts,
    /// Failed; posted work is flushed with errors.
    Error = 6,
}

/// A [`QpState`] that any thread reads and writes.
#[derive(Debug, Default)]
pub(crate) struct AtomicQpState(AtomicU8);

impl AtomicQpState {
    #[inline]
    pub(crate) fn load(&self, order: Ordering) -> QpState {
        QpState::of_number(self.0.load(order).into())
    }

    /// Whether it is this state.
    #[inline(always)]
    pub(crate) fn is(&self, state: QpState, order: Ordering) -> bool {
        self.0.load(order) == state as u8
    }

    pub(crate) fn store(&self, state: QpState, order: Ordering) {
        self.0.store(state as u8, order);
    }
}

impl QpState {
    /// The state that verbs calls `number`. Draining states are not asked for; an error of the send
    /// queue is an error.
    #[inline]
    pub(crate) const fn of_number(number: i32) -> Self {
        match number {
            0 => Self::Reset,
            1 => Self::Init,
            2 => Self::Rtr,
            3 => Self::Rts,
            _ => Self::Error,
        }
    }
}

/// What to make a queue pair with. Completion queues and the shared receive queue must be of the
/// same device.
#[derive(Clone)]
pub struct QpSpec<'a> {
    /// Reliable or datagram.
    pub qp_type: QpType,
    /// Where ends of sends are reported.
    pub send_cq: &'a Arc<dyn CompletionQueue>,
    /// Where ends of receives are reported.
    pub recv_cq: &'a Arc<dyn CompletionQueue>,
    /// Receives come from here; then `max_recv` is 0.
    pub srq: Option<&'a Arc<dyn SharedReceiveQueue>>,
    /// Send requests that may be posted at once.
    pub max_send: u32,
    /// Receive requests that may be posted at once.
    pub max_recv: u32,
    /// Gather entries of a send request.
    pub send_sge: u32,
    /// Scatter entries of a receive request.
    pub recv_sge: u32,
    /// Inline bytes wanted; what was got is [`crate::QueuePair::max_inline`], which may be less.
    pub inline: u32,
}

/// Where a port is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Address {
    /// Local identifier (InfiniBand).
    pub lid: u16,
    /// `PortInfo::service` of the peer (software adapter).
    pub service: u16,
    /// Global identifier; used when `global`.
    pub gid: Gid,
    /// Position of the *own* GID in the own port's table; sent in the GRH.
    pub sgid_index: u8,
    /// Address by GID with a GRH. Always so on Ethernet and on the software adapter.
    pub global: bool,
}

/// Retransmission on a reliable connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// 4.096 µs × 2^n until a packet is sent again; 0: for ever.
    pub timeout: u8,
    /// How often a packet is sent again, at most 7.
    pub count: u8,
    /// How often a send to a receiver without a posted buffer is tried again; 7: for ever.
    pub rnr: u8,
    /// Wait between such tries: index into the table of RNR timers.
    pub rnr_timer: u8,
}

impl Default for Retry {
    fn default() -> Self {
        Self { timeout: 18, count: 7, rnr: 7, rnr_timer: 6 }
    }
}

/// The other end of a reliable connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RcPeer {
    /// Its port.
    pub address: Address,
    /// Its queue pair number.
    pub qpn: u32,
    /// First packet sequence number that it sends, 24 bits.
    pub psn: u32,
    /// Path MTU.
    pub mtu: Mtu,
    /// Reads and atomics in flight that it may have towards this queue pair.
    pub rd_atom: u8,
}
