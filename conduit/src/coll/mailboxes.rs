//! Where ranks that are no neighbours leave small operands for each other: writes into registered
//! memory that its reader polls. No receive, no handler, no credit.
//!
//! A mailbox of its own belongs to every turn (of [`TURNS`]) and message of the schedule that a
//! rank receives. A rank begins a turn when the last but one is complete here (`AHEAD`): then all
//! ranks have begun that one, so they have completed the last but one of it, and read its
//! mailboxes, which are used again now. Nothing has to be cleared, as a mailbox says which turn it
//! is of. A rank learns where to write from a message ([`meet`](super::meet)), and sends messages
//! of the collective until then.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::letter::Signature;
use super::schedule::{Step, ToAll, reduce_to_all, tag_index, tag_indices};
use crate::transport::net::{Inbox, RemoteInbox};
use crate::transport::shm::{Operand, TURNS};

/// Most words of an operand: with the two in front of them it goes in one line.
pub(super) const MOST_WORDS: usize = 5;
/// Most bytes of an operand.
pub(super) const MOST: usize = MOST_WORDS * size_of::<u64>();
/// Words of a mailbox; the last one is not used.
const STRIDE: usize = 8;
/// Bits of the word that says what members agree on (`Signature::word`); above them is the turn.
const SIGNATURE_BITS: u32 = 40;

/// What a mailbox holds.
pub(super) type Data = Operand<MOST_WORDS>;

/// The words of a mailbox: what it is, a check over all, the operand; and how many they are.
pub(super) fn encode(turn: u32, signature: Signature, data: &[u8]) -> ([u64; STRIDE], usize) {
    let mut words = [0; STRIDE];
    words[0] = head(turn, signature.word());
    for (word, bytes) in words[2..2 + MOST_WORDS].iter_mut().zip(data.chunks(8)) {
        let mut whole = [0; 8];
        whole.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        *word = u64::from_ne_bytes(whole);
    }
    let count = 2 + data.len().min(MOST).div_ceil(8);
    words[1] = check(words[0], &words[2..count]);
    (words, count)
}

/// What was left for a turn, and what its sender takes it for; `None` while not all of it is there.
pub(super) fn decode(turn: u32, load: impl Fn(usize) -> u64) -> Option<(Signature, Data)> {
    let first = load(0);
    if !is_of(first, turn) {
        return None;
    }
    let signature = Signature::of_word(first & ((1 << SIGNATURE_BITS) - 1))?;
    let len = usize::try_from(signature.len).ok().filter(|len| *len <= MOST)?;
    let mut words = [0; MOST_WORDS];
    let words = &mut words[..len.div_ceil(8)];
    (2..).zip(&mut *words).for_each(|(at, word)| *word = load(at));
    if load(1) != check(first, words) {
        return None;
    }
    let mut data = Data::new(len);
    for (to, word) in data.bytes().chunks_mut(8).zip(words) {
        to.iter_mut().zip(word.to_ne_bytes()).for_each(|(to, from)| *to = from);
    }
    Some((signature, data))
}

const fn head(turn: u32, signature: u64) -> u64 {
    (turn as u64) << SIGNATURE_BITS | signature
}

/// Whether a first word is of a turn: by 24 bits of it, as a mailbox is written every few turns.
const fn is_of(first: u64, turn: u32) -> bool {
    first >> SIGNATURE_BITS == head(turn, 0) >> SIGNATURE_BITS
}

