//! Requests on their way into the stream.

use std::collections::VecDeque;
use std::io;

use super::wqe::{HEADER, Wqe};
use super::{SendQueue, rest_of};
use crate::soft::memory::Gather;
use crate::soft::qp_shared::QpShared;
use crate::soft::stream::Stream;
use crate::soft::wire::{REQUEST, low};
use crate::{Data, Status};

impl SendQueue {
    /// Copies inline bytes from `from` on: they wait in the backlog.
    pub(super) fn keep(&mut self, data: &Data<'_>, mut from: usize) {
        if let Data::Inline(list) = data {
            for bytes in *list {
                let skip = from.min(bytes.len());
                from -= skip;
                // A whole slice at once: byte by byte it takes longer than the system call.
                self.backlog.extend(bytes.get(skip..).unwrap_or_default());
            }
        }
    }

    /// Writes the last posted request, which is the only one to be written, without a copy.
    pub(super) fn write_now(&mut self, qp: &QpShared, wqe: &Wqe, data: &Data<'_>) {
        let number = self.tail - 1;
        let header = wqe.header(low(number - self.base));
        let size = wqe.size();
        let head = header.get(..wqe.header_len()).unwrap_or_default();
        let Some(stream) = self.stream.clone() else { return };
        let mut out = Gather::new();
        let whole = out.bytes(head) && (wqe.operation.awaits_data() || gather(&mut out, qp, data));
        let written = if !whole {
            0
        } else if out.total() == head.len() {
            drop(out);
            self.wrote(qp, stream.write(head))
        } else {
            self.wrote(qp, stream.send(out))
        };
        if written == size {
            self.next = self.tail;
            self.reads += u32::from(wqe.operation.awaits_data());
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

    fn wrote(&mut self, qp: &QpShared, result: io::Result<Option<usize>>) -> usize {
        if result.is_err() {
            self.lose(qp);
        }
        result.ok().flatten().unwrap_or(0)
    }

    pub(in crate::soft) fn flush(&mut self, qp: &QpShared) {
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
    fn write_batch(&mut self, qp: &QpShared, stream: &Stream) -> Option<(usize, usize)> {
        const BATCH: usize = 12;
        let mut headers = [[0_u8; HEADER]; BATCH];
        let mut last = self.next;
        let mut reads = self.reads;
        for (place, number) in headers.iter_mut().zip(self.next..self.tail) {
            let wqe = self.wqe(number);
            if wqe.fault.is_some() || (wqe.operation.awaits_data() && reads >= self.rd_atom) {
                break;
            }
            reads += u32::from(wqe.operation.awaits_data());
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
                push_kept(&mut out, &self.backlog, kept, body - from);
                kept += body - from;
            } else if body != 0 && !wqe.operation.awaits_data() {
                for (sge, skip) in rest_of(self.sges(number, wqe.sges), from) {
                    match qp.ctx.regions.local_from(sge, skip, false) {
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
            qp.request_attention();
            return (number != self.next).then_some((0, 0));
        }
        if wanted == 0 {
            return None;
        }
        let result = stream.send(out);
        let written = self.wrote(qp, result);
        self.stream.is_some().then_some((wanted, written))
    }

    fn advance(&mut self, mut written: usize) {
        while written != 0 && self.next < self.tail {
            let wqe = *self.wqe(self.next);
            let now = written.min(wqe.size() - self.offset);
            if wqe.inline {
                let before = self.offset.saturating_sub(REQUEST);
                let after = (self.offset + now).saturating_sub(REQUEST);
                self.backlog.drain(..(after - before).min(self.backlog.len()));
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

/// Adds `len` kept bytes from position `from`.
fn push_kept<'a>(out: &mut Gather<'a>, backlog: &'a VecDeque<u8>, from: usize, len: usize) {
    let (first, second) = backlog.as_slices();
    let one = first.get(from.min(first.len())..(from + len).min(first.len())).unwrap_or_default();
    let start = from.saturating_sub(first.len());
    let two = second.get(start..start + len - one.len()).unwrap_or_default();
    out.bytes(one);
    out.bytes(two);
}
