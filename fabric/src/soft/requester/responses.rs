//! What comes back on the stream of requests.

use super::reverse::deliver;
use super::{Responses, SendQueue, rest_of};
use crate::Status;
use crate::soft::limits::{DIRECT, READS_PER_TURN, REVERSE_MAX};
use crate::soft::memory::{Scatter, Table};
use crate::soft::qp_shared::{QpShared, Turn};
use crate::soft::reverse_path::ReverseRole;
use crate::soft::stream::{Received, Stream};
use crate::soft::wire::{
    Malformed, REQUEST, RESPONSE, Refusal, Request, Response, is_request, low, narrow,
};

/// Why a stream ends here.
#[derive(Clone, Copy, Debug)]
pub(in crate::soft) enum Stop {
    /// It is over or malformed.
    Lost,
    /// A message of the peer is to be refused.
    Refused(Refusal),
}

impl From<Malformed> for Stop {
    fn from(_: Malformed) -> Self {
        Self::Lost
    }
}

impl SendQueue {
    pub(in crate::soft) fn read_responses(
        &mut self,
        qp: &QpShared,
        stream: &Stream,
        scratch: &mut [u8],
    ) -> Result<Turn, Stop> {
        let more = Turn { progressed: true, again: true };
        let mut progressed = false;
        if !self.kept.is_empty() {
            self.take_in(qp, &[])?;
            if self.message_waits() {
                return Ok(more);
            }
            progressed = true;
        }
        for _ in 0..READS_PER_TURN {
            let place = self.place(&qp.ctx.regions);
            // After data that goes into its place: the next header.
            let len = if place.is_some() { RESPONSE } else { scratch.len() };
            let buffer = scratch.get_mut(..len).unwrap_or_default();
            let received = stream.receive(place, buffer).map_err(|error| {
                if qp.stream_failed(stream, &error) {
                    self.fail(qp, Status::RetryExceeded);
                }
                Stop::Lost
            })?;
            let Some(Received { placed, buffered, dry }) = received else {
                return Ok(Turn { progressed, again: false });
            };
            progressed = true;
            if placed != 0 {
                self.placed(qp, narrow(placed));
            }
            self.take_in(qp, scratch.get(..buffered).unwrap_or_default())?;
            if qp.is_error() {
                return Err(Stop::Lost);
            }
            if self.message_waits() {
                return Ok(more);
            }
            if dry {
                return Ok(Turn { progressed, again: false });
            }
        }
        Ok(more)
    }

    /// Where large data goes without a copy.
    fn place<'a>(&self, table: &'a Table) -> Option<Scatter<'a>> {
        let Responses::Data { number, len, done } = self.parser else { return None };
        let missing = (len - done) as usize;
        if missing < DIRECT {
            return None;
        }
        let mut into = Scatter::new();
        let sges = self.sges(number, self.wqe(number).sges);
        let whole = rest_of(sges, done as usize).all(|(sge, skip)| {
            table.local_from(sge, skip, true).is_some_and(|span| into.span(span))
        });
        (whole && into.total() == missing).then_some(into)
    }

    fn placed(&mut self, qp: &QpShared, count: u32) {
        if let Responses::Data { number, len, done } = &mut self.parser {
            *done += count;
            if *done >= *len {
                let number = *number;
                self.parser = Responses::default();
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

    /// Uses bytes of the stream, and keeps those that cannot be used yet.
    fn take_in(&mut self, qp: &QpShared, fresh: &[u8]) -> Result<(), Stop> {
        let taken = self.take_in_list(qp, fresh);
        if self.reverse.role == ReverseRole::Receiver {
            qp.report_receives();
        }
        taken
    }

    fn take_in_list(&mut self, qp: &QpShared, fresh: &[u8]) -> Result<(), Stop> {
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
                        let response = Response::decode(header.first_chunk().ok_or(Stop::Lost)?)?;
                        self.parser = Responses::default();
                        self.respond(qp, response)?;
                    }
                }
                Responses::Data { number, len, done } => {
                    let count = bytes.len().min((*len - *done) as usize);
                    let (mut now, rest) = bytes.split_at(count);
                    let (number, done) = (*number, *done as usize);
                    bytes = rest;
                    for (sge, skip) in rest_of(self.sges(number, self.wqe(number).sges), done) {
                        let Some(span) = qp.ctx.regions.local_from(sge, skip, true) else {
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
                    if !deliver(qp, &request, message)? {
                        break;
                    }
                    self.parser = Responses::default();
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
            return Err(Stop::Lost);
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
                if !wqe.operation.awaits_data() || wqe.answered || wqe.len != len {
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
