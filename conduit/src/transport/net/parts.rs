//! One request for several parts of this rank's memory that are one range at another: gather
//! entries of a write, scatter entries of a read.

use std::sync::Arc;

use bootstrap::Rank;
use fabric::{Data, Operation, Sge};

use super::error::Error;
use super::pending_ops::{End, OpKind};
use super::post::Sent;
use super::rail::MOST_ENTRIES;
use super::rma::{OneSided, Piece, on_some_connection};
use super::transport::NetTransport;
use crate::transport::op_counter::OpCounter;

/// Bytes of this rank's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnPart {
    pub(crate) address: usize,
    pub(crate) len: usize,
}

/// What one request can have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PartLimits {
    /// Parts; below 2: none has several.
    pub(crate) parts: usize,
    /// Bytes of parts that devices can reach.
    pub(crate) bytes: usize,
    /// Bytes of parts anywhere, which are taken when the request is posted (puts).
    pub(crate) inline: usize,
}

/// Bytes of one request at most, so that several rails share what is longer.
const MOST_BYTES: usize = 1 << 20;

impl<'a> OneSided<'a> {
    fn limits(self, to: Rank, put: bool) -> PartLimits {
        let Some(peer) = self.0.connected(to) else { return PartLimits::default() };
        let first = PartLimits {
            parts: MOST_ENTRIES as usize,
            bytes: MOST_BYTES,
            inline: if put { usize::MAX } else { 0 },
        };
        peer.connections.iter().fold(first, |limits, connection| {
            let rail = &self.0.rails[connection.rail];
            let reads = if put { u32::MAX } else { rail.device.caps().max_sge_rd };
            PartLimits {
                parts: limits.parts.min(rail.entries().min(reads) as usize),
                bytes: limits.bytes.min(rail.max_message as usize),
                inline: limits.inline.min(connection.main.inline),
            }
        })
    }

    /// Posts the write of parts as one range.
    fn put_piece_of(
        self,
        piece: Piece<'a, '_>,
        parts: &[&[u8]],
        len: usize,
    ) -> Result<bool, Error> {
        let inline = piece.via.connection.main.inline;
        let Some((slots, remote, rkey)) = self.aim(piece) else { return Ok(false) };
        let to = (&slots, Operation::Write { remote, rkey });
        if len <= inline {
            let end = End::Counts { counter: piece.counter, local: false };
            return self.post(piece, to, Data::Inline(parts), (false, None), end);
        }
        let parts =
            parts.iter().map(|part| OwnPart { address: part.as_ptr().addr(), len: part.len() });
        self.post_parts(piece, to, parts)
    }

    fn post_parts(
        self,
        piece: Piece<'a, '_>,
        to: (&super::post::Slots<'a>, Operation),
        parts: impl Iterator<Item = OwnPart>,
    ) -> Result<bool, Error> {
        let mut entries = [Sge::default(); MOST_ENTRIES as usize];
        let mut count = 0;
        for (entry, OwnPart { address, len }) in entries.iter_mut().zip(parts) {
            let Some(own) = self.own_part(piece.via, address, len) else {
                to.0.give_back();
                return Ok(false);
            };
            *entry = own;
            count += 1;
        }
        let end = End::Counts { counter: piece.counter, local: true };
        let entries = entries.get(..count).unwrap_or_default();
        self.post(piece, to, Data::Gather(entries), (true, None), end)
    }

    fn parts(
        self,
        (rank, place): (Rank, u64),
        (kind, len): (OpKind, usize),
        counter: &Arc<OpCounter>,
        mut post: impl FnMut(Piece<'a, '_>) -> Result<bool, Error>,
    ) -> Result<Sent, Error> {
        self.0.segments.check(rank, place, len as u64)?;
        let Some(peer) = self.0.connected(rank) else { return Ok(Sent::Full) };
        let posted = on_some_connection(peer, |via| {
            Ok(usize::from(post(Piece { via, kind, place, counter, list: None })?))
        })?;
        Ok(if posted > 0 { Sent::Yes } else { Sent::Full })
    }
}

impl NetTransport {
    /// What requests to a rank can have now; nothing while it is not connected.
    pub(crate) fn part_limits(&self, rank: Rank, put: bool) -> PartLimits {
        self.enter(|context| OneSided(context).limits(rank, put)).unwrap_or_default()
    }

    /// Whether devices can reach so many bytes from an address on.
    pub(crate) fn covers(&self, part: OwnPart) -> bool {
        self.context.segments.covers(part.address, part.len)
    }

    /// Puts parts as one range, within [`NetTransport::part_limits`].
    pub(crate) fn put_parts(
        &self,
        (to, place): (Rank, u64),
        parts: &[&[u8]],
        counter: &Arc<OpCounter>,
    ) -> Result<Sent, Error> {
        let len = parts.iter().map(|part| part.len()).sum();
        let put = self.enter(|context| {
            let one_sided = OneSided(context);
            one_sided.parts((to, place), (OpKind::Put, len), counter, |piece| {
                let put = || one_sided.put_piece_of(piece, parts, len);
                // A fence goes with it or nothing does.
                let posted = one_sided.before_fence(piece, || Ok(usize::from(put()?)))?;
                Ok(posted > 0)
            })
        });
        put.unwrap_or(Ok(Sent::Full))
    }

    /// Gets one range into parts, within [`NetTransport::part_limits`]; nobody else uses them until
    /// the operation is complete.
    pub(crate) fn get_parts(
        &self,
        (from, place): (Rank, u64),
        parts: &[OwnPart],
        counter: &Arc<OpCounter>,
    ) -> Result<Sent, Error> {
        let len = parts.iter().map(|part| part.len).sum();
        let get = self.enter(|context| {
            let one_sided = OneSided(context);
            one_sided.parts((from, place), (OpKind::Get, len), counter, |piece| {
                let Some((slots, remote, rkey)) = one_sided.aim(piece) else { return Ok(false) };
                let from = (&slots, Operation::Read { remote, rkey });
                one_sided.post_parts(piece, from, parts.iter().copied())
            })
        });
        get.unwrap_or(Ok(Sent::Full))
    }
}
