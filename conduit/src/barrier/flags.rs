//! Words of leaders that travel as writes into each other's registered memory, where their readers
//! poll for them: no receive, no handler, no credit.
//!
//! Each word has a place of its own by kind of barrier, parity of its number and round: a leader
//! is never two barriers ahead of another, so what it writes over was read. Nothing has to be
//! cleared, as a word says which barrier it is of; it is taken when all of it is there. A leader
//! learns where to write from a message ([`drive`](super::drive)), and sends messages until then.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use super::dissemination::MAX_ROUNDS;
use crate::transport::net::{Inbox, RemoteInbox};
use crate::transport::shm::{BarrierName as Name, Which};

/// Numbers of barriers are counted with 30 bits (`shm_barrier.rs`), above the 34 of a name.
const NAME_BITS: u32 = 34;
const GENERATIONS: u32 = (1 << 30) - 1;
/// Words of an inbox: of two kinds of barrier, two parities, all rounds, two for each.
pub(super) const WORDS: usize = 2 * 2 * MAX_ROUNDS * 2;

/// What a leader knew in a round of a barrier, as it is written: a word and its complement, so that
/// half of it is not taken for it.
pub(super) const fn encode(generation: u32, name: Name) -> [u64; 2] {
    let word = (generation as u64) << NAME_BITS | name.encode();
    [word, !word]
}

/// The name in what was written for a barrier; `None` while it is not there.
pub(super) const fn decode(generation: u32, [word, complement]: [u64; 2]) -> Option<Name> {
    let number = (word >> NAME_BITS) as u32;
    if complement != !word || number != generation & GENERATIONS || word >> 32 & 3 == 3 {
        return None;
    }
    Some(Name::decode(word))
}

/// Index of the first word of a round.
pub(super) const fn place(which: Which, generation: u32, round: usize) -> usize {
    ((which as usize * 2 + (generation as usize & 1)) * MAX_ROUNDS + round) * 2
}

/// What a leader has for such words.
pub(crate) struct Flags {
    inbox: Inbox,
    /// Where the leaders ahead are written to, by round.
    ahead: [OnceLock<RemoteInbox>; MAX_ROUNDS],
    /// Rounds (a bit each) whose leader behind was told of the inbox.
    pub(super) told: AtomicU32,
    /// By kind and round: one more than the barrier whose word a leader ahead wants as a message,
    /// because it goes to sleep.
    wanted: [[AtomicU32; MAX_ROUNDS]; 2],
}

impl Flags {
    pub(super) fn new(inbox: Inbox) -> Self {
        let wanted = || std::array::from_fn(|_| AtomicU32::new(0));
        let ahead = std::array::from_fn(|_| OnceLock::new());
        Self { inbox, ahead, told: AtomicU32::new(0), wanted: [wanted(), wanted()] }
    }

    /// What the leader behind has written for a round.
    #[inline]
    pub(super) fn heard(&self, which: Which, generation: u32, round: usize) -> Option<Name> {
        let at = place(which, generation, round);
        let word = self.inbox.load(at);
        // Mostly nothing new: one load.
        if (word >> NAME_BITS) as u32 != generation & GENERATIONS {
            return None;
        }
        decode(generation, [word, self.inbox.load(at + 1)])
    }

    pub(super) fn own(&self) -> RemoteInbox {
        self.inbox.remote()
    }

    /// A leader ahead said where its inbox is; `false` when it has said so before.
    pub(super) fn learn(&self, round: usize, inbox: RemoteInbox) -> bool {
        self.ahead.get(round).is_some_and(|place| place.set(inbox).is_ok())
    }

    /// A leader ahead wants its word of a barrier as a message.
    pub(super) fn want(&self, which: Which, generation: u32, round: usize) -> bool {
        let place = self.wanted[which as usize].get(round);
        let wanted = (generation & GENERATIONS) + 1;
        place.map(|place| place.store(wanted, Ordering::Relaxed)).is_some()
    }

    /// Where a word is written; `None`: it goes as a message.
    pub(super) fn aim(&self, which: Which, generation: u32, round: usize) -> Option<RemoteInbox> {
        let wanted = self.wanted[which as usize].get(round)?.load(Ordering::Relaxed);
        if wanted == (generation & GENERATIONS) + 1 {
            return None;
        }
        self.ahead.get(round)?.get().copied()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names() -> impl Strategy<Value = Name> {
        prop_oneof![Just(Name::Anonymous), any::<i32>().prop_map(Name::Named), Just(Name::Mismatch)]
    }

    proptest! {
        #[test]
        fn a_word_is_of_one_barrier(name in names(), generation in 0..=GENERATIONS, other: u32) {
            let words = encode(generation, name);
            prop_assert_eq!(decode(generation, words), Some(name));
            prop_assume!(other & GENERATIONS != generation);
            prop_assert_eq!(decode(other, words), None);
        }

        #[test]
        fn half_of_a_word_is_none(old in names(), new in names(), generation in 2..GENERATIONS) {
            // Bytes arrive in any order: any mixture of what was there and what comes.
            let (old, new) = (encode(generation - 2, old), encode(generation, new));
            for cut in 0..16 {
                let bytes = |words: [u64; 2]| -> Vec<u8> {
                    words.iter().flat_map(|word| word.to_le_bytes()).collect()
                };
                let (first, second) = (bytes(old), bytes(new));
                for mixed in [
                    [&second[..cut], &first[cut..]].concat(),
                    [&first[..cut], &second[cut..]].concat(),
                ] {
                    let word = |at: usize| {
                        u64::from_le_bytes(mixed[at..at + 8].try_into().expect("8 bytes"))
                    };
                    let whole = [word(0), word(8)] == new;
                    prop_assert_eq!(decode(generation, [word(0), word(8)]).is_some(), whole);
                }
            }
        }

        #[test]
        fn whatever_is_written_is_looked_at(words: [u64; 2], generation: u32) {
            let _ = decode(generation, words);
        }
    }

    #[test]
    fn every_round_has_a_place_of_its_own() {
        let mut seen = std::collections::HashSet::new();
        for which in [Which::Client, Which::Inner] {
            for generation in 0..2 {
                for round in 0..MAX_ROUNDS {
                    let at = place(which, generation, round);
                    assert!(at + 1 < WORDS && seen.insert(at) && seen.insert(at + 1));
                }
            }
        }
        // Memory that nobody has written to.
        assert_eq!(decode(0, [0; 2]), None);
    }
}
