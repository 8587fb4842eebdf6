//! The requester's half of a reliable queue pair: the send queue.
//!
//! `transmit` writes requests to the stream, `responses` reads what comes back on it, `reverse` is
//! the reverse path.

mod responses;
mod reverse;
mod transmit;
mod wqe;

use settings::deadlines::soft::RECONNECT_FIRST;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use self::wqe::Wqe;
use super::limits::{
    BURST_BYTES, BURST_COUNT, BURST_GAP, BURST_REST, FEW_SGE, INLINE_COPY_MAX, MAX_MESSAGE,
};
use super::memory::Gather;
use super::qp_shared::QpShared;
use super::reverse_path::ReversePath;
use super::slots::{SlotRelease, ring_index};
use super::stream::Stream;
use super::wire::{Malformed, REQUEST, Request, low};
use crate::{Data, Operation, PostError, SendWr, Sge, Status};

pub(super) use self::responses::Stop;

/// Where the parser of responses is.
#[derive(Clone, Copy, Debug)]
enum Responses {
    Header {
        have: usize,
        bytes: [u8; REQUEST],
    },
    Data {
        number: u64,
        len: u32,
        done: u32,
    },
    /// A message of the peer on the reverse path.
    Message(Request),
}

impl Default for Responses {
    fn default() -> Self {
        Self::Header { have: 0, bytes: [0; REQUEST] }
    }
}

/// The send queue. Numbers count requests since the queue pair was made.
#[derive(Debug, Default)]
pub(super) struct SendQueue {
    ring: Box<[Wqe]>,
    /// Those of requests with few entries, and of the others, which most queue pairs never have.
    sges: Box<[Sge]>,
    many: Box<[Sge]>,
    per: usize,
    max: u64,
    /// Oldest request that is not complete.
    head: u64,
    /// All before it are acknowledged.
    acked: u64,
    /// Next request to be written, and how much of it is.
    next: u64,
    offset: usize,
    tail: u64,
    /// Number of the first request of this connection.
    base: u64,
    /// Inline requests that are not written yet, in order: their headers and their data.
    backlog: VecDeque<u8>,
    backlog_max: usize,
    /// Requests that wait for others, to share a system call with them.
    deferred: u32,
    /// All that waits is deferred and goes on the reverse path.
    backward: bool,
    /// When the last post ended, and in which pass of the device.
    posted: Option<Instant>,
    posted_in: u32,
    pub(super) stream: Option<Arc<Stream>>,
    /// The connection was there and is gone.
    pub(super) lost: bool,
    pub(super) blocked: bool,
    reads: u32,
    pub(super) rd_atom: u32,
    parser: Responses,
    /// Bytes of the stream that could not be used yet.
    kept: Vec<u8>,
    pub(super) reverse: ReversePath,
    /// For the time-out: the oldest request of the last check, and when that was.
    seen: (u64, Option<Instant>),
    pub(super) retry_timeout: Option<Duration>,
    pub(super) reconnect: (Option<Instant>, Duration),
    pub(super) connecting: bool,
}

/// The entries of a list from `from` bytes on.
fn rest_of(sges: &[Sge], mut from: usize) -> impl Iterator<Item = (&Sge, usize)> {
    sges.iter().filter_map(move |sge| {
        let len = sge.len as usize;
        if from >= len {
            from -= len;
            return None;
        }
        Some((sge, std::mem::take(&mut from)))
    })
}

impl SendQueue {
    pub(super) fn new(max: u32, per: u32, backlog_max: usize) -> Self {
        let size = max.max(1).next_power_of_two() as usize;
        let per = per.max(1) as usize;
        Self {
            ring: vec![Wqe::EMPTY; size].into_boxed_slice(),
            sges: vec![Sge::default(); size * per.min(FEW_SGE)].into_boxed_slice(),
            per,
            max: u64::from(max),
            backlog_max,
            rd_atom: 1,
            reconnect: (None, RECONNECT_FIRST.limit),
            ..Self::default()
        }
    }

    fn wqe(&self, number: u64) -> &Wqe {
        self.ring.get(ring_index(number, self.ring.len())).unwrap_or(&Wqe::EMPTY)
    }

    fn wqe_mut(&mut self, number: u64) -> Option<&mut Wqe> {
        let at = ring_index(number, self.ring.len());
        self.ring.get_mut(at)
    }

