//! Requests that are written into a ring of the receiver (`flow/ring.rs`). The completion says where;
//! what stands before the message there is what else its completion would say. The receive that it
//! has used up names no memory and is posted again at once.

use std::cell::Cell;

use bootstrap::Rank;
use fabric::{Data, Operation, Sge};

use super::acks::AcksOfBatch;
use super::draft::Draft;
use super::header::{self, Decoded, Encoded, FIRST_CLIENT_HANDLER, PREFIX, RING_SOURCES, Shape};
use super::polls::Poll;
use super::receive::{Receiver, hand_over};
use super::send::{Sender, pending_op};
use crate::trace::{self, Cause};
use crate::transport::message::{ArrivedPayload, MessageClass, ReplyToken, Sink};
use crate::transport::net::credits::Carried;
use crate::transport::net::error::Error;
use crate::transport::net::flow::ring::{Rings, Taken};
use crate::transport::net::flow::volume::Place;
use crate::transport::net::memory::lists::RecvInfo;
use crate::transport::net::memory::pool::Buffer;
use crate::transport::net::pending_ops::{End, PendingOp};
use crate::transport::net::post::{Reserve, Sent, Slots, Via};
use crate::transport::net::rail::{RESERVED_CQ_SLOTS, Shared};
use crate::transport::net::recv_buffers::EMPTY_RECEIVE;

impl<'a> Sender<'a> {
    /// Whether a message has room in the peer's ring, if it goes there: nothing is copied or written
    /// before it when not.
    pub(super) fn has_room(self, via: Via<'_>, draft: &Draft<'_>) -> bool {
        let rings = via.connection.flow.rings();
        rings.filter(|_| draft.class == MessageClass::Request).is_none_or(|rings| {
            let len = PREFIX + draft.longest_header() + draft.shape.carried();
            let fits = rings.fits(u32::try_from(len).unwrap_or(u32::MAX));
            if !fits {
                trace::lacks(Cause::Credit);
            }
            fits
        })
    }

    /// A Short that is a request, into a ring: its class and category are known to the compiler, and
    /// that requests have a queue pair of their own.
    #[inline(never)]
    pub(super) fn short_into(
        self,
        rings: &Rings,
        via: Via<'a>,
        call: (u8, &[i32]),
    ) -> Result<Sent, Error> {
        let connection = via.connection;
        // Each use has its own, so that it is in memory for `copied` alone.
        let draft = || Draft::new(MessageClass::Request, call.0, call.1, Shape::Short);
        let send_qp = connection.requests.as_ref();
        let Some(requests) = send_qp.filter(|it| draft().longest_header() <= it.inline) else {
            return self.copied(via, &draft(), &[]);
        };
        let reserve = Reserve { queue_pair: 0, completion_queue: RESERVED_CQ_SLOTS };
        let rail = &self.0.rails[connection.rail];
        let Some(slots) = Slots::take_for_message(rail, requests, reserve) else {
            trace::lacks(Cause::RequestQueue);
            return Ok(Sent::Full);
        };
        let mut encoded = Encoded::EMPTY;
        let carried = self.encode_into(&mut encoded, connection, &draft());
        let op = PendingOp { for_requests: true, ..pending_op(via, &draft(), None, false) };
        match self.write_short(rings, &slots, (encoded.imm, encoded.bytes()), &op) {
            Ok(Sent::Yes) => Ok(Sent::Yes),
            sent => {
                connection.account.uncarry(carried);
                sent.map_err(|error| *error)
            }
        }
    }

    /// Writes a Short that goes inline into the peer's ring.
    #[inline(always)]
    fn write_short(
        self,
        rings: &Rings,
        slots: &Slots<'_>,
        (imm, message): (u32, &[u8]),
        op: &PendingOp,
    ) -> Result<Sent, Box<Error>> {
        let Some(taken) = rings.take(u32::try_from(PREFIX + message.len()).unwrap_or(u32::MAX))
        else {
            trace::lacks(Cause::Credit);
            slots.give_back();
            return Ok(Sent::Full);
        };
        let operation = taken.write(imm);
        let prefix = header::prefix(imm, taken.place.number);
        let sent = self.0.post_numbered(slots, operation, Data::Inline(&[&prefix, message]), op);
        if let Ok(Sent::Yes) = sent {
            return Ok(Sent::Yes);
        }
        taken.undo();
        sent
    }

