//! Operations that adapters do on words of 8 bytes at other ranks, at neighbours and at this rank
//! itself: fetch-add and compare-and-swap.
//!
//! Adapters may be atomic only to what goes through the same one, so all operations on the words of
//! a rank come through its first rail.

use std::sync::Arc;

use bootstrap::Rank;
use fabric::{AtomicCap, Data, Operation};

use super::error::Error;
use super::pending_ops::{End, FetchedBy, OnComplete, OpKind};
use super::post::{Sent, Via};
use super::rma::{OneSided, Piece};
use super::transport::NetTransport;
use crate::trace::{self, Cause, Counter};
use crate::transport::op_counter::OpCounter;

/// What is done to a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WordOp {
    /// Adds, wrapping.
    Add(u64),
    /// Puts `swap` there if the word is `compare`.
    CompareSwap { compare: u64, swap: u64 },
}

const WORD: usize = size_of::<u64>();

impl OneSided<'_> {
    fn atomic(
        self,
        (rank, place): (Rank, u64),
        op: WordOp,
        by: &FetchedBy,
        counter: &Arc<OpCounter>,
    ) -> Result<Sent, Error> {
        self.0.segments.check(rank, place, WORD as u64)?;
        let Some(peer) = self.0.connected(rank) else { return Ok(Sent::Full) };
        let first = peer.connections.iter().enumerate().find(|(_, one)| one.rail == 0);
        let Some(via) = first.map(|(index, connection)| Via { peer, index, connection }) else {
            return Ok(Sent::Full);
        };
        let piece = Piece { via, kind: OpKind::Atomic, place, counter, list: None };
        let Some((slots, remote, rkey)) = self.aim(piece) else { return Ok(Sent::Full) };
        let Some((index, part)) = self.buffer_part(via, &slots, WORD, |_| {}) else {
            trace::lacks(Cause::AtomicBuffer);
            return Ok(Sent::Full);
        };
        trace::count(Counter::AtomicBuffer, 0);
        let operation = match op {
            WordOp::Add(add) => Operation::FetchAdd { remote, rkey, add },
            WordOp::CompareSwap { compare, swap } => {
                Operation::CompareSwap { remote, rkey, compare, swap }
            }
        };
        let (counter, by) = (Arc::clone(counter), by.clone());
        let end = End::Does(OnComplete::Fetched { counter, by });
        let how = (false, Some(index));
        let sent = self.post(piece, (&slots, operation), Data::Gather(&[part]), how, end)?;
        Ok(if sent { Sent::Yes } else { Sent::Full })
    }
}

impl NetTransport {
    /// To what the atomics of the adapters of all ranks are atomic; what only goes through an
    /// adapter reaches neighbours and this rank, too.
    pub(crate) fn atomics(&self) -> AtomicCap {
        self.threads.links.others.atomics
    }

    /// Posts an operation on the aligned word at a place of any rank. `Full`: poll and call again.
    pub(crate) fn atomic(
        &self,
        to: (Rank, u64),
        op: WordOp,
        by: &FetchedBy,
        counter: &Arc<OpCounter>,
    ) -> Result<Sent, Error> {
        let posted = self.enter(|context| OneSided(context).atomic(to, op, by, counter));
        posted.unwrap_or(Ok(Sent::Full))
    }
}
