//! The requester's half of a reliable queue pair: the send queue. `write`: into its stream; `answers`: what comes back on it.

mod answers;
pub(super) mod wqe;
mod write;

use std::collections::VecDeque;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use settings::deadlines::soft::REDIAL_FIRST;

use self::answers::{FRESH, Reading};
use self::wqe::Wqe;
use super::back::{Back, Way};
use super::cq::Gives;
use super::limits::{DEFER_BYTES, DEFER_COUNT, DEFER_FROM, KEEP, MAX_MESSAGE};
use super::qp::Qp;
use super::wire::Garbage;
use super::{low, narrow};
use crate::{Data, Operation, PostError, SendWr, Sge, Status};

pub(super) use self::answers::Answers;

/// The send queue. Numbers count requests since the queue pair was made.
#[derive(Debug)]
pub(super) struct Tx {
    ring: Box<[Wqe]>,
    sges: Box<[Sge]>,
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
    /// Bytes of inline requests that are not written yet, in order.
    spill: VecDeque<u8>,
    spill_max: usize,
    deferred: u32,
    pub(super) stream: Option<Arc<TcpStream>>,
    /// The connection was there and is gone.
    pub(super) lost: bool,
    pub(super) blocked: bool,
    reads: u32,
    pub(super) rd_atom: u32,
    reading: Reading,
    /// Bytes of the stream that could not be used yet.
    kept: Vec<u8>,
    pub(super) back: Back,
    /// For the timers: what was seen last and when.
    seen: (u64, Option<Instant>),
    pub(super) patience: Option<Duration>,
    pub(super) redial: (Option<Instant>, Duration),
    pub(super) dialing: bool,
}

#[expect(clippy::cast_possible_truncation, reason = "the mask is below the ring's size")]
const fn index(number: u64, size: usize) -> usize {
    (number & (size as u64 - 1)) as usize
}

/// Pieces of a list of entries from `from` bytes on.
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

impl Tx {
    pub(super) fn new(max: u32, per: u32, spill_max: usize) -> Self {
        let size = max.max(1).next_power_of_two() as usize;
        let per = per.max(1) as usize;
        Self {
            ring: vec![Wqe::EMPTY; size].into_boxed_slice(),
            sges: vec![Sge::default(); size * per].into_boxed_slice(),
            per,
            max: u64::from(max),
            head: 0,
            acked: 0,
            next: 0,
            offset: 0,
            tail: 0,
            base: 0,
            spill: VecDeque::new(),
            spill_max,
            deferred: 0,
            stream: None,
            lost: false,
            blocked: false,
            reads: 0,
            rd_atom: 1,
            reading: FRESH,
            kept: Vec::new(),
            back: Back::new(Way::Apart),
            seen: (0, None),
            patience: None,
            redial: (None, REDIAL_FIRST.limit),
            dialing: false,
        }
    }

    fn wqe(&self, number: u64) -> &Wqe {
        self.ring.get(index(number, self.ring.len())).unwrap_or(&Wqe::EMPTY)
    }

    fn wqe_mut(&mut self, number: u64) -> Option<&mut Wqe> {
        let at = index(number, self.ring.len());
        self.ring.get_mut(at)
    }

    fn sges(&self, number: u64, count: u8) -> &[Sge] {
        let at = index(number, self.ring.len()) * self.per;
        self.sges.get(at..at + usize::from(count)).unwrap_or_default()
    }

    /// Requests that are posted and not complete.
    pub(super) const fn in_flight(&self) -> u64 {
        self.tail - self.head
    }

