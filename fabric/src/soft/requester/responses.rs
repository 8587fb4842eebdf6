//! What comes back on the stream of requests.

use std::io::{self, Read as _};
use std::net::TcpStream;
use std::os::fd::AsFd as _;

use super::reverse::{Delivery, deliver};
use super::{Responses, SendQueue, rest_of};
use crate::Status;
use crate::soft::limits::{DIRECT, READS_PER_TURN, REVERSE_MAX};
use crate::soft::memory::{Scatter, Table};
use crate::soft::qp_shared::QpShared;
use crate::soft::reverse_path::ReverseRole;
use crate::soft::wire::{
    Malformed, REQUEST, RESPONSE, Refusal, Request, Response, is_request, low, narrow,
};

/// What a read from the stream ended in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::soft) enum ResponseRead {
    /// Everything that arrived is read.
    Dry {
        /// Whether there was anything.
        progressed: bool,
    },
    /// More may be there.
    More,
    /// The stream is over or malformed.
    Lost,
    /// A message of the peer is to be refused.
    Refused(Refusal),
}

/// Why no more can be read.
enum Stop {
    Malformed,
    Refused(Refusal),
}

impl From<Malformed> for Stop {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

impl From<Stop> for ResponseRead {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Malformed => Self::Lost,
            Stop::Refused(why) => Self::Refused(why),
        }
    }
}

impl SendQueue {
    /// Reads responses.
    pub(in crate::soft) fn read_responses(
        &mut self,
        qp: &QpShared,
        scratch: &mut [u8],
    ) -> ResponseRead {
        let mut progressed = false;
        if !self.kept.is_empty() {
            if let Err(stop) = self.take_in(qp, &[]) {
                return stop.into();
            }
            if self.message_waits() {
                return ResponseRead::More;
            }
            progressed = true;
        }
        for _ in 0..READS_PER_TURN {
            let Some(stream) = self.stream.clone() else { return ResponseRead::Lost };
            let (asked, result, direct) = self.receive(&qp.ctx().regions, &stream, scratch);
            let count = match result {
                Ok(0) => return ResponseRead::Lost,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return ResponseRead::Dry { progressed };
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return ResponseRead::Lost,
            };
            progressed = true;
            let placed = count.min(direct);
            if placed != 0 {
                self.placed(qp, narrow(placed));
            }
            let rest = scratch.get(..count - placed).unwrap_or_default();
            if let Err(stop) = self.take_in(qp, rest) {
                return stop.into();
            }
            if qp.is_error() {
                return ResponseRead::Lost;
            }
            if self.message_waits() {
                return ResponseRead::More;
            }
            if count < asked {
                return ResponseRead::Dry { progressed };
            }
        }
        ResponseRead::More
    }

    /// One read: large data straight into its place, the rest into the scratch buffer. SlotRelease
    /// the bytes asked for, and how many of them go into their place.
    fn receive(
        &self,
        table: &Table,
        stream: &TcpStream,
        scratch: &mut [u8],
    ) -> (usize, io::Result<usize>, usize) {
        if let Responses::Data { number, len, done } = self.parser {
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

    fn placed(&mut self, qp: &QpShared, count: u32) {
        if let Responses::Data { number, len, done } = &mut self.parser {
            *done += count;
            if *done >= *len {
                let number = *number;
                self.parser = Responses::START;
                self.answered(qp, number);
            }
        }
    }

    fn answered(&mut self, qp: &QpShared, number: u64) {
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

    /// Uses what was kept and what is new.
    fn take_in(&mut self, qp: &QpShared, fresh: &[u8]) -> Result<(), Stop> {
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
    fn consume(&mut self, qp: &QpShared, all: &[u8]) -> Result<usize, Stop> {
        let mut bytes = all;
        while !bytes.is_empty() && !qp.is_error() {
            match &mut self.parser {
                Responses::Header { have, bytes: header } => {
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
                            Response::decode(header.first_chunk().ok_or(Stop::Malformed)?)?;
                        self.parser = Responses::START;
                        self.respond(qp, response)?;
                    }
                }
                Responses::Data { number, len, done } => {
                    let count = bytes.len().min((*len - *done) as usize);
                    let (mut now, rest) = bytes.split_at(count);
                    let (number, done) = (*number, *done as usize);
                    bytes = rest;
                    for (sge, skip) in rest_of(self.sges(number, self.wqe(number).sges), done) {
                        let Some(span) = qp.ctx().regions.local_from(sge, skip, true) else {
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
                Responses::Message(request) => {
                    let request = *request;
                    let Some((message, rest)) = bytes.split_at_checked(request.len as usize) else {
                        break;
                    };
                    match deliver(qp, &request, message)? {
                        Delivery::Done => self.parser = Responses::START,
                        Delivery::Busy => break,
                        Delivery::Refused(why) => return Err(Stop::Refused(why)),
                    }
                    bytes = rest;
                }
            }
        }
        Ok(all.len() - bytes.len())
    }

    /// A header of the peer's own on this stream.
    fn message_begins(&mut self, qp: &QpShared, header: &[u8; REQUEST]) -> Result<(), Stop> {
        let request = Request::decode(header)?;
        let fits = (1..=REVERSE_MAX).contains(&(request.len as usize));
        if self.reverse.role != ReverseRole::Receiver || !fits {
            return Err(Stop::Malformed);
        }
        if let Some(done) = request.ack {
            self.acknowledged(qp, done)?;
        }
        self.parser = Responses::Message(request);
        Ok(())
    }

    /// The number of a request in flight by what the wire calls it.
    fn number(&self, msn: u32) -> Result<u64, Malformed> {
        let number = self.head + u64::from(msn.wrapping_sub(low(self.head - self.base)));
        if number < self.next { Ok(number) } else { Err(Malformed::Sequence(msn)) }
    }

    fn respond(&mut self, qp: &QpShared, response: Response) -> Result<(), Malformed> {
        match response {
            Response::Ack { done } => self.acknowledged(qp, done),
            Response::Data { msn, len } => {
                let number = self.number(msn)?;
                let wqe = *self.wqe(number);
                if !wqe.awaits_data() || wqe.answered || wqe.len != len {
                    return Err(Malformed::Sequence(msn));
                }
                self.acked = self.acked.max(number);
                self.retire(qp);
                if len == 0 {
                    self.answered(qp, number);
                } else {
                    self.parser = Responses::Data { number, len, done: 0 };
                }
                Ok(())
            }
            Response::Nak { msn, why } => {
                let number = self.number(msn)?;
                self.acked = self.acked.max(number);
                self.retire(qp);
                if self.head != number {
                    return Err(Malformed::Sequence(msn));
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
