//! The responder's half of a reliable queue pair: takes the peer's requests from their stream and
//! answers on it.
//!
//! `receive` reads requests and puts their data into place, `transmit` writes responses.

mod receive;
mod transmit;

use settings::deadlines::soft::LINGER;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use self::transmit::Out;
use super::flood::Flood;
use super::limits::{ACK_BYTES, ACK_IDLE, DIRECT, MAX_WR, rnr_timer};
use super::memory::Table;
use super::qp::{Attributes, Qp};
use super::qp_shared::{Delivered, Turn};
use super::reverse_path::ReverseRole;
use super::rq::Taken;
use super::stream::Stream;
use super::wire::{REQUEST, RESPONSE, Refusal, Request, Response, low};
use crate::{Access, Completion, Opcode, Operation, RecvWr, Status};

/// Where the data of a request goes.
#[derive(Clone, Copy, Debug)]
enum Place {
    Buffer(RecvWr, u64),
    Memory {
        remote: u64,
        rkey: u32,
    },
    /// The memory that the request names, and the receive that tells of it.
    Told(RecvWr, u64),
    /// Memory, later: the bytes are kept until then.
    Late {
        remote: u64,
        rkey: u32,
        delay: Duration,
    },
    Operand {
        remote: u64,
        rkey: u32,
        operands: [u8; 16],
    },
    Nowhere,
}

#[derive(Clone, Copy, Debug)]
enum Parse {
    Header {
        have: usize,
        bytes: [u8; REQUEST],
    },
    /// A message that waits for a receive.
    RnrWait {
        request: Request,
        until: Option<Instant>,
    },
    /// A request behind messages of the reverse path that have not arrived.
    OutOfOrder {
        request: Request,
    },
    Body {
        request: Request,
        place: Place,
        done: usize,
    },
    /// Refused: the rest of the stream is discarded until the peer closes it.
    Discard {
        until: Instant,
    },
}

impl Parse {
    const START: Self = Self::Header { have: 0, bytes: [0; REQUEST] };
}

#[derive(Debug)]
pub(super) struct Responder {
    pub(super) qp: Arc<Qp>,
    pub(super) stream: Arc<Stream>,
    access: Access,
    reverse_role: ReverseRole,
    rnr: u8,
    timer: Duration,
    parse: Parse,
    held: Vec<u8>,
    held_at: usize,
    out: VecDeque<Out>,
    out_at: usize,
    unacked_bytes: u64,
    urgent: bool,
    idle: u32,
    large: bool,
    pub(super) flood: Flood,
    /// Receives ended in this turn, and nobody was told.
    unreported: bool,
    /// Data so far of a write that a fault script delays.
    late: Vec<u8>,
}

impl Responder {
    pub(super) fn new(qp: Arc<Qp>, stream: Arc<Stream>, rnr: u8, attributes: &Attributes) -> Self {
        Self {
            qp,
            stream,
            access: attributes.access,
            reverse_role: attributes.reverse_role,
            rnr,
            timer: rnr_timer(attributes.rnr_timer),
            parse: Parse::START,
            held: Vec::new(),
            held_at: 0,
            out: VecDeque::new(),
            out_at: 0,
            unacked_bytes: 0,
            urgent: false,
            idle: 0,
            large: false,
            flood: Flood::default(),
            unreported: false,
            late: Vec::new(),
        }
    }

    /// Reads requests, writes responses. `eager`: nobody polls, so acknowledgements go out at once.
    /// `None`: the stream is over.
    pub(super) fn turn(
        &mut self,
        regions: &Table,
        scratch: &mut [u8],
        eager: bool,
    ) -> Option<Turn> {
        let turn = self.try_turn(regions, scratch, eager);
        if std::mem::take(&mut self.unreported) {
            self.qp.report_receives();
        }
        if turn.is_none() {
            self.abandon();
        }
        turn
    }

