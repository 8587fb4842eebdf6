//! The collectives: short calls of a host's ranks without a packet, and without an answer, for each
//! of them.
//!
//! # Primer
//!
//! A barrier or a short exchange over a socket costs the agent a packet from and a packet to every
//! rank, and the rank a mapping of the result. On the collectives
//!
//! * a rank **posts** the frame that it would have sent. The last one of the host to arrive sends
//!   the agent one packet ([`Kind::Posted`](crate::frame::Kind::Posted)); the agent takes all posts
//!   and treats them as it treats packets;
//! * the agent **publishes** the answer once: it lies in one of a few places for results, which
//!   ranks have mapped read-only since they opened the page, and one futex wakes them all.
//!
//! A place is free again when no rank looks at it: each post says which ones its rank does, and by
//! the next answer on the collectives all ranks have posted again. So giving one back touches no
//! memory that others use. Ranks may keep results for ever, so the agent answers by packets when no
//! place is free, or the result is too long. A rank on the collectives looks at its socket when
//! [`ShmCollectives::mail`] has changed, or a slice of its wait has passed.
//!
//! Ranks that make different calls must not wait for each other. Whoever finds that another rank
//! has begun another call with the same number sends `Posted` at once; whoever makes a call over
//! its socket says so first ([`ShmCollectives::apart`]), and the agent takes the posts before such
//! a frame. One of two that differ comes second and is seen to differ.
//!
//! Nothing on the collectives is trusted by the agent: it copies a post before it looks at it, and
//! checks it as a packet.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::NodeShm;
use crate::frame::{Frame, HEADER_LEN};
use crate::sys;

/// Places for results.
pub(super) const PLACES: usize = 8;
/// Longest result that is published, bytes.
const PLACE: usize = 64 * 1024;
/// Most ranks of a host whose arrivals can be counted.
const MOST: u32 = 0xffff;
/// In place of kind and length: a call over a socket.
const APART: u64 = 0xffff;
/// Bits of the length of a post.
const LEN_BITS: u32 = 16;
const LEN_MASK: u32 = (1 << LEN_BITS) - 1;
/// No machine has larger pages.
const MEMORY_PAGE: usize = 64 * 1024;

/// Words of the collectives, each group on a line of its own.
#[repr(C, align(128))]
pub(super) struct Head {
    /// Number (32 bits), kind and length (16), arrivals (16) of the last call that was begun.
    call: AtomicU64,
    state: State,
}

#[repr(C, align(128))]
struct State {
    /// Changes with everything that a rank waits for; the futex.
    bell: AtomicU32,
    /// Number of the last call that was answered here, and where its result is.
    answered: AtomicU32,
    place: AtomicU32,
    len: AtomicU32,
    /// Changes when the agent has sent packets to ranks that wait here.
    mail: AtomicU32,
}

/// What one rank has posted.
#[repr(C, align(128))]
pub(super) struct Post {
    /// Number of the call; written last.
    seq: AtomicU32,
    /// Bytes (16 bits), and a bit for each place of a result that its rank looks at.
    len: AtomicU32,
    words: [AtomicU64; ShmCollectives::POST / 8],
}

/// A place for a result.
#[repr(C, align(128))]
pub(super) struct Result([AtomicU64; PLACE / 8]);

/// Offsets of the parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    head: usize,
    posts: usize,
    pub(super) results: usize,
}

impl Layout {
    /// Behind the first `at` bytes of a page, for so many ranks; `None` when they are too many.
    pub(super) fn new(at: usize, locals: u32) -> Option<Self> {
        if locals > MOST {
            return None;
        }
        let head = at.next_multiple_of(align_of::<Head>());
        let posts = head + size_of::<Head>();
        let results = posts + locals as usize * size_of::<Post>();
        Some(Self { head, posts, results: results.next_multiple_of(MEMORY_PAGE) })
    }

    pub(super) const fn end(&self) -> usize {
        self.results + Self::RESULTS
    }

    /// Bytes of all places.
    pub(super) const RESULTS: usize = PLACES * PLACE;
}

/// A result that was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// Its place.
    pub place: u32,
    /// Its bytes.
    pub len: usize,
}

/// A result that this rank looks at. Dropping the last clone gives it back.
pub struct SlotRef {
    page: Arc<NodeShm>,
    published: Published,
}

impl SlotRef {
    /// `None` when there is no such place.
    pub(crate) fn new(page: &Arc<NodeShm>, published: Published) -> Option<Self> {
        let there = page.result(published).is_some();
        there.then(|| {
            page.slot_refs.begin(published.place);
            Self { page: Arc::clone(page), published }
        })
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.page.result(self.published).unwrap_or_default()
    }
}

