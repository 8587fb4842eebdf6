//! Barriers and small reductions to all over the team of all ranks, by events. All other collectives
//! are operations.
//!
//! Events of these are numbers: a sequence number and a kind. Those of a kind complete in order, so
//! a count says which are complete. Only one barrier is under way between the ranks: the next one
//! arrives when it has passed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gasnet_ibv::Mode;
use gasnet_ibv::inner::{Group, Inner, Waiter};

use crate::events::no_event;
use crate::fail::{Fail, ensure};
use crate::types::EventValue;
use crate::{M, events};

const BARRIER: usize = 0x80;
/// In shared memory; the number is that of its turn.
const REDUCTION: usize = 0xc0;

/// The barriers of this rank.
pub struct Collectives {
    inner: Inner,
    whole: Arc<Group>,
    advancing: Mutex<()>,
    begun: AtomicU64,
    arrived: AtomicU64,
    done: AtomicU64,
}

impl Collectives {
    pub fn new(inner: Inner) -> Self {
        Self {
            inner,
            whole: inner.whole(),
            advancing: Mutex::new(()),
            begun: AtomicU64::new(0),
            arrived: AtomicU64::new(0),
            done: AtomicU64::new(0),
        }
    }

    /// Whether a barrier with an event has begun and is not complete.
    #[inline]
    pub fn barriers_under_way(&self) -> bool {
        self.begun.load(Ordering::Relaxed) != self.done.load(Ordering::Acquire)
    }

    /// Moves the barriers on as far as the other ranks let it.
    #[inline]
    pub fn advance(&self) {
        if self.barriers_under_way() && (!<M as Mode>::THREADED || self.may_move()) {
            let _alone = self.alone();
            self.advance_barriers();
        }
    }