    fn try_turn(&mut self, regions: &Table, scratch: &mut [u8], eager: bool) -> Option<Turn> {
        let serves = self.qp.answers() || matches!(self.parse, Parse::Discard { .. });
        if self.qp.destroyed.is_set() || !serves {
            return None;
        }
        self.write_out(regions)?;
        let turn = self.read(regions, scratch)?;
        self.idle = if turn.progressed { 0 } else { self.idle.saturating_add(1) };
        let many = self.qp.is_ack_due();
        let due = eager
            || many
            || (self.urgent && !turn.again)
            || self.idle >= ACK_IDLE
            || self.unacked_bytes >= ACK_BYTES;
        if due {
            self.queue_ack();
        }
        self.write_out(regions)?;
        Some(turn)
    }

    fn queue_ack(&mut self) {
        let done = self.qp.done();
        // What a request has acknowledged counts no more.
        self.unacked_bytes = 0;
        self.urgent = false;
        if self.qp.unacked() == 0 {
            return;
        }
        self.qp.set_announced(done);
        self.answer(Response::Ack { done: low(done) }, &[]);
    }

    /// Writes pending acknowledgements, as far as the stream takes them.
    pub(super) fn flush_acks(&mut self, regions: &Table) {
        if !matches!(self.parse, Parse::Discard { .. }) {
            self.queue_ack();
        }
        let _ = self.write_out(regions);
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

    /// The stream is over. A receive whose message will never be whole ends as flushed when the
    /// queue pair is in error, and waits for its next message otherwise.
    pub(super) fn abandon(&mut self) {
        let Parse::Body { place, .. } = self.parse else { return };
        if let Place::Buffer(receive, number) | Place::Told(receive, number) = place {
            self.parse = Parse::START;
            if self.qp.is_error() || !self.qp.receives().put_back(receive) {
                self.qp.end_receive(&receive, number, Status::Flushed);
            }
        }
    }

    /// Takes a header; `body`: what has come after it. Returns how much of that was used.
    fn arrived(&mut self, regions: &Table, header: &[u8; REQUEST], body: &[u8]) -> usize {
        let Ok(request) = Request::decode(header) else {
            self.refuse(Refusal::Invalid, true);
            return 0;
        };
        let ahead = request.msn.wrapping_sub(self.qp.next_msn.load(Relaxed));
        if ahead != 0 && (self.reverse_role != ReverseRole::Receiver || ahead > MAX_WR) {
            self.refuse(Refusal::Invalid, true);
            return 0;
        }
        if let Operation::Send { .. } = request.operation {
            self.qp.peer_credit_limit.store(request.credit_limit, Relaxed);
        }
        if let Some(done) = request.ack
            && !self.qp.acknowledged(done)
        {
            self.refuse(Refusal::Invalid, true);
            return 0;
        }
        if ahead != 0 {
            self.parse = Parse::OutOfOrder { request };
            return 0;
        }
        if let Operation::Send { imm } = request.operation
            && let Some(bytes) = body.get(..request.len as usize)
        {
            return self.message(regions, request, imm, bytes);
        }
        self.begin(regions, request, None);
        0
    }

    /// A message that is all there.
    fn message(
        &mut self,
        regions: &Table,
        request: Request,
        imm: Option<u32>,
        bytes: &[u8],
    ) -> usize {
        self.parse = Parse::START;
        self.qp.ctx.faults.writes.place(regions, None);
        match self.qp.deliver(&request, imm, bytes) {
            Ok(Delivered::Yes) => {
                self.unreported = true;
                self.count(&request);
                return bytes.len();
            }
            Ok(Delivered::Busy) => self.parse = Parse::RnrWait { request, until: None },
            Ok(Delivered::NoReceive) => self.stall(request, None),
            Err(why) => self.refuse(why, true),
        }
        0
    }

    /// Finds the place of a request's data; executes a request without data.
    fn begin(&mut self, regions: &Table, request: Request, until: Option<Instant>) {
        let len = request.len as usize;
        if !matches!(request.operation, Operation::Write { .. }) {
            // Whatever else goes through a device pushes writes before it.
            self.qp.ctx.faults.writes.place(regions, None);
        }
        let (need, remote, rkey, place) = match request.operation {
            Operation::Send { .. } => {
                let taken = self.qp.take_receive(request.len);
                if let Some((receive, number)) = self.taken(taken, request, until) {
                    self.begin_body(regions, request, Place::Buffer(receive, number));
                }
                return;
            }
            Operation::WriteImm { remote, rkey, .. } => {
                let need = Access::REMOTE_WRITE;
                if !self.access.has(need) || regions.remote(rkey, remote, len, need).is_none() {
                    return self.refuse(Refusal::Access, true);
                }
                // Its buffer is not used.
                let taken = Ok(self.qp.receives().take());
                if let Some((receive, number)) = self.taken(taken, request, until) {
                    self.begin_body(regions, request, Place::Told(receive, number));
                }
                return;
            }
            Operation::Write { remote, rkey } => {
                (Access::REMOTE_WRITE, remote, rkey, self.write_place(remote, rkey))
            }
            Operation::Read { remote, rkey } => (Access::REMOTE_READ, remote, rkey, Place::Nowhere),
            Operation::FetchAdd { remote, .. } | Operation::CompareSwap { remote, .. }
                if !remote.is_multiple_of(8) =>
            {
                return self.refuse(Refusal::Invalid, true);
            }
            Operation::FetchAdd { remote, rkey, .. }
            | Operation::CompareSwap { remote, rkey, .. } => {
                let place = Place::Operand { remote, rkey, operands: [0; 16] };
                (Access::REMOTE_ATOMIC, remote, rkey, place)
            }
        };
        if !self.access.has(need) || regions.remote(rkey, remote, len, need).is_none() {
            return self.refuse(Refusal::Access, true);
        }
        if let Operation::Read { .. } = request.operation {
            self.answer(Response::Data { msn: request.msn, len: request.len }, &[]);
            if len != 0 {
                self.out.push_back(Out::Memory { remote, rkey, len });
            }
        }
        self.begin_body(regions, request, place);
    }

    /// Where the data of a write goes: by a fault script, later.
    fn write_place(&self, remote: u64, rkey: u32) -> Place {
        let faults = &self.qp.ctx.faults;
        let delay = faults.plan.delays_writes().then(|| faults.plan.write_delay()).flatten();
        match delay {
            None if !faults.writes.wait() => Place::Memory { remote, rkey },
            delay => Place::Late { remote, rkey, delay: delay.unwrap_or_default() },
        }
    }

    fn begin_body(&mut self, regions: &Table, request: Request, place: Place) {
        self.parse = Parse::Body { request, place, done: 0 };
        if request.body() == 0 {
            self.finish(regions, request, place);
        }
    }

    /// The receive that was taken. `None`: the request waits or was refused.
    #[inline(always)]
    fn taken(
        &mut self,
        taken: Result<Taken, Refusal>,
        request: Request,
        until: Option<Instant>,
    ) -> Option<(RecvWr, u64)> {
        match taken {
            Ok(Taken::One(receive, number)) => return Some((receive, number)),
            Ok(Taken::Busy) => self.parse = Parse::RnrWait { request, until },
            Ok(Taken::None) => self.stall(request, until),
            Err(why) => self.refuse(why, true),
        }
        None
    }

    /// No receive is posted (RNR): the sender's retries are counted here, so that what it reports
    /// as failed is never delivered.
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
        self.parse = Parse::RnrWait { request, until };
        if !self.qp.receives().counters.want() {
            // A receive came between the two checks: the next turn takes it.
            self.qp.ctx.activity.wake();
        }
    }

