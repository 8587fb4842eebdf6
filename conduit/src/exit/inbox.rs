//! Messages of the exit that came over the network, between their arrival and their delivery.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bootstrap::Rank;
use heapless::{Deque, Vec};

use super::signals::undisturbed;

const WORDS: usize = 2;
/// Messages that wait. A rank gets few: one of each round of the reduction, and the leader's
/// requests; the leader of a large job gets more and delivers them after each poll. What is dropped
/// costs its sender a time-out.
const ROOM: usize = 256;

type Message = (Rank, u8, Vec<i32, WORDS>);

/// Messages that wait until the network's poll has returned.
pub(crate) struct ExitInbox {
    any: AtomicBool,
    queue: Mutex<Deque<Message, ROOM>>,
}

impl ExitInbox {
    pub(crate) const fn new() -> Self {
        Self { any: AtomicBool::new(false), queue: Mutex::new(Deque::new()) }
    }

    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    fn queue(&self) -> MutexGuard<'_, Deque<Message, ROOM>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a message; `false` when it has too many words.
    pub(crate) fn keep(&self, source: Rank, id: u8, args: &[i32]) -> bool {
        let Ok(words) = Vec::from_slice(args) else { return false };
        undisturbed(|| {
            drop(self.queue().push_back((source, id, words)));
            self.any.store(true, Ordering::Relaxed);
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
                let taken = {
                    let mut queue = self.queue();
                    let taken = queue.pop_front();
                    self.any.store(!queue.is_empty(), Ordering::Relaxed);
                    taken
                };
                if let Some((source, id, words)) = taken {
                    count += 1;
                    deliver(source, id, &words);
                }
            });
        }
        count
    }
}
