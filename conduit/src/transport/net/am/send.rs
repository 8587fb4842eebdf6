//! Sending messages. What a message needs is taken in a fixed order and given back when something
//! is missing: connection, credits, queue slots, buffer; nothing is waited for while something is
//! held, except by the payload of an unpacked Long, which holds a credit.

use std::sync::Arc;

use fabric::{Data, Operation, Sge};

use super::draft::Draft;
use super::header::{self, BUFFER, Encoded, Head, PAYLOAD_AT, PREFIX, Shape};
use crate::trace::{self, Cause};
use crate::transport::limits::max_long_alloc;
use crate::transport::message::{AmMessage, AmPayload, MessageClass, ReplyToken, ZeroCopy};
use crate::transport::neighbours::remote_rank;
use crate::transport::net::context::NetContext;
use crate::transport::net::credits::Carried;
use crate::transport::net::error::Error;
use crate::transport::net::flow::of_connection::Flow;
use crate::transport::net::memory::buffers::RESERVED_BUFFERS;
use crate::transport::net::memory::pool::Buffer;
use crate::transport::net::peer::{Connection, Peer, SendQp};
use crate::transport::net::pending_ops::{End, OpKind, PendingOp};
use crate::transport::net::post::{Reserve, Sent, Slots, Via};
use crate::transport::net::rail::{RESERVED_CQ_SLOTS, Rail};
use crate::transport::net::rma::{OneSided, Piece};
use crate::transport::net::settings::sizes::RESERVED_SQ_SLOTS;
use crate::transport::op_counter::OpCounter;

const _: () = assert!(BUFFER > 2 * PAYLOAD_AT);

/// Whether a message may use what is reserved for messages that others wait for.
const fn is_urgent(class: MessageClass) -> bool {
    !matches!(class, MessageClass::Request)
}

#[derive(Clone, Copy)]
pub(crate) struct Sender<'a>(pub(crate) &'a NetContext);

impl<'a> Sender<'a> {
    /// One attempt to send a message that is no reply, to a peer that may be unconnected.
    #[inline(always)]
    pub(crate) fn try_message(self, message: &AmMessage<'_>) -> Result<Sent, Box<Error>> {
        let to = remote_rank(message.target);
        let Some(peer) = to.and_then(|to| self.0.connected(to)) else { return Ok(Sent::Full) };
        if let (MessageClass::Request, AmPayload::None, [connection]) =
            (message.class, message.payload, &peer.connections[..])
        {
            let via = Via { peer, index: 0, connection };
            if self.short_request(via, message.handler, message.args) {
                return Ok(Sent::Yes);
            }
        }
        self.to_peer(peer, None, message.class, message)
    }

    /// A reply to the message of a token. Waits for completions of sends.
    #[inline(always)]
    pub(crate) fn reply(
        self,
        token: &ReplyToken<'_>,
        message: &AmMessage<'_>,
    ) -> Result<Sent, Box<Error>> {
        let via = token.from;
        let Via { peer, index, connection } = via;
        let is_plain = connection.is_plain && peer.is_open();
        if matches!(message.payload, AmPayload::None)
            && is_plain
            && self.plain_short(via, MessageClass::Reply, message.handler, message.args)
        {
            return Ok(Sent::Yes);
        }
        self.reply_in_turn(peer, index, message)
    }

    /// As [`Sender::reply`], waiting for what is missing.
    #[inline(never)]
    fn reply_in_turn(
        self,
        peer: &'a Peer,
        connection: usize,
        message: &AmMessage<'_>,
    ) -> Result<Sent, Box<Error>> {
        let connection = Some(connection);
        loop {
            // Where the handshake is not complete yet, it is asked for.
            if (peer.is_open() || self.0.connected(peer.rank).is_some())
                && self.to_peer(peer, connection, MessageClass::Reply, message)? == Sent::Yes
            {
                return Ok(Sent::Yes);
            }
            if !self.0.await_sends()? {
                return Ok(Sent::Full);
            }
        }
    }

    /// Returns the credits that are banked on a connection.
    pub(crate) fn ack(self, peer: &'a Peer, index: usize) -> Result<Sent, Error> {
        let via = Via { peer, index, connection: &peer.connections[index] };
        self.short(via, &Draft::ack())
    }

    /// Tells a peer about credits that move.
    #[cold]
    pub(crate) fn about_credits(
        self,
        peer: &'a Peer,
        index: usize,
        args: &[i32],
    ) -> Result<Sent, Error> {
        let via = Via { peer, index, connection: &peer.connections[index] };
        self.short(via, &Draft { args, ..Draft::ack() })
    }

