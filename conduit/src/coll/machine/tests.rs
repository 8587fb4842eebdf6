//! A team in one process whose messages arrive in any order.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::coll::hierarchy;
use crate::coll::places::Places;
use crate::coll::schedule::{ToAll, Tree};

/// Elements of this many bytes are lists of ranks, one for each byte; combining is concatenation
/// into a hash, which tells every other order.
fn join(left: u64, right: u64) -> u64 {
    // Associative, not commutative: (factor, sum) of `x -> factor x + sum` modulo a prime.
    const PRIME: u64 = 4_294_967_291;
    let ((a, b), (c, d)) = ((left >> 32, left & 0xffff_ffff), (right >> 32, right & 0xffff_ffff));
    let (factor, sum) = (a * c % PRIME, (b * c % PRIME + d) % PRIME);
    factor << 32 | sum
}

fn own(rank: u32, at: usize) -> u64 {
    let sum = u64::from(rank) * 7919 + at as u64 * 31 + 1;
    (u64::from(rank) + 2) << 32 | sum
}

struct Bytes {
    work: Vec<u8>,
    own: Option<Arc<Vec<u8>>>,
    /// Ranges whose contribution is in place.
    begun: usize,
    anywhere: bool,
}

impl Memory for Bytes {
    fn begin(&mut self, range: Range<usize>) {
        self.begun += range.len();
        if let Some(own) = &self.own {
            self.work[range.clone()].copy_from_slice(&own[range]);
        }
    }

    fn read(&self, range: Range<usize>) -> &[u8] {
        &self.work[range]
    }

    fn original(&self, range: Range<usize>) -> &[u8] {
        self.own.as_ref().map_or(&self.work[range.clone()], |own| &own[range])
    }

    fn room(&mut self, range: Range<usize>) -> &mut [u8] {
        &mut self.work[range]
    }

    fn combines_anywhere(&self) -> bool {
        self.anywhere
    }

    fn combine(&mut self, range: Range<usize>, data: &mut [u8], left: bool) {
        for (mine, other) in self.work[range].chunks_exact_mut(8).zip(data.chunks_exact(8)) {
            let (a, b) = (word(mine), word(other));
            let joined = if left { join(b, a) } else { join(a, b) };
            mine.copy_from_slice(&joined.to_le_bytes());
        }
    }
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("8 bytes"))
}

fn words(rank: u32, count: usize) -> Vec<u8> {
    (0..count).flat_map(|at| own(rank, at).to_le_bytes()).collect()
}

/// What a member has: its machine and memory, and whether it is done.
struct Member {
    machine: Option<Machine>,
    memory: Bytes,
    /// What came before it began.
    early: Vec<(u32, Mark, Vec<u8>)>,
    done: bool,
}

/// From, to, what.
type Flight = (u32, u32, Mark, Vec<u8>);
/// Who lends what, by number.
type Loans = Vec<(u32, u64, Vec<u8>)>;

struct Flights<'a> {
    flying: &'a mut Vec<Flight>,
    lent: &'a mut Loans,
    from: u32,
    sent: usize,
    refuse: bool,
}

impl Others for Flights<'_> {
    fn send(&mut self, packet: Packet<'_>) -> bool {
        self.sent += 1;
        if self.refuse && self.sent > 1 {
            return false;
        }
        self.flying.push((self.from, packet.to, packet.place, packet.bytes.to_vec()));
        true
    }

    fn lend(&mut self, bytes: &[u8]) -> Option<Lent> {
        let word = self.lent.last().map_or(0, |(_, word, _)| word + 1);
        self.lent.push((self.from, word, bytes.to_vec()));
        Some(Lent(word))
    }

    fn give_back(&mut self, Lent(word): Lent, len: usize) {
        let at = self.lent.iter().position(|(_, other, _)| *other == word).expect("lent");
        let (by, _, bytes) = self.lent.remove(at);
        assert_eq!((by, bytes.len()), (self.from, len));
    }

    fn take(&mut self, from: u32, Lent(word): Lent, into: &mut [u8]) -> bool {
        let found = self.lent.iter().find(|(by, other, _)| (*by, *other) == (from, word));
        found.is_some_and(|(_, _, bytes)| {
            into.copy_from_slice(bytes);
            true
        })
    }
}

struct Net {
    members: Vec<Member>,
    flying: Vec<Flight>,
    lent: Loans,
    seed: u64,
}

impl Net {
    fn random(&mut self, below: usize) -> usize {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(self.seed >> 33).expect("31 bits") % below
    }

    fn advance(&mut self, at: usize) {
        let refuse = self.random(4) == 0;
        let member = &mut self.members[at];
        let Some(machine) = &mut member.machine else { return };
        let from = u32::try_from(at).expect("few");
        let mut others =
            Flights { flying: &mut self.flying, lent: &mut self.lent, from, sent: 0, refuse };
        let state = machine.advance(&mut member.memory, &mut others);
        member.done = state == State::Done;
    }

