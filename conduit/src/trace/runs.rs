//! Messages that are alike and follow each other are one record: a flood of Shorts costs a look at
//! the clock per [`MOST`] of them, not two per message.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

use bootstrap::trace::{Kind, REPLY, Record};

use super::recorder::Recorder;

/// Messages in one record.
const MOST: u32 = 64;

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
    const NONE: Self = Self { kind: Kind::Nothing, peer: 0, handler: 0, flavor: 0 };

    fn numbers(self, recorder: &Recorder) -> Option<&AtomicU32> {
        let table = if self.kind == Kind::Sent { &recorder.sent } else { &recorder.handled };
        Some(&table.get(self.peer as usize)?[usize::from(self.flavor & REPLY)])
    }
}

/// A record of this thread that may grow.
#[derive(Clone, Copy)]
struct Run {
    message: Message,
    number: u64,
    at: u64,
    ordinal: u32,
    count: u32,
    bytes: u64,
}

const NONE: Run = Run { message: Message::NONE, number: 0, at: 0, ordinal: 0, count: 0, bytes: 0 };

thread_local! {
    static RUN: Cell<Run> = const { Cell::new(NONE) };
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

/// Adds messages of `bytes` in all to this thread's run; `false` when they are no part of it.
#[inline]
pub(super) fn extend(recorder: &Recorder, message: Message, count: u32, bytes: u64) -> bool {
    let mut run = RUN.get();
    if run.message != message || run.count >= MOST {
        return false;
    }
    run.count += count;
    run.bytes += bytes;
    let runs = u64::from(run.ordinal) | u64::from(run.count) << 32;
    recorder.update(run.number, [(4, runs), (3, run.bytes)]);
    RUN.set(run);
    true
}

/// Ends this thread's run, now or at a time that is known.
pub(super) fn end(recorder: &Recorder, now: Option<u64>) {
    let run = RUN.replace(NONE);
    if run.message == Message::NONE {
        return;
    }
    let now = now.unwrap_or_else(|| recorder.now());
    recorder.update(run.number, [(2, now.saturating_sub(run.at))]);
    if let Some(numbers) = run.message.numbers(recorder) {
        numbers.fetch_add(run.count, Ordering::Relaxed);
    }
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
        (Some(number), None) => {
            RUN.set(Run { message, number, at, ordinal, count, bytes });
            AT_END.with(|_| {});
        }
        (None, None) => {
            if let Some(numbers) = numbers {
                numbers.fetch_add(count, Ordering::Relaxed);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::AtomicU64;

    use bootstrap::trace::{Slot, slot_len};
    use proptest::prelude::*;

    use super::*;

    const CAPACITY: u64 = 1024;

    fn slot() -> &'static [AtomicU64] {
        let len = usize::try_from(slot_len(CAPACITY)).expect("small") / 8;
        Box::leak((0..len).map(|_| AtomicU64::new(0)).collect())
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
            for (peer, handler, reply, count) in messages {
                let message = Message { kind: Kind::Sent, peer, handler, flavor: reply };
                expected.entry((peer, reply)).or_default().push((handler, count));
                if !extend(&recorder, message, count, 3) {
                    let now = recorder.now();
                    end(&recorder, Some(now));
                    begin(&recorder, message, (count, 3), now, None);
                }
            }
            end(&recorder, None);
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
