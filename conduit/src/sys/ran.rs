//! How long a thread ran, and how long it was kept from it.

use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{ClockId, clock_gettime};

/// A thread at a moment.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    thread: usize,
    at: Instant,
    ran: Duration,
    /// Times that it gave the processor away to wait for something.
    waits: i64,
}

impl Ran {
    /// The calling thread; `None` when the system does not say.
    pub(crate) fn now() -> Option<Self> {
        let waits = getrusage(UsageWho::RUSAGE_THREAD).ok()?.voluntary_context_switches();
        let ran = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).ok()?;
        Some(Self { thread: super::thread(), at: Instant::now(), ran: ran.into(), waits })
    }

    /// How long it was kept from running since `before`; `None` when it also waited for something,
    /// or is another thread.
    pub(crate) fn kept_since(&self, before: &Self) -> Option<Duration> {
        let same = self.thread == before.thread && self.waits == before.waits;
        let (passed, ran) =
            (self.at.saturating_duration_since(before.at), self.ran.saturating_sub(before.ran));
        same.then(|| passed.saturating_sub(ran))
    }
}
