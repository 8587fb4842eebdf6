//! Puts and gets in pieces: inline, through a bounce buffer, or straight from and to the own segment.

use std::sync::Arc;

use bootstrap::Rank;
use fabric::{Data, Operation, Sge};

use super::am::header::BUFFER;
use super::engine::{End, Engine, Flight, KEPT_BUFFERS, Kind};
use super::peer::{Lane, Peer};
use super::rail::KEPT_SLOTS;
use super::setup::KEPT;
use super::{Error, OpCounter, RawSource, RawTarget, Sent};

/// Greatest piece of a transfer: devices take less than 2^31 bytes, and a multiple of a page keeps pieces aligned.
const PIECE: u32 = 1 << 30;

impl Engine {
    /// Takes the slots of a one-sided operation.
    fn rma_slots(&self, lane: &Lane) -> bool {
        if !lane.main.slots.take(KEPT) {
            return false;
        }
        let taken = self.rails[lane.rail].sends.take(KEPT_SLOTS);
        if !taken {
            lane.main.slots.give(1);
        }
        taken
    }

    fn rma_unslots(&self, lane: &Lane) {
        lane.main.slots.give(1);
        self.rails[lane.rail].sends.give(1);
    }

    fn piece(&self, lane: &Lane, len: usize) -> u32 {
        let most = PIECE.min(self.rails[lane.rail].max_message);
        u32::try_from(len).unwrap_or(u32::MAX).min(most)
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
        let Some(segments) = self.segments.get() else { return Ok(0) };
        if !self.rma_slots(lane) {
            return Ok(0);
        }
        let remote = segments.remote(peer.rank).base + offset;
        let operation = Operation::Write { remote, rkey: segments.key(peer.rank, lane.rail) };
        let flight =
            Flight { kind, peer: peer.rank, lane: at, upper: false, buffer: None, has_end: true };
        let end = |local| End::Count { counter: Arc::clone(counter), local };
        if bytes.len() <= lane.main.inline {
            counter.begin(false);
            let data = Data::Inline(&[bytes]);
            let sent =
                self.post_flight(lane, &lane.main, operation, data, &flight, Some(end(false)));
            return posted(sent, bytes.len(), counter, false);
        }
        if !copy && segments.own.holds(bytes) {
            let len = self.piece(lane, bytes.len());
            let lkey = self.rails[lane.rail].segment.get().map_or(0, |region| region.lkey());
            let piece = Sge { addr: bytes.as_ptr().addr() as u64, len, lkey };
            counter.begin(true);
            let data = Data::Gather(&[piece]);
            let sent =
                self.post_flight(lane, &lane.main, operation, data, &flight, Some(end(true)));
            return posted(sent, len as usize, counter, true);
        }
        let Some(mut buffer) = self.bounce.take(&self.pool, KEPT_BUFFERS) else {
            self.rma_unslots(lane);
            return Ok(0);
        };
        let len = bytes.len().min(BUFFER);
        self.pool.bytes(&mut buffer)[..len].copy_from_slice(&bytes[..len]);
        let piece = self.pool.piece(&buffer, lane.rail, 0, self.piece(lane, len));
        let index = self.pool.lend(buffer);
        counter.begin(false);
        let flight = Flight { buffer: Some(index), ..flight };
        let data = Data::Gather(&[piece]);
        let sent = self.post_flight(lane, &lane.main, operation, data, &flight, Some(end(false)));
        if !matches!(sent, Ok(Sent::Yes))
            && let Some(buffer) = self.pool.reclaim(index)
        {
            self.bounce.put(&self.pool, buffer);
        }
        posted(sent, len, counter, false)
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
        let Some(segments) = self.segments.get() else { return Ok(0) };
        if !self.rma_slots(lane) {
            return Ok(0);
        }
        let remote = segments.remote(peer.rank).base + offset;
        let operation = Operation::Read { remote, rkey: segments.key(peer.rank, lane.rail) };
        let flight = Flight {
            kind: Kind::Get,
            peer: peer.rank,
            lane: at,
            upper: false,
            buffer: None,
            has_end: true,
        };
        if segments.own.covers(into.address(), into.left) {
            let len = self.piece(lane, into.left);
            let lkey = self.rails[lane.rail].segment.get().map_or(0, |region| region.lkey());
            let piece = Sge { addr: into.address() as u64, len, lkey };
            counter.begin(true);
            let end = End::Count { counter: Arc::clone(counter), local: true };
            let data = Data::Gather(&[piece]);
            let sent = self.post_flight(lane, &lane.main, operation, data, &flight, Some(end));
            let len = posted(sent, len as usize, counter, true)?;
            into.skip(len);
            return Ok(len);
        }
        let Some(buffer) = self.bounce.take(&self.pool, KEPT_BUFFERS) else {
            self.rma_unslots(lane);
            return Ok(0);
        };
        let len = into.left.min(BUFFER);
        let piece = self.pool.piece(&buffer, lane.rail, 0, self.piece(lane, len));
        let index = self.pool.lend(buffer);
        counter.begin(true);
        let landing = into.peek(len);
        let end = End::Land { counter: Arc::clone(counter), landing, len };
        let flight = Flight { buffer: Some(index), ..flight };
        let data = Data::Gather(&[piece]);
        let sent = self.post_flight(lane, &lane.main, operation, data, &flight, Some(end));
        if !matches!(sent, Ok(Sent::Yes))
            && let Some(buffer) = self.pool.reclaim(index)
        {
            self.bounce.put(&self.pool, buffer);
        }
        let len = posted(sent, len, counter, true)?;
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

/// Bytes that were posted; what was counted before goes back when nothing was.
fn posted(
    sent: Result<Sent, Error>,
    len: usize,
    counter: &OpCounter,
    local: bool,
) -> Result<usize, Error> {
    if matches!(sent, Ok(Sent::Yes)) {
        return Ok(len);
    }
    counter.end(local);
    sent.map(|_| 0)
}