    /// Refuses the request. `fatal`: this queue pair fails too.
    pub(super) fn refuse(&mut self, why: Refusal, fatal: bool) {
        self.answer(Response::Nak { msn: self.qp.next_msn.load(Relaxed), why }, &[]);
        self.parse = Parse::Discard { until: Instant::now() + LINGER.limit };
        self.held = Vec::new();
        self.held_at = 0;
        if fatal {
            self.qp.enter_error(true);
        }
    }

    fn finish(&mut self, regions: &Table, request: Request, place: Place) {
        self.parse = Parse::START;
        match place {
            Place::Buffer(receive, number) => {
                let imm = match request.operation {
                    Operation::Send { imm } => imm,
                    _ => None,
                };
                let (id, len, opcode) = (receive.id, request.len, Opcode::Receive);
                let entry = Completion { id, opcode, len, imm, ..Completion::EMPTY };
                self.qp.complete_receive(&entry, number);
            }
            Place::Told(receive, number) => {
                let imm = match request.operation {
                    Operation::WriteImm { imm, .. } => Some(imm),
                    _ => None,
                };
                let (id, len, opcode) = (receive.id, request.len, Opcode::ReceivedWrite);
                let entry = Completion { id, opcode, len, imm, ..Completion::EMPTY };
                self.qp.complete_receive(&entry, number);
            }
            Place::Operand { remote, rkey, operands } => {
                let span = regions.remote(rkey, remote, 8, Access::REMOTE_ATOMIC);
                let [first, second] = words(operands);
                let old = span.and_then(|span| match request.operation {
                    Operation::CompareSwap { .. } => span.compare_swap(first, second),
                    _ => span.fetch_add(first),
                });
                let Some(old) = old else {
                    return self.refuse(Refusal::Access, true);
                };
                self.answer(Response::Data { msn: request.msn, len: 8 }, &old.to_ne_bytes());
            }
            Place::Late { remote, rkey, delay } => {
                let bytes = std::mem::take(&mut self.late);
                self.qp.ctx.faults.writes.push(Instant::now() + delay, (remote, rkey), bytes);
                self.qp.ctx.activity.wake();
            }
            Place::Memory { .. } | Place::Nowhere => {}
        }
        self.count(&request);
        self.qp.request_done(&request);
        if request.operation.awaits_data() {
            // Its data is its acknowledgement, and that of all before.
            self.qp.set_announced(self.qp.done());
        }
    }