    /// One attempt to send a message; on the connection that is given, or on any.
    #[inline(never)]
    fn to_peer(
        self,
        peer: &'a Peer,
        connection: Option<usize>,
        class: MessageClass,
        message: &AmMessage<'_>,
    ) -> Result<Sent, Box<Error>> {
        let sent = if matches!(message.payload, AmPayload::None) {
            let draft = Draft::new(class, message.handler, message.args, Shape::Short);
            self.on_connections(peer, connection, class, |via| self.short(via, &draft))
        } else {
            self.on_connections(peer, connection, class, |via| self.loaded(via, class, message))
        };
        sent.map_err(Box::new)
    }

    /// Sends on the connection that is given, or on the first that has what is needed.
    #[inline(always)]
    fn on_connections(
        self,
        peer: &'a Peer,
        only: Option<usize>,
        class: MessageClass,
        mut send: impl FnMut(Via<'a>) -> Result<Sent, Error>,
    ) -> Result<Sent, Error> {
        let (first, count) = match only {
            Some(index) => (index, 1),
            None => (peer.next_connection(), peer.connections.len()),
        };
        for step in 0..count {
            let index = if count == 1 { first } else { (first + step) % count };
            let Some(connection) = peer.connections.get(index) else { break };
            if !self.take_credits((peer.rank, connection), class) {
                continue;
            }
            let sent = send(Via { peer, index, connection });
            // Not as `sent`, which has room for an error and would be copied.
            if let Ok(Sent::Yes) = sent {
                return Ok(Sent::Yes);
            }
            self.give_credits_back(connection, class);
            if !matches!(sent, Ok(Sent::Full)) {
                return sent;
            }
        }
        Ok(Sent::Full)
    }

    #[inline(always)]
    fn short(self, via: Via<'a>, draft: &Draft<'_>) -> Result<Sent, Error> {
        if let (Flow::Rings(rings), MessageClass::Request) = (&via.connection.flow, draft.class) {
            return self.short_into(rings, via, (draft.handler, draft.args));
        }
        self.short_by(via, draft)
    }

    /// A Short as a message.
    #[inline(always)]
    fn short_by(self, via: Via<'a>, draft: &Draft<'_>) -> Result<Sent, Error> {
        if draft.longest_header() > send_qp_for(via.connection, draft.class).inline {
            return self.copied(via, draft, &[]);
        }
        let Some(slots) = self.slots_of(via, draft) else { return Ok(Sent::Full) };
        let (encoded, carried) = self.encode(via.connection, draft);
        let op = pending_op(via, draft, None, false);
        let (imm, data) = (encoded.imm, Data::Inline(&[encoded.bytes()]));
        let sent = self.0.post(&slots, Operation::Send { imm: Some(imm) }, data, &op, End::Nothing);
        if let Ok(Sent::Yes) = sent {
            return Ok(Sent::Yes);
        }
        via.connection.account.uncarry(carried);
        sent
    }

    /// An admitted message with a payload.
    #[expect(clippy::cast_possible_truncation, reason = "lengths were checked")]
    #[inline(never)]
    fn loaded(
        self,
        via: Via<'a>,
        class: MessageClass,
        message: &AmMessage<'_>,
    ) -> Result<Sent, Error> {
        let (handler, args) = (message.handler, message.args);
        let draft = |shape| Draft::new(class, handler, args, shape);
        let shape = |payload: &[u8], dest: Option<u64>| match (payload.len() as u32, dest) {
            (len, None) => Shape::Medium { len },
            (len, Some(dest)) => Shape::Long { dest, len, packed: self.packs(payload, args.len()) },
        };
        match message.payload {
            // Blocks and placed payloads are of shared memory.
            AmPayload::None | AmPayload::Block { .. } | AmPayload::Placed { .. } => {
                self.copied(via, &draft(Shape::Short), &[])
            }
            AmPayload::Medium(payload) => self.copied(via, &draft(shape(payload, None)), payload),
            AmPayload::Long { payload, dest } => {
                let draft = draft(shape(payload, Some(dest)));
                match draft.shape {
                    Shape::Long { packed: false, .. } => {
                        self.unpacked(via, &draft, (payload, dest), None)
                    }
                    _ => self.copied(via, &draft, payload),
                }
            }
            AmPayload::ZeroCopy(&ZeroCopy { payload, dest, completion }) => {
                let draft = draft(shape(payload, dest));
                match draft.shape {
                    Shape::Long { packed: false, dest, .. } => {
                        self.unpacked(via, &draft, (payload, dest), Some(completion))
                    }
                    _ if self.gathers(payload) => self.gathered(via, &draft, payload, completion),
                    _ => self.copied(via, &draft, payload),
                }
            }
            AmPayload::SendBuffer { buffer, len, dest } => {
                let draft = draft(match dest {
                    None => Shape::Medium { len },
                    Some(dest) => Shape::Long { dest, len, packed: true },
                });
                let prepared = buffer.take();
                let sent = prepared
                    .and_then(|prepared| prepared.send(|own| self.filled(via, &draft, own)));
                let Some((sent, back)) = sent else { return Ok(Sent::Full) };
                buffer.set(back);
                sent
            }
        }
    }

    /// Takes the slots that a message of a class needs.
    #[inline]
    fn slots(self, via: Via<'a>, class: MessageClass) -> Option<Slots<'a>> {
        self.slots_by(via, class, Slots::take)
    }

    /// As [`Sender::slots`], for one that goes inline: its end gives back nothing but slots, or the
    /// permit of a message of the library.
    #[inline(always)]
    fn slots_of(self, via: Via<'a>, draft: &Draft<'_>) -> Option<Slots<'a>> {
        match draft.kind {
            OpKind::Internal => self.slots_by(via, draft.class, Slots::take),
            _ => self.slots_by(via, draft.class, Slots::take_for_message),
        }
    }

    #[inline(always)]
    fn slots_by(
        self,
        via: Via<'a>,
        class: MessageClass,
        take: impl FnOnce(&'a Rail, &'a SendQp, Reserve) -> Option<Slots<'a>>,
    ) -> Option<Slots<'a>> {
        let connection = via.connection;
        let split = connection.requests.is_some() && class == MessageClass::Request;
        let reserve = Self::reserve(class, split);
        let rail = &self.0.rails[connection.rail];
        let slots = take(rail, send_qp_for(connection, class), reserve);
        if split && slots.is_none() {
            trace::lacks(Cause::RequestQueue);
        }
        slots
    }