/// Of old and new words together it is that of neither, and never that of memory which nobody has
/// written to.
fn check(first: u64, words: &[u64]) -> u64 {
    let mix =
        |seed: u64, word: &u64| (seed ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed >> 29;
    words.iter().fold(mix(0x6a09_e667_f3bc_c909, &first), mix)
}

/// A rank that this one sends to or receives from.
struct Peer {
    rank: u32,
    /// Where it is written to.
    aim: OnceLock<RemoteInbox>,
    /// One more than the turn whose operand it wants as a message, because it goes to sleep.
    wanted: AtomicU32,
    /// It was told where this rank's mailboxes are.
    told: AtomicBool,
}

/// The mailboxes of a rank, and what it knows of those of others.
pub(crate) struct Mailboxes {
    /// Without it this rank gets messages.
    inbox: Option<Inbox>,
    pub(super) steps: Box<[Step]>,
    peers: Box<[Peer]>,
    /// Mailboxes of a turn.
    row: usize,
    /// What the oldest turn under way waits for: 0, or the turn, step and 1 as [`awaited`] makes
    /// it.
    awaited: AtomicU64,
    /// The one that was asked for as a message.
    asked: AtomicU64,
}

const fn awaited(turn: u32, step: usize) -> u64 {
    ((turn as u64) << 32) + step as u64 + 1
}

impl Mailboxes {
    /// Those of a rank of a team of `size`, all of whose ranks have some; `inbox` makes memory of so
    /// many words.
    pub(super) fn new(rank: u32, size: u32, inbox: impl FnOnce(usize) -> Option<Inbox>) -> Self {
        let steps = reduce_to_all(rank, size, ToAll::Doubling);
        // The same on all ranks, which know each other's places.
        let row = tag_indices(size);
        let mut peers: Vec<Peer> = Vec::new();
        for step in &steps {
            let (Step::Send { to: rank, .. }
            | Step::Lend { to: rank, .. }
            | Step::Receive { from: rank, .. }) = *step;
            if !peers.iter().any(|peer| peer.rank == rank) {
                let (aim, wanted, told) = Default::default();
                peers.push(Peer { rank, aim, wanted, told });
            }
        }
        let (steps, peers) = (steps.into(), peers.into());
        let [awaited, asked] = [const { AtomicU64::new(0) }; 2];
        Self { inbox: inbox(TURNS * row * STRIDE), steps, peers, row, awaited, asked }
    }

    fn peer(&self, rank: u32) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.rank == rank)
    }

    /// First word of the mailbox of a turn for messages with this tag.
    fn place(&self, turn: u32, tag: u8) -> usize {
        (turn as usize % TURNS * self.row + tag_index(tag).min(self.row - 1)) * STRIDE
    }

    /// What was left for a turn under a tag.
    pub(super) fn heard(&self, turn: u32, tag: u8) -> Option<(Signature, Data)> {
        let (inbox, place) = (self.inbox.as_ref()?, self.place(turn, tag));
        decode(turn, |at| inbox.load(place + at))
    }

    /// Where an operand of a turn is left for a rank: first word; `None`: it goes as a message.
    pub(super) fn aim(&self, turn: u32, to: u32, tag: u8) -> Option<(RemoteInbox, usize)> {
        let peer = self.peer(to)?;
        if peer.wanted.load(Ordering::Relaxed) == turn.wrapping_add(1) {
            return None;
        }
        peer.aim.get().map(|inbox| (*inbox, self.place(turn, tag)))
    }

    /// The step that the oldest turn under way waits at, if it does.
    pub(super) fn wait_at(&self, place: Option<(u32, usize)>) {
        let word = place.map_or(0, |(turn, step)| awaited(turn, step));
        self.awaited.store(word, Ordering::Release);
    }

    fn awaited(&self) -> Option<(u32, u32, u8)> {
        let word = self.awaited.load(Ordering::Acquire);
        let step = (word & u64::from(u32::MAX)).checked_sub(1)?;
        match *self.steps.get(usize::try_from(step).ok()?)? {
            Step::Receive { from, tag, .. } => Some(((word >> 32) as u32, from, tag)),
            _ => None,
        }
    }

    /// Whether the oldest turn under way can go on. Loads only.
    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        let Some(inbox) = &self.inbox else { return false };
        self.awaited().is_some_and(|(turn, _, tag)| is_of(inbox.load(self.place(turn, tag)), turn))
    }

    /// Tells the others where this rank's mailboxes are, by `tell`, which says whether it did.
    pub(super) fn announce(&self, mut tell: impl FnMut(u32, RemoteInbox) -> bool) {
        let Some(inbox) = &self.inbox else { return };
        for peer in self.peers.iter().filter(|peer| !peer.told.load(Ordering::Relaxed)) {
            if tell(peer.rank, inbox.remote()) {
                peer.told.store(true, Ordering::Relaxed);
            }
        }
    }

    /// A rank said where its mailboxes are; `false` for one that has nothing to say, or has said it.
    pub(super) fn learn(&self, rank: u32, inbox: RemoteInbox) -> bool {
        self.peer(rank).is_some_and(|peer| peer.aim.set(inbox).is_ok())
    }

    /// A rank wants the operand of a turn as a message; `false` as above.
    pub(super) fn want(&self, rank: u32, turn: u32) -> bool {
        let peer = self.peer(rank);
        peer.map(|peer| peer.wanted.store(turn.wrapping_add(1), Ordering::Relaxed)).is_some()
    }

    /// Before a sleep, which no write ends: asks the rank that is waited for, once, for a message.
    pub(super) fn ask(&self, ask: impl FnOnce(u32, u32) -> bool) {
        let word = self.awaited.load(Ordering::Acquire);
        let Some((turn, from, _)) = self.awaited().filter(|_| self.inbox.is_some()) else { return };
        if self.asked.load(Ordering::Relaxed) != word && ask(from, turn) {
            self.asked.store(word, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;
    use crate::coll::letter::Kind;

    fn signature(len: usize) -> Signature {
        Signature { kind: Kind::ReduceToAll, check: 0x1234, len: len as u64 }
    }

    fn operands() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(any::<u8>(), 0..=MOST)
    }

    proptest! {
        #[test]
        fn a_mailbox_is_of_one_turn(turn: u32, other: u32, bytes in operands()) {
            let (words, count) = encode(turn, signature(bytes.len()), &bytes);
            prop_assert!(count <= STRIDE);
            let (found, mut data) = decode(turn, |at| words[at]).expect("all of it is there");
            prop_assert_eq!(found, signature(bytes.len()));
            prop_assert_eq!(data.bytes(), &bytes[..]);
            prop_assume!((turn ^ other) << 8 != 0);
            prop_assert!(decode(other, |at| words[at]).is_none());
        }

        #[test]
        fn a_part_of_it_is_nothing(turn: u32, old in operands(), new in operands(), bits: u64) {
            // Any bytes of what was there, any of what comes.
            let (before, _) = encode(turn.wrapping_sub(4), signature(old.len()), &old);
            let (after, count) = encode(turn, signature(new.len()), &new);
            let mixed: Vec<u64> = before.iter().zip(&after).enumerate().map(|(at, (old, new))| {
                if at >= count {
                    return *old;
                }
                let taken = |byte: usize| bits >> ((at * 8 + byte) % 64) & 1 == 1;
                let (old, new) = (old.to_le_bytes(), new.to_le_bytes());
                u64::from_le_bytes(std::array::from_fn(|at| if taken(at) { new[at] } else { old[at] }))
            }).collect();
            let whole = mixed[..count] == after[..count];
            prop_assert_eq!(decode(turn, |at| mixed[at]).is_some(), whole);
        }

        #[test]
        fn whatever_is_written_is_looked_at(words: [u64; STRIDE], turn: u32) {
            let _ = decode(turn, |at| words[at]);
            let first = head(turn, words[0] & ((1 << SIGNATURE_BITS) - 1));
            let _ = decode(turn, |at| if at == 0 { first } else { words[at] });
        }
    }

    #[test]
    fn memory_that_nobody_wrote_to_is_empty() {
        for turn in 0..8 {
            assert!(decode(turn, |_| 0).is_none());
        }
    }

    #[test]
    fn every_message_of_a_turn_has_a_mailbox_of_its_own() {
        for size in 2..40 {
            let mut words = 0;
            let made = |rank| {
                Mailboxes::new(rank, size, |count| {
                    words = count;
                    None
                })
            };
            let all: Vec<_> = (0..size).map(made).collect();
            for (rank, boxes) in (0..).zip(&all) {
                let mut seen = HashSet::new();
                for turn in 0..u32::try_from(TURNS).expect("few") {
                    for step in &boxes.steps {
                        if let Step::Receive { from, tag, .. } = *step {
                            let place = boxes.place(turn, tag);
                            assert!(place + STRIDE <= words && seen.insert(place));
                            assert_eq!(all[from as usize].place(turn, tag), place);
                        }
                    }
                }
                let (peer, inbox) = (boxes.peers[0].rank, RemoteInbox { base: 1, rkey: 2 });
                assert!(boxes.learn(peer, inbox) && !boxes.learn(peer, inbox), "once");
                assert!(!boxes.learn(rank, inbox), "of itself");
            }
        }
    }
}
