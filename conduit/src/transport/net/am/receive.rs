//! From a completion to the sink: which connection a message came through, what it says, and its buffer.
//!
//! A request's buffer is replaced before its handler runs, so that a slow handler holds up no
//! sender; the buffer is the spare for the next one afterwards. Without a spare the message is
//! copied, and its buffer goes back at once.
//!
//! The buffer of a Short of the client waits to be posted until a look finds nothing
//! (`recv_buffers.rs`), so that nobody waits meanwhile (`short.rs`).

use std::cell::Cell;

use bootstrap::Rank;
use fabric::{Completion, Opcode, Status};

use super::acks::AcksOfBatch;
use super::header::{self, ACK, Decoded, FIRST_CLIENT_HANDLER, Head, SOURCES, Shape};
use super::moving::Origin;
use super::polls::Poll;
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
use crate::transport::net::post::Via;

/// Where a message came in: a connection, and the number of its receive queue.
#[derive(Clone, Copy)]
pub(super) struct RecvQp<'a> {
    pub(super) via: Via<'a>,
    pub(super) qpn: u32,
}

#[derive(Clone, Copy)]
pub(crate) struct Receiver<'a>(pub(crate) &'a NetContext);

impl<'a> Receiver<'a> {
    /// What an earlier poll for something else took.
    pub(super) fn deliver_deferred<S: Sink + ?Sized>(self, sink: &S) -> Result<usize, Error> {
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

    #[inline(never)]
    pub(super) fn received<S: Sink + ?Sized>(
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
            return Err(self.malformed(recv_qp.via.peer.rank, "a receive that was never posted"));
        };
        if completion.imm.is_none() {
            return Err(self.malformed(recv_qp.via.peer.rank, "no immediate data"));
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
        let via = Via { peer, index, connection: &peer.connections[index] };
        Ok(RecvQp { via, qpn })
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
        let peer = from.via.peer.rank;
        let bytes = self.0.buffers.pool.bytes(&mut buffer).get_mut(..info.len as usize);
        let bytes = bytes.ok_or_else(|| self.malformed(peer, "longer than a buffer"))?;
        let decoded = header::decode(info.imm, bytes)
            .map_err(|wrong| self.malformed(peer, wrong.to_string()))?;
        self.book(from.via, &decoded)?;
        let head = &decoded.head;
        if head.handler == ACK {
            if !decoded.args().is_empty() {
                self.about_credits(from.via, decoded.args())?;
            }
            return self.repost(from, buffer);
        }
        let internal = head.handler < FIRST_CLIENT_HANDLER;
        let (request, replied) = (!head.reply && !internal, Cell::new(false));
        let token = ReplyToken { from: from.via, request, replied };
        if head.shape == Shape::Short {
            // Nothing of it is left in its buffer.
            self.repost_of_short(from, &token, buffer)?;
            hand_over(&token, &decoded, ArrivedPayload::None, sink);
        } else {
            self.deliver_payload(from, &token, (buffer, info.len), &decoded, sink)?;
        }
        if token.request && !token.replied.get() && from.via.connection.account.bank() {
            acks.note(self.0, from.via)?;
        }
        Ok(())
    }

    /// An ack with arguments.
    #[cold]
    fn about_credits(self, from: Via<'a>, args: &[i32]) -> Result<(), Error> {
        match Origin::of(from.peer, from.index) {
            Some(origin) => self.0.about_credits(origin, args),
            None => self.0.told_limit(from.peer, from.index, args),
        }
    }

    /// Credits that came with a message.
    #[inline(always)]
    pub(super) fn book(self, from: Via<'a>, decoded: &Decoded) -> Result<(), Error> {
        let head = &decoded.head;
        let Via { peer, index, connection } = from;
        match &connection.flow {
            Flow::Fixed if head.carried.moves() => return Err(self.0.not_moving(peer.rank)),
            Flow::Rings(rings) if head.carried.moves() => {
                let back = rings.came_back(head.carried.places());
                back.map_err(|wrong| self.malformed(peer.rank, wrong.to_string()))?;
            }
            Flow::Moving(borrowed) => {
                self.0.moving(Origin { via: from, borrowed }, head)?;
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
    fn returned(self, from: Via<'a>, head: &Head) -> Result<bool, Error> {
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
    pub(super) fn book_count(self, from: Via<'a>, count: u32) -> Result<(), Error> {
        let Via { peer, connection, .. } = from;
        self.returned_credits(peer.rank, connection, count)?;
        if let Some(room) = self.0.rails[connection.rail].reply_room() {
            room.give(count);
        }
        Ok(())
    }

    /// As [`Receiver::book_count`], where receive queues are not shared.
    #[inline(always)]
    pub(super) fn returned_credits(
        self,
        peer: Rank,
        connection: &Connection,
        count: u32,
    ) -> Result<(), Error> {
        let booked = connection.account.returned(count);
        booked.map_err(|wrong| self.malformed(peer, wrong.to_string()))?;
        self.0.give_credits(count);
        Ok(())
    }

    /// A message whose buffer is wanted while its handler runs.
    #[inline(never)]
    fn deliver_payload<S: Sink + ?Sized>(
        self,
        from: RecvQp<'a>,
        token: &ReplyToken<'_>,
        (mut buffer, len): (Buffer, u32),
        decoded: &Decoded,
        sink: &S,
    ) -> Result<(), Error> {
        let bytes = &mut self.0.buffers.pool.bytes(&mut buffer)[..len as usize];
        let spares = &self.0.rails[from.via.connection.rail].spares;
        if !token.request || from.via.connection.requests.is_some() {
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
        token: &ReplyToken<'_>,
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
                    return Err(self.malformed(token.from.peer.rank, problem));
                };
                ArrivedPayload::Long { offset: dest.wrapping_add(shift), len: len as usize }
            }
        })
    }

    /// As [`Receiver::repost`], of a Short: where connections share queues that of a request may wait
    /// until nobody waits for its handler.
    #[inline]
    fn repost_of_short(
        self,
        from: RecvQp<'a>,
        token: &ReplyToken<'_>,
        buffer: Buffer,
    ) -> Result<(), Error> {
        let connection = from.via.connection;
        if self.0.plan.sizes.waiting > 0
            && token.request
            && matches!(connection.flow, Flow::Fixed)
            && connection.takes_requests_on(from.qpn)
        {
            let place = (from.via.peer.rank, from.via.index, connection.rail);
            return self.0.post_later(place, buffer);
        }
        self.repost(from, buffer)
    }

    /// Gives a buffer back to the queue that a message came through.
    #[inline]
    pub(super) fn repost(self, from: RecvQp<'a>, buffer: Buffer) -> Result<(), Error> {
        let (connection, rail) = (from.via.connection, from.via.connection.rail);
        let queue = self.0.receive_queue(connection, connection.takes_requests_on(from.qpn));
        let posted = self.0.post_receive(buffer, rail, queue);
        posted.or_else(|error| self.0.not_reposted((from.via.peer.rank, rail), error))
    }
}

#[inline(always)]
pub(super) fn hand_over<S: Sink + ?Sized>(
    token: &ReplyToken<'_>,
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
        source: neighbours::remote(token.from.peer.rank),
        class,
        handler: head.handler,
        args: decoded.args(),
        payload,
        reply: Some(token),
    });
}
