//! The responder's half of a reliable queue pair: takes the peer's requests from their stream and answers on it.

use std::collections::VecDeque;
use std::io::{self, Read as _};
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use settings::deadlines::soft::LINGER;

use super::back::Way;
use super::device::Dev;
use super::limits::{
    ACK_BYTES, ACK_COUNT, ACK_IDLE, DIRECT, MAX_RD_ATOM, MAX_WR, READS_PER_TURN, rnr_timer,
};
use super::memory::{Gather, Scatter, Span};
use super::qp::{Qp, Setup};
use super::queue::Taken;
use super::wire::{REQUEST, RESPONSE, Refusal, Request, Response, Verb};
use super::{low, narrow};
use crate::{Access, Completion, RecvWr, Status};

/// Where the data of a request goes.
#[derive(Clone, Copy, Debug)]
enum Place {
    Buffer(RecvWr, u64),
    Memory { remote: u64, rkey: u32 },
    Addend { remote: u64, rkey: u32, bytes: [u8; 8] },
    Nowhere,
}

#[derive(Clone, Copy, Debug)]
enum Parse {
    Header {
        have: usize,
        bytes: [u8; REQUEST],
    },
    /// A request that waits for a receive buffer.
    Stalled {
        request: Request,
        until: Option<Instant>,
    },
    /// A request behind messages that come on the other stream and are not here yet.
    Early {
        request: Request,
    },
    Body {
        request: Request,
        place: Place,
        done: usize,
    },
    /// Refused: the rest of the stream is thrown away until the peer closes it.
    Over {
        until: Instant,
    },
}

const FRESH: Parse = Parse::Header { have: 0, bytes: [0; REQUEST] };

/// An answer, or a part of one, that is to be written.
#[derive(Debug)]
enum Out {
    Bytes {
        bytes: [u8; RESPONSE + 8],
        len: usize,
    },
    Memory {
        remote: u64,
        rkey: u32,
        len: usize,
    },
    /// The end of a message that goes back.
    Kept(Vec<u8>),
}

impl Out {
    const fn len(&self) -> usize {
        match self {
            Self::Bytes { len, .. } | Self::Memory { len, .. } => *len,
            Self::Kept(bytes) => bytes.len(),
        }
    }
}

/// What to do with the stream after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Nothing more now. `did`: there was something.
    Wait { did: bool },
    /// Another turn soon, whatever the system says of the stream.
    Again { did: bool },
    /// The stream is over.
    Gone,
}

/// One stream of requests.
#[derive(Debug)]
pub(super) struct Responder {
    pub(super) qp: Arc<Qp>,
    pub(super) stream: Arc<TcpStream>,
    access: Access,
    way: Way,
    rnr: u8,
    timer: Duration,
    parse: Parse,
    held: Vec<u8>,
    held_at: usize,
    out: VecDeque<Out>,
    out_at: usize,
    bytes_owed: u64,
    urgent: bool,
    idle: u32,
    large: bool,
}

impl Responder {
    pub(super) fn new(qp: Arc<Qp>, stream: Arc<TcpStream>, rnr: u8, setup: &Setup) -> Self {
        Self {
            qp,
            stream,
            access: setup.access,
            way: setup.way,
            rnr,
            timer: rnr_timer(setup.rnr_timer),
            parse: FRESH,
            held: Vec::new(),
            held_at: 0,
            out: VecDeque::new(),
            out_at: 0,
            bytes_owed: 0,
            urgent: false,
            idle: 0,
            large: false,
        }
    }

    /// Moves data. `eager`: nobody polls, so acknowledgements go out at once.
    pub(super) fn turn(&mut self, dev: &Dev, scratch: &mut [u8], eager: bool) -> Outcome {
        if self.qp.is_destroyed() || !self.serves() {
            self.abandon();
            return Outcome::Gone;
        }
        if !self.out.is_empty() && self.write_out(dev).is_err() {
            return self.gone();
        }
        let outcome = self.read(dev, scratch);
        if outcome == Outcome::Gone {
            return self.gone();
        }
        let did = matches!(outcome, Outcome::Wait { did: true } | Outcome::Again { did: true });
        self.idle = if did { 0 } else { self.idle.saturating_add(1) };
        let owes = self.qp.debt();
        let due = eager
            || (self.urgent && !matches!(outcome, Outcome::Again { .. }))
            || self.idle >= ACK_IDLE
            || owes >= ACK_COUNT
            || self.bytes_owed >= ACK_BYTES;
        if owes != 0 && due {
            self.pay();
        }
        if !self.out.is_empty() && self.write_out(dev).is_err() {
            return self.gone();
        }
        outcome
    }

