//! What both halves of a queue pair share: its queues, its state, and what was acknowledged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use super::context::Context;
use super::cq::Cq;
use super::limits::MAX_INLINE;
use super::qp_state::{ALL, answers};
use super::rq::{Rq, Taken};
use super::slots::SlotRelease;
use super::wire::low;
use crate::{AsyncEvent, Completion, Opcode, QpState, QpType, Status};

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

/// The shared part of a queue pair.
#[derive(Debug)]
pub(super) struct QpShared {
    ctx: Arc<Context>,
    number: u32,
    qp_type: QpType,
    queues: Queues,
    inline: usize,
    state: AtomicU8,
    /// Requests of the peer on this connection that are done, and how many of them were
    /// acknowledged.
    done: AtomicU64,
    announced: AtomicU64,
    /// Number of the peer's next request on this connection.
    next_msn: AtomicU32,
    /// Number of the first receive of this connection.
    first_receive: AtomicU64,
    /// Messages (low bits) that the peer has had receives for.
    peer_credit_limit: AtomicU32,
    /// Token of the stream that carries the peer's requests.
    responder: AtomicU64,
    /// An acknowledgement that found the send queue locked: its number with bit 32 set.
    deferred_ack: AtomicU64,
    attention: AtomicBool,
    /// The send queue has deferred requests.
    deferred: AtomicBool,
    destroyed: AtomicBool,
}

impl QpShared {
    pub(super) fn new(
        ctx: &Arc<Context>,
        number: u32,
        qp_type: QpType,
        queues: Queues,
        inline: u32,
    ) -> Self {
        Self {
            ctx: Arc::clone(ctx),
            number,
            qp_type,
            queues,
            inline: inline.min(MAX_INLINE) as usize,
            state: AtomicU8::new(0),
            done: AtomicU64::new(0),
            announced: AtomicU64::new(0),
            next_msn: AtomicU32::new(0),
            first_receive: AtomicU64::new(0),
            peer_credit_limit: AtomicU32::new(0),
            responder: AtomicU64::new(u64::MAX),
            deferred_ack: AtomicU64::new(0),
            attention: AtomicBool::new(false),
            deferred: AtomicBool::new(false),
            destroyed: AtomicBool::new(false),
        }
    }

    pub(super) fn ctx(&self) -> &Context {
        &self.ctx
    }

    pub(super) const fn number(&self) -> u32 {
        self.number
    }

    pub(super) const fn qp_type(&self) -> QpType {
        self.qp_type
    }

    pub(super) const fn inline_limit(&self) -> usize {
        self.inline
    }

    // ---- state

    pub(super) fn state(&self) -> QpState {
        let number = usize::from(self.state.load(Ordering::SeqCst));
        ALL.get(number).copied().unwrap_or(QpState::Error)
    }

    pub(super) fn set_state(&self, state: QpState) {
        let number = ALL.iter().position(|one| *one == state).unwrap_or(4);
        self.state.store(u8::try_from(number).unwrap_or(4), Ordering::SeqCst);
    }

    pub(super) fn is_error(&self) -> bool {
        self.state.load(Ordering::Relaxed) == 4
    }

    /// Whether requests of the peer are taken.
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

