//! Put and get at remote ranks.

use std::sync::Arc;

use bootstrap::Rank;

use super::memory;
use super::operations::{Op, OpCounters, Part};
use crate::error::Error;
use crate::mode::Mode;
use crate::rank::RankContext;
use crate::trace;
use crate::transport::OutsideSegment;
use crate::transport::message::Outcome;
use crate::transport::net::{
    self, MOST_SMALL, NetTransport, OneCall, OwnPart, RawSource, Sent, Small, SmallSent,
};
use crate::transport::op_counter::OpCounter;
use crate::wait::Waiter;

/// A put or get at a rank that shares no memory with this one, checked.
#[derive(Clone, Copy, Debug)]
pub struct RemoteOp {
    /// What the program called.
    pub call: &'static str,
    /// A remote target.
    pub target: usize,
    /// Offset in its attached segment, or the word of a [`Place`](crate::inner::Place).
    pub offset: u64,
    /// Give up instead of waiting for room.
    pub immediate: bool,
}

impl RankContext {
    /// Starts a put of few bytes to a place of a rank that `row`, of a group if `grouped`, counts, by
    /// the way that an earlier one has found; its source may be used again. `false`: not so, or not now.
    #[inline(always)]
    pub(crate) fn known_put(
        &self,
        to: (Rank, u64),
        (row, grouped): (&OpCounters, bool),
        source: &[u8],
    ) -> bool {
        let counter = (&row.puts, grouped);
        (1..=MOST_SMALL).contains(&source.len())
            && trace::is_off() & self.settings.segment_mode.is_fast()
            && self.transport.net().is_some_and(|net| net.known_put(to, source, counter))
    }

    /// Starts a put of at least one byte that `row`, of a group if `grouped`, counts, which says when
    /// its source may be used again. `now`: on return; up to `GASNET_NONBULKPUT_BOUNCE_LIMIT` bytes are
    /// copied.
    pub fn put_counted<M: Mode>(
        &self,
        op: RemoteOp,
        (row, grouped): (&OpCounters, bool),
        source: &[u8],
        now: bool,
    ) -> Result<Outcome, Error> {
        if self.known_put((self.rank_of(op.target), op.offset), (row, grouped), source) {
            return Ok(Outcome::Sent);
        }
        self.put_any::<M>(op, row, source, now)
    }

    /// As [`RankContext::put_counted`], by any way.
    #[inline(never)]
    fn put_any<M: Mode>(
        &self,
        op: RemoteOp,
        row: &OpCounters,
        source: &[u8],
        now: bool,
    ) -> Result<Outcome, Error> {
        if self.goes_by_message(op.target, op.offset) {
            let outcome = self.put_keyless::<M>(op, row, source, now)?;
            if now && outcome == Outcome::Sent {
                self.wait_for_part::<M>(op.call, &row.puts, Part::LOCAL)?;
            }
            return Ok(outcome);
        }
        let counter = &row.puts;
        if source.len() <= MOST_SMALL
            && let Some(net) = self.transport.net()
            && net.small_put((self.rank_of(op.target), op.offset), source, counter)
        {
            return Ok(Outcome::Sent);
        }
        let to = self.remote_range(op, source.len())?;
        let mut left = if now { RawSource::at_once(source) } else { RawSource::new(source) };
        let outcome = self.start::<M>(op, counter, |net| net.put(to, &mut left, counter))?;
        if now && outcome == Outcome::Sent {
            self.wait_for_part::<M>(op.call, counter, Part::LOCAL)?;
        }
        Ok(outcome)
    }

    /// Starts a get of at least one byte that `row` counts. Its target is left alone until then.
    pub fn get_counted<M: Mode>(
        &self,
        op: RemoteOp,
        row: &OpCounters,
        into: &mut [u8],
    ) -> Result<Outcome, Error> {
        if self.goes_by_message(op.target, op.offset) {
            return self.get_keyless::<M>(op, row, into);
        }
        let counter = &row.gets;
        let from = self.remote_range(op, into.len())?;
        let mut left = memory::target(into);
        self.start::<M>(op, counter, |net| net.get(from, &mut left, counter))
    }

    /// Starts a put of parts of this rank's memory, within the limits of one request, as one range.
    /// `row` says when they may be used again.
    pub(crate) fn put_parts<M: Mode>(
        &self,
        op: RemoteOp,
        row: &OpCounters,
        parts: &[&[u8]],
    ) -> Result<Outcome, Error> {
        let to = self.remote_range(op, parts.iter().map(|part| part.len()).sum())?;
        self.start::<M>(op, &row.puts, |net| net.put_parts(to, parts, &row.puts))
    }

