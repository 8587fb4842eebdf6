//! What both halves of a queue pair share: its queues, its state, and what was acknowledged.

use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering::{self, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::context::Context;
use super::cq::Cq;
use super::limits::{ACK_COUNT, ACK_MOST, MAX_INLINE};
use super::memory::Span;
use super::qp_state::answers;
use super::rq::{Rq, Taken};
use super::slots::SlotRelease;
use super::stream::{Stream, tampering};
use super::wire::{Refusal, Request, low};
use crate::sync::Flag;
use crate::types::connection::AtomicQpState;
use crate::{AsyncEvent, Completion, Opcode, QpState, QpType, RecvWr, Status};

/// Where the receives of a queue pair come from.
#[derive(Debug)]
pub(super) enum Receives {
    /// Its own queue.
    Own(Rq),
    /// A queue that several share.
    Shared(Arc<Rq>),
}

/// The queues of a queue pair, as its user asked for them.
#[derive(Debug)]
pub(super) struct Queues {
    pub(super) send: Arc<Cq>,
    pub(super) recv: Arc<Cq>,
    pub(super) receives: Receives,
}

/// What a turn of a stream found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Turn {
    /// There was something.
    pub(super) progressed: bool,
    /// Another turn soon, whatever the system announces.
    pub(super) again: bool,
}

/// What became of a message of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivered {
    Yes,
    /// Another thread is in the receive queue; try again soon.
    Busy,
    NoReceive,
}

#[derive(Debug)]
pub(super) struct QpShared {
    pub(super) ctx: Arc<Context>,
    pub(super) number: u32,
    pub(super) qp_type: QpType,
    /// Most inline bytes.
    pub(super) inline: usize,
    queues: Queues,
    marks: Marks,
}

/// What any thread changes.
#[derive(Debug, Default)]
pub(super) struct Marks {
    state: AtomicQpState,
    /// Requests of the peer on this connection that are done, and how many of them were
    /// acknowledged.
    done: AtomicU64,
    announced: AtomicU64,
    /// How many were done and not acknowledged at the last turn of the stream.
    unacked_before: AtomicU64,
    /// Number of the peer's next request on this connection. Only the thread that drives the
    /// streams of the device changes it.
    pub(super) next_msn: AtomicU32,
    /// Number of the first receive of this connection.
    first_receive: AtomicU64,
    /// Messages (low bits) that the peer has had receives for.
    pub(super) peer_credit_limit: AtomicU32,
    /// Token of the stream that carries the peer's requests; the stream may be gone.
    pub(super) responder: AtomicU64,
    /// An acknowledgement that found the send queue locked: its number with bit 32 set.
    deferred_ack: AtomicU64,
    /// There is work that no socket announces.
    pub(super) attention: Flag,
    /// The send queue has deferred requests.
    pub(super) deferred: Flag,
    pub(super) destroyed: Flag,
}

impl Deref for QpShared {
    type Target = Marks;

    fn deref(&self) -> &Marks {
        &self.marks
    }
}

impl QpShared {
    pub(super) fn new(
        ctx: &Arc<Context>,
        number: u32,
        (qp_type, inline): (QpType, u32),
        queues: Queues,
    ) -> Self {
        let inline = inline.min(MAX_INLINE) as usize;
        Self { ctx: Arc::clone(ctx), number, qp_type, inline, queues, marks: Marks::default() }
    }

    // ---- state

    pub(super) fn state(&self) -> QpState {
        self.state.load(Ordering::SeqCst)
    }

    pub(super) fn set_state(&self, state: QpState) {
        self.state.store(state, Ordering::SeqCst);
    }

    pub(super) fn is_error(&self) -> bool {
        self.state.load(Relaxed) == QpState::Error
    }

    pub(super) fn answers(&self) -> bool {
        answers(self.state())
    }

    /// The queue pair is in error. The next pass over the device flushes what is posted.
    pub(super) fn enter_error(&self, by_itself: bool) {
        if self.state() != QpState::Error {
            self.set_state(QpState::Error);
            if by_itself {
                self.ctx.events.push(AsyncEvent::QpFatal { qpn: self.number });
            }
        }
        self.request_attention();
    }

