//! What differs between MPI launchers and those of PMI: which is called when no variable names one.

use spawner_pmi::launch::plan::{Default, Family};

/// MPI's own launchers first; an allocation of Slurm has one that starts MPI programs as well.
pub const MPI: Family = Family {
    spawner: "mpi",
    variables: &["MPIRUN_CMD"],
    defaults: &[
        Default { signs: &[], program: "mpirun", template: "mpirun %V -np %N %C" },
        Default { signs: &[], program: "mpiexec", template: "mpiexec %V -n %N %C" },
        Default {
            signs: &["SLURM_JOB_ID"],
            program: "srun",
            template: "srun -K0 -W{wait} {mpi} %V -n %N %C",
        },
    ],
};
