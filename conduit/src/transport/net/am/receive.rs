//! Taking messages and completions, and giving each message to the sink.
//!
//! A request's buffer is replaced before its handler runs, so that a slow handler holds up no sender; the buffer is the spare for
//! the next one afterwards. Without a spare the message is copied, and its buffer goes back at once.

use std::sync::atomic::Ordering;

use bootstrap::Rank;
use fabric::{Completion, PostError, Status};

use super::header::{self, ACK, Decoded, Shape};
use crate::transport::message::{Arrived, ArrivedPayload, MessageClass, ReplyToken, Sink};
use crate::transport::neighbours;
use crate::transport::net::context::{Kind, NetContext, OnComplete};
use crate::transport::net::memory::pool::{Buffer, RecvInfo};
use crate::transport::net::peer::{Connection, Peer};
use crate::transport::net::rail::Rail;
use crate::transport::net::{Error, FIRST_CLIENT_HANDLER, Poll};

/// Most messages that one poll takes.
const MESSAGES: usize = 16;
/// Most completions of sends that one poll takes from a rail.
const SENDS: usize = 32;

/// Where a message came in.
#[derive(Clone, Copy)]
struct RecvQp<'a> {
    peer: &'a Peer,
    at: usize,
    lane: &'a Connection,
    qpn: u32,
}

impl NetContext {
    /// One poll. `locked`: take turns with other threads.
    #[inline(never)]
    pub(crate) fn poll(&self, sink: &dyn Sink, what: Poll, locked: bool) -> Result<usize, Error> {
        self.check_failure()?;
        let mut count = 0;
        if what == Poll::All && !self.waiting.is_empty() {
            count += self.deliver_waiting(sink)?;
        }
        if what != Poll::SendsOnly {
            count += self.receive(sink, what, locked)?;
        }
        if what != Poll::All || count == 0 || self.is_short() {
            count += self.reap()?;
        }
        if what == Poll::All && self.ack_pending.load(Ordering::Relaxed) != 0 {
            count += self.flush_acks()?;
        }
        Ok(count)
    }

    /// What a wait may do between two polls: one look for a message. Returns how many came.
    #[inline(never)]
    pub(crate) fn poll_recv(&self, sink: &dyn Sink, locked: bool) -> Result<usize, Error> {
        self.receive(sink, Poll::All, locked)
    }

    /// Whether nothing can happen by itself but that messages arrive, and looks for them are quick.
    pub(crate) fn only_receives(&self) -> bool {
        self.rails.iter().all(|rail| rail.cheap_poll && !rail.is_sending())
            && self.waiting.is_empty()
            && self.ack_pending.load(Ordering::Relaxed) == 0
    }

    /// Whether completions of sends should be taken although there is something else to do.
    fn is_short(&self) -> bool {
        self.rails.iter().any(|rail| rail.sends.left() < rail.send_depth / 2)
            || self.bounce.len() < self.setup.limits.bounce / 2
    }

    fn deliver_waiting(&self, sink: &dyn Sink) -> Result<usize, Error> {
        let all = self.waiting.take_all(&self.pool);
        let count = all.len();
        for (buffer, note) in all {
            let recv_qp = self.recv_qp(note)?;
            self.deliver(recv_qp, buffer, note, sink)?;
        }
        Ok(count)
    }

    #[inline(always)]
    fn receive(&self, sink: &dyn Sink, what: Poll, locked: bool) -> Result<usize, Error> {
        let locked = locked && what == Poll::All;
        let is_taken = |rail: &Rail| rail.is_taken.load(Ordering::Relaxed) && what == Poll::All;
        if let [rail] = &self.rails[..] {
            return if is_taken(rail) { Ok(0) } else { self.receive_on(0, sink, what, locked) };
        }
        let (rails, first) = (self.rails.len(), self.turn.fetch_add(1, Ordering::Relaxed) as usize);
        for step in 0..rails {
            let rail = first.wrapping_add(step) % rails;
            if is_taken(&self.rails[rail]) {
                continue;
            }
            let count = self.receive_on(rail, sink, what, locked)?;
            if count > 0 {
                return Ok(count);
            }
        }
        Ok(0)
    }

