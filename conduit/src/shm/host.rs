//! The memory that the ranks of a host share, by its parts.

use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

use super::arena::{Block, place};
use super::layout::{Control, Layout, Member, SegmentRow};
use super::map::{SharedLayout, SharedMemory};
use super::ring::{Ring, Slot};

/// A mapping and the layout that it was made for. Offsets of the layout lie inside the mapping for every local index
/// below [`Layout::locals`], which every access checks; nothing else is checked again.
#[repr(C)]
pub(crate) struct HostMemory {
    memory: SharedMemory,
    layout: Layout,
}

/// The queues of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    Requests,
    Replies,
    Internal,
}

impl HostMemory {
    /// `None` when the mapping is too short.
    pub(crate) fn new(memory: SharedMemory, layout: Layout) -> Option<Self> {
        memory.range(0, layout.len)?;
        Some(Self { memory, layout })
    }

    #[inline]
    pub(crate) const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The object at an offset of the layout. The caller has checked the local index that the offset was made from.
    #[inline]
    fn at<T: SharedLayout>(&self, offset: usize) -> &T {
        debug_assert!(
            offset + size_of::<T>() <= self.layout.len && offset.is_multiple_of(align_of::<T>())
        );
        // SAFETY: offsets come from the layout, which fits the mapping (constructor) and is aligned (its test); zero
        // bytes are a value and changes by others go through atomics or cells (`SharedLayout`).
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

    /// What the host's ranks have in common.
    #[inline]
    pub(crate) fn control(&self) -> &Control {
        self.at(Layout::CONTROL)
    }

    /// A rank's segment.
    #[inline]
    pub(crate) fn row(&self, local: usize) -> &SegmentRow {
        self.check(local);
        self.at(self.layout.row(local))
    }

    /// A rank's words.
    #[inline]
    pub(crate) fn member(&self, local: usize) -> &Member {
        self.check(local);
        self.at(self.layout.member(local))
    }

    /// A rank's queue.
    #[inline]
    pub(crate) fn ring(&self, local: usize, queue: Queue) -> Ring<'_> {
        let member = self.member(local);
        let (layout, slots) = (&self.layout, self.layout.slots);
        let (ends, offset, count) = match queue {
            Queue::Requests => (&member.requests, layout.request_slots(local), slots),
            Queue::Replies => (&member.replies, layout.reply_slots(local), slots),
            Queue::Internal => {
                (&member.internal, layout.internal_slots(local), Layout::INTERNAL_SLOTS)
            }
        };
        let first = self.address(offset).cast::<Slot>();
        // SAFETY: `count` slots from `offset` lie inside the mapping, as in `at`.
        Ring::new(ends, unsafe { std::slice::from_raw_parts(first.as_ptr(), count) })
    }

    /// Release table of a rank's arena; `net` is 0 for requests, 1 for replies.
    #[inline]
    pub(crate) fn freed(&self, owner: usize, net: usize) -> &[AtomicU32] {
        self.check(owner);
        let first = self.address(self.layout.freed(owner, net)).cast::<AtomicU32>();
        // SAFETY: the table has one word for each block, inside the mapping as in `at`.
        unsafe { std::slice::from_raw_parts(first.as_ptr(), self.layout.blocks) }
    }

    /// The first `len` bytes of a block of rank `owner`'s arena for `net`. `None` for what is no block or too small: numbers
    /// from other ranks are not trusted.
    ///
    /// The caller holds the block: it allocated it and has not sent it, or it received it and has not released it.
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
        // SAFETY: inside the arena and so inside the mapping; any bytes are a value, and a block has one holder at a time: the
        // generation in the release table passes it from the receiver to the owner, the queue slot from the owner to
        // the receiver.
        Some(unsafe { std::slice::from_raw_parts_mut(at.as_ptr(), len) })
    }
}