    /// Starts a get of one range into parts of this rank's memory, within the limits of one
    /// request. They are left alone until `row` says that it is complete.
    pub(crate) fn get_parts<M: Mode>(
        &self,
        op: RemoteOp,
        row: &OpCounters,
        parts: &[OwnPart],
    ) -> Result<Outcome, Error> {
        let from = self.remote_range(op, parts.iter().map(|part| part.len).sum())?;
        self.start::<M>(op, &row.gets, |net| net.get_parts(from, parts, &row.gets))
    }

    /// Starts puts to several ranges of a rank that `row` counts, which says when their sources may
    /// be used again: place and source of each. That of `op` is not looked at.
    pub(crate) fn put_rows<'m, M: Mode>(
        &self,
        op: RemoteOp,
        row: &OpCounters,
        rows: impl IntoIterator<Item = (u64, &'m [u8])>,
    ) -> Result<Outcome, Error> {
        let check = |(offset, source): (u64, &'m [u8])| {
            self.remote_range(RemoteOp { offset, ..op }, source.len())?;
            Ok((offset, RawSource::new(source)))
        };
        let mut rows = rows.into_iter().map(check).collect::<Result<Vec<_>, Error>>()?;
        let to = self.rank_of(op.target);
        self.start::<M>(op, &row.puts, |net| net.put_rows(to, &mut rows, &row.puts))
    }

    /// As [`RankContext::put_rows`], of gets. Their targets are left alone until they are complete.
    pub(crate) fn get_rows<'m, M: Mode>(
        &self,
        op: RemoteOp,
        row: &OpCounters,
        rows: impl IntoIterator<Item = (u64, &'m mut [u8])>,
    ) -> Result<Outcome, Error> {
        let check = |(offset, into): (u64, &mut [u8])| {
            self.remote_range(RemoteOp { offset, ..op }, into.len())?;
            Ok((offset, memory::target(into)))
        };
        let mut rows = rows.into_iter().map(check).collect::<Result<Vec<_>, Error>>()?;
        let from = self.rank_of(op.target);
        self.start::<M>(op, &row.gets, |net| net.get_rows(from, &mut rows, &row.gets))
    }

    /// Where an operation goes: rank and offset, checked against the rank's segment.
    pub(crate) fn remote_range(&self, op: RemoteOp, len: usize) -> Result<(Rank, u64), Error> {
        let RemoteOp { call, target, offset, .. } = op;
        let rank = self.rank_of(target);
        let checked = self.transport.check_remote(rank, offset, len);
        checked.map(|()| (rank, offset)).map_err(|outside| self.outside(call, outside))
    }

    fn start<M: Mode>(
        &self,
        op: RemoteOp,
        counter: &OpCounter,
        mut post: impl FnMut(&NetTransport) -> Result<Sent, net::Error>,
    ) -> Result<Outcome, Error> {
        let mut waiter = Waiter::for_room();
        loop {
            match self.transport.net().map_or(Ok(Sent::Full), &mut post) {
                Ok(Sent::Yes) => return Ok(Outcome::Sent),
                // What was posted of it must be waited for.
                Ok(Sent::Full) if op.immediate && counter.is_complete() => {
                    return Ok(Outcome::NotSent);
                }
                Ok(Sent::Full) => {}
                Err(error) => return Err(self.abandon(counter, error.into())),
            }
            if let Err(error) = self.wait_for_room::<M>(op.call, &mut waiter) {
                return Err(self.abandon(counter, error));
            }
        }
    }

    /// Waits (and polls) until nothing is in flight.
    pub(crate) fn wait_remote<M: Mode>(
        &self,
        call: &'static str,
        counter: &OpCounter,
    ) -> Result<(), Error> {
        self.wait_for_part::<M>(call, counter, Part::ALL)
    }

    /// Waits (and polls) until nothing of `part` is in flight.
    fn wait_for_part<M: Mode>(
        &self,
        call: &'static str,
        counter: &OpCounter,
        part: Part,
    ) -> Result<(), Error> {
        let complete = || match part {
            Part::LOCAL => counter.is_local_complete(),
            _ => counter.is_complete(),
        };
        let waited = self.wait_for_ends::<M>(call, complete);
        waited.map_err(|error| self.abandon(counter, error))
    }

    /// An operation will not be waited for: its memory is the caller's again, so the network must
    /// not touch it any more.
    #[cold]
    pub(crate) fn abandon(&self, counter: &OpCounter, error: Error) -> Error {
        if !counter.is_complete() {
            self.cut_off();
        }
        error
    }

