//! Atomic domains: every operation on every type against a model, from neighbours and remote ranks,
//! and under contention.

#[path = "shared/harness.rs"]
mod harness;

use gasnet_ibv::{
    AtomicDomain, AtomicOp, AtomicOps, AtomicType, BarrierFlags, Client, DataType, Error, Flags,
    Mode, Operations, Outcome, Par, Rank, Seq, Settings,
};
use harness::{Placement, everywhere, job, job_at};

const PAGE: u64 = 4096;

fn meet<M: Mode>(client: &Client<M>) {
    client.barrier(0, BarrierFlags::ANONYMOUS).expect("barrier");
}

/// A type with values that show its rules, and what each operation makes of a word.
trait Modelled: AtomicType {
    const VALUES: [Self; 4];

    fn model(op: AtomicOp, old: Self, operands: [Self; 2]) -> Self;
}

macro_rules! common {
    ($op:ident, $old:ident, $a:ident, $b:ident) => {
        match $op {
            AtomicOp::Min | AtomicOp::FMin => {
                if $old < $a {
                    $old
                } else {
                    $a
                }
            }
            AtomicOp::Max | AtomicOp::FMax => {
                if $old > $a {
                    $old
                } else {
                    $a
                }
            }
            AtomicOp::Set | AtomicOp::Swap => $a,
            AtomicOp::Cas | AtomicOp::FCas if $old == $a => $b,
            _ => $old,
        }
    };
}

macro_rules! modelled {
    ($($type:ident: [$($value:expr),*], $add:expr, $sub:expr, $mul:expr, $bits:expr;)*) => {$(
        impl Modelled for $type {
            const VALUES: [Self; 4] = [$($value),*];

            fn model(op: AtomicOp, old: Self, [a, b]: [Self; 2]) -> Self {
                use AtomicOp::*;
                const ONE: $type = 1 as $type;
                let [add, sub, mul]: [fn($type, $type) -> $type; 3] = [$add, $sub, $mul];
                let bits: fn(AtomicOp, $type, $type) -> $type = $bits;
                match op {
                    Add | FAdd => add(old, a),
                    Sub | FSub => sub(old, a),
                    Mult | FMult => mul(old, a),
                    Inc | FInc => add(old, ONE),
                    Dec | FDec => sub(old, ONE),
                    And | FAnd | Or | FOr | Xor | FXor => bits(op, old, a),
                    _ => common!(op, old, a, b),
                }
            }
        }
    )*};
}

macro_rules! bitwise {
    () => {
        |op, old, a| match op {
            AtomicOp::And | AtomicOp::FAnd => old & a,
            AtomicOp::Or | AtomicOp::FOr => old | a,
            _ => old ^ a,
        }
    };
}

modelled! {
    i32: [-1, 7, i32::MIN, i32::MAX], i32::wrapping_add, i32::wrapping_sub, i32::wrapping_mul,
        bitwise!();
    u32: [0, 7, u32::MAX, 0x8000_0001], u32::wrapping_add, u32::wrapping_sub, u32::wrapping_mul,
        bitwise!();
    i64: [-1, 7, i64::MIN, i64::MAX], i64::wrapping_add, i64::wrapping_sub, i64::wrapping_mul,
        bitwise!();
    u64: [0, 7, u64::MAX, 1 << 63 | 5], u64::wrapping_add, u64::wrapping_sub, u64::wrapping_mul,
        bitwise!();
    f32: [-1.5, 0.25, 3.0e30, -0.0], |x, y| x + y, |x, y| x - y, |x, y| x * y, |_, old, _| old;
    f64: [-1.5, 0.25, 3.0e300, -0.0], |x, y| x + y, |x, y| x - y, |x, y| x * y, |_, old, _| old;
}

