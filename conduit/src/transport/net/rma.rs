//! Puts and gets in pieces: inline, through a send buffer, or straight from and to the own segment
//! or other memory that is registered for it.

use std::sync::Arc;

use bootstrap::Rank;
use fabric::{Data, Operation, Sge};

use super::am::header::BUFFER;
use super::context::NetContext;
use super::error::Error;
use super::memory::buffers::RESERVED_BUFFERS;
use super::memory::cache::{Entries, Held};
use super::memory::pool::{INBOX_WORDS, RawTarget, RemoteInbox};
use super::peer::Peer;
use super::pending_ops::{End, OnComplete, OpKind, PendingOp};
use super::post::{PostList, Reserve, Sent, Slots, Via};
use super::rail::RESERVED_CQ_SLOTS;
use super::settings::sizes::RESERVED_SQ_SLOTS;
use super::stripes::Cutter;
use crate::trace::{self, Counter};
use crate::transport::op_counter::OpCounter;

/// Greatest piece of a transfer: devices take less than 2^31 bytes, and a multiple of a page keeps
/// pieces aligned.
const PIECE: u32 = 1 << 30;

/// Up to so many bytes are copied rather than looked up among registered memory: the copy costs
/// less (`docs/design/memory.md` has the figures).
pub(super) const COPIED: usize = 16 << 10;

/// One-sided operations leave room for messages that others wait for.
pub(super) const RESERVE: Reserve =
    Reserve { queue_pair: RESERVED_SQ_SLOTS, completion_queue: RESERVED_CQ_SLOTS };

/// The local end of a put, and how much of it was posted. The device reads it until the operation
/// is locally complete, unless it was copied while the put was posted (memory outside segments in
/// pieces of at most [`COPIED`]).
#[derive(Debug)]
pub(crate) struct RawSource<'a> {
    bytes: &'a [u8],
    done: u64,
    /// The source should be free when all is posted.
    at_once: bool,
}

impl<'a> RawSource<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, done: 0, at_once: false }
    }

    /// As [`RawSource::new`], for a caller that wants its memory back when all is posted: up to
    /// `GASNET_NONBULKPUT_BOUNCE_LIMIT` everything is copied. Beyond that the counter says when it
    /// is free.
    pub(crate) const fn at_once(bytes: &'a [u8]) -> Self {
        Self { bytes, done: 0, at_once: true }
    }
}

/// Memory of a peer.
pub(super) trait Spot: Copy {
    /// Address and key of it, for requests on a rail.
    fn aim(self, context: &NetContext, rank: Rank, rail: usize) -> Option<(u64, u32)>;
}

/// Word of a [`Place`](crate::transport::place::Place); bounds were checked.
impl Spot for u64 {
    #[inline]
    fn aim(self, context: &NetContext, rank: Rank, rail: usize) -> Option<(u64, u32)> {
        context.segments.aim(rank, self, rail)
    }
}

/// Where a piece of a transfer goes or comes from, and what counts it.
#[derive(Clone, Copy)]
pub(super) struct Piece<'a, 'c, S = u64> {
    pub(super) via: Via<'a>,
    pub(super) kind: OpKind,
    pub(super) place: S,
    pub(super) counter: &'c Arc<OpCounter>,
    /// What the request is posted with.
    pub(super) list: Option<&'c PostList<'a>>,
}

#[derive(Clone, Copy)]
pub(super) struct OneSided<'a>(pub(super) &'a NetContext);

impl<'a> OneSided<'a> {
    /// Bytes of the first piece of so many on a connection.
    fn piece_len(self, via: Via<'a>, len: usize) -> u32 {
        let most = PIECE.min(self.0.rails[via.connection.rail].max_message);
        u32::try_from(len).unwrap_or(u32::MAX).min(most)
    }

    /// Address and key of a piece at the peer, with its slots; `None`: no room for it, or no
    /// segments yet.
    pub(super) fn aim<S: Spot>(self, piece: Piece<'a, '_, S>) -> Option<(Slots<'a>, u64, u32)> {
        let Via { peer, connection, .. } = piece.via;
        let (remote, key) = piece.place.aim(self.0, peer.rank, connection.rail)?;
        let reserve = self.reserve(piece.kind);
        let slots = Slots::take(&self.0.rails[connection.rail], &connection.main, reserve)?;
        Some((slots, remote, key))
    }