    /// What a message of a class leaves to others; `split`: of a request whose queue pair is for
    /// requests alone.
    #[inline(always)]
    pub(super) const fn reserve(class: MessageClass, split: bool) -> Reserve {
        Reserve {
            queue_pair: if is_urgent(class) || split { 0 } else { RESERVED_SQ_SLOTS },
            completion_queue: if is_urgent(class) { 0 } else { RESERVED_CQ_SLOTS },
        }
    }

    /// As [`Sender::slots`], with a send buffer.
    fn slots_and_buffer(self, via: Via<'a>, class: MessageClass) -> Option<(Slots<'a>, Buffer)> {
        let slots = self.slots(via, class)?;
        let reserve = if is_urgent(class) { 0 } else { RESERVED_BUFFERS };
        let buffer = self.0.buffers.take_send(reserve);
        if buffer.is_none() {
            slots.give_back();
        }
        Some((slots, buffer?))
    }

    /// The header, with the credits that it carries.
    #[inline(always)]
    fn encode(self, connection: &Connection, draft: &Draft<'_>) -> (Encoded, Carried) {
        let mut encoded = Encoded::EMPTY;
        let carried = self.encode_into(&mut encoded, connection, draft);
        (encoded, carried)
    }

    #[inline(always)]
    pub(super) fn encode_into(
        self,
        encoded: &mut Encoded,
        connection: &Connection,
        draft: &Draft<'_>,
    ) -> Carried {
        let carried = connection.account.carry();
        let head = Head {
            source: self.0.source(),
            handler: draft.handler,
            reply: matches!(draft.class, MessageClass::Reply),
            carried,
            shape: draft.shape,
        };
        header::encode_into(encoded, &head, draft.args);
        carried
    }

