//! The split-phase barrier over all ranks of the job, with names.

use bitflags::bitflags;

use super::Client;
use crate::error::Error;
use crate::mode::Mode;
use crate::trace;
use crate::transport::shm::{BarrierName as Name, Which};

bitflags! {
    /// What a rank says about the id of a barrier.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct BarrierFlags: u32 {
        /// The id counts.
        const NAMED = 0;
        /// The id is ignored; fits every name.
        const ANONYMOUS = 1;
        /// This barrier shall fail on every rank.
        const MISMATCH = 2;
        /// A promise that every rank passes this: ids are not looked at.
        const UNNAMED = 9;
    }
}

impl BarrierFlags {
    #[inline]
    pub(crate) const fn name(self, id: i32) -> Name {
        if self.contains(Self::MISMATCH) {
            Name::Mismatch
        } else if self.contains(Self::ANONYMOUS) {
            Name::Anonymous
        } else {
            Name::Named(id)
        }
    }
}

/// What wait says on a rank that waits with `mine`, when the ranks agreed on `agreed`.
#[inline]
pub(crate) fn verdict(agreed: Name, mine: Name) -> Result<(), Error> {
    match (agreed, mine) {
        (Name::Mismatch, _) => Err(Error::BarrierMismatch),
        (Name::Named(agreed), Name::Named(mine)) if agreed != mine => Err(Error::BarrierMismatch),
        _ => Ok(()),
    }
}

impl<M: Mode> Client<M> {
    /// First half of a barrier: this rank has arrived. One barrier may be under way at a time. Does
    /// not wait.
    ///
    /// # Errors
    /// A second notify without wait; a call inside a handler; the end of the job.
    #[inline]
    pub fn barrier_notify(&self, id: i32, flags: BarrierFlags) -> Result<(), Error> {
        let call = "barrier_notify";
        // That the job ends is found out by the wait.
        self.context.check_running(call)?;
        self.context.check_outside::<M>(call)?;
        if self.context.shm().progress_of(Which::Client).under_way() {
            let problem = "the barrier before it was notified and not waited for";
            return Err(Error::BarrierOrder { call, problem });
        }
        self.context.arrive(Which::Client, flags.name(id));
        trace::notified();
        Ok(())
    }

    #[inline]
    fn barrier_under_way(&self, call: &'static str) -> Result<(), Error> {
        if self.context.shm().progress_of(Which::Client).under_way() {
            return Ok(());
        }
        Err(Error::BarrierOrder { call, problem: "there was no notify before it" })
    }

    /// Second half: waits (and polls) until every rank has arrived.
    ///
    /// # Errors
    /// [`Error::BarrierMismatch`] when names differ, or a rank asked for it, or the id here is not
    /// the agreed one (then on this rank only); wait without notify; the end of the job.
    #[inline]
    pub fn barrier_wait(&self, id: i32, flags: BarrierFlags) -> Result<(), Error> {
        let call = "barrier_wait";
        self.barrier_under_way(call)?;
        let agreed = self.context.pass::<M>(Which::Client, call)?;
        verdict(agreed, flags.name(id))
    }

    /// As [`Client::barrier_wait`] without waiting: `false` when not every rank has arrived. Polls.
    ///
    /// # Errors
    /// As [`Client::barrier_wait`].
    pub fn barrier_try(&self, id: i32, flags: BarrierFlags) -> Result<bool, Error> {
        let call = "barrier_try";
        self.barrier_under_way(call)?;
        self.context.poll::<M>(call)?;
        match self.context.shm().try_pass(Which::Client) {
            None => Ok(false),
            Some(agreed) => verdict(agreed, flags.name(id)).map(|()| true),
        }
    }

    /// Notify and wait.
    ///
    /// # Errors
    /// As [`Client::barrier_wait`].
    #[inline]
    pub fn barrier(&self, id: i32, flags: BarrierFlags) -> Result<(), Error> {
        self.barrier_notify(id, flags)?;
        self.barrier_wait(id, flags)
    }

    /// The agreed id of the last barrier, `None` when it was anonymous (or failed). Legal between a
    /// completed barrier and the next notify.
    ///
    /// # Errors
    /// No completed barrier, or one under way.
    pub fn barrier_result(&self) -> Result<Option<i32>, Error> {
        let call = "barrier_result";
        let wrong = |problem| Err(Error::BarrierOrder { call, problem });
        if self.context.shm().progress_of(Which::Client).under_way() {
            return wrong("a barrier is under way");
        }
        if self.context.shm().progress_of(Which::Client).generation() == 0 {
            return wrong("there was no barrier before it");
        }
        Ok(match self.context.shm().progress_of(Which::Client).result() {
            Name::Named(id) => Some(id),
            Name::Anonymous | Name::Mismatch => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_say_what_the_name_is() {
        assert_eq!(BarrierFlags::NAMED.name(-7), Name::Named(-7));
        assert_eq!(BarrierFlags::ANONYMOUS.name(-7), Name::Anonymous);
        assert_eq!(BarrierFlags::UNNAMED.name(-7), Name::Anonymous);
        assert_eq!(BarrierFlags::MISMATCH.name(-7), Name::Mismatch);
    }

    #[test]
    fn a_wait_fails_on_mismatch_or_on_another_name() {
        let id = 0xcafe_f00d_u32.cast_signed();
        assert!(verdict(Name::Named(id), Name::Named(id)).is_ok());
        assert!(verdict(Name::Named(id), Name::Anonymous).is_ok());
        assert!(verdict(Name::Anonymous, Name::Named(id)).is_ok());
        assert!(verdict(Name::Named(id), Name::Named(id ^ 0x10_0000)).is_err());
        assert!(verdict(Name::Mismatch, Name::Anonymous).is_err());
    }
}
