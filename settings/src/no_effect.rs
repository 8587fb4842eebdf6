//! Names that are known and do nothing: of later versions, of the past, and of other installations.
//! Each list belongs to a group of the table.

/// Why a name does nothing, and what setting it gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// What it controls does not exist in this version: one warning.
    Later,
    /// Its time is over: one warning with advice.
    Obsolete,
    /// It is set unasked, by scripts or for somebody else: no warning.
    Ignored,
}

/// Names that do nothing for the same reason.
#[derive(Clone, Copy, Debug)]
pub struct NoEffect {
    /// Why they do nothing.
    pub status: Status,
    /// Names, between blanks.
    names: &'static str,
    /// What they control or controlled, or who sets them.
    pub doc: &'static str,
    /// What to set or know instead, of obsolete names.
    pub advice: &'static str,
}

impl NoEffect {
    /// The names in their order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.names.split(' ')
    }
}

const fn later(names: &'static str, doc: &'static str) -> NoEffect {
    NoEffect { status: Status::Later, names, doc, advice: "" }
}

const fn obsolete(names: &'static str, doc: &'static str, advice: &'static str) -> NoEffect {
    NoEffect { status: Status::Obsolete, names, doc, advice }
}

const fn ignored(names: &'static str, doc: &'static str) -> NoEffect {
    NoEffect { status: Status::Ignored, names, doc, advice: "" }
}

pub(crate) const LAUNCH: &[NoEffect] = &[obsolete(
    "GASNET_MASTERIP",
    "Name or address at which other hosts reached the launching host.",
    "no host connects back to the launching one: all goes through the session of its remote shell",
)];

pub(crate) const DEBUGGING: &[NoEffect] = &[
    later("GASNET_TMPDIR", "Directory for temporary files."),
    ignored("TMPDIR", "Directory for temporary files when GASNET_TMPDIR cannot be used."),
    later(
        "GASNET_TEST_POLITE_SYNC GASNET_TEST_THREAD_LIMIT GASNET_TEST_SET_AFFINITY \
         GASNET_TEST_TIME_SLACK",
        "Tests only: waiting, most threads, binding of threads, tolerance of times.",
    ),
];

pub(crate) const MEMORY: &[NoEffect] = &[
    later(
        "GASNET_PSHM_BARRIER_HIER GASNET_PSHM_BARRIER_RADIX",
        "Levels of the barrier of all ranks, and its shape inside a host.",
    ),
    later("GASNET_USE_PSHM_SINGLETON", "Sharable memory even for a rank that is alone."),
    later(
        "GASNET_NODEMAP_EXACT GASNET_HOST_DETECT",
        "How ranks find out who is on their host. Here the launcher tells them.",
    ),
    obsolete(
        "GASNET_USE_GETHOSTID",
        "Old way to choose how hosts are told apart.",
        "the launcher tells the ranks",
    ),
    later("GASNET_USE_HUGEPAGES HUGETLB_DEFAULT_PAGE_SIZE", "Huge pages for segments."),
    later(
        "GASNET_DISABLE_MUNMAP",
        "Keep the allocator from giving registered memory back to the system.",
    ),
    later(
        "GASNET_THREAD_STACK_MIN GASNET_THREAD_STACK_PAD",
        "Stack of the library's own threads: the least, and what is added to the system's size.",
    ),
    later("GASNET_ATOMIC_TABLESZ", "Locks for atomic operations that are emulated."),
    later("GASNET_MAXIMIZE_RLIMIT_STACK", "Raise the soft limit of the stack to the hard limit."),
    later(
        "GASNET_NO_SCRATCH_WARN_THRESHOLD",
        "Teams without scratch space before a warning is given.",
    ),
];

