//! Lanes: queues with one producer and one consumer, several messages in one cache line.
//!
//! # Primer
//!
//! A receiver has [`LANES`] lanes for requests and as many for replies, whatever the number of
//! ranks. A sender claims one (a compare-exchange, once) and keeps it. A lane is a circle of
//! [`SLOTS`] slots of 16 bytes: a tag and three words. A message takes as many slots as its words
//! need, one after the other; a Short of up to three arguments takes one. Positions count up for
//! ever; position `p` lies in slot `p mod SLOTS`, and the tag of every slot names the lap in which
//! it was written. A message is complete when the tag of its first slot names the lap of the
//! position: that word is written last, with a plain store. So on x86-64 a message takes no locked
//! instruction, and in a flood one line carries four of them. `wait.rs` says why the receiver's
//! sleep is safe all the same.
//!
//! Every slot is written in every lap, and nothing but tags ever stands where a tag is looked for:
//! so stale words are never taken for a message. All words are atomics: what a broken peer writes
//! meanwhile is wrong, and nothing worse.
//!
//! The producer's position and what it last saw of `head` are the sender's own memory
//! ([`Producer`]). The consumer's position is `head`; its advance is the one store that consumes a
//! message, so that a signal handler that never returns can take a lane over at any instruction, as
//! with the shared queue. A sender that dies leaves a lane that is complete up to its last message.

mod burst;
mod producer;

use super::map::SharedLayout;
use super::packet::{Kind, Packet, Post, inline_at};
use crate::sys::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::transport::message::MAX_ARGS;

pub(crate) use burst::{BURST_ARGS, BurstReader};
pub(crate) use producer::Producer;

/// Lanes of a receiver, for each kind of traffic.
pub(crate) const LANES: usize = 8;
/// Slots of a lane; a power of two, and a multiple of what a line holds.
pub(crate) const SLOTS: usize = LAP as usize;
/// The same, as positions are counted.
const LAP: u32 = if cfg!(loom) { 4 } else { 512 };
/// Words of a slot besides its tag.
const WORDS: usize = 3;

/// A tag and three words of a message. The first word that goes with the tag is published together
/// with it.
#[repr(C, align(16))]
pub(crate) struct SpscSlot {
    /// Tag in the low half, a word in the high half.
    first: AtomicU64,
    /// Two words.
    second: AtomicU64,
}

// SAFETY: atomics.
unsafe impl SharedLayout for SpscSlot {}

#[expect(clippy::cast_possible_truncation, reason = "the low half")]
const fn low(word: u64) -> u32 {
    word as u32
}

const fn high(word: u64) -> u32 {
    low(word >> 32)
}

const fn join(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

impl SpscSlot {
    /// Tag, and the word with it. What is behind it in the message may be read when the tag is that
    /// of the position.
    #[inline(always)]
    fn first(&self) -> u64 {
        self.first.load(Ordering::Acquire)
    }

    /// Whether the slot was written in the lap of `position`.
    #[inline(always)]
    fn holds(&self, position: u32) -> bool {
        (low(self.first()) ^ lap(position)) >> LAP_AT == 0
    }

    #[inline(always)]
    fn rest(&self) -> [u32; 2] {
        let second = self.second.load(Ordering::Relaxed);
        [low(second), high(second)]
    }

    /// Writes a slot; as the first of a message it publishes all of it, `order` is
    /// [`Ordering::Release`] then.
    #[inline(always)]
    fn write(&self, tag: u32, words: [u32; WORDS], used: usize, order: Ordering) {
        if used > 1 {
            self.second.store(join(words[1], words[2]), Ordering::Relaxed);
        }
        self.first.store(join(tag, words[0]), order);
    }
}

/// Where in a tag the lap is: 16 bits. Before it handler (8), kind (3), number of arguments (5).
const LAP_AT: u32 = 16;
const HANDLER_AT: u32 = 8;
const KIND_AT: u32 = 5;
const NARGS: u32 = (1 << KIND_AT) - 1;
/// Kind of the slots of a message after its first; no [`Kind`].
const MORE: u32 = 7 << KIND_AT;

/// The lap of a position, where a tag has it. Memory that nobody has written is of no lap of the
/// first round.
#[inline(always)]
const fn lap(position: u32) -> u32 {
    (position / LAP + 1) << LAP_AT
}

/// Kind, handler and number of arguments (at most 31) as a tag has them.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "at most 31")]
const fn tag(kind: Kind, handler: u8, nargs: usize) -> u32 {
    (handler as u32) << HANDLER_AT | (kind as u32) << KIND_AT | nargs as u32
}

/// What the tag of a message says of it; nothing of it is checked.
#[derive(Clone, Copy)]
struct Tag(u32);

impl Tag {
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "3 bits")]
    const fn kind(self) -> u8 {
        (self.0 >> KIND_AT) as u8 & 7
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "8 bits")]
    const fn handler(self) -> u8 {
        (self.0 >> HANDLER_AT) as u8
    }

    #[inline(always)]
    const fn nargs(self) -> usize {
        (self.0 & NARGS) as usize
    }

    #[inline(always)]
    const fn is_short(self) -> bool {
        self.kind() == Kind::Short as u8
    }
}

