//! Sending messages. What a message needs is taken in a fixed order and given back when something is missing:
//! connection, credits, queue slots, buffer; nothing is waited for while something is held, except by the payload of an
//! unpacked Long, which holds a credit.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bootstrap::Rank;
use fabric::{Data, Operation, PostError, SendWr, Sge};

use super::header::{self, ACK, BUFFER, Encoded, Head, MAX_HEADER, Shape};
use crate::transport::message::{
    AmMessage, AmPayload, MessageClass, ReplyToken, ZeroCopy, max_long_alloc,
};
use crate::transport::neighbours::remote_rank;
use crate::transport::net::context::{Kind, NetContext, OnComplete, PendingOp, RESERVED_BUFFERS};
use crate::transport::net::memory::pool::Buffer;
use crate::transport::net::peer::{Connection, Peer, SendQp};
use crate::transport::net::rail::RESERVED_CQ_SLOTS;
use crate::transport::net::setup::RESERVED_SQ_SLOTS;
use crate::transport::net::{Error, OpCounter, Sent, deadlines};

/// Why a message goes out; decides what it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Request,
    Reply,
    Internal,
    Ack,
}

impl Class {
    const fn of(class: MessageClass) -> Self {
        match class {
            MessageClass::Request => Self::Request,
            MessageClass::Reply => Self::Reply,
            MessageClass::Internal => Self::Internal,
        }
    }

    const fn kind(self) -> Kind {
        match self {
            Self::Request | Self::Reply => Kind::Message,
            Self::Internal => Kind::Internal,
            Self::Ack => Kind::Ack,
        }
    }

    /// Whether it may use what is kept for messages that others wait for.
    const fn is_urgent(self) -> bool {
        !matches!(self, Self::Request)
    }
}

/// A checked message on its way to a lane.
struct Draft<'a> {
    class: Class,
    handler: u8,
    args: &'a [i32],
    shape: Shape,
}

/// Slots of a queue pair and of its completion queue, until they are used.
struct Slots<'a> {
    context: &'a NetContext,
    lane: &'a Connection,
    send_qp: &'a SendQp,
}

impl Slots<'_> {
    fn give_back(&self) {
        self.context.release(self.lane, self.send_qp);
    }
}

/// Since when nothing has completed.
#[derive(Default)]
struct Stall {
    since: Option<Instant>,
}

impl NetContext {
    /// One attempt to send a message that is no reply, to a peer that may be unconnected.
    pub(in crate::transport::net) fn try_message(
        &self,
        message: &AmMessage<'_>,
    ) -> Result<Sent, Error> {
        let to = remote_rank(message.target);
        let Some(peer) = to.and_then(|to| self.connected(to)) else { return Ok(Sent::Full) };
        self.to_peer(peer, None, Class::of(message.class), message)
    }

    /// One attempt to send a checked message; on `lane` if one is given.
    #[inline(always)]
    fn to_peer(
        &self,
        peer: &Peer,
        lane: Option<usize>,
        class: Class,
        message: &AmMessage<'_>,
    ) -> Result<Sent, Error> {
        if matches!(message.payload, AmPayload::None) {
            let (handler, args) = (message.handler, message.args);
            let draft = Draft { class, handler, args, shape: Shape::Short };
            return self.on_lanes(peer, lane, class, |_, at| self.short(peer, at, &draft));
        }
        self.on_lanes(peer, lane, class, |lane, at| self.loaded(peer, at, lane, class, message))
    }

    /// Sends on the lane that is given, or on the first that has what is needed.
    #[inline(always)]
    fn on_lanes(
        &self,
        peer: &Peer,
        lane: Option<usize>,
        class: Class,
        mut send: impl FnMut(&Connection, usize) -> Result<Sent, Error>,
    ) -> Result<Sent, Error> {
        let (first, count) = match lane {
            Some(lane) => (lane, 1),
            None => (peer.first_lane(), peer.lanes.len()),
        };
        for step in 0..count {
            let at = if count == 1 { first } else { (first + step) % count };
            let Some(lane) = peer.lanes.get(at) else { break };
            if !self.admit(lane, class) {
                continue;
            }
            let sent = send(lane, at);
            if !matches!(sent, Ok(Sent::Yes)) {
                self.unadmit(lane, class);
            }
            if !matches!(sent, Ok(Sent::Full)) {
                return sent;
            }
        }
        Ok(Sent::Full)
    }

