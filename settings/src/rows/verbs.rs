//! The network between ranks that share no memory: fabric, ports, connections, progress threads,
//! registration.

use super::*;

const POLL_MODES: Kind = Enum(&["serialized", "unserialized", "exclusive"]);

group! { PORTS "Adapters, ports and connections" {
    GASNET_IBV_FABRIC: Enum(&["auto", "verbs", "soft"]), Value("auto") =>
        "Network between ranks that share no memory: adapters through libibverbs, or the software \
         adapter over TCP and UDP; auto takes adapters if every rank has a usable port.";
    GASNET_IBV_SOFT_DEVICES: Int { min: 1, max: 8 }, Value("1") =>
        "Software adapters of each rank; each is a rail of its own.";
    GASNET_IBV_SOFT_ADDRESS: Text, Unset =>
        "Where the software adapter listens: an address of this host, or a network such as \
         10.1.2.0/24 of which the host has one.";
    GASNET_IBV_SOFT_FAULTS: Text, Unset =>
        "For tests: script of the faults that the software adapter has.";
    GASNET_IBV_GID_INDEX: Int { min: 0, max: 255 }, Unset =>
        "Entry of the port's table of GIDs that peers are told; without it the best RoCE v2 entry \
         on Ethernet, and 0 on InfiniBand.";
    GASNET_IBV_PORTS: Text, Unset =>
        "Adapters and ports to use: HCA or HCA:PORT,PORT, joined with +.";
    GASNET_IBV_PORTS_TYPE: Text, Value("Socket") =>
        "Kind of object whose number chooses between GASNET_IBV_PORTS_0, _1 and so on; None or \
         Auto.";
    GASNET_IBV_PORTS_VERBOSE: COUNT, Value("1") => "How much is said about the choice of ports.";
    GASNET_IBV_LIST_PORTS: Bool, NO => "Print all adapters and the states of their ports.";
    GASNET_IBV_LIST_PORTS_NODES: Nodes, Value("*") => "Ranks that may print the adapters.";
    GASNET_IBV_PKEY: Int { min: 2, max: 0xffff }, Unset => "Partition key to use on every port.";
    GASNET_IBV_MODEL_WARN: Bool, YES =>
        "Warn about models of adapters that another network serves better.";
    GASNET_NUM_QPS: COUNT, Value("0") => "Queue pairs for each peer; 0 means one on each port.";
    GASNET_QP_TIMEOUT: COUNT, Value("18") =>
        "Time until a packet is sent again: 4.096 µs * 2^n, n at most 31; 0 waits for ever.";
    GASNET_QP_RETRY_COUNT: POSITIVE, Value("7") =>
        "How often a packet is sent again before an error, at most 7.";
    GASNET_QP_RD_ATOM: COUNT, Value("0") =>
        "Reads and atomics in flight on a queue pair; 0 means what the adapter can do.";
    GASNET_MAX_MTU: Size { unit: 1, min: -1, max: i64::MAX }, Value("0") =>
        "Greatest packet: 256, 512, 1024, 2048 or 4096, and not above what the port has, which -1 \
         takes; 0 leaves the choice to the library, which takes the same. Other sizes end the job.";
    GASNET_CONNECT_DYNAMIC: Bool, YES => "Connect to a peer when it is needed first.";
    GASNET_CONNECT_STATIC: Bool, YES => "Connect to peers at the start.";
    GASNET_CONNECTFILE_IN: FilePattern, Unset => "List of the peers to connect to at the start.";
    GASNET_CONNECTFILE_OUT: FilePattern, Unset =>
        "Where to write at the end which peers were used.";
    GASNET_CONNECTFILE_BASE: Int { min: 2, max: 36 }, Value("36") =>
        "Base of the numbers in the written list.";
    GASNET_CONNECT_SNDS: POSITIVE, Value("4") => "Send buffers for connecting.";
    GASNET_CONNECT_RCVS: POSITIVE,
        Computed("4 + 2 * log2 of the ranks that share no memory with this one, at least 6") =>
        "Receive buffers for connecting.";
    GASNET_CONNECT_RETRANS_MIN: POSITIVE, Value("1000"), unit("µs") =>
        "First wait before a connection request is sent again.";
    GASNET_CONNECT_RETRANS_MAX: POSITIVE, Value("67108864"), unit("µs") =>
        "Longest wait before a connection request is sent again: the wait doubles each time, and \
         when it would be longer, and the request was sent again 8 times, connecting has failed.";
    GASNET_CONNECT_DROP_DENOM: COUNT, Value("0") =>
        "For tests: lose about one connection packet in so many; 0 loses none.";
    GASNET_RCV_THREAD: Bool, NO => "A thread for each adapter that waits for messages.";
    GASNET_RCV_THREAD_RATE: COUNT, Value("0") =>
        "Most wake-ups of the receiving thread per second; 0 means any number.";
    GASNET_RCV_THREAD_IDLE: COUNT, Value("0"), unit("ns") =>
        "How long the receiving thread polls before it sleeps.";
    GASNET_RCV_THREAD_POLL_MODE: POLL_MODES, Value("serialized") =>
        "How the receiving thread shares the queue with others.";
    GASNET_SND_THREAD: Bool, NO => "A thread for each adapter that waits for the ends of sends.";
    GASNET_SND_THREAD_RATE: COUNT, Value("0") => "As GASNET_RCV_THREAD_RATE, for sends.";
    GASNET_SND_THREAD_IDLE: COUNT, Value("0"), unit("ns") =>
        "As GASNET_RCV_THREAD_IDLE, for sends.";
    GASNET_SND_THREAD_POLL_MODE: POLL_MODES, Value("serialized") =>
        "As GASNET_RCV_THREAD_POLL_MODE, for sends.";
    MLX4_SINGLE_THREADED: Text, Unset =>
        "Read by the mlx4 driver: 1 tells it that it needs no locks; only for programs with one \
         thread and without progress threads.";
    MLX5_SINGLE_THREADED: Text, Unset => "Read by the mlx5 driver, as MLX4_SINGLE_THREADED.";
} without effect {
    Obsolete GASNET_HCA_ID GASNET_PORT_NUM => "Old way to choose an adapter and its port.",
        "name adapters in GASNET_IBV_PORTS";
    Obsolete GASNET_RCV_THREAD_LOAD => "Was announced and never existed.",
        "GASNET_RCV_THREAD_RATE bounds the receiving thread";
}}

