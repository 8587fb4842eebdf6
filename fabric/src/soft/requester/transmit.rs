//! Requests on their way into the stream.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;

use super::wqe::{HEADER, Wqe};
use super::{SendQueue, rest_of};
use crate::soft::memory::Gather;
use crate::soft::qp_shared::QpShared;
use crate::soft::wire::{REQUEST, low};
use crate::{Data, Status};

impl SendQueue {
    /// Copies an inline request from byte `from` on: it waits in the backlog.
    pub(super) fn keep(&mut self, number: u64, wqe: &Wqe, data: &Data<'_>, mut from: usize) {
        let Data::Inline(list) = data else { return };
        let header = wqe.header(low(number - self.base));
        let head = header.get(..REQUEST).unwrap_or_default();
        for bytes in std::iter::once(&head).chain(*list) {
            let skip = from.min(bytes.len());
            from -= skip;
            // A whole slice at once: byte by byte it takes longer than the system call.
            self.backlog.extend(bytes.get(skip..).unwrap_or_default());
        }
    }

    /// Writes the last posted request, which is the only one to be written, without a copy.
    pub(super) fn write_now(&mut self, qp: &QpShared, wqe: &Wqe, data: &Data<'_>) {
        let number = self.tail - 1;
        let header = wqe.header(low(number - self.base));
        let size = wqe.size();
        let head = header.get(..wqe.header_len()).unwrap_or_default();
        let Some(stream) = self.stream.as_deref() else { return };
        let mut out = Gather::new();
        let whole = out.bytes(head) && (wqe.operation.awaits_data() || gather(&mut out, qp, data));
        let result = if whole { stream.send(&mut out) } else { Ok(None) };
        let written = self.wrote(qp, result);
        if written == size {
            self.next = self.tail;
            self.reads += u32::from(wqe.operation.awaits_data());
            return;
        }
        self.offset = written;
        self.keep(number, wqe, data, written);
        if whole {
            self.block(qp);
        } else {
            self.flush(qp);
        }
    }

    fn wrote(&mut self, qp: &QpShared, result: io::Result<Option<usize>>) -> usize {
        if result.is_err() {
            self.lose(qp);
        }
        result.ok().flatten().unwrap_or(0)
    }

    pub(in crate::soft) fn flush(&mut self, qp: &QpShared) {
        self.deferred = 0;
        if self.backward {
            self.go_forward();
        }
        while self.next < self.tail && self.stream.is_some() && !self.blocked {
            match self.write_batch(qp) {
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
    fn write_batch(&mut self, qp: &QpShared) -> Option<(usize, usize)> {
        const HEADERS: usize = 12;
        // A run of inline requests takes two fragments, its header another one.
        const MOST_OTHER: usize = 2 * 2 + 1;
        let mut headers = [[0_u8; HEADER]; HEADERS];
        let mut places = headers.iter_mut();
        let (mut offset, mut kept, mut bad) = (self.offset, 0..0, None);
        let mut reads = self.reads;
        let mut out = Gather::new();
        'requests: for number in self.next..self.tail {
            let wqe = self.wqe(number);
            if wqe.inline {
                kept.end += wqe.size() - std::mem::take(&mut offset);
                continue;
            }
            let awaits_data = wqe.operation.awaits_data();
            let fits = out.room() >= MOST_OTHER + usize::from(wqe.sges);
            if wqe.fault.is_some() || !fits || (awaits_data && reads >= self.rd_atom) {
                break;
            }
            let Some(header) = places.next() else { break };
            push_kept(&mut out, &self.backlog, &kept);
            kept.start = kept.end;
            reads += u32::from(awaits_data);
            *header = wqe.header(low(number - self.base));
            let head = header.get(..wqe.header_len()).unwrap_or_default();
            let from = std::mem::take(&mut offset);
            out.bytes(head.get(from.min(head.len())..).unwrap_or_default());
            if awaits_data {
                continue;
            }
            for (sge, skip) in rest_of(self.sges(number, wqe.sges), from.saturating_sub(head.len()))
            {
                match qp.ctx.regions.local_from(sge, skip, false) {
                    Some(span) => drop(out.span(span)),
                    None => {
                        bad = Some(number);
                        break 'requests;
                    }
                }
            }
        }
        push_kept(&mut out, &self.backlog, &kept);
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
            qp.request_attention();
            return (number != self.next).then_some((0, 0));
        }
        if wanted == 0 {
            return None;
        }
        let result = self.stream.as_deref()?.send(&mut out);
        drop(out);
        let written = self.wrote(qp, result);
        self.stream.is_some().then_some((wanted, written))
    }

    fn advance(&mut self, mut written: usize) {
        while written != 0 && self.next < self.tail {
            let wqe = *self.wqe(self.next);
            let now = written.min(wqe.size() - self.offset);
            if wqe.inline {
                self.backlog.drain(..now.min(self.backlog.len()));
            }
            written -= now;
            self.offset += now;
            if self.offset == wqe.size() {
                self.offset = 0;
                self.next += 1;
                self.reads += u32::from(wqe.operation.awaits_data());
            }
        }
    }
}

/// Adds the data of a request; false: not all of it can be had.
pub(super) fn gather<'a>(out: &mut Gather<'a>, qp: &'a QpShared, data: &Data<'a>) -> bool {
    match data {
        Data::Inline(list) => list.iter().all(|bytes| out.bytes(bytes)),
        Data::Gather(list) => list
            .iter()
            .all(|sge| qp.ctx.regions.local(sge, false).is_some_and(|span| out.span(span))),
    }
}

/// Adds a part of the kept bytes.
pub(super) fn push_kept<'a>(out: &mut Gather<'a>, backlog: &'a VecDeque<u8>, part: &Range<usize>) {
    let (first, second) = backlog.as_slices();
    let middle = first.len();
    let one = first.get(part.start.min(middle)..part.end.min(middle)).unwrap_or_default();
    let (start, end) = (part.start.saturating_sub(middle), part.end.saturating_sub(middle));
    out.bytes(one);
    out.bytes(second.get(start..end).unwrap_or_default());
}