    #[cold]
    pub(crate) fn cut_off(&self) {
        self.collectives.give_up_all();
        if let Some(net) = self.transport.net() {
            net.close();
        }
        self.vis.forget();
        self.loans.forget();
    }

    /// An operation of few bytes that is complete on return, with no row; its holder has what it
    /// read. `None`: it has to be counted.
    #[inline(always)]
    pub(crate) fn small<M: Mode>(
        &self,
        op: RemoteOp,
        what: Small<'_>,
    ) -> Option<Result<OneCall<'_>, Error>> {
        let net = self.transport.net()?;
        let one = net.one_call::<M>()?;
        let to = (self.rank_of(op.target), op.offset);
        let look = net.is_adapter() && self.takes_look();
        match one.post(to, what, look) {
            Ok(SmallSent::Complete) => Some(Ok(one)),
            Ok(SmallSent::Unsuited) => None,
            posted => match self.small_done::<M>(&one, op, what, posted)? {
                Ok(()) => Some(Ok(one)),
                Err(error) => Some(Err(*error)),
            },
        }
    }

    /// Posts it when there is room, if it was not, and waits for its end; `None`: it has to be
    /// counted after all.
    #[inline(never)]
    fn small_done<M: Mode>(
        &self,
        one: &OneCall<'_>,
        op: RemoteOp,
        what: Small<'_>,
        mut posted: Result<SmallSent, Box<net::Error>>,
    ) -> Option<Result<(), Box<Error>>> {
        let to = (self.rank_of(op.target), op.offset);
        let mut waiter = Waiter::for_room();
        loop {
            match posted {
                Ok(SmallSent::UnderWay | SmallSent::Complete) => break,
                Ok(SmallSent::Unsuited) => return None,
                Ok(SmallSent::Full) => {}
                Err(error) => return Some(Err(self.not_small(op, what.len(), *error))),
            }
            if let Err(error) = self.wait_for_room::<M>(op.call, &mut waiter) {
                return Some(Err(Box::new(error)));
            }
            posted = one.post_again(to, what);
        }
        let waited = self.wait_for_ends::<M>(op.call, || one.is_complete());
        Some(waited.map_err(Box::new))
    }

    #[cold]
    fn not_small(&self, op: RemoteOp, len: usize, error: net::Error) -> Box<Error> {
        let RemoteOp { call, target, offset, .. } = op;
        Box::new(match error {
            net::Error::OutsideSegment { .. } => {
                self.outside(call, OutsideSegment { target, offset, len })
            }
            error => error.into(),
        })
    }

    /// A put that is complete on return.
    pub fn put_remote<M: Mode>(&self, op: RemoteOp, source: &[u8]) -> Result<(), Error> {
        if source.len() <= MOST_SMALL
            && !self.goes_by_message(op.target, op.offset)
            && let Some(done) = self.small::<M>(op, Small::Put(source))
        {
            return done.map(drop);
        }
        self.put_and_wait::<M>(op, source)
    }

    #[inline(never)]
    fn put_and_wait<M: Mode>(&self, op: RemoteOp, source: &[u8]) -> Result<(), Error> {
        self.blocking(op, |op, row| {
            let _sent = self.put_counted::<M>(op, (row, false), source, false)?;
            self.wait_remote::<M>(op.call, &row.puts)
        })
    }

    /// A get that is complete on return.
    pub fn get_remote<M: Mode>(&self, op: RemoteOp, into: &mut [u8]) -> Result<(), Error> {
        if into.len() <= MOST_SMALL
            && !self.goes_by_message(op.target, op.offset)
            && let Some(done) = self.small::<M>(op, Small::Get(into.len()))
        {
            return done.map(|done| done.read(into));
        }
        self.get_and_wait::<M>(op, into)
    }

    #[inline(never)]
    fn get_and_wait<M: Mode>(&self, op: RemoteOp, into: &mut [u8]) -> Result<(), Error> {
        self.blocking(op, |op, row| {
            let _sent = self.get_counted::<M>(op, row, into)?;
            self.wait_remote::<M>(op.call, &row.gets)
        })
    }

    fn blocking(
        &self,
        op: RemoteOp,
        run: impl FnOnce(RemoteOp, &OpCounters) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let op = RemoteOp { immediate: false, ..op };
        if let Some(counters) = self.operations.borrow() {
            let done = run(op, counters);
            self.operations.take_back();
            return done;
        }
        let (number, row) = self.begin(op.call)?;
        let done = run(op, &row);
        self.operations.forget(number);
        done
    }

    /// A row for an operation, or for a group of them.
    pub fn begin(&self, call: &'static str) -> Result<(Op, Arc<OpCounters>), Error> {
        self.operations.begin().ok_or(Error::TooManyOperations { call })
    }
}