    fn serves(&self) -> bool {
        self.qp.answers() || matches!(self.parse, Parse::Over { .. })
    }

    fn gone(&mut self) -> Outcome {
        self.abandon();
        Outcome::Gone
    }

    /// Puts the acknowledgement of everything done into the queue of answers.
    fn pay(&mut self) {
        let done = self.qp.done();
        if self.qp.debt() == 0 {
            return;
        }
        self.qp.told(done);
        self.bytes_owed = 0;
        self.urgent = false;
        self.answer(Response::Ack { done: low(done) }, &[]);
    }

    /// Pays and writes what the stream takes.
    pub(super) fn settle(&mut self, dev: &Dev) {
        if !matches!(self.parse, Parse::Over { .. }) {
            self.pay();
        }
        let _ = self.write_out(dev);
    }

    fn answer(&mut self, response: Response, word: &[u8]) {
        let mut bytes = [0; RESPONSE + 8];
        bytes[..RESPONSE].copy_from_slice(&response.encode());
        let len = RESPONSE + word.len().min(8);
        if let Some(place) = bytes.get_mut(RESPONSE..len) {
            place.copy_from_slice(word.get(..len - RESPONSE).unwrap_or_default());
        }
        self.out.push_back(Out::Bytes { bytes, len });
    }

    /// The stream is over. A receive whose message will never be whole ends as flushed when the queue pair is in error, and
    /// waits for its next message otherwise.
    pub(super) fn abandon(&mut self) {
        if let Parse::Body { place: Place::Buffer(receive, number), .. } = self.parse {
            self.parse = FRESH;
            if self.qp.is_error() || !self.qp.receives().put_back(receive) {
                self.end_receive(receive, number, Status::Flushed, 0, None);
            }
        }
    }

    fn end_receive(
        &self,
        receive: RecvWr,
        number: u64,
        status: Status,
        len: u32,
        imm: Option<u32>,
    ) {
        let entry = Completion { id: receive.id, status, len, imm, ..Completion::EMPTY };
        self.qp.received(&entry, self.qp.gives(number));
    }

    fn read(&mut self, dev: &Dev, scratch: &mut [u8]) -> Outcome {
        let mut did = false;
        for _ in 0..READS_PER_TURN {
            match self.parse {
                Parse::Stalled { request, until } => {
                    self.begin(dev, request, until);
                    if matches!(self.parse, Parse::Stalled { .. }) {
                        return Outcome::Again { did };
                    }
                    did = true;
                }
                Parse::Early { request } => {
                    if request.msn != self.qp.next_msn() {
                        return Outcome::Again { did };
                    }
                    self.begin(dev, request, None);
                    did = true;
                }
                Parse::Over { until } if Instant::now() >= until => return Outcome::Gone,
                _ => {}
            }
            if self.out.len() > 2 * usize::from(MAX_RD_ATOM) {
                // The peer does not read its answers: its requests wait.
                return Outcome::Wait { did };
            }
            if !self.held.is_empty() {
                let held = std::mem::take(&mut self.held);
                let from = std::mem::take(&mut self.held_at);
                let used = self.consume(dev, held.get(from..).unwrap_or_default());
                self.keep(held, from + used);
                did = true;
                continue;
            }
            let (asked, result, direct) = self.receive(dev, scratch);
            let count = match result {
                Ok(0) => return Outcome::Gone,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Outcome::Wait { did };
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return Outcome::Gone,
            };
            did = true;
            let placed = count.min(direct);
            if placed != 0 {
                self.placed(dev, placed);
            }
            let rest = scratch.get(..count - placed).unwrap_or_default();
            let used = self.consume(dev, rest);
            if let Some(rest) = rest.get(used..).filter(|rest| !rest.is_empty()) {
                self.held.extend_from_slice(rest);
                continue;
            }
            if count < asked {
                return match self.parse {
                    Parse::Stalled { .. } | Parse::Early { .. } => Outcome::Again { did },
                    _ => Outcome::Wait { did },
                };
            }
        }
        Outcome::Again { did }
    }

