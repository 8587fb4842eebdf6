//! Lanes: queues with one producer and one consumer, a message in one cache line.
//!
//! # Primer
//!
//! A receiver has [`LANES`] lanes for requests and as many for replies, whatever the number of ranks. A sender claims one
//! (a compare-exchange, once) and keeps it. Positions count up for ever; position `p` lies in line `p mod LINES`, whose state word
//! becomes `p + 1` when the message in it is complete. That is a plain store: on x86-64 a message takes no locked
//! instruction. `wait.rs` says why the receiver's sleep is safe all the same.
//!
//! The producer's position and what it last saw of `head` are the sender's own memory ([`Tail`]). The consumer's position is
//! `head`; its advance is the one store that consumes a message, so that a signal handler that never returns can take a lane
//! over at any instruction, as with the shared queue. A sender that dies leaves a lane that is complete up to its last state word.

use std::cell::UnsafeCell;
#[cfg(feature = "capi")]
use std::ptr::null_mut;
#[cfg(feature = "capi")]
use std::sync::atomic::{AtomicPtr, compiler_fence};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

#[cfg(feature = "capi")]
use bootstrap::page::Slot;

use super::map::SharedLayout;
#[cfg(feature = "capi")]
use super::ring::Header;
use super::ring::{Kind, Packet, Post};

/// Lanes of a receiver, for each kind of traffic.
pub(crate) const LANES: usize = 8;
/// Messages that a lane holds; a power of two.
pub(crate) const LINES: usize = 128;
const LINE: usize = 64;
/// How far ahead, in a row of messages, a producer asks for lines.
#[cfg(feature = "capi")]
const AHEAD: u32 = 32;
/// Pauses of the processor that a consumer makes when it was faster than a flood.
#[cfg(feature = "capi")]
const REST: u32 = 8;
/// Messages whose lines the consumer asks for together.
#[cfg(feature = "capi")]
const BURST: u32 = 8;
/// Room for arguments, then payload at the next multiple of 8.
const BODY: usize = LINE - super::ring::FIXED;
/// Most arguments of a message in a lane.
pub(crate) const LANE_ARGS: usize = BODY / 4;
/// Messages that a sender sends through the shared queue before it claims a lane. A lane is memory and the receiver looks at it
/// from then on, so a greeting is not worth one.
const WARM_UP: u32 = 4;
/// Messages after which a sender that found no lane free looks again.
const LOOK_AGAIN: u32 = 1 << 16;

/// A message in a lane: the beginning of what it would be in a slot of a shared queue.
#[repr(C, align(64))]
pub(crate) struct Line(UnsafeCell<[u32; LINE / 4]>);

// SAFETY: the first word is only accessed as an atomic; the rest is written by the one producer and read by the consumer after
// the first word was published.
unsafe impl SharedLayout for Line {}
// SAFETY: as above.
unsafe impl Sync for Line {}

impl Line {
    #[inline(always)]
    fn state(&self) -> &AtomicU32 {
        // SAFETY: the first word of the line is only ever accessed as this atomic.
        unsafe { AtomicU32::from_ptr(self.0.get().cast()) }
    }

    /// Writes a Short and publishes it.
    ///
    /// # Safety
    /// The line is the caller's until then; at most [`LANE_ARGS`] arguments.
    #[inline(always)]
    #[expect(clippy::multiple_unsafe_ops_per_block, reason = "one message, one reason")]
    #[expect(clippy::cast_possible_truncation, reason = "at most 10")]
    unsafe fn publish_short(&self, state: u32, source: u32, handler: u8, args: &[i32]) {
        let word = u32::from_le_bytes([Kind::Short as u8, handler, args.len() as u8, 0]).to_le();
        let words = self.0.get().cast::<u32>();
        let first = args.first().map_or(0, |arg| arg.cast_unsigned());
        // SAFETY: words of the line, which is the caller's.
        unsafe {
            let more = words.add(4).cast::<i32>();
            match args {
                // A call of memcpy would cost more than a few words.
                [] | [_] => {}
                [_, b] => more.write(*b),
                [_, b, c] => more.cast::<[i32; 2]>().write([*b, *c]),
                [_, b, c, d] => more.cast::<[i32; 3]>().write([*b, *c, *d]),
                [_, rest @ ..] => more.copy_from_nonoverlapping(rest.as_ptr(), rest.len()),
            }
            words.add(1).write(word);
            words.add(2).write(source);
            words.add(3).write(first);
        }
        self.state().store(state, Ordering::Release);
    }
}

/// The consumer's position, on a pair of lines of its own.
#[repr(C, align(128))]
pub(crate) struct LaneHead(AtomicU32);