    /// A stream ended with an error. True: because somebody changed what goes over it, so this queue
    /// pair has failed.
    pub(super) fn stream_failed(&self, stream: &Stream, error: &io::Error) -> bool {
        let Some(why) = tampering(error) else { return false };
        self.ctx.warnings.stream_tampered(why, stream.peer(), self.number);
        self.enter_error(true);
        true
    }

    // ---- work that no socket announces

    pub(super) fn request_attention(&self) {
        self.attention.store(true);
        self.ctx.activity.request_attention();
    }

    /// The device's mark is set each time, whoever takes the one here.
    pub(super) fn mark_deferred(&self) {
        self.deferred.store(true);
        self.ctx.activity.mark_deferred(self.number);
    }

    // ---- receives and completions

    /// Where receives come from.
    pub(super) fn receives(&self) -> &Rq {
        match &self.queues.receives {
            Receives::Own(own) => own,
            Receives::Shared(srq) => srq,
        }
    }

    pub(super) const fn shares_receives(&self) -> bool {
        matches!(self.queues.receives, Receives::Shared(_))
    }

    /// Which slots the completion of a receive frees.
    pub(super) const fn release(&self, number: u64) -> SlotRelease {
        if self.shares_receives() { SlotRelease::None } else { SlotRelease::Receives(number + 1) }
    }

    /// Adds the end of a send, which [`QpShared::report_sends`] must follow.
    pub(super) fn complete_send(
        &self,
        id: u64,
        status: Status,
        opcode: Opcode,
        len: u32,
        release: SlotRelease,
    ) {
        let entry = Completion { id, status, opcode, len, qpn: self.number, ..Completion::EMPTY };
        self.queues.send.add(&entry, release);
    }

    pub(super) fn report_sends(&self) {
        self.queues.send.report();
    }

    /// Reports the end of receive `number`.
    pub(super) fn complete_receive(&self, entry: &Completion, number: u64) {
        self.add_receive(entry, number);
        self.report_receives();
    }

    /// Adds the end of receive `number`, which [`QpShared::report_receives`] must follow.
    fn add_receive(&self, entry: &Completion, number: u64) {
        let entry = Completion { qpn: self.number, ..*entry };
        self.queues.recv.add(&entry, self.release(number));
    }

    pub(super) fn report_receives(&self) {
        self.queues.recv.report();
    }

    /// Puts a whole message of the peer, its next request, into a receive. `Delivered::Yes`:
    /// [`QpShared::report_receives`] must follow.
    pub(super) fn deliver(
        &self,
        request: &Request,
        imm: Option<u32>,
        bytes: &[u8],
    ) -> Result<Delivered, Refusal> {
        let (receive, number) = match self.receives().take() {
            Taken::One(receive, number) => (receive, number),
            Taken::Busy => return Ok(Delivered::Busy),
            Taken::None => return Ok(Delivered::NoReceive),
        };
        self.place_of(&receive, number, request.len)?.fill(bytes);
        let (opcode, len) = (Opcode::Receive, request.len);
        let entry = Completion { id: receive.id, opcode, len, imm, ..Completion::EMPTY };
        self.add_receive(&entry, number);
        self.request_done(request);
        Ok(Delivered::Yes)
    }

    /// Takes a receive for a message of `len` bytes; one that the message does not fit into fails.
    pub(super) fn take_receive(&self, len: u32) -> Result<Taken, Refusal> {
        let taken = self.receives().take();
        if let Taken::One(receive, number) = &taken {
            self.place_of(receive, *number, len)?;
        }
        Ok(taken)
    }

