//! Starting ranks: what the launcher reads, what it sets, and what other launchers and scripts set.

use super::{BYTES, COUNT, NO, YES, fixed, flag, open};
use crate::variable::{Kind, Variable};

const THREAD_LEVELS: Kind = Kind::Enum(&["SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE"]);

pub(crate) const LAUNCH: &[Variable] = &[
    fixed(
        "GASNET_IBV_SPAWNER",
        Kind::Enum(&["ssh", "mpi", "pmi"]),
        "ssh",
        "How ranks are started; the option -spawner= beats it. Ranks see the spawner that was chosen. In an allocation of Slurm with hosts beside this one, and when nobody names hosts, it is pmi.",
    )
    .launcher(),
    open(
        "GASNET_SSH_NODEFILE",
        Kind::Text,
        "File with one host per line; blank lines and lines that start with # do not count. Beats GASNET_SSH_SERVERS.",
    )
    .launcher(),
    open(
        "GASNET_SSH_SERVERS",
        Kind::Text,
        "Hosts to start ranks on, between commas or blanks. The options --hosts and --hostfile beat all host lists.",
    )
    .launcher(),
    open(
        "GASNET_NODEFILE",
        Kind::Text,
        "File with hosts, as GASNET_SSH_NODEFILE; looked at when neither that nor GASNET_SSH_SERVERS is set.",
    )
    .launcher(),
    flag(
        "GASNET_SSH_KEEPDUP",
        NO,
        "Keep hosts that occur several times in the list: each time is a host of its own, with its own share of ranks.",
    )
    .launcher(),
    fixed(
        "GASNET_SSH_CMD",
        Kind::Text,
        "ssh",
        "Program that runs a command on another host, called as ssh is; a name or a path, without arguments. builtin: a \
         client of the launcher's own, where it was built with it.",
    )
    .launcher(),
    open(
        "GASNET_SSH_OPTIONS",
        Kind::Text,
        "Options for that program, in front of all others and of the host; quotes as in a shell.",
    )
    .launcher(),
    fixed("GASNET_SSH_OUT_DEGREE", COUNT, "32", "Most hosts that one host starts agents on; 0 means no limit.")
        .launcher(),
    fixed(
        "GASNET_SSH_STAGE_CACHE",
        BYTES,
        "1G",
        "Most bytes of programs that --stage sent which each host keeps for later jobs, a week at most; 0 keeps none.",
    )
    .launcher(),
    open("GASNET_SSH_REMOTE_PATH", Kind::Text, "Working directory on other hosts, instead of the current one.")
        .launcher(),
    flag(
        "GASNET_IBV_SELF_START",
        NO,
        "With GASNET_IBV_SPAWNER=ssh, a program that nobody started as a rank starts itself as a job: \
         program [-v] N[:M] [arguments], N ranks on M hosts. Ranks do not see it.",
    )
    .local(),
    open(
        "GASNET_IBV_LAUNCHER",
        Kind::Text,
        "Path of the launcher for that, when it is neither beside the library, nor in its ../bin, nor in PATH.",
    )
    .local(),
    fixed("GASNET_ENVCMD", Kind::Text, "env", "Program that sets variables in front of the ranks' program, for launchers of the mpi and pmi spawners that carry none themselves.")
        .launcher(),
    open(
        "MPIRUN_CMD",
        Kind::Text,
        "How the mpi spawner calls its launcher, in words as a shell reads them: %N ranks, %M hosts, %P program, %A arguments, %C both. MPIRUN_CMD_OK=1 uses it although one of them is missing.",
    )
    .launcher(),
    open("PMIRUN_CMD", Kind::Text, "As MPIRUN_CMD for the pmi spawner, which falls back to MPIRUN_CMD.")
        .launcher(),
    open(
        "GASNET_IBV_DIALECT",
        Kind::Text,
        "Which launcher that of the mpi and pmi spawners behaves as (srun, openmpi, hydra, …), when it is not known by its name or by what it says.",
    )
    .launcher(),
    fixed("GASNET_MPI_THREAD", THREAD_LEVELS, "SINGLE", "Thread level that a rank under an MPI launcher asks MPI for."),
    open(
        "GASNET_IBV_PMI",
        Kind::Enum(&["1", "2"]),
        "PMI version that a rank begins with, instead of the one that its environment suggests.",
    ),
    flag("GASNET_MPI_FINALIZE", YES, "Whether a rank finalises the MPI that it initialised, at a clean end."),
    open(
        "GASNET_IBV_MPI_PLUGIN",
        Kind::Text,
        "File, or directory with the file, of the plugin for the MPI of the launcher, instead of the one next to the program.",
    ),
    open("GASNET_DISABLE_ENVDECODE", Kind::Presence, "Asks for values as they are. That is always so here."),
    open("GASNET_DISABLE_ARGDECODE", Kind::Presence, "Asks for arguments as they are. That is always so here."),
];

pub(crate) const RANK: &[Variable] = &[
    open(
        "GASNETRUN_RANK",
        COUNT,
        "Number of this rank in the job, from 0. Programs without the library may use it.",
    )
    .local(),
    open("GASNETRUN_SIZE", COUNT, "Ranks in the job.").local(),
    open("GASNETRUN_LOCAL_RANK", COUNT, "Number of this rank among those on its host, from 0.")
        .local(),
    open("GASNETRUN_LOCAL_SIZE", COUNT, "Ranks on this rank's host.").local(),
    open("GASNETRUN_HOST", COUNT, "Number of this rank's host in the job, from 0.").local(),
    open(
        "GASNETRUN_ADDRESS",
        Kind::Text,
        "Address of this rank's host that its agent was reached at over ssh; not on the launching host. The software adapter uses it where no default route says which one others reach.",
    )
    .local(),
    open("GASNETRUN_JOB", Kind::Text, "Unique job ID.").local(),
    open(
        "GASNETRUN_AGENT_FD",
        COUNT,
        "Descriptor of the socket to the host's agent. Not for programs.",
    )
    .local(),
];