impl Clone for SlotRef {
    fn clone(&self) -> Self {
        self.page.slot_refs.begin(self.published.place);
        Self { page: Arc::clone(&self.page), published: self.published }
    }
}

impl Drop for SlotRef {
    fn drop(&mut self) {
        self.page.slot_refs.end(self.published.place);
    }
}

/// How often this process looks at each place. Its own memory: a child that the rank has forked has
/// a copy, which nobody asks.
#[derive(Debug, Default)]
pub(super) struct SlotRefs([AtomicU32; PLACES]);

impl SlotRefs {
    fn begin(&self, place: u32) {
        if let Some(count) = self.0.get(place as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn end(&self, place: u32) {
        if let Some(count) = self.0.get(place as usize) {
            // What was read comes before the post that gives the place back.
            count.fetch_sub(1, Ordering::Release);
        }
    }

    /// A bit for each place that is looked at.
    fn bits(&self) -> u32 {
        let bit =
            |(at, count): (usize, &AtomicU32)| u32::from(count.load(Ordering::Acquire) > 0) << at;
        self.0.iter().enumerate().map(bit).sum()
    }
}

/// The collectives of a page. See the module.
#[derive(Clone, Copy, Debug)]
pub struct ShmCollectives<'a> {
    page: &'a NodeShm,
    layout: Layout,
}

const fn word(seq: u32, key: u64, count: u64) -> u64 {
    (seq as u64) << 32 | key << 16 | count
}

/// Kind and length of a frame that can be posted.
fn key(frame: &Frame<'_>) -> u64 {
    (frame.kind as u64) << 9 | frame.payload.len() as u64
}

/// Copies bytes into words of shared memory, as far as there are words.
fn put(words: &[AtomicU64], bytes: &[u8]) {
    let (whole, rest) = bytes.as_chunks::<8>();
    for (slot, chunk) in words.iter().zip(whole) {
        slot.store(u64::from_ne_bytes(*chunk), Ordering::Relaxed);
    }
    if let Some(slot) = words.get(whole.len()).filter(|_| !rest.is_empty()) {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        slot.store(u64::from_ne_bytes(last), Ordering::Relaxed);
    }
}

impl ShmCollectives<'_> {
    /// Longest frame that can be posted, with its header, bytes.
    pub const POST: usize = 62 * 8;
}

impl<'a> ShmCollectives<'a> {
    pub(super) const fn new(page: &'a NodeShm, layout: Layout) -> Self {
        Self { page, layout }
    }

    /// Whether a call can be made here: its payload can be posted and its result published.
    #[must_use]
    pub const fn has_room(payload: usize, result: usize) -> bool {
        payload <= ShmCollectives::POST - HEADER_LEN && result <= PLACE
    }

