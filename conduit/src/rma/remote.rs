//! Put and get at remote ranks.

use std::sync::Arc;

use bootstrap::Rank;

use super::memory;
use super::operations::{OpCounters, Part};
use crate::error::Error;
use crate::mode::Mode;
use crate::rank::RankContext;
use crate::transport::message::Outcome;
use crate::transport::net::{self, NetTransport, RawSource, Sent};
use crate::transport::op_counter::OpCounter;
use crate::wait::Waiter;

/// How a put or get is started.
#[derive(Clone, Copy)]
pub(crate) struct Start<'a> {
    /// What the program called.
    pub(crate) call: &'static str,
    /// A remote target.
    pub(crate) target: usize,
    /// Offset in its segment.
    pub(crate) offset: u64,
    /// Counts what is in flight.
    pub(crate) counter: &'a Arc<OpCounter>,
    /// Give up instead of waiting for room.
    pub(crate) immediate: bool,
    /// A put's caller waits for its source: up to `GASNET_NONBULKPUT_BOUNCE_LIMIT` bytes are
    /// copied.
    pub(crate) at_once: bool,
}

/// A put or get at a rank that shares no memory with this one, checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteOp {
    pub(crate) call: &'static str,
    pub(crate) target: usize,
    /// Offset in the target's segment.
    pub(crate) offset: u64,
    pub(crate) immediate: bool,
}

impl RemoteOp {
    const fn start(self, counter: &Arc<OpCounter>, at_once: bool) -> Start<'_> {
        let Self { call, target, offset, immediate } = self;
        Start { call, target, offset, counter, immediate, at_once }
    }
}

impl RankContext {
    /// Starts a put that `row` counts. `now`: its source is the caller's again on return.
    pub(crate) fn put_counted<M: Mode>(
        &self,
        op: RemoteOp,
        row: &OpCounters,
        source: &[u8],
        now: bool,
    ) -> Result<Outcome, Error> {
        let outcome = self.start_put::<M>(op.start(&row.puts, now), source)?;
        if now && outcome == Outcome::Sent {
            self.wait_remote::<M>(op.call, &row.puts, Part::Local)?;
        }
        Ok(outcome)
    }

    /// Starts a get that `row` counts.
    pub(crate) fn get_counted<M: Mode>(
        &self,
        op: RemoteOp,
        row: &OpCounters,
        into: &mut [u8],
    ) -> Result<Outcome, Error> {
        self.start_get::<M>(op.start(&row.gets, false), into)
    }

    /// Starts a put of at least one byte. The source is left alone until the counter says so.
    pub(crate) fn start_put<M: Mode>(
        &self,
        start: Start<'_>,
        source: &[u8],
    ) -> Result<Outcome, Error> {
        let counter = start.counter;
        let to = self.remote_range(start, source.len())?;
        let mut left =
            if start.at_once { RawSource::at_once(source) } else { RawSource::new(source) };
        self.start::<M>(start, |net| net.put(to, &mut left, counter))
    }

    /// Starts a get of at least one byte. The target is left alone until the counter says so.
    pub(crate) fn start_get<M: Mode>(
        &self,
        start: Start<'_>,
        into: &mut [u8],
    ) -> Result<Outcome, Error> {
        let counter = start.counter;
        let from = self.remote_range(start, into.len())?;
        let mut left = memory::target(into);
        self.start::<M>(start, |net| net.get(from, &mut left, counter))
    }

    /// Where an operation goes: rank and offset, checked against the rank's segment.
    fn remote_range(&self, start: Start<'_>, len: usize) -> Result<(Rank, u64), Error> {
        let Start { call, target, offset, .. } = start;
        let rank = self.rank_of(target);
        let checked = self.transport.check_remote(rank, offset, len);
        checked.map(|()| (rank, offset)).map_err(|outside| self.outside(call, outside))
    }

    /// Calls `post` until all is posted.
    fn start<M: Mode>(
        &self,
        start: Start<'_>,
        mut post: impl FnMut(&NetTransport) -> Result<Sent, net::Error>,
    ) -> Result<Outcome, Error> {
        let mut waiter = Waiter::for_room();
        loop {
            match self.transport.net().map_or(Ok(Sent::Full), &mut post) {
                Ok(Sent::Yes) => return Ok(Outcome::Sent),
                // What was posted of it must be waited for.
                Ok(Sent::Full) if start.immediate && start.counter.is_complete() => {
                    return Ok(Outcome::NotSent);
                }
                Ok(Sent::Full) => {}
                Err(error) => return Err(self.abandon(start.counter, error.into())),
            }
            if let Err(error) = self.wait_for_room::<M>(start.call, &mut waiter) {
                return Err(self.abandon(start.counter, error));
            }
        }
    }

    /// Waits (and polls) until nothing of `part` is in flight.
    pub(crate) fn wait_remote<M: Mode>(
        &self,
        call: &'static str,
        counter: &OpCounter,
        part: Part,
    ) -> Result<(), Error> {
        let complete = || match part {
            Part::Local => counter.is_local_complete(),
            Part::All | Part::Puts | Part::Gets => counter.is_complete(),
        };
        let mut waiter = Waiter::new();
        while !complete() {
            match self.poll::<M>(call) {
                Ok(0) => waiter.idle(self, || self.has_work() || complete()),
                Ok(_) => waiter.progressed(),
                Err(error) => return Err(self.abandon(counter, error)),
            }
        }
        Ok(())
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

    /// Ends all traffic with remote ranks.
    #[cold]
    pub(crate) fn cut_off(&self) {
        if let Some(net) = self.transport.net() {
            net.close();
        }
    }

    /// A put that is complete on return.
    pub(crate) fn put_remote<M: Mode>(
        &self,
        call: &'static str,
        target: usize,
        offset: u64,
        source: &[u8],
    ) -> Result<(), Error> {
        self.blocking(call, |counter| {
            let start = Start { call, target, offset, counter, immediate: false, at_once: false };
            let _sent = self.start_put::<M>(start, source)?;
            self.wait_remote::<M>(call, counter, Part::All)
        })
    }

    /// A get that is complete on return.
    pub(crate) fn get_remote<M: Mode>(
        &self,
        call: &'static str,
        target: usize,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), Error> {
        self.blocking(call, |counter| {
            let start = Start { call, target, offset, counter, immediate: false, at_once: false };
            let _sent = self.start_get::<M>(start, into)?;
            self.wait_remote::<M>(call, counter, Part::All)
        })
    }

    fn blocking(
        &self,
        call: &'static str,
        run: impl FnOnce(&Arc<OpCounter>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (op, row) = self.operations.begin().ok_or(Error::TooManyOperations { call })?;
        let done = run(&row.puts);
        self.operations.forget(op);
        done
    }
}
