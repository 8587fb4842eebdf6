//! The requester's half of a reliable queue pair: the send queue, its stream, and the responses that come back on it.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::cq::Gives;
use super::limits::{
    DEFER_BYTES, DEFER_COUNT, DEFER_FROM, DIRECT, MAX_MESSAGE, READS_PER_TURN, REDIAL_FIRST,
};
use super::memory::{Gather, Scatter, Table};
use super::qp::Qp;
use super::wire::{Garbage, REQUEST, RESPONSE, Refusal, Request, Response, Verb};
use super::{low, narrow};
use crate::{Data, Opcode, Operation, PostError, Send, Sge, Status};

/// One posted send request.
#[derive(Clone, Copy, Debug)]
struct Wqe {
    id: u64,
    operation: Operation,
    len: u32,
    sges: u8,
    signaled: bool,
    inline: bool,
    /// Its data has come (reads and additions).
    answered: bool,
    /// Found wrong before it was sent.
    fault: Option<Status>,
    /// Acknowledgement that goes with it.
    ack: Option<u32>,
}

impl Wqe {
    const EMPTY: Self = Self {
        id: 0,
        operation: Operation::Send { imm: None },
        len: 0,
        sges: 0,
        signaled: false,
        inline: false,
        answered: false,
        fault: None,
        ack: None,
    };

    const fn awaits_data(&self) -> bool {
        matches!(self.operation, Operation::Read { .. } | Operation::FetchAdd { .. })
    }

    const fn opcode(&self) -> Opcode {
        match self.operation {
            Operation::Send { .. } => Opcode::Send,
            Operation::Write { .. } => Opcode::Write,
            Operation::Read { .. } => Opcode::Read,
            Operation::FetchAdd { .. } => Opcode::FetchAdd,
        }
    }

    /// Bytes on the wire.
    const fn size(&self) -> usize {
        match self.operation {
            Operation::Read { .. } => REQUEST,
            Operation::FetchAdd { .. } => REQUEST + 8,
            _ => REQUEST + self.len as usize,
        }
    }

    fn header(&self, msn: u32) -> [u8; REQUEST + 8] {
        let (verb, add) = match self.operation {
            Operation::Send { imm } => (Verb::Send { imm }, 0),
            Operation::Write { remote, rkey } => (Verb::Write { remote, rkey }, 0),
            Operation::Read { remote, rkey } => (Verb::Read { remote, rkey }, 0),
            Operation::FetchAdd { remote, rkey, add } => (Verb::FetchAdd { remote, rkey }, add),
        };
        let want_ack = self.signaled && matches!(self.operation, Operation::Write { .. });
        let request = Request { verb, len: self.len, msn, ack: self.ack, want_ack };
        let mut out = [0; REQUEST + 8];
        out[..REQUEST].copy_from_slice(&request.encode());
        out[REQUEST..].copy_from_slice(&add.to_le_bytes());
        out
    }

    const fn header_len(&self) -> usize {
        if matches!(self.operation, Operation::FetchAdd { .. }) { REQUEST + 8 } else { REQUEST }
    }
}

/// What a read from the stream ended in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answers {
    /// So far everything is read.
    Dry {
        /// Whether there was anything.
        did: bool,
    },
    /// More may be there.
    More,
    /// The stream is over or says garbage.
    Lost,
}

/// Where the parser of responses is.
#[derive(Clone, Copy, Debug)]
enum Reading {
    Header { have: usize, bytes: [u8; RESPONSE] },
    Data { number: u64, len: u32, done: u32 },
}

const FRESH: Reading = Reading::Header { have: 0, bytes: [0; RESPONSE] };

/// The send queue. Numbers count requests since the queue pair was made.
#[derive(Debug)]
pub(super) struct Tx {
    ring: Box<[Wqe]>,
    sges: Box<[Sge]>,
    per: usize,
    max: u64,
    /// Oldest request that is not complete.
    head: u64,
    /// All before it are acknowledged.
    acked: u64,
    /// Next request to be written, and how much of it is.
    next: u64,
    offset: usize,
    tail: u64,
    /// Number of the first request of this connection.
    base: u64,
    /// Bytes of inline requests that are not written yet, in order.
    spill: VecDeque<u8>,
    spill_max: usize,
    deferred: u32,
    pub(super) stream: Option<Arc<TcpStream>>,
    /// The connection was there and is gone.
    pub(super) lost: bool,
    pub(super) blocked: bool,
    reads: u32,
    pub(super) rd_atom: u32,
    reading: Reading,
    /// For the timers: what was seen last and when.
    seen: (u64, Option<Instant>),
    pub(super) patience: Option<Duration>,
    pub(super) redial: (Option<Instant>, Duration),
    pub(super) dialing: bool,
}