    /// Inline when it is small, else by a copy in a send buffer.
    pub(super) fn copied(
        self,
        via: Via<'a>,
        draft: &Draft<'_>,
        payload: &[u8],
    ) -> Result<Sent, Error> {
        let connection = via.connection;
        let inline = send_qp_for(connection, draft.class).inline;
        if draft.longest_header() + payload.len() <= inline {
            let Some(slots) = self.slots_of(via, draft) else { return Ok(Sent::Full) };
            let (encoded, carried) = self.encode(connection, draft);
            let parts = [encoded.bytes(), payload];
            let parts = if payload.is_empty() { &parts[..1] } else { &parts[..] };
            let op = pending_op(via, draft, None, false);
            let data = Data::Inline(parts);
            return self.post(via, &slots, (encoded.imm, carried), data, &op, End::Nothing);
        }
        if !self.has_room(via, draft) {
            return Ok(Sent::Full);
        }
        let Some((slots, mut buffer)) = self.slots_and_buffer(via, draft.class) else {
            return Ok(Sent::Full);
        };
        let (encoded, carried) = self.encode(connection, draft);
        let head = encoded.bytes();
        let len = head.len() + payload.len();
        let pool = &self.0.buffers.pool;
        let bytes = &mut pool.bytes(&mut buffer)[PREFIX..];
        bytes[..head.len()].copy_from_slice(head);
        bytes[head.len()..len].copy_from_slice(payload);
        let piece = pool.piece(&buffer, connection.rail, PREFIX, u32::try_from(len).unwrap_or(0));
        let message = (encoded.imm, carried);
        self.post_buffer(via, draft, &slots, message, &[piece], buffer, End::Nothing)
    }

    /// Whether a Long goes in one message.
    fn packs(self, payload: &[u8], nargs: usize) -> bool {
        payload.len() <= max_long_alloc(nargs).min(self.0.settings.packed_long as usize)
    }

    /// Whether devices can read a payload where it is.
    fn is_own(self, payload: &[u8]) -> bool {
        self.0.segments.is_own(payload)
    }

    /// Whether a payload need not be copied behind its header.
    pub(crate) fn gathers(self, payload: &[u8]) -> bool {
        let least = self.0.settings.gather_min;
        least.is_some_and(|least| payload.len() >= least as usize)
            && !payload.is_empty()
            && self.is_own(payload)
    }

    /// Whether the payload of a Long may be in use when the call returns.
    pub(crate) fn keeps_long(self, payload: &[u8], nargs: usize, reply: bool) -> bool {
        if self.packs(payload, nargs) {
            return self.gathers(payload);
        }
        // On another queue pair the header waits for the payload.
        (reply || self.0.plan.sizes.srq.is_none()) && self.is_own(payload)
    }

    /// The header from a send buffer, the payload from the own segment.
    fn gathered(
        self,
        via: Via<'a>,
        draft: &Draft<'_>,
        payload: &[u8],
        completion: &Arc<OpCounter>,
    ) -> Result<Sent, Error> {
        let rail = via.connection.rail;
        let Some((slots, mut buffer)) = self.slots_and_buffer(via, draft.class) else {
            return Ok(Sent::Full);
        };
        let (encoded, carried) = self.encode(via.connection, draft);
        let head = encoded.bytes();
        let pool = &self.0.buffers.pool;
        pool.bytes(&mut buffer)[PREFIX..PREFIX + head.len()].copy_from_slice(head);
        let first = pool.piece(&buffer, rail, PREFIX, u32::try_from(head.len()).unwrap_or(0));
        let (address, len) = (payload.as_ptr().addr(), payload.len());
        let lkey = self.0.segments.own_key((rail, &self.0.rails[rail]), address, len);
        let second = Sge {
            addr: address as u64,
            len: u32::try_from(len).unwrap_or(0),
            lkey: lkey.unwrap_or_default(),
        };
        let end = End::Counts { counter: completion, local: true };
        completion.begin(true);
        let message = (encoded.imm, carried);
        let pieces = [first, second];
        let sent = self.post_buffer(via, draft, &slots, message, &pieces, buffer, end);
        if !matches!(sent, Ok(Sent::Yes)) {
            completion.end(true);
        }
        sent
    }

    /// The payload is in a library buffer, behind room for the longest header. Gives the buffer
    /// back when it was not sent.
    fn filled(
        self,
        via: Via<'a>,
        draft: &Draft<'_>,
        mut buffer: Buffer,
    ) -> (Result<Sent, Error>, Option<Buffer>) {
        let Some(slots) = self.slots(via, draft.class) else {
            return (Ok(Sent::Full), Some(buffer));
        };
        let (encoded, carried) = self.encode(via.connection, draft);
        let head = encoded.bytes();
        let from = PAYLOAD_AT - head.len();
        let pool = &self.0.buffers.pool;
        pool.bytes(&mut buffer)[from..PAYLOAD_AT].copy_from_slice(head);
        let len = u32::try_from(head.len() + draft.shape.carried()).unwrap_or(0);
        let piece = pool.piece(&buffer, via.connection.rail, from, len);
        let index = pool.lend(buffer);
        let op = pending_op(via, draft, Some(index), false);
        let data = Data::Gather(&[piece]);
        let sent = self.post(via, &slots, (encoded.imm, carried), data, &op, End::Nothing);
        let back = match sent {
            Ok(Sent::Yes) => None,
            _ => pool.reclaim(index),
        };
        (sent, back)
    }

