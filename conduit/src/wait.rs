//! Waiting: spin, yield, sleep.
//!
//! Spinning helps only where every rank of the host has a processor. Yielding lets the ranks that share one take turns
//! quickly. After that a rank sleeps on its doorbell, which messages, barriers and the exit notice ring.
//!
//! # No barrier on the sender
//!
//! A sender publishes a message, then looks whether the receiver sleeps. A receiver says that it sleeps, then looks for messages.
//! One of the two must see the other's store, so there must be a full barrier between store and look on both sides. The sender's
//! would cost more than the rest of a message. So the receiver, which is about to lose much more time, makes both: membarrier(2)
//! runs one on every processor that runs a registered process. A sender's look came before that barrier, and so did its message,
//! which the receiver then sees; or it comes after, and sees that the receiver sleeps. Every rank registers at init; unless all
//! could, every sender makes its own barrier.

use std::sync::atomic::{Ordering, compiler_fence, fence};
use std::time::Duration;

use settings::deadlines::wait as deadlines;

use crate::client::WaitMode;
use crate::core::Core;
use crate::error::Error;
use crate::gate::Which;
use crate::mode::Mode;
use crate::sys;
use crate::transport::remote::GLANCES;

/// Fruitless polls before the first yield, where there is a processor for every rank. About 50 µs.
const SPINS: u32 = 4000;
/// Fruitless polls without the processor's pause, which would delay an answer that is about to come: a Short round trip
/// took 132 ns with the pause, 118 ns without (measured between two bound ranks).
const EAGER: u32 = 256;
/// Yields before the first sleep.
const YIELDS: u32 = 100;
/// As above in [`WaitMode::Block`].
const YIELDS_BLOCK: u32 = 10;

/// One wait; counts its fruitless polls.
#[derive(Debug)]
pub struct Waiter {
    idle: u32,
    /// Arrivals from the network ring the doorbell, and a poll has found nothing since. The rings that it had before: one
    /// between that poll and the sleep must not be lost.
    armed: Option<u32>,
    slice: Duration,
    most: Duration,
}

impl Default for Waiter {
    fn default() -> Self {
        Self::new()
    }
}

impl Waiter {
    /// A wait that is ended by the doorbell.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            idle: 0,
            armed: None,
            slice: deadlines::SLEEP_FIRST.limit,
            most: deadlines::SLEEP_MOST.limit,
        }
    }

    /// A wait for room at a peer, which rings nothing.
    pub(crate) const fn for_room() -> Self {
        Self {
            idle: 0,
            armed: None,
            slice: deadlines::ROOM_FIRST.limit,
            most: deadlines::ROOM_MOST.limit,
        }
    }

    /// One turn of a wait that is driven from outside, after `idle` fruitless turns. It may be for something that rings no
    /// doorbell, so it rests for a short while only.
    #[must_use]
    pub const fn turn(idle: u32) -> Self {
        Self {
            idle,
            armed: None,
            slice: deadlines::SLEEP_FIRST.limit,
            most: deadlines::SLEEP_FIRST.limit,
        }
    }

    /// Something was done: start over.
    #[inline]
    pub const fn progressed(&mut self) {
        self.idle = 0;
        self.armed = None;
    }

    /// A poll; while the wait spins also a few looks at the network alone when nothing was found, which take a quarter of a
    /// poll each. `done` ends them. Returns how many messages were delivered.
    #[inline]
    pub(crate) fn poll<M: Mode>(
        &mut self,
        core: &Core,
        call: &'static str,
        done: impl FnMut() -> bool,
    ) -> Result<usize, Error> {
        let count = core.poll::<M>(call)?;
        let spins = core.may_spin() && self.idle + GLANCES < SPINS;
        if count > 0 || !spins || !core.only_receives() {
            return Ok(count);
        }
        self.idle += GLANCES;
        core.glance_remote::<M>(done)
    }

    /// Spends a while after a poll that found nothing. `ready` is asked just before a sleep.
    #[inline]
    pub(crate) fn idle(&mut self, core: &Core, ready: impl FnOnce() -> bool) {
        self.idle = self.idle.saturating_add(1);
        let spins = if core.may_spin() { SPINS } else { 0 };
        if self.idle < spins {
            if self.idle > EAGER {
                std::hint::spin_loop();
            }
        } else {
            self.give_way(core, self.idle - spins, ready);
        }
    }

    #[cold]
    fn give_way(&mut self, core: &Core, yielded: u32, ready: impl FnOnce() -> bool) {
        let yields = match core.wait_mode() {
            WaitMode::Spin if core.crowded() => u32::MAX,
            WaitMode::Spin => return std::hint::spin_loop(),
            WaitMode::Block => YIELDS_BLOCK,
            WaitMode::SpinBlock => YIELDS,
        };
        if yielded < yields {
            return sys::give_way();
        }
        if core.networked() && self.armed.is_none() {
            let rung = core.slot().rung();
            if core.arm_remote() {
                // The caller polls once more.
                self.armed = Some(rung);
                return;
            }
        }
        let armed = self.armed;
        core.sleep(self.slice, || armed.is_some_and(|rung| core.slot().rung() != rung) || ready());
        if self.slice == self.most {
            // Long enough for a look at who may have died, where no agent does it.
            core.exit_notifier().look();
        }
        self.armed = None;
        self.slice = (self.slice * 2).min(self.most);
    }
}

