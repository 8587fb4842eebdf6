//! Posting of work requests: slots of queues are taken before, and go back when a request was not
//! posted.
//!
//! Requests of one call may be held in a [`PostList`]: an adapter is told of all of them once, which
//! costs a write to the adapter or, on Soft-RoCE, a call of the system. They are held until the list
//! is full, or the call ends or waits; no longer, because in a program without a thread of the
//! network nobody else would post them.

use std::cell::RefCell;
use std::ops::Range;

use bootstrap::Rank;
use fabric::{Data, Operation, PostError, SendWr, Sge};

use super::context::NetContext;
use super::error::Error;
use super::peer::{Connection, Peer, SendQp};
use super::pending_ops::{End, OpKind, PendingOp, PutNumber};
use super::rail::Rail;
use super::signal::Signal;
use crate::trace::{self, Cause, Counter};

/// What became of an attempt.
// As wide as an error in a box, so that a result of either comes in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
#[must_use]
pub(crate) enum Sent {
    Yes,
    /// No credit, buffer or slot, or not connected yet: poll and try again.
    Full,
}

impl Sent {
    #[inline(always)]
    pub(crate) const fn is_yes(self) -> bool {
        matches!(self, Self::Yes)
    }
}

/// Slots to keep for messages that others wait for: of a queue pair, and of a completion queue.
#[derive(Clone, Copy)]
pub(super) struct Reserve {
    pub(super) queue_pair: u32,
    pub(super) completion_queue: u32,
}

/// A connection with a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Via<'a> {
    pub(super) peer: &'a Peer,
    /// Its place among the peer's connections.
    pub(super) index: usize,
    pub(super) connection: &'a Connection,
}

/// Slots of a queue pair and of its completion queue, until they are used.
#[derive(Clone, Copy)]
pub(super) struct Slots<'a> {
    pub(super) rail: &'a Rail,
    pub(super) send_qp: &'a SendQp,
    /// The slot of the completion queue is for a success, too.
    pub(super) signaled: bool,
}

impl<'a> Slots<'a> {
    /// Takes a slot of the send queue and one of its completion queue.
    #[inline(always)]
    pub(super) fn take(rail: &'a Rail, send_qp: &'a SendQp, reserve: Reserve) -> Option<Self> {
        if !send_qp.slots.take(reserve.queue_pair) {
            trace::lacks(Cause::SendQueue);
            return None;
        }
        if !rail.sends.take(reserve.completion_queue) {
            trace::lacks(Cause::CompletionQueue);
            send_qp.slots.give(1);
            return None;
        }
        Some(Self { rail, send_qp, signaled: true })
    }

    /// As [`Slots::take`], for a request that needs nothing back but its slots: it may be
    /// unsignalled.
    #[inline(always)]
    pub(super) fn take_for_message(
        rail: &'a Rail,
        send_qp: &'a SendQp,
        reserve: Reserve,
    ) -> Option<Self> {
        let Some(left) = send_qp.slots.take_one(reserve.queue_pair) else {
            trace::lacks(Cause::SendQueue);
            return None;
        };
        let signaled = !(send_qp.unsignaled.may_be(left) && rail.take_unsignaled());
        if signaled && !rail.sends.take(reserve.completion_queue) {
            trace::lacks(Cause::CompletionQueue);
            send_qp.slots.give(1);
            return None;
        }
        Some(Self { rail, send_qp, signaled })
    }

    #[inline]
    pub(super) fn give_back(&self) {
        self.send_qp.slots.give(1);
        if self.signaled {
            self.rail.sends.give(1);
        } else {
            self.rail.give_unsignaled(1);
        }
    }

    /// How the request that is about to be posted tells its end.
    #[inline(always)]
    pub(super) fn signal(&self) -> Signal {
        if self.signaled {
            Signal::End { before: self.send_qp.unsignaled.take() }
        } else {
            Signal::Failure
        }
    }

    /// The request was not posted.
    #[cold]
    fn not_used(self, signal: Signal) {
        if let Signal::End { before } = signal {
            self.send_qp.unsignaled.put_back(before);
        }
        self.give_back();
    }

