//! Waking ranks that sleep.
//!
//! # No fence on the sender
//!
//! A sender publishes a message, then reads whether the receiver sleeps. A receiver says that it
//! sleeps, then reads its queues. One of the two must see the other's store, so there must be a
//! full fence between store and load on both sides. The sender's would cost more than the rest of a
//! message. So the receiver, which is about to lose much more time, makes both: membarrier(2) runs
//! one on every processor that runs a registered process. A sender's load came before that fence,
//! and so did its message, which the receiver then sees; or it comes after, and sees that the
//! receiver sleeps. Every rank registers at init; unless all could, every sender makes its own
//! fence.

use std::sync::atomic::{Ordering, compiler_fence, fence};

use super::endpoint::ShmTransport;
use crate::sys;

impl ShmTransport {
    /// Takes part in the fences that sleeping ranks make, if the system has them and this process
    /// is `registered` for them.
    pub(crate) fn join_fences(&self, registered: bool) {
        if registered {
            self.registered.store(true, Ordering::Relaxed);
            self.memory.control().registered.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Decides whether senders need fences; once every rank has announced itself.
    pub(crate) fn learn_fences(&self) {
        let registered = self.memory.control().registered.load(Ordering::SeqCst);
        self.asymmetric.store(registered == self.span.locals, Ordering::Relaxed);
    }

    /// As on a system without such fences. All ranks, then a barrier.
    #[cfg(test)]
    pub(crate) fn leave_fences(&self) {
        self.asymmetric.store(false, Ordering::SeqCst);
        self.registered.store(false, Ordering::SeqCst);
    }

    /// Whether senders can leave out the fence between a message and the load of its receiver's
    /// doorbell.
    #[inline(always)]
    pub(crate) fn is_asymmetric(&self) -> bool {
        self.asymmetric.load(Ordering::Relaxed)
    }

    /// Wakes a rank that sleeps, after a message was put where it polls.
    #[inline(always)]
    pub(crate) fn wake(&self, local: usize) {
        self.order();
        self.slot_of(local).ring_if_sleeping();
    }

    /// As [`wake`](Self::wake), for the other threads of this rank.
    #[inline(always)]
    pub(crate) fn wake_own(&self) {
        self.order();
        self.slot().ring_if_sleeping();
    }

    /// What was stored before is seen by a rank whose doorbell seems unneeded afterwards.
    #[inline(always)]
    fn order(&self) {
        if self.is_asymmetric() {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
    }

    /// The sleeper's part, between saying that it sleeps and its last check: a fence on every
    /// processor that runs a rank. `false` when it could not be made.
    pub(crate) fn fence_for_senders(&self) -> bool {
        !self.registered.load(Ordering::Relaxed) || sys::barrier_everywhere()
    }
}
