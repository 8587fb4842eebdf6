//! What every rank honours: messages, debugging, exit, memory and shared memory.

use super::{NO, REAL, YES, computed, fixed, flag, open};
use crate::variable::{Kind, Preset, Variable};

const BACKTRACERS: Kind = Kind::EnumList(&[
    "EXECINFO",
    "GDB",
    "GSTACK",
    "LLDB",
    "PSTACK",
    "IDB",
    "PGDBG",
    "DBX",
    "PRINTSTACK",
]);
const BARRIERS: Kind =
    Kind::Enum(&["DISSEM", "AMDISSEM", "RDMADISSEM", "AMCENTRAL", "IBDISSEM", "GNIDISSEM"]);
/// Seconds, with the floor of the exit time-out.
const EXIT_SECONDS: Kind = Kind::Real { min: crate::values::EXIT_FLOOR, max: f64::INFINITY };
/// Smallest page of the platform.
const PAGE: u64 = 4096;

pub(crate) const DEBUGGING: &[Variable] = &[
    fixed(
        "GASNET_VERBOSEENV",
        Kind::VerboseBool,
        "0",
        "Rank 0 prints every setting with its value and where that comes from. One -v of the launcher sets it.",
    ),
    flag("GASNET_QUIET", NO, "Print no advisory warnings."),
    flag(
        "GASNET_SPAWN_VERBOSE",
        NO,
        "Print every step of start and end, and how the launcher was recognised. A second -v of the launcher sets it.",
    ),
    flag(
        "GASNET_FREEZE",
        NO,
        "Wait for a debugger at the start: print host and process and sleep until released or until SIGCONT.",
    ),
    flag("GASNET_FREEZE_ON_ERROR", NO, "Wait for a debugger at a fatal error or fatal signal."),
    open(
        "GASNET_FREEZE_SIGNAL",
        Kind::Signal,
        "Signal that makes a rank wait for a debugger, then go on.",
    ),
    flag("GASNET_BACKTRACE", NO, "Print the stack at a fatal error or fatal signal."),
    Variable::new(
        "GASNET_BACKTRACE_NODES",
        Kind::Nodes,
        Preset::Value("*"),
        "Ranks that may print their stack: numbers and ranges between commas, * for all.",
    ),
    open(
        "GASNET_BACKTRACE_SIGNAL",
        Kind::Signal,
        "Signal that makes a rank print its stack and go on.",
    ),
    computed(
        "GASNET_BACKTRACE_TYPE",
        BACKTRACERS,
        "all that are found",
        "Ways to get a stack, in the order in which they are tried; those that this system does not have are skipped.",
    ),
    computed(
        "GASNET_BACKTRACE_MT",
        Kind::Bool,
        "yes when threads are possible",
        "Print the stacks of all threads.",
    ),
];

pub(crate) const EXIT: &[Variable] = &[
    flag(
        "GASNET_CATCH_EXIT",
        YES,
        "Make a return from main or a call of exit end the whole job. With 0 a rank may end on its own.",
    ),
    open(
        "GASNET_NO_CATCH_SIGNAL",
        Kind::SignalList,
        "Signals that the library leaves alone, between commas or blanks; * for all of them.",
    ),
    computed(
        "GASNET_EXITTIMEOUT",
        EXIT_SECONDS,
        "the least of _MAX and _MIN + ranks * _FACTOR",
        "Time limit for a coordinated exit: ranks still running after this are killed.",
    )
    .unit("s"),
    fixed(
        "GASNET_EXITTIMEOUT_MAX",
        REAL,
        "480",
        "Greatest value that the formula for GASNET_EXITTIMEOUT gives.",
    )
    .unit("s"),
    fixed(
        "GASNET_EXITTIMEOUT_MIN",
        REAL,
        "2",
        "Constant part of the formula for GASNET_EXITTIMEOUT.",
    )
    .unit("s"),
    fixed(
        "GASNET_EXITTIMEOUT_FACTOR",
        REAL,
        "0.25",
        "What the formula for GASNET_EXITTIMEOUT adds for each rank.",
    )
    .unit("s"),
    flag("GASNET_FS_SYNC", NO, "Let the file systems write everything out at exit."),
];

pub(crate) const MEMORY: &[Variable] = &[
    fixed(
        "GASNET_MAX_SEGSIZE",
        Kind::MemSpec { per: true, min: PAGE },
        "0.85/H",
        "Greatest segment of a rank: a size or a part of the physical memory, for each rank (/P, also without a \
         suffix) or for all ranks of a host together (/H).",
    ),
    fixed(
        "GASNET_MAX_THREADS",
        Kind::Int { min: 1, max: 65_535 },
        "256",
        "What gex_System_QueryMaxThreads answers in programs with threads, at most 256: how many threads of a rank a \
         program may let use the library at the same time. The library itself has no table of threads and refuses none.",
    ),
    fixed(
        "GASNET_SUPERNODE_MAXSIZE",
        Kind::Int { min: 0, max: i32::MAX as i64 },
        "0",
        "Most ranks that share memory; a host with more is cut into several neighbourhoods. 0 means no limit.",
    ),
    fixed(
        "GASNET_PSHM_NETWORK_DEPTH",
        Kind::Int { min: 4, max: 4096 },
        "32",
        "Depth of the message queues in shared memory, in messages of the greatest size.",
    ),
    flag("GASNET_AMPSHM_MEMORY_REPORT", NO, "Print how much memory the message queues take."),
    fixed(
        "GASNET_BARRIER",
        BARRIERS,
        "DISSEM",
        "Algorithm of the barrier of all ranks. Inside one host AMCENTRAL counts in one place; all others are the same: \
         few ranks look at each other's flags, many count in one place.",
    ),
    fixed(
        "GASNET_HWLOC_QUERY",
        Kind::Enum(&["thread", "process"]),
        "thread",
        "Whose binding chooses between variables that depend on the topology.",
    ),
    flag(
        "GASNET_MAXIMIZE_MEMLOCK",
        YES,
        "Raise the soft limit of locked memory to the hard limit.",
    )
    .aliases(&["GASNET_MAXIMIZE_RLIMIT_MEMLOCK"]),
];
