//! Waiting: spin, yield, sleep.
//!
//! Spinning helps only where every rank of the host has a processor. Yielding lets the ranks that share one take turns
//! quickly. After that a rank sleeps on its doorbell, which messages, barriers and the exit notice ring.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::client::WaitMode;
use crate::core::Core;
use crate::deadlines;
use crate::gate::Which;
use crate::sys;

/// Fruitless polls before the first yield, where there is a processor for every rank. About 50 µs.
const SPINS: u32 = 4000;
/// Yields before the first sleep.
const YIELDS: u32 = 100;
/// As above in [`WaitMode::Block`].
const YIELDS_BLOCK: u32 = 10;

/// One wait; counts its fruitless polls.
pub(crate) struct Waiter {
    idle: u32,
    slice: Duration,
    most: Duration,
}

impl Waiter {
    /// A wait that is ended by the doorbell.
    pub(crate) const fn new() -> Self {
        Self { idle: 0, slice: deadlines::SLEEP_FIRST, most: deadlines::SLEEP_MOST }
    }

    /// A wait for room at a peer, which rings nothing.
    pub(crate) const fn for_room() -> Self {
        Self { idle: 0, slice: deadlines::ROOM_FIRST, most: deadlines::ROOM_MOST }
    }

    /// Something was done: start over.
    #[inline]
    pub(crate) const fn progressed(&mut self) {
        self.idle = 0;
    }

    /// Spends a while after a poll that found nothing. `ready` is asked just before a sleep.
    #[inline]
    pub(crate) fn idle(&mut self, core: &Core, ready: impl FnOnce() -> bool) {
        self.idle = self.idle.saturating_add(1);
        if self.idle < SPINS && !core.crowded() {
            std::hint::spin_loop();
            return;
        }
        self.give_way(core, ready);
    }

    #[cold]
    fn give_way(&mut self, core: &Core, ready: impl FnOnce() -> bool) {
        let spins = if core.crowded() { 0 } else { SPINS };
        let yields = match core.wait_mode() {
            WaitMode::Spin if core.crowded() => u32::MAX,
            WaitMode::Spin => return std::hint::spin_loop(),
            WaitMode::Block => YIELDS_BLOCK,
            WaitMode::SpinBlock => YIELDS,
        };
        if self.idle - spins < yields {
            return sys::give_way();
        }
        core.sleep(self.slice, ready);
        self.slice = (self.slice * 2).min(self.most);
    }
}

impl Core {
    /// Sleeps until the doorbell rings or `slice` passes; not at all when a barrier under way is complete, the end of the
    /// job is decided, or `ready` says so.
    pub(crate) fn sleep(&self, slice: Duration, ready: impl FnOnce() -> bool) {
        let gates = [Which::Client, Which::Inner].map(|which| {
            let waiting = self.progress_of(which).under_way();
            waiting.then(|| (which, &self.gate_of(which).sleepers))
        });
        for (_, sleepers) in gates.iter().flatten() {
            sleepers.fetch_add(1, Ordering::SeqCst);
        }
        let open = || gates.iter().flatten().any(|(which, _)| self.is_open(*which));
        self.slot().sleep(slice, || self.page().notice().is_some() || open() || ready());
        for (_, sleepers) in gates.iter().flatten() {
            sleepers.fetch_sub(1, Ordering::SeqCst);
        }
    }
}
