//! What every rank honours: messages, debugging, exit, memory and shared memory.

use super::{BYTES, COUNT, NO, POSITIVE, REAL, YES, computed, fixed, flag, open};
use crate::{Kind, Preset, Row};

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

pub(crate) const DEBUGGING: &[Row] = &[
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
    Row::new(
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
    computed(
        "GASNET_TMPDIR",
        Kind::Text,
        "TMPDIR, then /tmp",
        "Directory for temporary files: absolute, there, and writable, else the next candidate is taken.",
    )
    .later(),
    fixed(
        "TMPDIR",
        Kind::Text,
        "/tmp",
        "Directory for temporary files when GASNET_TMPDIR cannot be used.",
    )
    .ignored(),
    flag("GASNET_TEST_POLITE_SYNC", NO, "Tests only: yield the processor while waiting.").later(),
    open("GASNET_TEST_THREAD_LIMIT", POSITIVE, "Tests only: most threads.").later(),
    flag("GASNET_TEST_SET_AFFINITY", YES, "Tests only: try the binding of threads.").later(),
    open("GASNET_TEST_TIME_SLACK", REAL, "Tests only: tolerance where times are compared.").later(),
];

pub(crate) const EXIT: &[Row] = &[
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
        "Bound on the coordination of an exit: ranks that are not through by then are ended.",
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

pub(crate) const MEMORY: &[Row] = &[
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
    flag("GASNET_PSHM_BARRIER_HIER", YES, "Barriers in two levels: inside the hosts, then between them.").later(),
    fixed(
        "GASNET_PSHM_BARRIER_RADIX",
        Kind::Int { min: i32::MIN as i64, max: i32::MAX as i64 },
        "0",
        "Shape of the barrier inside a host: 0 flat, above 0 a tree of that width, below 0 groups of that size.",
    )
    .later(),
    flag("GASNET_USE_PSHM_SINGLETON", NO, "Use sharable memory even for a rank that is alone.").later(),
    flag("GASNET_NODEMAP_EXACT", YES, "Group ranks by host without assumptions about their placement.").later(),
    fixed(
        "GASNET_HOST_DETECT",
        Kind::Enum(&["gethostid", "hostname", "conduit", "trivial"]),
        "conduit",
        "How ranks find out who is on their host. Here the launcher tells them.",
    )
    .later(),
    flag("GASNET_USE_GETHOSTID", NO, "Old way to choose how hosts are told apart.").obsolete("the launcher tells the ranks"),
    computed("GASNET_USE_HUGEPAGES", Kind::Bool, "yes with HUGETLB_DEFAULT_PAGE_SIZE", "Back segments with huge pages.")
        .later(),
    open("HUGETLB_DEFAULT_PAGE_SIZE", BYTES, "Size of huge pages.").later(),
    flag("GASNET_DISABLE_MUNMAP", YES, "Keep the allocator from giving registered memory back to the system.").later(),
    fixed("GASNET_THREAD_STACK_MIN", BYTES, "0", "Least stack of the library's own threads.").later(),
    fixed("GASNET_THREAD_STACK_PAD", BYTES, "0", "Added to the system's stack size for the library's own threads.")
        .later(),
    fixed(
        "GASNET_HWLOC_QUERY",
        Kind::Enum(&["thread", "process"]),
        "thread",
        "Whose binding chooses between variables that depend on the topology.",
    ),
    fixed("GASNET_ATOMIC_TABLESZ", POSITIVE, "256", "Locks for atomic operations that are emulated.").later(),
    flag("GASNET_MAXIMIZE_MEMLOCK", YES, "Raise the soft limit of locked memory to the hard limit.")
        .aliases(&["GASNET_MAXIMIZE_RLIMIT_MEMLOCK"]),
    flag("GASNET_MAXIMIZE_RLIMIT_STACK", YES, "Raise the soft limit of the stack to the hard limit.").later(),
    open("GASNET_NO_SCRATCH_WARN_THRESHOLD", COUNT, "Teams without scratch space before a warning is given.").later(),
];
