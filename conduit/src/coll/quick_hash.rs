//! Tables whose keys are a few numbers that nobody chooses to make them collide: members of one job
//! number their collectives, and lanes and steps are counted from 0.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A table with [`QuickHash`].
pub(super) type QuickMap<K, V> = HashMap<K, V, BuildHasherDefault<QuickHash>>;

/// Multiplies and rotates.
#[derive(Default)]
pub(super) struct QuickHash(u64);

impl QuickHash {
    #[inline]
    const fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(26) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Hasher for QuickHash {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.add(u64::from(*byte)));
    }

    #[inline]
    fn write_u8(&mut self, word: u8) {
        self.add(u64::from(word));
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.add(u64::from(word));
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.add(word);
    }

    #[inline]
    fn write_usize(&mut self, word: usize) {
        self.add(word as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        // Tables look at the highest and the lowest bits.
        self.0 ^ self.0 >> 32
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::BuildHasher;

    use super::*;

    #[test]
    fn neighbouring_keys_have_other_hashes() {
        let hasher = BuildHasherDefault::<QuickHash>::default();
        let keys = (0_u64..4).flat_map(|team| (0_u32..1000).map(move |number| (team, number)));
        let hashes: HashSet<u64> = keys.map(|key| hasher.hash_one(key) & 0xffff).collect();
        assert!(hashes.len() > 3500, "{} of 4000", hashes.len());
    }
}
