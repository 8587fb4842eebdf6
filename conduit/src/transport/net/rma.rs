//! Puts and gets in pieces: inline, through a bounce buffer, or straight from and to the own segment.

use std::sync::Arc;

use bootstrap::Rank;
use fabric::{Data, Operation, Sge};

use super::am::header::BUFFER;
use super::context::{Kind, NetContext, OnComplete, PendingOp, RESERVED_BUFFERS};
use super::peer::{Connection, Peer};
use super::rail::RESERVED_CQ_SLOTS;
use super::setup::RESERVED_SQ_SLOTS;
use super::{Error, OpCounter, RawSource, RawTarget, Sent};

/// Greatest piece of a transfer: devices take less than 2^31 bytes, and a multiple of a page keeps pieces aligned.
const PIECE: u32 = 1 << 30;

/// A piece of a transfer that is about to be posted.
struct Piece<'a> {
    peer: &'a Peer,
    /// Its lane.
    at: usize,
    kind: Kind,
    len: usize,
    /// It counts as local until it is complete: the device reads the source, or writes the target, by itself.
    local: bool,
    /// Lent, and given back where the piece cannot be posted.
    buffer: Option<u32>,
    counter: &'a OpCounter,
    end: OnComplete,
}

impl NetContext {
    /// Takes the slots of a one-sided operation.
    fn rma_slots(&self, lane: &Connection) -> bool {
        if !lane.main.slots.take(RESERVED_SQ_SLOTS) {
            return false;
        }
        let taken = self.rails[lane.rail].sends.take(RESERVED_CQ_SLOTS);
        if !taken {
            lane.main.slots.give(1);
        }
        taken
    }

    fn rma_unslots(&self, lane: &Connection) {
        lane.main.slots.give(1);
        self.rails[lane.rail].sends.give(1);
    }

    fn piece(&self, lane: &Connection, len: usize) -> u32 {
        let most = PIECE.min(self.rails[lane.rail].max_message);
        u32::try_from(len).unwrap_or(u32::MAX).min(most)
    }

    /// Where a piece towards `offset` of a peer's segment is, by address and key; `None`: no room for it, or no segments yet. The
    /// slots of the piece are taken.
    fn aim(&self, peer: &Peer, lane: &Connection, offset: u64) -> Option<(u64, u32)> {
        let segments = self.segments.get()?;
        let there =
            || (segments.remote(peer.rank).base + offset, segments.key(peer.rank, lane.rail));
        self.rma_slots(lane).then(there)
    }

    /// A part of the own segment as the device sees it, if `len` bytes from `address` are in it.
    fn own_piece(&self, lane: &Connection, address: usize, len: usize) -> Option<Sge> {
        let own = &self.segments.get()?.own;
        let lkey = self.rails[lane.rail].segment.get().map_or(0, |region| region.lkey());
        let whole = own.covers(address, len);
        whole.then(|| Sge { addr: address as u64, len: self.piece(lane, len), lkey })
    }

