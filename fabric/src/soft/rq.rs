//! Receive queues, own and shared.

use std::sync::Mutex;

use super::lock::{Wait, try_lock_for};
use super::slots::ring_index;
use crate::sync::{AtomicBool, AtomicU64, Ordering, fence, order_in_models};
use crate::{PostError, RecvWr, Sge};

#[derive(Debug)]
struct Ring {
    items: Box<[RecvWr]>,
    head: u64,
    tail: u64,
}

/// What a take found.
#[derive(Clone, Copy, Debug)]
pub(super) enum Taken {
    /// A receive, with its number.
    One(RecvWr, u64),
    /// None is posted.
    None,
    /// Another thread is in the queue; try again soon.
    Busy,
}

#[derive(Debug)]
pub(super) struct Rq {
    ring: Mutex<Ring>,
    /// Receives that may be posted at once.
    pub(super) depth: u32,
    pub(super) counters: Counters,
}

/// What is known of the queue without its lock.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Receives posted so far.
    pub(super) posted: AtomicU64,
    /// Receives taken so far.
    pub(super) taken: AtomicU64,
    /// A sender waits for a receive.
    wanted: AtomicBool,
}

impl Counters {
    fn is_empty(&self) -> bool {
        self.posted.load(Ordering::SeqCst) == self.taken.load(Ordering::SeqCst)
    }

    /// Says that a sender waits; false when a receive came at the same time.
    pub(super) fn want(&self) -> bool {
        self.wanted.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.is_empty()
    }

    /// After a post: whether a sender waits.
    pub(super) fn take_wanted(&self) -> bool {
        order_in_models();
        self.wanted.load(Ordering::SeqCst) && self.wanted.swap(false, Ordering::SeqCst)
    }
}

impl Rq {
    pub(super) fn new(depth: u32) -> Self {
        let none = RecvWr { id: 0, buffer: Sge::default() };
        let items = vec![none; depth.max(1).next_power_of_two() as usize].into_boxed_slice();
        Self {
            ring: Mutex::new(Ring { items, head: 0, tail: 0 }),
            depth,
            counters: Counters::default(),
        }
    }

    /// Adds a receive. `released`: receives before this number have been polled (for a shared
    /// queue: taken).
    pub(super) fn post(&self, receive: &RecvWr, released: Option<u64>) -> Result<(), PostError> {
        let mut ring = try_lock_for(&self.ring, Wait::Post).ok_or(PostError::Full)?;
        let released = released.unwrap_or(ring.head);
        if ring.tail.saturating_sub(released) >= u64::from(self.depth) {
            return Err(PostError::Full);
        }
        let at = ring_index(ring.tail, ring.items.len());
        if let Some(place) = ring.items.get_mut(at) {
            *place = *receive;
        }
        ring.tail += 1;
        self.counters.posted.store(ring.tail, Ordering::SeqCst);
        Ok(())
    }

    pub(super) fn take(&self) -> Taken {
        if self.counters.is_empty() {
            return Taken::None;
        }
        let Some(mut ring) = try_lock_for(&self.ring, Wait::Post) else { return Taken::Busy };
        if ring.head == ring.tail {
            return Taken::None;
        }
        let at = ring_index(ring.head, ring.items.len());
        let Some(receive) = ring.items.get(at).copied() else { return Taken::None };
        let number = ring.head;
        ring.head += 1;
        self.counters.taken.store(ring.head, Ordering::SeqCst);
        Taken::One(receive, number)
    }

    /// Gives back the receive that was taken last, as the next one. False: there is no room for it.
    pub(super) fn put_back(&self, receive: RecvWr) -> bool {
        let Some(mut ring) = try_lock_for(&self.ring, Wait::Post) else { return false };
        if ring.head == 0 || ring.tail - ring.head >= ring.items.len() as u64 {
            return false;
        }
        ring.head -= 1;
        let at = ring_index(ring.head, ring.items.len());
        if let Some(place) = ring.items.get_mut(at) {
            *place = receive;
        }
        self.counters.taken.store(ring.head, Ordering::SeqCst);
        true
    }

    /// Forgets everything posted; returns the number of the next receive.
    pub(super) fn clear(&self) -> Option<u64> {
        let mut ring = try_lock_for(&self.ring, Wait::Post)?;
        ring.head = ring.tail;
        self.counters.taken.store(ring.head, Ordering::SeqCst);
        Some(ring.tail)
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    /// A responder that found no receive and says so is woken by the post, or sees it.
    #[test]
    fn loom_a_waiting_sender_is_not_forgotten() {
        loom::model(|| {
            let counters = Arc::new(Counters::default());
            let posting = Arc::clone(&counters);
            let post = loom::thread::spawn(move || {
                posting.posted.store(1, Ordering::SeqCst);
                posting.take_wanted()
            });
            let waits = counters.is_empty() && counters.want();
            let woken = post.join().unwrap();
            assert!(!waits || woken);
        });
    }
}
