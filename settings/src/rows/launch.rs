//! Starting ranks: what the launcher reads, what it sets, and what other launchers and scripts set.

use super::*;

const THREAD_LEVELS: Kind = Enum(&["SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE"]);

group! { LAUNCH "Launching" {
    GASNET_IBV_SPAWNER: Enum(&["ssh", "mpi", "pmi"]), Value("ssh"), launcher =>
        "How ranks are started; the option -spawner= beats it. Ranks see the spawner that was \
         chosen. In an allocation of Slurm with hosts beside this one, and when nobody names \
         hosts, it is pmi.";
    GASNET_SSH_NODEFILE: Text, Unset, launcher =>
        "File with one host per line; blank lines and lines that start with # do not count. Beats \
         GASNET_SSH_SERVERS.";
    GASNET_SSH_SERVERS: Text, Unset, launcher =>
        "Hosts to start ranks on, between commas or blanks. The options --hosts and --hostfile \
         beat all host lists.";
    GASNET_NODEFILE: Text, Unset, launcher =>
        "File with hosts, as GASNET_SSH_NODEFILE; looked at when neither that nor \
         GASNET_SSH_SERVERS is set.";
    GASNET_SSH_KEEPDUP: Bool, NO, launcher =>
        "Keep hosts that occur several times in the list: each time is a host of its own, with \
         its own share of ranks.";
    GASNET_SSH_CMD: Text, Value("auto"), launcher =>
        "How a command is run on another host. auto: by the launcher's own ssh client where it \
         does all that the configuration of ssh asks for, else by the program ssh. builtin: by \
         that client, which then reads no configuration. Else a program that is called as ssh \
         is; a name or a path, without arguments.";
    GASNET_SSH_OPTIONS: Text, Unset, launcher =>
        "Options of ssh, in front of all others and of the host; quotes as in a shell.";
    GASNET_SSH_OUT_DEGREE: COUNT, Value("32"), launcher =>
        "Most hosts that one host starts agents on; 0 means no limit. A tree of hosts has at most \
         64 levels.";
    GASNET_SSH_STAGE_CACHE: BYTES, Value("1G"), launcher =>
        "Most bytes of programs that --stage sent which each host keeps for later jobs, a week at \
         most; 0 keeps none.";
    GASNET_SSH_REMOTE_PATH: Text, Unset, launcher =>
        "Working directory on other hosts, instead of the current one.";
    GASNET_IBV_SAME_PROGRAM: Bool, YES =>
        "Hosts that have different programs at the same place are an error, by build ID or content; \
         0 for builds that differ by host and talk in the same terms.";
    GASNET_IBV_SELF_START: Bool, NO, local =>
        "With GASNET_IBV_SPAWNER=ssh, a program that nobody started as a rank starts itself as a \
         job: program [-v] N[:M] [arguments], N ranks on M hosts. Ranks do not see it.";
    GASNET_IBV_LAUNCHER: Text, Unset, local =>
        "Path of the launcher for that, when it is neither beside the library, nor in its ../bin, \
         nor in PATH.";
    GASNET_ENVCMD: Text, Value("env"), launcher =>
        "Program that sets variables in front of the ranks' program, for launchers of the mpi and \
         pmi spawners that carry none themselves.";
    MPIRUN_CMD: Text, Unset, launcher =>
        "How the mpi spawner calls its launcher, in words as a shell reads them: %N ranks, %M \
         hosts, %P program, %A arguments, %C both. MPIRUN_CMD_OK=1 uses it although one of them \
         is missing.";
    PMIRUN_CMD: Text, Unset, launcher =>
        "As MPIRUN_CMD for the pmi spawner, which falls back to MPIRUN_CMD.";
    GASNET_IBV_DIALECT: Text, Unset, launcher =>
        "Which launcher that of the mpi and pmi spawners behaves as (srun, openmpi, hydra, …), \
         when it is not known by its name or by what it says.";
    GASNET_MPI_THREAD: THREAD_LEVELS, Value("SINGLE") =>
        "Thread level that a rank under an MPI launcher asks MPI for.";
    GASNET_IBV_PMI: Enum(&["1", "2"]), Unset =>
        "PMI version that a rank begins with, instead of the one that its environment suggests.";
    GASNET_MPI_FINALIZE: Bool, YES =>
        "Whether a rank finalises the MPI that it initialised, at a clean end.";
    GASNET_IBV_MPI_PLUGIN: Text, Unset =>
        "File, or directory with the file, of the plugin for the MPI of the launcher, instead of \
         the one next to the program.";
    GASNET_DISABLE_ENVDECODE: Presence, Unset =>
        "Asks for values as they are. That is always so here.";
    GASNET_DISABLE_ARGDECODE: Presence, Unset =>
        "Asks for arguments as they are. That is always so here.";
} without effect {
    Obsolete GASNET_MASTERIP => "Name or address at which other hosts reached the launching host.",
        "no host connects back to the launching one: all goes through the session of its remote \
         shell";
}}

group! { RANK "Set by the launcher for each rank" {
    GASNETRUN_RANK: COUNT, Unset, local =>
        "Number of this rank in the job, from 0. Programs without the library may use it.";
    GASNETRUN_SIZE: COUNT, Unset, local => "Ranks in the job.";
    GASNETRUN_LOCAL_RANK: COUNT, Unset, local =>
        "Number of this rank among those on its host, from 0.";
    GASNETRUN_LOCAL_SIZE: COUNT, Unset, local => "Ranks on this rank's host.";
    GASNETRUN_HOST: COUNT, Unset, local => "Number of this rank's host in the job, from 0.";
    GASNETRUN_ADDRESS: Text, Unset, local =>
        "Address of this rank's host that its agent was reached at over ssh; not on the launching \
         host. The software adapter uses it where no default route says which one others reach.";
    GASNETRUN_JOB: Text, Unset, local => "Unique job ID.";
    GASNETRUN_CHECKED: Bool, NO, local =>
        "The launcher has warned about settings and added the defaults of its installation. \
         Without it rank 0 does both.";
    GASNETRUN_AGENT_FD: COUNT, Unset, local =>
        "Descriptor of the socket to the host's agent. Not for programs.";
    GASNETRUN_TRACE: Text, Unset, local =>
        "Descriptor and layout of the memory for traces and statistics. Not for programs.";
    GASNETRUN_TRACE_KEY: Text, Unset, local =>
        "Key with which a rank that another launcher started sends its trace. Not for programs.";
}}