    /// Writes another request into the peer's ring.
    #[inline(never)]
    pub(super) fn post_into(
        self,
        rings: &Rings,
        slots: &Slots<'_>,
        imm: u32,
        data: Data<'_>,
        (op, end): (&PendingOp, End<'_>),
    ) -> Result<Sent, Error> {
        let len = match data {
            Data::Inline(parts) => parts.iter().map(|part| part.len()).sum(),
            Data::Gather(pieces) => pieces.iter().map(|piece| piece.len as usize).sum::<usize>(),
        };
        let Some(taken) = rings.take(u32::try_from(PREFIX + len).unwrap_or(u32::MAX)) else {
            trace::lacks(Cause::Credit);
            slots.give_back();
            return Ok(Sent::Full);
        };
        let operation = taken.write(imm);
        let prefix = header::prefix(imm, taken.place.number);
        let sent = match data {
            Data::Inline(parts) => {
                let (head, payload) = (parts.first(), parts.get(1));
                let parts = [&prefix, *head.unwrap_or(&&[][..]), *payload.unwrap_or(&&[][..])];
                let parts = if payload.is_some() { &parts[..] } else { &parts[..2] };
                self.0.post(slots, operation, Data::Inline(parts), op, end)
            }
            Data::Gather(pieces) => {
                let mut both = [Sge::default(); 2];
                for (to, from) in both.iter_mut().zip(pieces) {
                    *to = *from;
                }
                self.prepend(op, &mut both[0], &prefix);
                self.0.post(slots, operation, Data::Gather(&both[..pieces.len().min(2)]), op, end)
            }
        };
        if let Ok(Sent::Yes) = sent {
            return Ok(Sent::Yes);
        }
        taken.undo();
        sent
    }

    /// Puts bytes before a message in a send buffer, which is lent.
    fn prepend(self, op: &PendingOp, first: &mut Sge, prefix: &[u8; PREFIX]) {
        let pool = &self.0.buffers.pool;
        let Some(mut buffer) = op.buffer.and_then(|index| pool.reclaim(index)) else { return };
        let start = pool.piece(&buffer, 0, 0, 0).addr;
        let at = usize::try_from(first.addr - start).ok().and_then(|at| at.checked_sub(PREFIX));
        if let Some(place) = at.and_then(|at| pool.bytes(&mut buffer).get_mut(at..at + PREFIX)) {
            place.copy_from_slice(prefix);
            first.addr -= PREFIX as u64;
            first.len += u32::try_from(PREFIX).unwrap_or(0);
        }
        pool.lend(buffer);
    }
}

impl Taken<'_> {
    /// The operation that writes a message of this immediate data.
    #[inline(always)]
    const fn write(&self, imm: u32) -> Operation {
        let imm = header::ring_imm(imm, self.place.start);
        Operation::WriteImm { remote: self.remote, rkey: self.key, imm }
    }
}

impl<'a> Receiver<'a> {
    /// A write with immediate data has come; `id`: of the receive that it has used up.
    #[inline(never)]
    pub(super) fn written<S: Sink + ?Sized>(
        self,
        id: u64,
        info: RecvInfo,
        sink: &S,
        what: Poll,
        acks: &mut AcksOfBatch<'a>,
    ) -> Result<(), Error> {
        let from = self.recv_qp(header::ring_source(info.imm), RING_SOURCES, info)?.via;
        let shared = self.0.rails[from.connection.rail].shared.as_ref();
        let Some(shared) = shared.filter(|_| id == EMPTY_RECEIVE) else {
            return Err(self.malformed(from.peer.rank, "a write beside its ring"));
        };
        if what == Poll::Internal {
            return self.note(from, shared, info);
        }
        let posted = self.0.post_empty(&*shared.requests);
        posted
            .or_else(|error| self.0.not_reposted((from.peer.rank, from.connection.rail), error))?;
        self.deliver_written(from, info, sink, acks)
    }

    /// Sets a request aside for a later poll: its receive is posted again then, so there is a row for
    /// each that may come until that.
    #[cold]
    fn note(self, from: Via<'a>, shared: &Shared, info: RecvInfo) -> Result<(), Error> {
        let pool = &self.0.buffers.pool;
        let Some(row) = shared.notes.take(pool, 0) else {
            return Err(self.malformed(from.peer.rank, "more writes than receives"));
        };
        self.0.receive.deferred.put(pool, row, info);
        Ok(())
    }