    fn deliver(&mut self, at: usize) {
        let (from, to, mark, mut bytes) = self.flying.swap_remove(at);
        let member = &mut self.members[to as usize];
        assert!(!member.done, "a message to who is done");
        match &mut member.machine {
            None => member.early.push((from, mark, bytes)),
            Some(machine) => {
                machine.arrive(from, mark, &mut bytes, &mut member.memory).expect("a message");
            }
        }
    }

    /// Runs until all are done; `make` the machine of a rank, at any time.
    fn run(mut self, make: impl Fn(u32) -> Machine) -> Vec<Vec<u8>> {
        while self.members.iter().any(|member| !member.done) {
            let at = self.random(self.members.len());
            if self.members[at].machine.is_none() {
                let mut machine = make(u32::try_from(at).expect("few"));
                let member = &mut self.members[at];
                for (from, mark, mut bytes) in std::mem::take(&mut member.early) {
                    machine.arrive(from, mark, &mut bytes, &mut member.memory).expect("a message");
                }
                member.machine = Some(machine);
            }
            if !self.members[at].done {
                self.advance(at);
            }
            while !self.flying.is_empty() && self.random(3) > 0 {
                let at = self.random(self.flying.len());
                self.deliver(at);
            }
        }
        assert!(self.flying.is_empty(), "messages that nobody waits for");
        assert!(self.lent.is_empty(), "memory that is lent for ever");
        self.members.into_iter().map(|member| member.memory.work).collect()
    }
}

fn net(size: u32, seed: u64, own: impl Fn(u32) -> Option<Vec<u8>>, len: usize) -> Net {
    let member = |rank| Member {
        machine: None,
        memory: Bytes {
            work: vec![0xee; len],
            own: own(rank).map(Arc::new),
            begun: 0,
            anywhere: seed.is_multiple_of(2),
        },
        early: Vec::new(),
        done: false,
    };
    let members = (0..size).map(member).collect();
    Net { members, flying: Vec::new(), lent: Vec::new(), seed }
}

/// Numbers of 8-byte elements: few, some lanes, some windows.
fn counts() -> impl Strategy<Value = usize> {
    prop_oneof![8 => 1_usize..40, 2 => 4000_usize..10_000, 1 => Just(140_000_usize)]
}

