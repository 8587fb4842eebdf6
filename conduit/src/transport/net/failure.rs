//! Failures that a thread of the network found, until a poll of the program reports them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::error::Error;

/// Why a thread of the network gave up, and whether that still matters.
#[derive(Debug, Default)]
pub(super) struct FailureState {
    failure: Mutex<Option<Error>>,
    has_failed: AtomicBool,
    /// The job is ending: failures are expected.
    quiet: AtomicBool,
}

impl FailureState {
    /// From now on failures are ignored. Async-signal-safe.
    pub(super) fn ignore(&self) {
        self.quiet.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_ignored(&self) -> bool {
        self.quiet.load(Ordering::Relaxed)
    }

    /// Keeps a failure for the next poll, which has to be woken; `false` where failures are
    /// ignored.
    #[cold]
    pub(super) fn set(&self, error: Error) -> bool {
        if self.is_ignored() {
            return false;
        }
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.has_failed.store(true, Ordering::Release);
        true
    }

    /// Whether the next poll reports a failure.
    pub(super) fn is_set(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.has_failed.load(Ordering::Acquire) { self.take() } else { Ok(()) }
    }

    #[cold]
    fn take(&self) -> Result<(), Error> {
        match self.failure.try_lock().ok().and_then(|mut failure| failure.take()) {
            Some(error) if !self.is_ignored() => Err(error),
            _ => Ok(()),
        }
    }
}