#[expect(clippy::cast_possible_truncation, reason = "the mask is below the ring's size")]
const fn index(number: u64, size: usize) -> usize {
    (number & (size as u64 - 1)) as usize
}

/// Pieces of a list of entries from `from` bytes on.
fn rest_of(sges: &[Sge], mut from: usize) -> impl Iterator<Item = (&Sge, usize)> {
    sges.iter().filter_map(move |sge| {
        let len = sge.len as usize;
        if from >= len {
            from -= len;
            return None;
        }
        Some((sge, std::mem::take(&mut from)))
    })
}

impl Tx {
    pub(super) fn new(max: u32, per: u32, spill_max: usize) -> Self {
        let size = max.max(1).next_power_of_two() as usize;
        let per = per.max(1) as usize;
        Self {
            ring: vec![Wqe::EMPTY; size].into_boxed_slice(),
            sges: vec![Sge::default(); size * per].into_boxed_slice(),
            per,
            max: u64::from(max),
            head: 0,
            acked: 0,
            next: 0,
            offset: 0,
            tail: 0,
            base: 0,
            spill: VecDeque::new(),
            spill_max,
            deferred: 0,
            stream: None,
            lost: false,
            blocked: false,
            reads: 0,
            rd_atom: 1,
            reading: FRESH,
            seen: (0, None),
            patience: None,
            redial: (None, REDIAL_FIRST),
            dialing: false,
        }
    }

    fn wqe(&self, number: u64) -> &Wqe {
        self.ring.get(index(number, self.ring.len())).unwrap_or(&Wqe::EMPTY)
    }

    fn wqe_mut(&mut self, number: u64) -> Option<&mut Wqe> {
        let at = index(number, self.ring.len());
        self.ring.get_mut(at)
    }

    fn sges(&self, number: u64, count: u8) -> &[Sge] {
        let at = index(number, self.ring.len()) * self.per;
        self.sges.get(at..at + usize::from(count)).unwrap_or_default()
    }

    /// Requests that are posted and not complete.
    pub(super) const fn in_flight(&self) -> u64 {
        self.tail - self.head
    }

    /// Takes a request; sends it at once when the stream takes it. `freed`: requests before this number were polled.
    pub(super) fn post(
        &mut self,
        qp: &Qp,
        send: &Send<'_>,
        freed: u64,
        may_defer: bool,
    ) -> Result<(), PostError> {
        if self.tail.saturating_sub(freed) >= self.max {
            return Err(PostError::Full);
        }
        let mut wqe = self.admit(qp, send)?;
        let idle = self.next == self.tail;
        wqe.ack = qp.ack_to_carry(self.next == self.head);
        let number = self.tail;
        if let Some(place) = self.wqe_mut(number) {
            *place = wqe;
        }
        if let Data::Gather(list) = send.data {
            let at = index(number, self.ring.len()) * self.per;
            if let Some(places) = self.sges.get_mut(at..at + list.len()) {
                places.copy_from_slice(list);
            }
        }
        self.tail += 1;
        if qp.is_error() {
            self.flush_all(qp);
            return Ok(());
        }
        let small = wqe.size() + self.spill.len() <= DEFER_BYTES;
        let busy = number - self.head >= DEFER_FROM;
        if may_defer && small && busy && self.deferred < DEFER_COUNT && !self.blocked {
            self.deferred += 1;
            self.keep(&send.data, 0);
            qp.mark_dirty();
            return Ok(());
        }
        if idle && wqe.fault.is_none() && self.can_write(&wqe) {
            self.write_now(qp, &wqe, &send.data);
        } else {
            self.keep(&send.data, 0);
            self.flush(qp);
        }
        if wqe.fault.is_some() {
            self.retire(qp);
        }
        Ok(())
    }

