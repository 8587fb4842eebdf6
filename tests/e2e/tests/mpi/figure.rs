//! How long 64 ranks take for puts, a fence and gets with our server and with Hydra's: printed, not judged.

use std::process::Command;

use testkit::{Table, Tree, all_requested, launcher, skip};

use crate::programs::{BOUND, made};
use crate::says;

/// Microseconds of rank 0 in each round: puts, fence, gets, and all of them.
fn times(tree: Tree) -> [f64; 4] {
    let outcome = tree.deadline("keys of many ranks", BOUND).run();
    says(&outcome, 0, &[]);
    let words: Vec<f64> =
        outcome.out().split_whitespace().map(|word| word.parse().unwrap()).collect();
    let [put, fence, get] = words[..] else { panic!("{}", outcome.out()) };
    [put, fence, get, put + fence + get]
}

#[test]
fn puts_and_fences_of_many_ranks_beside_hydra() {
    let test = "figure: puts and fences of many ranks";
    if Command::new("cc").arg("--version").output().is_err() {
        return skip(test, "cc is not installed");
    }
    let program = made("keys", "cc", &[]);
    let (ranks, rounds, turns) = if all_requested() { ("64", "50", 5) } else { ("8", "5", 1) };
    let hydra = Command::new("mpiexec.hydra").arg("--version").output().is_ok();
    if !hydra {
        skip(test, "mpiexec.hydra is not installed: only our own server is measured");
    }
    let title =
        format!("{ranks} ranks, us per round of 8 puts, a fence and 8 gets (best of {turns})");
    let mut table = Table::new(&title, &["server", "puts", "fence", "gets", "round"]);
    // Turn by turn, so that both see the same machine.
    let mut best = [[f64::MAX; 4]; 2];
    for _ in 0..turns {
        let ours = launcher(["-q", "-n", ranks]).arg(&program).arg(rounds);
        let theirs = Tree::new("mpiexec.hydra").args(["-n", ranks, &program, rounds]);
        for (best, tree) in best.iter_mut().zip([Some(ours), hydra.then_some(theirs)]) {
            let Some(tree) = tree else { continue };
            let seen = times(tree);
            if seen[3] < best[3] {
                *best = seen;
            }
        }
    }
    for (name, best) in ["gasnetrun_ibv", "hydra"].into_iter().zip(best) {
        if best[3] < f64::MAX {
            let numbers = best.map(|time| format!("{time:.0}"));
            table.row([vec![name.to_owned()], numbers.to_vec()].concat());
        }
    }
    table.show();
}
