//! The process managers and providers, and how a job of four ranks is started through each.

use std::time::Duration;

use testkit::{Cluster, Tree, binary};

use super::{BOUND, RANKS};

/// What a killed process needs to be gone on a busy machine.
const MPIRUN_KILLS: Duration = Duration::from_secs(2);

/// A way to start four ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessManager {
    /// `mpiexec.hydra`, with a descriptor for PMI-1.
    Hydra,
    /// The same with PMI-2.
    HydraPmi2,
    /// The same with a port.
    HydraPort,
    /// Our launcher in front of it.
    OursHydra,
    /// `mpiexec.hydra`, whose ranks speak MPI through our plugin for MPICH.
    HydraMpi,
    /// Open MPI's launcher, whose ranks speak PMIx.
    OpenMpi,
    /// Open MPI's launcher, whose ranks speak MPI through our plugin.
    Mpi,
    /// Our launcher in front of it, with the spawner mpi.
    OursMpi,
    /// The same with `mpiexec.hydra`.
    OursHydraMpi,
    /// `srun --mpi=pmi2` over two hosts.
    SrunPmi2,
    /// The same with PMI-1.
    SrunPmi1,
    /// `srun --mpi=pmix` over two hosts.
    SrunPmix,
    /// Our launcher in an allocation of two hosts.
    OursSlurm,
}