/// Which lanes of a receiver are in use, and by whom: requests first, then replies. Changes when a lane is claimed.
#[repr(C, align(128))]
pub(crate) struct LaneOwners {
    /// A bit for each lane in use.
    used: AtomicU32,
    /// Sender, as index among the ranks of the host, plus 1.
    owners: [AtomicU32; 2 * LANES],
}

// SAFETY: an atomic.
unsafe impl SharedLayout for LaneHead {}
// SAFETY: atomics.
unsafe impl SharedLayout for LaneOwners {}

impl LaneOwners {
    /// Claims a free lane for `net` (0 requests, 1 replies); its number among all lanes of the receiver.
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
}

const MASK: u32 = (1 << (2 * LANES)) - 1;

/// Bits of the lanes of one kind of traffic.
pub(crate) const fn lanes_of(net: usize) -> u32 {
    ((1 << LANES) - 1) << (net * LANES)
}

/// What a sender remembers of its way to one receiver, in its own memory. Used by the thread in `owner` alone; any thread in
/// modes where one at a time is in the library.
pub(crate) struct Tail {
    owner: AtomicUsize,
    /// Messages until the next attempt to claim a lane, or a lane: see [`Tail::lane`].
    lane: AtomicU32,
    tail: AtomicU32,
    /// Last seen `head`.
    seen: AtomicU32,
    /// Lines of the lane and doorbell of the receiver, for [`Tail::send_short`]; null when there is no lane.
    #[cfg(feature = "capi")]
    lines: AtomicPtr<Line>,
    #[cfg(feature = "capi")]
    bell: AtomicPtr<Slot>,
}

/// In `Tail::lane`: the rest is a lane.
const CLAIMED: u32 = 1 << 31;

impl Tail {
    pub(crate) const fn new() -> Self {
        Self {
            owner: AtomicUsize::new(0),
            lane: AtomicU32::new(WARM_UP),
            tail: AtomicU32::new(0),
            seen: AtomicU32::new(0),
            #[cfg(feature = "capi")]
            lines: AtomicPtr::new(null_mut()),
            #[cfg(feature = "capi")]
            bell: AtomicPtr::new(null_mut()),
        }
    }

    /// The lane, `None` when there is none yet.
    #[inline(always)]
    pub(crate) fn lane(&self) -> Option<usize> {
        let word = self.lane.load(Ordering::Relaxed);
        (word & CLAIMED != 0).then_some((word & !CLAIMED) as usize)
    }

    /// Notes where the lane and the doorbell are.
    ///
    /// # Safety
    /// Both stay valid while `self` is used; called by the thread whose claim succeeded, before its next message.
    #[cfg(feature = "capi")]
    pub(super) unsafe fn point_at(&self, lane: Lane<'_>, bell: &Slot) {
        self.bell.store(std::ptr::from_ref(bell).cast_mut(), Ordering::Relaxed);
        self.lines.store(lane.lines.as_ptr().cast_mut(), Ordering::Relaxed);
    }

    /// Sends a Short of a row: as [`Lane::send`] and the ring of the doorbell, with everything at hand, for ranks that need no
    /// barrier between the two. `false` when there is no lane or it seems full.
    #[cfg(feature = "capi")]
    #[inline(always)]
    pub(crate) fn send_short(&self, source: u32, handler: u8, args: &[i32]) -> bool {
        let lines = self.lines.load(Ordering::Relaxed);
        let next = self.tail.load(Ordering::Relaxed);
        let used = next.wrapping_sub(self.seen.load(Ordering::Relaxed)) as usize;
        if lines.is_null() || used >= LINES || args.len() > LANE_ARGS {
            return false;
        }
        // SAFETY: valid since `point_at`, as there are lines.
        let lines = unsafe { &*lines.cast::<[Line; LINES]>() };
        // SAFETY: as above.
        let bell = unsafe { &*self.bell.load(Ordering::Relaxed) };
        let line = &lines[next as usize % LINES];
        if used + (AHEAD as usize) < LINES {
            // Not a line whose message the consumer has yet to read: it would have to fetch it back.
            ask_for(&lines[next.wrapping_add(AHEAD) as usize % LINES]);
        }
        self.tail.store(next.wrapping_add(1), Ordering::Relaxed);
        // SAFETY: as in `Lane::send`; the arguments fit (checked above).
        unsafe { line.publish_short(next.wrapping_add(1), source, handler, args) };
        compiler_fence(Ordering::SeqCst);
        bell.ring_if_sleeping();
        true
    }

