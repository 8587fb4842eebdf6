//! Where everything is in the memory that the ranks of a neighbourhood share. A host's memory has a
//! part for each of its neighbourhoods, one after the other; the processors in the first part are
//! those of all ranks of the host.
//!
//! ```text
//! Control          fingerprint, processors, barriers                     one per neighbourhood
//! SegmentRow[n]    offset and length of each rank's segment
//! Member[n]        barrier words and queue heads of each rank
//! Seat[n][4]       operands of small reductions
//! queues[n]        internal slots, reply slots, request slots            pages are touched as the queues advance
//! lanes[n]         heads and slots of the lanes of each rank             as above
//! freed[n][2]      release table of each rank's payload arenas
//! arenas[n][2]     payload blocks of each rank, for requests and for replies
//! stages[n]        what each rank lends to its neighbours in collectives
//! ```

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

use super::board::{Seat, TURNS};
use super::map::SharedLayout;
use super::mpsc_ring::MpscEnds;
use super::slot::Slot;
use super::spsc_ring::{LANES, LaneOwners, SLOTS, SpscHead, SpscSlot};
use crate::sys::CPU_WORDS;

const VERSION: u64 = 7;
const INTERNAL_SLOTS: usize = 32;
const SLOTS_PER_DEPTH: usize = 8;
pub(crate) const ARENA_PER_DEPTH: usize = 65_536;
/// Bytes of a rank's stage.
pub(crate) const STAGE: usize = 1 << 20;

/// Words of a central barrier, on lines of their own.
#[repr(C, align(128))]
pub(crate) struct CentralBarrier {
    /// Arrivals and merged name of the barrier that is filling.
    pub(crate) filling: AtomicU64,
    _pad: [u64; 15],
    /// Generation and result of the last complete barrier.
    pub(crate) open: AtomicU64,
    /// Ranks that sleep while a barrier is under way.
    pub(crate) sleepers: AtomicU32,
    /// Where there are several neighbourhoods: generation and result of the last barrier that all
    /// of them have passed.
    pub(crate) released: AtomicU64,
}

#[repr(C, align(128))]
pub(crate) struct Control {
    /// 0, or the fingerprint of the layout as the first rank computed it.
    pub(crate) fingerprint: AtomicU64,
    /// Ranks that take part in the barriers of sleepers (see `wait.rs`).
    pub(crate) registered: AtomicU32,
    /// Union of the ranks' affinity masks.
    pub(crate) cpus: [AtomicU64; CPU_WORDS],
    /// Barrier of the library itself (init, attach).
    pub(crate) inner: CentralBarrier,
    pub(crate) client: CentralBarrier,
}

#[repr(C)]
pub(crate) struct SegmentRow {
    pub(crate) offset: AtomicU64,
    /// Bytes; 0 before attach.
    pub(crate) len: AtomicU64,
    /// Address of the first byte in the owner's process.
    pub(crate) base: AtomicU64,
}

/// Barrier word of one rank, for one parity of generations.
#[repr(C, align(128))]
pub(crate) struct BarrierWord(pub(crate) AtomicU64);

#[repr(C, align(128))]
pub(crate) struct Member {
    pub(crate) arrived: [BarrierWord; 2],
    pub(crate) internal: MpscEnds,
    pub(crate) replies: MpscEnds,
    pub(crate) requests: MpscEnds,
    pub(crate) lanes: LaneOwners,
}

// SAFETY: atomics and padding.
unsafe impl SharedLayout for CentralBarrier {}
// SAFETY: atomics and padding.
unsafe impl SharedLayout for Control {}
// SAFETY: atomics.
unsafe impl SharedLayout for SegmentRow {}
// SAFETY: atomics and padding.
unsafe impl SharedLayout for Member {}
// SAFETY: an atomic.
unsafe impl SharedLayout for AtomicU8 {}
// SAFETY: an atomic.
unsafe impl SharedLayout for AtomicU32 {}
// SAFETY: an atomic.
unsafe impl SharedLayout for AtomicU64 {}