fn expected(size: u32, count: usize) -> Vec<u8> {
    let of = |at| (1..size).fold(own(0, at), |left, rank| join(left, own(rank, at)));
    (0..count).flat_map(|at| of(at).to_le_bytes()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn a_broadcast_reaches_all(
        size in 1_u32..41, root: u32, count in counts(), seed: u64, binary: bool,
    ) {
        let (root, size) = if count > 10_000 { (root % 5, 5) } else { (root % size, size) };
        let own = |rank| (rank == root).then(|| words(rank, count));
        let tree = if binary { Tree::Binary } else { Tree::Binomial };
        let layout = Layout::cut(count * 8, 1, None);
        let make = |rank| Machine::new(schedule::broadcast(rank, size, root, tree), layout);
        for work in net(size, seed, own, count * 8).run(make) {
            prop_assert!(work == words(root, count));
        }
    }

    #[test]
    fn a_reduction_keeps_the_order_of_the_ranks(
        size in 1_u32..41, root: u32, count in counts(), seed: u64, element in 1_usize..4,
    ) {
        let (root, size) = if count > 10_000 { (root % 5, 5) } else { (root % size, size) };
        let own = |rank| Some(words(rank, count));
        let layout = Layout::cut(count * 8, 8 * element, None);
        let to_one = |rank| Machine::new(schedule::reduce_to_one(rank, size, root, true), layout);
        let works = net(size, seed, own, count * 8).run(to_one);
        prop_assert!(works[root as usize] == expected(size, count));
        for how in [ToAll::Doubling, ToAll::ThroughOne] {
            let to_all = |rank| Machine::new(schedule::reduce_to_all(rank, size, how), layout);
            for work in net(size, seed, own, count * 8).run(to_all) {
                prop_assert!(work == expected(size, count));
            }
        }
    }

    #[test]
    fn a_reduction_without_order_has_every_operand_once(
        size in 1_u32..41, root: u32, count in 1_usize..20, seed: u64,
    ) {
        let root = root % size;
        let layout = Layout::cut(count * 8, 8, None);
        let to_one = |rank| Machine::new(schedule::reduce_to_one(rank, size, root, false), layout);
        let own_words = |rank| Some(words(rank, count));
        let works = net(size, seed, own_words, count * 8).run(to_one);
        // The ranks from behind the root on, once around.
        let order = |at| (1..size).fold(own((root + 1) % size, at), |left, step| {
            join(left, own((root + 1 + step) % size, at))
        });
        let expected: Vec<u8> = (0..count).flat_map(|at| order(at).to_le_bytes()).collect();
        prop_assert!(works[root as usize] == expected);
    }

    #[test]
    fn neighbourhoods_do_what_flat_teams_do(
        numbers in proptest::collection::vec(0_u32..5, 1..24), root: u32, count in counts(), seed: u64,
        lends: bool, ordered: bool,
    ) {
        let size = u32::try_from(numbers.len().min(if count > 10_000 { 5 } else { 24 })).expect("few");
        let root = root % size;
        let numbers = &numbers[..size as usize];
        let places: Vec<_> = numbers.iter().map(|mine| Places::new(*mine, numbers.iter().copied())).collect();
        let member = |rank| hierarchy::Member { rank, size, places: &places[rank as usize] };
        let layout = Layout::cut(count * 8, 8, (places[0].count() < 2).then_some(size));
        let only_root = |rank| (rank == root).then(|| words(rank, count));
        for tree in [Tree::Binomial, Tree::Binary] {
            let down = |rank| Machine::new(member(rank).broadcast(root, tree, lends), layout);
            for work in net(size, seed, only_root, count * 8).run(down) {
                prop_assert!(work == words(root, count));
            }
        }
        let own = |rank| Some(words(rank, count));
        let one = |rank| Machine::new(member(rank).reduce_to_one(root, ordered), layout);
        let works = net(size, seed, own, count * 8).run(one);
        prop_assert!(!ordered || works[root as usize] == expected(size, count));
        for how in [ToAll::Doubling, ToAll::ThroughOne] {
            let all = |rank| Machine::new(member(rank).reduce_to_all(how, ordered, lends), layout);
            let works = net(size, seed, own, count * 8).run(all);
            prop_assert!(!ordered || works[0] == expected(size, count));
            prop_assert!(works.windows(2).all(|pair| pair[0] == pair[1]));
        }
    }

    #[test]
    fn blocks_are_gathered_by_all(size in 1_u32..41, block in 1_usize..200, seed: u64) {
        let own = |rank: u32| {
            let mut work = vec![0; block * size as usize];
            work[..block].fill(u8::try_from(rank).expect("few"));
            Some(work)
        };
        let make = |rank| Machine::new(schedule::gather_all(rank, size), Layout::whole(block));
        let works = net(size, seed, own, block * size as usize).run(make);
        for (rank, work) in works.iter().enumerate() {
            for (step, block) in work.chunks_exact(block).enumerate() {
                let of = u8::try_from((rank + step) % size as usize).expect("few");
                prop_assert!(block.iter().all(|byte| *byte == of));
            }
        }
    }

    #[test]
    fn nobody_passes_a_barrier_before_all_have_come(size in 2_u32..41, late: u32, seed: u64) {
        let late = late % size;
        let make = |rank| Machine::new(schedule::barrier(rank, size), Layout::whole(0));
        let mut net = net(size, seed, |_| None, 0);
        for at in 0..size as usize {
            net.members[at].machine = (at != late as usize).then(|| make(u32::try_from(at).expect("few")));
        }
        for _ in 0..40 * size {
            let at = net.random(size as usize);
            net.advance(at);
            while !net.flying.is_empty() {
                let at = net.random(net.flying.len());
                net.deliver(at);
            }
            prop_assert!(net.members.iter().all(|member| !member.done));
        }
        for work in net.run(make) {
            prop_assert!(work.is_empty());
        }
    }

    #[test]
    fn whatever_arrives_is_looked_at(
        from in 0_u32..8, tag in 0_u8..70, lane in 0_u32..4, at in 0_u64..200_000, len in 0_usize..70_000,
    ) {
        let (count, layout) = (10_000, Layout::cut(80_000, 8, None));
        let steps = schedule::reduce_to_all(3, 7, ToAll::ThroughOne);
        let mut machine = Machine::new(steps, layout);
        let mut memory = Bytes { work: vec![0; count * 8], own: None, begun: 0, anywhere: at.is_multiple_of(2) };
        let mark = Mark { tag, lane, at };
        if machine.arrive(from, mark, &mut vec![1; len], &mut memory).is_ok() && len > 0 {
            let again = machine.arrive(from, mark, &mut vec![1; len], &mut memory);
            prop_assert!(again.is_err() || 2 * len <= 32 << 10);
        }
    }
}

#[test]
fn an_element_larger_than_a_message_goes_in_one_lane() {
    let layout = Layout::cut(300_000 * 3, 300_000, Some(3));
    assert_eq!((layout.lane, layout.lanes, layout.lends()), (300_000, 3, false));
    let small = Layout::cut(10, 8, None);
    assert_eq!((small.lane, small.lanes, small.windows(), small.lends()), (32 << 10, 1, 1, false));
    assert_eq!(Layout::cut(1 << 20, 24, None).lane, 32_760);
    let long = Layout::cut(100 << 20, 1, Some(16));
    assert_eq!((long.lane, long.window, long.lends()), (LENT, 4, true));
}
