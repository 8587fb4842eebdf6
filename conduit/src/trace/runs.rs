//! Messages that are alike and follow each other are one record: a flood of Shorts costs a look at
//! the clock per [`MOST`] of them, not two per message. So are the turns of a loop that waits.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

use bootstrap::trace::{Cause, Kind, REPLY, Record};

use super::bursts;
use super::mask::{Category, counts, records};
use super::recorder::Recorder;

/// Messages in one record.
const MOST: u32 = 64;
/// Number of a record that is not in the ring.
const NOWHERE: u64 = u64::MAX;

/// What was sent, or whose handler ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) kind: Kind,
    pub(super) peer: u32,
    pub(super) handler: u8,
    /// As [`Record::flavor`].
    pub(super) flavor: u8,
}

impl Message {
    /// All of it in one word; 0 for no message.
    #[inline(always)]
    pub(super) const fn word(self) -> u64 {
        let Self { kind, peer, handler, flavor } = self;
        kind as u64 | (handler as u64) << 8 | (flavor as u64) << 16 | (peer as u64) << 32
    }

    fn numbers(self, recorder: &Recorder) -> Option<&AtomicU32> {
        let table = if self.kind == Kind::Sent { &recorder.sent } else { &recorder.handled };
        Some(&table.get(self.peer as usize)?[usize::from(self.flavor & REPLY)])
    }
}

/// What else is known of the record of this thread that may grow.
struct Run {
    message: Cell<Message>,
    at: Cell<u64>,
    /// When the last turn of a wait ended.
    last: Cell<u64>,
    bytes: Cell<u64>,
}

/// A wait, in the lowest byte of [`WHAT`].
const WAIT: u8 = Kind::Waited as u8;

thread_local! {
    /// [`Message::word`], [`WAIT`] and a [`Cause`], or 0 for none.
    static WHAT: Cell<u64> = const { Cell::new(0) };
    /// First ordinal and count, as a record has them.
    static RUNS: Cell<u64> = const { Cell::new(0) };
    static NUMBER: Cell<u64> = const { Cell::new(NOWHERE) };
    static RUN: Run = const {
        let none = Message { kind: Kind::Nothing, peer: 0, handler: 0, flavor: 0 };
        Run {
            message: Cell::new(none),
            at: Cell::new(0),
            last: Cell::new(0),
            bytes: Cell::new(0),
        }
    };
    /// Ends the thread's last run with the thread.
    static AT_END: AtEnd = const { AtEnd };
}

struct AtEnd;

impl Drop for AtEnd {
    fn drop(&mut self) {
        if let Some(recorder) = super::recorder::recorder() {
            end(recorder, None);
        }
    }
}

/// Messages above, as [`RUNS`] counts them.
const fn counted(messages: u32) -> u64 {
    (messages as u64) << 32
}

/// Adds messages of `bytes` in all to this thread's run; `false` when they are no part of it.
#[inline]
pub(super) fn extend(recorder: &Recorder, message: Message, count: u32, bytes: u64) -> bool {
    if !takes(message) {
        return false;
    }
    add(recorder, count);
    if bytes > 0 {
        let bytes = RUN.with(|run| run.bytes.get()) + bytes;
        RUN.with(|run| run.bytes.set(bytes));
        recorder.update(NUMBER.with(Cell::get), [(3, bytes)]);
    }
    true
}

/// Whether one more message is a part of this thread's run.
fn takes(message: Message) -> bool {
    WHAT.with(Cell::get) == message.word() && RUNS.with(Cell::get) < counted(MOST)
}

/// Adds messages without payload to this thread's run.
pub(super) fn add(recorder: &Recorder, count: u32) {
    let runs = RUNS.with(Cell::get) + counted(count);
    RUNS.with(|known| known.set(runs));
    recorder.update(NUMBER.with(Cell::get), [(4, runs)]);
}

/// Ends this thread's run, now or at a time that is known.
pub(super) fn end(recorder: &Recorder, now: Option<u64>) {
    bursts::settle(recorder, true);
    RUN.with(|run| match WHAT.replace(0).to_le_bytes() {
        [0, ..] => {}
        [WAIT, cause, ..] => end_wait(recorder, run, cause),
        _ => {
            let now = now.unwrap_or_else(|| recorder.now());
            recorder.update(NUMBER.get(), [(2, now.saturating_sub(run.at.get()))]);
            if let Some(numbers) = run.message.get().numbers(recorder) {
                let [.., a, b, c, d] = RUNS.get().to_le_bytes();
                numbers.fetch_add(u32::from_le_bytes([a, b, c, d]), Ordering::Relaxed);
            }
        }
    });
}

/// Begins a run with messages that began at a time. `open`: more may follow; if not, it ends `now`.
pub(super) fn begin(
    recorder: &Recorder,
    message: Message,
    (count, bytes): (u32, u64),
    at: u64,
    end: Option<u64>,
) {
    let numbers = message.numbers(recorder);
    let ordinal = numbers.map_or(0, |numbers| match end {
        Some(_) => numbers.fetch_add(count, Ordering::Relaxed),
        None => numbers.load(Ordering::Relaxed),
    });
    let Message { kind, peer, handler, flavor } = message;
    let span = end.map_or(0, |end| end.saturating_sub(at));
    let (detail, new) = (handler, Record::new(kind, at));
    let number =
        recorder.write(&Record { detail, flavor, peer, span, bytes, ordinal, count, ..new });
    match (number, end) {
        (Some(number), None) => RUN.with(|run| {
            WHAT.set(message.word());
            NUMBER.set(number);
            RUNS.set(u64::from(ordinal) | counted(count));
            run.message.set(message);
            run.at.set(at);
            run.bytes.set(bytes);
            AT_END.with(|_| {});
        }),
        (None, None) => {
            if let Some(numbers) = numbers {
                numbers.fetch_add(count, Ordering::Relaxed);
            }
        }
        _ => {}
    }
}

