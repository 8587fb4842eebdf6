//! Put and get at remote ranks.

use std::sync::Arc;

use super::{FarSegment, memory};
use crate::core::Core;
use crate::error::Error;
use crate::mode::Mode;
use crate::operations::Part;
use crate::transport::message::Outcome;
use crate::transport::neighbours::remote_rank;
use crate::transport::net::{self, OpCounter, RawSource, Sent};
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
    /// A put's caller waits for its source: up to `GASNET_NONBULKPUT_BOUNCE_LIMIT` bytes are copied.
    pub(crate) at_once: bool,
}

impl Core {
    /// Whether the network would certainly find something.
    #[inline]
    pub(crate) fn remote_has_work(&self) -> bool {
        self.networked() && self.remote().is_some_and(super::Remote::has_work)
    }

    /// Arms the network before a sleep; `false` when that is not possible.
    #[cold]
    pub(crate) fn arm_remote(&self) -> bool {
        self.remote().is_some_and(|remote| remote.arm().is_ok())
    }

    /// Segment of a remote target; `None` before attach and for neighbours.
    pub(crate) fn far_segment(&self, target: usize) -> Option<FarSegment> {
        self.remote()?.segment(remote_rank(target)?)
    }

    /// Checks a range of a remote segment. Without bytes any place will do.
    pub(crate) fn check_far(
        &self,
        call: &'static str,
        target: usize,
        offset: u64,
        len: usize,
    ) -> Result<(), Error> {
        let most = self.far_segment(target).map_or(0, |segment| segment.len);
        if len == 0 || offset.checked_add(len as u64).is_some_and(|end| end <= most) {
            return Ok(());
        }
        Err(self.outside(call, target, offset, len))
    }

    /// Starts a put of at least one byte. The source is left alone until the counter says so.
    pub(crate) fn start_put<M: Mode>(
        &self,
        start: Start<'_>,
        source: &[u8],
    ) -> Result<Outcome, Error> {
        let Start { target, offset, counter, .. } = start;
        self.check_far(start.call, target, offset, source.len())?;
        let mut left =
            if start.at_once { RawSource::at_once(source) } else { RawSource::new(source) };
        self.start::<M>(start, |core| {
            let (Some(to), Some(remote)) = (remote_rank(target), core.remote()) else {
                return Ok(Sent::Full);
            };
            let put = remote.enter(|network| network.put::<M>(to, offset, &mut left, counter));
            put.unwrap_or(Ok(Sent::Full))
        })
    }

    /// Starts a get of at least one byte. The target is left alone until the counter says so.
    pub(crate) fn start_get<M: Mode>(
        &self,
        start: Start<'_>,
        into: &mut [u8],
    ) -> Result<Outcome, Error> {
        let Start { target, offset, counter, .. } = start;
        self.check_far(start.call, target, offset, into.len())?;
        let mut left = memory::target(into);
        self.start::<M>(start, |core| {
            let (Some(from), Some(remote)) = (remote_rank(target), core.remote()) else {
                return Ok(Sent::Full);
            };
            let get = remote.enter(|network| network.get::<M>(from, offset, &mut left, counter));
            get.unwrap_or(Ok(Sent::Full))
        })
    }

    /// Calls `post` until all is posted.
    fn start<M: Mode>(
        &self,
        start: Start<'_>,
        mut post: impl FnMut(&Self) -> Result<Sent, net::Error>,
    ) -> Result<Outcome, Error> {
        let mut waiter = Waiter::for_room();
        loop {
            match post(self) {
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
    pub(crate) fn wait_far<M: Mode>(
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

    /// An operation will not be waited for: its memory is the caller's again, so the network must not touch it any more.
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
        if let Some(remote) = self.remote() {
            remote.close();
        }
    }

    /// A put that is complete on return.
    pub(crate) fn put_far<M: Mode>(
        &self,
        call: &'static str,
        target: usize,
        offset: u64,
        source: &[u8],
    ) -> Result<(), Error> {
        self.blocking(call, |counter| {
            let start = Start { call, target, offset, counter, immediate: false, at_once: false };
            let _sent = self.start_put::<M>(start, source)?;
            self.wait_far::<M>(call, counter, Part::All)
        })
    }

    /// A get that is complete on return.
    pub(crate) fn get_far<M: Mode>(
        &self,
        call: &'static str,
        target: usize,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), Error> {
        self.blocking(call, |counter| {
            let start = Start { call, target, offset, counter, immediate: false, at_once: false };
            let _sent = self.start_get::<M>(start, into)?;
            self.wait_far::<M>(call, counter, Part::All)
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
