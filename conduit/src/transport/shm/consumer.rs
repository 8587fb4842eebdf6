//! The right to take messages out of a queue of this rank.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::sys;

/// A try-lock that knows its owner, so that a signal handler which interrupted the owner for good
/// can go on in its place.
pub(crate) struct Consumer(AtomicUsize);

/// The right while it lasts.
pub(crate) struct Turn<'a>(Option<&'a Consumer>);

impl Consumer {
    pub(crate) const fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// Takes the right unless another thread has it.
    #[inline]
    pub(crate) fn try_take(&self) -> Option<Turn<'_>> {
        self.0
            .compare_exchange(0, sys::thread(), Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| Turn(Some(self)))
    }

    /// As [`Consumer::try_take`]; succeeds also when this thread has the right already, which can
    /// only be when a signal handler runs on it. (The one store that consumes a message makes that
    /// safe, see [`super::mpsc_ring::MpscRing`].)
    pub(crate) fn take_over(&self) -> Option<Turn<'_>> {
        if self.0.load(Ordering::Relaxed) == sys::thread() {
            return Some(Turn(None));
        }
        self.try_take()
    }
}

impl Drop for Turn<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(consumer) = self.0 {
            consumer.0.store(0, Ordering::Release);
        }
    }
}