    /// Only one thread moves barriers on.
    #[inline]
    fn alone(&self) -> Option<MutexGuard<'_, ()>> {
        <M as Mode>::THREADED.then(|| self.advancing.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether there may be something to do for who takes the lock: threads that wait ask this
    /// first. A hint, as another thread may be about to do it.
    #[inline]
    fn may_move(&self) -> bool {
        let arrived = self.arrived.load(Ordering::Relaxed);
        if arrived > self.done.load(Ordering::Relaxed) {
            return self.inner.barrier_is_open();
        }
        self.begun.load(Ordering::Relaxed) > arrived
    }

    /// The caller is `alone`.
    #[inline]
    fn advance_barriers(&self) {
        let mut passed = false;
        loop {
            let (arrived, done) =
                (self.arrived.load(Ordering::Relaxed), self.done.load(Ordering::Relaxed));
            if arrived > done {
                if !self.inner.try_pass() {
                    break;
                }
                self.done.store(done + 1, Ordering::Release);
                passed = true;
            } else if self.begun.load(Ordering::Relaxed) > arrived
                && !self.inner.barrier_under_way()
            {
                self.inner.arrive();
                self.arrived.store(arrived + 1, Ordering::Relaxed);
            } else {
                break;
            }
        }
        if <M as Mode>::THREADED && passed {
            // Another thread of this rank may sleep for it.
            self.inner.wake_own();
        }
    }

    /// Begins a barrier: its event.
    #[inline]
    pub fn begin_barrier(&self) -> Result<EventValue, Fail> {
        let _alone = self.alone();
        let under_way = self.barriers_under_way();
        ensure!(
            under_way || !self.inner.barrier_under_way(),
            "gasnet_barrier_notify was called and not waited for"
        );
        let number = self.begun.load(Ordering::Relaxed) + 1;
        self.begun.store(number, Ordering::Relaxed);
        if under_way {
            self.advance_barriers();
        } else {
            self.inner.arrive();
            self.arrived.store(number, Ordering::Relaxed);
            if self.inner.try_pass() {
                self.done.store(number, Ordering::Release);
            }
        }
        Ok(event(number, BARRIER))
    }

    /// Whether an event, not 0, is complete.
    #[inline]
    pub fn is_complete(&self, event: EventValue) -> Result<bool, Fail> {
        if !events::is_operation(event) {
            self.advance();
        }
        self.seen_complete(event)
    }

    /// The same without a check whether the other ranks have arrived.
    #[inline]
    fn seen_complete(&self, event: EventValue) -> Result<bool, Fail> {
        if events::is_operation(event) {
            return events::finish(self.inner, event);
        }
        let (number, kind) = parts(event);
        if kind == REDUCTION {
            return self.is_seen(number).ok_or_else(|| no_event(event));
        }
        if kind == BARRIER && number >= 1 && number <= self.begun.load(Ordering::Relaxed) {
            return Ok(self.done.load(Ordering::Acquire) >= number);
        }
        Err(no_event(event))
    }

    /// Whether a reduction is complete; `None` for one that was not begun.
    fn is_seen(&self, number: u64) -> Option<bool> {
        self.whole.has_seen(u32::try_from(number).ok()?)
    }

    /// The event of a reduction that was begun; 0 when it is complete.
    pub fn event_of(&self, turn: u32) -> EventValue {
        if self.whole.has_seen(turn) == Some(true) { 0 } else { event(turn.into(), REDUCTION) }
    }

    /// Polls for an event that a program tests again and again.
    pub fn poll_once(&self, call: &'static str) -> Result<(), Fail> {
        if !self.inner.in_handler::<M>() {
            self.inner.poll::<M>(call)?;
            self.advance();
        }
        Ok(())
    }

    /// Waits (and polls) for an event.
    #[inline]
    pub fn wait_for(&self, call: &'static str, event: EventValue) -> Result<(), Fail> {
        if <M as Mode>::THREADED || !self.is_last_barrier(event) || self.inner.in_handler::<M>() {
            return self.wait_for_any(call, event);
        }
        // Nobody else moves it on.
        self.inner.pass::<M>(call)?;
        self.done.store(parts(event).0, Ordering::Release);
        Ok(())
    }

    #[inline(never)]
    fn wait_for_any(&self, call: &'static str, event: EventValue) -> Result<(), Fail> {
        if event == 0 || self.is_complete(event)? {
            return Ok(());
        }
        self.inner.check_outside::<M>(call)?;
        if let (turn, REDUCTION) = parts(event)
            && let (Ok(turn), false) = (u32::try_from(turn), self.barriers_under_way())
        {
            // Another thread may begin a barrier meanwhile, and moves it on itself.
            return Ok(self.inner.pass_meeting::<M>(call, turn)?);
        }
        if event & 0xff == BARRIER && self.inner.yield_until(|| self.is_complete(event))? {
            return Ok(());
        }
        self.wait_until(call, || self.seen_complete(event))
    }

    /// Whether an event is the barrier that was begun last, this rank has arrived at it, and it was
    /// not seen complete.
    #[inline]
    fn is_last_barrier(&self, event: EventValue) -> bool {
        let (number, kind) = parts(event);
        let number_is = |word: &AtomicU64| word.load(Ordering::Relaxed) == number;
        kind == BARRIER
            && number_is(&self.begun)
            && number_is(&self.arrived)
            && self.done.load(Ordering::Relaxed) < number
    }

    /// Waits (and polls) until `done` says so, which is asked after the barriers were moved on.
    pub fn wait_until(
        &self,
        call: &'static str,
        mut done: impl FnMut() -> Result<bool, Fail>,
    ) -> Result<(), Fail> {
        let inner = self.inner;
        let mut waiter = Waiter::new();
        loop {
            let before = self.done.load(Ordering::Relaxed);
            self.advance();
            if done()? {
                return Ok(());
            }
            let delivered = inner.poll::<M>(call)?;
            if delivered > 0 || before != self.done.load(Ordering::Relaxed) {
                waiter.progressed();
            } else {
                inner.await_ends();
                let open = || self.barriers_under_way() && inner.barrier_is_open();
                waiter.idle(&inner, || inner.has_work() || open());
            }
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "56 bits are never counted up to")]
const fn event(number: u64, kind: usize) -> EventValue {
    (number as usize) << 8 | kind
}

/// Whether only polls complete an event: operations, and reductions.
pub const fn needs_polls(event: EventValue) -> bool {
    events::is_operation(event) || event & 0xff == REDUCTION
}

/// Number and kind of an event.
const fn parts(event: EventValue) -> (u64, usize) {
    (event as u64 >> 8, event & 0xff)
}
