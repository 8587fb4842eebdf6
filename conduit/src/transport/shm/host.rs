//! The memory that the ranks of a host share, by its parts.

use std::io;
use std::mem::offset_of;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use bootstrap::node_shm::NodeShm;

use super::arena::place;
use super::board::Seat;
use super::layout::{Control, Layout, Member, STAGE, SegmentRow};
use super::map::{SharedLayout, SharedMemory};
use super::mpsc_ring::{MpscEnds, MpscRing};
use super::slot::Slot;
use super::sparse::Sparse;
use super::spsc_ring::{LANES, LaneOwners, Producer, SLOTS, SpscHead, SpscRing, SpscSlot};
use crate::sys::CPU_WORDS;
use crate::transport::message::{Block, MessageClass};
use crate::transport::neighbours::Span;

/// A mapping and the layout that it was made for. Offsets of the layout lie inside the mapping for
/// every local index below [`Layout::locals`], which every access checks; nothing else is checked
/// again.
#[repr(C)]
pub(crate) struct HostMemory {
    memory: SharedMemory,
    pub(crate) layout: Layout,
    /// This rank's ways to the others, for requests and for replies: side by side, as who is asked
    /// is often answered.
    tails: Sparse<[Producer; 2]>,
    /// Holds the doorbells that the tails point at.
    page: Arc<NodeShm>,
    /// Slot of the first rank of the neighbourhood in it.
    base: u32,
    own: Own,
}

/// Offsets of what this rank looks at in every poll, worked out once.
struct Own {
    queues: [OwnQueue; 3],
    owners: usize,
    lane_heads: usize,
    lane_slots: usize,
}

struct OwnQueue {
    head: usize,
    slots: usize,
    mask: u64,
}

impl Own {
    fn new(layout: &Layout, local: usize) -> Self {
        let member = layout.member(local);
        let queue = |ends: usize, slots: usize, count: usize| OwnQueue {
            head: member + ends + MpscEnds::HEAD,
            slots,
            mask: count as u64 - 1,
        };
        Self {
            queues: [
                queue(offset_of!(Member, replies), layout.reply_slots(local), layout.slots),
                queue(offset_of!(Member, requests), layout.request_slots(local), layout.slots),
                queue(
                    offset_of!(Member, internal),
                    layout.internal_slots(local),
                    Layout::INTERNAL_SLOTS,
                ),
            ],
            owners: member + offset_of!(Member, lanes),
            lane_heads: layout.lane_head(local, 0),
            lane_slots: layout.lane_slots(local, 0),
        }
    }
}

/// What all ranks of the host share, whatever their neighbourhood: the words at the beginning of
/// the host's memory.
pub(crate) struct HostWords {
    memory: SharedMemory,
}

impl HostWords {
    pub(crate) fn map(fd: &OwnedFd) -> io::Result<Self> {
        Ok(Self { memory: SharedMemory::map_at(fd, 0, size_of::<Control>())? })
    }

    /// Union of the affinity masks of the host's ranks.
    pub(crate) fn cpus(&self) -> &[AtomicU64; CPU_WORDS] {
        // SAFETY: the mapping has the size of the structure (constructor) and begins on a page;
        // zero bytes are a value and all changes go through atomics (`SharedLayout`).
        &unsafe { self.memory.base().cast::<Control>().as_ref() }.cpus
    }
}

impl HostMemory {
    /// Fails when the mapping is too short.
    pub(crate) fn new(
        memory: SharedMemory,
        layout: Layout,
        page: Arc<NodeShm>,
        span: Span,
    ) -> io::Result<Self> {
        let (local, base) = (span.local as usize, span.base);
        let there = memory.range(0, layout.len).is_some() && local < layout.locals;
        if !there {
            return Err(io::Error::other("the mapping is too short"));
        }
        let (tails, own) = (Sparse::new(layout.locals)?, Own::new(&layout, local));
        Ok(Self { memory, layout, tails, page, base, own })
    }

