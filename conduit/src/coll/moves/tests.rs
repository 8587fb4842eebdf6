//! Members in one process whose messages arrive in any order, with the memory of programs.

use proptest::prelude::*;

use super::super::machine::{Lent, Mark, Others, Packet, State};
use super::super::members::Members;
use super::super::places::Places;
use super::*;

struct Member {
    group: Group,
    task: Option<Task>,
    source: Vec<u8>,
    result: Vec<u8>,
    early: Vec<(u32, Mark, Vec<u8>)>,
    done: bool,
}

fn arrive(task: &mut Task, from: u32, mark: Mark, bytes: &mut [u8]) {
    let machine = &mut task.machine;
    machine.arrive(from, mark, bytes, &mut task.work).expect("a message");
}

/// Bytes between `from` and `to`.
fn fill(from: u32, to: u32, len: usize) -> Vec<u8> {
    let byte =
        |at: usize| (from as usize * 89 + to as usize * 31 + at * 7 + at / 251).to_le_bytes()[0];
    (0..len).map(byte).collect()
}

/// What a member says, of which the network may refuse all but the first message.
struct Flights<'a> {
    flying: &'a mut Vec<(u32, u32, Mark, Vec<u8>)>,
    from: u32,
    refuse: bool,
    sent: usize,
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

    fn lend(&mut self, _: &[u8]) -> Option<Lent> {
        unreachable!("blocks are sent")
    }

    fn give_back(&mut self, _: Lent, _: usize) {}

    fn take(&mut self, _: u32, _: Lent, _: &mut [u8]) -> bool {
        false
    }
}

struct Net {
    members: Vec<Member>,
    flying: Vec<(u32, u32, Mark, Vec<u8>)>,
    seed: u64,
}

impl Net {
    /// `sizes`: bytes of the source and the result of a rank; block `i` of a source is for rank
    /// `i`, or for all when it has one.
    fn new(size: u32, len: usize, seed: u64, sizes: impl Fn(u32) -> (u32, u32)) -> Self {
        let member = |rank| {
            let (blocks, results) = sizes(rank);
            Member {
                group: Group::new(0, Members::all(size), rank, Places::together(1)),
                task: None,
                source: (0..blocks).flat_map(|to| fill(rank, to, len)).collect(),
                result: vec![0xee; results as usize * len],
                early: Vec::new(),
                done: false,
            }
        };
        Self { members: (0..size).map(member).collect(), flying: Vec::new(), seed }
    }

    fn random(&mut self, below: usize) -> usize {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(self.seed >> 33).expect("31 bits") % below
    }

    fn begin(&mut self, at: usize, make: &dyn Fn(&Group, Buffers) -> Task) {
        let member = &mut self.members[at];
        let result = (!member.result.is_empty()).then_some(&mut member.result[..]);
        let mut task = make(&member.group, Buffers::of(Some(&member.source[..]), result));
        for (from, mark, mut bytes) in std::mem::take(&mut member.early) {
            arrive(&mut task, from, mark, &mut bytes);
        }
        member.task = Some(task);
    }

    /// Moves a member on, whose network may be full.
    fn advance(&mut self, at: usize) {
        let refuse = self.random(4) == 0;
        let (member, flying) = (&mut self.members[at], &mut self.flying);
        let (from, Some(task)) = (member.group.rank(), &mut member.task) else { return };
        let machine = &mut task.machine;
        let state = machine.advance(&mut task.work, &mut Flights { flying, from, refuse, sent: 0 });
        member.done = state == State::Done;
    }

    fn deliver(&mut self) {
        let at = self.random(self.flying.len());
        let (from, to, mark, mut bytes) = self.flying.swap_remove(at);
        let member = &mut self.members[to as usize];
        assert!(!member.done, "a message to who is done");
        match &mut member.task {
            None => member.early.push((from, mark, bytes)),
            Some(task) => {
                arrive(task, from, mark, &mut bytes);
            }
        }
    }

