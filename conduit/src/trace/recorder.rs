//! Writes records, counters and timers into the rank's slot.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use bootstrap::trace::{
    self, Cause, Counter, Kind, RECORD, RING, Record, TEXT_BYTES, Word, counter_at, name_at,
    timer_at,
};
use nix::time::{ClockId, clock_gettime};
use settings::log::RANK;
use settings::say;

use super::far::Link;
use super::lines::Lines;
use crate::sys;

/// Records between two looks at the host's clock.
const CLOCK_EVERY: u64 = 256;

pub(super) static RECORDER: OnceLock<Recorder> = OnceLock::new();

/// The recorder, where something is on.
#[inline(always)]
pub(super) fn recorder() -> Option<&'static Recorder> {
    RECORDER.get()
}

pub(super) struct Recorder {
    /// The slot.
    words: &'static [AtomicU64],
    /// Records that fit; 0 or a power of two.
    capacity: u64,
    pub(super) rank: u32,
    /// Whether [`Recorder::now`] reads the processor's counter.
    counter: bool,
    /// Messages so far to and from each rank, requests and replies.
    pub(super) sent: Box<[[AtomicU32; 2]]>,
    pub(super) handled: Box<[[AtomicU32; 2]]>,
    /// Something takes records; something takes counts.
    pub(super) takes: [bool; 2],
    /// The trace for people.
    pub(super) trace: Option<Mutex<Lines>>,
    /// The statistics for people.
    pub(super) stats: Option<Mutex<Lines>>,
    /// Transfers of this rank with itself are in the trace; are counted.
    pub(super) local: [AtomicBool; 2],
    /// Where the slot has to go.
    link: Option<Link>,
}

/// Nanoseconds of the host's monotonic clock.
pub(super) fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// Whether the kernel itself takes time from the processor's counter: then it runs evenly, and is
/// the same on all processors.
fn counter_is_steady() -> bool {
    let file = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    cfg!(target_arch = "x86_64")
        && std::fs::read_to_string(file).is_ok_and(|name| name.trim() == "tsc")
}

impl Recorder {
    /// A recorder for a slot with room for so many records.
    pub(super) fn new(
        words: &'static [AtomicU64],
        capacity: u64,
        (rank, size): (u32, u32),
        [trace, stats]: [Option<Lines>; 2],
        (takes, local): ([bool; 2], [bool; 2]),
    ) -> Self {
        let fits = RING as u64 + capacity * RECORD as u64 <= words.len() as u64;
        let numbers = || (0..size).map(|_| Default::default()).collect();
        let recorder = Self {
            words,
            capacity: if fits { capacity } else { 0 },
            rank,
            counter: counter_is_steady(),
            sent: numbers(),
            handled: numbers(),
            takes,
            trace: trace.map(Mutex::new),
            stats: stats.map(Mutex::new),
            local: local.map(AtomicBool::new),
            link: None,
        };
        recorder.word(Word::Process as usize, u64::from(std::process::id()));
        recorder.word(Word::Capacity as usize, recorder.capacity);
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        recorder.put_text(Word::Host as usize, host.trim().as_bytes());
        for at in [0, 2] {
            recorder.look_at_clock(at);
        }
        recorder.word(Word::Magic as usize, trace::MAGIC);
        recorder
    }

    /// The same for a slot that has to get to another host.
    pub(super) fn with_link(self, link: Option<Link>) -> Self {
        Self { link, ..self }
    }

    /// Leaves the slot where it has to go.
    pub(super) fn leave(&self) {
        let Some(link) = &self.link else { return };
        let used = trace::slot_len(self.read(Word::Next as usize).min(self.capacity));
        if let Err(error) = link.leave(self.words, used) {
            say!(
                WARN,
                RANK,
                "rank {}: what was recorded cannot be left at the launcher ({}): {error}",
                self.rank,
                link.launcher()
            );
        }
    }

