//! Queue pairs: the send queue, the attributes that the changes of state set, and the shared part.

use std::net::IpAddr;
use std::ops::Deref;
use std::sync::{Arc, Mutex};

use super::context::Context;
use super::limits::MAX_BACKLOG;
use super::lock::{Wait, try_lock_for};
use super::qp_shared::{QpShared, Queues};
use super::requester::SendQueue;
use super::reverse_path::ReverseRole;
use super::slots::{DatagramSlots, SlotRelease};
use crate::{Access, Gid, QpSpec, QpState, RcPeer};

/// What the changes of state have set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attributes {
    pub(super) port: u8,
    pub(super) access: Access,
    pub(super) qkey: u32,
    pub(super) peer: Option<RcPeer>,
    pub(super) rnr_timer: u8,
    pub(super) psn: u32,
    pub(super) rnr: u8,
    pub(super) reverse_role: ReverseRole,
}

impl Attributes {
    /// Those of a queue pair in RESET.
    pub(super) const RESET: Self = Self {
        port: 1,
        access: Access::NONE,
        qkey: 0,
        peer: None,
        rnr_timer: 0,
        psn: 0,
        rnr: 7,
        reverse_role: ReverseRole::Unused,
    };
}

#[derive(Debug)]
pub(super) struct Qp {
    shared: QpShared,
    attributes: Mutex<Attributes>,
    pub(super) sq: Mutex<SendQueue>,
    pub(super) datagrams: DatagramSlots,
}

impl Deref for Qp {
    type Target = QpShared;

    fn deref(&self) -> &QpShared {
        &self.shared
    }
}

impl Qp {
    pub(super) fn new(ctx: &Arc<Context>, number: u32, spec: &QpSpec<'_>, queues: Queues) -> Self {
        let shared = QpShared::new(ctx, number, (spec.qp_type, spec.inline), queues);
        let backlog = (spec.max_send as usize).saturating_mul(shared.inline);
        let backlog = backlog.clamp(256 << 10, MAX_BACKLOG);
        Self {
            shared,
            attributes: Mutex::new(Attributes::RESET),
            sq: Mutex::new(SendQueue::new(spec.max_send, spec.send_sge, backlog)),
            datagrams: DatagramSlots::new(spec.max_send),
        }
    }

    pub(super) fn attributes(&self) -> Option<Attributes> {
        try_lock_for(&self.attributes, Wait::Post).map(|attributes| *attributes)
    }

    /// Changes both under their locks; `None`: other threads of this process did not leave in time.
    pub(super) fn change<T>(
        &self,
        change: impl FnOnce(&mut Attributes, &mut SendQueue) -> T,
    ) -> Option<T> {
        let mut attributes = try_lock_for(&self.attributes, Wait::Control)?;
        let mut sq = try_lock_for(&self.sq, Wait::Control)?;
        Some(change(&mut attributes, &mut sq))
    }

    /// What this side does with small messages, by the names of both.
    pub(super) fn reverse_role(&self, peer: &RcPeer) -> ReverseRole {
        let own: (IpAddr, u16, u32) = (Gid::of(self.ctx.ip).ip(), self.ctx.service, self.number);
        ReverseRole::between(own, (peer.address.gid.ip(), peer.address.service, peer.qpn))
    }

    /// An acknowledgement came with a request of the peer. False: it acknowledges what was not
    /// sent.
    pub(super) fn acknowledged(&self, done: u32) -> bool {
        match try_lock_for(&self.sq, Wait::Spin) {
            Some(mut sq) => sq.acknowledged(self, done).is_ok(),
            None => {
                self.defer_ack(done);
                true
            }
        }
    }

    pub(super) fn clear(&self, sq: &mut SendQueue) {
        sq.forget(self);
        sq.lost = false;
        self.ctx.slots.release(self.number, SlotRelease::Sends(sq.tail()));
        let _ = self.take_deferred_ack();
        if !self.shares_receives()
            && let Some(next) = self.receives().clear()
        {
            self.ctx.slots.release(self.number, SlotRelease::Receives(next));
        }
    }

    /// The user dropped the queue pair.
    pub(super) fn destroy(&self) {
        self.set_state(QpState::Reset);
        if let Some(mut sq) = try_lock_for(&self.sq, Wait::Control) {
            sq.lose(self);
        }
    }

    /// What was sent on the reverse path and not acknowledged never will be; its time-out runs.
    pub(super) fn reverse_path_broken(&self) {
        if let Some(mut sq) = try_lock_for(&self.sq, Wait::Post) {
            sq.reverse.is_broken = true;
        }
    }

    /// Whether a fault script lets nothing through between this queue pair and its peer.
    pub(super) fn is_unreachable(&self) -> bool {
        self.ctx.faults.is_active()
            && self.attributes().is_some_and(|attributes| {
                let peer = attributes.peer.map(|peer| peer.address.gid.ip());
                !self.ctx.is_up(attributes.port)
                    || peer.is_some_and(|peer| self.ctx.is_unreachable(peer))
            })
    }
}