pub(crate) const TOOLS: &[NoEffect] = &[
    later(
        "GASNET_TRACEFILE GASNET_TRACEMASK GASNET_TRACENODES GASNET_TRACEFLUSH GASNET_TRACELOCAL",
        "Trace: its file, what is traced, which ranks trace, when it is written, whether transfers \
         of a rank with itself are in it.",
    ),
    later(
        "GASNET_STATSFILE GASNET_STATSMASK GASNET_STATSNODES",
        "Statistics at the end: their file, what is counted, which ranks count.",
    ),
    later(
        "GASNET_MALLOC_INIT GASNET_MALLOC_INITVAL GASNET_MALLOC_CLOBBER GASNET_MALLOC_CLOBBERVAL \
         GASNET_MALLOC_LEAKALL GASNET_MALLOC_SCANFREED GASNET_MALLOC_EXTRACHECK GASNET_MALLOCFILE \
         GASNET_MALLOCNODES",
        "Checks of the library's heap: what new and freed blocks are filled with, whether freed \
         blocks are used again, how often the heap is checked, the report at the end.",
    ),
    later(
        "GASNET_SD_INIT GASNET_SD_INITVAL GASNET_SD_INITLEN",
        "Whether, with what and how far payload buffers that the library lends are filled.",
    ),
];

pub(crate) const COLLECTIVES: &[NoEffect] = &[
    later(
        "GASNET_VIS_AMPIPE GASNET_VIS_MAXCHUNK GASNET_VIS_PUT_MAXCHUNK GASNET_VIS_GET_MAXCHUNK \
         GASNET_VIS_REMOTECONTIG",
        "Packing of strided and indexed transfers: whether, in pieces of which size, where.",
    ),
    later("GASNET_COLL_SCRATCH_SIZE", "Scratch space of each rank for collectives."),
    later(
        "GASNET_COLL_ENABLE_SEARCH GASNET_COLL_TUNING_FILE GASNET_COLL_ENABLE_PROFILE \
         GASNET_COLL_AUTOTUNE_WARM_ITERS GASNET_COLL_AUTOTUNE_PERF_ITERS \
         GASNET_COLL_AUTOTUNE_ALLOW_FLAT_TREE GASNET_COLL_PRINT_AUTOTUNE_TIMER \
         GASNET_COLL_PRINT_COLL_ALG GASNET_COLL_ALLOW_CONDUIT_COLLECTIVES",
        "Search for the best algorithm of each collective, its data, runs and output, and whether \
         collectives use what the network offers for them.",
    ),
    later(
        "GASNET_COLL_ROOTED_GEOM GASNET_COLL_BROADCAST_GEOM GASNET_COLL_REDUCE_GEOM \
         GASNET_COLL_SCATTER_GEOM GASNET_COLL_GATHER_GEOM",
        "Trees of collectives with a root.",
    ),
    later(
        "GASNET_COLL_GATHER_ALL_DISSEM_LIMIT GASNET_COLL_GATHER_ALL_DISSEM_LIMIT_PER_THREAD \
         GASNET_COLL_EXCHANGE_DISSEM_LIMIT GASNET_COLL_EXCHANGE_DISSEM_LIMIT_PER_THREAD \
         GASNET_COLL_EXCHANGE_DISSEM_RADIX",
        "Sizes up to which allgathers and exchanges use dissemination, and its width.",
    ),
    later(
        "GASNET_COLL_PIPE_SEG_SIZE GASNET_COLL_P2P_EAGER_MIN GASNET_COLL_P2P_EAGER_SCALE",
        "Piece of a collective that is pipelined, and the eager buffer of collectives.",
    ),
    later(
        "GASNET_TSC_RATE GASNET_TSC_RATE_TOLERANCE GASNET_TSC_RATE_HARD_TOLERANCE \
         GASNET_TSC_VERBOSE",
        "Calibration of the clock: how, which errors give a warning or end the job, its output.",
    ),
    later(
        "GASNET_USE_CUDA_SYNC_MEMOPS GASNET_USE_HIP_SYNC_MEMOPS",
        "Order transfers with the memory of CUDA and HIP devices.",
    ),
];