    /// Checks a request and makes its entry.
    fn admit(&self, qp: &Qp, send: &Send<'_>) -> Result<Wqe, PostError> {
        if send.to.is_some() {
            return Err(PostError::Invalid("a target of datagrams on a reliable connection"));
        }
        let mut wqe =
            Wqe { id: send.id, operation: send.operation, signaled: send.signaled, ..Wqe::EMPTY };
        match send.data {
            Data::Gather(list) => {
                if list.len() > self.per {
                    return Err(PostError::Invalid("more pieces than the queue pair was made for"));
                }
                let total: u64 = list.iter().map(|sge| u64::from(sge.len)).sum();
                wqe.len = u32::try_from(total).unwrap_or(u32::MAX);
                wqe.sges = u8::try_from(list.len()).unwrap_or(u8::MAX);
                if wqe.len > MAX_MESSAGE {
                    wqe.fault = Some(Status::LocalLength);
                } else if list
                    .iter()
                    .any(|sge| qp.dev().table().local(sge, wqe.awaits_data()).is_none())
                {
                    wqe.fault = Some(Status::LocalProtection);
                }
            }
            Data::Inline(list) => {
                if wqe.awaits_data() {
                    return Err(PostError::Invalid("inline data of a read or an atomic"));
                }
                let total: usize = list.iter().map(|bytes| bytes.len()).sum();
                if total > qp.inline_limit() {
                    return Err(PostError::Invalid("more inline bytes than the limit"));
                }
                if self.spill.len() + total > self.spill_max {
                    return Err(PostError::Full);
                }
                wqe.len = narrow(total);
                wqe.inline = true;
            }
        }
        if matches!(send.operation, Operation::FetchAdd { .. }) && wqe.len != 8 {
            return Err(PostError::Invalid("an addition of other than 8 bytes"));
        }
        Ok(wqe)
    }

    const fn can_write(&self, wqe: &Wqe) -> bool {
        let may_read = !wqe.awaits_data() || self.reads < self.rd_atom;
        self.stream.is_some() && !self.blocked && may_read
    }

    /// Keeps inline bytes from `from` on for later.
    fn keep(&mut self, data: &Data<'_>, mut from: usize) {
        if let Data::Inline(list) = data {
            for bytes in *list {
                let skip = from.min(bytes.len());
                from -= skip;
                self.spill.extend(bytes.iter().skip(skip));
            }
        }
    }

    /// Writes the last posted request, which is the only one to be written, without a copy.
    fn write_now(&mut self, qp: &Qp, wqe: &Wqe, data: &Data<'_>) {
        let number = self.tail - 1;
        let header = wqe.header(low(number - self.base));
        let size = wqe.size();
        let head = header.get(..wqe.header_len()).unwrap_or_default();
        let Some(stream) = self.stream.clone() else { return };
        let mut out = Gather::new();
        let mut whole = out.bytes(head);
        if !wqe.awaits_data() {
            whole &= match data {
                Data::Inline(list) => list.iter().all(|bytes| out.bytes(bytes)),
                Data::Gather(list) => list.iter().all(|sge| {
                    qp.dev().table().local(sge, false).is_some_and(|span| out.span(span))
                }),
            };
        }
        let written = if !whole {
            0
        } else if out.total() == head.len() {
            drop(out);
            self.wrote(qp, (&*stream).write(head))
        } else {
            self.wrote(qp, out.send(stream.as_fd()))
        };
        if written == size {
            self.next = self.tail;
            self.reads += u32::from(wqe.awaits_data());
            return;
        }
        self.offset = written;
        self.keep(data, written.saturating_sub(REQUEST));
        if whole {
            self.block(qp);
        } else {
            self.flush(qp);
        }
    }

    /// What a write to the stream did.
    fn wrote(&mut self, qp: &Qp, result: io::Result<usize>) -> usize {
        match result {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(_) => {
                self.lose(qp);
                0
            }
        }
    }

    pub(super) fn block(&mut self, qp: &Qp) {
        if !self.blocked && self.stream.is_some() {
            self.blocked = true;
            qp.dev().blocked(true);
        }
    }

    pub(super) fn unblock(&mut self, qp: &Qp) {
        if self.blocked {
            self.blocked = false;
            qp.dev().blocked(false);
        }
    }

    /// The stream is gone. What is in flight ends when the patience does.
    pub(super) fn lose(&mut self, qp: &Qp) {
        self.unblock(qp);
        if let Some(stream) = self.stream.take() {
            let _ = stream.shutdown(std::net::Shutdown::Both);
            self.lost = true;
        }
    }