/// Every operation with every pair of values at one word of `rank` that only this rank uses.
fn against_the_model<T: Modelled, M: Mode>(client: &Client<M>, rank: Rank) {
    let exist = T::DATA_TYPE.operations();
    let words: AtomicDomain<'_, T, M> = client.team().atomic_domain(exist).expect("a domain");
    let near = client.neighbours().contains(&rank);
    let at = 64 * u64::from(client.rank().0) + 8;
    for op in AtomicOp::ALL.into_iter().filter(|op| exist.contains(op.set())) {
        for (turn, old) in T::VALUES.into_iter().enumerate() {
            // All pairs would take long over the network.
            let few = if near { 0..4 } else { turn..turn + 2 };
            for first in few.map(|at| T::VALUES[at % 4]) {
                let operands = [first, T::VALUES[1]];
                words.set(rank, at, old).expect("set");
                let gave = words.apply(rank, at, op, operands).expect("apply");
                let place = (op, old, first);
                assert_eq!(gave, op.fetches().then_some(old), "{place:?}");
                let expected = T::model(op, old, operands);
                assert_eq!(words.get(rank, at).expect("get"), expected, "{place:?}");
            }
        }
    }
}

#[test]
fn every_operation_does_what_the_model_says() {
    let run = |client: &Client<Seq>| {
        client.attach_segment(PAGE).expect("attach");
        meet(client);
        for rank in (0..client.size()).map(Rank) {
            against_the_model::<i32, Seq>(client, rank);
            against_the_model::<u32, Seq>(client, rank);
            against_the_model::<i64, Seq>(client, rank);
            against_the_model::<u64, Seq>(client, rank);
            against_the_model::<f32, Seq>(client, rank);
            against_the_model::<f64, Seq>(client, rank);
        }
        meet(client);
    };
    job::<Seq>(3, &Settings::default(), run);
    job_at::<Seq>(Placement::Pairs, 3, &Settings::default(), run);
}

/// Each operation that adapters have, at a word of `rank` that only this rank uses.
fn offloaded<T: Modelled>(client: &Client<Seq>, rank: Rank, ops: AtomicOps) {
    let words = client.team().atomic_domain::<T>(ops).expect("a domain");
    let at = 2048 + 64 * u64::from(client.rank().0) + 8;
    for op in AtomicOp::ALL.into_iter().filter(|op| ops.contains(op.set())) {
        for old in T::VALUES {
            for first in [old, T::VALUES[1]] {
                let operands = [first, T::VALUES[2]];
                let before = words.get(rank, at).expect("get");
                words.compare_and_set(rank, at, before, old).expect("set");
                let gave = words.apply(rank, at, op, operands).expect("apply");
                assert_eq!(gave, op.fetches().then_some(old), "{op} {old:?}");
                let expected = T::model(op, old, operands);
                assert_eq!(words.get(rank, at).expect("get"), expected, "{op} {old:?} {first:?}");
            }
        }
    }
}

#[test]
fn adapters_do_what_the_model_says() {
    let compare = AtomicOps::GET | AtomicOps::CAS | AtomicOps::FCAS;
    let add = AtomicOps::ADD | AtomicOps::SUB | AtomicOps::INC | AtomicOps::DEC;
    let fetch = AtomicOps::FADD | AtomicOps::FSUB | AtomicOps::FINC | AtomicOps::FDEC;
    everywhere::<Seq>(3, &Settings::default(), |client| {
        client.attach_segment(PAGE).expect("attach");
        meet(client);
        for rank in (0..client.size()).map(Rank) {
            offloaded::<i64>(client, rank, compare | add | fetch);
            offloaded::<u64>(client, rank, compare | add | fetch);
            // Words change their type.
            let words = client.team().atomic_domain::<u64>(compare).expect("a domain");
            let at = 2048 + 64 * u64::from(client.rank().0) + 8;
            let last = words.get(rank, at).expect("get");
            words.compare_and_set(rank, at, last, 0).expect("set");
            offloaded::<f64>(client, rank, compare);
            let last = words.get(rank, at).expect("get");
            words.compare_and_set(rank, at, last, 0).expect("set");
        }
        meet(client);
    });
}

