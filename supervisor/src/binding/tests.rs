//! What ranks are bound to, on machines of several shapes.

use proptest::prelude::*;

use super::*;

/// A machine with so many of each, two threads for each core, numbered as Linux does: first
/// threads first.
fn machine(sockets: usize, nodes: usize, cores: usize) -> Topology {
    let all = sockets * nodes * cores;
    let cpu = |number: usize| {
        let core = number % all;
        let id = |value: usize| i64::try_from(value).expect("small");
        Cpu {
            number,
            core: (0, id(core % (nodes * cores))),
            numa: id(core / cores),
            socket: id(core / (nodes * cores)),
        }
    };
    Topology::of((0..2 * all).map(cpu).collect())
}

fn binding(part: Part, each: u32, spread: Option<(Part, Option<u32>)>) -> Binding {
    let spread = spread.map(|(over, each)| Spread { over, each });
    Binding { part, each, spread, ..Binding::default() }
}

fn text(sets: Result<Vec<Vec<usize>>, BindingError>) -> String {
    match sets {
        Ok(sets) => sets.iter().map(|set| ranges(set)).collect::<Vec<_>>().join(" "),
        Err(error) => error.to_string(),
    }
}

#[test]
fn ranks_are_bound_to_parts() {
    // Sockets 0-3,8-11 and 4-7,12-15; each with two NUMA nodes of two cores.
    let host = machine(2, 2, 2);
    for (binding, ranks, expected) in [
        (binding(Part::Cpu, 2, None), 3, "0-1 2-3 4-5"),
        (binding(Part::Core, 1, None), 3, "0,8 1,9 2,10"),
        (binding(Part::Core, 2, None), 2, "0,8,1,9 2,10,3,11"),
        (binding(Part::Numa, 1, None), 4, "0-1,8-9 2-3,10-11 4-5,12-13 6-7,14-15"),
        (binding(Part::Socket, 1, None), 3, "0-3,8-11 0-3,8-11 4-7,12-15"),
        (binding(Part::Socket, 1, Some((Part::Socket, None))), 3, "0-3,8-11 4-7,12-15 0-3,8-11"),
        (binding(Part::Core, 1, Some((Part::Socket, None))), 4, "0,8 4,12 1,9 5,13"),
        (binding(Part::Core, 2, Some((Part::Socket, None))), 3, "0,8,1,9 4,12,5,13 2,10,3,11"),
        (binding(Part::Core, 1, Some((Part::Socket, Some(3)))), 4, "0,8 1,9 2,10 4,12"),
        (binding(Part::Core, 1, Some((Part::Numa, None))), 5, "0,8 2,10 4,12 6,14 1,9"),
        (binding(Part::Numa, 1, Some((Part::Socket, None))), 3, "0-1,8-9 4-5,12-13 2-3,10-11"),
        (binding(Part::Socket, 1, Some((Part::Numa, None))), 3, "0-3,8-11 0-3,8-11 4-7,12-15"),
        (binding(Part::Cpu, 1, Some((Part::Core, Some(2)))), 3, "0 8 1"),
        (binding(Part::Core, 1, Some((Part::Core, Some(2)))), 3, "0,8 0,8 1,9"),
        (Binding::default(), 100, ""),
    ] {
        assert_eq!(text(binding.sets(&host, ranks)), expected, "{binding:?}");
    }
}

#[test]
fn what_is_not_there_is_refused() {
    let host = machine(2, 1, 2);
    for (binding, ranks, expected) in [
        (
            binding(Part::Core, 2, None),
            3,
            "3 ranks need 6 cores of their own, but 4 cores may be used (0-7)",
        ),
        (
            binding(Part::Core, 9, None),
            1,
            "1 rank needs 9 cores of their own, but 4 cores may be used (0-7)",
        ),
        (
            binding(Part::Core, 1, Some((Part::Socket, None))),
            5,
            "the socket of local rank 4 has no 1 core left for it (0-7 may be used)",
        ),
        (
            binding(Part::Core, 1, Some((Part::Socket, Some(3)))),
            3,
            "the socket of local rank 2 has no 1 core left for it (0-7 may be used)",
        ),
        (
            binding(Part::Socket, 1, Some((Part::Socket, Some(2)))),
            5,
            "5 ranks do not fit: 2 to each socket, with 2 sockets that may be used, are 4",
        ),
        (
            Binding { no_oversubscribe: true, ..Binding::default() },
            5,
            "5 ranks, but 4 cores may be used (0-7)",
        ),
    ] {
        assert_eq!(text(binding.sets(&host, ranks)), expected, "{binding:?}");
    }
    let much = binding(Part::Cpu, u32::MAX, None);
    assert!(matches!(much.sets(&host, u32::MAX), Err(BindingError::TooFew { .. })));
}

#[test]
fn pictures() {
    let host = machine(2, 2, 2);
    let shown = |binding: Binding, ranks: u32| {
        let sets = binding.sets(&host, ranks).expect("fits");
        let ranks: Vec<_> = (0..).zip(sets.iter().map(Vec::as_slice)).collect();
        picture(&host, &ranks)
    };
    assert_eq!(
        shown(binding(Part::Core, 1, None), 5),
        ["socket 0: [0] [1] | [2] [3]", "socket 1: [4] [.] | [.] [.]"]
    );
    assert_eq!(
        shown(binding(Part::Socket, 1, None), 6),
        ["socket 0: [0-2] [0-2] | [0-2] [0-2]", "socket 1: [3-5] [3-5] | [3-5] [3-5]"]
    );
    assert_eq!(
        shown(binding(Part::Cpu, 1, None), 9),
        ["socket 0: [0/8] [1/.] | [2/.] [3/.]", "socket 1: [4/.] [5/.] | [6/.] [7/.]"]
    );
}

proptest! {
    #[test]
    fn sets_are_of_the_machine_and_disjoint_where_that_is_said(
        shape in (1usize..3, 1usize..3, 1usize..5),
        part in prop_oneof![Just(Part::Cpu), Just(Part::Core), Just(Part::Numa), Just(Part::Socket)],
        over in proptest::option::of((
            prop_oneof![Just(Part::Core), Just(Part::Numa), Just(Part::Socket)],
            proptest::option::of(1u32..5),
        )),
        each in 1u32..4,
        ranks in 1u32..40,
        allowed in proptest::collection::vec(any::<bool>(), 64),
    ) {
        let all = machine(shape.0, shape.1, shape.2);
        let cpus = all.cpus().iter().filter(|cpu| allowed[cpu.number % 64]).copied().collect();
        let host = Topology::of(cpus);
        let each = if part <= Part::Core { each } else { 1 };
        let Ok(sets) = binding(part, each, over).sets(&host, ranks) else { return Ok(()) };
        if host.cpus().is_empty() { return Ok(()) }
        prop_assert_eq!(sets.len(), ranks as usize);
        let known: Vec<usize> = host.cpus().iter().map(|cpu| cpu.number).collect();
        prop_assert!(sets.iter().all(|set| !set.is_empty() && set.iter().all(|cpu| known.contains(cpu))));
        let exclusive = part <= Part::Core && over.is_none_or(|(over, each)| part < over || (part == over && each.is_none()));
        let mut every: Vec<usize> = sets.concat();
        let count = every.len();
        every.sort_unstable();
        every.dedup();
        prop_assert!(!exclusive || every.len() == count, "a cpu is used twice");
    }
}