    /// A part of an own segment as the device sees it, if `len` bytes from `address` are in one.
    pub(super) fn own_part(self, via: Via<'a>, address: usize, len: usize) -> Option<Sge> {
        let rail = via.connection.rail;
        let lkey = self.0.segments.own_key((rail, &self.0.rails[rail]), address, len)?;
        Some(Sge { addr: address as u64, len: self.piece_len(via, len), lkey })
    }

    /// Registered parts of memory outside segments that begin at `address`, and how many bytes they
    /// have; `None`: the transfer is copied.
    #[inline(never)]
    fn held_parts<S: Spot>(
        self,
        piece: Piece<'a, '_, S>,
        (address, len): (usize, usize),
        write: bool,
    ) -> Option<(Held, Entries, usize)> {
        let via = piece.via;
        let rail = &self.0.rails[via.connection.rail];
        let len = self.cut(piece, len) as usize;
        let reads = if write { rail.device.caps().max_sge_rd } else { u32::MAX };
        let most = rail.entries().min(reads) as usize;
        let (mut parts, on) = (Entries::new(), (via.connection.rail, most));
        let held = self.0.memory.hold(on, (address, len), write, &mut parts)?;
        let len = parts.iter().map(|part| part.len as usize).sum();
        Some((held, parts, len))
    }

    /// A send buffer that `fill` has seen, lent, and its first `len` bytes as the device sees them.
    /// Without one the slots go back.
    pub(super) fn buffer_part(
        self,
        via: Via<'a>,
        slots: &Slots<'_>,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Option<(u32, Sge)> {
        let Some(mut buffer) = self.0.buffers.take_send(RESERVED_BUFFERS) else {
            slots.give_back();
            return None;
        };
        let pool = &self.0.buffers.pool;
        fill(pool.bytes(&mut buffer));
        let part = pool.piece(&buffer, via.connection.rail, 0, self.piece_len(via, len));
        Some((pool.lend(buffer), part))
    }