    /// Where receive `number` puts a message of `len` bytes; it ends when that does not fit.
    fn place_of(&self, receive: &RecvWr, number: u64, len: u32) -> Result<Span<'_>, Refusal> {
        if len > receive.buffer.len {
            self.end_receive(receive, number, Status::LocalLength);
            return Err(Refusal::Invalid);
        }
        self.ctx.regions.local(&receive.buffer, true).ok_or_else(|| {
            self.end_receive(receive, number, Status::LocalProtection);
            Refusal::Operation
        })
    }

    /// Reports that a receive got nothing.
    pub(super) fn end_receive(&self, receive: &RecvWr, number: u64, status: Status) {
        let opcode = Opcode::Receive;
        let entry = Completion { id: receive.id, status, opcode, ..Completion::EMPTY };
        self.complete_receive(&entry, number);
    }

    /// Ends all receives as flushed; false: another thread is in their queue.
    pub(super) fn flush_receives(&self) -> bool {
        if self.shares_receives() {
            return true;
        }
        loop {
            match self.receives().take() {
                Taken::One(receive, number) => {
                    self.end_receive(&receive, number, Status::Flushed);
                }
                Taken::None => return true,
                Taken::Busy => return false,
            }
        }
    }

    // ---- the connection

    /// A new connection begins.
    pub(super) fn reset_counters(&self) {
        self.next_msn.store(0, Relaxed);
        self.peer_credit_limit.store(0, Relaxed);
        self.first_receive.store(self.receives().counters.taken.load(Relaxed), Relaxed);
        self.done.store(0, Ordering::SeqCst);
        self.announced.store(0, Ordering::SeqCst);
    }

    /// Messages of the peer (low bits) that there have been receives for on this connection:
    /// InfiniBand's end-to-end credit. Shared queues promise nothing.
    pub(super) fn credit_limit(&self) -> u32 {
        if self.shares_receives() {
            return 0;
        }
        low(self
            .receives()
            .counters
            .posted
            .load(Relaxed)
            .wrapping_sub(self.first_receive.load(Relaxed)))
    }

    // ---- acknowledgements

    /// The peer's next request is done.
    pub(super) fn request_done(&self, request: &Request) {
        self.next_msn.store(request.msn.wrapping_add(1), Relaxed);
        self.done.store(self.done.load(Relaxed) + 1, Ordering::Release);
    }

    pub(super) fn done(&self) -> u64 {
        self.done.load(Ordering::SeqCst)
    }

    pub(super) fn unacked(&self) -> u64 {
        self.done().saturating_sub(self.announced.load(Relaxed))
    }

    /// The peer has been told of `done` requests.
    pub(super) fn set_announced(&self, done: u64) {
        self.announced.fetch_max(done, Relaxed);
    }

    /// At the end of a turn: whether so many requests are not acknowledged that the peer is to be
    /// told. Those of this turn may wait for the next, as what their user sends until then carries
    /// their acknowledgement.
    pub(super) fn is_ack_due(&self) -> bool {
        let unacked = self.unacked();
        let before = self.unacked_before.load(Relaxed);
        self.unacked_before.store(unacked, Relaxed);
        unacked >= ACK_MOST || unacked.min(before) >= ACK_COUNT
    }

    /// The acknowledgement that a request carries which is posted now. `reaches_peer`: the peer
    /// reads its header whatever buffers it has; only then the acknowledgement counts as sent.
    pub(super) fn ack_to_carry(&self, reaches_peer: bool) -> Option<u32> {
        let done = self.done.load(Relaxed);
        if self.announced.load(Relaxed) >= done {
            return None;
        }
        if reaches_peer {
            self.set_announced(done);
        }
        Some(low(done))
    }

    /// Keeps an acknowledgement of the peer until the send queue can be locked.
    pub(super) fn defer_ack(&self, done: u32) {
        self.deferred_ack.store(u64::from(done) | 1 << 32, Ordering::SeqCst);
        self.request_attention();
    }

    pub(super) fn take_deferred_ack(&self) -> Option<u32> {
        if self.deferred_ack.load(Relaxed) == 0 {
            return None;
        }
        let ack = self.deferred_ack.swap(0, Ordering::SeqCst);
        (ack != 0).then(|| low(ack))
    }
}