/// The owner of the word does not poll: only its adapter can have done it.
#[test]
fn an_adapter_needs_nobody_at_the_target() {
    let done = std::sync::Barrier::new(2);
    job_at::<Seq>(Placement::Apart, 2, &Settings::default(), |client| {
        client.attach_segment(PAGE).expect("attach");
        let team = client.team();
        let words = team.atomic_domain::<u64>(AtomicOps::FADD | AtomicOps::FCAS).expect("a domain");
        meet(client);
        if client.rank() == Rank(0) {
            for turn in 0..20 {
                assert_eq!(words.fetch_add(Rank(1), 8, 2).expect("fetch_add"), 2 * turn);
            }
            assert_eq!(words.compare_and_swap(Rank(1), 8, 40, 7).expect("swap"), 40);
            // More than fit at once, without waiting for room.
            let sent = client.scope(|scope| {
                let mut sent = 0;
                while sent < 400 {
                    let (at, now) = ((Rank(1), 16), Flags::IMMEDIATE);
                    let one = scope.atomic_nbi(&words, at, AtomicOp::FAdd, [1, 0], now);
                    match one.expect("fetch_add") {
                        Outcome::Sent => sent += 1,
                        Outcome::NotSent => client.poll().expect("poll"),
                    }
                }
                sent
            });
            assert_eq!(words.fetch_add(Rank(1), 16, 0).expect("it"), sent.expect("the scope"));
        }
        let _all = done.wait();
        assert_eq!(words.fetch_add(Rank(1), 8, 0).expect("fetch_add"), 7);
        meet(client);
    });
}

