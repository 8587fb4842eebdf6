//! Bytes of the peer's requests: from the stream to their places.

use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::time::Instant;

use super::{Outcome, Parse, Place, Responder};
use crate::soft::limits::{DIRECT, MAX_RD_ATOM, READS_PER_TURN};
use crate::soft::memory::{Scatter, Span, Table};
use crate::soft::wire::{REQUEST, Refusal, narrow};
use crate::{Access, Status};

impl Responder {
    pub(super) fn read(&mut self, regions: &Table, scratch: &mut [u8]) -> Outcome {
        let mut progressed = false;
        for _ in 0..READS_PER_TURN {
            match self.parse {
                Parse::RnrWait { request, until } => {
                    self.begin(regions, request, until);
                    if matches!(self.parse, Parse::RnrWait { .. }) {
                        return Outcome::Again { progressed };
                    }
                    progressed = true;
                }
                Parse::OutOfOrder { request } => {
                    if request.msn != self.qp.next_msn() {
                        return Outcome::Again { progressed };
                    }
                    self.begin(regions, request, None);
                    progressed = true;
                }
                Parse::Discard { until } if Instant::now() >= until => return Outcome::Gone,
                _ => {}
            }
            if self.out.len() > 2 * usize::from(MAX_RD_ATOM) {
                // The peer does not read its answers: its requests wait.
                return Outcome::Wait { progressed };
            }
            if !self.held.is_empty() {
                let held = std::mem::take(&mut self.held);
                let from = std::mem::take(&mut self.held_at);
                let used = self.consume(regions, held.get(from..).unwrap_or_default());
                self.keep(held, from + used);
                progressed = true;
                continue;
            }
            let (asked, result, direct) = self.receive(regions, scratch);
            let count = match result {
                Ok(0) => return Outcome::Gone,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Outcome::Wait { progressed };
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return Outcome::Gone,
            };
            progressed = true;
            let placed = count.min(direct);
            if placed != 0 {
                self.placed(regions, placed);
            }
            let rest = scratch.get(..count - placed).unwrap_or_default();
            let used = self.consume(regions, rest);
            if let Some(rest) = rest.get(used..).filter(|rest| !rest.is_empty()) {
                self.held.extend_from_slice(rest);
                continue;
            }
            if count < asked {
                return match self.parse {
                    Parse::RnrWait { .. } | Parse::OutOfOrder { .. } => {
                        Outcome::Again { progressed }
                    }
                    _ => Outcome::Wait { progressed },
                };
            }
        }
        Outcome::Again { progressed }
    }

    fn keep(&mut self, held: Vec<u8>, from: usize) {
        if from < held.len() {
            self.held = held;
            self.held_at = from;
        }
    }

    /// One read: a large body straight into its place, the rest into the scratch buffer.
    /// SlotRelease the bytes asked for, and how many of them go into their place.
    fn receive(&self, regions: &Table, scratch: &mut [u8]) -> (usize, io::Result<usize>, usize) {
        if let Parse::Body { request, place, done } = self.parse {
            let missing = request.body() - done;
            if missing >= DIRECT
                && let Some(span) = self.span(regions, place, done, missing)
            {
                let mut into = Scatter::new();
                into.span(span);
                if into.total() == missing {
                    // After a large message the next header is read with its end, not more, so that
                    // the next body goes straight into its place too.
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
    fn span<'a>(
        &self,
        regions: &'a Table,
        place: Place,
        done: usize,
        len: usize,
    ) -> Option<Span<'a>> {
        match place {
            Place::Buffer(receive, _) => {
                let mut part = receive.buffer;
                part.len = part.len.min(narrow(done + len));
                regions.local_from(&part, done, true)
            }
            Place::Memory { remote, rkey } => {
                let at = remote.checked_add(done as u64)?;
                regions.remote(rkey, at, len, Access::REMOTE_WRITE)
            }
            Place::Operand { .. } | Place::Nowhere => None,
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
                        self.arrived(regions, &header);
                    }
                }
                Parse::Body { request, place, done } => {
                    let count = rest.len().min(request.body() - *done);
                    let now = rest.get(..count).unwrap_or_default();
                    let (place_now, at) = (*place, *done);
                    used += count;
                    if let Place::Operand { bytes, .. } = place {
                        if let Some(part) = bytes.get_mut(at..at + count) {
                            part.copy_from_slice(now);
                        }
                    } else {
                        let span = self.span(regions, place_now, at, count);
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
                self.end_receive(receive, number, Status::LocalProtection, 0, None);
                self.refuse(Refusal::Operation, true);
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
