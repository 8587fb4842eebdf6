//! What goes on at a device: who polls, who wants to be woken, which work no socket announces.

use std::sync::Arc;

use super::deferred::Deferred;
use super::waker::Waker;
use crate::sync::{AtomicU32, AtomicU64, Flag, Ordering};

/// Counters and flags that any thread reads and writes.
#[derive(Debug)]
pub(super) struct Activity {
    pub(super) polls: AtomicU64,
    polls_seen: AtomicU64,
    pub(super) posts: AtomicU64,
    /// Passes over the device (low bits).
    pub(super) passes: AtomicU32,
    /// Passes that found something on a stream (low bits).
    pub(super) arrivals: AtomicU32,
    /// Armed completion queues.
    pub(super) armed: AtomicU32,
    /// Send queues whose stream takes no more.
    pub(super) blocked: AtomicU32,
    /// Threads that poll and sleep on the device's streams.
    sleepers: AtomicU32,
    pub(super) attention: Flag,
    pub(super) deferred: Deferred,
    pub(super) waker: Arc<Waker>,
}

impl Activity {
    pub(super) fn new(waker: &Arc<Waker>) -> Self {
        Self {
            polls: AtomicU64::new(0),
            polls_seen: AtomicU64::new(0),
            posts: AtomicU64::new(0),
            passes: AtomicU32::new(0),
            arrivals: AtomicU32::new(0),
            armed: AtomicU32::new(0),
            blocked: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
            attention: Flag::default(),
            deferred: Deferred::default(),
            waker: Arc::clone(waker),
        }
    }

    /// Counts polls, or posts: only changes matter, and an atomic addition costs as much as a look.
    pub(super) fn count(counter: &AtomicU64) {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// For the progress thread: somebody polled since the last call, or will as soon as a stream has
    /// something, and nobody wants to be woken.
    pub(super) fn is_polled(&self) -> bool {
        let polls = self.polls.load(Ordering::Relaxed);
        let before = self.polls_seen.swap(polls, Ordering::Relaxed);
        (polls != before || self.sleepers.load(Ordering::SeqCst) != 0) && !self.is_armed()
    }

    /// A thread that polls sleeps on the streams from now on.
    pub(super) fn begin_sleep(&self) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
    }

    /// It is awake, and polls.
    pub(super) fn end_sleep(&self) {
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    pub(super) fn is_armed(&self) -> bool {
        self.armed.load(Ordering::SeqCst) != 0
    }

    /// A completion queue was armed: the progress thread runs from now on.
    pub(super) fn arm(&self) {
        self.armed.fetch_add(1, Ordering::SeqCst);
        self.waker.wake();
    }

    /// There is work that no socket announces: unless it naps, the progress thread runs now.
    pub(super) fn wake(&self) {
        if !self.waker.is_napping() {
            self.waker.wake();
        }
    }

    /// The send queue of a queue pair deferred a request.
    pub(super) fn mark_deferred(&self, number: u32) {
        self.deferred.mark(number);
        self.wake();
    }

    pub(super) fn request_attention(&self) {
        self.attention.store(true);
        self.wake();
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Relaxed) != 0
    }
}