    /// Takes messages from one rail: one where the last look found none, else a batch.
    #[inline(always)]
    pub(crate) fn receive_on(
        &self,
        at: usize,
        sink: &dyn Sink,
        what: Poll,
        locked: bool,
    ) -> Result<usize, Error> {
        let rail = &self.rails[at];
        if rail.is_busy.load(Ordering::Relaxed) {
            return self.receive_batch(at, sink, what, locked);
        }
        let mut one = [Completion::EMPTY];
        if self.look(rail, &mut one, locked)? == 0 {
            return Ok(0);
        }
        rail.is_busy.store(true, Ordering::Relaxed);
        self.received(at, &one[0], sink, what)?;
        Ok(1)
    }

    /// Takes a batch from one rail. The library's messages come first: a client's handler may end this process.
    #[inline(never)]
    fn receive_batch(
        &self,
        at: usize,
        sink: &dyn Sink,
        what: Poll,
        locked: bool,
    ) -> Result<usize, Error> {
        let rail = &self.rails[at];
        let mut batch = [Completion::EMPTY; MESSAGES];
        let count = self.look(rail, &mut batch, locked)?;
        let batch = &batch[..count];
        if batch.is_empty() {
            rail.is_busy.store(false, Ordering::Relaxed);
        }
        let internal = |completion: &&Completion| {
            completion.imm.is_some_and(|imm| header::handler_of(imm) < FIRST_CLIENT_HANDLER)
        };
        for completion in batch.iter().filter(internal) {
            self.received(at, completion, sink, what)?;
        }
        for completion in batch.iter().filter(|completion| !internal(completion)) {
            self.received(at, completion, sink, what)?;
        }
        Ok(count)
    }

    /// Asks a rail for completions of receives; `locked`: none while another thread asks.
    #[inline(always)]
    fn look(&self, rail: &Rail, into: &mut [Completion], locked: bool) -> Result<usize, Error> {
        if locked && self.receiving.swap(true, Ordering::Acquire) {
            return Ok(0);
        }
        let count = rail.recv_cq.poll(into);
        if locked {
            self.receiving.store(false, Ordering::Release);
        }
        Ok(count?)
    }

    #[inline(never)]
    fn received(
        &self,
        rail: usize,
        completion: &Completion,
        sink: &dyn Sink,
        what: Poll,
    ) -> Result<(), Error> {
        let index = u32::try_from(completion.id).ok();
        let buffer = index.and_then(|index| self.pool.reclaim(index));
        if completion.status != Status::Success {
            return self.failed_receive(rail, completion, buffer);
        }
        let note =
            RecvInfo { imm: completion.imm.unwrap_or(0), len: completion.len, qpn: completion.qpn };
        let recv_qp = self.recv_qp(note)?;
        let Some(buffer) = buffer else {
            return Err(self.malformed(recv_qp.peer.rank, "a receive that was never posted"));
        };
        if completion.imm.is_none() {
            return Err(self.malformed(recv_qp.peer.rank, "no immediate data"));
        }
        if what == Poll::Internal && header::handler_of(note.imm) >= FIRST_CLIENT_HANDLER {
            self.waiting.put(&self.pool, buffer, note);
            return Ok(());
        }
        self.deliver(recv_qp, buffer, note, sink)
    }

    #[cold]
    fn failed_receive(
        &self,
        rail: usize,
        completion: &Completion,
        buffer: Option<Buffer>,
    ) -> Result<(), Error> {
        if let Some(buffer) = buffer {
            self.rails[rail].spares.put(&self.pool, buffer);
        }
        // What is flushed failed for a reason that something else reports.
        if completion.status == Status::Flushed || self.is_quiet() {
            return Ok(());
        }
        Err(Error::FailedReceive {
            rank: self.members.rank,
            status: status_text(completion.status),
            qpn: completion.qpn,
            device: self.rails[rail].name(),
            vendor: completion.vendor,
        })
    }

