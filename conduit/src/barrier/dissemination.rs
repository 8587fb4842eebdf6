//! The part of a barrier between neighbourhoods: their leaders disseminate what their ranks said.
//! The machine is pure; [`Leader`] is what a rank keeps around it.
//!
//! In round `i` a leader sends what it knows to the leader `2^i` neighbourhoods after it and waits
//! for the one `2^i` before. After ceil(log2 N) rounds everybody knows what all said: merging names
//! twice does no harm. A leader that has passed may begin the next barrier while others are still
//! in this one, but cannot pass that without them: so messages belong to this barrier or to the
//! next, and the parity of its number says which.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::transport::neighbours::rounds;
use crate::transport::shm::BarrierName as Name;

/// Most rounds: neighbourhoods are counted with 32 bits.
pub(crate) const MAX_ROUNDS: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    /// Parity of the barrier's number.
    pub(crate) odd: bool,
    pub(crate) round: usize,
    /// What the sender knows of all names.
    pub(crate) name: Name,
}

impl Word {
    #[expect(clippy::cast_possible_truncation, reason = "few rounds, and halves of a word")]
    pub(crate) const fn encode(self) -> [i32; 2] {
        let name = self.name.encode();
        let head = self.odd as u32 | (self.round as u32) << 8 | ((name >> 32) as u32) << 16;
        [head.cast_signed(), (name as u32).cast_signed()]
    }