    /// Posts a small put, which tells of so many `before` it, to an address with its key. `false`: it was
    /// not posted.
    #[inline(always)]
    pub(super) fn post_write(
        self,
        (put, before): (PutNumber, u32),
        to: (u64, u32),
        bytes: &[u8],
    ) -> bool {
        let signal = self.signal();
        let id = put.number(signal, before);
        let posted = self.send_qp.post_write(id, to, bytes, self.signaled);
        self.settle(signal, posted)
    }

    /// The request that was to be posted with a signal was, or was not, as it says.
    #[inline(always)]
    fn settle(self, signal: Signal, posted: bool) -> bool {
        if posted {
            self.posted();
        } else {
            self.not_used(signal);
        }
        posted
    }

    /// The request was posted.
    #[inline(always)]
    fn posted(&self) {
        if !self.signaled {
            self.send_qp.unsignaled.posted();
        }
    }
}

impl NetContext {
    /// Posts a request whose slots are taken. They go back when it is not posted, and so does its
    /// end's counting.
    #[inline(always)]
    pub(super) fn post(
        &self,
        slots: &Slots<'_>,
        operation: Operation,
        data: Data<'_>,
        op: &PendingOp,
        end: End<'_>,
    ) -> Result<Sent, Error> {
        let signal = slots.signal();
        let Some(id) = self.pending.begin(op, end, signal) else {
            slots.not_used(signal);
            return Ok(Sent::Full);
        };
        let of = (op.kind, op.peer);
        self.post_as(id, slots, of, operation, data).map_err(|error| *error)
    }

    /// As [`NetContext::post`], of an operation whose number says all of it.
    #[inline(always)]
    pub(super) fn post_numbered(
        &self,
        slots: &Slots<'_>,
        operation: Operation,
        data: Data<'_>,
        op: &PendingOp,
    ) -> Result<Sent, Box<Error>> {
        let id = op.number(slots.signal());
        self.post_as(id, slots, (op.kind, op.peer), operation, data)
    }

    /// Posts a request by its number, which was made with [`Slots::signal`].
    #[inline(always)]
    pub(super) fn post_as(
        &self,
        id: u64,
        slots: &Slots<'_>,
        of: (OpKind, Rank),
        operation: Operation,
        data: Data<'_>,
    ) -> Result<Sent, Box<Error>> {
        trace::posts(&data);
        let send = SendWr { id, operation, data, signaled: slots.signaled, to: None };
        match slots.send_qp.post(&send) {
            Ok(()) => {
                slots.posted();
                Ok(Sent::Yes)
            }
            Err(error) => self.not_posted(slots, of, id, error).map_err(Box::new),
        }
    }

    /// Posts a Short that goes inline, on the main queue pair of a connection (by its rank and index).
    /// `false`: it was not posted.
    #[inline(always)]
    pub(super) fn post_short(
        &self,
        slots: Slots<'_>,
        (peer, connection): (Rank, usize),
        imm: u32,
        bytes: &[u8],
    ) -> bool {
        let op = PendingOp::plain(OpKind::Message, peer, connection, false);
        trace::posts(&Data::Inline(&[]));
        let signal = slots.signal();
        let posted = slots.send_qp.post_message(op.number(signal), imm, bytes, slots.signaled);
        slots.settle(signal, posted)
    }

    // Not by a reference to all of the operation, which would have to be in memory for it.
    #[cold]
    #[inline(never)]
    fn not_posted(
        &self,
        slots: &Slots<'_>,
        (kind, peer): (OpKind, Rank),
        id: u64,
        error: PostError,
    ) -> Result<Sent, Error> {
        match self.pending.end(id) {
            Some((_, signal, _)) => slots.not_used(signal),
            None => slots.give_back(),
        }
        match error {
            PostError::Full => Ok(Sent::Full),
            _ if self.failure.is_ignored() => Ok(Sent::Full),
            PostError::State(state) => Err(Error::NoConnection {
                rank: self.members.rank,
                peer,
                problem: format!(
                    "queue pair {:#x} of {} is in state {state:?}: the peer or the network failed",
                    slots.send_qp.qp.number(),
                    slots.rail.name()
                ),
            }),
            error => Err(slots.rail.post_error(kind.name(), peer, error)),
        }
    }
}