    /// A peer that may be sent to; one that is not connected is asked for.
    #[inline]
    pub(crate) fn connected(&self, rank: Rank) -> Option<&Peer> {
        let peer = self.peers.get(rank).filter(|peer| peer.is_open());
        match peer {
            Some(peer) => peer.use_it(),
            None => self.connect_queue.need(rank),
        }
        peer
    }

    /// Takes what a message of a class needs from its peer.
    #[inline]
    fn admit(&self, lane: &Connection, class: Class) -> bool {
        match class {
            Class::Reply | Class::Ack => true,
            Class::Internal => lane.internal.take(0),
            Class::Request => {
                if !self.total.take(0) {
                    return false;
                }
                let room = self.rails[lane.rail].shared.as_ref().map(|shared| &shared.reply_room);
                if room.is_some_and(|room| !room.take(0)) {
                    self.total.give(1);
                    return false;
                }
                if lane.account.take() {
                    return true;
                }
                self.total.give(1);
                if let Some(room) = room {
                    room.give(1);
                }
                false
            }
        }
    }

    fn unadmit(&self, lane: &Connection, class: Class) {
        match class {
            Class::Reply | Class::Ack => {}
            Class::Internal => lane.internal.give(1),
            Class::Request => {
                lane.account.untake();
                self.total.give(1);
                if let Some(shared) = &self.rails[lane.rail].shared {
                    shared.reply_room.give(1);
                }
            }
        }
    }

    /// A message without payload.
    #[inline(always)]
    fn short(&self, peer: &Peer, at: usize, draft: &Draft<'_>) -> Result<Sent, Error> {
        let lane = &peer.lanes[at];
        let longest = header::header_len(draft.shape, draft.args.len(), true);
        if longest > self.send_qp_for(lane, draft.class).inline {
            return self.copied(peer, at, draft, &[]);
        }
        let Some(slots) = self.slots(lane, draft.class) else { return Ok(Sent::Full) };
        let (encoded, credits) = self.encode(lane, draft);
        let op = self.op(peer, at, draft.class, None, false);
        let data = Data::Inline(&[encoded.bytes()]);
        self.fire(&slots, (encoded.imm, credits), data, &op, None)
    }

    /// An admitted message with a payload.
    #[expect(clippy::cast_possible_truncation, reason = "lengths were checked")]
    #[inline(never)]
    fn loaded(
        &self,
        peer: &Peer,
        at: usize,
        lane: &Connection,
        class: Class,
        message: &AmMessage<'_>,
    ) -> Result<Sent, Error> {
        let (handler, args) = (message.handler, message.args);
        let draft = |shape| Draft { class, handler, args, shape };
        let packs = |payload: &[u8]| self.packs(payload, args.len());
        match message.payload {
            // Blocks and placed payloads are of shared memory.
            AmPayload::None | AmPayload::Block { .. } | AmPayload::Placed { .. } => {
                self.copied(peer, at, &draft(Shape::Short), &[])
            }
            AmPayload::Medium(payload) => {
                let len = payload.len() as u32;
                self.copied(peer, at, &draft(Shape::Medium { len }), payload)
            }
            AmPayload::Long { payload, dest } => {
                let (len, packed) = (payload.len() as u32, packs(payload));
                let draft = draft(Shape::Long { dest, len, packed });
                if packed {
                    self.copied(peer, at, &draft, payload)
                } else {
                    self.with_payload(peer, at, lane, &draft, (payload, dest), None)
                }
            }
            AmPayload::ZeroCopy(&ZeroCopy { payload, dest, completion }) => {
                let (len, packed) = (payload.len() as u32, packs(payload));
                let draft = draft(match dest {
                    None => Shape::Medium { len },
                    Some(dest) => Shape::Long { dest, len, packed },
                });
                match dest.filter(|_| !packed) {
                    Some(dest) => {
                        let counter = Some(completion);
                        self.with_payload(peer, at, lane, &draft, (payload, dest), counter)
                    }
                    None if self.gathers(payload) => {
                        self.gathered(peer, at, &draft, payload, completion)
                    }
                    None => self.copied(peer, at, &draft, payload),
                }
            }
            AmPayload::SendBuffer { buffer, len, dest } => {
                let shape = match dest {
                    None => Shape::Medium { len },
                    Some(dest) => Shape::Long { dest, len, packed: true },
                };
                let Some(prepared) = buffer.take() else { return Ok(Sent::Full) };
                let (sent, back) = prepared.send(|own| self.filled(peer, at, &draft(shape), own));
                buffer.set(back);
                sent
            }
        }
    }

