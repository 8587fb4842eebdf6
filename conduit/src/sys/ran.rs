//! How long a thread ran, and how long it was kept from it.

use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{ClockId, clock_gettime};

/// A thread at a moment.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    thread: usize,
    pub(crate) at: Instant,
    ran: Duration,
    /// Times that the system took the processor from it.
    taken: i64,
}

impl Ran {
    /// The calling thread; `None` when the system does not say.
    pub(crate) fn now() -> Option<Self> {
        let taken = getrusage(UsageWho::RUSAGE_THREAD).ok()?.involuntary_context_switches();
        let ran = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).ok()?;
        Some(Self { thread: super::thread(), at: Instant::now(), ran: ran.into(), taken })
    }

    /// How long it was kept from running, at least, in the last `awake` in which it waited for
    /// nothing. `before` may be earlier than that. `None`: it was not, or is another thread.
    pub(crate) fn kept_since(&self, before: &Self, awake: Duration) -> Option<Duration> {
        let kept = self.thread == before.thread && self.taken > before.taken;
        kept.then(|| awake.saturating_sub(self.ran.saturating_sub(before.ran)))
    }
}