    fn head(&self) -> &'a Head {
        self.page.map.at(self.layout.head)
    }

    fn state(&self) -> &'a State {
        &self.head().state
    }

    fn at(&self, local: u32) -> &'a Post {
        assert!(local < self.page.locals, "local index {local} of {}", self.page.locals);
        self.page.map.at(self.layout.posts + local as usize * size_of::<Post>())
    }

    fn result(&self, place: usize) -> &'a Result {
        assert!(place < PLACES, "place {place} of {PLACES}");
        self.page.map.at(self.layout.results + place * PLACE)
    }

    /// Rank: puts up a frame for which there is [room](ShmCollectives::has_room). `true` when the
    /// agent must be told: all ranks of the host have arrived, or one has begun another call.
    ///
    /// # Panics
    /// When there is no such local rank, or no room.
    #[must_use]
    pub fn post(&self, local: u32, frame: &Frame<'_>) -> bool {
        let post = self.at(local);
        let len = HEADER_LEN + frame.payload.len();
        assert!(len <= ShmCollectives::POST, "{len} bytes for a post of {}", ShmCollectives::POST);
        let (head, rest) = post.words.split_at(HEADER_LEN / 8);
        put(head, &frame.header());
        put(rest, frame.payload);
        let len = u32::try_from(len).unwrap_or(0) | self.page.slot_refs.bits() << LEN_BITS;
        post.len.store(len, Ordering::Relaxed);
        post.seq.store(frame.seq, Ordering::Release);
        self.arrive(frame.seq, key(frame))
    }

    fn arrive(&self, seq: u32, key: u64) -> bool {
        let call = &self.head().call;
        let mut seen = call.load(Ordering::SeqCst);
        loop {
            let fresh = (seen >> 32) as u32 != seq;
            if !fresh && seen >> 16 & 0xffff != key {
                return true;
            }
            let count = if fresh { 1 } else { (seen & 0xffff) + 1 };
            let next = word(seq, key, count);
            match call.compare_exchange_weak(seen, next, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return count >= u64::from(self.page.locals),
                Err(other) => seen = other,
            }
        }
    }

    /// Rank: says that it makes call `seq` over its socket. To be called before the first packet of
    /// the call.
    pub fn apart(&self, seq: u32) {
        let call = &self.head().call;
        let begin = |seen: u64| ((seen >> 32) as u32 != seq).then(|| word(seq, APART, 0));
        let _ = call.fetch_update(Ordering::SeqCst, Ordering::SeqCst, begin);
    }

    /// Rank: the answer to call `seq`, when it is there. A result is to be looked at through a
    /// [`SlotRef`].
    #[inline]
    #[must_use]
    pub fn answer(&self, seq: u32) -> Option<Published> {
        let state = self.state();
        (state.answered.load(Ordering::Acquire) == seq).then(|| Published {
            place: state.place.load(Ordering::Relaxed),
            len: state.len.load(Ordering::Relaxed) as usize,
        })
    }

    /// The bytes of a result, as a range of the memory of all results; `None` when there is no such
    /// place.
    pub(super) fn range(published: Published) -> Option<std::ops::Range<usize>> {
        let Published { place, len } = published;
        let start = place as usize * PLACE;
        ((place as usize) < PLACES && len <= PLACE).then(|| start..start + len)
    }

    /// Counts the agent's packets to ranks that wait here.
    #[inline]
    #[must_use]
    pub fn mail(&self) -> u32 {
        self.state().mail.load(Ordering::Acquire)
    }

    /// Changes with everything that is worth a look.
    #[inline]
    #[must_use]
    pub fn bell(&self) -> u32 {
        self.state().bell.load(Ordering::Acquire)
    }

    /// Rank: sleeps until the bell is another than the one `seen`, at most `timeout`.
    #[inline]
    pub fn sleep(&self, seen: u32, timeout: Duration) {
        sys::futex_wait(&self.state().bell, seen, timeout);
    }

    /// Wakes whoever sleeps here. Async-signal-safe.
    pub fn ring(&self) {
        let bell = &self.state().bell;
        bell.fetch_add(1, Ordering::SeqCst);
        sys::futex_wake(bell, i32::MAX);
    }

    /// Agent: makes the ranks that wait here look at their sockets.
    pub fn announce_mail(&self) {
        self.state().mail.fetch_add(1, Ordering::SeqCst);
        self.ring();
    }

    /// Agent: copies what a rank has posted into `buffer`, unless it is what it had posted before
    /// (`taken`): its number and length. The bytes are to be treated as a packet.
    ///
    /// # Panics
    /// When there is no such local rank.
    pub fn take(&self, local: u32, taken: u32, buffer: &mut [u8]) -> Option<(u32, usize)> {
        let post = self.at(local);
        let seq = post.seq.load(Ordering::Acquire);
        if seq == taken || seq == 0 {
            return None;
        }
        let len = (post.len.load(Ordering::Relaxed) & LEN_MASK) as usize;
        let len = len.min(ShmCollectives::POST).min(buffer.len());
        for (slot, chunk) in post.words.iter().zip(buffer[..len].chunks_mut(8)) {
            chunk.copy_from_slice(&slot.load(Ordering::Relaxed).to_ne_bytes()[..chunk.len()]);
        }
        Some((seq, len))
    }

    /// Places that ranks looked at when they posted last, a bit for each.
    fn looked_at(&self) -> u32 {
        let bits = |local| self.at(local).len.load(Ordering::Relaxed) >> LEN_BITS;
        (0..self.page.locals).fold(0, |all, local| all | bits(local))
    }

    /// Agent: answers call `seq`, which every rank of the host has made here and which has been
    /// [taken](ShmCollectives::take) from all of them, and wakes them; `false`, and nothing is
    /// done, when there is no place for the result.
    #[must_use]
    pub fn publish(&self, seq: u32, bytes: &[u8]) -> bool {
        let mut place = 0;
        if !bytes.is_empty() {
            let taken = self.looked_at();
            let free = |place: &usize| taken >> place & 1 == 0;
            let Some(found) = (0..PLACES).find(free).filter(|_| bytes.len() <= PLACE) else {
                return false;
            };
            place = found;
            put(&self.result(place).0, bytes);
        }
        let state = self.state();
        state.place.store(u32::try_from(place).unwrap_or(0), Ordering::Relaxed);
        state.len.store(u32::try_from(bytes.len()).unwrap_or(0), Ordering::Relaxed);
        state.answered.store(seq, Ordering::Release);
        self.ring();
        true
    }
}

#[cfg(test)]
mod tests;
