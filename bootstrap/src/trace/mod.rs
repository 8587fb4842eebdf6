//! Records and counters of a rank, in memory that it shares with whoever started it.
//!
//! The starter makes the memory (so a killed job leaves no file), one slot per rank; the rank
//! writes into its slot and the starter reads it when the rank is gone, however it went. What
//! stands there is checked by the reader: a rank may have been killed while it wrote, or may have
//! overwritten it.
//!
//! A slot is words of 64 bits in the order of the host: a header ([`Word`]), counters (count and
//! bytes), timers (count, sum, least and greatest time), names of handlers, messages by thread, and
//! a ring of records.

pub mod far;
mod names;

use std::fmt::Write as _;

pub use names::{Cause, Counter, Kind, LACKING, LETTERS, Mark};

/// Variable that tells a rank of its slot: a [`Place`] as text.
pub const VARIABLE: &str = "GASNETRUN_TRACE";

/// First word of a slot that a rank has opened: format and version.
pub const MAGIC: u64 = 0x6761_736e_7472_0002;

/// Words of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Word {
    /// [`MAGIC`], written last by the rank that opens the slot.
    Magic = 0,
    /// Process.
    Process = 1,
    /// Records begun so far.
    Next = 2,
    /// Records that the ring has room for, a power of two; 0: counters alone.
    Capacity = 3,
    /// Four words: ticks and nanoseconds of the monotonic clock at the start, and the last known.
    Clock = 4,
    /// Four words: name of the rank's host.
    Host = 8,
}

const HEADER: usize = 16;
const COUNTERS: usize = HEADER;
const MAX_COUNTERS: usize = 64;
const TIMERS: usize = COUNTERS + 2 * MAX_COUNTERS;
const MAX_TIMERS: usize = 32;
const NAMES: usize = TIMERS + 4 * MAX_TIMERS;
/// Words of the name of a handler.
const NAME: usize = 4;
const MESSAGES: usize = NAMES + 256 * NAME;
/// Threads that count messages in words of their own.
const OWN_WORDS: usize = 64;
/// Words of a thread, a cache line: messages sent and their bytes, messages handled and theirs, and
/// messages sent that are not among those yet.
const PER_THREAD: usize = 8;
/// Bytes of it.
pub const NAME_BYTES: usize = NAME * 8;
/// First word of the ring.
pub const RING: usize = 2048;
/// Words of a record.
pub const RECORD: usize = 6;
/// Bytes of a text that one record holds.
pub const TEXT_BYTES: usize = 24;

const _: () = assert!(Word::Host as usize + NAME <= HEADER);
const _: () = assert!(MESSAGES + OWN_WORDS * PER_THREAD <= RING);
const _: () = assert!(Counter::ALL.len() <= MAX_COUNTERS && Cause::ALL.len() <= MAX_TIMERS);

/// Where the count of a counter stands; the bytes are the next word.
#[must_use]
pub const fn counter_at(counter: Counter) -> usize {
    COUNTERS + 2 * counter as usize
}

/// Where a thread counts messages, if it has words of its own: the sum of those and of the counter
/// counts.
#[must_use]
pub const fn messages_at(counter: Counter, thread: u8) -> Option<usize> {
    let place = match counter {
        Counter::SentAm => 0,
        Counter::HandledAm => 2,
        _ => return None,
    };
    let thread = thread as usize;
    if thread < OWN_WORDS { Some(MESSAGES + thread * PER_THREAD + place) } else { None }
}

/// Where a thread counts messages of a burst, if it has words of its own, until they are counted
/// with the others.
#[must_use]
pub const fn burst_at(thread: u8) -> Option<usize> {
    match messages_at(Counter::SentAm, thread) {
        Some(at) => Some(at + 4),
        None => None,
    }
}

/// A counter and its bytes.
#[must_use]
pub fn counted(word: impl Fn(usize) -> u64, counter: Counter) -> (u64, u64) {
    let own = (0..=u8::MAX).map_while(|thread| messages_at(counter, thread));
    let places = own.chain([counter_at(counter)]);
    let (count, bytes) = places.fold((0, 0), |(count, bytes): (u64, u64), at| {
        (count.wrapping_add(word(at)), bytes.wrapping_add(word(at + 1)))
    });
    let bursts = || (0..=u8::MAX).map_while(burst_at).map(&word).fold(0, u64::wrapping_add);
    (if counter == Counter::SentAm { count.wrapping_add(bursts()) } else { count }, bytes)
}

/// Where the four words of a timer stand.
#[must_use]
pub const fn timer_at(cause: Cause) -> usize {
    TIMERS + 4 * cause as usize
}

/// Where the name of a handler stands.
#[must_use]
pub const fn name_at(handler: u8) -> usize {
    NAMES + NAME * handler as usize
}

