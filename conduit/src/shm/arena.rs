//! Payload arenas: each rank owns one for its requests and one for its replies; receivers only give blocks back.
//!
//! A block is busy while the owner's private *generation* of it differs from the word in the shared *release table*. The
//! receiver writes the generation that the message carried into the table when its handler is done. So the sender
//! touches a line that receivers write only when its ring scan comes back to it, and one slow receiver holds up nobody:
//! the scan walks past its blocks.

use std::sync::atomic::{AtomicU32, Ordering};

/// One size of blocks and its share of the arena.
struct Class {
    size: usize,
    /// Share of the arena, in quarters.
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

/// Blocks of an arena of `arena` bytes.
pub(super) const fn blocks_in(arena: usize) -> usize {
    count(0, arena) + count(1, arena) + count(2, arena)
}

/// A block as a message names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Number in the arena.
    pub(crate) index: u32,
    /// Generation, to be written into the release table.
    pub(crate) generation: u32,
}

impl Block {
    pub(crate) const fn to_wire(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    #[expect(clippy::cast_possible_truncation, reason = "the two halves of the word")]
    pub(crate) const fn from_wire(word: u64) -> Self {
        Self { index: word as u32, generation: (word >> 32) as u32 }
    }
}

/// Where a block is and how much it holds: `(offset in the arena, bytes)`. `None` for a number that is no block.
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

/// The owner's view of an arena. In threaded modes `allocate` and `forget` are called under a lock.
pub(crate) struct Arena {
    bytes: usize,
    generations: Box<[AtomicU32]>,
    cursors: [AtomicU32; CLASSES.len()],
}

impl Arena {
    pub(crate) fn new(bytes: usize) -> Self {
        let generations = (0..blocks_in(bytes)).map(|_| AtomicU32::new(0)).collect();
        Self { bytes, generations, cursors: [const { AtomicU32::new(0) }; CLASSES.len()] }
    }

    /// Takes a free block of at least `len` bytes; a larger one when those of the right size are all busy.
    pub(crate) fn allocate(&self, freed: &[AtomicU32], len: usize) -> Option<Block> {
        let mut first = 0;
        for (class, Class { size, .. }) in CLASSES.iter().enumerate() {
            let blocks = count(class, self.bytes);
            if len <= *size
                && let Some(block) = self.scan(freed, class, first, blocks)
            {
                return Some(block);
            }
            first += blocks;
        }
        None
    }

    fn scan(
        &self,
        freed: &[AtomicU32],
        class: usize,
        first: usize,
        blocks: usize,
    ) -> Option<Block> {
        let start = self.cursors[class].load(Ordering::Relaxed) as usize;
        let mut at = start;
        for _ in 0..blocks {
            let index = first + at;
            at = if at + 1 == blocks { 0 } else { at + 1 };
            let generation = self.generations[index].load(Ordering::Relaxed);
            if freed[index].load(Ordering::Acquire) == generation {
                let generation = generation.wrapping_add(1);
                self.generations[index].store(generation, Ordering::Relaxed);
                let (cursor, index) = (u32::try_from(at).ok()?, u32::try_from(index).ok()?);
                self.cursors[class].store(cursor, Ordering::Relaxed);
                return Some(Block { index, generation });
            }
        }
        None
    }

    /// Gives back a block that was never sent.
    pub(crate) fn forget(&self, freed: &[AtomicU32], block: Block) {
        freed[block.index as usize].store(block.generation, Ordering::Release);
    }
}

#[cfg(test)]
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