/// Whether this thread's last record is a wait that may go on.
pub(super) fn is_waiting() -> bool {
    WHAT.get().to_le_bytes()[0] == WAIT
}

/// A turn of a loop of this thread that waits: its begin and end.
pub(super) fn turn(recorder: &Recorder, cause: Cause, (began, now): (u64, u64)) {
    let what = u64::from(WAIT) | (cause as u64) << 8;
    RUN.with(|run| {
        if WHAT.get() != what {
            end(recorder, Some(began));
            // As a line for people it is written when it is over.
            let written = recorder.trace.is_none() && records(Category::Waits);
            let record = Record { detail: cause as u8, ..Record::new(Kind::Waited, began) };
            let number = written.then(|| recorder.write(&record)).flatten();
            WHAT.set(what);
            run.at.set(began);
            NUMBER.set(number.unwrap_or(NOWHERE));
            AT_END.with(|_| {});
        }
        run.last.set(now);
        recorder.update(NUMBER.get(), [(2, now.saturating_sub(run.at.get()))]);
    });
}

fn end_wait(recorder: &Recorder, run: &Run, cause: u8) {
    let at = run.at.get();
    let span = run.last.get().saturating_sub(at);
    if let Some(cause) = Cause::of(cause).filter(|_| counts(Category::Waits)) {
        recorder.time(cause, span);
    }
    if recorder.trace.is_some() && records(Category::Waits) {
        recorder.write(&Record { detail: cause, span, ..Record::new(Kind::Waited, at) });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::AtomicU64;

    use bootstrap::trace::{Slot, slot_len};
    use proptest::prelude::*;

    use super::*;
    use crate::trace::mask::MASK;

    const CAPACITY: u64 = 1024;

    fn slot() -> &'static [AtomicU64] {
        let len = usize::try_from(slot_len(CAPACITY)).expect("small") / 8;
        Box::leak((0..len).map(|_| AtomicU64::new(0)).collect())
    }

    #[test]
    fn turns_of_a_loop_are_one_wait() {
        // Nothing else of this process is recorded: there is no recorder for it.
        MASK.0.fetch_or(Category::Waits.both(), Ordering::Relaxed);
        let words = slot();
        let recorder = Recorder::new(words, CAPACITY, (0, 2), [None, None], ([true; 2], [true; 2]));
        let begin = recorder.now();
        let turns = [(0, 5), (6, 9), (10, 20)].map(|(from, to)| (begin + from, begin + to));
        for times in turns {
            turn(&recorder, Cause::Condition, times);
        }
        assert!(is_waiting());
        end(&recorder, None);
        assert!(!is_waiting());
        turn(&recorder, Cause::Condition, (begin + 30, begin + 31));
        end(&recorder, None);
        recorder.settle_clock();
        let bytes: Vec<u8> =
            words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
        let read = Slot::read(&bytes).expect("a slot");
        let kinds: Vec<(Kind, u8)> = read.records.iter().map(|r| (r.kind, r.detail)).collect();
        assert_eq!(kinds, [(Kind::Waited, Cause::Condition as u8); 2]);
        assert!(read.records[0].span >= read.records[1].span);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn every_message_is_in_one_record(
            messages in proptest::collection::vec((0_u32..2, 200_u8..202, 0_u8..2, 1_u32..4), 1..300),
        ) {
            let words = slot();
            let recorder = Recorder::new(words, CAPACITY, (0, 2), [None, None], ([true; 2], [true; 2]));
            let mut expected: BTreeMap<(u32, u8), Vec<(u8, u32)>> = BTreeMap::new();
            // Of its own: processors' counters can differ, and the test may move between two.
            let mut now = recorder.now();
            for (peer, handler, reply, count) in messages {
                let message = Message { kind: Kind::Sent, peer, handler, flavor: reply };
                expected.entry((peer, reply)).or_default().push((handler, count));
                if !extend(&recorder, message, count, 3) {
                    now += 100;
                    end(&recorder, Some(now));
                    begin(&recorder, message, (count, 3), now, None);
                }
            }
            end(&recorder, Some(now + 100));
            recorder.settle_clock();
            let bytes: Vec<u8> =
                words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
            let read = Slot::read(&bytes).expect("a slot");
            prop_assert_eq!(read.lost, 0);
            let mut last = 0;
            for record in &read.records {
                prop_assert!(record.at >= last, "runs of a thread are apart");
                prop_assert!(record.count < MOST + 4);
                last = record.at + record.span;
            }
            for ((peer, reply), sent) in expected {
                let of_way = read.records.iter().filter(|r| (r.peer, r.flavor) == (peer, reply));
                let mut each = sent.iter();
                let mut ordinal = 0;
                for record in of_way {
                    prop_assert_eq!(record.ordinal, ordinal);
                    ordinal += record.count;
                    let (mut count, mut bytes) = (0, 0);
                    while count < record.count {
                        let (handler, more) = each.next().expect("as many as were sent");
                        prop_assert_eq!(*handler, record.detail);
                        count += more;
                        bytes += 3;
                    }
                    prop_assert_eq!((count, bytes), (record.count, record.bytes));
                }
                prop_assert!(each.next().is_none());
            }
        }
    }
}
