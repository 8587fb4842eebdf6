//! Payload arenas: each rank owns one for its requests and one for its replies; receivers only give
//! blocks back.
//!
//! A block is busy while the owner's private *generation* of it differs from the word in the shared
//! *release table*. The receiver writes the generation that the message carried into the table when
//! its handler is done. The sender reads the words of a whole group of blocks at once, so a line
//! that receivers write travels once for many messages, and one slow receiver holds up nobody: the
//! scan walks past its blocks.

use std::ops::Range;

use crate::sys::atomic::{AtomicU32, Ordering};
use crate::transport::message::Block;

/// One size of blocks and its share of the arena.
struct Class {
    size: usize,
    quarters: usize,
}

/// Sizes in ascending order. The last one holds the largest Medium.
const CLASSES: [Class; 3] = [
    Class { size: 1024, quarters: 1 },
    Class { size: 8192, quarters: 1 },
    Class { size: 65_536, quarters: 2 },
];

const fn count(class: usize, arena: usize) -> usize {
    arena / 4 * CLASSES[class].quarters / CLASSES[class].size
}

pub(crate) const fn blocks_in(arena: usize) -> usize {
    count(0, arena) + count(1, arena) + count(2, arena)
}

const fn first_of(class: usize, arena: usize) -> usize {
    let (mut first, mut before) = (0, 0);
    while before < class {
        first += count(before, arena);
        before += 1;
    }
    first
}

/// Where a block is and how much it holds: `(offset in the arena, bytes)`. `None` for a number that
/// is no block.
pub(super) fn place(index: usize, arena: usize) -> Option<(usize, usize)> {
    let (mut first, mut offset) = (0, 0);
    for (class, Class { size, quarters }) in CLASSES.iter().enumerate() {
        let blocks = count(class, arena);
        if index < first + blocks {
            return Some((offset + (index - first) * size, *size));
        }
        first += blocks;
        offset += arena / 4 * quarters;
    }
    None
}

/// Blocks whose release words the owner reads at once: two cache lines of the release table.
const GROUP: usize = 32;
/// Groups after which the scan goes back to the first one if it is all free again. Keeps the blocks
/// in use few, and so in the caches, as long as receivers keep up.
const WARM: usize = 2;

#[derive(Default)]
struct Cursor {
    /// Group that blocks are taken from.
    group: AtomicU32,
    /// Its blocks that were free when it was read and have not been taken since.
    free: AtomicU32,
}

/// The owner's view of an arena. In threaded modes `allocate` and `forget` are called under a lock.
pub(crate) struct Arena {
    bytes: usize,
    generations: Box<[AtomicU32]>,
    cursors: [Cursor; CLASSES.len()],
}

impl Arena {
    pub(crate) fn new(bytes: usize) -> Self {
        let generations = (0..blocks_in(bytes)).map(|_| AtomicU32::new(0)).collect();
        Self { bytes, generations, cursors: Default::default() }
    }

    /// Takes a free block of at least `len` bytes; a larger one when those of the right size are
    /// all busy.
    pub(crate) fn allocate(&self, freed: &[AtomicU32], len: usize) -> Option<Block> {
        let mut first = 0;
        for (class, Class { size, .. }) in CLASSES.iter().enumerate() {
            let blocks = first..first + count(class, self.bytes);
            first = blocks.end;
            if len <= *size
                && let Some(block) = self.take(freed, &self.cursors[class], blocks)
            {
                return Some(block);
            }
        }
        None
    }

    /// The block that the next message of `len` bytes will most likely take.
    #[inline]
    pub(crate) fn upcoming(&self, len: usize) -> Option<Block> {
        let class = CLASSES.iter().position(|class| len <= class.size)?;
        let cursor = &self.cursors[class];
        let free = cursor.free.load(Ordering::Relaxed);
        let group = cursor.group.load(Ordering::Relaxed) as usize;
        let at = match free {
            0 if group + 1 < WARM => (group + 1) * GROUP,
            0 => 0,
            _ => group * GROUP + free.trailing_zeros() as usize,
        };
        let index = u32::try_from(first_of(class, self.bytes) + at).ok()?;
        Some(Block { index, generation: 0 })
    }

    fn take(&self, freed: &[AtomicU32], cursor: &Cursor, blocks: Range<usize>) -> Option<Block> {
        let mut free = cursor.free.load(Ordering::Relaxed);
        if free == 0 {
            free = self.next_group(freed, cursor, blocks.clone())?;
        }
        let group = cursor.group.load(Ordering::Relaxed) as usize;
        cursor.free.store(free & (free - 1), Ordering::Relaxed);
        let index = blocks.start + group * GROUP + free.trailing_zeros() as usize;
        let generation = self.generations[index].load(Ordering::Relaxed).wrapping_add(1);
        self.generations[index].store(generation, Ordering::Relaxed);
        Some(Block { index: u32::try_from(index).ok()?, generation })
    }