/// Offsets and sizes, a function of the number of ranks on the host and the queue depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) locals: usize,
    /// Slots of a request or reply queue; a power of two.
    pub(crate) slots: usize,
    pub(crate) arena: usize,
    pub(crate) blocks: usize,
    rows: usize,
    members: usize,
    seats: usize,
    queues: usize,
    queue: usize,
    lanes: usize,
    freed: usize,
    table: usize,
    arenas: usize,
    stages: usize,
    pub(crate) len: usize,
}

const PAGE: usize = 4096;
/// Bytes of one rank's lanes: their heads, then their slots.
const LANES_LEN: usize = LANES_AT + 2 * LANES * SLOTS * size_of::<SpscSlot>();
const LANES_AT: usize = (2 * LANES * size_of::<SpscHead>()).next_multiple_of(PAGE);

impl Layout {
    pub(crate) const INTERNAL_SLOTS: usize = INTERNAL_SLOTS;
    pub(crate) const CONTROL: usize = 0;

    /// The layout for `locals` ranks with queues of `depth` payload buffers.
    pub(crate) fn new(locals: u32, depth: u32) -> Self {
        let (locals, depth) = (locals as usize, depth as usize);
        let slots = (depth * SLOTS_PER_DEPTH).next_power_of_two();
        let arena = depth * ARENA_PER_DEPTH;
        let blocks = super::arena::blocks_in(arena);
        let rows = size_of::<Control>();
        let members = (rows + locals * size_of::<SegmentRow>()).next_multiple_of(128);
        let seats = members + locals * size_of::<Member>();
        let queues = (seats + locals * TURNS * size_of::<Seat>()).next_multiple_of(PAGE);
        let queue = ((INTERNAL_SLOTS + 2 * slots) * size_of::<Slot>()).next_multiple_of(PAGE);
        let lanes = queues + locals * queue;
        let freed = lanes + locals * LANES_LEN;
        let table = (blocks * size_of::<AtomicU32>()).next_multiple_of(128);
        let arenas = (freed + locals * 2 * table).next_multiple_of(PAGE);
        let stages = arenas + locals * 2 * arena;
        let len = stages + locals * STAGE;
        Self {
            locals,
            slots,
            arena,
            blocks,
            rows,
            members,
            seats,
            queues,
            queue,
            lanes,
            freed,
            table,
            arenas,
            stages,
            len,
        }
    }

    /// Bytes that the memory of this neighbourhood takes in that of its host.
    pub(crate) fn room(&self) -> usize {
        let page = usize::try_from(crate::sys::page_size()).unwrap_or(PAGE);
        self.len.next_multiple_of(page)
    }

    /// Bytes of the host's queues and of its payload arenas, all ranks together.
    pub(crate) const fn parts(&self) -> [usize; 2] {
        [self.locals * (self.queue + LANES_LEN), self.locals * 2 * self.arena]
    }