/// Tickets of all threads on a word of each rank, through what each way there is.
#[test]
fn adapters_and_processors_mix() {
    everywhere::<Par>(3, &Settings::default(), |client| {
        client.attach_segment(PAGE).expect("attach");
        meet(client);
        let team = client.team();
        let ops = AtomicOps::FADD | AtomicOps::FCAS | AtomicOps::GET;
        let words = team.atomic_domain::<u64>(ops).expect("a domain");
        let run = || {
            for _ in 0..50 {
                for rank in (0..client.size()).map(Rank) {
                    words.fetch_add(rank, 0, 1).expect("fetch_add");
                    let mut seen = words.get(rank, 8).expect("get");
                    loop {
                        let old = words.compare_and_swap(rank, 8, seen, seen + 5).expect("cas");
                        if old == seen {
                            break;
                        }
                        seen = old;
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(run);
            run();
        });
        meet(client);
        assert_eq!(words.get(client.rank(), 0).expect("get"), 300);
        assert_eq!(words.get(client.rank(), 8).expect("get"), 1500);
        meet(client);
    });
}

#[test]
fn many_are_in_flight_with_and_without_events() {
    everywhere::<Seq>(3, &Settings::default(), |client| {
        client.attach_segment(PAGE).expect("attach");
        meet(client);
        let ops = AtomicOps::FADD | AtomicOps::INC | AtomicOps::SET | AtomicOps::GET;
        let words = client.team().atomic_domain::<u64>(ops).expect("a domain");
        let right = Rank((client.rank().0 + 1) % 3);
        let seen = client.scope(|scope| -> Result<Vec<u64>, Error> {
            let mut events = vec![];
            for _ in 0..500 {
                let event =
                    scope.atomic_nb(&words, (right, 0), AtomicOp::FAdd, [3, 0], Flags::NONE)?;
                events.push(event.expect("it may wait"));
                let at = (right, 8);
                let _sent = scope.atomic_nbi(&words, at, AtomicOp::Inc, [0; 2], Flags::NONE)?;
            }
            let region = scope.access_region();
            for turn in 0..50 {
                let at = (right, 64 + 8 * turn);
                let _sent = region.atomic(&words, at, AtomicOp::Set, [turn, 0], Flags::NONE)?;
            }
            region.end().wait()?;
            scope.nbi_wait(Operations::RMW)?;
            assert!(scope.nbi_test(Operations::ALL));
            events.into_iter().map(|event| Ok(event.wait()?.value())).collect()
        });
        let mut seen = seen.expect("the scope").expect("operations");
        seen.sort_unstable();
        assert!(seen.iter().zip(0..).all(|(got, turn)| *got == turn * 3), "{seen:?}");
        for turn in 0..50 {
            assert_eq!(words.get(right, 64 + 8 * turn).expect("get"), turn);
        }
        assert_eq!(words.get(right, 8).expect("get"), 500);
        meet(client);
    });
}

#[test]
fn a_call_that_is_not_to_wait_is_sent_in_the_end() {
    let settings = harness::tiny();
    job_at::<Seq>(Placement::Apart, 2, &settings, |client| {
        client.attach_segment(PAGE).expect("attach");
        meet(client);
        let words = client.team().atomic_domain::<u32>(AtomicOps::all()).expect("a domain");
        let peer = Rank(1 - client.rank().0);
        let sent = client.scope(|scope| {
            let mut sent = 0;
            while sent < 400 {
                let now = Flags::IMMEDIATE;
                match scope.atomic_nbi(&words, (peer, 4), AtomicOp::Inc, [0; 2], now) {
                    Ok(Outcome::Sent) => sent += 1,
                    Ok(Outcome::NotSent) => client.poll().expect("poll"),
                    Err(error) => panic!("{error}"),
                }
            }
            sent
        });
        assert_eq!(words.get(peer, 4).expect("get"), sent.expect("the scope"));
        meet(client);
    });
}

/// Odd ranks in descending order: ranks of the domain are those of its team, wherever they are.
#[test]
fn a_domain_of_a_team_names_ranks_of_the_team() {
    everywhere::<Seq>(4, &Settings::default(), |client| {
        client.attach_segment(PAGE).expect("attach");
        meet(client);
        let all = client.team();
        let me = client.rank().0;
        let key = -i32::try_from(me).expect("small");
        let team = all.split((me % 2 == 1).then_some(0), key).expect("split");
        if let Some(team) = team {
            let ops = AtomicOps::FADD | AtomicOps::SET;
            let words = team.atomic_domain::<u64>(ops).expect("a domain");
            let refused = words.set(Rank(2), 0, 1);
            assert!(matches!(refused, Err(Error::RankOutOfRange { size: 2, .. })), "{refused:?}");
            drop(team);
            words.set(Rank(0), 8 * u64::from(me), 30).expect("set");
            client
                .scope(|scope| {
                    let at = (Rank(1), 8 * u64::from(me));
                    let set = scope.atomic_nbi(&words, at, AtomicOp::Set, [10, 0], Flags::NONE);
                    assert_eq!(set.expect("set"), Outcome::Sent);
                    scope.nbi_wait(Operations::ALL).expect("wait");
                })
                .expect("the scope");
        }
        meet(client);
        // Rank 3 is rank 0 of the team, rank 1 its rank 1, the others are none of it.
        let own = all.atomic_domain::<u64>(AtomicOps::GET).expect("a domain");
        let seen = [1, 3].map(|by| own.get(client.rank(), 8 * by).expect("get"));
        let expected = if me == 3 { 30 } else { 10 * u64::from(me % 2) };
        assert_eq!(seen, [expected; 2], "rank {me}");
        meet(client);
    });
}

#[test]
fn what_cannot_be_has_a_name() {
    everywhere::<Seq>(2, &Settings::default(), |client| {
        let team = client.team();
        let refused = team.atomic_domain::<f32>(AtomicOps::ADD | AtomicOps::FXOR).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "atomic_domain: operation FXOR does not exist for type FLT"
        );
        let words = team.atomic_domain::<u64>(AtomicOps::ADD | AtomicOps::GET).expect("a domain");
        for rank in [Rank(0), Rank(1)] {
            let before = words.get(rank, 0);
            assert!(matches!(before, Err(Error::OutsideSegment { segment: 0, .. })), "{before:?}");
        }
        client.attach_segment(PAGE).expect("attach");
        meet(client);
        for rank in [Rank(0), Rank(1)] {
            let text = words.fetch_add(rank, 0, 1).unwrap_err().to_string();
            assert_eq!(text, "fetch_add: the domain was created for ADD, GET, not for FADD");
            assert!(matches!(
                words.add(rank, 4, 1),
                Err(Error::Misaligned { offset: 4, align: 8, .. })
            ));
            for offset in [PAGE, PAGE + 8, u64::MAX - 7] {
                assert!(matches!(words.add(rank, offset, 1), Err(Error::OutsideSegment { .. })));
            }
            words.add(rank, PAGE - 8, 1).expect("the last word");
        }
        assert!(matches!(words.get(Rank(2), 0), Err(Error::RankOutOfRange { .. })));
        meet(client);
        assert_eq!(words.get(client.rank(), PAGE - 8).expect("get"), 2);
        meet(client);
    });
}

/// All threads of all ranks on the same words of rank 0, each through its own way.
fn contend(client: &Client<Par>, threads: u64, turns: u64) {
    let all = AtomicOps::all();
    let owner = Rank(0);
    let team = client.team();
    let sums = team.atomic_domain::<u64>(all).expect("a domain");
    let floats = team.atomic_domain::<f64>(all.difference(AtomicOps::BITWISE)).expect("a domain");
    let narrow = team.atomic_domain::<i32>(all).expect("a domain");
    let tickets: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let run = |thread: u64| {
            let (sums, floats, narrow) = (&sums, &floats, &narrow);
            move || {
                let me = u64::from(client.rank().0) * threads + thread;
                let mut mine = vec![];
                for turn in 0..turns {
                    mine.push(sums.fetch_add(owner, 0, 1).expect("fetch_add"));
                    floats.add(owner, 8, 0.5).expect("add");
                    narrow
                        .max(owner, 16, i32::try_from(me * turns + turn).expect("small"))
                        .expect("max");
                    sums.xor(owner, 24, 1 << (me % 64)).expect("xor");
                    // A lock-free increment by compare and swap.
                    let mut seen = sums.get(owner, 32).expect("get");
                    loop {
                        let old = sums.compare_and_swap(owner, 32, seen, seen + 2).expect("cas");
                        if old == seen {
                            break;
                        }
                        seen = old;
                    }
                }
                mine
            }
        };
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(run(thread))).collect();
        running.into_iter().map(|thread| thread.join().expect("a thread")).collect()
    });
    for mine in &tickets {
        assert!(mine.is_sorted() && mine.windows(2).all(|pair| pair[0] < pair[1]));
    }
    meet(client);
    let everyone = u64::from(client.size()) * threads;
    let total = everyone * turns;
    assert_eq!(sums.get(owner, 0).expect("get"), total);
    assert_eq!(floats.get(owner, 8).expect("get"), total as f64 / 2.0);
    assert_eq!(narrow.get(owner, 16).expect("get"), i32::try_from(total).expect("small") - 1);
    let odd = if turns % 2 == 1 { (1_u64 << everyone) - 1 } else { 0 };
    assert_eq!(sums.get(owner, 24).expect("get"), odd);
    assert_eq!(sums.get(owner, 32).expect("get"), total * 2);
    meet(client);
}

#[test]
fn neighbours_remote_ranks_and_threads_mix() {
    let settings = Settings::default();
    let run = |client: &Client<Par>| {
        client.attach_segment(PAGE).expect("attach");
        meet(client);
        contend(client, 2, 61);
    };
    job::<Par>(4, &settings, run);
    for placement in [Placement::Pairs, Placement::Cut, Placement::Apart] {
        job_at::<Par>(placement, 4, &settings, run);
    }
}

#[test]
fn types_are_what_their_numbers_say() {
    assert_eq!(<f64 as AtomicType>::DATA_TYPE, DataType::F64);
    assert_eq!(DataType::from_bit(1 << 4), Some(DataType::F32));
}