    #[inline(always)]
    fn word(&self, at: usize, value: u64) {
        if let Some(word) = self.words.get(at) {
            word.store(value, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    fn read(&self, at: usize) -> u64 {
        self.words.get(at).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Notes both clocks.
    fn look_at_clock(&self, at: usize) {
        let (ticks, ns) = (self.now(), monotonic());
        self.word(Word::Clock as usize + at, ticks);
        self.word(Word::Clock as usize + at + 1, ns);
    }

    /// The time of the rank's clock.
    #[inline]
    pub(super) fn now(&self) -> u64 {
        if self.counter { sys::ticks() } else { monotonic() }
    }

    /// The clock of the last look, for lines.
    pub(super) fn clock(&self) -> trace::Clock {
        let word = |at| self.read(Word::Clock as usize + at);
        trace::Clock::new(std::array::from_fn(word))
    }

    /// Notes both clocks again, so that what was recorded so far has its time right.
    pub(super) fn settle_clock(&self) {
        self.look_at_clock(2);
    }

    /// Writes a record; its number, if it is in the ring.
    pub(super) fn write(&self, record: &Record) -> Option<u64> {
        let record = Record { thread: thread(), ..*record };
        if let Some(lines) = &self.trace
            && record.kind != Kind::More
        {
            self.settle_clock();
            super::lines::with(lines, |lines| lines.record(self.rank, &record, &self.clock()));
        }
        if self.capacity == 0 {
            return None;
        }
        let number = self.words[Word::Next as usize].fetch_add(1, Ordering::Relaxed);
        if number.is_multiple_of(CLOCK_EVERY) {
            self.settle_clock();
        }
        self.put(number, &record);
        Some(number)
    }

    /// First word of a record.
    #[inline(always)]
    fn place(&self, number: u64) -> usize {
        // Below the length of the words, which is a `usize`.
        RING + usize::try_from(number & (self.capacity - 1)).unwrap_or(0) * RECORD
    }

    fn put(&self, number: u64, record: &Record) {
        let at = self.place(number);
        let (body, end) = self.words[at..at + RECORD].split_at(RECORD - 1);
        let encoded = record.encode(number);
        // Whoever reads it after a crash must not take the old body for the new one.
        end[0].store(0, Ordering::Release);
        for (word, value) in body.iter().zip(encoded) {
            word.store(value, Ordering::Relaxed);
        }
        end[0].store(encoded[RECORD - 1], Ordering::Release);
    }

    /// Writes words of a record again that may have grown, unless others have taken its place.
    #[inline(always)]
    pub(super) fn update<const N: usize>(&self, number: u64, words: [(usize, u64); N]) {
        let next = self.read(Word::Next as usize);
        // Also for one that is not in the ring: its number is above all others.
        if number >= next || next - number > self.capacity {
            return;
        }
        let at = self.place(number);
        for (offset, value) in words {
            self.word(at + offset, value);
        }
    }

    /// Writes a text and its bytes.
    pub(super) fn text(&self, text: &str) {
        let at = self.now();
        if let Some(lines) = &self.trace {
            self.settle_clock();
            super::lines::with(lines, |lines| {
                lines.text(self.rank, (at, thread()), text, &self.clock())
            });
        }
        if self.capacity == 0 {
            return;
        }
        let bytes = text.as_bytes();
        let pieces = bytes.chunks(TEXT_BYTES).count() as u64 + 1;
        let first = self.words[Word::Next as usize].fetch_add(pieces, Ordering::Relaxed);
        let head =
            Record { bytes: bytes.len() as u64, thread: thread(), ..Record::new(Kind::Text, at) };
        self.put(first, &head);
        for (number, piece) in (first + 1..).zip(bytes.chunks(TEXT_BYTES)) {
            self.put(number, &more(piece));
        }
    }

    #[inline]
    pub(super) fn count(&self, counter: Counter, count: u64, bytes: u64) {
        let at = counter_at(counter);
        if let Some([times, sum]) = self.words.get(at..at + 2) {
            times.fetch_add(count, Ordering::Relaxed);
            if bytes > 0 {
                sum.fetch_add(bytes, Ordering::Relaxed);
            }
        }
    }

    /// Counts messages of this thread. Where words are its own it takes no locked instruction: that
    /// would wait for all stores to other ranks before it.
    #[inline(always)]
    pub(super) fn count_messages(&self, counter: Counter, count: u64, bytes: u64) {
        let own = trace::messages_at(counter, thread());
        let Some([times, sum]) = own.and_then(|at| self.words.get(at..at + 2)) else {
            return self.count(counter, count, bytes);
        };
        add(times, count);
        if bytes > 0 {
            add(sum, bytes);
        }
    }

    /// Counts a message of a burst, at a place that [`Recorder::burst`] gave to this thread.
    #[inline(always)]
    pub(super) fn count_in_burst(&self, at: usize) {
        if let Some(word) = self.words.get(at) {
            add(word, 1);
        }
    }

    /// Where this thread may count messages of a burst.
    pub(super) fn burst(&self) -> Option<usize> {
        trace::burst_at(thread()).filter(|at| *at < self.words.len())
    }

    /// Takes what this thread has counted there.
    pub(super) fn take_burst(&self) -> u32 {
        let Some(word) = self.burst().and_then(|at| self.words.get(at)) else { return 0 };
        let count = word.load(Ordering::Relaxed);
        if count > 0 {
            word.store(0, Ordering::Relaxed);
        }
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    pub(super) fn time(&self, cause: Cause, ticks: u64) {
        let at = timer_at(cause);
        let Some([count, sum, least, most]) = self.words.get(at..at + 4) else { return };
        if count.fetch_add(1, Ordering::Relaxed) == 0 {
            least.store(ticks, Ordering::Relaxed);
        }
        sum.fetch_add(ticks, Ordering::Relaxed);
        least.fetch_min(ticks, Ordering::Relaxed);
        most.fetch_max(ticks, Ordering::Relaxed);
    }

    /// Names a handler, the first time that it runs.
    pub(super) fn name(&self, handler: u8, name: &str) {
        self.put_text(name_at(handler), name.as_bytes());
    }

    /// Writes a short text, once.
    fn put_text(&self, at: usize, text: &[u8]) {
        let Some(words) = self.words.get(at..at + trace::NAME_BYTES / 8) else { return };
        if words[0].load(Ordering::Relaxed) != 0 {
            return;
        }
        let mut bytes = [0; trace::NAME_BYTES];
        let len = text.len().min(bytes.len());
        bytes[..len].copy_from_slice(&text[..len]);
        for (word, piece) in words.iter().zip(bytes.as_chunks::<8>().0) {
            word.store(u64::from_ne_bytes(*piece), Ordering::Relaxed);
        }
    }

    /// Counts from nothing again.
    pub(super) fn reset(&self) {
        for counter in Counter::ALL {
            // Words of threads are theirs to write, so what they have is taken off here.
            let (at, (count, bytes)) = (counter_at(*counter), self.counted(*counter));
            self.word(at, self.read(at).wrapping_sub(count));
            self.word(at + 1, self.read(at + 1).wrapping_sub(bytes));
        }
        for cause in Cause::ALL {
            (0..4).for_each(|word| self.word(timer_at(*cause) + word, 0));
        }
    }

    /// A counter and its bytes.
    pub(super) fn counted(&self, counter: Counter) -> (u64, u64) {
        trace::counted(|at| self.read(at), counter)
    }

    /// The four words of a timer.
    pub(super) fn timed(&self, cause: Cause) -> [u64; 4] {
        let at = timer_at(cause);
        std::array::from_fn(|offset| self.read(at + offset))
    }
}

/// A piece of a text as a record: its bytes stand where times and counts do.
fn more(piece: &[u8]) -> Record {
    let mut bytes = [0; TEXT_BYTES];
    bytes[..piece.len()].copy_from_slice(piece);
    let [span, sum, runs] = std::array::from_fn(|word| {
        bytes.as_chunks::<8>().0.get(word).map_or(0, |b| u64::from_ne_bytes(*b))
    });
    #[expect(clippy::cast_possible_truncation, reason = "halves of a word")]
    let (ordinal, count) = (runs as u32, (runs >> 32) as u32);
    Record { span, bytes: sum, ordinal, count, thread: thread(), ..Record::new(Kind::More, 0) }
}

/// Adds to a word that no other thread writes.
#[inline(always)]
fn add(to: &AtomicU64, more: u64) {
    to.store(to.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

/// A small number for this thread.
#[inline(always)]
pub(super) fn thread() -> u8 {
    let mine = MINE.with(Cell::get);
    u8::try_from(mine).unwrap_or_else(|_| new_thread())
}

thread_local! {
    /// What [`thread`] says, once it has said it.
    static MINE: Cell<u16> = const { Cell::new(u16::MAX) };
}

#[cold]
#[inline(never)]
fn new_thread() -> u8 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mine = u8::try_from(NEXT.fetch_add(1, Ordering::Relaxed)).unwrap_or(u8::MAX);
    MINE.with(|known| known.set(mine.into()));
    mine
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(capacity: u64) -> &'static [AtomicU64] {
        let len = usize::try_from(trace::slot_len(capacity)).unwrap() / 8;
        Box::leak((0..len).map(|_| AtomicU64::new(0)).collect())
    }

    fn bytes(words: &[AtomicU64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect()
    }

    #[test]
    fn what_is_written_is_read() {
        let words = slot(8);
        let recorder = Recorder::new(words, 8, (1, 3), [None, None], ([true; 2], [true; 2]));
        let begin = recorder.now();
        recorder.count(Counter::Put, 2, 100);
        recorder.count(Counter::SentAm, 1, 5);
        recorder.count_messages(Counter::SentAm, 3, 40);
        assert_eq!(recorder.counted(Counter::SentAm), (4, 45));
        recorder.reset();
        assert_eq!(recorder.counted(Counter::SentAm), (0, 0));
        recorder.count_messages(Counter::SentAm, 2, 10);
        recorder.count(Counter::Put, 2, 100);
        recorder.time(Cause::Credit, 50);
        recorder.time(Cause::Credit, 10);
        recorder.name(200, "ping");
        recorder.name(200, "other");
        let record = Record { detail: 200, peer: 2, bytes: 7, ..Record::new(Kind::Put, begin) };
        let number = recorder.write(&record).unwrap();
        recorder.update(number, [(3, 9)]);
        recorder.text("a text that is longer than twenty-four bytes");
        recorder.settle_clock();
        let read = trace::Slot::read(&bytes(words)).unwrap();
        assert_eq!((read.process, read.lost), (std::process::id(), 0));
        assert_eq!(read.counter(Counter::Put), (2, 100));
        assert_eq!(read.counter(Counter::SentAm), (2, 10));
        assert_eq!(read.timer(Cause::Credit).count, 2);
        assert_eq!(read.names, [(200, "ping".to_owned())]);
        let kinds: Vec<Kind> = read.records.iter().map(|record| record.kind).collect();
        assert_eq!(kinds, [Kind::Put, Kind::Text, Kind::More, Kind::More]);
        assert_eq!((read.records[0].peer, read.records[0].bytes), (2, 9));
        let now = monotonic();
        assert!(now - read.records[0].at < 1_000_000_000, "{now} {:?}", read.records[0]);
    }

    #[test]
    fn a_ring_keeps_the_newest_and_a_slot_without_one_counts() {
        let words = slot(4);
        let recorder = Recorder::new(words, 4, (0, 1), [None, None], ([true; 2], [true; 2]));
        for bytes in 0..10 {
            let number = recorder.write(&Record { bytes, ..Record::new(Kind::Get, 5) });
            assert_eq!(number, Some(bytes));
        }
        // Its place is another's now.
        recorder.update(2, [(3, 77)]);
        let read = trace::Slot::read(&bytes(words)).unwrap();
        let kept: Vec<u64> = read.records.iter().map(|record| record.bytes).collect();
        assert_eq!((kept, read.lost), (vec![6, 7, 8, 9], 6));
        let alone = Recorder::new(slot(0), 0, (0, 1), [None, None], ([true; 2], [true; 2]));
        assert_eq!(alone.write(&Record::new(Kind::Get, 5)), None);
        alone.text("nowhere");
    }
}
