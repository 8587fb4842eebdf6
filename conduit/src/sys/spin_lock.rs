//! A lock for what is held a moment: its release is a plain store. That of [`std::sync::Mutex`]
//! asks in the same instruction whether somebody sleeps, which costs a locked instruction; here who
//! waits looks again by himself.
#![allow(unsafe_code, reason = "the value inside a lock")]

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use crate::sys::atomic::{AtomicU32, Ordering};

/// Looks of one who waits, before he gives the processor away.
const SPINS: u32 = 100;
/// Looks before he sleeps: whoever holds the lock may be one whom the system lets run only then.
const LOOKS: u32 = 200;
/// One sleep. Nobody is woken.
const NAP: Duration = Duration::from_micros(50);

/// The word of a lock.
#[derive(Debug)]
pub(crate) struct RawLock(AtomicU32);

impl RawLock {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Whether the caller has it now.
    #[inline]
    pub(crate) fn try_take(&self) -> bool {
        self.0.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// May be out of date.
    fn is_free(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// Of the one who has it.
    #[inline]
    pub(crate) fn give(&self) {
        self.0.store(0, Ordering::Release);
    }
}

/// A value that one at a time may use.
pub(crate) struct SpinLock<T> {
    raw: RawLock,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by a guard alone, and `RawLock` lets one guard live at a time (its
// loom model); taking it sees all that the one before has done. So the value goes from thread to
// thread, which `Send` allows.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T> fmt::Debug for SpinLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpinLock").field("raw", &self.raw).finish_non_exhaustive()
    }
}

/// The right to the value, until it is dropped.
pub(crate) struct SpinGuard<'a, T>(&'a SpinLock<T>);

// SAFETY: a shared guard gives shared references to the value, which `Sync` allows.
unsafe impl<T: Sync> Sync for SpinGuard<'_, T> {}

impl<T> SpinLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { raw: RawLock::new(), value: UnsafeCell::new(value) }
    }

    #[inline]
    pub(crate) fn lock(&self) -> SpinGuard<'_, T> {
        if !self.raw.try_take() {
            self.wait();
        }
        SpinGuard(self)
    }

    /// `None`: another one has it.
    pub(crate) fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
        self.raw.try_take().then(|| SpinGuard(self))
    }

    #[cold]
    fn wait(&self) {
        let mut looks = 0;
        while !(self.raw.is_free() && self.raw.try_take()) {
            match looks {
                0..SPINS => std::hint::spin_loop(),
                SPINS..LOOKS => std::thread::yield_now(),
                _ => std::thread::sleep(NAP),
            }
            looks = looks.saturating_add(1);
        }
    }
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard was made when `RawLock` was taken, and it is given in `drop` alone: no
        // other guard lives.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and this guard is borrowed by nobody else.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.raw.give();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// More threads than processors, so that holders are interrupted: every way to wait is taken.
    #[test]
    fn one_at_a_time() {
        const EACH: u64 = 2000;
        const THREADS: u64 = 6;
        let count = SpinLock::new(0_u64);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let count = &count;
                scope.spawn(move || {
                    for round in 0..EACH {
                        let mut count = count.lock();
                        assert!(thread > 0 || count.0.try_lock().is_none());
                        let seen = *count;
                        if round % 500 == 0 {
                            std::thread::sleep(Duration::from_millis(1));
                        }
                        *count = seen + 1;
                    }
                });
            }
        });
        assert_eq!(*count.lock(), THREADS * EACH);
        let held = count.try_lock().expect("free");
        assert!(count.try_lock().is_none());
        drop(held);
        assert!(count.try_lock().is_some());
    }
}