impl Core {
    /// Wakes a rank that sleeps, after a message was put where it looks.
    #[inline(always)]
    pub(crate) fn wake(&self, local: usize) {
        self.order();
        self.slot_of(local).ring_if_sleeping();
    }

    /// As [`Core::wake`] for threads of this rank.
    #[inline]
    pub(crate) fn wake_own(&self) {
        self.order();
        self.slot().ring_if_sleeping();
    }

    /// What was stored before is seen by a rank whose doorbell seems unneeded afterwards.
    #[inline(always)]
    fn order(&self) {
        if self.light() {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
    }

    /// The sleeper's part, between saying that it sleeps and its last look: a barrier on every processor that runs a rank. `false`
    /// when it could not be made.
    pub(crate) fn barrier_for_senders(&self) -> bool {
        !self.registered() || sys::barrier_everywhere()
    }

    /// Sleeps until the doorbell rings or `slice` passes; not at all when the end of the job is decided or `ready` says so.
    /// A barrier under way that completes rings; one that was complete before is the caller's affair.
    pub(crate) fn sleep(&self, slice: Duration, ready: impl FnOnce() -> bool) {
        let gates = [Which::Client, Which::Inner].map(|which| {
            let waiting = self.progress_of(which).under_way() && !self.is_open(which);
            waiting.then(|| (which, &self.gate_of(which).sleepers))
        });
        for (_, sleepers) in gates.iter().flatten() {
            sleepers.fetch_add(1, Ordering::SeqCst);
        }
        let opened = || {
            let mut waited = gates.iter().flatten();
            waited.any(|(which, _)| self.is_open(*which) || self.may_disseminate(*which))
        };
        self.slot().sleep(slice, || {
            // Without the barrier there is no sleep.
            !self.barrier_for_senders() || self.node_shm().notice().is_some() || opened() || ready()
        });
        for (_, sleepers) in gates.iter().flatten() {
            sleepers.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;
    use std::time::Instant;

    use super::*;
    use crate::gate::Name;
    use crate::{Client, Entry, Flags, HandlerIndex, Rank, Seq, Settings};

    /// So long that a lost wake-up cannot be mistaken for a slow machine.
    const FOREVER: Duration = Duration::from_secs(600);
    const ROUNDS: u32 = 2000;

    fn ranks(size: u32, rank: impl Fn(&Client<Seq>) + Sync) {
        let services = bootstrap::memory::job(size).expect("job");
        let begin = Instant::now();
        std::thread::scope(|scope| {
            for services in services {
                let rank = &rank;
                scope.spawn(move || {
                    let client = Client::with_bootstrap("TEST", services, Settings::default());
                    rank(&client.expect("init"));
                });
            }
        });
        assert!(begin.elapsed() < FOREVER, "a wake-up was lost");
    }

    #[test]
    fn a_message_always_wakes() {
        messages_wake(|client| {
            assert_eq!(client.core.light(), sys::barrier_everywhere());
        });
    }

    #[test]
    fn a_message_wakes_where_senders_make_the_barrier() {
        messages_wake(|client| client.core.leave_barriers());
    }

    fn messages_wake(prepare: impl Fn(&Client<Seq>) + Sync) {
        ranks(2, |client| {
            prepare(client);
            let got = Arc::new(AtomicU32::new(0));
            let counter = Arc::clone(&got);
            let count = move |_: &crate::Token<'_, Seq>, _: &[i32]| {
                counter.fetch_add(1, Ordering::Relaxed);
            };
            let handler = HandlerIndex(200);
            client
                .endpoint()
                .register(&mut [Entry::short("count", 0, count).at(200)])
                .expect("table");
            client.core.meet::<Seq>("test").expect("meet");
            let peer = Rank(1 - client.rank().0);
            for round in 1..=ROUNDS {
                let send = || client.team().request_short(peer, handler, &[], Flags::NONE);
                if client.rank() == Rank(0) {
                    let _ = send().expect("request");
                }
                while got.load(Ordering::Relaxed) < round {
                    client.core.sleep(FOREVER, || client.core.has_work());
                    client.poll().expect("poll");
                }
                if client.rank() == Rank(1) {
                    let _ = send().expect("request");
                }
            }
        });
    }

    #[test]
    fn a_barrier_always_wakes() {
        for size in [2, 3, 10] {
            ranks(size, |client| {
                for round in 0..ROUNDS / size {
                    let core = &client.core;
                    core.arrive(Which::Client, Name::Anonymous);
                    while core.try_pass(Which::Client).is_none() {
                        core.sleep(FOREVER, || core.is_open(Which::Client));
                    }
                    assert_eq!(core.progress_of(Which::Client).generation(), round + 1);
                }
            });
        }
    }
}
