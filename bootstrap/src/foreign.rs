//! Launchers that started this process as one of several, and that nobody joins: N silent jobs of
//! one rank are worse than an error. Pure.

use crate::provider::contradiction;
use crate::service::Error;
use settings::Env;

/// Another launcher's announcement that this build cannot join in the way it was made.
struct Foreign {
    launcher: &'static str,
    /// Says that this launcher started the process; absent: next row.
    sign: &'static str,
    /// Variables that may tell the number of processes; the first one set counts.
    sizes: &'static [&'static str],
    /// Tells the number of this process among them.
    rank: &'static str,
    /// What would work.
    advice: &'static str,
}

/// Most specific first: Open MPI also sets `PMIX_RANK`, and everything inside an allocation has
/// `SLURM_NTASKS`.
const FOREIGN: [Foreign; 4] = [
    Foreign {
        launcher: "Open MPI",
        sign: "OMPI_COMM_WORLD_SIZE",
        sizes: &["OMPI_COMM_WORLD_SIZE"],
        rank: "OMPI_COMM_WORLD_RANK",
        advice: "start it with gasnetrun_ibv -n RANKS PROGRAM (-spawner=mpi keeps mpirun as its launcher)",
    },
    Foreign {
        launcher: "a PMI launcher (Hydra, srun)",
        sign: "PMI_SIZE",
        sizes: &["PMI_SIZE"],
        rank: "PMI_RANK",
        advice: "start it with the launcher's PMI server: srun --mpi=pmi2, mpiexec.hydra, or gasnetrun_ibv -n RANKS PROGRAM",
    },
    Foreign {
        launcher: "a PMIx launcher",
        sign: "PMIX_RANK",
        sizes: &["OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        rank: "PMIX_RANK",
        advice: "start it with srun --mpi=pmi2, mpiexec.hydra, or gasnetrun_ibv -n RANKS PROGRAM",
    },
    Foreign {
        launcher: "Slurm (srun without PMI)",
        sign: "SLURM_STEP_NUM_TASKS",
        sizes: &["SLURM_STEP_NUM_TASKS"],
        rank: "SLURM_PROCID",
        advice: "say srun --mpi=pmi2, or start it with gasnetrun_ibv -n RANKS PROGRAM inside the allocation",
    },
];

/// Fails when a launcher announces more than one process, with a line for each thing looked at.
pub(crate) fn refuse_several(env: &Env, trace: &mut Vec<String>) -> Result<(), Error> {
    for foreign in &FOREIGN {
        let Some(value) = env.text(foreign.sign) else {
            trace.push(format!("{} is not set: not {}", foreign.sign, foreign.launcher));
            continue;
        };
        trace.push(format!("{}={value:?}: {}", foreign.sign, foreign.launcher));
        foreign_job(env, foreign, value, trace)?;
    }
    Ok(())
}

/// Fails unless the announcement is certainly about one process.
fn foreign_job(
    env: &Env,
    foreign: &Foreign,
    value: String,
    trace: &mut Vec<String>,
) -> Result<(), Error> {
    let told = foreign.sizes.iter().find_map(|name| Some((*name, env.text(name)?)));
    let refuse = |variable, value, announced| {
        Err(Error::Launcher {
            launcher: foreign.launcher,
            variable,
            value,
            announced,
            rank: env.text(foreign.rank).and_then(|text| text.trim().parse().ok()),
            advice: foreign.advice,
        })
    };
    match told {
        Some((name, text)) => match text.trim().parse::<u32>() {
            Ok(0 | 1) => {
                trace.push(format!("{name}={text:?}: one process, that is no obstacle"));
                Ok(())
            }
            Ok(count) => refuse(name, text, format!("{count} processes")),
            Err(_) => Err(contradiction(env, name, "is not a number of processes")),
        },
        None => refuse(foreign.sign, value, "an unknown number of processes".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(pairs: &[(&str, &str)]) -> (String, bool) {
        let env: Env = pairs.iter().copied().collect();
        let error = refuse_several(&env, &mut Vec::new()).expect_err("several processes");
        (error.to_string(), error.is_said_elsewhere())
    }

    /// One process of the job says it for all: the first, or each that does not know which it is.
    #[test]
    fn the_first_process_says_what_to_do() {
        for (sign, rank) in [
            ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
            ("PMI_SIZE", "PMI_RANK"),
            ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
        ] {
            for first in [said(&[(sign, "4"), (rank, "0")]), said(&[(sign, "4")])] {
                assert!(
                    !first.1 && first.0.contains("gasnetrun_ibv -n RANKS PROGRAM"),
                    "{first:?}"
                );
            }
            let (other, elsewhere) = said(&[(sign, "4"), (rank, "3")]);
            assert!(
                elsewhere && other.ends_with("process 0 says why they cannot be a job"),
                "{other}"
            );
        }
    }
}
