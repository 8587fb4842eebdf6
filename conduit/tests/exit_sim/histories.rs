//! Random histories of jobs of 1 to 17 ranks.

use std::time::Instant;

use crate::exit::machine::{Code, Millis, Timeouts};
use crate::world::{Call, End, Faults, Plan, Rng, World};

const HISTORIES: u64 = 100_000;
const THREADS: u64 = 2;

fn faults(rng: &mut Rng, size: u32, control: bool) -> Faults {
    let mut faults =
        Faults { duplicate_permille: rng.below(2) * rng.below(300), ..Faults::default() };
    if rng.chance(500) {
        return faults;
    }
    match rng.below(4) {
        0 => faults.loss_permille = rng.below(400),
        1 => faults.loss_permille = [1, 1000][usize::from(rng.chance(100))],
        _ => {}
    }
    if rng.chance(300) {
        let count = 1 + rng.below(u64::from(size));
        for _ in 0..count {
            let rank = u32::try_from(rng.below(u64::from(size))).expect("small");
            faults.deaths.push((Millis(rng.below(15_000)), rank));
        }
    }
    if rng.chance(200) {
        faults.stuck_flush_permille = rng.below(1001);
    }
    if control && rng.chance(300) {
        faults.agent_death = Some(Millis(rng.below(200)));
    }
    faults
}

/// The plan of one seed.
fn plan(seed: u64) -> Plan {
    let mut rng = Rng(seed);
    let size = 1 + u32::try_from(rng.below(17)).expect("small");
    let each = if rng.chance(300) { 1 } else { 1 + rng.below(u64::from(size)) };
    let each = u32::try_from(each).expect("small");
    let control = rng.chance(500);
    let timeouts = Timeouts::new(Millis(2_000 + u64::from(size) * 250));
    // Without a control tree: some host of another launcher, or none at all.
    let timeouts = if !control && rng.chance(500) { timeouts.deciding() } else { timeouts };
    let skew = [1, 10, 1_000, 10_000][usize::try_from(rng.below(4)).expect("small")];
    let callers = if rng.chance(500) {
        size
    } else {
        1 + u32::try_from(rng.below(u64::from(size))).expect("small")
    };
    let first = u32::try_from(rng.below(u64::from(size))).expect("small");
    let mut calls = Vec::new();
    for index in 0..callers {
        let rank = (first + index) % size;
        for _ in 0..=u64::from(rng.chance(200)) {
            let at = Millis(rng.below(skew));
            let code = Code(u32::try_from(rng.below(256)).expect("small"));
            calls.push(Call { at, rank, code });
        }
    }
    let faults = faults(&mut rng, size, control);
    let delay_max = [1, 4, 50][usize::try_from(rng.below(3)).expect("small")];
    Plan { seed, size, each, control, timeouts, calls, faults, delay_max, drop_reduction: false }
}

/// The largest first code, when the plan is one of exits inside the window with nothing lost.
fn agreed(plan: &Plan) -> Option<Code> {
    let first = plan.calls.iter().map(|call| call.at).min()?;
    let last = (0..plan.size)
        .map(|rank| plan.calls.iter().filter(|call| call.rank == rank).map(|call| call.at).min())
        .collect::<Option<Vec<_>>>()?
        .into_iter()
        .max()?;
    let patience = if plan.control { Millis(15) } else { plan.timeouts.non_collective };
    let rounds = u64::from(u32::BITS - (plan.size.div_ceil(plan.each) - 1).leading_zeros());
    // Up and down the tree of 17 ranks: 3 levels.
    let levels = [0, 2, 4, 6][(1..=3).rev().find(|at| plan.each > [1, 5, 21][at - 1]).unwrap_or(0)];
    let travel = (rounds + levels) * plan.delay_max * 3;
    let stalls = plan.control && last.0 + travel >= plan.timeouts.stall.0;
    let in_window =
        last.0 - first.0 + if plan.control { 0 } else { travel } < patience.0 && !stalls;
    if !plan.faults.none() || !in_window {
        return None;
    }
    let code_of = |rank| {
        // The queue keeps calls of the same time in the order of the plan.
        let calls = plan.calls.iter().filter(|call| call.rank == rank);
        calls.min_by_key(|call| call.at).map(|call| call.code)
    };
    (0..plan.size).filter_map(code_of).max()
}

fn history(seed: u64) -> u64 {
    let plan = plan(seed);
    let agreed = agreed(&plan);
    let mut world = World::new(plan);
    world.run();
    if let Some(code) = agreed {
        for (rank, node) in world.nodes.iter().enumerate() {
            assert_eq!(node.end, Some(End::Own { code, graceful: true }), "rank {rank}");
            assert_eq!(node.quits, 0, "rank {rank}");
        }
    }
    world.trace ^ u64::from(agreed.is_some())
}

#[test]
fn random_histories() {
    let begin = Instant::now();
    let base =
        settings::Env::from_process().text("EXIT_SIM_SEED").and_then(|text| text.parse().ok());
    if let Some(seed) = base {
        eprintln!("{:?}", plan(seed));
        history(seed);
        return;
    }
    let workers = (0..THREADS).map(|worker| {
        std::thread::spawn(move || {
            let mut collective = 0;
            for seed in (worker..HISTORIES).step_by(usize::try_from(THREADS).expect("small")) {
                let run = std::panic::catch_unwind(|| {
                    let trace = history(seed);
                    if seed % 64 == worker {
                        assert_eq!(trace, history(seed), "the same seed gave another trace");
                    }
                });
                assert!(run.is_ok(), "failed; run it again with EXIT_SIM_SEED={seed}");
                collective += u64::from(agreed(&plan(seed)).is_some());
            }
            collective
        })
    });
    let collective: u64 =
        workers.collect::<Vec<_>>().into_iter().map(|worker| worker.join().expect("worker")).sum();
    println!("{HISTORIES} histories, {collective} of them collective, in {:?}", begin.elapsed());
    assert!(collective > HISTORIES / 50, "the plans hardly ever agree: {collective}");
}