/// Records that fit into `bytes`, a power of two; 0 for none.
#[must_use]
pub const fn capacity(bytes: u64) -> u64 {
    match bytes / (RECORD as u64 * 8) {
        0 => 0,
        fit => 1 << fit.ilog2(),
    }
}

/// Bytes of a slot with so many records, whole pages.
#[must_use]
pub const fn slot_len(capacity: u64) -> u64 {
    (((RING as u64) + capacity * RECORD as u64) * 8).next_multiple_of(4096)
}

/// Whether a ring may have so many records.
const fn fits(capacity: u64) -> bool {
    capacity == 0 || capacity.is_power_of_two() && capacity <= 1 << 32
}

/// The memory for traces of a host, as the environment of its ranks says it. Slots are in the order
/// of the ranks there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Descriptor of the memory.
    pub fd: i32,
    /// Records per slot; 0: counters alone.
    pub capacity: u64,
    /// Whether events are recorded, whether things are counted.
    pub wants: (bool, bool),
}

impl Place {
    /// As text, for the environment.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        let [trace, stats] = [self.wants.0, self.wants.1].map(u8::from);
        let _ = write!(text, "{} {} {trace} {stats}", self.fd, self.capacity);
        text
    }

    /// Reads [`Place::text`].
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let mut next = || words.next()?.parse::<u64>().ok();
        let (fd, capacity, trace, stats) = (next()?, next()?, next()?, next()?);
        let fd = i32::try_from(fd).ok()?;
        fits(capacity).then_some(Self { fd, capacity, wants: (trace != 0, stats != 0) })
    }
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When it began, ticks of the rank's clock.
    pub at: u64,
    /// Kind.
    pub kind: Kind,
    /// Handler, [`Cause`] or [`Mark`], by kind.
    pub detail: u8,
    /// Of messages: [`REPLY`] and the category above it.
    pub flavor: u8,
    /// The rank's thread.
    pub thread: u8,
    /// The other rank, if any.
    pub peer: u32,
    /// How long it took, ticks.
    pub span: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Number of the first message among those of its class between the two ranks.
    pub ordinal: u32,
    /// Messages in the record.
    pub count: u32,
}

/// Bit of [`Record::flavor`]: a reply.
pub const REPLY: u8 = 1;

/// The category of a message, above [`REPLY`]: Short, Medium, Long.
pub const CATEGORIES: [&str; 3] = ["Short", "Medium", "Long"];

impl Record {
    /// A record of a kind at a time, about nothing more.
    #[must_use]
    pub const fn new(kind: Kind, at: u64) -> Self {
        Self {
            at,
            kind,
            detail: 0,
            flavor: 0,
            thread: 0,
            peer: u32::MAX,
            span: 0,
            bytes: 0,
            ordinal: 0,
            count: 1,
        }
    }

    /// As words. The last one is written last: it tells record `number` from what was there before.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the low half tells neighbours apart")]
    pub const fn encode(&self, number: u64) -> [u64; RECORD] {
        let head = self.kind as u64
            | (self.detail as u64) << 8
            | (self.flavor as u64) << 16
            | (self.thread as u64) << 24
            | (self.peer as u64) << 32;
        let runs = self.ordinal as u64 | (self.count as u64) << 32;
        [head, self.at, self.span, self.bytes, runs, number_word(number as u32)]
    }

    /// Reads record `number`; `None` for one that was not finished, or is another.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "fields of words")]
    pub fn decode(words: &[u64; RECORD], number: u64) -> Option<Self> {
        let [head, at, span, bytes, runs, end] = *words;
        let kind = Kind::of(head as u8).filter(|kind| *kind != Kind::Nothing)?;
        (end == number_word(number as u32)).then_some(Self {
            at,
            kind,
            detail: (head >> 8) as u8,
            flavor: (head >> 16) as u8,
            thread: (head >> 24) as u8,
            peer: (head >> 32) as u32,
            span,
            bytes,
            ordinal: runs as u32,
            count: (runs >> 32) as u32,
        })
    }
}

const fn number_word(number: u32) -> u64 {
    (MAGIC >> 32) << 32 | number as u64
}

/// What a timer has: count, and sum, least and greatest in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timer {
    /// Times.
    pub count: u64,
    /// Sum.
    pub sum: u64,
    /// Least.
    pub least: u64,
    /// Greatest.
    pub most: u64,
}

/// A slot, read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Process of the rank.
    pub process: u32,
    /// Name of its host.
    pub host: String,
    /// Oldest first; times are nanoseconds of the host's monotonic clock.
    pub records: Vec<Record>,
    /// Records that were overwritten or not finished.
    pub lost: u64,
    /// Count and bytes, by [`Counter`].
    pub counters: Vec<(u64, u64)>,
    /// By [`Cause`].
    pub timers: Vec<Timer>,
    /// Names of handlers, by index.
    pub names: Vec<(u8, String)>,
}