    /// A request is done.
    fn count(&mut self, request: &Request) {
        self.unacked_bytes += request.body() as u64;
        self.urgent |= request.want_ack;
        self.large = request.body() >= DIRECT;
        let is_message = matches!(request.operation, Operation::Send { .. });
        let len = request.body() * usize::from(is_message);
        self.flood.count(len, || self.qp.ctx.activity.posts.load(Relaxed));
    }

    /// Whether the wait for a receive has a limit.
    pub(super) const fn has_timer(&self) -> bool {
        matches!(self.parse, Parse::RnrWait { until: Some(_), .. } | Parse::Discard { .. })
    }

    /// Whether it goes on only when something comes: it has nothing to write but acknowledgements.
    pub(super) fn only_reads(&self) -> bool {
        self.out.is_empty() && self.held.is_empty() && !self.has_timer()
    }

    pub(super) fn ack_pending(&self) -> bool {
        self.qp.unacked() != 0
    }

    /// Whether a request of the peer has begun to arrive, or is not acknowledged.
    pub(super) fn is_behind(&self) -> bool {
        let rests = matches!(self.parse, Parse::Header { have: 0, .. } | Parse::Discard { .. });
        !rests || self.ack_pending() || !self.out.is_empty() || !self.held.is_empty()
    }

    pub(super) fn is_unused(&self) -> bool {
        self.qp.next_msn.load(Relaxed) == 0 && matches!(self.parse, Parse::Header { have: 0, .. })
    }
}

/// The operands of an atomic.
#[expect(clippy::cast_possible_truncation, reason = "the two halves")]
const fn words(bytes: [u8; 16]) -> [u64; 2] {
    let both = u128::from_le_bytes(bytes);
    [both as u64, (both >> 64) as u64]
}