    /// A word that differs between layouts which do not fit together. Never 0.
    pub(crate) fn fingerprint(&self) -> u64 {
        let parts = [
            VERSION,
            size_of::<Slot>() as u64,
            self.locals as u64,
            self.slots as u64,
            self.len as u64,
        ];
        parts.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, part| {
            (hash ^ part).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23)
        }) | 1
    }

    #[inline]
    pub(crate) const fn row(&self, local: usize) -> usize {
        self.rows + local * size_of::<SegmentRow>()
    }

    #[inline]
    pub(crate) const fn member(&self, local: usize) -> usize {
        self.members + local * size_of::<Member>()
    }

    #[inline]
    pub(crate) const fn seat(&self, local: usize, turn: u32) -> usize {
        self.seats + (local * TURNS + turn as usize % TURNS) * size_of::<Seat>()
    }

    #[inline]
    pub(crate) const fn internal_slots(&self, local: usize) -> usize {
        self.queues + local * self.queue
    }

    #[inline]
    pub(crate) const fn reply_slots(&self, local: usize) -> usize {
        self.internal_slots(local) + INTERNAL_SLOTS * size_of::<Slot>()
    }

    #[inline]
    pub(crate) const fn request_slots(&self, local: usize) -> usize {
        self.reply_slots(local) + self.slots * size_of::<Slot>()
    }

    #[inline]
    pub(crate) const fn lane_head(&self, local: usize, lane: usize) -> usize {
        self.lanes + local * LANES_LEN + lane * size_of::<SpscHead>()
    }

    #[inline]
    pub(crate) const fn lane_slots(&self, local: usize, lane: usize) -> usize {
        self.lanes + local * LANES_LEN + LANES_AT + lane * SLOTS * size_of::<SpscSlot>()
    }

    /// Release table of a rank's arena; `net` is 0 for requests, 1 for replies.
    #[inline]
    pub(crate) const fn freed(&self, local: usize, net: usize) -> usize {
        self.freed + (local * 2 + net) * self.table
    }

    #[inline]
    pub(crate) const fn arena(&self, local: usize, net: usize) -> usize {
        self.arenas + (local * 2 + net) * self.arena
    }

    #[inline]
    pub(crate) const fn stage(&self, local: usize) -> usize {
        self.stages + local * STAGE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_overlap_and_fit() {
        for (locals, depth) in [(1, 4), (2, 32), (3, 5), (64, 32), (257, 7)] {
            let layout = Layout::new(locals, depth);
            let last = layout.locals - 1;
            assert!(layout.row(last) + size_of::<SegmentRow>() <= layout.member(0));
            assert!(layout.member(last) + size_of::<Member>() <= layout.seat(0, 0));
            assert!(layout.seat(last, 3) + size_of::<Seat>() <= layout.internal_slots(0));
            let queue_end = layout.request_slots(last) + layout.slots * size_of::<Slot>();
            assert!(queue_end <= layout.lane_head(0, 0));
            let lane_end = layout.lane_slots(last, 2 * LANES - 1) + SLOTS * size_of::<SpscSlot>();
            assert!(lane_end <= layout.freed(0, 0));
            let heads_end = layout.lane_head(last, 2 * LANES - 1) + size_of::<SpscHead>();
            assert!(heads_end <= layout.lane_slots(last, 0));
            assert!(layout.freed(last, 1) + layout.blocks * 4 <= layout.arena(0, 0));
            assert_eq!(layout.arena(last, 1) + layout.arena, layout.stage(0));
            assert_eq!(layout.stage(last) + STAGE, layout.len);
            for local in 0..layout.locals {
                assert!(layout.member(local).is_multiple_of(align_of::<Member>()));
                assert!(layout.seat(local, 1).is_multiple_of(align_of::<Seat>()));
                assert!(layout.reply_slots(local).is_multiple_of(align_of::<Slot>()));
                assert!(layout.request_slots(local).is_multiple_of(align_of::<Slot>()));
                assert!(layout.lane_slots(local, 1).is_multiple_of(align_of::<SpscSlot>()));
                assert!(layout.lane_head(local, 1).is_multiple_of(align_of::<SpscHead>()));
            }
        }
    }

    #[test]
    fn memory_for_a_rank_does_not_depend_on_their_number() {
        for depth in [4, 32] {
            let each = |locals: u32| Layout::new(locals, depth).len / locals as usize;
            let many = each(4096);
            assert!((2..4096).step_by(61).all(|locals| each(locals) <= many + 16 * PAGE));
            let lanes = |locals| Layout::new(locals, depth).parts()[0] / locals as usize;
            assert!((1..4096).step_by(61).all(|locals| lanes(locals) == lanes(1)));
        }
    }

    // Lanes are a small part of what a rank has.
    const _: () = assert!(LANES_LEN <= 160 * 1024);

    #[test]
    fn layouts_that_differ_have_other_fingerprints() {
        let mut seen = std::collections::HashSet::new();
        for locals in 1..40 {
            for depth in 4..40 {
                // Depths that give the same layout may share one.
                seen.insert((
                    Layout::new(locals, depth).fingerprint(),
                    Layout::new(locals, depth).len,
                ));
            }
        }
        let prints: std::collections::HashSet<u64> = seen.iter().map(|(print, _)| *print).collect();
        assert_eq!(prints.len(), seen.len());
    }
}
