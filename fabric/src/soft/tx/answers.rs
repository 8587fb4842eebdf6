//! What comes back on the stream of requests.

use std::io::{self, Read as _};
use std::net::TcpStream;
use std::os::fd::AsFd as _;

use super::{Tx, rest_of};
use crate::Status;
use crate::soft::limits::{DIRECT, READS_PER_TURN};
use crate::soft::memory::{Scatter, Table};
use crate::soft::qp::Qp;
use crate::soft::wire::{Garbage, RESPONSE, Refusal, Response};
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
}

/// Where the parser of responses is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reading {
    Header { have: usize, bytes: [u8; RESPONSE] },
    Data { number: u64, len: u32, done: u32 },
}

pub(super) const FRESH: Reading = Reading::Header { have: 0, bytes: [0; RESPONSE] };

impl Tx {
    /// Reads responses.
    pub(in crate::soft) fn read_answers(&mut self, qp: &Qp, scratch: &mut [u8]) -> Answers {
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
