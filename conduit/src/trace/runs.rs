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