    /// The results when all are done.
    fn run(mut self, make: &dyn Fn(&Group, Buffers) -> Task) -> Vec<Vec<u8>> {
        while self.members.iter().any(|member| !member.done) {
            let at = self.random(self.members.len());
            if self.members[at].task.is_none() {
                self.begin(at, make);
            }
            if !self.members[at].done {
                self.advance(at);
            }
            while !self.flying.is_empty() && self.random(3) > 0 {
                self.deliver();
            }
        }
        assert!(self.flying.is_empty(), "messages that nobody waits for");
        self.members.into_iter().map(|member| member.result).collect()
    }
}

/// Bytes of a block: by trees, straight, and with several windows.
fn lens() -> impl Strategy<Value = usize> {
    prop_oneof![6 => 0_usize..300, 2 => 3000_usize..9000, 1 => 60_000_usize..140_000, 1 => Just(1_200_000)]
}

/// What rank `to` has of block `from`, for all of them.
fn all(size: u32, block: impl Fn(u32) -> Vec<u8>) -> Vec<u8> {
    (0..size).flat_map(block).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn every_block_comes_to_its_place(size in 1_u32..27, root: u32, len in lens(), seed: u64) {
        let size = if len > 10_000 { 1 + size % 4 } else { size };
        let root = root % size;
        let of_root = |blocks: u32| move |rank: u32| if rank == root { blocks } else { 0 };
        let net = |sizes: &dyn Fn(u32) -> (u32, u32)| Net::new(size, len, seed, sizes);

        let scattered = net(&|rank| (of_root(size)(rank), 1));
        let scattered = scattered.run(&|group, buffers| Task::scatter(group, root, len, buffers));
        for (rank, result) in (0..).zip(scattered) {
            prop_assert!(result == fill(root, rank, len));
        }
        let gathered = net(&|rank| (1, of_root(size)(rank)));
        let gathered = gathered.run(&|group, buffers| Task::gather(group, root, len, buffers));
        for (rank, result) in (0..).zip(gathered) {
            let expected = if rank == root { all(size, |from| fill(from, 0, len)) } else { Vec::new() };
            prop_assert!(result == expected);
        }
        let gathered = net(&|_| (1, size)).run(&|group, buffers| Task::gather_to_all(group, len, buffers));
        for result in gathered {
            prop_assert!(result == all(size, |from| fill(from, 0, len)));
        }
        let exchanged = net(&|_| (size, size)).run(&|group, buffers| Task::exchange(group, len, buffers));
        for (rank, result) in (0..).zip(exchanged) {
            prop_assert!(result == all(size, |from| fill(from, rank, len)));
        }
    }

    #[test]
    fn a_prefix_has_the_ranks_up_to_its_own_in_order(size in 1_u32..27, count in 1_usize..60, seed: u64) {
        // The leftmost operand gives the first half, the rightmost the second, and the middle a sum.
        let join = |left: &[u8], right: &mut [u8]| {
            for (left, right) in left.chunks_exact(3).zip(right.chunks_exact_mut(3)) {
                assert_eq!(left[2].wrapping_add(1), right[0], "a gap between the operands");
                (right[0], right[1]) = (left[0], left[1].wrapping_add(right[1]));
            }
        };
        let mut net = Net::new(size, 3 * count, seed, |_| (1, 1));
        for (rank, member) in (0_u8..).zip(&mut net.members) {
            member.source = [rank, rank, rank].repeat(count);
        }
        let results = net.run(&|group, buffers| {
            let combine = Combine::Function(Box::new(join));
            let reduction = Reduction { combine, ordered: true, element: 3, len: 3 * count, check: 0 };
            Task::scan(group, reduction, buffers)
        });
        for (rank, result) in (0_u8..).zip(results) {
            prop_assert!(result == [0, (0..=rank).fold(0_u8, u8::wrapping_add), rank].repeat(count));
        }
    }
}