    /// Whether thread `me` is the one that uses this.
    #[inline(always)]
    pub(crate) fn is_of(&self, me: usize) -> bool {
        self.owner.load(Ordering::Relaxed) == me
    }

    /// Counts a message of thread `me` that went another way; claims a lane when it is time. At most one claim ever succeeds, and
    /// its thread stays the owner.
    pub(crate) fn approach(
        &self,
        me: usize,
        claim: impl FnOnce() -> Option<usize>,
    ) -> Option<usize> {
        let word = self.lane.load(Ordering::Relaxed);
        if word & CLAIMED != 0 {
            return None;
        }
        if let Some(less) = word.checked_sub(1) {
            // Other threads count too; a message that goes uncounted does no harm.
            let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
            let _ = self.lane.compare_exchange(word, less, set, fetch);
            return None;
        }
        let (set, fetch) = (Ordering::AcqRel, Ordering::Relaxed);
        if self.owner.compare_exchange(0, me, set, fetch).is_err() {
            return None;
        }
        // Another thread may have been the owner meanwhile and found no lane.
        let lane = if self.lane.load(Ordering::Acquire) == 0 { claim() } else { None };
        match lane {
            Some(lane) => {
                let word = u32::try_from(lane).unwrap_or(u32::MAX);
                self.lane.store(CLAIMED | word, Ordering::Relaxed);
            }
            None => {
                self.lane.store(LOOK_AGAIN, Ordering::Release);
                self.owner.store(0, Ordering::Release);
            }
        }
        lane
    }
}

/// A lane: where its consumer is, and its lines.
#[derive(Clone, Copy)]
pub(crate) struct Lane<'a> {
    head: &'a LaneHead,
    lines: &'a [Line; LINES],
}

impl<'a> Lane<'a> {
    #[inline(always)]
    pub(crate) const fn new(head: &'a LaneHead, lines: &'a [Line; LINES]) -> Self {
        Self { head, lines }
    }

    /// Whether a message fits a line.
    #[inline(always)]
    pub(crate) const fn fits(nargs: usize, inline: usize) -> bool {
        nargs <= BODY / 4 && inline <= BODY - super::ring::inline_at(nargs)
    }

    #[inline(always)]
    fn line(&self, position: u32) -> &'a Line {
        &self.lines[position as usize % LINES]
    }

    /// Whether the producer finds room.
    #[inline(always)]
    pub(crate) fn has_room(&self, tail: &Tail) -> bool {
        let next = tail.tail.load(Ordering::Relaxed);
        let free = |head: u32| (next.wrapping_sub(head) as usize) < LINES;
        if free(tail.seen.load(Ordering::Relaxed)) {
            return true;
        }
        // Acquire: the line may be written once its consumer has copied it.
        let head = self.head.0.load(Ordering::Acquire);
        tail.seen.store(head, Ordering::Relaxed);
        free(head)
    }

    /// Sends a message that fits ([`Lane::fits`]); `false` when the lane is full. The caller rings the receiver's doorbell. Only
    /// the producer.
    #[inline(always)]
    pub(crate) fn send(&self, tail: &Tail, post: &Post<'_>) -> bool {
        if !Self::fits(post.args.len(), post.inline.len()) || !self.has_room(tail) {
            return false;
        }
        let next = tail.tail.load(Ordering::Relaxed);
        let line = self.line(next);
        let state = next.wrapping_add(1);
        tail.tail.store(state, Ordering::Relaxed);
        if post.kind as u8 == Kind::Short as u8 {
            // SAFETY: the line is the producer's until it is published: its last message was copied (`has_room`). The message
            // fits (checked above).
            unsafe {
                line.publish_short(state, post.source, post.handler, post.args);
            }
            return true;
        }
        // SAFETY: as above.
        unsafe { post.write(line.0.get().cast()) };
        line.state().store(state, Ordering::Release);
        true
    }

    /// When some messages are waiting, asks for all their lines at once: each would take longer to come than to serve. Once
    /// that was so without a rest, asks for the group after them. Consumer only.
    #[cfg(feature = "capi")]
    #[inline(always)]
    fn expect(&self, head: u32, backlog: &mut bool) {
        let there = |position: u32| {
            self.line(position).state().load(Ordering::Relaxed) == position.wrapping_add(1)
        };
        let from = if *backlog { head.wrapping_add(BURST) } else { head };
        let last = from.wrapping_add(BURST - 1);
        if there(last) {
            *backlog = true;
        } else if *backlog {
            *backlog = false;
            return;
        } else {
            rest();
            if !there(last) {
                return;
            }
        }
        #[cfg(target_arch = "x86_64")]
        for more in 0..BURST - 1 {
            let line = self.line(from.wrapping_add(more)).0.get();
            // SAFETY: a hint; accesses no memory as far as the language is concerned.
            unsafe {
                std::arch::asm!("prefetcht0 [{}]", in(reg) line, options(nostack, preserves_flags));
            }
        }
    }

    /// Whether a message is waiting. Consumer only.
    #[inline(always)]
    pub(crate) fn ready(&self) -> bool {
        let head = self.head.0.load(Ordering::Relaxed);
        self.line(head).state().load(Ordering::Acquire) == head.wrapping_add(1)
    }

    /// Takes the next message into `packet`; false when there is none. Only one consumer at a time.
    #[inline(always)]
    pub(crate) fn receive(&self, packet: &mut Packet) -> bool {
        let head = self.head.0.load(Ordering::Relaxed);
        let line = self.line(head);
        if line.state().load(Ordering::Acquire) != head.wrapping_add(1) {
            return false;
        }
        // SAFETY: the line is published and stays unchanged until `head` advances.
        unsafe { packet.fill_line(line.0.get().cast()) };
        self.head.0.store(head.wrapping_add(1), Ordering::Release);
        true
    }
}

