//! Tracing, heap checks, collectives and clocks: all of it comes with later versions.

use super::{BYTES, COUNT, NO, POSITIVE, YES, computed, fixed, flag, open};
use crate::{Kind, Preset, Row};

/// A part of 1.
const PART: Kind = Kind::Real { min: 0.0, max: 1.0 };
const ALL: Preset = Preset::Value("*");

pub(crate) const TOOLS: &[Row] = &[
    open("GASNET_TRACEFILE", Kind::FilePattern, "Where to write a trace; % stands for the rank.")
        .later(),
    open("GASNET_TRACEMASK", Kind::Text, "Letters of what is traced; ^ in front means all others.")
        .later(),
    Row::new("GASNET_TRACENODES", Kind::Nodes, ALL, "Ranks that trace.").later(),
    flag("GASNET_TRACEFLUSH", NO, "Write the trace out after every record.").later(),
    flag("GASNET_TRACELOCAL", YES, "Trace transfers of a rank with itself too.").later(),
    open(
        "GASNET_STATSFILE",
        Kind::FilePattern,
        "Where to write statistics at the end; % stands for the rank.",
    )
    .later(),
    open(
        "GASNET_STATSMASK",
        Kind::Text,
        "Letters of what is counted; ^ in front means all others.",
    )
    .later(),
    Row::new("GASNET_STATSNODES", Kind::Nodes, ALL, "Ranks that count.").later(),
    flag("GASNET_MALLOC_INIT", NO, "Fill new blocks of the library's heap.").later(),
    fixed("GASNET_MALLOC_INITVAL", Kind::Text, "NAN", "What new blocks are filled with.").later(),
    flag("GASNET_MALLOC_CLOBBER", NO, "Overwrite freed blocks of the library's heap.").later(),
    fixed("GASNET_MALLOC_CLOBBERVAL", Kind::Text, "NAN", "What freed blocks are overwritten with.")
        .later(),
    flag("GASNET_MALLOC_LEAKALL", NO, "Never use a freed block again.").later(),
    flag("GASNET_MALLOC_SCANFREED", NO, "Look for writes into freed blocks.").later(),
    flag("GASNET_MALLOC_EXTRACHECK", NO, "Check the library's heap more often.").later(),
    open(
        "GASNET_MALLOCFILE",
        Kind::FilePattern,
        "Where to write a heap report at the end; % stands for the rank.",
    )
    .later(),
    Row::new("GASNET_MALLOCNODES", Kind::Nodes, ALL, "Ranks that report on their heap.").later(),
    flag(
        "GASNET_SD_INIT",
        YES,
        "Fill payload buffers that the library lends, to see whether they are written.",
    )
    .later(),
    fixed("GASNET_SD_INITVAL", Kind::Text, "NAN", "What lent payload buffers are filled with.")
        .later(),
    fixed(
        "GASNET_SD_INITLEN",
        POSITIVE,
        "128",
        "How many bytes of a lent payload buffer are filled.",
    )
    .unit("bytes")
    .later(),
];

const TREE: &str = "as GASNET_COLL_ROOTED_GEOM";
const BUILT_IN: &str = "built in";

