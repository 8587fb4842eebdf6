//! Sending through shared memory: from a checked message to a slot of a lane or of the queue that
//! all senders share.

use std::hint::black_box;
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;

use super::endpoint::ShmTransport;
use super::packet::{Kind, Packet, Post};
use super::poll_budget::me;
use super::spsc_ring::{Producer, SpscRing};
use crate::mode::Mode;
use crate::sys;
use crate::transport::message::{AmMessage, AmPayload, MAX_ARGS, MessageClass};

/// Bytes of a cache line.
const LINE: usize = 64;
/// Most bytes of the next block that are asked for: as many lines as a core can wait for at once.
const EXPECTED: usize = 16 * LINE;

/// Most payload bytes that travel in the queue, two slots of a lane. More slots cost more than a
/// block: a flood of 64 B took 159 ns each in slots and 79 ns in blocks, one of 24 B 90 ns either
/// way, one of 8 B 51 and 79 ns; a round trip of 32 B whose payload is looked at 552 and 530 ns.
const INLINE: usize = 24;
const _: () = assert!(INLINE <= Packet::inline_room(MAX_ARGS));

/// Lengths are below 2^31 by [`AmMessage::check`].
fn word(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// Bytes of a step of [`copy_payload`].
const STEP: usize = 32;
/// Lengths of which memcpy moves two ends that overlap, in registers as long as a line. From 256 B
/// on steps lose more in floods (0.5 to 0.8 times as many bytes a second) than they win.
const OVERLAPPED: RangeInclusive<usize> = LINE + 1..=3 * LINE;

/// Copies a payload into its block, or from there into another, each of which begins at a line.
/// Steps in order lie in one line each. Those of memcpy for these lengths begin anywhere, so each
/// waits for two lines that another processor has: a round trip of 160 B took 750 and not 550 ns.
#[inline]
fn copy_payload(to: &mut [u8], from: &[u8]) {
    if !OVERLAPPED.contains(&from.len()) {
        return to.copy_from_slice(from);
    }
    let (steps, rest) = to.as_chunks_mut::<STEP>();
    let (from_steps, from_rest) = from.as_chunks::<STEP>();
    for (to, from) in steps.iter_mut().zip(from_steps) {
        *to = *from;
        // A compiler would make one call of memcpy of the loop.
        black_box(&mut *to);
    }
    rest.copy_from_slice(from_rest);
}

impl ShmTransport {
    /// One attempt to send to a neighbour; `false` when its queue or this rank's arena is full. The
    /// message was checked; a Long's payload is in place already ([`AmPayload::Placed`]).
    // Inlined into every kind of send: what a kind does not use of a message then costs nothing.
    // With the same in `request` and the queue, a flood of Shorts went from 43 to 53 messages per
    // microsecond.
    #[inline(always)]
    pub(crate) fn send<M: Mode>(&self, local: usize, message: &AmMessage<'_>) -> bool {
        let post = Post {
            kind: Kind::Short,
            handler: message.handler,
            source: self.span.local,
            len: 0,
            place: 0,
            args: message.args,
            inline: &[],
        };
        let send = |post: Post<'_>| self.post::<M>(local, message.class, &post);
        match message.payload {
            AmPayload::None => send(post),
            AmPayload::Medium(payload) if payload.len() <= INLINE => {
                let len = word(payload.len());
                send(Post { kind: Kind::MediumInline, len, inline: payload, ..post })
            }
            AmPayload::Medium(payload) => {
                self.has_room::<M>(local, message.class, message.args.len())
                    && self.post_copy::<M>((local, message.class), post, payload)
            }
            AmPayload::Block { block, len } => {
                send(Post { kind: Kind::MediumBlock, len, place: block.to_wire(), ..post })
            }
            AmPayload::Placed { len, dest } => {
                send(Post { kind: Kind::Long, len, place: dest, ..post })
            }
            AmPayload::Long { payload, dest } => {
                send(Post { kind: Kind::Long, len: word(payload.len()), place: dest, ..post })
            }
            AmPayload::SendBuffer { .. } | AmPayload::ZeroCopy(_) => false,
        }
    }

    #[inline(never)]
    fn post_copy<M: Mode>(
        &self,
        (local, class): (usize, MessageClass),
        post: Post<'_>,
        payload: &[u8],
    ) -> bool {
        let Some(block) = self.allocate::<M>(class, payload.len()) else { return false };
        // Where threads take a lock for each block, its locked instruction waits for these lines.
        if !M::THREADED {
            self.expect_block(class, payload.len());
        }
        let copy = self.block_bytes(class, block, payload.len());
        let written = copy.map(|copy| copy_payload(copy, payload)).is_some();
        let (len, place) = (word(payload.len()), block.to_wire());
        let post = Post { kind: Kind::MediumBlock, len, place, ..post };
        if !written || !self.post::<M>(local, class, &post) {
            self.forget::<M>(class, block);
            return false;
        }
        true
    }

    /// Asks for the lines of the block that the next message of this size will take: they are in
    /// the cache of the receiver that had it last, and a copy alone waits for one after the other.
    /// A flood of 1 KB went from 4.2 to 14 GB/s.
    #[inline(always)]
    fn expect_block(&self, class: MessageClass, len: usize) {
        let block = self.payloads(class).and_then(|arena| arena.upcoming(len));
        let Some(block) = block else { return };
        let Some(bytes) = self.block_bytes(class, block, len.min(EXPECTED)) else { return };
        let first = bytes.as_ptr();
        for at in (0..bytes.len()).step_by(LINE) {
            sys::ask_to_write(first.wrapping_add(at));
        }
    }

    /// This thread's lane to a rank.
    #[inline(always)]
    fn lane_to<M: Mode>(
        &self,
        local: usize,
        class: MessageClass,
    ) -> Option<(&Producer, SpscRing<'_>)> {
        let tail = self.memory.tail(local, class as usize)?;
        let lane = tail.lane()?;
        if M::THREADED && !tail.is_of(me::<M>()) {
            return None;
        }
        Some((tail, self.memory.lane(local, lane)))
    }

    /// Puts a message into this thread's lane to the target, or into the queue that all senders
    /// share, and rings; `false` when it is full. The ways may be mixed: nothing promises an order
    /// of messages.
    #[inline(always)]
    fn post<M: Mode>(&self, local: usize, class: MessageClass, post: &Post<'_>) -> bool {
        self.budget.answered();
        let sent = match self.lane_to::<M>(local, class) {
            Some((tail, lane)) => lane.send(tail, post),
            None => self.post_shared::<M>(local, class, post),
        };
        if sent {
            self.wake(local);
        }
        sent
    }

    #[inline(never)]
    fn post_shared<M: Mode>(&self, local: usize, class: MessageClass, post: &Post<'_>) -> bool {
        self.receives.store(true, Ordering::Release);
        self.memory.approach(local, class as usize, me::<M>(), self.span.local);
        self.memory.ring(local, class).send(post)
    }

    /// Whether a message with `nargs` arguments, its payload elsewhere, would find room now. A
    /// hint.
    #[inline]
    pub(crate) fn has_room<M: Mode>(
        &self,
        local: usize,
        class: MessageClass,
        nargs: usize,
    ) -> bool {
        match self.lane_to::<M>(local, class) {
            Some((tail, lane)) => lane.has_room(tail, nargs),
            None => self.memory.ring(local, class).has_room(),
        }
    }

    /// Sends a message of the library in a queue of its own, never behind messages of the client.
    /// `false` when that is full. Async-signal-safe.
    pub(crate) fn send_internal(&self, local: usize, id: u8, args: &[i32]) -> bool {
        let (source, kind) = (self.span.local, Kind::Internal);
        let post = Post { kind, handler: id, source, len: 0, place: 0, args, inline: &[] };
        self.receives.store(true, Ordering::Release);
        let sent = self.memory.ring(local, MessageClass::Internal).send(&post);
        if sent {
            self.wake(local);
        }
        sent
    }

    /// Counts a request after a check for messages; `false` when it should poll instead.
    #[inline(always)]
    pub(crate) fn count_checked<M: Mode>(&self) -> bool {
        self.budget.count_checked::<M>(self.networked, self.is_asymmetric())
    }

    /// Sends a Short request of a burst whose last check was not long ago, through this thread's
    /// lane; `false` when that is not so. `TRACED`: the caller traces it.
    #[inline(always)]
    pub(crate) fn send_unchecked<M: Mode, const TRACED: bool>(
        &self,
        local: usize,
        handler: u8,
        args: &[i32],
    ) -> bool {
        let Some(tail) = self.memory.tail(local, MessageClass::Request as usize) else {
            return false;
        };
        if M::THREADED && !tail.is_of(me::<M>()) || !self.budget.take_one::<M, TRACED>() {
            return false;
        }
        self.budget.answered();
        tail.send_short(handler, args)
    }

    /// Sends a Short through this thread's lane, where senders need no fence and `may_send`;
    /// `false` when it has to go another way.
    #[inline(always)]
    pub(crate) fn send_short<M: Mode>(
        &self,
        (local, class): (usize, MessageClass),
        handler: u8,
        args: &[i32],
        may_send: impl FnOnce() -> bool,
    ) -> bool {
        let Some(tail) = self.memory.tail(local, class as usize) else { return false };
        if !self.is_asymmetric() || M::THREADED && !tail.is_of(me::<M>()) || !may_send() {
            return false;
        }
        self.budget.answered();
        tail.send_short(handler, args)
    }
}