/// Slots of a Short with `nargs` arguments.
#[inline(always)]
const fn slots_of_short(nargs: usize) -> usize {
    if nargs <= WORDS { 1 } else { nargs.div_ceil(WORDS) }
}

/// Slots of another message: the first one holds length and place.
#[inline(always)]
const fn slots_of_other(nargs: usize, inline: usize) -> usize {
    let words = if inline == 0 { nargs } else { inline_at(nargs) / 4 + inline.div_ceil(4) };
    1 + words.div_ceil(WORDS)
}

/// The consumer's position, on a pair of lines of its own.
#[repr(C, align(128))]
pub(crate) struct SpscHead(AtomicU32);

/// Which lanes of a receiver are in use, and by whom: requests first, then replies. Changes when a
/// lane is claimed.
#[repr(C, align(128))]
pub(crate) struct LaneOwners {
    /// A bit for each lane in use.
    used: AtomicU32,
    /// Sender, as index among the ranks of the host, plus 1.
    owners: [AtomicU32; 2 * LANES],
}

// SAFETY: an atomic.
unsafe impl SharedLayout for SpscHead {}
// SAFETY: atomics.
unsafe impl SharedLayout for LaneOwners {}

#[cfg(any(test, loom))]
impl SpscHead {
    /// The consumer is at a position.
    pub(crate) fn at(position: u32) -> Self {
        Self(AtomicU32::new(position))
    }
}

#[cfg(any(test, loom))]
impl LaneOwners {
    /// No lane is in use.
    pub(crate) fn none() -> Self {
        Self { used: AtomicU32::new(0), owners: std::array::from_fn(|_| AtomicU32::new(0)) }
    }
}

#[cfg(any(test, loom))]
impl SpscSlot {
    /// Memory that nobody has written.
    pub(crate) fn zeroed() -> Self {
        Self { first: AtomicU64::new(0), second: AtomicU64::new(0) }
    }
}

impl LaneOwners {
    /// Claims a free lane for `net` (0 requests, 1 replies); its number among all lanes of the
    /// receiver.
    #[cold]
    pub(crate) fn claim(&self, net: usize, source: u32) -> Option<usize> {
        let (from, to) = (net * LANES, (net + 1) * LANES);
        let free = |word: &AtomicU32| {
            word.compare_exchange(0, source + 1, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        };
        let lane = (from..to).find(|lane| free(&self.owners[*lane]))?;
        self.used.fetch_or(1 << lane, Ordering::SeqCst);
        Some(lane)
    }

    /// Lanes in use, a bit each.
    #[inline(always)]
    pub(crate) fn used(&self) -> u32 {
        // Whatever the word says, there are no more lanes than that.
        self.used.load(Ordering::Acquire) & MASK
    }

    /// The sender that a lane in use belongs to, as index among the ranks of the host; not checked.
    #[inline(always)]
    pub(crate) fn source(&self, lane: usize) -> u32 {
        self.owners[lane].load(Ordering::Relaxed).wrapping_sub(1)
    }
}

const MASK: u32 = (1 << (2 * LANES)) - 1;

/// Bits of the lanes of one kind of traffic.
pub(crate) const fn lanes_of(net: usize) -> u32 {
    ((1 << LANES) - 1) << (net * LANES)
}

/// A lane: where its consumer is, and its slots.
#[derive(Clone, Copy)]
pub(crate) struct SpscRing<'a> {
    head: &'a SpscHead,
    slots: &'a [SpscSlot; SLOTS],
}

impl<'a> SpscRing<'a> {
    #[inline(always)]
    pub(crate) const fn new(head: &'a SpscHead, slots: &'a [SpscSlot; SLOTS]) -> Self {
        Self { head, slots }
    }