    /// Posts a message in a send buffer, which goes back when it was not posted.
    #[expect(clippy::too_many_arguments, reason = "all that a message is made of")]
    fn post_buffer(
        self,
        via: Via<'a>,
        draft: &Draft<'_>,
        slots: &Slots<'_>,
        message: (u32, Carried),
        pieces: &[Sge],
        buffer: Buffer,
        end: End<'_>,
    ) -> Result<Sent, Error> {
        let index = Some(self.0.buffers.pool.lend(buffer));
        let op = pending_op(via, draft, index, !matches!(end, End::Nothing));
        let sent = self.post(via, slots, message, Data::Gather(pieces), &op, end);
        if !matches!(sent, Ok(Sent::Yes)) {
            self.0.buffers.reclaim_send(index);
        }
        sent
    }

    /// Posts a message by its immediate data; when it is not posted, the credits that it carried
    /// stay here.
    #[inline(always)]
    fn post(
        self,
        via: Via<'a>,
        slots: &Slots<'_>,
        (imm, carried): (u32, Carried),
        data: Data<'_>,
        op: &PendingOp,
        end: End<'_>,
    ) -> Result<Sent, Error> {
        let sent = match &via.connection.flow {
            Flow::Rings(rings) if op.for_requests => {
                self.post_into(rings, slots, imm, data, (op, end))
            }
            _ => self.0.post(slots, Operation::Send { imm: Some(imm) }, data, op, end),
        };
        if !matches!(sent, Ok(Sent::Yes)) {
            via.connection.account.uncarry(carried);
        }
        sent
    }

    /// Writes the payload of a Long, then sends its header. Waits until the device has taken the
    /// payload, unless it is copied (`GASNET_NONBULKPUT_BOUNCE_LIMIT`), or there is a counter and
    /// the payload is in the own segment.
    fn unpacked(
        self,
        via: Via<'a>,
        draft: &Draft<'_>,
        (payload, dest): (&[u8], u64),
        later: Option<&Arc<OpCounter>>,
    ) -> Result<Sent, Error> {
        // On another queue pair the header could overtake the payload.
        let split = via.connection.requests.is_some() && draft.class == MessageClass::Request;
        let own = Arc::new(OpCounter::default());
        let later = later.filter(|_| !split && self.is_own(payload));
        let counter = later.unwrap_or(&own);
        // Otherwise the call waits for the device; the header waits longer on another queue pair.
        let copy = later.is_none() && !split && payload.len() as u64 <= self.0.settings.put_bounce;
        if !self.has_room(via, draft) {
            return Ok(Sent::Full);
        }
        let mut stall = None;
        let mut done = 0;
        while done < payload.len() {
            let (bytes, place) = (&payload[done..], dest + done as u64);
            let piece = Piece { via, kind: OpKind::LongPayload, place, counter, list: None };
            let posted = OneSided(self.0).put_piece(piece, bytes, copy)?;
            done += posted;
            if posted == 0 && !self.0.await_unless_stalled(&mut stall)? {
                return Ok(Sent::Full);
            }
        }
        while (split && !own.is_complete()) || !own.is_local_complete() {
            if !self.0.await_unless_stalled(&mut stall)? {
                return Ok(Sent::Full);
            }
        }
        // The payload is there: what is missing for the header comes with completions of sends.
        loop {
            if self.copied(via, draft, &[])? == Sent::Yes {
                return Ok(Sent::Yes);
            }
            if !self.0.await_unless_stalled(&mut stall)? {
                return Ok(Sent::Full);
            }
        }
    }
}

/// The queue pair that a message of a class leaves on.
#[inline]
fn send_qp_for(connection: &Connection, class: MessageClass) -> &SendQp {
    connection.send_qp(matches!(class, MessageClass::Request))
}

#[inline(always)]
pub(super) const fn pending_op(
    via: Via<'_>,
    draft: &Draft<'_>,
    buffer: Option<u32>,
    has_end: bool,
) -> PendingOp {
    PendingOp {
        kind: draft.kind,
        peer: via.peer.rank,
        connection: via.index,
        for_requests: matches!(draft.class, MessageClass::Request)
            && via.connection.requests.is_some(),
        buffer,
        has_end,
    }
}