impl Slot {
    /// Reads a slot, of which the end may be missing; `None` when no rank has opened it.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let words = bytes.as_chunks::<8>().0;
        let word = |at: usize| words.get(at).map_or(0, |word| u64::from_ne_bytes(*word));
        if word(Word::Magic as usize) != MAGIC {
            return None;
        }
        let clock = Clock::new(std::array::from_fn(|at| word(Word::Clock as usize + at)));
        let counter = |counter: &Counter| counted(word, *counter);
        let timer = |cause: &Cause| {
            let [count, sum, least, most] = std::array::from_fn(|at| word(timer_at(*cause) + at));
            let [sum, least, most] = [sum, least, most].map(|ticks| clock.span(ticks));
            Timer { count, sum, least, most }
        };
        let (records, lost) = records(&word, words.len(), &clock);
        Some(Self {
            process: u32::try_from(word(Word::Process as usize)).unwrap_or(0),
            host: text(&word, Word::Host as usize).unwrap_or_default(),
            records,
            lost,
            counters: Counter::ALL.iter().map(counter).collect(),
            timers: Cause::ALL.iter().map(timer).collect(),
            names: (0..=u8::MAX).filter_map(|index| name(&word, index)).collect(),
        })
    }

    /// A counter's count and bytes.
    #[must_use]
    pub fn counter(&self, counter: Counter) -> (u64, u64) {
        self.counters.get(counter as usize).copied().unwrap_or_default()
    }

    /// A timer.
    #[must_use]
    pub fn timer(&self, cause: Cause) -> Timer {
        self.timers.get(cause as usize).copied().unwrap_or_default()
    }
}

/// Bytes of a slot that hold something; `head` has at least its header.
#[must_use]
pub fn used_len(head: &[u8]) -> u64 {
    let word =
        |at: usize| head.as_chunks::<8>().0.get(at).map_or(0, |word| u64::from_ne_bytes(*word));
    if word(Word::Magic as usize) != MAGIC {
        return 0;
    }
    slot_len(word(Word::Next as usize).min(word(Word::Capacity as usize)).min(1 << 32))
}

fn records(word: &impl Fn(usize) -> u64, len: usize, clock: &Clock) -> (Vec<Record>, u64) {
    let (next, capacity) = (word(Word::Next as usize), word(Word::Capacity as usize));
    if !capacity.is_power_of_two() {
        return (Vec::new(), 0);
    }
    let room = (len.saturating_sub(RING) / RECORD) as u64;
    let kept = next.min(capacity).min(room);
    let read = |number: u64| {
        let first = RING + usize::try_from(number % capacity).ok()? * RECORD;
        let words = std::array::from_fn(|at| word(first + at));
        let record = Record::decode(&words, number)?;
        if record.kind == Kind::More {
            return Some(record);
        }
        Some(Record { at: clock.time(record.at), span: clock.span(record.span), ..record })
    };
    let records: Vec<Record> = (next - kept..next).filter_map(read).collect();
    let lost = next - records.len() as u64;
    (records, lost)
}

fn name(word: &impl Fn(usize) -> u64, index: u8) -> Option<(u8, String)> {
    text(word, name_at(index)).map(|name| (index, name))
}

/// A name of [`NAME_BYTES`] at most.
fn text(word: &impl Fn(usize) -> u64, first: usize) -> Option<String> {
    let bytes: Vec<u8> = (first..first + NAME).flat_map(|at| word(at).to_ne_bytes()).collect();
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    (end > 0).then(|| String::from_utf8_lossy(&bytes[..end]).into_owned())
}

/// From ticks of a rank's clock to nanoseconds of its host's monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clock {
    ticks: u64,
    ns: u64,
    /// Nanoseconds of a tick.
    rate: f64,
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "spans of seconds, never negative"
)]
impl Clock {
    /// From two points of both clocks: ticks and nanoseconds, twice.
    #[must_use]
    pub fn new([ticks, ns, later, later_ns]: [u64; 4]) -> Self {
        let span = later.wrapping_sub(ticks);
        let known = later > ticks && later_ns > ns;
        let rate = if known { (later_ns - ns) as f64 / span as f64 } else { 1.0 };
        Self { ticks, ns, rate }
    }

    /// A time.
    #[must_use]
    pub fn time(&self, at: u64) -> u64 {
        match at.checked_sub(self.ticks) {
            Some(after) => self.ns.saturating_add(self.span(after)),
            None => self.ns.saturating_sub(self.span(self.ticks - at)),
        }
    }

    /// A length of time.
    #[must_use]
    pub fn span(&self, ticks: u64) -> u64 {
        (ticks as f64 * self.rate) as u64
    }

    /// So many nanoseconds in ticks.
    #[must_use]
    pub fn ticks(&self, ns: u64) -> u64 {
        (ns as f64 / self.rate) as u64
    }
}

#[cfg(test)]
mod tests;
