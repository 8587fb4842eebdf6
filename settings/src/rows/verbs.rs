//! The network between ranks that share no memory: fabric, ports, connections, progress threads,
//! registration.

use super::{COUNT, NO, POSITIVE, YES, computed, fixed, flag, open};
use crate::variable::{Kind, Variable};

const POLL_MODES: Kind = Kind::Enum(&["serialized", "unserialized", "exclusive"]);

pub(crate) const PORTS: &[Variable] = &[
    fixed(
        "GASNET_IBV_FABRIC",
        Kind::Enum(&["auto", "verbs", "soft"]),
        "auto",
        "Network between ranks that share no memory: adapters through libibverbs, or the software adapter over TCP and UDP; auto takes adapters if every rank has a usable port.",
    ),
    fixed(
        "GASNET_IBV_SOFT_DEVICES",
        Kind::Int { min: 1, max: 8 },
        "1",
        "Software adapters of each rank; each is a rail of its own.",
    ),
    open(
        "GASNET_IBV_SOFT_ADDRESS",
        Kind::Text,
        "Where the software adapter listens: an address of this host, or a network such as 10.1.2.0/24 of which the host has one.",
    ),
    open(
        "GASNET_IBV_SOFT_FAULTS",
        Kind::Text,
        "For tests: script of the faults that the software adapter has.",
    ),
    open(
        "GASNET_IBV_GID_INDEX",
        Kind::Int { min: 0, max: 255 },
        "Entry of the port's table of GIDs that peers are told; without it the best RoCE v2 entry on Ethernet, and 0 on InfiniBand.",
    ),
    open(
        "GASNET_IBV_PORTS",
        Kind::Text,
        "Adapters and ports to use: HCA or HCA:PORT,PORT, joined with +.",
    ),
    fixed(
        "GASNET_IBV_PORTS_TYPE",
        Kind::Text,
        "Socket",
        "Kind of object whose number chooses between GASNET_IBV_PORTS_0, _1 and so on; None or Auto.",
    ),
    fixed("GASNET_IBV_PORTS_VERBOSE", COUNT, "1", "How much is said about the choice of ports."),
    flag("GASNET_IBV_LIST_PORTS", NO, "Print all adapters and the states of their ports."),
    fixed("GASNET_IBV_LIST_PORTS_NODES", Kind::Nodes, "*", "Ranks that may print the adapters."),
    open(
        "GASNET_IBV_PKEY",
        Kind::Int { min: 2, max: 0xffff },
        "Partition key to use on every port.",
    ),
    flag(
        "GASNET_IBV_MODEL_WARN",
        YES,
        "Warn about models of adapters that another network serves better.",
    ),
    fixed("GASNET_NUM_QPS", COUNT, "0", "Queue pairs for each peer; 0 means one on each port."),
    fixed(
        "GASNET_QP_TIMEOUT",
        COUNT,
        "18",
        "Time until a packet is sent again: 4.096 µs * 2^n, n at most 31; 0 waits for ever.",
    ),
    fixed(
        "GASNET_QP_RETRY_COUNT",
        POSITIVE,
        "7",
        "How often a packet is sent again before an error, at most 7.",
    ),
    fixed(
        "GASNET_QP_RD_ATOM",
        COUNT,
        "0",
        "Reads and atomics in flight on a queue pair; 0 means what the adapter can do.",
    ),
    fixed(
        "GASNET_MAX_MTU",
        Kind::Size { unit: 1, min: -1, max: i64::MAX },
        "0",
        "Greatest packet: 256, 512, 1024, 2048 or 4096; 0 or -1 takes what the port has.",
    ),
    flag("GASNET_CONNECT_DYNAMIC", YES, "Connect to a peer when it is needed first."),
    flag("GASNET_CONNECT_STATIC", YES, "Connect to peers at the start."),
    open(
        "GASNET_CONNECTFILE_IN",
        Kind::FilePattern,
        "List of the peers to connect to at the start.",
    ),
    open(
        "GASNET_CONNECTFILE_OUT",
        Kind::FilePattern,
        "Where to write at the end which peers were used.",
    ),
    fixed(
        "GASNET_CONNECTFILE_BASE",
        Kind::Int { min: 2, max: 36 },
        "36",
        "Base of the numbers in the written list.",
    ),
    fixed("GASNET_CONNECT_SNDS", POSITIVE, "4", "Send buffers for connecting."),
    computed(
        "GASNET_CONNECT_RCVS",
        POSITIVE,
        "4 + 2 * log2 of the ranks",
        "Receive buffers for connecting.",
    ),
    fixed(
        "GASNET_CONNECT_RETRANS_MIN",
        POSITIVE,
        "1000",
        "First wait before a connection request is sent again.",
    )
    .unit("µs"),
    fixed(
        "GASNET_CONNECT_RETRANS_MAX",
        POSITIVE,
        "67108864",
        "Longest wait before a connection request is sent again.",
    )
    .unit("µs"),
    fixed(
        "GASNET_CONNECT_DROP_DENOM",
        COUNT,
        "0",
        "For tests: lose about one connection packet in so many; 0 loses none.",
    ),
    flag("GASNET_RCV_THREAD", NO, "A thread for each adapter that waits for messages."),
    fixed(
        "GASNET_RCV_THREAD_RATE",
        COUNT,
        "0",
        "Most wake-ups of the receiving thread per second; 0 means any number.",
    ),
    fixed(
        "GASNET_RCV_THREAD_IDLE",
        COUNT,
        "0",
        "How long the receiving thread polls before it sleeps.",
    )
    .unit("ns"),
    fixed(
        "GASNET_RCV_THREAD_POLL_MODE",
        POLL_MODES,
        "serialized",
        "How the receiving thread shares the queue with others.",
    ),
    flag("GASNET_SND_THREAD", NO, "A thread for each adapter that waits for the ends of sends."),
    fixed("GASNET_SND_THREAD_RATE", COUNT, "0", "As GASNET_RCV_THREAD_RATE, for sends."),
    fixed("GASNET_SND_THREAD_IDLE", COUNT, "0", "As GASNET_RCV_THREAD_IDLE, for sends.").unit("ns"),
    fixed(
        "GASNET_SND_THREAD_POLL_MODE",
        POLL_MODES,
        "serialized",
        "As GASNET_RCV_THREAD_POLL_MODE, for sends.",
    ),
    open(
        "MLX4_SINGLE_THREADED",
        Kind::Text,
        "Read by the mlx4 driver: 1 tells it that it needs no locks; only for programs with one thread and without progress threads.",
    ),
    open("MLX5_SINGLE_THREADED", Kind::Text, "Read by the mlx5 driver, as MLX4_SINGLE_THREADED."),
];

pub(crate) const PINNING: &[Variable] = &[flag(
    "GASNET_USE_ODP",
    NO,
    "Use paging on demand where the adapter has it; this version has none and refuses 1.",
)];