/// Requests of a list at most.
pub(crate) const MOST_TOGETHER: usize = 16;

/// A request whose slots are taken.
struct Held<'a> {
    id: u64,
    slots: Slots<'a>,
    operation: Operation,
    /// Those of the list's parts that are its own.
    parts: Range<usize>,
    op: PendingOp,
}

impl Held<'_> {
    fn request<'p>(&self, parts: &'p [Sge]) -> SendWr<'p> {
        let data = Data::Gather(parts.get(self.parts.clone()).unwrap_or_default());
        let operation = self.operation;
        SendWr { id: self.id, operation, data, signaled: self.slots.signaled, to: None }
    }
}

/// Requests of one queue pair, and the registered memory of them all.
#[derive(Default)]
struct Requests<'a> {
    held: Vec<Held<'a>>,
    parts: Vec<Sge>,
}

/// Requests that are posted together.
#[derive(Default)]
pub(super) struct PostList<'a>(RefCell<Requests<'a>>);

impl<'a> PostList<'a> {
    /// Does something with a list, then posts what it holds, whatever came of it.
    pub(super) fn with(
        context: &NetContext,
        work: impl FnOnce(&Self) -> Result<Sent, Error>,
    ) -> Result<Sent, Error> {
        let list = Self::default();
        let sent = work(&list);
        list.post(context)?;
        sent
    }

    /// As [`NetContext::post`], of a request of registered memory, which is posted with others.
    pub(super) fn hold(
        &self,
        context: &NetContext,
        (slots, operation, own): (&Slots<'a>, Operation, &[Sge]),
        op: &PendingOp,
        end: End<'_>,
    ) -> Result<Sent, Error> {
        if !self.takes(slots)
            && let Err(error) = self.post(context)
        {
            slots.give_back();
            return Err(error);
        }
        let signal = slots.signal();
        let Some(id) = context.pending.begin(op, end, signal) else {
            slots.not_used(signal);
            return Ok(Sent::Full);
        };
        trace::posts(&Data::Gather(own));
        let mut requests = self.0.borrow_mut();
        let begin = requests.parts.len();
        requests.parts.extend_from_slice(own);
        let parts = begin..requests.parts.len();
        requests.held.push(Held { id, slots: *slots, operation, parts, op: *op });
        Ok(Sent::Yes)
    }

    /// That of the requests, among the connections of their peer; `None`: it has none.
    pub(super) fn connection(&self) -> Option<usize> {
        self.0.borrow().held.first().map(|first| first.op.connection)
    }

    /// Whether there is room for one more, of the queue pair that the others are for.
    fn takes(&self, slots: &Slots<'_>) -> bool {
        let held = &self.0.borrow().held;
        let same =
            held.first().is_none_or(|first| std::ptr::eq(first.slots.send_qp, slots.send_qp));
        same && held.len() < MOST_TOGETHER
    }

    /// Posts what is held. Waits for completions of sends if the device has no room although slots
    /// were free.
    pub(super) fn post(&self, context: &NetContext) -> Result<(), Error> {
        let Requests { held, parts } = self.0.take();
        let Some(first) = held.first() else { return Ok(()) };
        if held.len() > 1 {
            trace::count(Counter::PostedList, held.len());
        }
        let requests: Vec<SendWr<'_>> = held.iter().map(|one| one.request(&parts)).collect();
        let posted = first.slots.send_qp.post_list(&requests).min(held.len());
        let (posted, rest) = held.split_at(posted);
        posted.iter().for_each(|one| one.slots.posted());
        rest.iter().try_for_each(|one| post_alone(context, one, &parts))
    }
}

#[cold]
fn post_alone(context: &NetContext, held: &Held<'_>, parts: &[Sge]) -> Result<(), Error> {
    let request = held.request(parts);
    loop {
        match held.slots.send_qp.post(&request) {
            Ok(()) => {
                held.slots.posted();
                return Ok(());
            }
            Err(PostError::Full) if context.await_sends()? => {}
            Err(error) => {
                let of = (held.op.kind, held.op.peer);
                // Full: the network is closing, and nobody waits for it.
                return context.not_posted(&held.slots, of, held.id, error).map(|_full| ());
            }
        }
    }
}
