//! Taking messages and giving each to the sink.
//!
//! A request's buffer is replaced before its handler runs, so that a slow handler holds up no
//! sender; the buffer is the spare for the next one afterwards. Without a spare the message is
//! copied, and its buffer goes back at once.
//!
//! The buffer of a Short of the client waits to be posted until a look finds nothing
//! (`recv_buffers.rs`), so that nobody waits meanwhile (`short.rs`).

use std::cell::Cell;
use std::sync::atomic::Ordering;

use bootstrap::Rank;
use fabric::{Completion, Opcode, Status};

use super::acks::AcksOfBatch;
use super::header::{self, ACK, Decoded, FIRST_CLIENT_HANDLER, Head, SOURCES, Shape};
use super::moving::Origin;
use crate::trace::{self, Counter};
use crate::transport::message::{Arrived, ArrivedPayload, MessageClass, ReplyToken, Sink};
use crate::transport::neighbours;
use crate::transport::net::completions::status_text;
use crate::transport::net::context::NetContext;
use crate::transport::net::error::Error;
use crate::transport::net::flow::of_connection::Flow;
use crate::transport::net::memory::lists::RecvInfo;
use crate::transport::net::memory::pool::{Buffer, bytes_of};
use crate::transport::net::peer::{Connection, Peer};
use crate::transport::net::rail::Rail;

const MESSAGES: usize = 16;

/// What a poll takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Poll {
    All,
    /// Completions of sends, and messages of the library; messages of the client wait for a later
    /// poll. Takes no lock: for exit paths.
    Internal,
    /// Completions of sends only: what a rank inside a handler may take.
    SendsOnly,
}

/// Where a message came in.
#[derive(Clone, Copy)]
pub(super) struct RecvQp<'a> {
    pub(super) peer: &'a Peer,
    /// Place of the connection among those of the peer.
    pub(super) index: usize,
    pub(super) connection: &'a Connection,
    pub(super) qpn: u32,
}

impl RecvQp<'_> {
    /// Whether both are of the same connection.
    pub(super) fn is(&self, other: &Self) -> bool {
        std::ptr::eq(self.connection, other.connection)
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Receiver<'a>(pub(crate) &'a NetContext);

impl<'a> Receiver<'a> {
    /// One poll. `locked`: take turns with other threads.
    #[inline(never)]
    pub(crate) fn poll<S: Sink + ?Sized>(
        self,
        sink: &S,
        what: Poll,
        locked: bool,
    ) -> Result<usize, Error> {
        self.0.failure.check()?;
        let mut count = 0;
        if what == Poll::All && !self.0.receive.deferred.is_empty() {
            count += self.deliver_deferred(sink)?;
        }
        if what != Poll::SendsOnly {
            count += self.receive(sink, what, locked).map_err(|error| *error)?;
        }
        if what != Poll::All || count == 0 || self.is_short() {
            count += self.0.reap()?;
        }
        if what == Poll::All && self.0.has_pending_acks() {
            count += self.0.flush_acks()?;
        }
        Ok(count)
    }

    /// What a wait may do between two polls: take messages alone. Returns how many came.
    #[inline(always)]
    pub(crate) fn poll_recv<S: Sink + ?Sized>(
        self,
        sink: &S,
        locked: bool,
    ) -> Result<usize, Box<Error>> {
        self.receive(sink, Poll::All, locked)
    }

    /// Whether only receive completions are possible, and polling for them needs no system call.
    pub(crate) fn only_receives(self) -> bool {
        self.0.rails.iter().all(|rail| rail.cheap_poll && !rail.is_sending())
            && self.0.receive.deferred.is_empty()
            && !self.0.has_pending_acks()
    }

    /// Whether completions of sends should be taken although there is something else to do.
    fn is_short(self) -> bool {
        self.0.rails.iter().any(|rail| rail.sends.left() < rail.send_depth / 2)
            || self.0.buffers.send.len() < self.0.plan.sizes.bounce / 2
    }

