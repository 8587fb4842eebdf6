//! What every rank honours: messages, debugging, exit, memory and shared memory.

use super::*;
use crate::deadlines::EXIT_FLOOR;

const BACKTRACERS: Kind =
    EnumList(&["EXECINFO", "GDB", "GSTACK", "LLDB", "PSTACK", "IDB", "PGDBG", "DBX", "PRINTSTACK"]);
const BARRIERS: Kind =
    Enum(&["DISSEM", "AMDISSEM", "RDMADISSEM", "AMCENTRAL", "IBDISSEM", "GNIDISSEM"]);
/// Seconds, with the floor of the exit time-out.
const EXIT_SECONDS: Kind = Real { min: EXIT_FLOOR.as_secs_f64(), max: f64::INFINITY };
/// Smallest page of the platform.
const PAGE: u64 = 4096;

group! { DEBUGGING "Messages and debugging" {
    GASNET_VERBOSEENV: VerboseBool, Value("0") =>
        "Rank 0 prints every setting with its value and where that comes from. One -v of the \
         launcher sets it.";
    GASNET_QUIET: Bool, NO => "Print no advisory warnings.";
    GASNET_SPAWN_VERBOSE: Bool, NO =>
        "Print every step of start and end, and how the launcher was recognised. A second -v of \
         the launcher sets it.";
    GASNET_FREEZE: Bool, NO =>
        "Wait for a debugger at the start: print host and process and sleep until released or \
         until SIGCONT.";
    GASNET_FREEZE_ON_ERROR: Bool, NO => "Wait for a debugger at a fatal error or fatal signal.";
    GASNET_FREEZE_SIGNAL: Signal, Unset =>
        "Signal that makes a rank wait for a debugger, then go on.";
    GASNET_BACKTRACE: Bool, NO => "Print the stack at a fatal error or fatal signal.";
    GASNET_BACKTRACE_NODES: Nodes, Value("*") =>
        "Ranks that may print their stack: numbers and ranges between commas, * for all.";
    GASNET_BACKTRACE_SIGNAL: Signal, Unset => "Signal that makes a rank print its stack and go on.";
    GASNET_BACKTRACE_TYPE: BACKTRACERS, Computed("all that are found") =>
        "Ways to get a stack, in the order in which they are tried; those that this system does \
         not have are skipped.";
    GASNET_BACKTRACE_MT: Bool, Computed("yes when threads are possible") =>
        "Print the stacks of all threads.";
} without effect {
    Refused GASNET_TMPDIR => "Directory for temporary files.",
        "the library makes no temporary files, and copies of programs follow XDG_CACHE_HOME";
    Ignored TMPDIR => "Where copies of programs go on hosts without a home directory.";
    Refused GASNET_TEST_POLITE_SYNC("0") GASNET_TEST_THREAD_LIMIT GASNET_TEST_SET_AFFINITY("1")
        GASNET_TEST_TIME_SLACK =>
        "Tests only: waiting, most threads, binding of threads, tolerance of times.",
        "the test programs of GASNet read it by themselves, the library does not";
}}

group! { EXIT "Exit" {
    GASNET_CATCH_EXIT: Bool, YES =>
        "Make a return from main or a call of exit end the whole job. With 0 a rank may end on \
         its own.";
    GASNET_NO_CATCH_SIGNAL: SignalList, Unset =>
        "Signals that the library leaves alone, between commas or blanks; * for all of them.";
    GASNET_EXITTIMEOUT: EXIT_SECONDS,
        Computed("the least of _MAX and _MIN + ranks * _FACTOR"), unit("s") =>
        "Time limit for a coordinated exit: ranks still running after this are killed.";
    GASNET_EXITTIMEOUT_MAX: REAL, Value("480"), unit("s") =>
        "Greatest value that the formula for GASNET_EXITTIMEOUT gives.";
    GASNET_EXITTIMEOUT_MIN: REAL, Value("2"), unit("s") =>
        "Constant part of the formula for GASNET_EXITTIMEOUT.";
    GASNET_EXITTIMEOUT_FACTOR: REAL, Value("0.25"), unit("s") =>
        "What the formula for GASNET_EXITTIMEOUT adds for each rank.";
    GASNET_FS_SYNC: Bool, NO => "Let the file systems write everything out at exit.";
}}