    pub(crate) const fn decode([head, low]: [i32; 2]) -> Option<Self> {
        let head = head.cast_unsigned();
        let (state, round) = (head >> 16, (head >> 8 & 0xff) as usize);
        if state > 2 || round >= MAX_ROUNDS || head & 0xff > 1 {
            return None;
        }
        let name = Name::decode((state as u64) << 32 | low.cast_unsigned() as u64);
        Some(Self { odd: head & 1 == 1, round, name })
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Dissemination {
    rounds: usize,
    odd: bool,
    under_way: bool,
    /// Round that is sent and waited for.
    round: usize,
    sent: bool,
    known: Name,
    /// What has arrived for the even and the odd barrier.
    inbox: [[Option<Name>; MAX_ROUNDS]; 2],
}

impl Dissemination {
    pub(crate) const fn new(count: u32) -> Self {
        Self {
            rounds: rounds(count),
            odd: false,
            under_way: false,
            round: 0,
            sent: false,
            known: Name::Anonymous,
            inbox: [[None; MAX_ROUNDS]; 2],
        }
    }

    /// All ranks of this neighbourhood have arrived and said `name` together. The barrier before it
    /// is complete.
    pub(crate) const fn begin(&mut self, odd: bool, name: Name) {
        self.odd = odd;
        self.under_way = true;
        self.round = 0;
        self.sent = false;
        self.known = name;
    }

    /// Another leader's word has arrived. `false` for a word that no leader sends: a round that
    /// there is not, or one that has arrived before.
    pub(crate) fn receive(&mut self, word: Word) -> bool {
        if word.round >= self.rounds {
            return false;
        }
        let place = &mut self.inbox[usize::from(word.odd)][word.round];
        let new = place.is_none();
        *place = Some(place.map_or(word.name, |before| before.merge(word.name)));
        new
    }

    /// Goes on as far as possible; `send` gets what is to be sent in which round and says whether
    /// it went out, `written` has what came on another way than by [`Dissemination::receive`]. The
    /// merged name when the barrier is complete.
    pub(crate) fn advance(
        &mut self,
        mut send: impl FnMut(Word) -> bool,
        mut written: impl FnMut(usize) -> Option<Name>,
    ) -> Option<Name> {
        if !self.under_way {
            return None;
        }
        let odd = self.odd;
        while self.round < self.rounds {
            let word = Word { odd, round: self.round, name: self.known };
            if !self.sent && !send(word) {
                return None;
            }
            self.sent = true;
            let arrived = self.inbox[usize::from(odd)][self.round].take();
            let heard = arrived.or_else(|| written(self.round))?;
            self.known = self.known.merge(heard);
            self.round += 1;
            self.sent = false;
        }
        self.under_way = false;
        Some(self.known)
    }

    /// The round whose word it waits for.
    pub(crate) const fn awaited(&self) -> Option<usize> {
        if self.under_way && self.sent { Some(self.round) } else { None }
    }
}

/// One kind of barrier, as the leader of a neighbourhood sees it.
pub(crate) struct Leader {
    pub(super) machine: Mutex<Dissemination>,
    /// Generation that the machine was begun for.
    pub(super) begun: AtomicU32,
    /// It may go further: a word has come, or one could not be sent.
    pub(super) stirred: AtomicBool,
    /// As [`Leader::awaited`]: 0, or one more than the round whose word it waits for.
    awaited: AtomicU32,
    /// Whether it has asked for that word as a message.
    pub(super) asked: AtomicBool,
}

impl Leader {
    pub(crate) fn new(count: u32) -> Self {
        let machine = Mutex::new(Dissemination::new(count));
        Self {
            machine,
            begun: AtomicU32::new(0),
            stirred: AtomicBool::new(false),
            awaited: AtomicU32::new(0),
            asked: AtomicBool::new(false),
        }
    }

    /// Which word is waited for now.
    pub(super) fn wait_for(&self, round: Option<usize>) {
        let awaited = round.map_or(0, |round| u32::try_from(round + 1).unwrap_or_default());
        if self.awaited.swap(awaited, Ordering::Relaxed) != awaited {
            self.asked.store(false, Ordering::Relaxed);
        }
    }

    /// The round whose word is waited for. A load.
    #[inline]
    pub(super) fn awaited(&self) -> Option<usize> {
        self.awaited.load(Ordering::Relaxed).checked_sub(1).map(|round| round as usize)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn names() -> impl Strategy<Value = Name> {
        prop_oneof![
            3 => Just(Name::Anonymous),
            6 => Just(Name::Named(7)),
            1 => any::<i32>().prop_map(Name::Named),
            1 => Just(Name::Mismatch)
        ]
    }

    /// Words on their way: receiver and word. Any of them may arrive next.
    struct World {
        leaders: Vec<Dissemination>,
        begun: Vec<usize>,
        done: Vec<Vec<Name>>,
        flying: Vec<(usize, Word)>,
        /// Words that were written, by reader, parity and round, with the barrier's number.
        written: HashMap<(usize, bool, usize), (usize, Name)>,
    }

    impl World {
        fn advance(&mut self, at: usize, refuse: bool) {
            let count = self.leaders.len();
            let Self { flying, written, .. } = self;
            let written = std::cell::RefCell::new(written);
            let number = self.begun[at].wrapping_sub(1);
            let send = |word: Word| {
                let to = (at + (1 << word.round)) % count;
                if !refuse && at.is_multiple_of(3) {
                    let place = (to, word.odd, word.round);
                    written.borrow_mut().insert(place, (number, word.name));
                } else if !refuse {
                    flying.push((to, word));
                }
                !refuse
            };
            let look = |round| {
                let of = written.borrow().get(&(at, number % 2 == 1, round)).copied();
                of.filter(|(of, _)| *of == number).map(|(_, name)| name)
            };
            let name = self.leaders[at].advance(send, look);
            self.done[at].extend(name);
        }

        fn step(&mut self, said: &[Vec<Name>], choice: u32) {
            let at = choice as usize / 8 % self.leaders.len();
            match choice % 8 {
                0 => self.advance(at, true),
                1 | 2 => self.advance(at, false),
                3 => {
                    let next = self.begun[at];
                    if next == self.done[at].len() && next < said.len() {
                        self.leaders[at].begin(next % 2 == 1, said[next][at]);
                        self.begun[at] += 1;
                    }
                }
                _ if self.flying.is_empty() => {}
                _ => {
                    let place = choice as usize / 8 % self.flying.len();
                    let (to, word) = self.flying.swap_remove(place);
                    assert!(self.leaders[to].receive(word), "a word came twice or early");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn all_leaders_learn_what_all_said(
            count in 1_usize..14,
            seeds in proptest::collection::vec(names(), 14 * 6),
            choices in proptest::collection::vec(any::<u32>(), 0..600),
            wanted in 1_usize..6,
        ) {
            let said: Vec<Vec<Name>> =
                seeds.chunks(14).take(wanted).map(|names| names[..count].to_vec()).collect();
            let leaders = vec![Dissemination::new(u32::try_from(count).expect("few")); count];
            let (begun, done, flying) = (vec![0; count], vec![Vec::new(); count], Vec::new());
            let written = HashMap::new();
            let mut world = World { leaders, begun, done, flying, written };
            let check = |world: &World| {
                for (at, done) in world.done.iter().enumerate() {
                    // Nobody passes before everybody has come.
                    let least = world.begun.iter().min().copied().unwrap_or(0);
                    assert!(done.len() <= least, "leader {at} has passed {} of {least}", done.len());
                    for (number, name) in done.iter().enumerate() {
                        let all = said[number].iter().fold(Name::Anonymous, |a, b| a.merge(*b));
                        assert_eq!(*name, all);
                    }
                }
            };
            for choice in choices {
                world.step(&said, choice);
                check(&world);
            }
            // However it began, it ends when everybody goes on.
            for turn in 0..100_000_u32 {
                if world.done.iter().all(|done| done.len() == wanted) {
                    break;
                }
                world.step(&said, turn / 8 * 8 + [1, 3, 4][turn as usize % 3]);
                check(&world);
            }
            prop_assert!(world.done.iter().all(|done| done.len() == wanted));
            prop_assert!(world.flying.is_empty());
        }

        #[test]
        fn words_survive_the_wire(odd: bool, round in 0..MAX_ROUNDS, name in names()) {
            let word = Word { odd, round, name };
            prop_assert_eq!(Word::decode(word.encode()), Some(word));
        }

        #[test]
        fn whatever_arrives_is_looked_at(words: [i32; 2], count in 1_u32..100) {
            if let Some(word) = Word::decode(words) {
                let mut leader = Dissemination::new(count);
                let known = word.round < rounds(count);
                prop_assert_eq!(leader.receive(word), known);
                prop_assert!(!leader.receive(word));
            }
        }
    }
}