    fn deliver_deferred<S: Sink + ?Sized>(self, sink: &S) -> Result<usize, Error> {
        let all = self.0.receive.deferred.take_all(&self.0.buffers.pool);
        let count = all.len();
        let mut acks = AcksOfBatch::NONE;
        for (mut buffer, info) in all {
            if self.0.buffers.pool.bytes(&mut buffer).is_empty() {
                self.deliver_noted(buffer, info, sink, &mut acks)?;
                continue;
            }
            let recv_qp = self.recv_qp(header::source_of(info.imm).into(), SOURCES, info)?;
            self.deliver(recv_qp, buffer, info, sink, &mut acks)?;
        }
        acks.send(self.0)?;
        Ok(count)
    }

    // An error in a box, as there is no room for it in registers.
    #[inline(never)]
    fn receive<S: Sink + ?Sized>(
        self,
        sink: &S,
        what: Poll,
        locked: bool,
    ) -> Result<usize, Box<Error>> {
        let all = what == Poll::All;
        let locked = |rail: usize| all && (locked || self.0.rails[rail].receiving.is_shared());
        let is_taken = |rail: &Rail| rail.is_taken.load(Ordering::Relaxed) && what == Poll::All;
        if let [rail] = &self.0.rails[..] {
            if is_taken(rail) {
                return Ok(0);
            }
            return self.receive_on(0, sink, what, locked(0)).map_err(Box::new);
        }
        let (rails, first) =
            (self.0.rails.len(), self.0.receive.next_rail.fetch_add(1, Ordering::Relaxed) as usize);
        for step in 0..rails {
            let rail = first.wrapping_add(step) % rails;
            if is_taken(&self.0.rails[rail]) {
                continue;
            }
            let count = self.receive_apart(rail, sink, what, locked(rail))?;
            if count > 0 {
                return Ok(count);
            }
        }
        Ok(0)
    }

    /// As [`Receiver::receive_on`], out of the way of who has one rail.
    #[inline(never)]
    fn receive_apart<S: Sink + ?Sized>(
        self,
        at: usize,
        sink: &S,
        what: Poll,
        locked: bool,
    ) -> Result<usize, Error> {
        self.receive_on(at, sink, what, locked)
    }

    /// Takes messages from one rail: one where the last poll found none, else a batch.
    #[inline(always)]
    pub(crate) fn receive_on<S: Sink + ?Sized>(
        self,
        at: usize,
        sink: &S,
        what: Poll,
        locked: bool,
    ) -> Result<usize, Error> {
        let rail = &self.0.rails[at];
        if rail.is_busy.load(Ordering::Relaxed) {
            return self.receive_batch(at, sink, what, locked);
        }
        let mut one = [Completion::EMPTY];
        if self.poll_cq(rail, &mut one, locked)? == 0 {
            return self.0.post_waiting(rail).map(|()| 0);
        }
        rail.is_busy.store(true, Ordering::Relaxed);
        let mut acks = AcksOfBatch::NONE;
        if !self.took_short(at, &one[0], sink, what, &mut acks)? {
            self.received(at, &one[0], sink, what, &mut acks)?;
        }
        acks.send(self.0)?;
        Ok(1)
    }

    /// Takes a batch from one rail. The library's messages come first: a client's handler may end
    /// this process.
    #[inline(never)]
    fn receive_batch<S: Sink + ?Sized>(
        self,
        at: usize,
        sink: &S,
        what: Poll,
        locked: bool,
    ) -> Result<usize, Error> {
        let rail = &self.0.rails[at];
        let mut batch = [Completion::EMPTY; MESSAGES];
        let count = self.poll_cq(rail, &mut batch, locked)?;
        let batch = &batch[..count];
        if batch.is_empty() {
            rail.is_busy.store(false, Ordering::Relaxed);
            return self.0.post_waiting(rail).map(|()| 0);
        }
        let internal = |completion: &&Completion| {
            completion.imm.is_some_and(|imm| header::handler_of(imm) < FIRST_CLIENT_HANDLER)
        };
        let mut acks = AcksOfBatch::NONE;
        for completion in batch.iter().filter(internal) {
            self.received(at, completion, sink, what, &mut acks)?;
        }
        for completion in batch.iter().filter(|completion| !internal(completion)) {
            if !self.took_short(at, completion, sink, what, &mut acks)? {
                self.received(at, completion, sink, what, &mut acks)?;
            }
        }
        acks.send(self.0)?;
        Ok(count)
    }

