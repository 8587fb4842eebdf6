//! Posting of work requests: slots of queues are taken before, and go back when a request was not
//! posted.

use bootstrap::Rank;
use fabric::{Data, Operation, PostError, SendWr};

use super::context::NetContext;
use super::error::Error;
use super::peer::{Connection, Peer, SendQp};
use super::pending_ops::{OnComplete, OpKind, PendingOp};
use super::rail::Rail;
use crate::trace::{self, Cause};

/// What became of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Sent {
    Yes,
    /// No credit, buffer or slot, or not connected yet: poll and try again.
    Full,
}

/// Slots to keep for messages that others wait for: of a queue pair, and of a completion queue.
#[derive(Clone, Copy)]
pub(super) struct Reserve {
    pub(super) queue_pair: u32,
    pub(super) completion_queue: u32,
}

#[derive(Clone, Copy)]
pub(super) struct Via<'a> {
    pub(super) peer: &'a Peer,
    /// Its place among the peer's connections.
    pub(super) index: usize,
    pub(super) connection: &'a Connection,
}

/// Slots of a queue pair and of its completion queue, until they are used.
pub(super) struct Slots<'a> {
    pub(super) rail: &'a Rail,
    pub(super) send_qp: &'a SendQp,
}

impl<'a> Slots<'a> {
    /// Takes a slot of the send queue and one of its completion queue.
    #[inline]
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
        Some(Self { rail, send_qp })
    }

    #[inline]
    pub(super) fn give_back(&self) {
        self.send_qp.slots.give(1);
        self.rail.sends.give(1);
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
        end: Option<OnComplete>,
    ) -> Result<Sent, Error> {
        let Some(id) = self.pending.begin(op, end) else {
            slots.give_back();
            return Ok(Sent::Full);
        };
        trace::posts(&data);
        let send = SendWr { id, operation, data, signaled: true, to: None };
        match slots.send_qp.post(&send) {
            Ok(()) => Ok(Sent::Yes),
            Err(error) => self.not_posted(slots, (op.kind, op.peer), id, error),
        }
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
        trace::posts(&data);
        let id = op.number();
        let send = SendWr { id, operation, data, signaled: true, to: None };
        match slots.send_qp.post(&send) {
            Ok(()) => Ok(Sent::Yes),
            Err(error) => self.not_posted(slots, (op.kind, op.peer), id, error).map_err(Box::new),
        }
    }

    // Not by a reference to all of the operation, which would have to be in memory for it.
    #[cold]
    fn not_posted(
        &self,
        slots: &Slots<'_>,
        (kind, peer): (OpKind, Rank),
        id: u64,
        error: PostError,
    ) -> Result<Sent, Error> {
        let _ = self.pending.end(id);
        slots.give_back();
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
