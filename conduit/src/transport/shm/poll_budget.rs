//! How much a rank sends before it polls again.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::mode::Mode;
use crate::sys;
use crate::trace::{self, Category};

/// Messages without an answer that make a flood.
const FLOOD: u32 = 16;
/// Requests without a poll between them that make a burst.
const BURST: u32 = 4;
/// In a burst, a rank checks for messages to itself before each of so many requests.
const CHECK_EVERY: u32 = 32;
/// The same for requests that are traced: what comes with a check is dearer then.
const TRACED_EVERY: u32 = 120;
/// Checks of a burst after which a rank with a network polls, because a check does not see what the
/// network has.
const CHECKS: u32 = 5;
/// The thread that a lane's tail belongs to, where only one at a time is in the library.
const ANY_THREAD: usize = 1;
/// Below the number of the thread in [`PollBudget::unchecked`].
const BITS: u32 = 8;
const _: () = assert!(CHECK_EVERY >> BITS == 0 && TRACED_EVERY >> BITS == 0);
/// Above the number of a thread whose requests are traced: those of a burst must not go past the
/// trace, so they find nothing granted where they look first.
const TRACED: usize = 1 << (usize::BITS - BITS - 1);

/// The calling thread, as tails and budgets name it.
#[inline(always)]
pub(super) fn me<M: Mode>() -> usize {
    if M::THREADED { sys::thread() } else { ANY_THREAD }
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct PollBudget {
    /// Requests since the last poll that was asked for, not counting those that went unchecked.
    burst: AtomicU32,
    /// Requests that may go out before the next check for messages and for the end of
    /// communication, and the thread that has checked: its number above the last [`BITS`] bits. A
    /// thread inside a handler has none: the poll that runs the handler ended the burst, and inside
    /// of it there are no checks.
    unchecked: AtomicUsize,
    unanswered: AtomicU32,
}

impl PollBudget {
    pub(super) const fn none() -> Self {
        let (burst, unanswered) = (AtomicU32::new(0), AtomicU32::new(0));
        Self { burst, unchecked: AtomicUsize::new(0), unanswered }
    }

    #[inline(always)]
    fn grant(&self, me: usize, count: u32) {
        self.unchecked.store((me << BITS) + count as usize, Ordering::Relaxed);
    }

    /// A poll was a check: the next request goes out.
    #[inline(always)]
    pub(crate) fn grant_one<M: Mode>(&self) {
        self.grant(me::<M>(), 1);
    }

    #[inline(always)]
    pub(crate) fn end_burst(&self) {
        self.burst.store(0, Ordering::Relaxed);
        self.unchecked.store(0, Ordering::Relaxed);
    }

    /// Uses one up, if this thread has any. Another thread's check at the same time may be lost,
    /// which costs it a check.
    #[inline(always)]
    fn take(&self, me: usize) -> bool {
        let word = self.unchecked.load(Ordering::Relaxed);
        let has = word.wrapping_sub(me << BITS).wrapping_sub(1) < (1 << BITS) - 1;
        if has {
            self.unchecked.store(word - 1, Ordering::Relaxed);
        }
        has
    }

    /// Whether this thread may send a request without a check, one that is `TRACED` or is not; uses
    /// it up.
    #[inline(always)]
    pub(super) fn take_one<M: Mode, const TRACED: bool>(&self) -> bool {
        self.take(me::<M>() | if TRACED { self::TRACED } else { 0 })
    }

    /// Counts a request that was checked for; `false` when it should poll instead. In a burst a few
    /// more may then go out unchecked, where senders need no fence. (A handler is never inside a
    /// burst: polls end it.)
    #[inline(always)]
    pub(super) fn count_checked<M: Mode>(&self, networked: bool, asymmetric: bool) -> bool {
        let burst = self.burst.load(Ordering::Relaxed);
        if networked && burst >= CHECKS {
            return false;
        }
        self.burst.store(burst.saturating_add(1), Ordering::Relaxed);
        if burst >= BURST && asymmetric {
            let traced = trace::on(Category::Messages);
            let (mark, every) = if traced { (TRACED, TRACED_EVERY) } else { (0, CHECK_EVERY) };
            self.grant(me::<M>() | mark, every - 1);
        }
        true
    }

    /// This rank sends: it is not one that only takes.
    #[inline(always)]
    pub(super) fn answered(&self) {
        // A load is cheaper than a store that waits in line behind those to other ranks.
        if self.unanswered.load(Ordering::Relaxed) != 0 {
            self.unanswered.store(0, Ordering::Relaxed);
        }
    }

    /// Counts messages that this rank took since it last sent one.
    #[inline(always)]
    pub(crate) fn count_taken(&self, more: usize) {
        let sum = self.unanswered.load(Ordering::Relaxed) as usize + more;
        self.unanswered.store(u32::try_from(sum).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// Whether messages arrive that this rank does not answer: who sends them goes on meanwhile.
    #[inline(always)]
    pub(crate) fn is_flooded(&self) -> bool {
        self.unanswered.load(Ordering::Relaxed) >= FLOOD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_belongs_to_the_thread_that_checked() {
        let budget = PollBudget::none();
        assert!(!budget.take(1) && !budget.take(ANY_THREAD << 20));
        budget.grant(7, 2);
        assert!(!budget.take(6) && !budget.take(8));
        assert!(budget.take(7) && budget.take(7) && !budget.take(7));
        budget.grant(7, CHECK_EVERY - 1);
        budget.end_burst();
        assert!(!budget.take(7));
        budget.grant(7 | TRACED, 1);
        assert!(!budget.take(7) && budget.take(7 | TRACED) && !budget.take(7 | TRACED));
    }
}