    /// Whose message it is: the sender must own the far end of the queue pair that it came through.
    #[inline(always)]
    fn recv_qp(&self, note: RecvInfo) -> Result<RecvQp<'_>, Error> {
        let source = Rank(u32::from(header::source_of(note.imm)));
        let qpn = note.qpn;
        let peer = self.peers.get(source);
        let found = peer.and_then(|peer| Some((peer, peer.lane_of(qpn)?)));
        let Some((peer, at)) = found else { return Err(self.unconnected(source, qpn)) };
        peer.use_it();
        if !peer.is_open() {
            self.heard(peer);
        }
        Ok(RecvQp { peer, at, lane: &peer.lanes[at], qpn })
    }

    #[cold]
    fn unconnected(&self, source: Rank, qpn: u32) -> Error {
        self.malformed(source, format!("queue pair {qpn:#x} is not connected to that rank"))
    }

    #[cold]
    fn malformed(&self, peer: Rank, problem: impl Into<String>) -> Error {
        Error::Malformed { rank: self.members.rank, peer, problem: problem.into() }
    }

    #[inline(always)]
    fn deliver(
        &self,
        from: RecvQp<'_>,
        mut buffer: Buffer,
        note: RecvInfo,
        sink: &dyn Sink,
    ) -> Result<(), Error> {
        let peer = from.peer.rank;
        let bytes = self.pool.bytes(&mut buffer).get_mut(..note.len as usize);
        let bytes = bytes.ok_or_else(|| self.malformed(peer, "longer than a buffer"))?;
        let decoded = header::decode(note.imm, bytes)
            .map_err(|wrong| self.malformed(peer, wrong.to_string()))?;
        self.book(from, &decoded)?;
        let head = &decoded.head;
        if head.handler == ACK {
            return self.repost(from, buffer);
        }
        let internal = head.handler < FIRST_CLIENT_HANDLER;
        let token = ReplyToken::new(peer, from.at, !head.reply && !internal);
        if head.shape == Shape::Short {
            // Nothing of it is left in its buffer.
            self.repost(from, buffer)?;
            hand_over(&token, &decoded, ArrivedPayload::None, sink);
        } else {
            self.deliver_payload(from, &token, (buffer, note.len), &decoded, sink)?;
        }
        if token.is_request() && !token.is_replied() && from.lane.account.bank() {
            self.ack_if_due(from.peer, from.at)?;
        }
        Ok(())
    }

    /// Credits that came with a message.
    #[inline(always)]
    fn book(&self, from: RecvQp<'_>, decoded: &Decoded) -> Result<(), Error> {
        let head = &decoded.head;
        let own = head.reply && head.handler >= FIRST_CLIENT_HANDLER;
        let count = u32::from(own) + u32::from(head.credits);
        if count == 0 {
            return Ok(());
        }
        let booked = from.lane.account.returned(count);
        booked.map_err(|wrong| self.malformed(from.peer.rank, wrong.to_string()))?;
        self.total.give(count);
        if let Some(shared) = &self.rails[from.lane.rail].shared {
            shared.reply_room.give(count);
        }
        Ok(())
    }

    /// A message whose buffer is wanted while its handler runs.
    #[inline(never)]
    fn deliver_payload(
        &self,
        from: RecvQp<'_>,
        token: &ReplyToken,
        (mut buffer, len): (Buffer, u32),
        decoded: &Decoded,
        sink: &dyn Sink,
    ) -> Result<(), Error> {
        let bytes = &mut self.pool.bytes(&mut buffer)[..len as usize];
        let spares = &self.rails[from.lane.rail].spares;
        if !token.is_request() || from.lane.requests.is_some() {
            hand_over(token, decoded, self.arrival(token, decoded, bytes)?, sink);
            self.repost(from, buffer)?;
        } else if let Some(spare) = spares.take(&self.pool, 0) {
            self.repost(from, spare)?;
            hand_over(token, decoded, self.arrival(token, decoded, bytes)?, sink);
            spares.put(&self.pool, buffer);
        } else {
            let mut copy = Copy::of(bytes);
            self.repost(from, buffer)?;
            hand_over(token, decoded, self.arrival(token, decoded, copy.bytes())?, sink);
        }
        Ok(())
    }

    /// The payload of a message of `bytes`; that of a packed Long is put where it belongs.
    fn arrival<'a>(
        &self,
        token: &ReplyToken,
        decoded: &Decoded,
        bytes: &'a mut [u8],
    ) -> Result<ArrivedPayload<'a>, Error> {
        let payload = &mut bytes[decoded.payload..];
        Ok(match decoded.head.shape {
            Shape::Short => ArrivedPayload::None,
            Shape::Medium { .. } => ArrivedPayload::Medium(payload),
            // Without payload any place will do, and no segment is needed.
            Shape::Long { dest, len: 0, .. } => ArrivedPayload::Long { offset: dest, len: 0 },
            Shape::Long { dest, len, packed } => {
                let own = self.segments.get().map(|segments| &segments.own);
                let size = own.map_or(0, |own| own.len as u64);
                let end = dest.checked_add(u64::from(len)).filter(|end| *end <= size);
                if end.is_none() || packed && !own.is_some_and(|own| own.write(dest, payload)) {
                    let problem = format!("a Long to {dest}, {len} bytes, in a segment of {size}");
                    return Err(self.malformed(token.source(), problem));
                }
                ArrivedPayload::Long { offset: dest, len: len as usize }
            }
        })
    }

    /// Gives a buffer back to the queue that a message came through.
    #[inline]
    fn repost(&self, from: RecvQp<'_>, buffer: Buffer) -> Result<(), Error> {
        let lane = from.lane;
        let posted = match (&self.rails[lane.rail].shared, &lane.requests) {
            (Some(shared), Some(upper)) => {
                let queue =
                    if upper.recv_qp() == from.qpn { &shared.requests } else { &shared.replies };
                self.post(buffer, lane.rail, |receive| queue.post(receive))
            }
            _ => self.post(buffer, lane.rail, |receive| lane.main.qp.post_receive(receive)),
        };
        posted.or_else(|error| self.not_reposted(from, error))
    }

    #[cold]
    fn not_reposted(&self, from: RecvQp<'_>, error: PostError) -> Result<(), Error> {
        match error {
            // The connection is gone; what failed on it says so.
            PostError::State(_) => Ok(()),
            _ if self.is_quiet() => Ok(()),
            error => {
                let rail = from.lane.rail;
                Err(self.post_error("a receive buffer", from.peer.rank, rail, error))
            }
        }
    }

    /// Takes completions of sends; runs no handlers.
    pub(crate) fn reap(&self) -> Result<usize, Error> {
        let mut count = 0;
        for at in 0..self.rails.len() {
            if !self.rails[at].is_reaped.load(Ordering::Relaxed) {
                count += self.reap_on(at)?;
            }
        }
        Ok(count)
    }

    /// As [`NetContext::reap`], for one rail.
    pub(crate) fn reap_on(&self, at: usize) -> Result<usize, Error> {
        match self.rails[at].under_way() {
            0 => Ok(0),
            // Nothing else can be complete: no room for more is made ready.
            1 => self.reap_some::<1>(at),
            _ => self.reap_some::<SENDS>(at),
        }
    }

    fn reap_some<const N: usize>(&self, at: usize) -> Result<usize, Error> {
        let mut batch = [Completion::EMPTY; N];
        let count = self.rails[at].send_cq.poll(&mut batch)?;
        let mut failure = None;
        for completion in &batch[..count] {
            if let Err(error) = self.finished(at, completion) {
                failure.get_or_insert(error);
            }
        }
        failure.map_or(Ok(count), Err)
    }

    fn finished(&self, at: usize, completion: &Completion) -> Result<(), Error> {
        let rail = &self.rails[at];
        let Some((op, end)) = self.pending.end(completion.id) else { return Ok(()) };
        let buffer = op.buffer.and_then(|index| self.pool.reclaim(index));
        let success = completion.status == Status::Success;
        if success {
            self.conclude(end, buffer);
        } else if let Some(buffer) = buffer {
            self.bounce.put(&self.pool, buffer);
        }
        rail.sends.give(1);
        let lane = self.peers.get(op.peer).and_then(|peer| peer.lanes.get(op.lane));
        let Some(lane) = lane else { return Ok(()) };
        Self::send_qp_of(lane, op.upper).slots.give(1);
        if op.kind == Kind::Internal {
            lane.internal.give(1);
        }
        if success || self.is_quiet() {
            return Ok(());
        }
        // A device that failed is the cause; its requests are flushed at the same moment.
        self.watch()?;
        self.check_failure()?;
        Err(Error::Failed {
            operation: op.kind.name(),
            rank: self.members.rank,
            peer: op.peer,
            status: status_text(completion.status),
            qpn: completion.qpn,
            device: rail.name(),
            vendor: completion.vendor,
            advice: advice(completion.status),
        })
    }

    fn conclude(&self, end: Option<OnComplete>, buffer: Option<Buffer>) {
        match (end, buffer) {
            (Some(OnComplete::CopyOut { counter, landing, len }), Some(mut buffer)) => {
                landing.fill(&self.pool.bytes(&mut buffer)[..len]);
                self.bounce.put(&self.pool, buffer);
                counter.end(true);
            }
            (end, buffer) => {
                if let Some(buffer) = buffer {
                    self.bounce.put(&self.pool, buffer);
                }
                if let Some(OnComplete::Count { counter, local }) = end {
                    counter.end(local);
                }
            }
        }
    }
}

