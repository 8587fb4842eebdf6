//! What goes on at a device: who polls, who wants to be woken, which work no socket announces.

use std::sync::Arc;

use super::waker::Waker;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Counters and flags that any thread reads and writes.
#[derive(Debug)]
pub(super) struct Activity {
    polls: AtomicU64,
    polls_seen: AtomicU64,
    posts: AtomicU64,
    /// Armed completion queues.
    armed: AtomicU32,
    /// Send queues whose stream takes no more.
    blocked: AtomicU32,
    /// A queue pair wants attention.
    attention: AtomicBool,
    /// A send queue has deferred requests.
    deferred: AtomicBool,
    waker: Arc<Waker>,
}

impl Activity {
    pub(super) fn new(waker: &Arc<Waker>) -> Self {
        Self {
            polls: AtomicU64::new(0),
            polls_seen: AtomicU64::new(0),
            posts: AtomicU64::new(0),
            armed: AtomicU32::new(0),
            blocked: AtomicU32::new(0),
            attention: AtomicBool::new(false),
            deferred: AtomicBool::new(false),
            waker: Arc::clone(waker),
        }
    }

    pub(super) fn count_poll(&self) {
        self.polls.fetch_add(1, Ordering::Relaxed);
    }

    /// For the progress thread: somebody polled since the last call, and nobody wants to be woken.
    pub(super) fn is_polled(&self) -> bool {
        let polls = self.polls.load(Ordering::Relaxed);
        let before = self.polls_seen.swap(polls, Ordering::Relaxed);
        polls != before && !self.is_armed()
    }

    pub(super) fn is_armed(&self) -> bool {
        self.armed.load(Ordering::SeqCst) != 0
    }

    /// A completion queue was armed: the progress thread runs from now on.
    pub(super) fn armed(&self) {
        self.armed.fetch_add(1, Ordering::SeqCst);
        self.wake_now();
    }

    pub(super) fn disarmed(&self) {
        self.armed.fetch_sub(1, Ordering::SeqCst);
    }

    /// There is work that no socket announces.
    pub(super) fn wake(&self) {
        if !self.waker.is_napping() {
            self.waker.wake();
        }
    }

    /// The progress thread runs now, also from a nap.
    pub(super) fn wake_now(&self) {
        self.waker.wake();
    }

    /// The progress thread runs within a nap, whatever the system announces.
    pub(super) fn is_napping(&self) -> bool {
        self.waker.is_napping()
    }

    pub(super) fn count_post(&self) {
        self.posts.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn posts(&self) -> u64 {
        self.posts.load(Ordering::Relaxed)
    }

    /// A send queue deferred a request.
    pub(super) fn mark_deferred(&self) {
        self.deferred.store(true, Ordering::SeqCst);
        self.wake();
    }

    pub(super) fn take_deferred(&self) -> bool {
        self.deferred.load(Ordering::Relaxed) && self.deferred.swap(false, Ordering::SeqCst)
    }

    /// A queue pair wants attention.
    pub(super) fn request_attention(&self) {
        self.attention.store(true, Ordering::SeqCst);
        self.wake();
    }

    pub(super) fn take_attention(&self) -> bool {
        self.attention.load(Ordering::Relaxed) && self.attention.swap(false, Ordering::SeqCst)
    }

    /// A stream takes no more, or takes bytes again.
    pub(super) fn set_blocked(&self, blocked: bool) {
        if blocked {
            self.blocked.fetch_add(1, Ordering::Relaxed);
        } else {
            self.blocked.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Relaxed) != 0
    }
}
