//! The reverse path: own messages on the stream of the peer's requests, and the peer's messages on
//! the own stream.

use std::sync::atomic::Ordering::Relaxed;

use super::transmit::{gather, push_kept};
use super::wqe::Wqe;
use super::{Responses, SendQueue, Stop};
use crate::soft::memory::Gather;
use crate::soft::qp_shared::{Delivered, QpShared};
use crate::soft::wire::{REQUEST, Request, low};
use crate::{Data, Operation};

impl SendQueue {
    /// Whether a request may use the reverse path.
    pub(super) fn may_use_reverse(&self, qp: &QpShared, wqe: &Wqe) -> bool {
        self.reverse.takes(&wqe.operation, wqe.len, self.acked, qp.peer_credit_limit.load(Relaxed))
    }

    /// Sends the last posted request, the only one that is not written, on the reverse path. False:
    /// it must go on the own stream.
    pub(super) fn write_reverse(
        &mut self,
        qp: &QpShared,
        wqe: &Wqe,
        data: &Data<'_>,
        send: impl FnOnce(&mut Gather<'_>, &dyn Fn(usize) -> Vec<u8>) -> bool,
    ) -> bool {
        let header = wqe.header(low(self.tail - 1 - self.base));
        let head = header.get(..REQUEST).unwrap_or_default();
        let mut out = Gather::new();
        if !(out.bytes(head) && gather(&mut out, qp, data)) {
            return false;
        }
        if !send(&mut out, &|written| rest_after(written, head, qp, data)) {
            return false;
        }
        self.next = self.tail;
        self.reverse.reverse_until = self.tail;
        true
    }

    /// Sends what is deferred: on the reverse path by `reverse`, if it can and all of it is for
    /// that.
    pub(in crate::soft) fn flush_burst(
        &mut self,
        qp: &QpShared,
        reverse: impl FnOnce(&mut Gather<'_>, &dyn Fn(usize) -> Vec<u8>) -> bool,
    ) {
        if !(self.backward && self.write_burst_reverse(reverse)) {
            self.flush(qp);
        }
    }

    fn write_burst_reverse(
        &mut self,
        reverse: impl FnOnce(&mut Gather<'_>, &dyn Fn(usize) -> Vec<u8>) -> bool,
    ) -> bool {
        let mut out = Gather::new();
        push_kept(&mut out, &self.backlog, &(0..self.backlog.len()));
        if !reverse(&mut out, &|written| self.backlog.iter().skip(written).copied().collect()) {
            return false;
        }
        drop(out);
        self.backlog.clear();
        self.deferred = 0;
        self.backward = false;
        self.next = self.tail;
        self.reverse.reverse_until = self.tail;
        true
    }

    /// Whether a request that is not done was sent on a reverse path that is gone.
    pub(in crate::soft) const fn reverse_sends_lost(&self) -> bool {
        self.reverse.is_broken && self.acked < self.reverse.reverse_until
    }

    /// A whole message of the peer waits for another thread to leave the receive queue.
    pub(super) fn message_waits(&self) -> bool {
        matches!(self.parser, Responses::Message(request) if self.kept.len() >= request.len as usize)
            && !self.kept.is_empty()
    }
}

/// A copy of a request after its first bytes.
#[cold]
fn rest_after(written: usize, head: &[u8], qp: &QpShared, data: &Data<'_>) -> Vec<u8> {
    let mut all = head.to_vec();
    all.resize(head.len() + usize::try_from(data.total()).unwrap_or(0), 0);
    qp.ctx.regions.copy(data, all.get_mut(head.len()..).unwrap_or_default());
    all.split_off(written.min(all.len()))
}

/// Puts a message of the peer, which came on the stream of this queue pair's own requests, into a
/// receive. False: another thread is in the receive queue; try again later.
pub(super) fn deliver(qp: &QpShared, request: &Request, bytes: &[u8]) -> Result<bool, Stop> {
    let Operation::Send { imm } = request.operation else { return Err(Stop::Lost) };
    if request.msn != qp.next_msn.load(Relaxed) {
        return Err(Stop::Lost);
    }
    match qp.deliver(request, imm, bytes).map_err(Stop::Refused)? {
        Delivered::Yes => Ok(true),
        Delivered::Busy => Ok(false),
        // All were flushed.
        Delivered::NoReceive if qp.is_error() => Ok(true),
        Delivered::NoReceive => Err(Stop::Lost),
    }
}