pub(crate) const COLLECTIVES: &[Row] = &[
    flag("GASNET_VIS_AMPIPE", YES, "Pack strided and indexed transfers into Medium messages.")
        .later(),
    fixed(
        "GASNET_VIS_MAXCHUNK",
        BYTES,
        "3072",
        "Greatest piece that is packed in strided and indexed transfers.",
    )
    .later(),
    computed(
        "GASNET_VIS_PUT_MAXCHUNK",
        BYTES,
        "GASNET_VIS_MAXCHUNK",
        "As GASNET_VIS_MAXCHUNK, for puts.",
    )
    .later(),
    computed(
        "GASNET_VIS_GET_MAXCHUNK",
        BYTES,
        "GASNET_VIS_MAXCHUNK",
        "As GASNET_VIS_MAXCHUNK, for gets.",
    )
    .later(),
    computed(
        "GASNET_VIS_REMOTECONTIG",
        Kind::Bool,
        "yes when GASNET_DISABLE_MUNMAP took effect",
        "Pack here and transfer once when the other side is contiguous.",
    )
    .later(),
    fixed("GASNET_COLL_SCRATCH_SIZE", BYTES, "2M", "Scratch space of each rank for collectives.")
        .later(),
    flag("GASNET_COLL_ENABLE_SEARCH", NO, "Search for the best algorithm of each collective.")
        .later(),
    open("GASNET_COLL_TUNING_FILE", Kind::Text, "Where tuning data is read and written.").later(),
    flag("GASNET_COLL_ENABLE_PROFILE", NO, "Count calls for the tuner.").later(),
    fixed(
        "GASNET_COLL_ROOTED_GEOM",
        Kind::Text,
        "KNOMIAL_TREE,2",
        "Tree of collectives with a root.",
    )
    .later(),
    computed("GASNET_COLL_BROADCAST_GEOM", Kind::Text, TREE, "Tree of broadcasts.").later(),
    computed("GASNET_COLL_REDUCE_GEOM", Kind::Text, TREE, "Tree of reductions.").later(),
    computed("GASNET_COLL_SCATTER_GEOM", Kind::Text, TREE, "Tree of scatters.").later(),
    computed("GASNET_COLL_GATHER_GEOM", Kind::Text, TREE, "Tree of gathers.").later(),
    computed(
        "GASNET_COLL_GATHER_ALL_DISSEM_LIMIT",
        BYTES,
        BUILT_IN,
        "Size up to which allgathers use dissemination.",
    )
    .later(),
    computed(
        "GASNET_COLL_GATHER_ALL_DISSEM_LIMIT_PER_THREAD",
        BYTES,
        BUILT_IN,
        "As GASNET_COLL_GATHER_ALL_DISSEM_LIMIT, for each thread.",
    )
    .later(),
    computed(
        "GASNET_COLL_EXCHANGE_DISSEM_LIMIT",
        BYTES,
        BUILT_IN,
        "Size up to which exchanges use dissemination.",
    )
    .later(),
    computed(
        "GASNET_COLL_EXCHANGE_DISSEM_LIMIT_PER_THREAD",
        BYTES,
        BUILT_IN,
        "As GASNET_COLL_EXCHANGE_DISSEM_LIMIT, for each thread.",
    )
    .later(),
    fixed(
        "GASNET_COLL_EXCHANGE_DISSEM_RADIX",
        POSITIVE,
        "2",
        "Width of the dissemination of exchanges.",
    )
    .later(),
    computed(
        "GASNET_COLL_PIPE_SEG_SIZE",
        BYTES,
        BUILT_IN,
        "Piece of a collective that is pipelined.",
    )
    .later(),
    computed("GASNET_COLL_P2P_EAGER_MIN", COUNT, BUILT_IN, "Least eager buffer of collectives.")
        .later(),
    computed(
        "GASNET_COLL_P2P_EAGER_SCALE",
        COUNT,
        BUILT_IN,
        "Growth of the eager buffer of collectives.",
    )
    .later(),
    computed(
        "GASNET_COLL_AUTOTUNE_WARM_ITERS",
        COUNT,
        BUILT_IN,
        "Runs of the tuner that do not count.",
    )
    .later(),
    computed("GASNET_COLL_AUTOTUNE_PERF_ITERS", COUNT, BUILT_IN, "Runs of the tuner that count.")
        .later(),
    computed(
        "GASNET_COLL_AUTOTUNE_ALLOW_FLAT_TREE",
        Kind::Bool,
        BUILT_IN,
        "Let the tuner try flat trees.",
    )
    .later(),
    computed(
        "GASNET_COLL_ALLOW_CONDUIT_COLLECTIVES",
        Kind::Bool,
        BUILT_IN,
        "Let collectives use what the network offers for them.",
    )
    .later(),
    computed(
        "GASNET_COLL_PRINT_AUTOTUNE_TIMER",
        Kind::Bool,
        BUILT_IN,
        "Print the times of the tuner.",
    )
    .later(),
    flag("GASNET_COLL_PRINT_COLL_ALG", NO, "Print the algorithm of each collective.").later(),
    fixed(
        "GASNET_TSC_RATE",
        Kind::Text,
        "wallclock",
        "How the clock is calibrated: cpuinfo, wallclock or a rate in Hz.",
    )
    .later(),
    fixed(
        "GASNET_TSC_RATE_TOLERANCE",
        PART,
        "0.0005",
        "Error of the clock from which on a warning is given.",
    )
    .later(),
    fixed(
        "GASNET_TSC_RATE_HARD_TOLERANCE",
        PART,
        "0.02",
        "Error of the clock from which on the job is ended.",
    )
    .later(),
    flag("GASNET_TSC_VERBOSE", NO, "Print the calibration of the clock.").later(),
    flag("GASNET_USE_CUDA_SYNC_MEMOPS", YES, "Order transfers with the memory of CUDA devices.")
        .later(),
    flag("GASNET_USE_HIP_SYNC_MEMOPS", YES, "Order transfers with the memory of HIP devices.")
        .later(),
];
