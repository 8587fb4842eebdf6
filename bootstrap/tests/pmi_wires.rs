//! Both PMI wires with the dialogues of real servers, and with the same cut, changed and shuffled. These are the seeds of the
//! fuzz targets `pmi1` and `pmi2`.

use bootstrap::PmiVersion;
use bootstrap::engine::rehearsal::rehearse;
use proptest::prelude::*;

/// Hydra of MPICH 4.0.
const HYDRA_1: &str = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0
cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024
cmd=my_kvsname kvsname=kvs_27138_0_306130620_vm
cmd=get_result rc=0 msg=success value=(vector,(0,1,1))
cmd=put_result rc=0 msg=success
cmd=barrier_out
cmd=get_result rc=0 msg=success value=1.AAAA
";

/// `srun --mpi=pmi2` of Slurm 22.05, asked in PMI-1.
const SLURM_1: &str = "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1
cmd=maxes rc=0 kvsname_max=256 keylen_max=256 vallen_max=1024
cmd=my_kvsname rc=0 kvsname=5.0
cmd=get_result rc=0 value=(vector,(0,2,2))
cmd=put_result rc=0
cmd=barrier_out rc=0
cmd=get_result rc=0 value=1.AAAA
";

/// As a server frames its messages: Slurm fills up behind the number, Hydra before it.
fn framed(first: &str, bodies: &[&str], left: bool) -> Vec<u8> {
    let mut all = first.to_owned();
    for body in bodies {
        let length = body.len();
        all += &if left { format!("{length:<6}{body}") } else { format!("{length:>6}{body}") };
    }
    all.into_bytes()
}

fn slurm_2() -> Vec<u8> {
    let first = "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n";
    let bodies = [
        "cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;rank=0;size=4;appnum=-1;debugged=FALSE;pmiverbose=FALSE;",
        "cmd=job-getid-response;rc=0;jobid=4.0;",
        "cmd=info-getjobattr-response;rc=0;found=TRUE;value=(vector,(0,2,2));",
        "cmd=kvs-put-response;rc=0;",
        "cmd=kvs-fence-response;rc=0;",
        "cmd=kvs-get-response;rc=0;found=TRUE;value=1.AAAA;",
    ];
    framed(first, &bodies, true)
}

fn hydra_2() -> Vec<u8> {
    let first = "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n";
    let bodies = [
        "cmd=fullinit-response;pmi-version=2;pmi-subversion=0;rank=0;size=4;appnum=0;debugged=FALSE;pmiverbose=FALSE;rc=0;",
        "cmd=job-getid-response;jobid=kvs_1_0_2_vm;rc=0;",
        "cmd=info-getjobattr-response;found=FALSE;rc=0;",
        "cmd=kvs-put-response;rc=0;",
        "cmd=kvs-fence-response;rc=0;",
        "cmd=kvs-get-response;found=TRUE;value=1.AAAA;rc=0;",
    ];
    framed(first, &bodies, false)
}

fn seeds() -> Vec<(PmiVersion, Vec<u8>)> {
    vec![
        (PmiVersion::One, HYDRA_1.into()),
        (PmiVersion::One, SLURM_1.into()),
        (PmiVersion::Two, slurm_2()),
        (PmiVersion::Two, hydra_2()),
    ]
}

#[test]
fn recorded_dialogues_are_understood() {
    for (version, said) in seeds() {
        assert_eq!(rehearse(version, 4, &said).unwrap(), "1.AAAA");
    }
}

#[test]
fn a_dialogue_that_ends_early_is_an_error_at_once() {
    for (version, said) in seeds() {
        let since = std::time::Instant::now();
        for end in 0..said.len() - 1 {
            let error = rehearse(version, 4, &said[..end]).unwrap_err().to_string();
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
        if let Err(error) = rehearse(version, size, &said) {
            prop_assert!(error.to_string().starts_with("bootstrap: "));
        }
    }

    #[test]
    fn any_bytes_never_panic(two: bool, said in prop::collection::vec(any::<u8>(), 0..400)) {
        let version = if two { PmiVersion::Two } else { PmiVersion::One };
        prop_assert!(rehearse(version, 4, &said).is_err());
    }

    #[test]
    fn shuffled_answers_never_panic(seed in 0usize..2, order in prop::collection::vec(0usize..7, 0..12)) {
        let said = [HYDRA_1, SLURM_1][seed];
        let lines: Vec<&str> = said.lines().collect();
        let shuffled: String = order.iter().map(|at| format!("{}\n", lines[*at])).collect();
        let outcome = rehearse(PmiVersion::One, 4, shuffled.as_bytes());
        let right = order.len() >= 7 && order[..3] == [0, 1, 2] && [3, 6].contains(&order[3]) && order[4..6] == [4, 5];
        prop_assert!(outcome.is_err() || right);
    }
}
