//! Groups whose variables have no effect in this version.

use super::*;

group! { TOOLS "Tracing, statistics and heap checks" {
    GASNET_TRACEFILE: Text, Unset =>
        "File for a trace of the rank, a line per event; % is the number of the rank. stdout, \
         stderr, or - for that. Unset: none. The option --trace needs no such file.";
    GASNET_TRACEMASK: Text, Value("GPRSWBLAXIOCNHU") =>
        "What is traced, here and by --trace: Gets, Puts, R atomics, S waits, W collectives, \
         Barriers, Locks, A messages, X exit, I information, O registrations, C network, D every \
         Short on its own, N source lines, H texts of the program, U the same by force. ^ in front \
         means all but these.";
    GASNET_TRACENODES: Nodes, Value("*") =>
        "Ranks that trace: numbers and ranges between commas, * for all.";
    GASNET_TRACEFLUSH: Bool, NO =>
        "Write each line of GASNET_TRACEFILE and GASNET_STATSFILE at once, so that a rank that is \
         killed keeps them.";
    GASNET_TRACELOCAL: Bool, YES => "Trace and count transfers of a rank with itself.";
    GASNET_STATSFILE: Text, Unset =>
        "File for what a rank has counted, written when it exits; named as GASNET_TRACEFILE.";
    GASNET_STATSMASK: Text, Value("GPRSWBLAXIOCDNHU") =>
        "What is counted, here and by --stats: letters as for GASNET_TRACEMASK.";
    GASNET_STATSNODES: Nodes, Value("*") => "Ranks that count, as for GASNET_TRACENODES.";
    GASNET_STATSLOCAL: Bool, Computed("as GASNET_TRACELOCAL") =>
        "Count transfers of a rank with itself.";
    GASNET_TRACE_MEMORY: BYTES, Value("16M") =>
        "Memory for the events of each rank that --trace keeps: the newest ones stay. Taken as \
         events come.";
} without effect {
    Refused GASNET_MALLOC_INIT("0") GASNET_MALLOC_INITVAL("NAN") GASNET_MALLOC_CLOBBER("0")
        GASNET_MALLOC_CLOBBERVAL("NAN") GASNET_MALLOC_LEAKALL("0") GASNET_MALLOC_SCANFREED("0")
        GASNET_MALLOC_EXTRACHECK("0") GASNET_MALLOCFILE GASNET_MALLOCNODES("*") =>
        "Checks of the library's heap: what new and freed blocks are filled with, whether freed \
         blocks are used again, how often the heap is checked, the report at the end.",
        "the library has no heap of its own; run the program under valgrind or a sanitizer";
    Refused GASNET_SD_INIT("1") GASNET_SD_INITVAL("NAN") GASNET_SD_INITLEN("128") =>
        "Whether, with what and how far payload buffers that the library lends are filled.",
        "buffers are lent as they are; the debug libraries check how they are given back";
}}

group! { COLLECTIVES "Collectives, strided transfers and clocks" {
    GASNET_VIS_AMPIPE: Bool, YES =>
        "Over a network, pack many short runs of a vector, indexed or strided transfer into \
         messages.";
    GASNET_VIS_MAXCHUNK: BYTES, Value("4096") =>
        "Longest run that is packed; longer ones are put or got by themselves. At most what a \
         message holds.";
    GASNET_VIS_PUT_MAXCHUNK: BYTES, Unset => "The same for puts alone.";
    GASNET_VIS_GET_MAXCHUNK: BYTES, Unset => "The same for gets alone.";
    GASNET_VIS_REMOTECONTIG: Bool, YES =>
        "Gather the runs of a strided put that are one range at the other rank, and put that.";
} without effect {
    Refused GASNET_COLL_SCRATCH_SIZE("2M") => "Scratch space of each rank for collectives.",
        "collectives take no scratch space: data comes in messages, or is read where it is";
    Refused GASNET_COLL_ENABLE_SEARCH("0") GASNET_COLL_TUNING_FILE GASNET_COLL_ENABLE_PROFILE("0")
        GASNET_COLL_AUTOTUNE_WARM_ITERS GASNET_COLL_AUTOTUNE_PERF_ITERS
        GASNET_COLL_AUTOTUNE_ALLOW_FLAT_TREE GASNET_COLL_PRINT_AUTOTUNE_TIMER("0")
        GASNET_COLL_PRINT_COLL_ALG("0") GASNET_COLL_ALLOW_CONDUIT_COLLECTIVES =>
        "Search for the best algorithm of each collective, its data, runs and output, and whether \
         collectives use what the network offers for them.",
        "each collective has one schedule for each size of team and data, so there is none to find";
    Refused GASNET_COLL_ROOTED_GEOM("KNOMIAL_TREE,2") GASNET_COLL_BROADCAST_GEOM("KNOMIAL_TREE,2")
        GASNET_COLL_REDUCE_GEOM("KNOMIAL_TREE,2") GASNET_COLL_SCATTER_GEOM("KNOMIAL_TREE,2")
        GASNET_COLL_GATHER_GEOM("KNOMIAL_TREE,2") => "Trees of collectives with a root.",
        "collectives with a root use binomial trees, and memory where ranks share it";
    Refused GASNET_COLL_GATHER_ALL_DISSEM_LIMIT GASNET_COLL_GATHER_ALL_DISSEM_LIMIT_PER_THREAD
        GASNET_COLL_EXCHANGE_DISSEM_LIMIT GASNET_COLL_EXCHANGE_DISSEM_LIMIT_PER_THREAD
        GASNET_COLL_EXCHANGE_DISSEM_RADIX("2") =>
        "Sizes up to which allgathers and exchanges use dissemination, and its width.",
        "each collective has one schedule for each size of team and data";
    Refused GASNET_COLL_PIPE_SEG_SIZE GASNET_COLL_P2P_EAGER_MIN GASNET_COLL_P2P_EAGER_SCALE =>
        "Piece of a collective that is pipelined, and the eager buffer of collectives.",
        "pieces are as long as messages, and there are no eager buffers";
    Refused GASNET_TSC_RATE("wallclock") GASNET_TSC_RATE_TOLERANCE("0.0005")
        GASNET_TSC_RATE_HARD_TOLERANCE("0.02") GASNET_TSC_VERBOSE("0") =>
        "Calibration of the clock: how, which errors give a warning or end the job, its output.",
        "the clock is the system's, which calibrates itself";
    Refused GASNET_USE_CUDA_SYNC_MEMOPS("1") GASNET_USE_HIP_SYNC_MEMOPS("1") =>
        "Order transfers with the memory of CUDA and HIP devices.",
        "memory of devices is not supported";
}}