    #[inline(always)]
    fn slot(&self, position: u32) -> &'a SpscSlot {
        &self.slots[position as usize % SLOTS]
    }

    /// Whether the producer finds room for a message with `nargs` arguments whose payload, if any,
    /// is elsewhere.
    #[inline(always)]
    pub(crate) fn has_room(&self, tail: &Producer, nargs: usize) -> bool {
        self.has_room_for(tail, slots_of_other(nargs, 0))
    }

    #[inline(always)]
    fn has_room_for(&self, tail: &Producer, slots: usize) -> bool {
        if tail.seems_free(slots) {
            return true;
        }
        // Acquire: a slot may be written once its consumer has copied it.
        tail.saw(self.head.0.load(Ordering::Acquire));
        tail.seems_free(slots)
    }

    /// Sends a message with at most 16 arguments and a payload that fits beside them
    /// ([`Packet::inline_room`]); `false` when it does not, or the lane is full. The caller rings
    /// the receiver's doorbell. Only the producer.
    #[inline(always)]
    pub(crate) fn send(&self, tail: &Producer, post: &Post<'_>) -> bool {
        let (args, inline) = (post.args, post.inline);
        if args.len() > MAX_ARGS || inline.len() > Packet::inline_room(args.len()) {
            return false;
        }
        let short = post.kind as u8 == Kind::Short as u8;
        let count = if short {
            slots_of_short(args.len())
        } else {
            slots_of_other(args.len(), inline.len())
        };
        if !self.has_room_for(tail, count) {
            return false;
        }
        let at = tail.advance(count);
        let tag = tag(post.kind, post.handler, args.len()) | lap(at);
        if !short {
            self.write_more(at, count, |more| body_words(post, (more - 1) * WORDS));
            let words = [post.len, low(post.place), high(post.place)];
            self.slot(at).write(tag, words, WORDS, Ordering::Release);
            return true;
        }
        let words = |at: usize| {
            std::array::from_fn(|word| args.get(at + word).map_or(0, |arg| arg.cast_unsigned()))
        };
        if count > 1 {
            self.write_more(at, count, |more| words(more * WORDS));
        }
        self.slot(at).write(tag, words(0), args.len(), Ordering::Release);
        true
    }

    /// Writes the slots of a message after its first.
    #[inline(always)]
    fn write_more(&self, at: u32, count: usize, words: impl Fn(usize) -> [u32; WORDS]) {
        for more in 1..count {
            let position = advanced(at, more);
            let slot = self.slot(position);
            slot.write(MORE | lap(position), words(more), WORDS, Ordering::Relaxed);
        }
    }

    /// Whether a message is waiting. Consumer only.
    #[inline(always)]
    pub(crate) fn ready(&self) -> bool {
        let head = self.head.0.load(Ordering::Relaxed);
        self.slot(head).holds(head)
    }

    /// Takes the next message, which `source` sent, into `packet`; false when there is none. Counts
    /// that are more than a message has become counts that are refused. Only one consumer at a
    /// time.
    #[inline(always)]
    pub(crate) fn receive(&self, source: u32, packet: &mut Packet) -> bool {
        let head = self.head.0.load(Ordering::Relaxed);
        let slot = self.slot(head);
        let first = slot.first();
        if (low(first) ^ lap(head)) >> LAP_AT != 0 {
            return false;
        }
        let (tag, word, rest) = (Tag(low(first)), high(first), slot.rest());
        let mut nargs = tag.nargs();
        let mut count = 1;
        if tag.is_short() {
            packet.begin([tag.kind(), tag.handler()], nargs, source);
            packet.set_words(0, [word, rest[0], rest[1]]);
            if nargs > WORDS {
                count = slots_of_short(nargs.min(MAX_ARGS));
                self.read_more(head, count, |more, words| packet.set_words(more * WORDS, words));
            }
        } else {
            let inline = if tag.kind() == Kind::MediumInline as u8 { word as usize } else { 0 };
            if nargs > MAX_ARGS || inline > Packet::inline_room(nargs) {
                nargs = usize::from(u8::MAX);
            } else {
                count = slots_of_other(nargs, inline);
            }
            packet.begin([tag.kind(), tag.handler()], nargs, source);
            packet.set_payload(word, join(rest[0], rest[1]));
            self.read_more(head, count, |more, words| packet.set_words((more - 1) * WORDS, words));
        }
        self.head.0.store(advanced(head, count), Ordering::Release);
        true
    }

    /// Reads the slots of a message after its first.
    #[inline(always)]
    fn read_more(&self, at: u32, count: usize, mut words: impl FnMut(usize, [u32; WORDS])) {
        for more in 1..count {
            words(more, self.words(advanced(at, more)));
        }
    }

    /// The words of a slot that was published.
    #[inline(always)]
    fn words(&self, at: u32) -> [u32; WORDS] {
        let slot = self.slot(at);
        let [second, third] = slot.rest();
        [high(slot.first.load(Ordering::Relaxed)), second, third]
    }
}

/// The position so many slots later.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "at most the slots of a lane")]
const fn advanced(position: u32, slots: usize) -> u32 {
    position.wrapping_add(slots as u32)
}

/// Three words of arguments and payload as they lie in a slot of the shared queue, from word `at`
/// on; 0 after the end.
#[inline(always)]
fn body_words(post: &Post<'_>, at: usize) -> [u32; WORDS] {
    std::array::from_fn(|word| {
        let word = at + word;
        if let Some(arg) = post.args.get(word) {
            return arg.cast_unsigned();
        }
        let at = (word * 4).wrapping_sub(inline_at(post.args.len()));
        let bytes = post.inline.get(at..).unwrap_or_default();
        bytes.first_chunk().map_or_else(|| last_word(bytes), |bytes| u32::from_ne_bytes(*bytes))
    })
}

/// The last bytes of a payload, filled up with 0.
fn last_word(bytes: &[u8]) -> u32 {
    let mut word = [0; 4];
    word.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    u32::from_ne_bytes(word)
}

#[cfg(all(test, not(loom)))]
mod tests;