    /// Takes a request; sends it at once when the stream takes it. `freed`: requests before this number were polled.
    pub(super) fn post(
        &mut self,
        qp: &Qp,
        send: &SendWr<'_>,
        freed: u64,
        may_defer: bool,
    ) -> Result<(), PostError> {
        if self.tail.saturating_sub(freed) >= self.max {
            return Err(PostError::Full);
        }
        let mut wqe = self.admit(qp, send)?;
        let idle = self.next == self.tail;
        wqe.ack = qp.ack_to_carry(self.next == self.head);
        wqe.room = qp.room();
        let number = self.tail;
        if let Some(place) = self.wqe_mut(number) {
            *place = wqe;
        }
        if let Data::Gather(list) = send.data {
            let at = index(number, self.ring.len()) * self.per;
            if let Some(places) = self.sges.get_mut(at..at + list.len()) {
                places.copy_from_slice(list);
            }
        }
        self.tail += 1;
        let back = idle && self.goes_back(qp, &wqe);
        self.back.count(&wqe.operation);
        if qp.is_error() {
            self.flush_all(qp);
            return Ok(());
        }
        let small = wqe.size() + self.spill.len() <= DEFER_BYTES;
        let busy = number - self.head >= DEFER_FROM;
        if back
            && wqe.fault.is_none()
            && self.can_write(&wqe)
            && self.write_back(qp, &wqe, &send.data)
        {
            return Ok(());
        }
        self.back.apart_until = self.tail;
        if may_defer && small && busy && self.deferred < DEFER_COUNT && !self.blocked {
            self.deferred += 1;
            self.keep(&send.data, 0);
            qp.mark_dirty();
            return Ok(());
        }
        if idle && wqe.fault.is_none() && self.can_write(&wqe) {
            self.write_now(qp, &wqe, &send.data);
        } else {
            self.keep(&send.data, 0);
            self.flush(qp);
        }
        if wqe.fault.is_some() {
            self.retire(qp);
        }
        Ok(())
    }

    /// Checks a request and makes its entry.
    fn admit(&self, qp: &Qp, send: &SendWr<'_>) -> Result<Wqe, PostError> {
        if send.to.is_some() {
            return Err(PostError::Invalid("a target of datagrams on a reliable connection"));
        }
        let mut wqe =
            Wqe { id: send.id, operation: send.operation, signaled: send.signaled, ..Wqe::EMPTY };
        match send.data {
            Data::Gather(list) => {
                if list.len() > self.per {
                    return Err(PostError::Invalid("more pieces than the queue pair was made for"));
                }
                let total: u64 = list.iter().map(|sge| u64::from(sge.len)).sum();
                wqe.len = u32::try_from(total).unwrap_or(u32::MAX);
                wqe.sges = u8::try_from(list.len()).unwrap_or(u8::MAX);
                if wqe.len > MAX_MESSAGE {
                    wqe.fault = Some(Status::LocalLength);
                } else if list
                    .iter()
                    .any(|sge| qp.dev().table().local(sge, wqe.awaits_data()).is_none())
                {
                    wqe.fault = Some(Status::LocalProtection);
                }
            }
            Data::Inline(list) => {
                if wqe.awaits_data() {
                    return Err(PostError::Invalid("inline data of a read or an atomic"));
                }
                let total: usize = list.iter().map(|bytes| bytes.len()).sum();
                if total > qp.inline_limit() {
                    return Err(PostError::Invalid("more inline bytes than the limit"));
                }
                // While the stream takes nothing, a large one had better wait where it is than be copied.
                let waits = self.blocked && total > KEEP && !self.spill.is_empty();
                if waits || self.spill.len() + total > self.spill_max {
                    return Err(PostError::Full);
                }
                wqe.len = narrow(total);
                wqe.inline = true;
            }
        }
        if matches!(send.operation, Operation::FetchAdd { .. }) && wqe.len != 8 {
            return Err(PostError::Invalid("an addition of other than 8 bytes"));
        }
        Ok(wqe)
    }

    /// Whether a request may go back on the peer's stream.
    fn goes_back(&self, qp: &Qp, wqe: &Wqe) -> bool {
        self.back.takes(wqe, self.acked, qp.peer_room())
    }

    const fn can_write(&self, wqe: &Wqe) -> bool {
        let may_read = !wqe.awaits_data() || self.reads < self.rd_atom;
        self.stream.is_some() && !self.blocked && may_read
    }

    pub(super) fn block(&mut self, qp: &Qp) {
        if !self.blocked && self.stream.is_some() {
            self.blocked = true;
            qp.dev().blocked(true);
        }
    }

    pub(super) fn unblock(&mut self, qp: &Qp) {
        if self.blocked {
            self.blocked = false;
            qp.dev().blocked(false);
        }
    }