impl ProcessManager {
    /// Those on this host.
    pub(crate) const LOCAL: [Self; 4] =
        [Self::Hydra, Self::HydraPort, Self::OursHydra, Self::OpenMpi];
    /// Other providers on this host, for long runs.
    pub(crate) const LOCAL_MORE: [Self; 1] = [Self::HydraPmi2];
    /// Those whose ranks speak MPI.
    pub(crate) const MPI: [Self; 3] = [Self::Mpi, Self::OursMpi, Self::HydraMpi];
    /// Those over two hosts of Slurm.
    pub(crate) const SLURM: [Self; 3] = [Self::SrunPmi2, Self::SrunPmix, Self::OursSlurm];
    /// Other providers there, for long runs.
    pub(crate) const SLURM_MORE: [Self; 1] = [Self::SrunPmi1];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Hydra => "hydra, PMI-1",
            Self::HydraPmi2 => "hydra, PMI-2",
            Self::HydraPort => "hydra -pmi-port",
            Self::OursHydra => "gasnetrun_ibv, hydra",
            Self::HydraMpi => "hydra, MPI",
            Self::OpenMpi => "mpirun, PMIx",
            Self::Mpi => "mpirun, MPI",
            Self::OursMpi => "gasnetrun_ibv, mpirun",
            Self::OursHydraMpi => "gasnetrun_ibv, hydra, MPI",
            Self::SrunPmi2 => "srun, PMI-2",
            Self::SrunPmi1 => "srun, PMI-1",
            Self::SrunPmix => "srun, PMIx",
            Self::OursSlurm => "gasnetrun_ibv, Slurm",
        }
    }

    /// Whose codes it returns: the place in [`super::cases::Codes::Each`].
    pub(crate) const fn codes(self) -> usize {
        match self {
            Self::Hydra
            | Self::HydraPort
            | Self::OursHydra
            | Self::HydraMpi
            | Self::OursHydraMpi => 0,
            Self::HydraPmi2 => 1,
            Self::OpenMpi | Self::Mpi | Self::OursMpi => 2,
            Self::SrunPmi2 | Self::SrunPmi1 | Self::OursSlurm => 3,
            Self::SrunPmix => 4,
        }
    }

    /// The flavour of MPI that its ranks need.
    pub(crate) const fn flavour(self) -> Option<&'static str> {
        match self {
            Self::Mpi | Self::OursMpi => Some("openmpi"),
            Self::HydraMpi | Self::OursHydraMpi => Some("mpich"),
            _ => None,
        }
    }

    /// Programs without which it cannot run.
    pub(crate) const fn program(self) -> &'static str {
        match self {
            Self::Hydra
            | Self::HydraPmi2
            | Self::HydraPort
            | Self::OursHydra
            | Self::HydraMpi
            | Self::OursHydraMpi => "mpiexec.hydra",
            Self::OpenMpi | Self::Mpi | Self::OursMpi => "mpirun.openmpi",
            Self::SrunPmi2 | Self::SrunPmi1 | Self::SrunPmix | Self::OursSlurm => "srun",
        }
    }

    /// `hosts`: over two hosts by ssh, where the process manager is one that can.
    fn words(self, hosts: bool) -> Vec<String> {
        let launcher = binary("gasnetrun_ibv").display().to_string();
        let words: &[&str] = match self {
            Self::Hydra => &["mpiexec.hydra", "-n", RANKS],
            Self::HydraPmi2 => &["GASNET_IBV_PMI=2", "mpiexec.hydra", "-n", RANKS],
            Self::HydraMpi => &["GASNET_IBV_SPAWNER=mpi", "mpiexec.hydra", "-n", RANKS],
            Self::HydraPort => &["mpiexec.hydra", "-pmi-port", "-n", RANKS],
            Self::OursHydra => &[&launcher, "-spawner=pmi", "-n", RANKS],
            Self::OpenMpi => &["mpirun.openmpi", "--oversubscribe", "-np", RANKS],
            Self::Mpi => {
                &["GASNET_IBV_SPAWNER=mpi", "mpirun.openmpi", "--oversubscribe", "-np", RANKS]
            }
            Self::OursMpi | Self::OursHydraMpi => {
                &[self.command(hosts), &launcher, "-spawner=mpi", "-n", RANKS]
            }
            Self::SrunPmi2 => {
                &["srun", "-K0", "-W60", "-N2", "-n", RANKS, "-m", "plane=2", "--mpi=pmi2"]
            }
            Self::SrunPmi1 => &[
                "GASNET_IBV_PMI=1",
                "srun",
                "-K0",
                "-W60",
                "-N2",
                "-n",
                RANKS,
                "-m",
                "plane=2",
                "--mpi=pmi2",
            ],
            Self::SrunPmix => {
                &["srun", "-K0", "-W60", "-N2", "-n", RANKS, "-m", "plane=2", "--mpi=pmix"]
            }
            Self::OursSlurm => {
                &["salloc", "-Q", "--exclusive", "-N2", &launcher, "-n", RANKS, "-N", "2"]
            }
        };
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    /// What our launcher starts with the spawner mpi.
    const fn command(self, hosts: bool) -> &'static str {
        match (self, hosts) {
            (Self::OursHydraMpi, false) => "MPIRUN_CMD=mpiexec.hydra -n %N %C",
            (Self::OursHydraMpi, true) => "MPIRUN_CMD=mpiexec.hydra -hosts n1:2,n2:2 -n %N %C",
            (_, false) => "MPIRUN_CMD=mpirun.openmpi --oversubscribe -np %N %C",
            (_, true) => "MPIRUN_CMD=mpirun.openmpi --oversubscribe --host n1:2,n2:2 -np %N %C",
        }
    }

    /// A command through this process manager: on this machine, or on a bed of hosts.
    pub(crate) fn job(self, bed: Option<&Cluster>, words: &[String]) -> Tree {
        let set = ["GASNET_QUIET=1", "GASNET_IBV_FABRIC=soft", "GASNET_BACKTRACE_TYPE=EXECINFO"];
        let root = ["OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"];
        let conf = bed.map(|bed| format!("SLURM_CONF={}", bed.slurm_conf().display()));
        // Programs in a directory of their own would look for it there.
        let programs = binary("hello").parent().map(|path| path.display().to_string());
        let plugin =
            self.flavour().and(programs).map(|path| format!("GASNET_IBV_MPI_PLUGIN={path}"));
        let address = bed.map(|_| "GASNET_IBV_SOFT_ADDRESS=198.18.77.0/24");
        let mut line: Vec<String> =
            ["-C", "/"].into_iter().chain(set).chain(root).map(str::to_owned).collect();
        line.extend(conf.into_iter().chain(address.map(str::to_owned)));
        line.extend(plugin);
        line.extend(self.words(bed.is_some()));
        line.extend_from_slice(words);
        let tree = match bed {
            Some(bed) => bed.on("head", &[vec!["env".to_owned()], line].concat()),
            None => Tree::new("env").args(line),
        };
        let tree = tree.deadline("a job of another launcher", BOUND);
        // mpirun does not wait for those that it kills.
        if self.program() == "mpirun.openmpi" { tree.grace(MPIRUN_KILLS) } else { tree }
    }

    /// Whether it lets ranks that compute go on after the death of another one, up to the time that
    /// it is told: plain srun.
    pub(crate) const fn waits_for_the_rest(self) -> bool {
        matches!(self, Self::SrunPmi2 | Self::SrunPmi1 | Self::SrunPmix)
    }

    /// Whether its launcher is installed.
    pub(crate) fn is_here(self) -> bool {
        let path = settings::variable("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|directory| directory.join(self.program()).is_file())
    }
}