    /// Posts a piece. `local`: it counts as local until it is complete, as the device reads the
    /// source, or writes the target, by itself. `false`: no room, and what it had goes back.
    pub(super) fn post<S: Spot>(
        self,
        piece: Piece<'a, '_, S>,
        (slots, operation): (&Slots<'a>, Operation),
        data: Data<'_>,
        (local, buffer): (bool, Option<u32>),
        end: End<'_>,
    ) -> Result<bool, Error> {
        let (peer, connection) = (piece.via.peer.rank, piece.via.index);
        let op = PendingOp { buffer, ..PendingOp::plain(piece.kind, peer, connection, true) };
        piece.counter.begin_by(self.0.sharing, local);
        let sent = self.post_with(piece.list, (slots, operation, data), &op, end);
        if !matches!(sent, Ok(Sent::Yes)) {
            piece.counter.end_by(self.0.sharing, local);
            self.0.buffers.reclaim_send(buffer);
        }
        Ok(sent? == Sent::Yes)
    }

    /// As [`NetContext::post`]; with a list, what can be held there is posted with it.
    pub(super) fn post_with(
        self,
        list: Option<&PostList<'a>>,
        (slots, operation, data): (&Slots<'a>, Operation, Data<'_>),
        op: &PendingOp,
        end: End<'_>,
    ) -> Result<Sent, Error> {
        match (list, data) {
            (Some(list), Data::Gather(parts)) => {
                list.hold(self.0, (slots, operation, parts), op, end)
            }
            _ => self.0.post(slots, operation, data, op, end),
        }
    }

    /// Bytes of the next piece of so many that the device takes from, or puts, where they are.
    fn cut<S: Spot>(self, piece: Piece<'a, '_, S>, len: usize) -> u32 {
        let stripes = self.0.settings.stripes;
        let stripe = match piece.kind {
            // One port alone has nothing to share.
            _ if self.0.rails.len() < 2 => 0,
            OpKind::Put => stripes.put,
            OpKind::Get => stripes.get,
            _ => 0,
        };
        let most = PIECE.min(self.0.rails[piece.via.connection.rail].max_message);
        Cutter::new(stripe, most).next(len)
    }

    /// Posts the first piece of `bytes`. Returns its length; 0: no room. `copy`: also what the
    /// device could read in place.
    pub(super) fn put_piece<S: Spot>(
        self,
        piece: Piece<'a, '_, S>,
        bytes: &[u8],
        copy: bool,
    ) -> Result<usize, Error> {
        self.before_fence(piece, || self.write_piece(piece, bytes, copy))
    }

    fn write_piece<S: Spot>(
        self,
        piece: Piece<'a, '_, S>,
        bytes: &[u8],
        copy: bool,
    ) -> Result<usize, Error> {
        let Some((slots, remote, rkey)) = self.aim(piece) else { return Ok(0) };
        let to = (&slots, Operation::Write { remote, rkey });
        let end = |local| End::Counts { counter: piece.counter, local };
        let posted = |sent, len| if sent { len } else { 0 };
        let via = piece.via;
        if bytes.len() <= via.connection.main.inline {
            let sent = self.post(piece, to, Data::Inline(&[bytes]), (false, None), end(false))?;
            trace::count(Counter::PutInline, posted(sent, bytes.len()));
            return Ok(posted(sent, bytes.len()));
        }
        let (address, len) = (bytes.as_ptr().addr(), bytes.len());
        if let Some(own) = self.own_part(via, address, len).filter(|_| !copy) {
            let own = Sge { len: self.cut(piece, len), ..own };
            let sent = self.post(piece, to, Data::Gather(&[own]), (true, None), end(true))?;
            trace::count(Counter::PutZeroCopy, posted(sent, own.len as usize));
            return Ok(posted(sent, own.len as usize));
        }
        // A Long that stalls gives its payload back while parts of it are under way.
        let copy = copy || len <= COPIED || piece.kind != OpKind::Put;
        if let Some((held, parts, len)) =
            if copy { None } else { self.held_parts(piece, (address, len), false) }
        {
            let end = End::Does(OnComplete::Held { counter: Arc::clone(piece.counter), held });
            let sent = self.post(piece, to, Data::Gather(&parts), (true, None), end)?;
            trace::count(Counter::PutZeroCopy, posted(sent, len));
            return Ok(posted(sent, len));
        }
        let len = len.min(BUFFER);
        let fill = |buffer: &mut [u8]| buffer[..len].copy_from_slice(&bytes[..len]);
        let Some((index, part)) = self.buffer_part(via, &slots, len, fill) else { return Ok(0) };
        let how = (false, Some(index));
        let sent = self.post(piece, to, Data::Gather(&[part]), how, end(false))?;
        trace::count(Counter::PutBounce, posted(sent, len));
        Ok(posted(sent, len))
    }

    /// Posts the read of the next piece of a get. Returns its length; 0: no room.
    pub(super) fn get_piece<S: Spot>(
        self,
        piece: Piece<'a, '_, S>,
        into: &mut RawTarget,
    ) -> Result<usize, Error> {
        let Some((slots, remote, rkey)) = self.aim(piece) else { return Ok(0) };
        let from = (&slots, Operation::Read { remote, rkey });
        let via = piece.via;
        let counter = || Arc::clone(piece.counter);
        let (sent, len) = if let Some(own) = self.own_part(via, into.address(), into.left) {
            let own = Sge { len: self.cut(piece, into.left), ..own };
            let end = End::Counts { counter: piece.counter, local: true };
            let data = Data::Gather(&[own]);
            trace::count(Counter::GetZeroCopy, own.len as usize);
            (self.post(piece, from, data, (true, None), end)?, own.len as usize)
        } else if let Some((held, parts, len)) = if into.left <= COPIED {
            None
        } else {
            self.held_parts(piece, (into.address(), into.left), true)
        } {
            let end = End::Does(OnComplete::Held { counter: counter(), held });
            trace::count(Counter::GetZeroCopy, len);
            (self.post(piece, from, Data::Gather(&parts), (true, None), end)?, len)
        } else {
            let len = into.left.min(BUFFER);
            let buffer = self.buffer_part(via, &slots, len, |_| {});
            let Some((index, part)) = buffer else { return Ok(0) };
            let target = into.peek(len);
            let end = End::Does(OnComplete::CopyOut { counter: counter(), target, len });
            let data = Data::Gather(&[part]);
            trace::count(Counter::GetBounce, len);
            (self.post(piece, from, data, (true, Some(index)), end)?, len)
        };
        let len = if sent { len } else { 0 };
        into.skip(len);
        Ok(len)
    }

    /// One attempt to write words of a rank's inbox. `Some(false)`: not now; `None`: no connection
    /// takes them with the request.
    pub(super) fn write_inbox(
        self,
        to: Rank,
        inbox: RemoteInbox,
        index: usize,
        words: &[u64],
    ) -> Option<bool> {
        let Some(peer) = self.0.connected(to) else { return Some(false) };
        let mut bytes = [[0; 8]; INBOX_WORDS];
        let bytes = bytes.get_mut(..words.len())?;
        bytes.iter_mut().zip(words).for_each(|(to, word)| *to = word.to_ne_bytes());
        let bytes = bytes.as_flattened();
        // The inbox is known to the first port.
        let found =
            peer.connections.iter().enumerate().find(|(_, connection)| {
                connection.rail == 0 && connection.main.inline >= bytes.len()
            });
        let (index_of, connection) = found?;
        // As for messages of the library: others wait for it.
        let reserve = Reserve { queue_pair: 0, completion_queue: 0 };
        let Some(slots) = Slots::take(self.0.rails.first()?, &connection.main, reserve) else {
            return Some(false);
        };
        let remote = inbox.base.wrapping_add((index * size_of::<u64>()) as u64);
        let operation = Operation::Write { remote, rkey: inbox.rkey };
        let op = PendingOp::plain(OpKind::Flag, to, index_of, false);
        let sent = self.0.post(&slots, operation, Data::Inline(&[bytes]), &op, End::Nothing);
        Some(matches!(sent, Ok(Sent::Yes)))
    }

    pub(super) fn put(
        self,
        (to, place): (Rank, u64),
        source: &mut RawSource<'_>,
        counter: &Arc<OpCounter>,
        list: Option<&PostList<'a>>,
    ) -> Result<Sent, Error> {
        let (start, len) = (place.saturating_add(source.done), source.bytes.len() as u64);
        self.0.segments.check(to, start, len)?;
        let Some(peer) = self.0.connected(to) else { return Ok(Sent::Full) };
        let copy = source.at_once && source.done + len <= self.0.settings.put_bounce;
        while !source.bytes.is_empty() {
            let place = place + source.done;
            let attempt = |via| {
                let piece = Piece { via, kind: OpKind::Put, place, counter, list };
                self.put_piece(piece, source.bytes, copy)
            };
            let len = on_a_connection(peer, first_for(peer, list), attempt)?;
            if len == 0 {
                return Ok(Sent::Full);
            }
            source.bytes = &source.bytes[len..];
            source.done += len as u64;
        }
        Ok(Sent::Yes)
    }

    pub(super) fn get(
        self,
        (from, place): (Rank, u64),
        into: &mut RawTarget,
        counter: &Arc<OpCounter>,
        list: Option<&PostList<'a>>,
    ) -> Result<Sent, Error> {
        let start = place.saturating_add(into.done);
        self.0.segments.check(from, start, into.left as u64)?;
        let Some(peer) = self.0.connected(from) else { return Ok(Sent::Full) };
        while into.left > 0 {
            let place = place + into.done;
            let attempt = |via| {
                let piece = Piece { via, kind: OpKind::Get, place, counter, list };
                self.get_piece(piece, into)
            };
            if on_a_connection(peer, first_for(peer, list), attempt)? == 0 {
                return Ok(Sent::Full);
            }
        }
        Ok(Sent::Yes)
    }
}

/// Tries connections in turn until one takes a piece.
pub(super) fn on_some_connection<'a>(
    peer: &'a Peer,
    attempt: impl FnMut(Via<'a>) -> Result<usize, Error>,
) -> Result<usize, Error> {
    on_a_connection(peer, peer.next_connection(), attempt)
}

/// That of a list that has requests, or the next one.
fn first_for(peer: &Peer, list: Option<&PostList<'_>>) -> usize {
    list.and_then(PostList::connection).unwrap_or_else(|| peer.next_connection())
}

fn on_a_connection<'a>(
    peer: &'a Peer,
    first: usize,
    mut attempt: impl FnMut(Via<'a>) -> Result<usize, Error>,
) -> Result<usize, Error> {
    for step in 0..peer.connections.len() {
        let index = (first + step) % peer.connections.len();
        let len = attempt(Via { peer, index, connection: &peer.connections[index] })?;
        if len > 0 {
            return Ok(len);
        }
    }
    Ok(0)
}