#[inline]
fn hand_over(token: &ReplyToken, decoded: &Decoded, payload: ArrivedPayload<'_>, sink: &dyn Sink) {
    let head = &decoded.head;
    let class = match head.reply {
        _ if head.handler < FIRST_CLIENT_HANDLER => MessageClass::Internal,
        true => MessageClass::Reply,
        false => MessageClass::Request,
    };
    sink.arrived(Arrived {
        source: neighbours::remote(token.source()),
        class,
        handler: head.handler,
        args: decoded.args(),
        payload,
        reply: Some(token),
    });
}

/// A message outside its buffer; aligned as buffers are.
struct Copy {
    words: Vec<u64>,
    len: usize,
}

impl Copy {
    fn of(bytes: &[u8]) -> Self {
        let word = |chunk: &[u8]| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_ne_bytes(word)
        };
        Self { words: bytes.chunks(8).map(word).collect(), len: bytes.len() }
    }

    fn bytes(&mut self) -> &mut [u8] {
        crate::transport::net::memory::pool::bytes_of(&mut self.words, self.len)
    }
}

/// A status in words.
pub(crate) const fn status_text(status: Status) -> &'static str {
    match status {
        Status::Success => "success",
        Status::LocalLength => "the message was longer than the buffer",
        Status::LocalQp => "the queue pair could not do it",
        Status::LocalProtection => "local memory is not registered for it",
        Status::Flushed => "flushed, because the queue pair failed before",
        Status::RemoteInvalid => "the peer found the message invalid",
        Status::RemoteAccess => "the peer's memory is not registered for it",
        Status::RemoteOperation => "the peer could not do it",
        Status::RetryExceeded => "the peer does not answer",
        Status::RnrRetryExceeded => "the peer had no receive buffer",
        Status::Other(_) => "an error of the device",
    }
}

const fn advice(status: Status) -> &'static str {
    match status {
        Status::RetryExceeded | Status::Flushed => {
            "the peer has ended or its network is down; see what it printed, and the state of the ports"
        }
        Status::RnrRetryExceeded => "see GASNET_RBUF_COUNT and GASNET_USE_SRQ",
        Status::LocalProtection | Status::RemoteAccess => {
            "memory was unmapped or addressed outside a segment"
        }
        _ => "see the device's own log",
    }
}
