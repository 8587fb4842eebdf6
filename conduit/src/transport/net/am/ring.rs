//! Requests that are written into a ring of the receiver (`flow/ring.rs`). The completion says where;
//! what stands before the message there is what else its completion would say. The receive that it
//! has used up names no memory and is posted again at once.

use std::cell::Cell;

use fabric::{Data, Operation, Sge};

use super::header::{self, Decoded, FIRST_CLIENT_HANDLER, PREFIX, RING_SOURCES, Shape};
use super::receive::{Poll, Receiver, RecvQp, hand_over};
use super::send::{Draft, Sender};
use crate::trace::{self, Cause};
use crate::transport::message::{ArrivedPayload, MessageClass, ReplyToken, Sink};
use crate::transport::net::error::Error;
use crate::transport::net::flow::ring::Rings;
use crate::transport::net::flow::volume::Place;
use crate::transport::net::memory::pool::{Buffer, RecvInfo};
use crate::transport::net::peer::Connection;
use crate::transport::net::pending_ops::{OnComplete, PendingOp};
use crate::transport::net::post::{Sent, Slots, Via};

/// A request in the ring.
struct Written<'a> {
    rings: &'a Rings,
    place: Place,
    decoded: Decoded,
    /// The message behind its prefix.
    bytes: &'a mut [u8],
}

impl Sender<'_> {
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

    /// Writes a request into the peer's ring.
    #[inline(never)]
    pub(super) fn post_into(
        self,
        rings: &Rings,
        slots: &Slots<'_>,
        imm: u32,
        data: Data<'_>,
        ending: (&PendingOp, Option<OnComplete>),
    ) -> Result<Sent, Error> {
        self.write_into(rings, slots, imm, data, ending)
    }

    /// As [`Sender::post_into`], where what the data are is known to the compiler.
    #[inline(always)]
    pub(super) fn write_into(
        self,
        rings: &Rings,
        slots: &Slots<'_>,
        imm: u32,
        data: Data<'_>,
        (op, end): (&PendingOp, Option<OnComplete>),
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
        let operation = Operation::WriteImm {
            remote: taken.remote,
            rkey: taken.key,
            imm: header::ring_imm(imm, taken.place.start),
        };
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

impl<'a> Receiver<'a> {
    /// A write with immediate data has come; `buffer` is the receive that it has used up.
    #[inline(never)]
    pub(super) fn written<S: Sink + ?Sized>(
        self,
        buffer: Option<Buffer>,
        info: RecvInfo,
        sink: &S,
        what: Poll,
    ) -> Result<(), Error> {
        let Some(buffer) = buffer else {
            let from = self.writer(info)?;
            return Err(self.malformed(from.peer.rank, "a receive that was never posted"));
        };
        if what == Poll::Internal {
            self.0.receive.deferred.put(&self.0.buffers.pool, buffer, info);
            return Ok(());
        }
        self.deliver_written(buffer, info, sink)
    }

    /// As [`Receiver::written`], of one that a poll for something else has set aside.
    #[inline]
    pub(super) fn deliver_written<S: Sink + ?Sized>(
        self,
        buffer: Buffer,
        info: RecvInfo,
        sink: &S,
    ) -> Result<(), Error> {
        let from = self.writer(info)?;
        let peer = from.peer.rank;
        self.repost(from, buffer)?;
        let written = self.read(from.connection, info);
        let Written { rings, place, decoded, bytes } =
            written.map_err(|problem| self.malformed(peer, problem))?;
        self.book(from, &decoded)?;
        let token = ReplyToken {
            source: peer,
            connection: from.index,
            request: true,
            replied: Cell::new(false),
        };
        let ended = || {
            let ended = rings.ended(place, &from.connection.account);
            ended.map_err(|wrong| self.malformed(peer, wrong.to_string()))
        };
        if decoded.head.shape == Shape::Short {
            // Nothing of it is left in the ring.
            ended()?;
            hand_over(&token, &decoded, ArrivedPayload::None, sink);
        } else {
            let payload = self.arrival(&token, &decoded, bytes)?;
            let stays = matches!(payload, ArrivedPayload::Medium(_));
            if !stays {
                ended()?;
            }
            hand_over(&token, &decoded, payload, sink);
            if stays {
                ended()?;
            }
        }
        let account = &from.connection.account;
        let due = !token.replied.get() && account.bank();
        if due || rings.is_due(account) {
            self.0.ack_if_due(from.peer, from.index)?;
        }
        Ok(())
    }

    /// Whose request it is.
    fn writer(self, info: RecvInfo) -> Result<RecvQp<'a>, Error> {
        self.recv_qp(header::ring_source(info.imm), RING_SOURCES, info)
    }

    /// Checks a request and its place.
    #[inline(always)]
    fn read(self, connection: &'a Connection, info: RecvInfo) -> Result<Written<'a>, String> {
        let RecvInfo { imm, len, .. } = info;
        let rings = connection.flow.rings();
        let rings = rings.ok_or("a write into a ring, and there is none")?;
        let start = header::ring_start(imm);
        let inside = rings.bytes(start, len);
        let bytes = inside.ok_or_else(|| {
            format!("a request of {len} bytes at unit {start}, outside its place in the ring")
        })?;
        let short = || format!("a request of {len} bytes, shorter than what stands before it");
        let (own, number, message) = header::split_prefix(bytes).ok_or_else(short)?;
        let handler = header::handler_of(own);
        let agrees = handler == header::handler_of(imm) && !header::is_reply(own);
        if !agrees || handler < FIRST_CLIENT_HANDLER {
            return Err(format!(
                "a request for handler {handler} in a ring, announced as {imm:#x}"
            ));
        }
        let decoded = header::decode(own, message).map_err(|wrong| wrong.to_string())?;
        let place = rings.arrived(number, start, len).map_err(|wrong| wrong.to_string())?;
        Ok(Written { rings, place, decoded, bytes: &mut bytes[PREFIX..] })
    }
}
