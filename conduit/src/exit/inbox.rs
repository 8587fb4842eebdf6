//! Messages of the exit that came over the network, between their arrival and their delivery.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use bootstrap::Rank;

use super::signals::undisturbed;

/// Most words of such a message.
const WORDS: usize = 2;
/// Messages that wait. A rank gets few: one of each round of the reduction, and the leader's
/// requests; the leader of a large job gets more and delivers them after each poll. What is dropped
/// costs its sender a time-out.
const ROOM: usize = 256;

#[derive(Clone, Copy)]
struct Kept {
    source: Rank,
    id: u8,
    words: [i32; WORDS],
    count: usize,
}

struct Queue {
    items: [Option<Kept>; ROOM],
    head: usize,
}

/// Messages that wait until the network's poll has returned.
pub(crate) struct ExitInbox {
    waiting: AtomicUsize,
    queue: Mutex<Queue>,
}

impl ExitInbox {
    pub(crate) const fn new() -> Self {
        let queue = Queue { items: [None; ROOM], head: 0 };
        Self { waiting: AtomicUsize::new(0), queue: Mutex::new(queue) }
    }

    /// Whether a message waits.
    pub(crate) fn any(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) != 0
    }

    /// Keeps a message; `false` when it has too many words.
    pub(crate) fn keep(&self, source: Rank, id: u8, args: &[i32]) -> bool {
        let mut words = [0; WORDS];
        let Some(place) = words.get_mut(..args.len()) else { return false };
        place.copy_from_slice(args);
        undisturbed(|| {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            let waiting = self.waiting.load(Ordering::Relaxed);
            if waiting < ROOM {
                let at = (queue.head + waiting) % ROOM;
                queue.items[at] = Some(Kept { source, id, words, count: args.len() });
                self.waiting.store(waiting + 1, Ordering::Relaxed);
            }
        });
        true
    }

    /// Gives what waits to `deliver`: sender, number, words; how many there were. Signals are
    /// blocked between taking a message and its delivery, as a handler that never returns would
    /// lose it.
    pub(crate) fn deliver(&self, deliver: impl Fn(Rank, u8, &[i32])) -> usize {
        let mut count = 0;
        while self.any() {
            undisturbed(|| {
                if let Some(kept) = self.take() {
                    count += 1;
                    deliver(kept.source, kept.id, kept.words.get(..kept.count).unwrap_or_default());
                }
            });
        }
        count
    }

    fn take(&self) -> Option<Kept> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = self.waiting.load(Ordering::Relaxed).checked_sub(1)?;
        self.waiting.store(waiting, Ordering::Relaxed);
        let at = queue.head;
        queue.head = (at + 1) % ROOM;
        queue.items[at].take()
    }
}