    /// Producer side of this rank's lane to another; `net` is 0 for requests, 1 for replies.
    #[inline(always)]
    pub(crate) fn tail(&self, target: usize, net: usize) -> Option<&Producer> {
        Some(&self.tails.get(target)?[net])
    }

    /// Counts a message of thread `me` that did not go through a lane, and claims one when it is
    /// time.
    pub(crate) fn approach(&self, target: usize, net: usize, me: usize, source: u32) {
        let Some(tail) = self.tail(target, net) else { return };
        let claimed = tail.approach(me, || self.member(target).lanes.claim(net, source));
        if let Some(lane) = claimed {
            let at = u32::try_from(target).unwrap_or(u32::MAX);
            let bell = self.page.slot(self.base.saturating_add(at));
            // SAFETY: the mapping and the page live as long as `self`, which owns the tail.
            unsafe { tail.point_at(self.lane(target, lane), bell) };
        }
    }

    /// The object at an offset of the layout. The caller has checked the local index that the
    /// offset was made from.
    #[inline]
    fn at<T: SharedLayout>(&self, offset: usize) -> &T {
        debug_assert!(
            offset + size_of::<T>() <= self.layout.len && offset.is_multiple_of(align_of::<T>())
        );
        // SAFETY: offsets come from the layout, which fits the mapping (constructor) and is aligned
        // (its test); zero bytes are a value and changes by others go through atomics or cells
        // (`SharedLayout`).
        unsafe { self.address(offset).cast::<T>().as_ref() }
    }

    #[inline]
    const fn address(&self, offset: usize) -> NonNull<u8> {
        // SAFETY: inside the mapping, as in `at`.
        unsafe { self.memory.base().add(offset) }
    }

    #[inline]
    fn check(&self, local: usize) {
        assert!(local < self.layout.locals, "local index out of range");
    }

    #[inline]
    pub(crate) fn control(&self) -> &Control {
        self.at(Layout::CONTROL)
    }

    #[inline]
    pub(crate) fn row(&self, local: usize) -> &SegmentRow {
        self.check(local);
        self.at(self.layout.row(local))
    }

    #[inline]
    pub(crate) fn member(&self, local: usize) -> &Member {
        self.check(local);
        self.at(self.layout.member(local))
    }

    /// A rank's place for the operands of a turn.
    #[inline]
    pub(crate) fn seat(&self, local: usize, turn: u32) -> &Seat {
        self.check(local);
        self.at(self.layout.seat(local, turn))
    }