    fn keep(&mut self, held: Vec<u8>, from: usize) {
        if from < held.len() {
            self.held = held;
            self.held_at = from;
        }
    }

    /// One read: a large body straight into its place, the rest into the scratch buffer. Gives the bytes asked for, and how
    /// many of them go into their place.
    fn receive(&self, dev: &Dev, scratch: &mut [u8]) -> (usize, io::Result<usize>, usize) {
        if let Parse::Body { request, place, done } = self.parse {
            let missing = request.body() - done;
            if missing >= DIRECT
                && let Some(span) = self.span(dev, place, done, missing)
            {
                let mut into = Scatter::new();
                into.span(span);
                if into.total() == missing {
                    // After a large message the next header is read with its end, not more, so that the next body goes
                    // straight into its place too.
                    let tail = if self.large { REQUEST } else { scratch.len() };
                    into.buffer(scratch.get_mut(..tail).unwrap_or_default());
                    let asked = into.total();
                    return (asked, into.receive(self.stream.as_fd()), missing);
                }
            }
        }
        let mut stream = &*self.stream;
        (scratch.len(), stream.read(scratch), 0)
    }

    /// Where `len` bytes of a body from `done` on go. `None`: nowhere in registered memory.
    fn span<'a>(&self, dev: &'a Dev, place: Place, done: usize, len: usize) -> Option<Span<'a>> {
        match place {
            Place::Buffer(receive, _) => {
                let mut part = receive.buffer;
                part.len = part.len.min(narrow(done + len));
                dev.table().local_from(&part, done, true)
            }
            Place::Memory { remote, rkey } => {
                let at = remote.checked_add(done as u64)?;
                dev.table().remote(rkey, at, len, Access::REMOTE_WRITE)
            }
            Place::Addend { .. } | Place::Nowhere => None,
        }
    }

    /// Uses bytes of the stream; returns how many. Less than all when the request has to wait.
    fn consume(&mut self, dev: &Dev, bytes: &[u8]) -> usize {
        let mut used = 0;
        while let Some(rest) = bytes.get(used..).filter(|rest| !rest.is_empty()) {
            match &mut self.parse {
                Parse::Over { .. } => return bytes.len(),
                Parse::Stalled { .. } | Parse::Early { .. } => return used,
                Parse::Header { have, bytes: header } => {
                    if *have == 0 && self.out.len() > 2 * usize::from(MAX_RD_ATOM) {
                        return used;
                    }
                    let count = rest.len().min(REQUEST - *have);
                    if let (Some(place), Some(now)) =
                        (header.get_mut(*have..*have + count), rest.get(..count))
                    {
                        place.copy_from_slice(now);
                    }
                    *have += count;
                    used += count;
                    if *have == REQUEST {
                        let header = *header;
                        self.arrived(dev, &header);
                    }
                }
                Parse::Body { request, place, done } => {
                    let count = rest.len().min(request.body() - *done);
                    let now = rest.get(..count).unwrap_or_default();
                    let (place_now, at) = (*place, *done);
                    used += count;
                    if let Place::Addend { bytes, .. } = place {
                        if let Some(part) = bytes.get_mut(at..at + count) {
                            part.copy_from_slice(now);
                        }
                    } else {
                        let span = self.span(dev, place_now, at, count);
                        if span.is_none_or(|span| span.fill(now) != count) {
                            self.body_lost(place_now);
                            return bytes.len();
                        }
                    }
                    self.placed(dev, count);
                }
            }
        }
        used
    }

    /// The memory under a body went away.
    fn body_lost(&mut self, place: Place) {
        match place {
            Place::Buffer(receive, number) => {
                self.end_receive(receive, number, Status::LocalProtection, 0, None);
                self.refuse(Refusal::Operation, true);
            }
            _ => self.refuse(Refusal::Access, true),
        }
    }

    fn arrived(&mut self, dev: &Dev, header: &[u8; REQUEST]) {
        let Ok(request) = Request::decode(header) else {
            return self.refuse(Refusal::Invalid, true);
        };
        let ahead = request.msn.wrapping_sub(self.qp.next_msn());
        if ahead != 0 && (self.way != Way::Takes || ahead > MAX_WR) {
            return self.refuse(Refusal::Invalid, true);
        }
        if let Verb::Send { room, .. } = request.verb {
            self.qp.peer_has(room);
        }
        if let Some(done) = request.ack
            && !self.qp.acknowledged(done)
        {
            return self.refuse(Refusal::Invalid, true);
        }
        if ahead != 0 {
            self.parse = Parse::Early { request };
            return;
        }
        self.begin(dev, request, None);
    }

    /// Finds the place of a request's data, or does it when there is none.
    fn begin(&mut self, dev: &Dev, request: Request, until: Option<Instant>) {
        let len = request.len as usize;
        let place = match request.verb {
            Verb::Send { .. } => match self.take(dev, request, until) {
                Some(place) => place,
                None => return,
            },
            Verb::Write { remote, rkey } => {
                if !self.may(dev, Access::REMOTE_WRITE, rkey, remote, len) {
                    return self.refuse(Refusal::Access, true);
                }
                Place::Memory { remote, rkey }
            }
            Verb::Read { remote, rkey } => {
                if !self.may(dev, Access::REMOTE_READ, rkey, remote, len) {
                    return self.refuse(Refusal::Access, true);
                }
                self.answer(Response::Data { msn: request.msn, len: request.len }, &[]);
                if len != 0 {
                    self.out.push_back(Out::Memory { remote, rkey, len });
                }
                Place::Nowhere
            }
            Verb::FetchAdd { remote, rkey } => {
                if !remote.is_multiple_of(8) {
                    return self.refuse(Refusal::Invalid, true);
                }
                if !self.may(dev, Access::REMOTE_ATOMIC, rkey, remote, len) {
                    return self.refuse(Refusal::Access, true);
                }
                Place::Addend { remote, rkey, bytes: [0; 8] }
            }
        };
        self.parse = Parse::Body { request, place, done: 0 };
        if request.body() == 0 {
            self.finish(dev, request, place);
        }
    }

    fn may(&self, dev: &Dev, need: Access, rkey: u32, remote: u64, len: usize) -> bool {
        self.access.has(need) && dev.table().remote(rkey, remote, len, need).is_some()
    }

    /// Takes a receive buffer. `None`: the request waits or was refused.
    fn take(&mut self, dev: &Dev, request: Request, until: Option<Instant>) -> Option<Place> {
        let (receive, number) = match self.qp.receives().take() {
            Taken::One(receive, number) => (receive, number),
            Taken::Busy => {
                self.parse = Parse::Stalled { request, until };
                return None;
            }
            Taken::None => {
                self.stall(request, until);
                return None;
            }
        };
        if request.len > receive.buffer.len {
            self.end_receive(receive, number, Status::LocalLength, 0, None);
            self.refuse(Refusal::Invalid, true);
            return None;
        }
        if dev.table().local(&receive.buffer, true).is_none() {
            self.end_receive(receive, number, Status::LocalProtection, 0, None);
            self.refuse(Refusal::Operation, true);
            return None;
        }
        Some(Place::Buffer(receive, number))
    }

    /// No receive is posted: the tries of the sender are counted here, so that what it reports as failed is never taken.
    fn stall(&mut self, request: Request, until: Option<Instant>) {
        let until = match (self.rnr, until) {
            (7, _) => None,
            (0, _) => return self.refuse(Refusal::NotReady, false),
            (tries, None) => Some(Instant::now() + self.timer * u32::from(tries)),
            (_, Some(until)) if Instant::now() >= until => {
                return self.refuse(Refusal::NotReady, false);
            }
            (_, until) => until,
        };
        self.parse = Parse::Stalled { request, until };
        if !self.qp.receives().want() {
            // A receive came between the two looks: the next turn takes it.
            self.qp.dev().wake();
        }
    }

    /// Says no. `fatal`: this queue pair fails too.
    pub(super) fn refuse(&mut self, why: Refusal, fatal: bool) {
        self.answer(Response::Nak { msn: self.qp.next_msn(), why }, &[]);
        self.parse = Parse::Over { until: Instant::now() + LINGER.limit };
        self.held = Vec::new();
        self.held_at = 0;
        if fatal {
            self.qp.fail_here();
        }
    }

    fn placed(&mut self, dev: &Dev, count: usize) {
        if let Parse::Body { request, place, done } = &mut self.parse {
            *done += count;
            if *done == request.body() {
                let (request, place) = (*request, *place);
                self.finish(dev, request, place);
            }
        }
    }

    /// A request is whole.
    fn finish(&mut self, dev: &Dev, request: Request, place: Place) {
        self.parse = FRESH;
        match place {
            Place::Buffer(receive, number) => {
                let imm = match request.verb {
                    Verb::Send { imm, .. } => imm,
                    _ => None,
                };
                self.end_receive(receive, number, Status::Success, request.len, imm);
            }
            Place::Addend { remote, rkey, bytes } => {
                let span = dev.table().remote(rkey, remote, 8, Access::REMOTE_ATOMIC);
                let Some(old) = span.and_then(|span| span.fetch_add(u64::from_le_bytes(bytes)))
                else {
                    return self.refuse(Refusal::Access, true);
                };
                self.answer(Response::Data { msn: request.msn, len: 8 }, &old.to_ne_bytes());
            }
            Place::Memory { .. } | Place::Nowhere => {}
        }
        self.qp.next_msn_is(request.msn.wrapping_add(1));
        self.bytes_owed += request.body() as u64;
        self.urgent |= request.want_ack;
        self.large = request.body() >= DIRECT;
        self.qp.did_one();
        if matches!(request.verb, Verb::Read { .. } | Verb::FetchAdd { .. }) {
            // Its data is its acknowledgement, and that of all before.
            self.qp.told(self.qp.done());
        }
    }

    /// Writes answers until the stream takes no more.
    fn write_out(&mut self, dev: &Dev) -> Result<(), ()> {
        while !self.out.is_empty() {
            let mut pieces = Gather::new();
            let mut skip = self.out_at;
            for item in &self.out {
                if pieces.room() == 0 {
                    break;
                }
                match item {
                    Out::Bytes { bytes, len } => {
                        pieces.bytes(bytes.get(skip..*len).unwrap_or_default());
                    }
                    Out::Memory { remote, rkey, len } => {
                        let from = remote.checked_add(skip as u64).ok_or(())?;
                        let span = dev.table().remote(*rkey, from, len - skip, Access::REMOTE_READ);
                        // The region ended while it was read: nothing can be said in the middle of an answer.
                        pieces.span(span.ok_or(())?);
                    }
                    Out::Kept(bytes) => {
                        pieces.bytes(bytes.get(skip..).unwrap_or_default());
                    }
                }
                skip = 0;
            }
            let wanted = pieces.total();
            let written = match pieces.send(self.stream.as_fd()) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(_) => return Err(()),
            };
            self.advance(written);
            if written < wanted {
                return Ok(());
            }
        }
        Ok(())
    }

    fn advance(&mut self, mut written: usize) {
        while let Some(item) = self.out.front() {
            let left = item.len() - self.out_at;
            if written < left {
                self.out_at += written;
                return;
            }
            written -= left;
            self.out_at = 0;
            self.out.pop_front();
        }
    }

    /// Whether the tries of a sender without a buffer have a limit.
    pub(super) const fn has_timer(&self) -> bool {
        matches!(self.parse, Parse::Stalled { until: Some(_), .. } | Parse::Over { .. })
    }

    /// Whether acknowledgements are owed.
    pub(super) fn owes(&self) -> bool {
        self.qp.debt() != 0
    }

    /// Whether a request of the peer has begun to arrive, or its end was not said yet.
    pub(super) fn is_behind(&self) -> bool {
        let rests = matches!(self.parse, Parse::Header { have: 0, .. } | Parse::Over { .. });
        !rests || self.owes() || !self.out.is_empty() || !self.held.is_empty()
    }

    /// Writes a small message of this side's; `rest` copies what is left of it after so many bytes. False: not now, and
    /// nothing was written.
    pub(super) fn send_back(
        &mut self,
        message: Gather<'_>,
        rest: impl FnOnce(usize) -> Vec<u8>,
    ) -> bool {
        if !self.out.is_empty() || matches!(self.parse, Parse::Over { .. }) {
            return false;
        }
        let whole = message.total();
        let written = message.send(self.stream.as_fd()).unwrap_or(0);
        if written != 0 && written < whole {
            self.out.push_back(Out::Kept(rest(written)));
        }
        written != 0
    }

    /// Whether no request has been taken yet.
    pub(super) fn untouched(&self) -> bool {
        self.qp.next_msn() == 0 && matches!(self.parse, Parse::Header { have: 0, .. })
    }
}
