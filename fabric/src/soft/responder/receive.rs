//! Bytes of the peer's requests: from the stream to their places.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::{Parse, Place, Responder};
use crate::soft::limits::{DIRECT, MAX_RD_ATOM, READS_PER_TURN};
use crate::soft::memory::{Scatter, Span, Table};
use crate::soft::qp_shared::Turn;
use crate::soft::stream::Received;
use crate::soft::wire::{REQUEST, Refusal, Request, narrow};
use crate::{Access, Operation, Status};

/// What became of a request that had to wait.
enum Resume {
    /// There is none.
    Nothing,
    /// It goes on.
    Began,
    /// It still waits.
    Waits,
    /// The stream is closed.
    Gone,
}

impl Responder {
    /// Reads requests. `None`: the stream is over.
    pub(super) fn read(&mut self, regions: &Table, scratch: &mut [u8]) -> Option<Turn> {
        let mut progressed = false;
        for _ in 0..READS_PER_TURN {
            match self.resume(regions) {
                Resume::Gone => return None,
                Resume::Waits => return Some(Turn { progressed, again: true }),
                Resume::Began => progressed = true,
                Resume::Nothing => {}
            }
            if self.out.len() > 2 * usize::from(MAX_RD_ATOM) {
                // The peer does not read its answers: its requests wait.
                return Some(Turn { progressed, again: false });
            }
            if !self.held.is_empty() {
                let held = std::mem::take(&mut self.held);
                let from = std::mem::take(&mut self.held_at);
                let used = self.consume(regions, held.get(from..).unwrap_or_default());
                if from + used < held.len() {
                    self.held = held;
                    self.held_at = from + used;
                }
                progressed = true;
                continue;
            }
            let place = self.place(regions);
            // After a large message the next header is read with its end, not more, so that the
            // next body goes straight into its place too. In a flood it is worth a call of its own.
            let alone = self.flood.goes_on() || (place.is_some() && self.large);
            let len = if alone { REQUEST } else { scratch.len() };
            let buffer = scratch.get_mut(..len).unwrap_or_default();
            let received = self.stream.receive(place, buffer);
            let received = received.inspect_err(|error| {
                let _ = self.qp.stream_failed(&self.stream, error);
            });
            let Some(Received { placed, buffered, dry }) = received.ok()? else {
                return Some(Turn { progressed, again: false });
            };
            progressed = true;
            if placed != 0 {
                self.placed(regions, placed);
            }
            let rest = scratch.get(..buffered).unwrap_or_default();
            let used = self.consume(regions, rest);
            if let Some(rest) = rest.get(used..).filter(|rest| !rest.is_empty()) {
                self.held.extend_from_slice(rest);
            } else if dry {
                let again = matches!(self.parse, Parse::RnrWait { .. } | Parse::OutOfOrder { .. });
                return Some(Turn { progressed, again });
            }
        }
        Some(Turn { progressed, again: true })
    }

    /// Goes on with a request that had to wait.
    fn resume(&mut self, regions: &Table) -> Resume {
        match self.parse {
            Parse::RnrWait { request, until } => {
                self.begin(regions, request, until);
                match self.parse {
                    Parse::RnrWait { .. } => Resume::Waits,
                    _ => Resume::Began,
                }
            }
            Parse::OutOfOrder { request } if request.msn != self.qp.next_msn.load(Relaxed) => {
                Resume::Waits
            }
            Parse::OutOfOrder { request } => {
                self.begin(regions, request, None);
                Resume::Began
            }
            Parse::Discard { until } if Instant::now() >= until => Resume::Gone,
            _ => Resume::Nothing,
        }
    }

    /// Where a large body goes without a copy.
    fn place<'a>(&self, regions: &'a Table) -> Option<Scatter<'a>> {
        let Parse::Body { request, place, done } = self.parse else { return None };
        let missing = request.body() - done;
        if missing < DIRECT {
            return None;
        }
        let mut into = Scatter::new();
        into.span(self.span(regions, (&request, place), done, missing)?);
        (into.total() == missing).then_some(into)
    }

    /// Where `len` bytes of a body from `done` on go. `None`: nowhere in registered memory.
    fn span<'a>(
        &self,
        regions: &'a Table,
        (request, place): (&Request, Place),
        done: usize,
        len: usize,
    ) -> Option<Span<'a>> {
        let written = |remote: u64, rkey| {
            let at = remote.checked_add(done as u64)?;
            regions.remote(rkey, at, len, Access::REMOTE_WRITE)
        };
        match place {
            Place::Buffer(receive, _) => {
                let mut part = receive.buffer;
                part.len = part.len.min(narrow(done + len));
                regions.local_from(&part, done, true)
            }
            Place::Memory { remote, rkey } => written(remote, rkey),
            Place::Told(..) => match request.operation {
                Operation::WriteImm { remote, rkey, .. } => written(remote, rkey),
                _ => None,
            },
            Place::Late { .. } | Place::Operand { .. } | Place::Nowhere => None,
        }
    }

    /// Uses bytes of the stream; returns how many. Less than all when the request has to wait.
    fn consume(&mut self, regions: &Table, bytes: &[u8]) -> usize {
        let mut used = 0;
        while let Some(rest) = bytes.get(used..).filter(|rest| !rest.is_empty()) {
            match &mut self.parse {
                Parse::Discard { .. } => return bytes.len(),
                Parse::RnrWait { .. } | Parse::OutOfOrder { .. } => return used,
                Parse::Header { have, bytes: header } => {
                    if *have == 0 && self.out.len() > 2 * usize::from(MAX_RD_ATOM) {
                        return used;
                    }
                    if *have == 0
                        && let Some((header, body)) = rest.split_first_chunk::<REQUEST>()
                    {
                        used += REQUEST + self.arrived(regions, header, body);
                        continue;
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
                        self.arrived(regions, &header, &[]);
                    }
                }
                Parse::Body { request, place, done } => {
                    let count = rest.len().min(request.body() - *done);
                    let now = rest.get(..count).unwrap_or_default();
                    let (now_request, place_now, at) = (*request, *place, *done);
                    used += count;
                    if let Place::Operand { operands, .. } = place {
                        if let Some(part) = operands.get_mut(at..at + count) {
                            part.copy_from_slice(now);
                        }
                    } else if let Place::Late { .. } = place {
                        self.late.extend_from_slice(now);
                    } else {
                        let span = self.span(regions, (&now_request, place_now), at, count);
                        if span.is_none_or(|span| span.fill(now) != count) {
                            self.body_lost(place_now);
                            return bytes.len();
                        }
                    }
                    self.placed(regions, count);
                }
            }
        }
        used
    }

    /// The memory under a body went away.
    fn body_lost(&mut self, place: Place) {
        match place {
            Place::Buffer(receive, number) => {
                self.qp.end_receive(&receive, number, Status::LocalProtection);
                self.refuse(Refusal::Operation, true);
            }
            Place::Told(receive, number) => {
                self.qp.end_receive(&receive, number, Status::LocalProtection);
                self.refuse(Refusal::Access, true);
            }
            _ => self.refuse(Refusal::Access, true),
        }
    }

    fn placed(&mut self, regions: &Table, count: usize) {
        if let Parse::Body { request, place, done } = &mut self.parse {
            *done += count;
            if *done == request.body() {
                let (request, place) = (*request, *place);
                self.finish(regions, request, place);
            }
        }
    }
}