    fn sges(&self, number: u64, count: u8) -> &[Sge] {
        let (at, count) = (ring_index(number, self.ring.len()), usize::from(count));
        let few = self.per.min(FEW_SGE);
        let (table, each) = if count > few { (&self.many, self.per) } else { (&self.sges, few) };
        table.get(at * each..at * each + count).unwrap_or_default()
    }

    /// Keeps the entries of a request.
    fn keep_sges(&mut self, number: u64, list: &[Sge]) {
        let (at, few) = (ring_index(number, self.ring.len()), self.per.min(FEW_SGE));
        let (table, each) = if list.len() > few {
            if self.many.is_empty() {
                self.many = vec![Sge::default(); self.ring.len() * self.per].into_boxed_slice();
            }
            (&mut self.many, self.per)
        } else {
            (&mut self.sges, few)
        };
        if let Some(places) = table.get_mut(at * each..at * each + list.len()) {
            places.copy_from_slice(list);
        }
    }

    /// Requests that are posted and not complete.
    pub(super) const fn in_flight(&self) -> u64 {
        self.tail - self.head
    }

    /// Takes a request; sends it at once when the stream takes it and it is not deferred.
    /// `released`: requests before this number were polled. `may_defer`: somebody polls soon.
    pub(super) fn post(
        &mut self,
        qp: &QpShared,
        send: &SendWr<'_>,
        released: u64,
        may_defer: bool,
        reverse: impl Fn(&mut Gather<'_>, &dyn Fn(usize) -> Vec<u8>) -> bool,
    ) -> Result<(), PostError> {
        if self.tail.saturating_sub(released) >= self.max {
            return Err(PostError::Full);
        }
        let mut wqe = self.admit(qp, send)?;
        let joins = self.joins_burst(qp.ctx.activity.passes.load(Relaxed)) && may_defer;
        let idle = self.next == self.tail;
        wqe.ack = match wqe.operation {
            Operation::WriteImm { .. } => None,
            _ => qp.ack_to_carry(self.reaches_peer(qp)),
        };
        wqe.credit_limit = qp.credit_limit();
        let number = self.tail;
        if let Some(place) = self.wqe_mut(number) {
            *place = wqe;
        }
        if let Data::Gather(list) = send.data {
            self.keep_sges(number, list);
        }
        self.tail += 1;
        let back = (idle || self.backward) && self.may_use_reverse(qp, &wqe);
        self.reverse.count(&wqe.operation);
        if qp.is_error() {
            self.flush_all(qp);
            return Ok(());
        }
        let back = back && wqe.fault.is_none() && self.can_write(&wqe);
        if joins && self.defer(qp, &wqe, &send.data, back && wqe.inline) {
            self.posted = Some(Instant::now());
            return Ok(());
        }
        self.write(qp, (number, &wqe, &send.data), (back, idle), reverse);
        // The system call does not count: it may take longer than the rest between two posts.
        self.posted = Some(Instant::now());
        Ok(())
    }

    /// Writes what is posted, the last request of `number` with it. `back`: on the reverse path if
    /// that takes it; `idle`: nothing was to be written before.
    fn write(
        &mut self,
        qp: &QpShared,
        (number, wqe, data): (u64, &Wqe, &Data<'_>),
        (back, idle): (bool, bool),
        reverse: impl Fn(&mut Gather<'_>, &dyn Fn(usize) -> Vec<u8>) -> bool,
    ) {
        if back && idle && self.write_reverse(qp, wqe, data, &reverse) {
            return;
        }
        if back && wqe.inline && self.backward {
            self.keep(number, wqe, data, 0);
            self.flush_burst(qp, &reverse);
            return;
        }
        self.go_forward();
        if idle && wqe.fault.is_none() && self.can_write(wqe) {
            self.write_now(qp, wqe, data);
        } else {
            self.keep(number, wqe, data, 0);
            self.flush(qp);
        }
        if wqe.fault.is_some() {
            self.retire(qp);
        }
    }

    /// Whether the peer reads the header of a request that is posted now whatever it does: there is
    /// a receive for all messages before it, or nothing is in flight.
    fn reaches_peer(&self, qp: &QpShared) -> bool {
        let flows = self.stream.is_some() && !self.blocked;
        let limit = qp.peer_credit_limit.load(Relaxed);
        self.next == self.head || flows && self.reverse.has_receives(limit)
    }

    /// Whether a request that is posted now, in this `pass` of the device, is one of several: the post
    /// before it ended a moment ago, and nobody has waited since. One alone goes at once.
    fn joins_burst(&mut self, pass: u32) -> bool {
        let passes = pass.wrapping_sub(std::mem::replace(&mut self.posted_in, pass));
        passes < BURST_REST && self.posted.is_some_and(|posted| posted.elapsed() < BURST_GAP)
    }

    /// Lets the last posted request wait for others; `back`: on the reverse path. False: it does not
    /// suit those that wait.
    fn defer(&mut self, qp: &QpShared, wqe: &Wqe, data: &Data<'_>, back: bool) -> bool {
        let small = wqe.size() + self.backlog.len() <= BURST_BYTES;
        let ready = self.stream.is_some() && !self.blocked && wqe.fault.is_none();
        if !small || !ready || self.deferred + 1 >= BURST_COUNT {
            return false;
        }
        if !back {
            self.go_forward();
        }
        self.backward = back;
        self.keep(self.tail - 1, wqe, data, 0);
        self.deferred += 1;
        if self.deferred == 1 {
            qp.mark_deferred();
        }
        true
    }

    /// All that is posted goes on the own stream, also what waits for the reverse path.
    fn go_forward(&mut self) {
        self.backward = false;
        self.reverse.forward_until = self.tail;
    }

    fn admit(&self, qp: &QpShared, send: &SendWr<'_>) -> Result<Wqe, PostError> {
        if send.to.is_some() {
            return Err(PostError::Invalid("a target of datagrams on a reliable connection"));
        }
        let mut wqe =
            Wqe { id: send.id, operation: send.operation, signaled: send.signaled, ..Wqe::EMPTY };
        wqe.len = u32::try_from(send.data.total()).unwrap_or(u32::MAX);
        let awaits_data = wqe.operation.awaits_data();
        match send.data {
            Data::Gather(list) => {
                if list.len() > self.per {
                    return Err(PostError::Invalid(
                        "more fragments than the queue pair was made for",
                    ));
                }
                wqe.sges = u8::try_from(list.len()).unwrap_or(u8::MAX);
                if wqe.len > MAX_MESSAGE {
                    wqe.fault = Some(Status::LocalLength);
                } else if list.iter().any(|sge| qp.ctx.regions.local(sge, awaits_data).is_none()) {
                    wqe.fault = Some(Status::LocalProtection);
                }
            }
            Data::Inline(_) if awaits_data => {
                return Err(PostError::Invalid("inline data of a read or an atomic"));
            }
            Data::Inline(_) => {
                let total = wqe.len as usize;
                if total > qp.inline {
                    return Err(PostError::Invalid("more inline bytes than the limit"));
                }
                // While the stream takes nothing, a large one had better wait where it is than be
                // copied.
                let waits = self.blocked && total > INLINE_COPY_MAX && !self.backlog.is_empty();
                if waits || self.backlog.len() + total > self.backlog_max {
                    return Err(PostError::Full);
                }
                wqe.inline = true;
            }
        }
        if send.operation.is_atomic() && wqe.len != 8 {
            return Err(PostError::Invalid("an atomic of other than 8 bytes"));
        }
        Ok(wqe)
    }

    const fn can_write(&self, wqe: &Wqe) -> bool {
        let may_read = !wqe.operation.awaits_data() || self.reads < self.rd_atom;
        self.stream.is_some() && !self.blocked && may_read
    }

    pub(super) fn block(&mut self, qp: &QpShared) {
        if !self.blocked && self.stream.is_some() {
            self.blocked = true;
            qp.ctx.activity.blocked.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn unblock(&mut self, qp: &QpShared) {
        if self.blocked {
            self.blocked = false;
            qp.ctx.activity.blocked.fetch_sub(1, Relaxed);
        }
    }

    /// The stream is gone. What is in flight ends when its time-out does.
    pub(super) fn lose(&mut self, qp: &QpShared) {
        self.unblock(qp);
        if let Some(stream) = self.stream.take() {
            let _ = stream.tcp().shutdown(std::net::Shutdown::Both);
            self.lost = true;
        }
    }

    /// Applies an acknowledgement: `done` requests of this connection are done. Older news than
    /// known is none.
    pub(super) fn acknowledged(&mut self, qp: &QpShared, done: u32) -> Result<(), Malformed> {
        let known = low(self.acked - self.base);
        let ahead = done.wrapping_sub(known);
        if ahead > u32::MAX / 2 {
            return Ok(());
        }
        if u64::from(ahead) > self.next - self.acked.min(self.next) {
            return Err(Malformed::Sequence(done));
        }
        self.acked += u64::from(ahead);
        self.retire(qp);
        Ok(())
    }

    /// Completes what is done, in order, and fails the queue pair at a request that was found
    /// wrong.
    pub(super) fn retire(&mut self, qp: &QpShared) {
        let mut any = false;
        while self.head < self.acked {
            let wqe = *self.wqe(self.head);
            if wqe.operation.awaits_data() && !wqe.answered {
                break;
            }
            any |= wqe.signaled;
            self.end(qp, &wqe, self.head, Status::Success);
            self.head += 1;
        }
        if any {
            qp.report_sends();
        }
        if self.head == self.next
            && self.head < self.tail
            && let Some(status) = self.wqe(self.head).fault
        {
            self.fail(qp, status);
        }
    }

    /// [`QpShared::report_sends`] must follow.
    fn end(&self, qp: &QpShared, wqe: &Wqe, number: u64, status: Status) {
        if wqe.signaled || status != Status::Success {
            let len = if wqe.operation.awaits_data() { wqe.len } else { 0 };
            qp.complete_send(
                wqe.id,
                status,
                wqe.operation.opcode(),
                len,
                SlotRelease::Sends(number + 1),
            );
        }
    }

    /// The oldest request failed: reports it, flushes the rest, and the queue pair is in error.
    pub(super) fn fail(&mut self, qp: &QpShared, status: Status) {
        if self.head < self.tail {
            let wqe = *self.wqe(self.head);
            self.end(qp, &wqe, self.head, status);
            self.head += 1;
        }
        qp.enter_error(true);
        self.flush_all(qp);
    }

    /// Everything posted ends as flushed; the stream is closed.
    pub(super) fn flush_all(&mut self, qp: &QpShared) {
        while self.head < self.tail {
            let wqe = *self.wqe(self.head);
            self.end(qp, &wqe, self.head, Status::Flushed);
            self.head += 1;
        }
        qp.report_sends();
        self.forget(qp);
    }

    /// Everything posted is forgotten; the stream is closed.
    pub(super) fn forget(&mut self, qp: &QpShared) {
        self.lose(qp);
        self.head = self.tail;
        self.acked = self.tail;
        self.next = self.tail;
        self.base = self.tail;
        self.offset = 0;
        self.reads = 0;
        self.deferred = 0;
        self.backward = false;
        self.parser = Responses::default();
        self.kept = Vec::new();
        self.reverse = ReversePath::new(self.reverse.role, self.tail);
        self.backlog = VecDeque::new();
        self.seen = (self.tail, None);
        self.connecting = false;
        self.reconnect = (None, RECONNECT_FIRST.limit);
    }

    /// Requests that are posted and not written.
    #[cfg(test)]
    pub(super) const fn unwritten(&self) -> u64 {
        self.tail - self.next
    }

    /// The number after the last posted request.
    pub(super) const fn tail(&self) -> u64 {
        self.tail
    }

    /// Whether requests wait longer than the time-out without any progress. Counted from the check
    /// that saw them first.
    pub(super) fn overdue(&mut self, now: Instant) -> bool {
        let Some(retry_timeout) = self.retry_timeout else { return false };
        if self.head == self.tail {
            self.seen = (self.head, None);
            return false;
        }
        match self.seen {
            (head, Some(since)) if head == self.head => now.duration_since(since) >= retry_timeout,
            _ => {
                self.seen = (self.head, Some(now));
                false
            }
        }
    }

    /// Applies an acknowledgement that found the queue locked. False: it acknowledges what was not
    /// sent.
    pub(super) fn apply_deferred_ack(&mut self, qp: &QpShared) -> bool {
        qp.take_deferred_ack().is_none_or(|done| self.acknowledged(qp, done).is_ok())
    }

    /// Something came from the peer.
    pub(super) const fn reset_timeout(&mut self) {
        self.seen.1 = None;
    }
}