    /// The queue pair that a message of a class leaves on.
    #[inline]
    fn send_qp_for<'a>(&self, lane: &'a Connection, class: Class) -> &'a SendQp {
        Self::send_qp_of(lane, class == Class::Request)
    }

    /// Takes a slot of the send queue and one of its completion queue.
    #[inline]
    fn slots<'a>(&'a self, lane: &'a Connection, class: Class) -> Option<Slots<'a>> {
        let send_qp = self.send_qp_for(lane, class);
        let split = lane.requests.is_some() && class == Class::Request;
        let kept = if class.is_urgent() || split { 0 } else { RESERVED_SQ_SLOTS };
        if !send_qp.slots.take(kept) {
            return None;
        }
        let kept = if class.is_urgent() { 0 } else { RESERVED_CQ_SLOTS };
        if !self.rails[lane.rail].sends.take(kept) {
            send_qp.slots.give(1);
            return None;
        }
        Some(Slots { context: self, lane, send_qp })
    }

    #[inline(always)]
    fn encode(&self, lane: &Connection, draft: &Draft<'_>) -> (Encoded, u8) {
        let credits = lane.account.carry();
        let head = Head {
            source: u16::try_from(self.members.rank.0).unwrap_or(u16::MAX),
            handler: draft.handler,
            reply: matches!(draft.class, Class::Reply | Class::Ack),
            credits,
            shape: draft.shape,
        };
        (header::encode(&head, draft.args), credits)
    }

    /// Inline when it is small, else by a copy in a bounce buffer.
    fn copied(
        &self,
        peer: &Peer,
        at: usize,
        draft: &Draft<'_>,
        payload: &[u8],
    ) -> Result<Sent, Error> {
        let lane = &peer.lanes[at];
        let Some(slots) = self.slots(lane, draft.class) else { return Ok(Sent::Full) };
        let longest = header::header_len(draft.shape, draft.args.len(), true) + payload.len();
        if longest <= slots.send_qp.inline {
            let (encoded, credits) = self.encode(lane, draft);
            let parts = [encoded.bytes(), payload];
            let parts = if payload.is_empty() { &parts[..1] } else { &parts[..] };
            let (imm, data) = ((encoded.imm, credits), Data::Inline(parts));
            return self.launch(peer, at, draft, &slots, imm, data, None, None);
        }
        let kept = if draft.class.is_urgent() { 0 } else { RESERVED_BUFFERS };
        let Some(mut buffer) = self.bounce.take(&self.pool, kept) else {
            slots.give_back();
            return Ok(Sent::Full);
        };
        let (encoded, credits) = self.encode(lane, draft);
        let head = encoded.bytes();
        let bytes = self.pool.bytes(&mut buffer);
        bytes[..head.len()].copy_from_slice(head);
        bytes[head.len()..head.len() + payload.len()].copy_from_slice(payload);
        let len = head.len() + payload.len();
        let piece = self.pool.piece(&buffer, lane.rail, 0, u32::try_from(len).unwrap_or(0));
        let data = Data::Gather(&[piece]);
        self.launch(peer, at, draft, &slots, (encoded.imm, credits), data, Some(buffer), None)
    }

    /// Whether a Long goes in one message.
    fn packs(&self, payload: &[u8], nargs: usize) -> bool {
        payload.len() <= max_long_alloc(nargs).min(self.setup.limits.packed_long as usize)
    }

    /// Whether devices can read a payload where it is.
    fn is_own(&self, payload: &[u8]) -> bool {
        self.segments.get().is_some_and(|segments| segments.own.holds(payload))
    }

    /// Whether a payload need not be copied behind its header.
    pub(crate) fn gathers(&self, payload: &[u8]) -> bool {
        let least = self.setup.limits.gather_min;
        least.is_some_and(|least| payload.len() >= least as usize)
            && !payload.is_empty()
            && self.is_own(payload)
    }

    /// Whether the payload of a Long may be in use when the call returns.
    pub(crate) fn keeps_long(&self, payload: &[u8], nargs: usize, reply: bool) -> bool {
        if self.packs(payload, nargs) {
            return self.gathers(payload);
        }
        // On another queue pair the header waits for the payload.
        (reply || self.setup.limits.shared.is_none()) && self.is_own(payload)
    }

    /// The header from a bounce buffer, the payload from the own segment.
    fn gathered(
        &self,
        peer: &Peer,
        at: usize,
        draft: &Draft<'_>,
        payload: &[u8],
        completion: &Arc<OpCounter>,
    ) -> Result<Sent, Error> {
        let lane = &peer.lanes[at];
        let rail = &self.rails[lane.rail];
        let Some(slots) = self.slots(lane, draft.class) else { return Ok(Sent::Full) };
        let kept = if draft.class.is_urgent() { 0 } else { RESERVED_BUFFERS };
        let Some(mut buffer) = self.bounce.take(&self.pool, kept) else {
            slots.give_back();
            return Ok(Sent::Full);
        };
        let (encoded, credits) = self.encode(lane, draft);
        let head = encoded.bytes();
        self.pool.bytes(&mut buffer)[..head.len()].copy_from_slice(head);
        let first = self.pool.piece(&buffer, lane.rail, 0, u32::try_from(head.len()).unwrap_or(0));
        let second = Sge {
            addr: payload.as_ptr().addr() as u64,
            len: u32::try_from(payload.len()).unwrap_or(0),
            lkey: rail.segment.get().map_or(0, |region| region.lkey()),
        };
        let end = OnComplete::Count { counter: Arc::clone(completion), local: true };
        completion.begin(true);
        let data = Data::Gather(&[first, second]);
        let imm = (encoded.imm, credits);
        let sent = self.launch(peer, at, draft, &slots, imm, data, Some(buffer), Some(end));
        if !matches!(sent, Ok(Sent::Yes)) {
            completion.end(true);
        }
        sent
    }

    /// The payload is in a library buffer, behind room for the longest header. Gives the buffer back when it was not sent.
    fn filled(
        &self,
        peer: &Peer,
        at: usize,
        draft: &Draft<'_>,
        mut buffer: Buffer,
    ) -> (Result<Sent, Error>, Option<Buffer>) {
        let lane = &peer.lanes[at];
        let Some(slots) = self.slots(lane, draft.class) else {
            return (Ok(Sent::Full), Some(buffer));
        };
        let (encoded, credits) = self.encode(lane, draft);
        let head = encoded.bytes();
        let from = MAX_HEADER - head.len();
        self.pool.bytes(&mut buffer)[from..MAX_HEADER].copy_from_slice(head);
        let len = u32::try_from(head.len() + draft.shape.carried()).unwrap_or(0);
        let piece = self.pool.piece(&buffer, lane.rail, from, len);
        let index = self.pool.lend(buffer);
        let data = Data::Gather(&[piece]);
        let op = self.op(peer, at, draft.class, Some(index), false);
        let sent = self.fire(&slots, (encoded.imm, credits), data, &op, None);
        let back = match sent {
            Ok(Sent::Yes) => None,
            _ => self.pool.reclaim(index),
        };
        (sent, back)
    }

    const fn op(
        &self,
        peer: &Peer,
        lane: usize,
        class: Class,
        buffer: Option<u32>,
        has_end: bool,
    ) -> PendingOp {
        let upper = matches!(class, Class::Request) && peer.lanes[lane].requests.is_some();
        PendingOp { kind: class.kind(), peer: peer.rank, lane, upper, buffer, has_end }
    }

    /// Posts a message; on failure everything it took goes back.
    #[expect(clippy::too_many_arguments, reason = "all that a message is made of")]
    fn launch(
        &self,
        peer: &Peer,
        at: usize,
        draft: &Draft<'_>,
        slots: &Slots<'_>,
        imm: (u32, u8),
        data: Data<'_>,
        buffer: Option<Buffer>,
        end: Option<OnComplete>,
    ) -> Result<Sent, Error> {
        let buffer = buffer.map(|buffer| self.pool.lend(buffer));
        let op = self.op(peer, at, draft.class, buffer, end.is_some());
        let sent = self.fire(slots, imm, data, &op, end);
        if !matches!(sent, Ok(Sent::Yes))
            && let Some(buffer) = buffer.and_then(|index| self.pool.reclaim(index))
        {
            self.bounce.put(&self.pool, buffer);
        }
        sent
    }

    /// Posts a message; on failure the credits that it carried stay here.
    #[inline(always)]
    fn fire(
        &self,
        slots: &Slots<'_>,
        (imm, credits): (u32, u8),
        data: Data<'_>,
        op: &PendingOp,
        end: Option<OnComplete>,
    ) -> Result<Sent, Error> {
        let operation = Operation::Send { imm: Some(imm) };
        let sent = self.post_op(slots.lane, slots.send_qp, operation, data, op, end);
        if !matches!(sent, Ok(Sent::Yes)) {
            slots.lane.account.uncarry(credits);
        }
        sent
    }

    /// Posts a request whose slots are taken. They go back when it is not posted, and so does its end's counting.
    #[inline(always)]
    pub(crate) fn post_op(
        &self,
        lane: &Connection,
        send_qp: &SendQp,
        operation: Operation,
        data: Data<'_>,
        op: &PendingOp,
        end: Option<OnComplete>,
    ) -> Result<Sent, Error> {
        let Some(id) = self.pending.begin(op, end) else {
            self.release(lane, send_qp);
            return Ok(Sent::Full);
        };
        let send = SendWr { id, operation, data, signaled: true, to: None };
        match send_qp.post(&send) {
            Ok(()) => Ok(Sent::Yes),
            Err(error) => self.not_posted(lane, send_qp, op, id, error),
        }
    }

    /// Slots that were not used.
    fn release(&self, lane: &Connection, send_qp: &SendQp) {
        send_qp.slots.give(1);
        self.rails[lane.rail].sends.give(1);
    }

    #[cold]
    fn not_posted(
        &self,
        lane: &Connection,
        send_qp: &SendQp,
        op: &PendingOp,
        id: u64,
        error: PostError,
    ) -> Result<Sent, Error> {
        let rail = &self.rails[lane.rail];
        let _ = self.pending.end(id);
        self.release(lane, send_qp);
        match error {
            PostError::Full => Ok(Sent::Full),
            _ if self.is_quiet() => Ok(Sent::Full),
            PostError::State(state) => Err(Error::NoConnection {
                rank: self.members.rank,
                peer: op.peer,
                problem: format!(
                    "queue pair {:#x} of {} is in state {state:?}: the peer or the network failed",
                    send_qp.number(),
                    rail.name()
                ),
            }),
            error => Err(self.post_error(op.kind.name(), op.peer, lane.rail, error)),
        }
    }

    /// Returns the credits that are banked on a lane.
    pub(crate) fn ack(&self, peer: &Peer, at: usize) -> Result<Sent, Error> {
        let draft = Draft { class: Class::Ack, handler: ACK, args: &[], shape: Shape::Short };
        self.short(peer, at, &draft)
    }

    /// Writes the payload of a Long, then sends its header. Waits until the device has taken the payload, unless there is a
    /// counter and the payload is in the own segment.
    fn with_payload(
        &self,
        peer: &Peer,
        at: usize,
        lane: &Connection,
        draft: &Draft<'_>,
        (payload, dest): (&[u8], u64),
        later: Option<&Arc<OpCounter>>,
    ) -> Result<Sent, Error> {
        // On another queue pair the header could overtake the payload.
        let split = lane.requests.is_some() && draft.class == Class::Request;
        let own = Arc::new(OpCounter::new());
        let later = later.filter(|_| !split && self.is_own(payload));
        let counter = later.unwrap_or(&own);
        let mut stall = Stall::default();
        let mut done = 0;
        while done < payload.len() {
            let (rest, offset) = (&payload[done..], dest + done as u64);
            let copy = false;
            let posted =
                self.put_piece(peer, at, Kind::LongPayload, offset, rest, copy, counter)?;
            done += posted;
            if posted == 0 && !self.await_unless_stalled(&mut stall)? {
                return Ok(Sent::Full);
            }
        }
        while (split && !own.is_complete()) || !own.is_local_complete() {
            if !self.await_unless_stalled(&mut stall)? {
                return Ok(Sent::Full);
            }
        }
        // The payload is there: what is missing for the header comes with completions of sends.
        loop {
            if self.copied(peer, at, draft, &[])? == Sent::Yes {
                return Ok(Sent::Yes);
            }
            if !self.await_unless_stalled(&mut stall)? {
                return Ok(Sent::Full);
            }
        }
    }

    /// As [`NetContext::await_sends`]; also `false` when nothing has completed for a while. Then the peer is short of receive
    /// buffers, perhaps because it waits like this rank: the caller polls, and later sends all of it again, which changes
    /// nothing for the peer, as no handler has been told of it.
    fn await_unless_stalled(&self, stall: &mut Stall) -> Result<bool, Error> {
        if self.reap()? > 0 {
            stall.since = None;
        } else {
            let since = *stall.since.get_or_insert_with(Instant::now);
            if since.elapsed() > deadlines::STALL.limit {
                return Ok(false);
            }
            std::thread::yield_now();
        }
        Ok(!self.is_quiet())
    }

    /// Takes completions of sends while something waits for them. `false`: the network is closing, give up.
    pub(crate) fn await_sends(&self) -> Result<bool, Error> {
        if self.reap()? == 0 {
            std::thread::yield_now();
        }
        Ok(!self.is_quiet())
    }

    /// Tries acks that could not be sent when they were due.
    #[cold]
    pub(crate) fn flush_acks(&self) -> Result<usize, Error> {
        let mut count = 0;
        for peer in self.peers.iter() {
            for (at, lane) in peer.lanes.iter().enumerate() {
                if !lane.ack_pending.swap(false, Ordering::AcqRel) {
                    continue;
                }
                self.ack_pending.fetch_sub(1, Ordering::AcqRel);
                count += 1;
                self.ack_if_due(peer, at)?;
            }
        }
        Ok(count)
    }

    /// Sends an ack when too much is banked; when that is not possible now, a later poll does, or the service thread.
    pub(crate) fn ack_if_due(&self, peer: &Peer, at: usize) -> Result<(), Error> {
        let lane = &peer.lanes[at];
        if !lane.account.is_ack_due() || self.is_quiet() {
            return Ok(());
        }
        let sent = if peer.is_open() { self.ack(peer, at)? } else { Sent::Full };
        if sent == Sent::Full && !lane.ack_pending.swap(true, Ordering::AcqRel) {
            self.note_pending_ack();
        }
        Ok(())
    }

    /// A reply to the message of a token. Waits for completions of sends.
    pub(in crate::transport::net) fn answer(
        &self,
        token: &ReplyToken,
        message: &AmMessage<'_>,
    ) -> Result<Sent, Error> {
        let Some(peer) = self.peers.get(token.source()) else { return Ok(Sent::Full) };
        let lane = Some(token.connection());
        loop {
            // Where the handshake is not complete yet, it is asked for.
            if (peer.is_open() || self.connected(peer.rank).is_some())
                && self.to_peer(peer, lane, Class::Reply, message)? == Sent::Yes
            {
                return Ok(Sent::Yes);
            }
            if !self.await_sends()? {
                return Ok(Sent::Full);
            }
        }
    }
}

const _: () = assert!(BUFFER > 2 * MAX_HEADER);
