//! The client's barrier by its steps, and waiting: events of C make several barriers of it, one
//! after the other.

use super::Inner;
use crate::error::Error;
use crate::mode::Mode;
use crate::transport::shm::{BarrierName as Name, Which};
use crate::wait::Waiter;

impl Inner {
    /// Whether this rank has arrived at a barrier and not seen it complete.
    #[inline]
    #[must_use]
    pub fn barrier_under_way(self) -> bool {
        self.0.shm().progress_of(Which::Client).under_way()
    }

    /// Arrives without a name. No barrier may be under way.
    #[inline]
    pub fn arrive(self) {
        self.0.shm().arrive(Which::Client, Name::Anonymous);
    }

    /// Whether all ranks have arrived; changes nothing.
    #[inline]
    #[must_use]
    pub fn barrier_is_open(self) -> bool {
        self.0.shm().is_open(Which::Client)
    }

    /// Completes the barrier when all ranks have arrived.
    #[inline]
    #[must_use]
    pub fn try_pass(self) -> bool {
        self.0.shm().try_pass(Which::Client).is_some()
    }

    /// Waits (and polls) until the barrier is complete.
    ///
    /// # Errors
    /// The end of the job.
    #[inline]
    pub fn pass<M: Mode>(self, call: &'static str) -> Result<(), Error> {
        self.0.pass::<M>(Which::Client, call).map(|_| ())
    }

    /// Wakes threads of this rank that sleep.
    pub fn wake_own(self) {
        self.0.shm().wake_own();
    }

    /// Spends a while after a poll that found nothing. `ready` is asked just before a sleep.
    #[inline]
    pub fn idle(self, waiter: &mut Waiter, ready: impl FnOnce() -> bool) {
        waiter.idle(self.0, ready);
    }
}
