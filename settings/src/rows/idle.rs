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
    Later GASNET_MALLOC_INIT GASNET_MALLOC_INITVAL GASNET_MALLOC_CLOBBER
        GASNET_MALLOC_CLOBBERVAL GASNET_MALLOC_LEAKALL GASNET_MALLOC_SCANFREED
        GASNET_MALLOC_EXTRACHECK GASNET_MALLOCFILE GASNET_MALLOCNODES =>
        "Checks of the library's heap: what new and freed blocks are filled with, whether freed \
         blocks are used again, how often the heap is checked, the report at the end.";
    Later GASNET_SD_INIT GASNET_SD_INITVAL GASNET_SD_INITLEN =>
        "Whether, with what and how far payload buffers that the library lends are filled.";
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
    Later GASNET_COLL_SCRATCH_SIZE => "Scratch space of each rank for collectives.";
    Later GASNET_COLL_ENABLE_SEARCH GASNET_COLL_TUNING_FILE GASNET_COLL_ENABLE_PROFILE
        GASNET_COLL_AUTOTUNE_WARM_ITERS GASNET_COLL_AUTOTUNE_PERF_ITERS
        GASNET_COLL_AUTOTUNE_ALLOW_FLAT_TREE GASNET_COLL_PRINT_AUTOTUNE_TIMER
        GASNET_COLL_PRINT_COLL_ALG GASNET_COLL_ALLOW_CONDUIT_COLLECTIVES =>
        "Search for the best algorithm of each collective, its data, runs and output, and whether \
         collectives use what the network offers for them.";
    Later GASNET_COLL_ROOTED_GEOM GASNET_COLL_BROADCAST_GEOM GASNET_COLL_REDUCE_GEOM
        GASNET_COLL_SCATTER_GEOM GASNET_COLL_GATHER_GEOM => "Trees of collectives with a root.";
    Later GASNET_COLL_GATHER_ALL_DISSEM_LIMIT GASNET_COLL_GATHER_ALL_DISSEM_LIMIT_PER_THREAD
        GASNET_COLL_EXCHANGE_DISSEM_LIMIT GASNET_COLL_EXCHANGE_DISSEM_LIMIT_PER_THREAD
        GASNET_COLL_EXCHANGE_DISSEM_RADIX =>
        "Sizes up to which allgathers and exchanges use dissemination, and its width.";
    Later GASNET_COLL_PIPE_SEG_SIZE GASNET_COLL_P2P_EAGER_MIN GASNET_COLL_P2P_EAGER_SCALE =>
        "Piece of a collective that is pipelined, and the eager buffer of collectives.";
    Later GASNET_TSC_RATE GASNET_TSC_RATE_TOLERANCE GASNET_TSC_RATE_HARD_TOLERANCE
        GASNET_TSC_VERBOSE =>
        "Calibration of the clock: how, which errors give a warning or end the job, its output.";
    Later GASNET_USE_CUDA_SYNC_MEMOPS GASNET_USE_HIP_SYNC_MEMOPS =>
        "Order transfers with the memory of CUDA and HIP devices.";
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
    Obsolete GASNET_PSHM_NODES =>
        "Number of ranks in the shared-memory conduit of other installations.",
        "say gasnetrun_ibv -n RANKS";
}}
