//! The split-phase barrier over all ranks of the job.

use crate::client::Client;
use crate::error::Error;
use crate::mode::Mode;

/// What a rank says about the id of a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarrierFlags(u32);

impl BarrierFlags {
    /// The id counts.
    pub const NAMED: Self = Self(0);
    /// The id is ignored; fits every name.
    pub const ANONYMOUS: Self = Self(1);
    /// This barrier shall fail on every rank.
    pub const MISMATCH: Self = Self(2);
    /// A promise that every rank passes this: ids are not looked at.
    pub const UNNAMED: Self = Self(9);
}

impl<M: Mode> Client<M> {
    /// First half of a barrier: this rank has arrived. One barrier may be under way at a time. Does not wait.
    ///
    /// # Errors
    /// A second notify without wait; the end of the job.
    pub fn barrier_notify(&self, id: i32, flags: BarrierFlags) -> Result<(), Error> {
        let _ = (id, flags);
        todo!()
    }

    /// Second half: waits (and polls) until every rank has arrived.
    ///
    /// # Errors
    /// [`Error::BarrierMismatch`] when names differ, or a rank asked for it, or the id here is not the agreed one (then on
    /// this rank only); wait without notify; the end of the job.
    pub fn barrier_wait(&self, id: i32, flags: BarrierFlags) -> Result<(), Error> {
        let _ = (id, flags);
        todo!()
    }

    /// As [`Client::barrier_wait`] without waiting: `false` when not every rank has arrived. Polls.
    ///
    /// # Errors
    /// As [`Client::barrier_wait`].
    pub fn barrier_try(&self, id: i32, flags: BarrierFlags) -> Result<bool, Error> {
        let _ = (id, flags);
        todo!()
    }

    /// Notify and wait.
    ///
    /// # Errors
    /// As [`Client::barrier_wait`].
    pub fn barrier(&self, id: i32, flags: BarrierFlags) -> Result<(), Error> {
        self.barrier_notify(id, flags)?;
        self.barrier_wait(id, flags)
    }

    /// The agreed id of the last barrier, `None` when it was anonymous. Legal between a completed barrier and the next
    /// notify.
    ///
    /// # Errors
    /// No completed barrier, or one under way.
    pub fn barrier_result(&self) -> Result<Option<i32>, Error> {
        todo!()
    }
}