    /// Asks a rail for completions of receives; `locked`: none while another thread asks.
    #[inline(always)]
    fn poll_cq(self, rail: &Rail, into: &mut [Completion], locked: bool) -> Result<usize, Error> {
        if locked && !rail.receiving.take() {
            return Ok(0);
        }
        let count = rail.recv_cq.poll(into);
        if locked {
            rail.receiving.give();
        }
        let count = count?;
        trace::count_some(Counter::Received, count);
        Ok(count)
    }

    #[inline(never)]
    fn received<S: Sink + ?Sized>(
        self,
        rail: usize,
        completion: &Completion,
        sink: &S,
        what: Poll,
        acks: &mut AcksOfBatch<'a>,
    ) -> Result<(), Error> {
        if completion.status != Status::Success {
            return self.failed_receive(rail, completion);
        }
        let info = RecvInfo {
            imm: completion.imm.unwrap_or(0),
            len: completion.len,
            qpn: completion.qpn,
            rail: u32::try_from(rail).unwrap_or(u32::MAX),
        };
        if completion.opcode == Opcode::ReceivedWrite {
            return self.written(completion.id, info, sink, what, acks);
        }
        let buffer = self.used_up(completion);
        let recv_qp = self.recv_qp(header::source_of(info.imm).into(), SOURCES, info)?;
        let Some(buffer) = buffer else {
            return Err(self.malformed(recv_qp.peer.rank, "a receive that was never posted"));
        };
        if completion.imm.is_none() {
            return Err(self.malformed(recv_qp.peer.rank, "no immediate data"));
        }
        if what == Poll::Internal && header::handler_of(info.imm) >= FIRST_CLIENT_HANDLER {
            self.0.receive.deferred.put(&self.0.buffers.pool, buffer, info);
            return Ok(());
        }
        self.deliver(recv_qp, buffer, info, sink, acks)
    }

    /// The buffer that a completion was posted with.
    #[inline(always)]
    pub(super) fn used_up(self, completion: &Completion) -> Option<Buffer> {
        let index = u32::try_from(completion.id).ok()?;
        self.0.buffers.pool.reclaim(index)
    }

    #[cold]
    fn failed_receive(self, rail: usize, completion: &Completion) -> Result<(), Error> {
        if let Some(buffer) = self.used_up(completion) {
            self.0.rails[rail].spares.put(&self.0.buffers.pool, buffer);
        }
        // What is flushed failed for a reason that something else reports.
        if completion.status == Status::Flushed || self.0.failure.is_ignored() {
            return Ok(());
        }
        Err(Error::FailedReceive {
            rank: self.0.members.rank,
            status: status_text(completion.status),
            qpn: completion.qpn,
            device: self.0.rails[rail].name(),
            vendor: completion.vendor,
        })
    }

    /// A rank whose message it is, with the place of the connection that it came through.
    #[inline(always)]
    fn owner(self, rank: u32, info: RecvInfo) -> Option<(&'a Peer, usize)> {
        let peer = self.0.peers.get(Rank(rank))?;
        Some((peer, peer.connection_of(info.rail as usize, info.qpn)?))
    }

    /// In a job of more ranks the number stands for several.
    #[cold]
    fn other_owner(self, source: u32, sources: u32, info: RecvInfo) -> Option<(&'a Peer, usize)> {
        let mut others = (source..self.0.members.size).step_by(sources as usize).skip(1);
        others.find_map(|rank| self.owner(rank, info))
    }