group! { PINNING "Registration of memory" {
    GASNET_USE_ODP: Bool, NO =>
        "Use paging on demand where the adapter has it; this version has none and refuses 1.";
} without effect {
    Later GASNET_PHYSMEM_MAX GASNET_PHYSMEM_PROBE GASNET_PHYSMEM_WARN =>
        "Most memory that may be pinned on a host, whether pinning finds the limit, and whether \
         that is said.";
    Obsolete GASNET_PHYSMEM_NOPROBE => "Old way to switch the probe off.",
        "set GASNET_PHYSMEM_PROBE=0";
    Obsolete GASNET_PHYSMEM_PINNABLE_RATIO =>
        "Part of the memory that another network takes to be pinnable.", "set GASNET_PHYSMEM_MAX";
    Later GASNET_PINNED_REGIONS_MAX => "Most registered regions on a host.";
    Later GASNET_ODP_VERBOSE => "How much is said about paging on demand.";
    Later GASNET_USE_FIREHOSE GASNET_FIREHOSE_M GASNET_FIREHOSE_MAXVICTIM_M GASNET_FIREHOSE_R
        GASNET_FIREHOSE_MAXVICTIM_R GASNET_FIREHOSE_MAXREGION_SIZE GASNET_FIREHOSE_TABLE_SCALE
        GASNET_FIREHOSE_VERBOSE GASNET_FIREHOSE_REUSE_PREPINNED =>
        "Register memory on demand instead of copying: memory and regions pinned on behalf of \
         others and for own use, sizes, output.";
    Ignored MALLOC_MMAP_THRESHOLD_ MALLOC_MMAP_MAX_ =>
        "Of the C library; values other than -1 and 0 defeat GASNET_DISABLE_MUNMAP.";
}}