group! { FOREIGN "Names of other launchers and wrapper scripts" {
} without effect {
    Ignored GASNET_SPAWN_CONTROL =>
        "Name of the spawner in other installations; here GASNET_IBV_SPAWNER says it.";
    Ignored GASNET_SPAWN_ARGS => "Private arguments of another installation's ssh spawner.";
    Ignored GASNET_SPAWN_CONDUIT GASNET_SPAWN_HAVE_MPI GASNET_SPAWN_HAVE_SSH
        GASNET_SPAWN_HAVE_PMI GASNET_SPAWN_HAVE_FORK GASNET_PSHM_ENABLED GASNET_PLATFORM
        GASNET_RM_NODEFILE GASNET_PREFIX GASNET_BINDIR =>
        "Set by the wrapper scripts of other installations.";
    Ignored GASNET_DUMMY => "Set for test programs that check how an environment arrives.";
    Refused GASNET_DOMAIN_COUNT("1") GASNET_GNI_PTHREADS_PER_DOMAIN("1")
        GASNET_AM_DOMAIN_POLL_MASK("255") =>
        "Communication domains of the conduit for Cray Gemini and Aries.",
        "all threads of a rank share its queues";
    Refused GASNET_GNI_NUM_PD =>
        "Operations in flight of the conduit for Cray Gemini and Aries.",
        "set GASNET_NETWORKDEPTH_TOTAL";
    Refused GASNET_GNI_GET_FMA_RDMA_CUTOVER GASNET_GNI_PUT_FMA_RDMA_CUTOVER =>
        "Sizes from which that conduit lets an engine move data.",
        "set GASNET_INLINESEND_LIMIT, for puts; gets have one way";
    Refused GASNET_GNI_GET_BOUNCE_REGISTER_CUTOVER GASNET_GNI_PUT_BOUNCE_REGISTER_CUTOVER
        GASNET_GNI_BOUNCE_SIZE =>
        "Sizes up to which that conduit copies, and its buffers.",
        "set GASNET_NONBULKPUT_BOUNCE_LIMIT and GASNET_BBUF_COUNT";
    Refused GASNET_GNI_MEMREG GASNET_USE_UDREG("1") GASNET_GNI_MEM_CONSISTENCY("relaxed")
        GASNET_GNI_FMA_SHARING GASNET_GNI_MDD_SHARING("1") GASNET_GNI_BTE_MULTI_CHANNEL("1") =>
        "Registration and hardware of the conduit for Cray Gemini and Aries.",
        "InfiniBand has no such thing; see the group on registration";
    Refused GASNET_PORTAL_MSG_LIMIT("250") GASNET_PORTAL_SB_CHUNKS GASNET_PORTAL_RPL_CHUNKS
        GASNET_PORTAL_AMRECV_SPACE =>
        "Messages in flight and buffers of the conduit for Portals.",
        "set GASNET_NETWORKDEPTH_TOTAL, GASNET_BBUF_COUNT and GASNET_RBUF_COUNT";
    Refused GASNET_PORTAL_PACKED_LONG("1") =>
        "Whether the conduit for Portals sends short Longs in one message.",
        "set GASNET_PACKEDLONG_LIMIT, where 0 means never";
    Refused GASNET_PORTAL_PUT_BOUNCE_LIMIT GASNET_PORTAL_GET_BOUNCE_LIMIT
        GASNET_PORTAL_PUTGET_BOUNCE_LIMIT GASNET_PORTAL_NUM_TMPMD("1024") =>
        "Sizes up to which the conduit for Portals copies, and its temporary descriptors.",
        "set GASNET_NONBULKPUT_BOUNCE_LIMIT";
    Refused GASNET_PORTAL_FLOW_CONTROL("1") GASNET_PORTAL_DYNAMIC_CREDITS("1") =>
        "Whether the conduit for Portals has credits, and moves them between peers.",
        "credits are always on, and move with GASNET_AM_FLOW_CONTROL=dynamic";
    Refused GASNET_PORTAL_CREDIT_STATS => "Statistics of the credits of the conduit for Portals.",
        "gasnetrun_ibv --stats has the stalls of each rank";
    Refused GASNET_PORTAL_SAFE_LIMIT("12") GASNET_PORTAL_AM_LIMIT("8") GASNET_PORTAL_SYS_LIMIT("0")
        GASNET_PORTAL_ACCEL("0") =>
        "Events that a poll of the conduit for Portals takes, and its firmware.",
        "polls take 16 messages and 32 completions of sends at most";
    Obsolete GASNET_AP_OUST_LIMIT => "A misspelling in an old document.",
        "set GASNET_NETWORKDEPTH_TOTAL";
    Obsolete GASNET_PSHM_NODES =>
        "Number of ranks in the shared-memory conduit of other installations.",
        "say gasnetrun_ibv -n RANKS";
}}