    /// The stream is gone. What is in flight ends when the patience does.
    pub(super) fn lose(&mut self, qp: &Qp) {
        self.unblock(qp);
        if let Some(stream) = self.stream.take() {
            let _ = stream.shutdown(std::net::Shutdown::Both);
            self.lost = true;
        }
    }

    /// Applies an acknowledgement: `done` requests of this connection are done. Older news than known is none.
    pub(super) fn acknowledged(&mut self, qp: &Qp, done: u32) -> Result<(), Garbage> {
        let known = low(self.acked - self.base);
        let ahead = done.wrapping_sub(known);
        if ahead > u32::MAX / 2 {
            return Ok(());
        }
        if u64::from(ahead) > self.next - self.acked.min(self.next) {
            return Err(Garbage::Sequence(done));
        }
        self.acked += u64::from(ahead);
        self.retire(qp);
        Ok(())
    }

    /// Completes what is done, in order, and fails the queue pair at a request that was found wrong.
    pub(super) fn retire(&mut self, qp: &Qp) {
        while self.head < self.acked {
            let wqe = *self.wqe(self.head);
            if wqe.awaits_data() && !wqe.answered {
                return;
            }
            self.end(qp, &wqe, self.head, Status::Success);
            self.head += 1;
        }
        if self.head == self.next
            && self.head < self.tail
            && let Some(status) = self.wqe(self.head).fault
        {
            self.fail(qp, status);
        }
    }

    fn end(&self, qp: &Qp, wqe: &Wqe, number: u64, status: Status) {
        if wqe.signaled || status != Status::Success {
            let len = if wqe.awaits_data() { wqe.len } else { 0 };
            qp.sent(wqe.id, status, wqe.opcode(), len, Gives::Sends(number + 1));
        }
    }

    /// The oldest request failed: reports it, flushes the rest, and the queue pair is in error.
    pub(super) fn fail(&mut self, qp: &Qp, status: Status) {
        if self.head < self.tail {
            let wqe = *self.wqe(self.head);
            self.end(qp, &wqe, self.head, status);
            self.head += 1;
        }
        qp.enter_error(true);
        self.flush_all(qp);
    }

    /// Everything posted ends as flushed; the stream is closed.
    pub(super) fn flush_all(&mut self, qp: &Qp) {
        while self.head < self.tail {
            let wqe = *self.wqe(self.head);
            self.end(qp, &wqe, self.head, Status::Flushed);
            self.head += 1;
        }
        self.forget(qp);
    }

    /// Everything posted is forgotten; the stream is closed.
    pub(super) fn forget(&mut self, qp: &Qp) {
        self.lose(qp);
        self.head = self.tail;
        self.acked = self.tail;
        self.next = self.tail;
        self.base = self.tail;
        self.offset = 0;
        self.reads = 0;
        self.deferred = 0;
        self.reading = FRESH;
        self.kept = Vec::new();
        self.back = Back::new(self.back.way).from(self.tail);
        self.spill = VecDeque::new();
        self.seen = (self.tail, None);
        self.dialing = false;
        self.redial = (None, REDIAL_FIRST.limit);
    }

    /// The number after the last posted request.
    pub(super) const fn tail(&self) -> u64 {
        self.tail
    }

    /// A new connection is to be made.
    pub(super) const fn renew(&mut self) {
        self.lost = false;
    }

    /// Whether requests wait longer than the patience without any progress. Counted from the look that saw them first.
    pub(super) fn overdue(&mut self, now: Instant) -> bool {
        let Some(patience) = self.patience else { return false };
        if self.head == self.tail {
            self.seen = (self.head, None);
            return false;
        }
        match self.seen {
            (head, Some(since)) if head == self.head => now.duration_since(since) >= patience,
            _ => {
                self.seen = (self.head, Some(now));
                false
            }
        }
    }

    /// Whether a request that is not done went back on a stream that is gone.
    pub(super) const fn lost_what_went_back(&self) -> bool {
        self.back.is_lost && self.acked < self.back.back_until
    }

    /// Something was heard from the peer.
    pub(super) const fn heard(&mut self) {
        self.seen.1 = None;
    }
}
