//! Both PMI wires with the dialogues of real servers, and with the same cut, changed and shuffled.
//! These are the seeds of the fuzz targets `pmi1` and `pmi2`.

use std::path::Path;

use proptest::prelude::*;
use spawner_pmi::client::PmiVersion;
use spawner_pmi::client::fuzz_harness::converse;

#[path = "../fuzz/bodies/pmi1.rs"]
mod pmi1;
#[path = "../fuzz/bodies/pmi2.rs"]
mod pmi2;
#[path = "../../fabric/fuzz/seeds.rs"]
mod run;

/// Hydra of MPICH 4.0.
const HYDRA_1: &str = include_str!("../fuzz/seeds/pmi1/hydra");

/// `srun --mpi=pmi2` of Slurm 22.05, asked in PMI-1.
const SLURM_1: &str = include_str!("../fuzz/seeds/pmi1/slurm");

/// The same in PMI-2. Slurm fills up behind the length of a message, Hydra before it.
const SLURM_2: &str = include_str!("../fuzz/seeds/pmi2/slurm");

/// Hydra.
const HYDRA_2: &str = include_str!("../fuzz/seeds/pmi2/hydra");

/// Dialogues that end well.
fn seeds() -> Vec<(PmiVersion, Vec<u8>)> {
    vec![
        (PmiVersion::One, HYDRA_1.into()),
        (PmiVersion::One, SLURM_1.into()),
        (PmiVersion::Two, SLURM_2.into()),
        (PmiVersion::Two, HYDRA_2.into()),
    ]
}

/// The bodies of the fuzz targets on their seeds and on changes of them.
fn each(target: &str, body: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    run::each(&folder, 1, body);
}

#[test]
fn answers_of_pmi_1() {
    each("pmi1", pmi1::run);
}

#[test]
fn answers_of_pmi_2() {
    each("pmi2", pmi2::run);
}

#[test]
fn recorded_dialogues_are_understood() {
    for (version, said) in seeds() {
        assert_eq!(converse(version, 4, &said).unwrap(), "1.AAAA");
    }
}

#[test]
fn a_dialogue_that_ends_early_is_an_error_at_once() {
    for (version, said) in seeds() {
        let since = std::time::Instant::now();
        for end in 0..said.len() - 1 {
            let error = converse(version, 4, &said[..end]).unwrap_err().to_string();
            assert!(error.contains("closed the connection"), "{end}: {error}");
        }
        assert!(since.elapsed() < std::time::Duration::from_secs(60));
    }
}

proptest! {
    #[test]
    fn changed_dialogues_never_panic(
        seed in 0usize..4,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        size in 1u32..9,
    ) {
        let (version, mut said) = seeds().swap_remove(seed);
        for (at, byte) in changes {
            let at = at.index(said.len());
            said[at] = byte;
        }
        if let Err(error) = converse(version, size, &said) {
            prop_assert!(error.to_string().starts_with("bootstrap: "));
        }
    }

    #[test]
    fn any_bytes_never_panic(two: bool, said in prop::collection::vec(any::<u8>(), 0..400)) {
        let version = if two { PmiVersion::Two } else { PmiVersion::One };
        prop_assert!(converse(version, 4, &said).is_err());
    }

    #[test]
    fn shuffled_answers_never_panic(seed in 0usize..2, order in prop::collection::vec(0usize..7, 0..12)) {
        let said = [HYDRA_1, SLURM_1][seed];
        let lines: Vec<&str> = said.lines().collect();
        let shuffled: String = order.iter().map(|at| format!("{}\n", lines[*at])).collect();
        let outcome = converse(PmiVersion::One, 4, shuffled.as_bytes());
        let right = order.len() >= 7 && order[..3] == [0, 1, 2] && [3, 6].contains(&order[3]) && order[4..6] == [4, 5];
        prop_assert!(outcome.is_err() || right);
    }
}