    pub(super) fn set_destroyed(&self) {
        self.destroyed.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_destroyed(&self) -> bool {
        self.destroyed.load(Ordering::SeqCst)
    }

    // ---- work that no socket announces

    pub(super) fn request_attention(&self) {
        self.attention.store(true, Ordering::SeqCst);
        self.ctx.activity.request_attention();
    }

    pub(super) fn take_attention(&self) -> bool {
        self.attention.swap(false, Ordering::SeqCst)
    }

    pub(super) fn mark_deferred(&self) {
        if !self.deferred.swap(true, Ordering::SeqCst) {
            self.ctx.activity.mark_deferred();
        }
    }

    pub(super) fn take_deferred(&self) -> bool {
        self.deferred.load(Ordering::Relaxed) && self.deferred.swap(false, Ordering::SeqCst)
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

    /// Reports the end of a send.
    pub(super) fn complete_send(
        &self,
        id: u64,
        status: Status,
        opcode: Opcode,
        len: u32,
        release: SlotRelease,
    ) {
        let entry = Completion { id, status, opcode, len, qpn: self.number, ..Completion::EMPTY };
        self.queues.send.push(&entry, release);
    }

    /// Reports the end of receive `number`.
    pub(super) fn complete_receive(&self, entry: &Completion, number: u64) {
        let entry = Completion { opcode: Opcode::Receive, qpn: self.number, ..*entry };
        self.queues.recv.push(&entry, self.release(number));
    }

    /// Ends all receives as flushed; false: another thread is in their queue.
    pub(super) fn flush_receives(&self) -> bool {
        if self.shares_receives() {
            return true;
        }
        loop {
            match self.receives().take() {
                Taken::One(receive, number) => {
                    let (id, status) = (receive.id, Status::Flushed);
                    self.complete_receive(&Completion { id, status, ..Completion::EMPTY }, number);
                }
                Taken::None => return true,
                Taken::Busy => return false,
            }
        }
    }

    // ---- the connection

    /// A new connection begins.
    pub(super) fn reset_counters(&self) {
        self.set_next_msn(0);
        self.set_peer_credit_limit(0);
        self.first_receive.store(self.receives().taken(), Ordering::Relaxed);
        self.done.store(0, Ordering::SeqCst);
        self.announced.store(0, Ordering::SeqCst);
    }

    pub(super) fn next_msn(&self) -> u32 {
        self.next_msn.load(Ordering::Relaxed)
    }

    /// Only for the thread that drives the streams of the device.
    pub(super) fn set_next_msn(&self, msn: u32) {
        self.next_msn.store(msn, Ordering::Relaxed);
    }

    /// Messages of the peer (low bits) that there have been receives for on this connection:
    /// InfiniBand's end-to-end credit. Shared queues promise nothing.
    pub(super) fn credit_limit(&self) -> u32 {
        if self.shares_receives() {
            return 0;
        }
        low(self.receives().posted().wrapping_sub(self.first_receive.load(Ordering::Relaxed)))
    }

    pub(super) fn peer_credit_limit(&self) -> u32 {
        self.peer_credit_limit.load(Ordering::Relaxed)
    }

    pub(super) fn set_peer_credit_limit(&self, limit: u32) {
        self.peer_credit_limit.store(limit, Ordering::Relaxed);
    }

    /// Token of the stream that carries the peer's requests; the stream may be gone.
    pub(super) fn responder(&self) -> u64 {
        self.responder.load(Ordering::Relaxed)
    }

    pub(super) fn set_responder(&self, token: u64) {
        self.responder.store(token, Ordering::Relaxed);
    }

    // ---- acknowledgements

    /// One more request of the peer is done.
    pub(super) fn request_done(&self) {
        self.done.store(self.done.load(Ordering::Relaxed) + 1, Ordering::SeqCst);
    }

    /// Requests of the peer that are done.
    pub(super) fn done(&self) -> u64 {
        self.done.load(Ordering::SeqCst)
    }

    /// Requests that are done and not acknowledged.
    pub(super) fn unacked(&self) -> u64 {
        self.done().saturating_sub(self.announced.load(Ordering::Relaxed))
    }

    /// The peer has been told of `done` requests.
    pub(super) fn set_announced(&self, done: u64) {
        self.announced.fetch_max(done, Ordering::Relaxed);
    }

    /// The acknowledgement that a request carries which is posted now. `first`: nothing is in
    /// flight before it, so the peer reads its header whatever buffers it has; only then the
    /// acknowledgement counts as sent.
    pub(super) fn ack_to_carry(&self, first: bool) -> Option<u32> {
        let done = self.done.load(Ordering::Relaxed);
        if self.announced.load(Ordering::Relaxed) >= done {
            return None;
        }
        if first {
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
        let ack = self.deferred_ack.swap(0, Ordering::SeqCst);
        (ack != 0).then(|| low(ack))
    }
}