    /// Goes to the next group with a free block; `None` when all blocks of the class are busy.
    fn next_group(
        &self,
        freed: &[AtomicU32],
        cursor: &Cursor,
        blocks: Range<usize>,
    ) -> Option<u32> {
        let groups = blocks.len().div_ceil(GROUP);
        let now = cursor.group.load(Ordering::Relaxed) as usize;
        let enter = |group: usize, free: u32| {
            cursor.group.store(u32::try_from(group).unwrap_or(0), Ordering::Relaxed);
            free
        };
        if now + 1 >= WARM && self.free_in(freed, &blocks, 0) == u32::MAX {
            return Some(enter(0, u32::MAX));
        }
        (1..=groups).map(|step| (now + step) % groups).find_map(|group| {
            let free = self.free_in(freed, &blocks, group);
            (free != 0).then(|| enter(group, free))
        })
    }

    fn free_in(&self, freed: &[AtomicU32], blocks: &Range<usize>, group: usize) -> u32 {
        let start = blocks.start + group * GROUP;
        let end = (start + GROUP).min(blocks.end);
        let pairs = freed[start..end].iter().zip(&self.generations[start..end]);
        pairs.enumerate().fold(0, |bits, (at, (freed, generation))| {
            let free = freed.load(Ordering::Acquire) == generation.load(Ordering::Relaxed);
            bits | u32::from(free) << at
        })
    }

    /// Gives back a block that was never sent.
    pub(crate) fn forget(&self, freed: &[AtomicU32], block: Block) {
        freed[block.index as usize].store(block.generation, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table(arena: usize) -> Vec<AtomicU32> {
        (0..blocks_in(arena)).map(|_| AtomicU32::new(0)).collect()
    }

    #[test]
    fn blocks_are_disjoint_and_inside() {
        for arena in [4 * 65_536, 5 * 65_536, 32 * 65_536] {
            let mut end = 0;
            for index in 0..blocks_in(arena) {
                let (offset, size) = place(index, arena).unwrap();
                assert!(offset >= end && offset.is_multiple_of(64));
                end = offset + size;
            }
            assert!(end <= arena);
            assert_eq!(place(blocks_in(arena), arena), None);
        }
    }

    #[test]
    fn a_full_arena_refuses_and_one_release_is_enough() {
        let bytes = 4 * 65_536;
        let (arena, freed) = (Arena::new(bytes), table(bytes));
        let mut held = Vec::new();
        while let Some(block) = arena.allocate(&freed, 1) {
            held.push(block);
        }
        assert_eq!(held.len(), blocks_in(bytes));
        let block = held.swap_remove(17);
        freed[block.index as usize].store(block.generation, Ordering::Release);
        let again = arena.allocate(&freed, 1).unwrap();
        assert_eq!(again.index, block.index);
        assert_ne!(again.generation, block.generation);
        assert_eq!(arena.allocate(&freed, 1), None);
    }

    #[test]
    fn the_upcoming_block_is_the_one_that_is_taken() {
        let bytes = 32 * 65_536;
        let (arena, freed) = (Arena::new(bytes), table(bytes));
        let mut expected = None;
        for number in 0..200 {
            let block = arena.allocate(&freed, 1000).unwrap();
            // Before the first message nothing is known of any group.
            assert!(number == 0 || expected == Some(block.index), "message {number}");
            freed[block.index as usize].store(block.generation, Ordering::Release);
            expected = arena.upcoming(1000).map(|block| block.index);
        }
        assert!(place(arena.upcoming(5000).unwrap().index as usize, bytes).unwrap().1 == 8192);
        assert_eq!(arena.upcoming(65_537), None);
    }

    proptest! {
        #[test]
        fn never_gives_a_busy_block(
            steps in proptest::collection::vec((1usize..=65_536, any::<bool>(), any::<prop::sample::Index>()), 1..400)
        ) {
            let bytes = 4 * 65_536;
            let (arena, freed) = (Arena::new(bytes), table(bytes));
            let mut held: Vec<Block> = Vec::new();
            for (len, release, which) in steps {
                if release && !held.is_empty() {
                    let block = held.swap_remove(which.index(held.len()));
                    freed[block.index as usize].store(block.generation, Ordering::Release);
                } else if let Some(block) = arena.allocate(&freed, len) {
                    prop_assert!(held.iter().all(|other| other.index != block.index));
                    prop_assert!(place(block.index as usize, bytes).unwrap().1 >= len);
                    held.push(block);
                }
            }
        }

        #[test]
        fn block_names_survive_the_wire(index: u32, generation: u32) {
            let block = Block { index, generation };
            prop_assert_eq!(Block::from_wire(block.to_wire()), block);
        }
    }
}