pub(crate) const PORTS: &[NoEffect] = &[
    obsolete(
        "GASNET_HCA_ID GASNET_PORT_NUM",
        "Old way to choose an adapter and its port.",
        "name adapters in GASNET_IBV_PORTS",
    ),
    obsolete(
        "GASNET_RCV_THREAD_LOAD",
        "Was announced and never existed.",
        "GASNET_RCV_THREAD_RATE bounds the receiving thread",
    ),
];

pub(crate) const PINNING: &[NoEffect] = &[
    later(
        "GASNET_PHYSMEM_MAX GASNET_PHYSMEM_PROBE GASNET_PHYSMEM_WARN",
        "Most memory that may be pinned on a host, whether pinning finds the limit, and whether \
         that is said.",
    ),
    obsolete(
        "GASNET_PHYSMEM_NOPROBE",
        "Old way to switch the probe off.",
        "set GASNET_PHYSMEM_PROBE=0",
    ),
    obsolete(
        "GASNET_PHYSMEM_PINNABLE_RATIO",
        "Part of the memory that another network takes to be pinnable.",
        "set GASNET_PHYSMEM_MAX",
    ),
    later("GASNET_PINNED_REGIONS_MAX", "Most registered regions on a host."),
    later("GASNET_ODP_VERBOSE", "How much is said about paging on demand."),
    later(
        "GASNET_USE_FIREHOSE GASNET_FIREHOSE_M GASNET_FIREHOSE_MAXVICTIM_M GASNET_FIREHOSE_R \
         GASNET_FIREHOSE_MAXVICTIM_R GASNET_FIREHOSE_MAXREGION_SIZE GASNET_FIREHOSE_TABLE_SCALE \
         GASNET_FIREHOSE_VERBOSE GASNET_FIREHOSE_REUSE_PREPINNED",
        "Register memory on demand instead of copying: memory and regions pinned on behalf of \
         others and for own use, sizes, output.",
    ),
    ignored(
        "MALLOC_MMAP_THRESHOLD_ MALLOC_MMAP_MAX_",
        "Of the C library; values other than -1 and 0 defeat GASNET_DISABLE_MUNMAP.",
    ),
];

pub(crate) const LIMITS: &[NoEffect] = &[
    later("GASNET_PUTINMOVE_LIMIT", "Most data that a request for registration carries along."),
    later(
        "GASNET_PUT_STRIPE_SZ GASNET_GET_STRIPE_SZ",
        "Pieces of puts and gets that are spread over the ports; 0 means never.",
    ),
    later("GASNET_USE_FENCED_PUTS", "Make atomics wait for puts on other adapters."),
    later("GASNET_RATOMICBUF_COUNT", "Buffers for results of atomics."),
];

pub(crate) const FOREIGN: &[NoEffect] = &[
    ignored(
        "GASNET_SPAWN_CONTROL",
        "Name of the spawner in other installations; here GASNET_IBV_SPAWNER says it.",
    ),
    ignored("GASNET_SPAWN_ARGS", "Private arguments of another installation's ssh spawner."),
    ignored(
        "GASNET_SPAWN_CONDUIT GASNET_SPAWN_HAVE_MPI GASNET_SPAWN_HAVE_SSH GASNET_SPAWN_HAVE_PMI \
         GASNET_SPAWN_HAVE_FORK GASNET_PSHM_ENABLED GASNET_PLATFORM GASNET_RM_NODEFILE \
         GASNET_PREFIX GASNET_BINDIR",
        "Set by the wrapper scripts of other installations.",
    ),
    ignored("GASNET_DUMMY", "Set for test programs that check how an environment arrives."),
    obsolete(
        "GASNET_PSHM_NODES",
        "Number of ranks in the shared-memory conduit of other installations.",
        "say gasnetrun_ibv -n RANKS",
    ),
];
