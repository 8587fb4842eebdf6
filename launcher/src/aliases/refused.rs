//! Options of others that do not exist here, with what serves instead; and words that mean something
//! else here.

use super::Origin::{self, Hydra, OpenMpi, Prun, Slurm};
use super::Refused;

const fn row(
    words: &'static [&'static str],
    origins: &'static [Origin],
    instead: &'static str,
) -> Refused {
    Refused { words, origins, instead }
}

const ALLOCATION: &str =
    "it asks for an allocation; give it to salloc or sbatch, and start gasnetrun_ibv in there";
const WRAPPER: &str =
    "put a script in front of the program, which finds its rank in GASNETRUN_RANK";
const PARTS: &str =
    "write the programs behind each other on the command line: -n 2 ./a x : -n 6 ./b y";

/// In the order of who has them.
pub const REFUSED: &[Refused] = &[
    row(&["-configfile", "--configfile"], &[Hydra], PARTS),
    row(&["--app", "-app", "--app-file", "--appfile"], &[OpenMpi, Prun], PARTS),
    row(&["--multi-prog"], &[Slurm], PARTS),
    row(
        &["-launcher", "-bootstrap", "-launcher-exec", "-bootstrap-exec", "-rsh"],
        &[Hydra],
        "GASNET_SSH_CMD names the remote shell, -spawner= another way to start ranks",
    ),
    row(&["-enable-x", "-disable-x"], &[Hydra], "GASNET_SSH_OPTIONS=-X lets ssh forward X"),
    row(
        &["-rmk"],
        &[Hydra],
        "the hosts of a batch system are found by its variables; --hosts or --hostfile overrides them",
    ),
    row(&["-topolib"], &[Hydra], "nothing is to be chosen; leave it out"),
    row(
        &["-membind", "--membind"],
        &[Hydra, OpenMpi],
        "put numactl --membind=NODES in front of the program",
    ),
    row(&["--mem-bind"], &[Slurm], "put numactl --membind=NODES in front of the program"),
    row(&["-demux"], &[Hydra], "nothing is to be chosen; leave it out"),
    row(
        &["-print-all-exitcodes", "-info"],
        &[Hydra],
        "--report FILE has the end of every rank, --print-settings what can be set",
    ),
    row(
        &["-iface", "--iface"],
        &[Hydra],
        "GASNET_IBV_PORTS chooses adapters and their ports; logins go where the names of hosts lead",
    ),
    row(&["-profile"], &[Hydra], "--trace FILE and --stats record what ranks do"),
    row(
        &["-prepend-pattern"],
        &[Hydra],
        "--tag-output and --timestamp-output mark lines; other marks are not made",
    ),
    row(
        &["-outfile-pattern", "-errfile-pattern", "-outfile", "-errfile"],
        &[Hydra],
        "--output-dir DIR writes a file for each rank and stream",
    ),
    row(
        &["-o", "-e", "--error", "--open-mode"],
        &[Slurm],
        "--output-dir DIR writes a file for each rank and stream; > FILE and 2> FILE one for all",
    ),
    row(
        &[
            "-disable-auto-cleanup",
            "-enable-recovery",
            "--enable-recovery",
            "--disable-recovery",
            "--continuous",
            "--max-restarts",
            "--with-ft",
        ],
        &[Hydra, OpenMpi, Prun],
        "nothing serves: a job whose rank dies always ends as a whole",
    ),
    row(
        &["-nameserver", "-usize", "-pmi-port"],
        &[Hydra],
        "nothing serves: ranks cannot start further ranks of the job",
    ),
    row(
        &["-disable-hostname-propagation", "-localhost"],
        &[Hydra],
        "nothing needs it: ranks know their hosts through the launcher; leave it out",
    ),
    row(&["-order-nodes"], &[Hydra], "the order of --hosts counts, or --map FILE"),
    row(
        &["-skip-launch-node", "--nolocal", "-nolocal"],
        &[Hydra, OpenMpi],
        "leave this host out of --hosts or --hostfile",
    ),
    row(
        &["-gpus-per-proc", "--gpus-per-task", "--gpu-bind"],
        &[Hydra, Slurm],
        "set CUDA_VISIBLE_DEVICES or its like by GASNETRUN_LOCAL_RANK in a script in front of the program",
    ),
    row(
        &["-genvnone", "-envnone", "--genvnone"],
        &[Hydra],
        "ranks on this host always get the launcher's environment; put `env -i NAME=VALUE ...` in front of the launcher",
    ),
    row(
        &[
            "--mca",
            "-mca",
            "--gmca",
            "-gmca",
            "--omca",
            "--prtemca",
            "--pmixmca",
            "--tune",
            "-tune",
            "--am",
            "-am",
        ],
        &[OpenMpi, Prun],
        "settings are GASNET_* variables here; --print-settings lists them",
    ),
    row(
        &["--rankfile", "-rankfile", "-rf", "--rf"],
        &[OpenMpi, Prun],
        "--map FILE says which rank runs on which host, -c and --bind-to which cpus it gets",
    ),
    row(
        &["--rank-by", "-rank-by"],
        &[OpenMpi, Prun],
        "ranks are numbered in the order of their map: --map block, cyclic or FILE",
    ),
    row(
        &["--allow-run-as-root", "-allow-run-as-root"],
        &[OpenMpi, Prun],
        "root may start jobs without it; leave it out",
    ),
    row(
        &["--prefix", "-prefix", "--noprefix"],
        &[OpenMpi, Prun],
        "the launcher is found on other hosts where it is here, or sent (--stage)",
    ),
    row(
        &["--preload-binary", "-preload-binary", "-s", "--preload-files", "-preload-files"],
        &[OpenMpi, Prun],
        "--stage always sends the program to every host; other files are not sent",
    ),
    row(&["--bcast", "--send-libs"], &[Slurm], "--stage always sends the program to every host"),
    row(
        &["--merge-stderr-to-stdout", "-merge-stderr-to-stdout", "--xml", "-xml"],
        &[OpenMpi],
        "2>&1 behind the command puts both streams into one",
    ),
    row(
        &["--cpu-set", "-cpu-set", "--cpu-list", "-cpu-list"],
        &[OpenMpi, Prun],
        "put taskset -c LIST in front of the launcher; -c and --bind-to share out what is left",
    ),
    row(
        &["--use-hwthread-cpus", "-use-hwthread-cpus"],
        &[OpenMpi],
        "-c K counts hardware threads, --bind-to core cores",
    ),
    row(
        &[
            "--display-map",
            "-display-map",
            "--display-devel-map",
            "--display-allocation",
            "-display-allocation",
            "--display",
        ],
        &[OpenMpi, Prun],
        "-t shows hosts, map and binding and starts nothing; --report-bindings shows the binding of a job that runs",
    ),
    row(
        &["--get-stack-traces", "--report-state-on-timeout"],
        &[OpenMpi],
        "--trace FILE shows what each rank did last; GASNET_BACKTRACE=1 prints stacks of ranks that crash",
    ),
    row(
        &["--report-pid", "-report-pid", "--report-uri", "-report-uri"],
        &[OpenMpi],
        "--report FILE has the processes, gasnetrun_ibv ps the jobs that run",
    ),
    row(
        &["--debug", "-debug", "-tv", "-gdb"],
        &[OpenMpi, Hydra],
        "--debugger gdb or --debugger 'xterm -e gdb' runs the ranks of --debugger-ranks under a debugger",
    ),
    row(&["-gdba", "-tva"], &[Hydra], "gasnetrun_ibv attach JOB RANK runs a debugger for a rank"),
    row(
        &[
            "--dvm",
            "--dvm-uri",
            "--system-server-first",
            "--system-server-only",
            "--pset",
            "--personality",
            "--runtime-options",
            "--wait-to-connect",
            "--num-connect-retries",
            "--do-not-connect",
        ],
        &[Prun, OpenMpi],
        "there is no server to connect to: agents are started for each job; leave it out",
    ),
    row(
        &["--forward-signals", "--fwd-mpirun-port"],
        &[OpenMpi, Prun],
        "INT, TERM, HUP, QUIT, USR1, USR2, TSTP and CONT are always forwarded; leave it out",
    ),
    row(
        &["--mpi"],
        &[Slurm],
        "MPI programs are served PMI-1 and PMI-2 by themselves; --pmi=off serves nothing",
    ),
    row(
        &[
            "-p",
            "--partition",
            "-A",
            "--account",
            "-J",
            "--job-name",
            "--mem",
            "--mem-per-cpu",
            "--gres",
            "--gpus",
            "-G",
            "--gpus-per-node",
            "-C",
            "--constraint",
            "--exclusive",
            "--qos",
            "--reservation",
            "-d",
            "--dependency",
            "-b",
            "--begin",
            "-L",
            "--licenses",
            "--comment",
            "--mail-type",
            "--mail-user",
        ],
        &[Slurm],
        ALLOCATION,
    ),
    row(&["--exclude"], &[Slurm], "name with --hosts those that are left"),
    row(
        &["--jobid"],
        &[Slurm],
        "start gasnetrun_ibv in that allocation, as in srun --jobid ID --pty gasnetrun_ibv ...",
    ),
    row(
        &["-K", "--kill-on-bad-exit"],
        &[Slurm],
        "a job whose rank fails is always ended; leave it out",
    ),
    row(
        &["-W", "--wait"],
        &[Slurm],
        "GASNET_EXITTIMEOUT bounds how long ranks may stay after the others; --timeout bounds the job",
    ),
    row(
        &["-u", "--unbuffered"],
        &[Slurm],
        "whole lines are passed at once; a program that buffers its own output is run as stdbuf -oL ./program",
    ),
    row(
        &[
            "--pty",
            "-X",
            "--disable-status",
            "-T",
            "--threads",
            "-r",
            "--relative",
            "--overlap",
            "--het-group",
            "--slurmd-debug",
            "--signal",
            "--propagate",
            "-I",
            "--immediate",
        ],
        &[Slurm],
        "nothing serves; leave it out",
    ),
    row(&["--prolog", "--epilog", "--task-prolog", "--task-epilog", "--nice"], &[Slurm], WRAPPER),
    row(
        &[
            "--ntasks-per-core",
            "--threads-per-core",
            "--cores-per-socket",
            "--sockets-per-node",
            "--hint",
            "--extra-node-info",
            "-B",
        ],
        &[Slurm],
        "--bind-to, -c and --place say which cpus ranks get, as in --place 2:core",
    ),
];

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