/// A row of like messages that a consumer takes out of a lane. It says how far it is only now and then, because the producer may
/// be looking: the line would go to and fro for every message. A row that a signal handler cuts off for good leaves `head` behind, so
/// that who takes over sees some messages again; it only throws them away.
#[cfg(feature = "capi")]
pub(crate) struct Row<'a> {
    lane: Lane<'a>,
    next: u32,
    backlog: bool,
}

#[cfg(feature = "capi")]
impl<'a> Row<'a> {
    /// The row that begins with the next message, if that is a Short with no more arguments than fit; that one is taken.
    #[inline(always)]
    pub(crate) fn begin(lane: Lane<'a>) -> Option<(Self, Header, [i32; LANE_ARGS])> {
        let head = lane.head.0.load(Ordering::Relaxed);
        let line = lane.line(head);
        if line.state().load(Ordering::Acquire) != head.wrapping_add(1) {
            return None;
        }
        // SAFETY: the line is published and stays unchanged until `head` advances.
        let header = unsafe { super::ring::header(line.0.get().cast()) };
        if !header.is_short() || header.nargs() > LANE_ARGS {
            return None;
        }
        // SAFETY: as above.
        let args = unsafe { super::ring::line_args(line.0.get().cast()) };
        let next = head.wrapping_add(1);
        Some((Self { lane, next, backlog: false }, header, args))
    }

    /// Puts the first message back: it goes another way. Returns 0, the messages taken.
    #[inline(always)]
    pub(crate) fn leave(mut self) -> usize {
        self.next = self.next.wrapping_sub(1);
        0
    }

    /// Takes the arguments of the next message if it is like one taken before: a Short for the same handler, from the same
    /// sender, with as many arguments. Only one consumer at a time. In a `flood` the consumer lets some messages come together when
    /// it was faster: to look at one line again and again would take it away from the producer, once for every message.
    #[inline(always)]
    pub(crate) fn take(
        &mut self,
        header: Header,
        args: &mut [i32; LANE_ARGS],
        flood: bool,
    ) -> bool {
        let (lane, next) = (self.lane, self.next);
        if next.is_multiple_of(BURST) {
            lane.head.0.store(next, Ordering::Release);
            if flood {
                lane.expect(next, &mut self.backlog);
            }
        }
        let line = lane.line(next);
        let there = || line.state().load(Ordering::Acquire) == next.wrapping_add(1);
        if !there() {
            if !flood {
                return false;
            }
            rest();
            if !there() {
                return false;
            }
        }
        // SAFETY: the line is published and stays unchanged until `head` advances.
        if unsafe { super::ring::header(line.0.get().cast()) } != header {
            return false;
        }
        // SAFETY: as above.
        *args = unsafe { super::ring::line_args(line.0.get().cast()) };
        self.next = next.wrapping_add(1);
        true
    }
}

#[cfg(feature = "capi")]
impl Drop for Row<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.lane.head.0.store(self.next, Ordering::Release);
    }
}

/// Spends about 200 ns.
#[cfg(feature = "capi")]
#[cold]
fn rest() {
    for _ in 0..REST {
        std::hint::spin_loop();
    }
}

/// Asks for the line of a later message: it is in the consumer's cache, and fetching it takes longer than a message.
#[cfg(feature = "capi")]
#[inline(always)]
fn ask_for(line: &Line) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which does nothing where it is not known; accesses no memory as far as the language is concerned.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) line.0.get(), options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

#[cfg(test)]
mod tests;
