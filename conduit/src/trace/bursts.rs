//! Shorts of a burst, of which each costs a comparison and a store: what they are was said once, and
//! they are added to the thread's run together. Nothing here is thread-local: the code that finds
//! such memory in a library saves registers, and with so many stores beside its own, a message waits
//! for the line of the receiver that the one before it goes to.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bootstrap::trace::Counter;

use super::mask::{Category, counts, records};
use super::recorder::Recorder;
use super::runs::{self, Message};
use crate::sys;

/// Whose burst it is, what is sent in it, and where it is counted. Who takes it from another thread
/// sends messages of that one the slow way for a while.
struct Burst {
    thread: AtomicUsize,
    what: AtomicU64,
    at: AtomicUsize,
}

static BURST: Burst =
    Burst { thread: AtomicUsize::new(0), what: AtomicU64::new(0), at: AtomicUsize::new(0) };

/// Whether a message is one of this thread's burst, so that [`add`] traces it.
#[inline(always)]
pub(super) fn takes(message: Message) -> bool {
    BURST.what.load(Ordering::Relaxed) == message.word()
        && BURST.thread.load(Ordering::Relaxed) == sys::thread()
}

/// A message that [`takes`] was asked for was sent.
#[inline(always)]
pub(super) fn add(recorder: &Recorder) {
    recorder.count_in_burst(BURST.at.load(Ordering::Relaxed));
}

/// This thread has sent a message the slow way: others like it may follow.
pub(super) fn begin(recorder: &Recorder, message: Message) {
    let Some(at) = recorder.burst() else { return };
    // Nobody's while it changes.
    BURST.thread.store(0, Ordering::SeqCst);
    BURST.what.store(message.word(), Ordering::SeqCst);
    BURST.at.store(at, Ordering::SeqCst);
    BURST.thread.store(sys::thread(), Ordering::SeqCst);
}

/// Adds messages of this thread's burst to its run. `end`: no more may come without another
/// [`begin`].
pub(super) fn settle(recorder: &Recorder, end: bool) {
    if end && BURST.thread.load(Ordering::Relaxed) == sys::thread() {
        BURST.thread.store(0, Ordering::Relaxed);
    }
    let count = recorder.take_burst();
    if count > 0 {
        if counts(Category::Messages) {
            recorder.count_messages(Counter::SentAm, count.into(), 0);
        }
        if records(Category::Messages) {
            runs::add(recorder, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use bootstrap::trace::{Kind, Slot, slot_len};

    use super::*;
    use crate::trace::mask::MASK;

    #[test]
    fn messages_of_a_burst_are_added_to_the_run_of_their_thread() {
        // Nothing else of this process is recorded: there is no recorder for it.
        MASK.0.fetch_or(Category::Messages.both(), Ordering::Relaxed);
        let len = usize::try_from(slot_len(8)).unwrap() / 8;
        let words: &'static [AtomicU64] = Box::leak((0..len).map(|_| AtomicU64::new(0)).collect());
        let recorder = Recorder::new(words, 8, (0, 2), [None, None], ([true; 2], [true; 2]));
        let message = Message { kind: Kind::Sent, peer: 1, handler: 200, flavor: 0 };
        let other = Message { handler: 201, ..message };
        runs::begin(&recorder, message, (1, 0), recorder.now(), None);
        assert!(!takes(message), "nobody has begun a burst");
        begin(&recorder, message);
        assert!(takes(message) && !takes(other));
        (0..3).for_each(|_| add(&recorder));
        assert_eq!(recorder.counted(Counter::SentAm), (3, 0), "counted before it is settled");
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(!takes(message), "it is another thread's"));
        });
        runs::end(&recorder, None);
        assert!(!takes(message));
        recorder.settle_clock();
        let bytes: Vec<u8> =
            words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
        let read = Slot::read(&bytes).expect("a slot");
        assert_eq!(read.records.iter().map(|record| record.count).collect::<Vec<_>>(), [4]);
        assert_eq!(read.counter(Counter::SentAm), (3, 0));
    }
}