    /// Writes what the stream takes.
    pub(super) fn flush(&mut self, qp: &Qp) {
        self.deferred = 0;
        while self.next < self.tail && !self.blocked {
            let Some(stream) = self.stream.clone() else { return };
            match self.write_batch(qp, &stream) {
                None => return,
                Some((wanted, written)) => {
                    self.advance(written);
                    if written < wanted {
                        self.block(qp);
                    }
                }
            }
        }
    }

    /// One system call for as many requests as fit. `None`: the next request cannot be written now.
    fn write_batch(&mut self, qp: &Qp, stream: &TcpStream) -> Option<(usize, usize)> {
        const BATCH: usize = 12;
        let mut headers = [[0_u8; REQUEST + 8]; BATCH];
        let mut last = self.next;
        let mut reads = self.reads;
        for (place, number) in headers.iter_mut().zip(self.next..self.tail) {
            let wqe = self.wqe(number);
            if wqe.fault.is_some() || (wqe.awaits_data() && reads >= self.rd_atom) {
                break;
            }
            reads += u32::from(wqe.awaits_data());
            *place = wqe.header(low(number - self.base));
            last = number + 1;
        }
        let (mut offset, mut kept, mut bad) = (self.offset, 0, None);
        let mut out = Gather::new();
        'requests: for (header, number) in headers.iter().zip(self.next..last) {
            let wqe = self.wqe(number);
            let head = header.get(..wqe.header_len()).unwrap_or_default();
            let body = wqe.size() - wqe.header_len();
            if out.room() < 3 + usize::from(wqe.sges) {
                break;
            }
            out.bytes(head.get(offset.min(head.len())..).unwrap_or_default());
            let from = offset.saturating_sub(head.len());
            offset = 0;
            if wqe.inline {
                push_kept(&mut out, &self.spill, kept, body - from);
                kept += body - from;
            } else if body != 0 && !wqe.awaits_data() {
                for (sge, skip) in rest_of(self.sges(number, wqe.sges), from) {
                    match qp.dev().table().local_from(sge, skip, false) {
                        Some(span) => drop(out.span(span)),
                        None => {
                            bad = Some(number);
                            break 'requests;
                        }
                    }
                }
            }
        }
        let wanted = out.total();
        if let Some(number) = bad {
            // A region that ended under a posted request: it stops the queue there.
            drop(out);
            if let Some(wqe) = self.wqe_mut(number) {
                wqe.fault = Some(Status::LocalProtection);
            }
            if number == self.next && self.offset != 0 {
                self.lose(qp);
            }
            qp.want_attention();
            return (number != self.next).then_some((0, 0));
        }
        if wanted == 0 {
            return None;
        }
        let result = out.send(stream.as_fd());
        let written = self.wrote(qp, result);
        self.stream.is_some().then_some((wanted, written))
    }

    /// Counts written bytes.
    fn advance(&mut self, mut written: usize) {
        while written != 0 && self.next < self.tail {
            let wqe = *self.wqe(self.next);
            let now = written.min(wqe.size() - self.offset);
            if wqe.inline {
                let before = self.offset.saturating_sub(REQUEST);
                let after = (self.offset + now).saturating_sub(REQUEST);
                self.spill.drain(..(after - before).min(self.spill.len()));
            }
            written -= now;
            self.offset += now;
            if self.offset == wqe.size() {
                self.offset = 0;
                self.next += 1;
                self.reads += u32::from(wqe.awaits_data());
            }
        }
    }

    /// Applies an acknowledgement: `done` requests of this connection are done. Older news than known is none.
    pub(super) fn acknowledged(&mut self, qp: &Qp, done: u32) -> Result<(), Garbage> {
        let known = low(self.acked - self.base);
        let ahead = done.wrapping_sub(known);
        if ahead > u32::MAX / 2 {
            return Ok(());
        }
        if u64::from(ahead) > self.next - self.acked.min(self.next) {
            return Err(Garbage::Sequence(done));
        }
        self.acked += u64::from(ahead);
        self.retire(qp);
        Ok(())
    }

    /// Completes what is done, in order, and fails the queue pair at a request that was found wrong.
    pub(super) fn retire(&mut self, qp: &Qp) {
        while self.head < self.acked {
            let wqe = *self.wqe(self.head);
            if wqe.awaits_data() && !wqe.answered {
                return;
            }
            self.end(qp, &wqe, self.head, Status::Success);
            self.head += 1;
        }
        if self.head == self.next
            && self.head < self.tail
            && let Some(status) = self.wqe(self.head).fault
        {
            self.fail(qp, status);
        }
    }

    fn end(&self, qp: &Qp, wqe: &Wqe, number: u64, status: Status) {
        if wqe.signaled || status != Status::Success {
            let len = if wqe.awaits_data() { wqe.len } else { 0 };
            qp.sent(wqe.id, status, wqe.opcode(), len, Gives::Sends(number + 1));
        }
    }

    /// The oldest request failed: reports it, flushes the rest, and the queue pair is in error.
    pub(super) fn fail(&mut self, qp: &Qp, status: Status) {
        if self.head < self.tail {
            let wqe = *self.wqe(self.head);
            self.end(qp, &wqe, self.head, status);
            self.head += 1;
        }
        qp.enter_error(true);
        self.flush_all(qp);
    }

    /// Everything posted ends as flushed; the stream is closed.
    pub(super) fn flush_all(&mut self, qp: &Qp) {
        while self.head < self.tail {
            let wqe = *self.wqe(self.head);
            self.end(qp, &wqe, self.head, Status::Flushed);
            self.head += 1;
        }
        self.forget(qp);
    }

    /// Everything posted is forgotten; the stream is closed.
    pub(super) fn forget(&mut self, qp: &Qp) {
        self.lose(qp);
        self.head = self.tail;
        self.acked = self.tail;
        self.next = self.tail;
        self.base = self.tail;
        self.offset = 0;
        self.reads = 0;
        self.deferred = 0;
        self.reading = FRESH;
        self.spill = VecDeque::new();
        self.seen = (self.tail, None);
        self.dialing = false;
        self.redial = (None, REDIAL_FIRST);
    }

    /// The number after the last posted request.
    pub(super) const fn tail(&self) -> u64 {
        self.tail
    }

    /// A new connection is to be made.
    pub(super) const fn renew(&mut self) {
        self.lost = false;
    }

    /// Whether requests wait longer than the patience without any progress. Counted from the look that saw them first.
    pub(super) fn overdue(&mut self, now: Instant) -> bool {
        let Some(patience) = self.patience else { return false };
        if self.head == self.tail {
            self.seen = (self.head, None);
            return false;
        }
        match self.seen {
            (head, Some(since)) if head == self.head => now.duration_since(since) >= patience,
            _ => {
                self.seen = (self.head, Some(now));
                false
            }
        }
    }

    /// Something was heard from the peer.
    pub(super) const fn heard(&mut self) {
        self.seen.1 = None;
    }

    /// Reads responses.
    pub(super) fn read_answers(&mut self, qp: &Qp, scratch: &mut [u8]) -> Answers {
        let mut did = false;
        for _ in 0..READS_PER_TURN {
            let Some(stream) = self.stream.clone() else { return Answers::Lost };
            let (asked, result, direct) = self.receive(qp.dev().table(), &stream, scratch);
            let count = match result {
                Ok(0) => return Answers::Lost,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Answers::Dry { did };
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return Answers::Lost,
            };
            did = true;
            let placed = count.min(direct);
            if placed != 0 {
                self.placed(qp, narrow(placed));
            }
            let rest = scratch.get(..count - placed).unwrap_or_default();
            if self.consume(qp, rest).is_err() {
                return Answers::Lost;
            }
            if qp.is_error() {
                return Answers::Lost;
            }
            if count < asked {
                return Answers::Dry { did };
            }
        }
        Answers::More
    }

    /// One read: large data straight into its place, the rest into the scratch buffer. Gives the bytes asked for, and
    /// how many of them go into their place.
    fn receive(
        &self,
        table: &Table,
        stream: &TcpStream,
        scratch: &mut [u8],
    ) -> (usize, io::Result<usize>, usize) {
        if let Reading::Data { number, len, done } = self.reading {
            let missing = (len - done) as usize;
            if missing >= DIRECT {
                let mut into = Scatter::new();
                let sges = self.sges(number, self.wqe(number).sges);
                let whole = rest_of(sges, done as usize).all(|(sge, skip)| {
                    table.local_from(sge, skip, true).is_some_and(|span| into.span(span))
                });
                if whole && into.total() == missing {
                    into.buffer(scratch.get_mut(..RESPONSE).unwrap_or_default());
                    let asked = into.total();
                    return (asked, into.receive(stream.as_fd()), missing);
                }
            }
        }
        let mut stream = stream;
        let asked = scratch.len();
        (asked, stream.read(scratch), 0)
    }

    fn placed(&mut self, qp: &Qp, count: u32) {
        if let Reading::Data { number, len, done } = &mut self.reading {
            *done += count;
            if *done >= *len {
                let number = *number;
                self.reading = FRESH;
                self.answered(qp, number);
            }
        }
    }

    fn answered(&mut self, qp: &Qp, number: u64) {
        if let Some(wqe) = self.wqe_mut(number) {
            wqe.answered = true;
        }
        self.reads = self.reads.saturating_sub(1);
        self.acked = self.acked.max(number + 1);
        self.retire(qp);
        if self.next < self.tail {
            self.flush(qp);
        }
    }

    fn consume(&mut self, qp: &Qp, mut bytes: &[u8]) -> Result<(), Garbage> {
        while !bytes.is_empty() && !qp.is_error() {
            match &mut self.reading {
                Reading::Header { have, bytes: header } => {
                    let count = bytes.len().min(RESPONSE - *have);
                    let (now, rest) = bytes.split_at(count);
                    if let Some(place) = header.get_mut(*have..*have + count) {
                        place.copy_from_slice(now);
                    }
                    *have += count;
                    bytes = rest;
                    if *have == RESPONSE {
                        let response = Response::decode(header)?;
                        self.reading = FRESH;
                        self.respond(qp, response)?;
                    }
                }
                Reading::Data { number, len, done } => {
                    let count = bytes.len().min((*len - *done) as usize);
                    let (mut now, rest) = bytes.split_at(count);
                    let (number, done) = (*number, *done as usize);
                    bytes = rest;
                    for (sge, skip) in rest_of(self.sges(number, self.wqe(number).sges), done) {
                        let Some(span) = qp.dev().table().local_from(sge, skip, true) else {
                            break;
                        };
                        now = now.get(span.fill(now)..).unwrap_or_default();
                        if now.is_empty() {
                            break;
                        }
                    }
                    if !now.is_empty() {
                        self.fail(qp, Status::LocalProtection);
                        return Ok(());
                    }
                    self.placed(qp, narrow(count));
                }
            }
        }
        Ok(())
    }

    /// The number of a request in flight by what the wire calls it.
    fn number(&self, msn: u32) -> Result<u64, Garbage> {
        let number = self.head + u64::from(msn.wrapping_sub(low(self.head - self.base)));
        if number < self.next { Ok(number) } else { Err(Garbage::Sequence(msn)) }
    }

    fn respond(&mut self, qp: &Qp, response: Response) -> Result<(), Garbage> {
        match response {
            Response::Ack { done } => self.acknowledged(qp, done),
            Response::Data { msn, len } => {
                let number = self.number(msn)?;
                let wqe = *self.wqe(number);
                if !wqe.awaits_data() || wqe.answered || wqe.len != len {
                    return Err(Garbage::Sequence(msn));
                }
                self.acked = self.acked.max(number);
                self.retire(qp);
                if len == 0 {
                    self.answered(qp, number);
                } else {
                    self.reading = Reading::Data { number, len, done: 0 };
                }
                Ok(())
            }
            Response::Nak { msn, why } => {
                let number = self.number(msn)?;
                self.acked = self.acked.max(number);
                self.retire(qp);
                if self.head != number {
                    return Err(Garbage::Sequence(msn));
                }
                let status = match why {
                    Refusal::Invalid => Status::RemoteInvalid,
                    Refusal::Access => Status::RemoteAccess,
                    Refusal::Operation => Status::RemoteOperation,
                    Refusal::NotReady => Status::RnrRetryExceeded,
                };
                self.fail(qp, status);
                Ok(())
            }
        }
    }
}

/// Adds `len` kept bytes from position `from`.
fn push_kept<'a>(out: &mut Gather<'a>, spill: &'a VecDeque<u8>, from: usize, len: usize) {
    let (first, second) = spill.as_slices();
    let one = first.get(from.min(first.len())..(from + len).min(first.len())).unwrap_or_default();
    let start = from.saturating_sub(first.len());
    let two = second.get(start..start + len - one.len()).unwrap_or_default();
    out.bytes(one);
    out.bytes(two);
}
