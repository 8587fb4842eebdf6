//! Options of others that do not exist here, with what serves instead; and words that mean something
//! else here.

use super::Origin::{self, Hydra, OpenMpi, Prun, Slurm};
use super::Refused;

/// Makes the table. A row has the spellings, whose they are, and what serves instead.
macro_rules! refused {
    ($($($word:literal)+: $($origin:ident)+ => $instead:expr;)*) => {
        /// In the order of who has them.
        pub const REFUSED: &[Refused] = &[
            $(Refused { words: &[$($word),+], origins: &[$($origin),+], instead: $instead }),*
        ];
    };
}

const ALLOCATION: &str =
    "it asks for an allocation; give it to salloc or sbatch, and start gasnetrun_ibv in there";
const WRAPPER: &str =
    "put a script in front of the program, which finds its rank in GASNETRUN_RANK";
const PARTS: &str =
    "write the programs behind each other on the command line: -n 2 ./a x : -n 6 ./b y";

refused! {
    "-configfile" "--configfile": Hydra => PARTS;
    "--app" "-app" "--app-file" "--appfile": OpenMpi Prun => PARTS;
    "--multi-prog": Slurm => PARTS;
    "-launcher" "-bootstrap" "-launcher-exec" "-bootstrap-exec" "-rsh": Hydra =>
        "GASNET_SSH_CMD names the remote shell, -spawner= another way to start ranks";
    "-enable-x" "-disable-x": Hydra => "GASNET_SSH_OPTIONS=-X lets ssh forward X";
    "-rmk": Hydra =>
        "the hosts of a batch system are found by its variables; --hosts or --hostfile overrides them";
    "-topolib": Hydra => "nothing is to be chosen; leave it out";
    "-membind" "--membind": Hydra OpenMpi => "put numactl --membind=NODES in front of the program";
    "--mem-bind": Slurm => "put numactl --membind=NODES in front of the program";
    "-demux": Hydra => "nothing is to be chosen; leave it out";
    "-print-all-exitcodes" "-info": Hydra =>
        "--report FILE has the end of every rank, --print-settings what can be set";
    "-iface" "--iface": Hydra =>
        "GASNET_IBV_PORTS chooses adapters and their ports; logins go where the names of hosts lead";
    "-profile": Hydra => "--trace FILE and --stats record what ranks do";
    "-prepend-pattern": Hydra =>
        "--tag-output and --timestamp-output mark lines; other marks are not made";
    "-outfile-pattern" "-errfile-pattern" "-outfile" "-errfile": Hydra =>
        "--output-dir DIR writes a file for each rank and stream";
    "-o" "-e" "--error" "--open-mode": Slurm =>
        "--output-dir DIR writes a file for each rank and stream; > FILE and 2> FILE one for all";
    "-disable-auto-cleanup" "-enable-recovery" "--enable-recovery" "--disable-recovery"
        "--continuous" "--max-restarts" "--with-ft": Hydra OpenMpi Prun =>
        "nothing serves: a job whose rank dies always ends as a whole";
    "-nameserver" "-usize" "-pmi-port": Hydra =>
        "nothing serves: ranks cannot start further ranks of the job";
    "-disable-hostname-propagation" "-localhost": Hydra =>
        "nothing needs it: ranks know their hosts through the launcher; leave it out";
    "-order-nodes": Hydra => "the order of --hosts counts, or --map FILE";
    "-skip-launch-node" "--nolocal" "-nolocal": Hydra OpenMpi =>
        "leave this host out of --hosts or --hostfile";
    "-gpus-per-proc" "--gpus-per-task" "--gpu-bind": Hydra Slurm =>
        "set CUDA_VISIBLE_DEVICES or its like by GASNETRUN_LOCAL_RANK in a script in front of the program";
    "-genvnone" "-envnone" "--genvnone": Hydra =>
        "ranks on this host always get the launcher's environment; put `env -i NAME=VALUE ...` in front of the launcher";
    "--mca" "-mca" "--gmca" "-gmca" "--omca" "--prtemca" "--pmixmca" "--tune" "-tune" "--am" "-am":
        OpenMpi Prun => "settings are GASNET_* variables here; --print-settings lists them";
    "--rankfile" "-rankfile" "-rf" "--rf": OpenMpi Prun =>
        "--map FILE says which rank runs on which host, -c and --bind-to which cpus it gets";
    "--rank-by" "-rank-by": OpenMpi Prun =>
        "ranks are numbered in the order of their map: --map block, cyclic or FILE";
    "--allow-run-as-root" "-allow-run-as-root": OpenMpi Prun =>
        "root may start jobs without it; leave it out";
    "--prefix" "-prefix" "--noprefix": OpenMpi Prun =>
        "the launcher is found on other hosts where it is here, or sent (--stage)";
    "--preload-binary" "-preload-binary" "-s" "--preload-files" "-preload-files": OpenMpi Prun =>
        "--stage always sends the program to every host; other files are not sent";
    "--bcast" "--send-libs": Slurm => "--stage always sends the program to every host";
    "--merge-stderr-to-stdout" "-merge-stderr-to-stdout" "--xml" "-xml": OpenMpi =>
        "2>&1 behind the command puts both streams into one";
    "--cpu-set" "-cpu-set" "--cpu-list" "-cpu-list": OpenMpi Prun =>
        "put taskset -c LIST in front of the launcher; -c and --bind-to share out what is left";
    "--use-hwthread-cpus" "-use-hwthread-cpus": OpenMpi =>
        "-c K counts hardware threads, --bind-to core cores";
    "--display-map" "-display-map" "--display-devel-map" "--display-allocation"
        "-display-allocation" "--display": OpenMpi Prun =>
        "-t shows hosts, map and binding and starts nothing; --report-bindings shows the binding of a job that runs";
    "--get-stack-traces" "--report-state-on-timeout": OpenMpi =>
        "--trace FILE shows what each rank did last; GASNET_BACKTRACE=1 prints stacks of ranks that crash";
    "--report-pid" "-report-pid" "--report-uri" "-report-uri": OpenMpi =>
        "--report FILE has the processes, gasnetrun_ibv ps the jobs that run";
    "--debug" "-debug" "-tv" "-gdb": OpenMpi Hydra =>
        "--debugger gdb or --debugger 'xterm -e gdb' runs the ranks of --debugger-ranks under a debugger";
    "-gdba" "-tva": Hydra => "gasnetrun_ibv attach JOB RANK runs a debugger for a rank";
    "--dvm" "--dvm-uri" "--system-server-first" "--system-server-only" "--pset" "--personality"
        "--runtime-options" "--wait-to-connect" "--num-connect-retries" "--do-not-connect": Prun
        OpenMpi =>
        "there is no server to connect to: agents are started for each job; leave it out";
    "--forward-signals" "--fwd-mpirun-port": OpenMpi Prun =>
        "INT, TERM, HUP, QUIT, USR1, USR2, TSTP and CONT are always forwarded; leave it out";
    "--mpi": Slurm =>
        "MPI programs are served PMI-1 and PMI-2 by themselves; --pmi=off serves nothing";
    "-p" "--partition" "-A" "--account" "-J" "--job-name" "--mem" "--mem-per-cpu" "--gres" "--gpus"
        "-G" "--gpus-per-node" "-C" "--constraint" "--exclusive" "--qos" "--reservation" "-d"
        "--dependency" "-b" "--begin" "-L" "--licenses" "--comment" "--mail-type" "--mail-user":
        Slurm => ALLOCATION;
    "--exclude": Slurm => "name with --hosts those that are left";
    "--jobid": Slurm =>
        "start gasnetrun_ibv in that allocation, as in srun --jobid ID --pty gasnetrun_ibv ...";
    "-K" "--kill-on-bad-exit": Slurm => "a job whose rank fails is always ended; leave it out";
    "-W" "--wait": Slurm =>
        "GASNET_EXITTIMEOUT bounds how long ranks may stay after the others; --timeout bounds the job";
    "-u" "--unbuffered": Slurm =>
        "whole lines are passed at once; a program that buffers its own output is run as stdbuf -oL ./program";
    "--pty" "-X" "--disable-status" "-T" "--threads" "-r" "--relative" "--overlap" "--het-group"
        "--slurmd-debug" "--signal" "--propagate" "-I" "--immediate": Slurm =>
        "nothing serves; leave it out";
    "--prolog" "--epilog" "--task-prolog" "--task-epilog" "--nice": Slurm => WRAPPER;
    "--ntasks-per-core" "--threads-per-core" "--cores-per-socket" "--sockets-per-node" "--hint"
        "--extra-node-info" "-B": Slurm =>
        "--bind-to, -c and --place say which cpus ranks get, as in --place 2:core";
}

/// Words of others that we have with another meaning: the word, whose it is, what it is there, what
/// says that here.
pub const OTHER_MEANINGS: &[(&str, &[Origin], &str, &str)] = &[
    ("-N K", &[OpenMpi, Prun], "ranks per host", "--ranks-per-host K"),
    ("-c P", &[OpenMpi], "number of ranks", "-n P"),
    ("-t TIME", &[Slurm], "time limit", "--timeout TIME"),
    ("-k", &[Slurm], "go on without a host that fails", "nothing"),
    ("-q QOS", &[Slurm], "quality of service", "salloc -q QOS"),
    ("-x LIST", &[Slurm], "hosts to leave out", "--hosts with the others"),
    ("-s, --oversubscribe", &[Slurm], "share hosts with other jobs", "salloc --oversubscribe"),
];
