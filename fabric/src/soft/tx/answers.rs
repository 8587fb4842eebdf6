//! What comes back on the stream of requests.

use std::io::{self, Read as _};
use std::net::TcpStream;
use std::os::fd::AsFd as _;

use super::{Tx, rest_of};
use crate::Status;
use crate::soft::back::{Taking, Way};
use crate::soft::limits::{BACK, DIRECT, READS_PER_TURN};
use crate::soft::memory::{Scatter, Table};
use crate::soft::qp::Qp;
use crate::soft::wire::{Garbage, REQUEST, RESPONSE, Refusal, Request, Response, is_request};
use crate::soft::{low, narrow};

/// What a read from the stream ended in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::soft) enum Answers {
    /// So far everything is read.
    Dry {
        /// Whether there was anything.
        did: bool,
    },
    /// More may be there.
    More,
    /// The stream is over or says garbage.
    Lost,
    /// A message of the peer is to be refused.
    Refused(Refusal),
}

/// Where the parser of responses is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reading {
    Header {
        have: usize,
        bytes: [u8; REQUEST],
    },
    Data {
        number: u64,
        len: u32,
        done: u32,
    },
    /// A message of the peer, which comes on this stream because it is small.
    Message(Request),
}

/// Why no more can be read.
enum Stop {
    Garbage,
    Refused(Refusal),
}

impl From<Garbage> for Stop {
    fn from(_: Garbage) -> Self {
        Self::Garbage
    }
}

impl From<Stop> for Answers {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Garbage => Self::Lost,
            Stop::Refused(why) => Self::Refused(why),
        }
    }
}

pub(super) const FRESH: Reading = Reading::Header { have: 0, bytes: [0; REQUEST] };

impl Tx {
    /// Reads responses.
    pub(in crate::soft) fn read_answers(&mut self, qp: &Qp, scratch: &mut [u8]) -> Answers {
        let mut did = false;
        if !self.kept.is_empty() {
            if let Err(stop) = self.take_in(qp, &[]) {
                return stop.into();
            }
            if self.is_waiting() {
                return Answers::More;
            }
            did = true;
        }
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
            if let Err(stop) = self.take_in(qp, rest) {
                return stop.into();
            }
            if qp.is_error() {
                return Answers::Lost;
            }
            if self.is_waiting() {
                return Answers::More;
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

    /// A whole message waits for another thread to leave the queue of receives.
    fn is_waiting(&self) -> bool {
        matches!(self.reading, Reading::Message(request) if self.kept.len() >= request.len as usize)
            && !self.kept.is_empty()
    }

    /// Uses what was kept and what is new.
    fn take_in(&mut self, qp: &Qp, fresh: &[u8]) -> Result<(), Stop> {
        if self.kept.is_empty() {
            let used = self.consume(qp, fresh)?;
            self.kept.extend_from_slice(fresh.get(used..).unwrap_or_default());
            return Ok(());
        }
        let mut kept = std::mem::take(&mut self.kept);
        kept.extend_from_slice(fresh);
        let used = self.consume(qp, &kept)?;
        kept.drain(..used.min(kept.len()));
        self.kept = kept;
        Ok(())
    }

    /// Uses bytes of the stream; returns how many: a message of the peer is only taken whole.
    fn consume(&mut self, qp: &Qp, all: &[u8]) -> Result<usize, Stop> {
        let mut bytes = all;
        while !bytes.is_empty() && !qp.is_error() {
            match &mut self.reading {
                Reading::Header { have, bytes: header } => {
                    let size = if *have >= 2 && is_request(header) { REQUEST } else { RESPONSE };
                    let count = bytes.len().min(size - *have);
                    let (now, rest) = bytes.split_at(count);
                    if let Some(place) = header.get_mut(*have..*have + count) {
                        place.copy_from_slice(now);
                    }
                    *have += count;
                    bytes = rest;
                    if is_request(header) {
                        if *have == REQUEST {
                            let header = *header;
                            self.message_begins(qp, &header)?;
                        }
                    } else if *have == RESPONSE {
                        let response =
                            Response::decode(header.first_chunk().ok_or(Stop::Garbage)?)?;
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
                        return Ok(all.len());
                    }
                    self.placed(qp, narrow(count));
                }
                Reading::Message(request) => {
                    let request = *request;
                    let Some((message, rest)) = bytes.split_at_checked(request.len as usize) else {
                        break;
                    };
                    match qp.take_back(&request, message)? {
                        Taking::Done => self.reading = FRESH,
                        Taking::Busy => break,
                        Taking::Refused(why) => return Err(Stop::Refused(why)),
                    }
                    bytes = rest;
                }
            }
        }
        Ok(all.len() - bytes.len())
    }

    /// A header of the peer's own on this stream.
    fn message_begins(&mut self, qp: &Qp, header: &[u8; REQUEST]) -> Result<(), Stop> {
        let request = Request::decode(header)?;
        let fits = (1..=BACK).contains(&(request.len as usize));
        if self.back.way != Way::Takes || !fits {
            return Err(Stop::Garbage);
        }
        if let Some(done) = request.ack {
            self.acknowledged(qp, done)?;
        }
        self.reading = Reading::Message(request);
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
