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
    GASNET_IBV_SOFT_SECURE: Bool, NO =>
        "Encrypt and authenticate all that the software adapter sends (ChaCha20-Poly1305 under keys \
         made from the job's); the same on all ranks. Adapters and shared memory are left as they are.";
    GASNET_IBV_SOFT_FAULTS: Text, Unset =>
        "For tests: script of the faults that the software adapter has.";
    GASNET_IBV_GID_INDEX: Int { min: 0, max: 255 }, Unset =>
        "Entry of the port's table of GIDs that peers are told; without it the best RoCE v2 entry \
         on Ethernet, and 0 on InfiniBand.";
    GASNET_IBV_PORTS: PortFilter, Unset =>
        "Adapters and ports that may be used: HCA or HCA:PORT,PORT, joined with +.";
    GASNET_IBV_PORTS_TYPE: Text, Value("Socket") =>
        "Kind of object whose number chooses between GASNET_IBV_PORTS_0, _1 and so on; None or \
         Auto.";
    GASNET_IBV_PORTS_VERBOSE: COUNT, Value("1") =>
        "What is said about the choice of ports: 0 nothing; 1 adapters that no limit but \
         GASNET_IBV_PORTS leaves out; 2 the ports used, and what the filter names in vain; 3 why \
         others are not used.";
    GASNET_IBV_MAX_HCAS: POSITIVE, Value("1") =>
        "Adapters that a rank uses at most: the nearest to its processors, equally near ones in \
         turn by its rank on the host.";
    GASNET_IBV_LIST_PORTS: Bool, NO => "Print all adapters and the states of their ports.";
    GASNET_IBV_LIST_PORTS_NODES: Nodes, Value("*") => "Ranks that may print the adapters.";
    GASNET_IBV_PKEY: Int { min: 2, max: 0xffff }, Unset => "Partition key to use on every port.";
    GASNET_IBV_MODEL_WARN: Bool, YES =>
        "Warn about models of adapters that another network serves better.";
    GASNET_NUM_QPS: COUNT, Value("0") => "Queue pairs for each peer, and ports at most; 0 means one on each port.";
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
    GASNET_PHYSMEM_MAX: MemSpec { per: false, min: 128 << 20 }, Value("2/3") =>
        "Most memory that adapters may pin on a host: a part of its memory or a size; it bounds \
         segments.";
    GASNET_PHYSMEM_PROBE: Bool, Computed("no where GASNET_PHYSMEM_MAX is set, else yes") =>
        "Pin memory at the start to find out whether so much is possible. What was found is kept \
         until the next start of the host.";
    GASNET_PHYSMEM_WARN: Bool, YES => "Say that a probe for more than 2G begins, and its result.";
    GASNET_USE_ODP: Bool, YES =>
        "Page memory outside segments in on demand where every adapter of a rank can, instead of \
         registering it; not for shared connections (GASNET_USE_XRC).";
    GASNET_ODP_VERBOSE: Int { min: 0, max: 3 }, Value("1") =>
        "Where ranks lack paging on demand, and this variable or GASNET_USE_ODP is set: 1 says how \
         many, 2 also which, 3 each of them its adapters; 0 says nothing.";
    GASNET_USE_FIREHOSE: Bool, YES =>
        "Register memory outside segments for transfers and keep it registered; 0 copies instead.";
    GASNET_FIREHOSE_MAXVICTIM_M: Size { unit: MIB, min: PAGE_BYTES, max: i64::MAX },
        Computed("an eighth of the memory, shared by the ranks of the host, from 16M to 1G") =>
        "Most memory outside segments that a rank keeps registered; a number without a letter \
         counts megabytes.";
    GASNET_FIREHOSE_MAXVICTIM_R: POSITIVE,
        Computed("as many as GASNET_FIREHOSE_MAXVICTIM_M has room for, at most 4096") =>
        "Most regions of such memory.";
    GASNET_FIREHOSE_M: Size { unit: MIB, min: PAGE_BYTES, max: i64::MAX },
        Computed("an eighth of the memory, shared by the ranks of the host, from 16M to 1G") =>
        "Most memory that a rank keeps registered for transfers of other ranks, where the segment mode \
         is LARGE or EVERYTHING; a number without a letter counts megabytes.";
    GASNET_FIREHOSE_R: COUNT,
        Computed("as many as GASNET_FIREHOSE_M has room for, at most 4096") =>
        "Most regions of such memory; with 0 they go by messages.";
    GASNET_FIREHOSE_MAXREGION_SIZE: Size { unit: MIB, min: 0, max: i64::MAX }, Value("128K") =>
        "Largest such region, from a page to 16M, cut to a power of two; 0 takes what makes the \
         regions hold GASNET_FIREHOSE_MAXVICTIM_M.";
    GASNET_FIREHOSE_VERBOSE: Bool, NO =>
        "Say why transfers are copied, and at the end how often memory was registered.";
    GASNET_PINNED_REGIONS_MAX: REAL,
        Computed("a quarter of what the adapter has") =>
        "Most regions on a host, shared by its ranks: a part below 1 of what the adapter has, or a \
         number from 16 to 95 % of it.";
} without effect {
    Obsolete GASNET_PHYSMEM_NOPROBE => "Old way to switch the probe off.",
        "set GASNET_PHYSMEM_PROBE=0";
    Obsolete GASNET_PHYSMEM_PINNABLE_RATIO =>
        "Part of the memory that another network takes to be pinnable.", "set GASNET_PHYSMEM_MAX";
    Obsolete GASNET_FIREHOSE_TABLE_SCALE => "Size of hash tables of regions.",
        "regions are found by order, without a table";
    Obsolete GASNET_FIREHOSE_REUSE_PREPINNED => "Where pages that are pinned are looked for.",
        "memory inside segments is always used as it is";
    Ignored MALLOC_MMAP_THRESHOLD_ MALLOC_MMAP_MAX_ =>
        "Of the C library; values other than -1 and 0 defeat GASNET_DISABLE_MUNMAP.";
}}
