//! The one way to take a lock here.
//!
//! Posts and polls also run in signal handlers, above code that may hold the lock and never goes
//! on. So every wait ends.

use settings::deadlines::soft::{CONTROL_LOCK, POST_LOCK};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Instant;

use super::limits::LOCK_SPINS;

/// How long to wait for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// One try: whoever holds the lock does this caller's work.
    No,
    /// Some tries without giving up the processor. For the thread that drives the streams of a
    /// device: while it waits, nobody else can. What it could not do now it does in a later pass.
    Spin,
    /// As long as a thread may have lost its processor. For posts and polls.
    Post,
    /// As long as a control call may take.
    Control,
}

/// The lock, if it came free in time. A holder that panicked left consistent data behind.
#[inline]
pub(super) fn try_lock_for<T>(lock: &Mutex<T>, wait: Wait) -> Option<MutexGuard<'_, T>> {
    match try_once(lock) {
        None if wait != Wait::No => contended(lock, wait),
        taken => taken,
    }
}

fn contended<T>(lock: &Mutex<T>, wait: Wait) -> Option<MutexGuard<'_, T>> {
    for _ in 1..LOCK_SPINS {
        std::hint::spin_loop();
        if let Some(guard) = try_once(lock) {
            return Some(guard);
        }
    }
    let longest = match wait {
        Wait::No | Wait::Spin => return None,
        Wait::Post => POST_LOCK.limit,
        Wait::Control => CONTROL_LOCK.limit,
    };
    let end = Instant::now() + longest;
    while Instant::now() < end {
        std::thread::yield_now();
        if let Some(guard) = try_once(lock) {
            return Some(guard);
        }
    }
    None
}

fn try_once<T>(lock: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match lock.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