group! { MEMORY "Memory, threads and shared memory" {
    GASNET_MAX_SEGSIZE: MemSpec { per: true, min: PAGE }, Value("0.85/H") =>
        "Greatest segment of a rank: a size or a part of the physical memory, for each rank (/P, \
         also without a suffix) or for all ranks of a host together (/H).";
    GASNET_SEGMENT_MODE: Enum(&["FAST", "LARGE", "EVERYTHING"]),
        Computed("what the program was compiled for, else FAST") =>
        "Which memory other ranks reach, the same for all ranks: the segment, registered as a \
         whole (FAST); the segment, however large, by messages where adapters cannot register it \
         (LARGE); all memory (EVERYTHING), for programs that were compiled for it.";
    GASNET_MAX_THREADS: Int { min: 1, max: 65_535 }, Value("256") =>
        "What gex_System_QueryMaxThreads answers in programs with threads, at most 256: how many \
         threads of a rank a program may let use the library at the same time. The library itself \
         has no table of threads and refuses none.";
    GASNET_SUPERNODE_MAXSIZE: Int { min: 0, max: i32::MAX as i64 }, Value("0") =>
        "Most ranks that share memory; a host with more is cut into several neighbourhoods. 0 \
         means no limit.";
    GASNET_PSHM_NETWORK_DEPTH: Int { min: 4, max: 4096 }, Value("32") =>
        "Depth of the message queues in shared memory, in messages of the greatest size.";
    GASNET_AMPSHM_MEMORY_REPORT: Bool, NO => "Print how much memory the message queues take.";
    GASNET_BARRIER: BARRIERS, Value("DISSEM") =>
        "Algorithm of the barrier of all ranks. Inside one host AMCENTRAL counts in one place; \
         in all others few ranks look at each other's flags, many count in one place. Between \
         neighbourhoods RDMADISSEM writes into registered memory, AMDISSEM and AMCENTRAL send \
         messages, DISSEM writes on adapters. IBDISSEM and GNIDISSEM mean RDMADISSEM.";
    GASNET_USE_HUGEPAGES: Bool, Computed("yes when HUGETLB_DEFAULT_PAGE_SIZE is set") =>
        "Ask the system for huge pages for segments and message buffers. Where it has none, rank \
         0 says so once and pages are as usual.";
    HUGETLB_DEFAULT_PAGE_SIZE: Presence, Unset =>
        "Being set, it is the default of GASNET_USE_HUGEPAGES; the size is the system's choice.";
    GASNET_THREAD_STACK_MIN: BYTES, Value("0") => "Least stack of each thread of the library.";
    GASNET_THREAD_STACK_PAD: BYTES, Value("0") =>
        "What the stack of each thread of the library has above the usual 2 MB.";
    GASNET_HWLOC_QUERY: Enum(&["thread", "process"]), Value("thread") =>
        "Whose binding chooses between variables that depend on the topology.";
    GASNET_MAXIMIZE_MEMLOCK: Bool, YES, aliases(&["GASNET_MAXIMIZE_RLIMIT_MEMLOCK"]) =>
        "Raise the soft limit of locked memory to the hard limit.";
} without effect {
    Refused GASNET_PSHM_BARRIER_HIER("1") GASNET_PSHM_BARRIER_RADIX("0") =>
        "Levels of the barrier of all ranks, and its shape inside a host.",
        "the barrier always has a level inside the host; GASNET_BARRIER chooses its shape";
    Refused GASNET_USE_PSHM_SINGLETON("0") => "Sharable memory even for a rank that is alone.",
        "segments are always in sharable memory";
    Refused GASNET_NODEMAP_EXACT("1") GASNET_HOST_DETECT("gethostid") =>
        "How ranks find out who is on their host.",
        "the launcher, or the process manager, tells the ranks";
    Obsolete GASNET_USE_GETHOSTID => "Old way to choose how hosts are told apart.",
        "the launcher tells the ranks";
    Refused GASNET_DISABLE_MUNMAP("1") =>
        "Keep the allocator from giving registered memory back to the system.",
        "memory that is given back is not found registered, so the allocator is left alone";
    Refused GASNET_ATOMIC_TABLESZ("256") => "Locks for atomic operations that are emulated.",
        "none are emulated: all are instructions of the processor";
    Refused GASNET_MAXIMIZE_RLIMIT_STACK("1") =>
        "Raise the soft limit of the stack to the hard limit.",
        "no part of the library needs it; see ulimit -s, and GASNET_THREAD_STACK_MIN";
    Refused GASNET_NO_SCRATCH_WARN_THRESHOLD("8") =>
        "Teams without scratch space before a warning is given.",
        "teams need no scratch space";
}}