    /// Whose message it is: the sender must own the far end of the queue pair that it came through.
    /// `source`: its rank modulo `sources`.
    #[inline(always)]
    pub(super) fn recv_qp(
        self,
        source: u32,
        sources: u32,
        info: RecvInfo,
    ) -> Result<RecvQp<'a>, Error> {
        let qpn = info.qpn;
        let found = match self.owner(source, info) {
            None => self.other_owner(source, sources, info),
            found => found,
        };
        let Some((peer, index)) = found else { return Err(self.unconnected(Rank(source), qpn)) };
        peer.use_it();
        if !peer.is_open() {
            self.0.heard(peer);
        }
        Ok(RecvQp { peer, index, connection: &peer.connections[index], qpn })
    }

    #[cold]
    fn unconnected(self, source: Rank, qpn: u32) -> Error {
        self.malformed(source, format!("queue pair {qpn:#x} is not connected to that rank"))
    }

    #[cold]
    pub(super) fn malformed(self, peer: Rank, problem: impl Into<String>) -> Error {
        Error::Malformed { rank: self.0.members.rank, peer, problem: problem.into() }
    }

    #[inline(always)]
    fn deliver<S: Sink + ?Sized>(
        self,
        from: RecvQp<'a>,
        mut buffer: Buffer,
        info: RecvInfo,
        sink: &S,
        acks: &mut AcksOfBatch<'a>,
    ) -> Result<(), Error> {
        let peer = from.peer.rank;
        let bytes = self.0.buffers.pool.bytes(&mut buffer).get_mut(..info.len as usize);
        let bytes = bytes.ok_or_else(|| self.malformed(peer, "longer than a buffer"))?;
        let decoded = header::decode(info.imm, bytes)
            .map_err(|wrong| self.malformed(peer, wrong.to_string()))?;
        self.book(from, &decoded)?;
        let head = &decoded.head;
        if head.handler == ACK {
            if !decoded.args().is_empty() {
                self.about_credits(from, decoded.args())?;
            }
            return self.repost(from, buffer);
        }
        let internal = head.handler < FIRST_CLIENT_HANDLER;
        let (request, replied) = (!head.reply && !internal, Cell::new(false));
        let token = ReplyToken { source: peer, connection: from.index, request, replied };
        if head.shape == Shape::Short {
            // Nothing of it is left in its buffer.
            self.repost(from, buffer)?;
            hand_over(&token, &decoded, ArrivedPayload::None, sink);
        } else {
            self.deliver_payload(from, &token, (buffer, info.len), &decoded, sink)?;
        }
        if token.request && !token.replied.get() && from.connection.account.bank() {
            acks.note(self.0, from)?;
        }
        Ok(())
    }

    /// An ack with arguments.
    #[cold]
    fn about_credits(self, from: RecvQp<'a>, args: &[i32]) -> Result<(), Error> {
        match Origin::of(from.peer, from.index) {
            Some(origin) => self.0.about_credits(origin, args),
            None => Err(self.0.not_moving(from.peer.rank)),
        }
    }

    /// Credits that came with a message.
    #[inline(always)]
    pub(super) fn book(self, from: RecvQp<'a>, decoded: &Decoded) -> Result<(), Error> {
        let head = &decoded.head;
        let RecvQp { peer, index, connection, .. } = from;
        match &connection.flow {
            Flow::Fixed if head.carried.moves() => return Err(self.0.not_moving(peer.rank)),
            Flow::Rings(rings) if head.carried.moves() => {
                let back = rings.came_back(head.carried.places());
                back.map_err(|wrong| self.malformed(peer.rank, wrong.to_string()))?;
            }
            Flow::Moving(borrowed) => {
                self.0.moving(Origin { peer, index, connection, borrowed }, head)?;
                return match self.returned(from, head)? {
                    true if borrowed.demand.owes() => self.0.ack_if_due(peer, index),
                    _ => Ok(()),
                };
            }
            Flow::Fixed | Flow::Rings(_) => {}
        }
        self.returned(from, head).map(drop)
    }

    /// Books the credits of our own that a message returns; whether it returns any.
    #[inline(always)]
    fn returned(self, from: RecvQp<'a>, head: &Head) -> Result<bool, Error> {
        let own = head.reply && head.handler >= FIRST_CLIENT_HANDLER;
        let count = u32::from(own) + head.carried.returned();
        if count == 0 {
            return Ok(false);
        }
        self.book_count(from, count)?;
        Ok(true)
    }

    /// Books so many credits of our own.
    #[inline(always)]
    pub(super) fn book_count(self, from: RecvQp<'a>, count: u32) -> Result<(), Error> {
        let RecvQp { peer, connection, .. } = from;
        let booked = connection.account.returned(count);
        booked.map_err(|wrong| self.malformed(peer.rank, wrong.to_string()))?;
        self.0.credits.give(count);
        if let Some(room) = self.0.rails[connection.rail].reply_room() {
            room.give(count);
        }
        Ok(())
    }

    /// A message whose buffer is wanted while its handler runs.
    #[inline(never)]
    fn deliver_payload<S: Sink + ?Sized>(
        self,
        from: RecvQp<'a>,
        token: &ReplyToken,
        (mut buffer, len): (Buffer, u32),
        decoded: &Decoded,
        sink: &S,
    ) -> Result<(), Error> {
        let bytes = &mut self.0.buffers.pool.bytes(&mut buffer)[..len as usize];
        let spares = &self.0.rails[from.connection.rail].spares;
        if !token.request || from.connection.requests.is_some() {
            hand_over(token, decoded, self.arrival(token, decoded, bytes)?, sink);
            self.repost(from, buffer)?;
        } else if let Some(spare) = spares.take(&self.0.buffers.pool, 0) {
            self.repost(from, spare)?;
            hand_over(token, decoded, self.arrival(token, decoded, bytes)?, sink);
            spares.put(&self.0.buffers.pool, buffer);
        } else {
            trace::count(Counter::NoSpare, len as usize);
            // Aligned as buffers are.
            let mut words = vec![0; bytes.len().div_ceil(8)];
            let copy = bytes_of(&mut words, bytes.len());
            copy.copy_from_slice(bytes);
            self.repost(from, buffer)?;
            hand_over(token, decoded, self.arrival(token, decoded, copy)?, sink);
        }
        Ok(())
    }

    /// The payload of a message of `bytes`; that of a packed Long is put where it belongs.
    pub(super) fn arrival<'b>(
        self,
        token: &ReplyToken,
        decoded: &Decoded,
        bytes: &'b mut [u8],
    ) -> Result<ArrivedPayload<'b>, Error> {
        let payload = &mut bytes[decoded.payload..];
        Ok(match decoded.head.shape {
            Shape::Short => ArrivedPayload::None,
            Shape::Medium { .. } => ArrivedPayload::Medium(payload),
            // Without payload any place will do, and no segment is needed.
            Shape::Long { dest, len: 0, .. } => ArrivedPayload::Long { offset: dest, len: 0 },
            Shape::Long { dest, len, packed } => {
                let own = self.0.segments.landing();
                let size = own.map_or(0, |(own, _)| own.len as u64);
                let fits = dest.checked_add(u64::from(len)).is_some_and(|end| end <= size);
                let Some((_, shift)) =
                    own.filter(|(own, _)| fits && (!packed || own.write(dest, payload)))
                else {
                    let problem = format!("a Long to {dest}, {len} bytes, in a segment of {size}");
                    return Err(self.malformed(token.source, problem));
                };
                ArrivedPayload::Long { offset: dest.wrapping_add(shift), len: len as usize }
            }
        })
    }

    /// Gives a buffer back to the queue that a message came through.
    #[inline]
    pub(super) fn repost(self, from: RecvQp<'a>, buffer: Buffer) -> Result<(), Error> {
        let connection = from.connection;
        let rail = connection.rail;
        let posted = match (&self.0.rails[rail].shared, &connection.requests) {
            (Some(shared), Some(upper)) => {
                let queue =
                    if upper.recv_qp == from.qpn { &shared.requests } else { &shared.replies };
                self.0.post_receive(buffer, rail, |receive| queue.post(receive))
            }
            _ => self
                .0
                .post_receive(buffer, rail, |receive| connection.main.qp.post_receive(receive)),
        };
        posted.or_else(|error| self.0.not_reposted((from.peer.rank, rail), error))
    }
}

#[inline(always)]
pub(super) fn hand_over<S: Sink + ?Sized>(
    token: &ReplyToken,
    decoded: &Decoded,
    payload: ArrivedPayload<'_>,
    sink: &S,
) {
    let head = &decoded.head;
    let class = match head.reply {
        _ if head.handler < FIRST_CLIENT_HANDLER => MessageClass::Internal,
        true => MessageClass::Reply,
        false => MessageClass::Request,
    };
    sink.arrived(Arrived {
        source: neighbours::remote(token.source),
        class,
        handler: head.handler,
        args: decoded.args(),
        payload,
        reply: Some(token),
    });
}