    /// A bounce buffer that `fill` has seen, lent, and its first `len` bytes as the device sees them. Without one the slots of
    /// the piece go back.
    fn bounce_piece(
        &self,
        lane: &Connection,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Option<(u32, Sge)> {
        let Some(mut buffer) = self.bounce.take(&self.pool, RESERVED_BUFFERS) else {
            self.rma_unslots(lane);
            return None;
        };
        fill(self.pool.bytes(&mut buffer));
        let piece = self.pool.piece(&buffer, lane.rail, 0, self.piece(lane, len));
        Some((self.pool.lend(buffer), piece))
    }

    /// Posts a piece whose slots are taken. Returns its length; 0: no room, and what it had goes back.
    fn post_piece(
        &self,
        piece: Piece<'_>,
        operation: Operation,
        data: Data<'_>,
    ) -> Result<usize, Error> {
        let Piece { peer, at, kind, len, local, buffer, counter, end } = piece;
        let op = PendingOp { kind, peer: peer.rank, lane: at, upper: false, buffer, has_end: true };
        let lane = &peer.lanes[at];
        counter.begin(local);
        let sent = self.post_op(lane, &lane.main, operation, data, &op, Some(end));
        if matches!(sent, Ok(Sent::Yes)) {
            return Ok(len);
        }
        counter.end(local);
        if let Some(buffer) = buffer.and_then(|index| self.pool.reclaim(index)) {
            self.bounce.put(&self.pool, buffer);
        }
        sent.map(|_| 0)
    }

    /// Posts the first piece of `bytes` towards `offset` of a peer's segment, whose bounds were checked. Returns its length;
    /// 0: no room. `copy`: also what the device could read in place.
    #[expect(clippy::too_many_arguments, reason = "all that a piece is made of")]
    pub(super) fn put_piece(
        &self,
        peer: &Peer,
        at: usize,
        kind: Kind,
        offset: u64,
        bytes: &[u8],
        copy: bool,
        counter: &Arc<OpCounter>,
    ) -> Result<usize, Error> {
        let lane = &peer.lanes[at];
        let Some((remote, rkey)) = self.aim(peer, lane, offset) else { return Ok(0) };
        let operation = Operation::Write { remote, rkey };
        let piece = |len: usize, local, buffer| {
            let end = OnComplete::Count { counter: Arc::clone(counter), local };
            Piece { peer, at, kind, len, local, buffer, counter, end }
        };
        if bytes.len() <= lane.main.inline {
            let data = Data::Inline(&[bytes]);
            return self.post_piece(piece(bytes.len(), false, None), operation, data);
        }
        let (address, len) = (bytes.as_ptr().addr(), bytes.len());
        if let Some(own) = self.own_piece(lane, address, len).filter(|_| !copy) {
            let data = Data::Gather(&[own]);
            return self.post_piece(piece(own.len as usize, true, None), operation, data);
        }
        let len = len.min(BUFFER);
        let fill = |buffer: &mut [u8]| buffer[..len].copy_from_slice(&bytes[..len]);
        let Some((index, part)) = self.bounce_piece(lane, len, fill) else { return Ok(0) };
        self.post_piece(piece(len, false, Some(index)), operation, Data::Gather(&[part]))
    }

    /// Posts the read of the next piece of a get.
    fn get_piece(
        &self,
        peer: &Peer,
        at: usize,
        offset: u64,
        into: &mut RawTarget,
        counter: &Arc<OpCounter>,
    ) -> Result<usize, Error> {
        let lane = &peer.lanes[at];
        let Some((remote, rkey)) = self.aim(peer, lane, offset) else { return Ok(0) };
        let operation = Operation::Read { remote, rkey };
        let piece = |len: usize, buffer, end| Piece {
            peer,
            at,
            kind: Kind::Get,
            len,
            local: true,
            buffer,
            counter,
            end,
        };
        let shared = || Arc::clone(counter);
        let len = if let Some(own) = self.own_piece(lane, into.address(), into.left) {
            let end = OnComplete::Count { counter: shared(), local: true };
            self.post_piece(piece(own.len as usize, None, end), operation, Data::Gather(&[own]))?
        } else {
            let len = into.left.min(BUFFER);
            let Some((index, part)) = self.bounce_piece(lane, len, |_| {}) else { return Ok(0) };
            let end = OnComplete::CopyOut { counter: shared(), landing: into.peek(len), len };
            self.post_piece(piece(len, Some(index), end), operation, Data::Gather(&[part]))?
        };
        into.skip(len);
        Ok(len)
    }

    /// Posts as much of a put as there is room for.
    pub(super) fn put(
        &self,
        to: Rank,
        offset: u64,
        source: &mut RawSource<'_>,
        counter: &Arc<OpCounter>,
    ) -> Result<Sent, Error> {
        let start = offset.saturating_add(source.done);
        self.check_range(to, start, source.bytes.len() as u64)?;
        let Some(peer) = self.connected(to) else { return Ok(Sent::Full) };
        let whole = source.done + source.bytes.len() as u64;
        let copy = source.at_once && whole <= self.setup.limits.put_bounce;
        while !source.bytes.is_empty() {
            let at = offset + source.done;
            let try_lane =
                |lane| self.put_piece(peer, lane, Kind::Put, at, source.bytes, copy, counter);
            let len = on_some_lane(peer, try_lane)?;
            if len == 0 {
                return Ok(Sent::Full);
            }
            source.bytes = &source.bytes[len..];
            source.done += len as u64;
        }
        Ok(Sent::Yes)
    }

    /// Posts as much of a get as there is room for.
    pub(super) fn get(
        &self,
        from: Rank,
        offset: u64,
        into: &mut RawTarget,
        counter: &Arc<OpCounter>,
    ) -> Result<Sent, Error> {
        let start = offset.saturating_add(into.done);
        self.check_range(from, start, into.left as u64)?;
        let Some(peer) = self.connected(from) else { return Ok(Sent::Full) };
        while into.left > 0 {
            let at = offset + into.done;
            let try_lane = |lane| self.get_piece(peer, lane, at, into, counter);
            if on_some_lane(peer, try_lane)? == 0 {
                return Ok(Sent::Full);
            }
        }
        Ok(Sent::Yes)
    }
}

/// Tries lanes in turn until one takes a piece.
fn on_some_lane(
    peer: &Peer,
    mut attempt: impl FnMut(usize) -> Result<usize, Error>,
) -> Result<usize, Error> {
    let first = peer.first_lane();
    for step in 0..peer.lanes.len() {
        let len = attempt((first + step) % peer.lanes.len())?;
        if len > 0 {
            return Ok(len);
        }
    }
    Ok(0)
}