    #[inline(always)]
    pub(crate) fn ring(&self, local: usize, class: MessageClass) -> MpscRing<'_> {
        let member = self.member(local);
        let (layout, slots) = (&self.layout, self.layout.slots);
        let (ends, offset, count) = match class {
            MessageClass::Request => (&member.requests, layout.request_slots(local), slots),
            MessageClass::Reply => (&member.replies, layout.reply_slots(local), slots),
            MessageClass::Internal => {
                (&member.internal, layout.internal_slots(local), Layout::INTERNAL_SLOTS)
            }
        };
        let first = self.address(offset).cast::<Slot>();
        // SAFETY: `count` slots from `offset` lie inside the mapping, as in `at`.
        MpscRing::new(ends, unsafe { std::slice::from_raw_parts(first.as_ptr(), count) })
    }

    /// Whether a message waits in any queue or lane of this rank. Made for polls that find nothing.
    #[inline(always)]
    pub(crate) fn arrived(&self) -> bool {
        let mut left = self.at::<LaneOwners>(self.own.owners).used();
        while left != 0 {
            let lane = left.trailing_zeros() as usize;
            left &= left - 1;
            if self.own_lane(lane).ready() {
                return true;
            }
        }
        self.queued()
    }

    /// Whether a message waits in a queue of this rank that all senders share.
    #[inline(always)]
    pub(crate) fn queued(&self) -> bool {
        self.own.queues.iter().any(|queue| {
            let head = self.at::<AtomicU64>(queue.head).load(Ordering::Relaxed);
            #[expect(clippy::cast_possible_truncation, reason = "masked to the number of slots")]
            let index = (head & queue.mask) as usize;
            self.at::<Slot>(queue.slots + index * size_of::<Slot>()).holds(head)
        })
    }

    /// A lane of this rank, which is one of those in use.
    #[inline(always)]
    pub(crate) fn own_lane(&self, lane: usize) -> SpscRing<'_> {
        debug_assert!(lane < 2 * LANES);
        let head: &SpscHead = self.at(self.own.lane_heads + lane * size_of::<SpscHead>());
        let slots = self.address(self.own.lane_slots + lane * size_of::<[SpscSlot; SLOTS]>());
        // SAFETY: as in `lane`; the caller has the number from [`LaneOwners::used`], which gives no
        // others.
        SpscRing::new(head, unsafe { slots.cast::<[SpscSlot; SLOTS]>().as_ref() })
    }

    /// Who sends through a lane of this rank, as index among the ranks of the host; not checked.
    #[inline(always)]
    pub(crate) fn lane_source(&self, lane: usize) -> u32 {
        self.at::<LaneOwners>(self.own.owners).source(lane)
    }

    #[inline(always)]
    pub(crate) fn lane(&self, local: usize, lane: usize) -> SpscRing<'_> {
        self.check(local);
        assert!(lane < 2 * LANES, "no such lane");
        let slots = self.address(self.layout.lane_slots(local, lane)).cast::<[SpscSlot; SLOTS]>();
        // SAFETY: the layout has the slots of every lane inside the mapping, as in `at`.
        SpscRing::new(self.at(self.layout.lane_head(local, lane)), unsafe { slots.as_ref() })
    }

    /// Release table of a rank's arena; `net` is 0 for requests, 1 for replies.
    #[inline]
    pub(crate) fn freed(&self, owner: usize, net: usize) -> &[AtomicU32] {
        self.check(owner);
        let first = self.address(self.layout.freed(owner, net)).cast::<AtomicU32>();
        // SAFETY: the table has one word for each block, inside the mapping as in `at`.
        unsafe { std::slice::from_raw_parts(first.as_ptr(), self.layout.blocks) }
    }

    /// The first `len` bytes of a block of rank `owner`'s arena for `net`. `None` for what is no
    /// block or too small: numbers from other ranks are not trusted.
    ///
    /// The caller holds the block: it allocated it and has not sent it, or it received it and has
    /// not released it.
    #[expect(
        clippy::mut_from_ref,
        reason = "the memory is not owned by `self` but lent by the holder's block"
    )]
    #[inline]
    pub(crate) fn block_payload(
        &self,
        owner: usize,
        net: usize,
        block: Block,
        len: usize,
    ) -> Option<&mut [u8]> {
        let (offset, size) = place(block.index as usize, self.layout.arena)?;
        if len > size || owner >= self.layout.locals {
            return None;
        }
        let at = self.address(self.layout.arena(owner, net) + offset);
        // SAFETY: inside the arena and so inside the mapping; any bytes are a value, and a block
        // has one holder at a time: the generation in the release table passes it from the receiver
        // to the owner, the queue slot from the owner to the receiver.
        Some(unsafe { std::slice::from_raw_parts_mut(at.as_ptr(), len) })
    }

    /// Address of `len` bytes of a rank's stage; `None` when they are not all inside.
    pub(crate) fn stage(&self, owner: usize, at: usize, len: usize) -> Option<NonNull<u8>> {
        let inside = at.checked_add(len).is_some_and(|end| end <= STAGE);
        (inside && owner < self.layout.locals).then(|| self.address(self.layout.stage(owner) + at))
    }
}