    /// A request that was set aside, and its row.
    #[cold]
    pub(super) fn deliver_noted<S: Sink + ?Sized>(
        self,
        row: Buffer,
        info: RecvInfo,
        sink: &S,
        acks: &mut AcksOfBatch<'a>,
    ) -> Result<(), Error> {
        let rail = &self.0.rails[info.rail as usize];
        if let Some(shared) = &rail.shared {
            shared.notes.put(&self.0.buffers.pool, row);
        }
        self.written(EMPTY_RECEIVE, info, sink, Poll::All, acks)
    }

    #[inline(always)]
    fn deliver_written<S: Sink + ?Sized>(
        self,
        from: Via<'a>,
        info: RecvInfo,
        sink: &S,
        acks: &mut AcksOfBatch<'a>,
    ) -> Result<(), Error> {
        let peer = from.peer.rank;
        let Some(rings) = from.connection.flow.rings() else {
            return Err(self.malformed(peer, "a write into a ring, and there is none"));
        };
        let (own, number, bytes) = self.inside(peer, rings, info)?;
        let decoded = header::decode(own, &bytes[PREFIX..])
            .map_err(|wrong| self.malformed(peer, wrong.to_string()))?;
        let place = rings.arrived(number, header::ring_start(info.imm), info.len);
        let place = place.map_err(|wrong| self.malformed(peer, wrong.to_string()))?;
        // Few requests carry something.
        if decoded.head.carried != Carried::default() {
            self.book(from, &decoded)?;
        }
        let token = ReplyToken { from, request: true, replied: Cell::new(false) };
        if decoded.head.shape == Shape::Short {
            // Nothing of it is left in the ring.
            self.ended(from, rings, place)?;
            hand_over(&token, &decoded, ArrivedPayload::None, sink);
        } else {
            let bytes = &mut bytes[PREFIX..];
            self.deliver_loaded(from, &token, (rings, place), (&decoded, bytes), sink)?;
        }
        let account = &from.connection.account;
        let due = !token.replied.get() && account.bank();
        if rings.is_due(account) {
            self.0.ack_if_due(from.peer, from.index)?;
        } else if due {
            acks.note(self.0, from)?;
        }
        Ok(())
    }

    /// A request with a payload, which may stay where it came until its handler has ended.
    #[inline(never)]
    fn deliver_loaded<S: Sink + ?Sized>(
        self,
        from: Via<'a>,
        token: &ReplyToken<'_>,
        (rings, place): (&Rings, Place),
        (decoded, bytes): (&Decoded, &mut [u8]),
        sink: &S,
    ) -> Result<(), Error> {
        let payload = self.arrival(token, decoded, bytes)?;
        let stays = matches!(payload, ArrivedPayload::Medium(_));
        if !stays {
            self.ended(from, rings, place)?;
        }
        hand_over(token, decoded, payload, sink);
        if stays {
            self.ended(from, rings, place)?;
        }
        Ok(())
    }

    /// The place of a request may be used again.
    #[inline(always)]
    fn ended(self, from: Via<'a>, rings: &Rings, place: Place) -> Result<(), Error> {
        let ended = rings.ended(place, &from.connection.account);
        ended.map_err(|wrong| self.malformed(from.peer.rank, wrong.to_string()))
    }

    /// What stands before a request (its immediate data and number), checked; and all its bytes.
    #[inline(always)]
    fn inside(
        self,
        peer: Rank,
        rings: &'a Rings,
        RecvInfo { imm, len, .. }: RecvInfo,
    ) -> Result<(u32, u32, &'a mut [u8]), Error> {
        let start = header::ring_start(imm);
        let Some(bytes) = rings.bytes(start, len) else {
            let problem =
                format!("a request of {len} bytes at unit {start}, outside its place in the ring");
            return Err(self.malformed(peer, problem));
        };
        let Some((own, number, _)) = header::split_prefix(bytes) else {
            let problem = format!("a request of {len} bytes, shorter than what stands before it");
            return Err(self.malformed(peer, problem));
        };
        let handler = header::handler_of(own);
        let agrees = handler == header::handler_of(imm) && !header::is_reply(own);
        if !agrees || handler < FIRST_CLIENT_HANDLER {
            let problem =
                format!("a request for handler {handler} in a ring, announced as {imm:#x}");
            return Err(self.malformed(peer, problem));
        }
        Ok((own, number, bytes))
    }
}
