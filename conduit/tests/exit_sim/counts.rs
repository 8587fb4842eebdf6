//! How many messages coordination takes.

use crate::exit::machine::{Code, Millis, Timeouts};
use crate::world::{Call, End, Faults, Plan, World};

fn plan(size: u32, callers: std::ops::Range<u32>) -> Plan {
    Plan {
        seed: 7,
        size,
        each: 1,
        control: false,
        timeouts: Timeouts::new(Millis(4_000)),
        calls: callers.map(|rank| Call { at: Millis(0), rank, code: Code(rank + 1) }).collect(),
        faults: Faults::default(),
        delay_max: 1,
        drop_reduction: false,
    }
}

#[test]
fn a_non_collective_exit_takes_two_messages_per_rank() {
    for size in [2, 3, 8, 17, 64] {
        for caller in [0, 1, size - 1] {
            let mut world = World::new(plan(size, caller..caller + 1));
            world.run();
            assert_eq!(world.coordination, 2 * u64::from(size), "{size} ranks, {caller} exits");
            for (rank, node) in world.nodes.iter().enumerate() {
                let code = Code(caller + 1);
                assert_eq!(
                    node.end,
                    Some(End::Own { code, graceful: true }),
                    "rank {rank} of {size}"
                );
                assert_eq!(node.quits, u32::from(rank != caller as usize), "rank {rank} of {size}");
            }
        }
    }
}

#[test]
fn at_worst_all_ranks_stand_for_election() {
    for size in [2, 3, 8, 17, 64] {
        let mut world = World::new(Plan { drop_reduction: true, ..plan(size, 0..size) });
        world.run();
        assert_eq!(world.coordination, 4 * u64::from(size) - 2, "{size} ranks");
        let ends: Vec<_> = world.nodes.iter().map(|node| node.end).collect();
        assert!(
            ends.iter().all(|end| matches!(end, Some(End::Own { graceful: true, .. }))),
            "{ends:?}"
        );
        assert!(ends.windows(2).all(|pair| pair[0] == pair[1]), "{ends:?}");
    }
}

#[test]
fn a_collective_exit_takes_only_the_reduction() {
    for (size, each) in (1..=65).flat_map(|size| [(size, 1), (size, 3), (size, 8), (size, size)]) {
        let mut world = World::new(Plan { each, ..plan(size, 0..size) });
        world.run();
        assert_eq!(world.coordination, 0);
        let leaders = size.div_ceil(each);
        let rounds = u32::BITS - (leaders - 1).leading_zeros();
        let messages = 2 * (size - leaders) + leaders * rounds;
        assert_eq!(world.reductions, u64::from(messages), "{size} ranks in {leaders}");
        let end = Some(End::Own { code: Code(size), graceful: true });
        assert!(world.nodes.iter().all(|node| node.end == end));
    }
}
