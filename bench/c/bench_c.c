/* Figures of the C face beside hand-written references in the same two processes.
 *
 * Usage, on 2 ranks that are bound to a processor each:
 *   bench_c short|flood|medium|sizes|putget|put8|atomic|barrier PAIRS
 * Prints `KEY VALUE` lines: nanoseconds each, messages per microsecond, or MB/s. The first pair warms up and is not
 * printed. Compiled once for each thread mode; see scripts/bench. */
#define _GNU_SOURCE
#include <gasnet_ratomic.h>
#include <gasnetex.h>

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
    BLOCK = 1024,
    BLOCKS = 100000,
    TRIPS = 20000,
    DISTANCE_TRIPS = 4000,
    SHORTS = 200000,
    PUTS = 100000,
    PUT_LOOPS = 200,
    ROUNDS = 20000,
    LARGE_TIMES = 200,
    MEGABYTE = 1 << 20,
    /* Larger than the caches of any machine that this is run on. */
    HUGE_BUFFER = 128 << 20,
    BLOCK_SLOTS = 64,
    LINE_SLOTS = 256,
    BLOCKS_AT = 8192,
    LINES_AT = BLOCKS_AT + BLOCK_SLOTS * BLOCK,
    PUTS_AT = LINES_AT + LINE_SLOTS * 64,
    PUT_WORDS = 512
};

enum { PING = 200, PONG, DATA, STOP, COUNT, ECHO, ECHOED };

static gex_TM_t team;
static gex_Rank_t rank;
static gex_Rank_t peer;
/* First address of this rank's and the peer's segment, as their owner sees them and here. */
static char *own, *theirs, *theirs_here;
/* Memory that both ranks map, for the references; no part of the library. */
static char *shared;
static volatile uint64_t pongs, stops, counted;
static uint64_t total;

static void fail(const char *what)
{
    fprintf(stderr, "bench_c: rank %u: %s\n", (unsigned)rank, what);
    gasnet_exit(1);
}

static void must(int code, const char *what)
{
    if (code != GASNET_OK) fail(what);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void meet(void)
{
    gex_Event_Wait(gex_Coll_BarrierNB(team, 0));
}

/* Words of the references: one on each pair of cache lines. */
static uint64_t *word(int line)
{
    return (uint64_t *)(void *)(shared + line * 128);
}

static inline void put_word(uint64_t *at, uint64_t value)
{
    __atomic_store_n(at, value, __ATOMIC_RELEASE);
}

static inline uint64_t get_word(const uint64_t *at)
{
    return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}

/* Waits until the word is at least `value`. */
static inline void spin_until(const uint64_t *at, uint64_t value)
{
    while (get_word(at) < value) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
}

/* First word of every cache line, as a program reads a block. */
static inline uint64_t sum_lines(const void *block, size_t bytes)
{
    uint64_t sum = 0, one;
    size_t at;
    for (at = 0; at + sizeof one <= bytes; at += 64) {
        memcpy(&one, (const char *)block + at, sizeof one);
        sum += one;
    }
    return sum;
}

static void ping(gex_Token_t token)
{
    gex_AM_ReplyShort0(token, PONG, 0);
}

static void pong(gex_Token_t token)
{
    (void)token;
    pongs++;
}

static void stop(gex_Token_t token)
{
    (void)token;
    stops++;
}

/* `last` asks for an answer. */
static void count(gex_Token_t token, gex_AM_Arg_t all)
{
    static gex_AM_Arg_t got;
    counted++;
    if (++got == all) {
        got = 0;
        gex_AM_ReplyShort0(token, PONG, 0);
    }
}

static void data(gex_Token_t token, void *block, size_t bytes, gex_AM_Arg_t last)
{
    total += sum_lines(block, bytes);
    if (last) gex_AM_ReplyShort0(token, PONG, 0);
}

static void echo(gex_Token_t token, void *bytes, size_t length)
{
    gex_AM_ReplyMedium0(token, ECHOED, bytes, length, GEX_EVENT_NOW, 0);
}

static void echoed(gex_Token_t token, void *bytes, size_t length)
{
    (void)token, (void)bytes, (void)length;
    pongs++;
}

static gex_AM_Entry_t entry(gex_AM_Index_t index, gex_AM_Fn_t function, gex_Flags_t flags, unsigned int nargs)
{
    gex_AM_Entry_t made;
    memset(&made, 0, sizeof made);
    made.gex_index = index;
    made.gex_fnptr = function;
    made.gex_flags = flags;
    made.gex_nargs = nargs;
    return made;
}

/* Rank 0 makes memory and tells the other where it is. */
static void share(void)
{
    const size_t bytes = PUTS_AT + PUT_WORDS * 8;
    int file = -1;
    uint64_t where[2] = {0, 0};
    char path[64];
    if (rank == 0) {
        file = memfd_create("bench_c", MFD_CLOEXEC);
        if (file < 0 || ftruncate(file, (off_t)bytes) != 0) fail("no memory for the references");
        where[0] = (uint64_t)getpid();
        where[1] = (uint64_t)file;
        memcpy(own, where, sizeof where);
    }
    meet();
    if (rank != 0) {
        must(gex_RMA_GetBlocking(team, where, 0, theirs, sizeof where, 0), "get");
        snprintf(path, sizeof path, "/proc/%llu/fd/%llu", (unsigned long long)where[0], (unsigned long long)where[1]);
        file = open(path, O_RDWR | O_CLOEXEC);
        if (file < 0) fail("cannot open the memory of the references");
    }
    shared = (char *)mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (shared == (char *)MAP_FAILED) fail("cannot map the memory of the references");
    meet();
}

static void join(int *argc, char ***argv)
{
    gex_Client_t client;
    gex_EP_t endpoint;
    gex_Segment_t segment;
    uintptr_t size;
    void *owner = NULL, *here = NULL;
    gex_AM_Entry_t table[7];
    must(gex_Client_Init(&client, &endpoint, &team, "bench_c", argc, argv, 0), "gex_Client_Init");
    rank = gex_TM_QueryRank(team);
    if (gex_TM_QuerySize(team) != 2) fail("this needs 2 ranks");
    peer = 1 - rank;
    table[0] = entry(PING, (gex_AM_Fn_t)ping, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 0);
    table[1] = entry(PONG, (gex_AM_Fn_t)pong, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REPLY, 0);
    table[2] = entry(DATA, (gex_AM_Fn_t)data, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REQUEST, 1);
    table[3] = entry(STOP, (gex_AM_Fn_t)stop, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 0);
    table[4] = entry(COUNT, (gex_AM_Fn_t)count, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 1);
    table[5] = entry(ECHO, (gex_AM_Fn_t)echo, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REQUEST, 0);
    table[6] = entry(ECHOED, (gex_AM_Fn_t)echoed, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REPLY, 0);
    must(gex_EP_RegisterHandlers(endpoint, table, 7), "gex_EP_RegisterHandlers");
    must(gex_Segment_Attach(&segment, team, MEGABYTE), "gex_Segment_Attach");
    own = (char *)gex_Segment_QueryAddr(segment);
    gex_Event_Wait(gex_EP_QueryBoundSegmentNB(team, peer, &owner, &here, &size, 0));
    theirs = (char *)owner;
    theirs_here = (char *)here;
    if (!theirs || !theirs_here || size < MEGABYTE) fail("the peer's segment cannot be reached");
    share();
}

/* Rank 0 runs `work`, rank 1 serves messages meanwhile. */
static double against_server(double (*work)(void))
{
    const uint64_t wanted = stops + 1;
    double value = 0;
    meet();
    if (rank == 0) {
        value = work();
        must(gex_AM_RequestShort0(team, peer, STOP, 0), "request");
    } else {
        GASNET_BLOCKUNTIL(stops >= wanted);
    }
    return value;
}

/* --- round trips --- */

static double trips(void)
{
    uint64_t wanted = pongs;
    const double begin = now();
    int trip;
    for (trip = 0; trip < TRIPS; trip++) {
        must(gex_AM_RequestShort0(team, peer, PING, 0), "request");
        wanted++;
        GASNET_BLOCKUNTIL(pongs == wanted);
    }
    return (now() - begin) / TRIPS;
}

/* Words `there` and `back` count up: odd is rank 0's turn done, even rank 1's. */
static double ping_pong(int there, int back, int pair, int rounds)
{
    uint64_t *const to = word(there), *const from = word(back);
    const uint64_t first = (uint64_t)pair * (uint64_t)rounds;
    double begin;
    uint64_t turn;
    meet();
    begin = now();
    for (turn = first; turn < first + (uint64_t)rounds; turn++) {
        if (rank == 0) {
            put_word(to, 2 * turn + 1);
            spin_until(from, 2 * turn + 2);
        } else {
            spin_until(to, 2 * turn + 1);
            put_word(from, 2 * turn + 2);
        }
    }
    return (now() - begin) / rounds;
}

static void shorts(int pair, int print)
{
    const double ours = against_server(trips);
    const double one = ping_pong(0, 0, pair, TRIPS);
    const double two = ping_pong(1, 2, pair, TRIPS);
    if (print) printf("c_short_ns %.2f\nc_pingpong_ns %.2f\nc_pingpong_two_ns %.2f\n", ours, one, two);
}

/* --- flood of Shorts --- */

/* Each message says how many there are; when all have arrived, in whatever order, that is acknowledged. */
static double flood(void)
{
    const uint64_t before = pongs;
    const double begin = now();
    int number;
    for (number = 1; number <= SHORTS; number++)
        must(gex_AM_RequestShort1(team, peer, COUNT, 0, SHORTS), "request");
    GASNET_BLOCKUNTIL(pongs > before);
    return SHORTS * 1e3 / (now() - begin);
}

/* The same over a ring with one writer and one reader: a message is a cache line with its number in the first word. The
 * reader says where it is in a line of its own, which the writer looks at when the ring seems full. */
static double line_ring(int pair)
{
    uint64_t *const taken = word(5);
    const uint64_t first = (uint64_t)pair * SHORTS + 1, end = first + SHORTS;
    uint64_t number, seen = first - 1;
    double begin;
    meet();
    begin = now();
    for (number = first; number < end; number++) {
        uint64_t *const line = (uint64_t *)(void *)(shared + LINES_AT + (number % LINE_SLOTS) * 64);
        if (rank == 0) {
            while (number - seen > LINE_SLOTS) seen = get_word(taken);
            line[1] = number;
            put_word(line, number);
        } else {
            while (get_word(line) != number) {
            }
            counted += line[1] != 0;
            put_word(taken, number);
        }
    }
    if (rank == 0) spin_until(taken, end - 1);
    return SHORTS * 1e3 / (now() - begin);
}

static void floods(int pair, int print)
{
    const double ours = against_server(flood);
    const double ring = line_ring(pair);
    if (print) printf("c_flood_per_us %.3f\nc_line_ring_per_us %.3f\n", ours, ring);
}

/* --- flood of Mediums --- */

static char block[BLOCK], copy[BLOCK];
static char *from_large, *to_large;

static double medium_flood(void)
{
    const uint64_t before = pongs;
    const double begin = now();
    int number;
    for (number = 1; number <= BLOCKS; number++)
        must(gex_AM_RequestMedium1(team, peer, DATA, block, BLOCK, GEX_EVENT_NOW, 0, number == BLOCKS), "request");
    GASNET_BLOCKUNTIL(pongs > before);
    return 1e3 * BLOCK * BLOCKS / (now() - begin);
}

static double block_ring(int pair)
{
    uint64_t *const sent = word(3), *const taken = word(4);
    const uint64_t first = (uint64_t)pair * BLOCKS + 1, end = first + BLOCKS;
    uint64_t number;
    double begin;
    meet();
    begin = now();
    for (number = first; number < end; number++) {
        char *const slot = shared + BLOCKS_AT + (number % BLOCK_SLOTS) * BLOCK;
        if (rank == 0) {
            spin_until(taken, number < BLOCK_SLOTS ? 0 : number - BLOCK_SLOTS);
            memcpy(slot, block, BLOCK);
            put_word(sent, number);
        } else {
            spin_until(sent, number);
            total += sum_lines(slot, BLOCK);
            put_word(taken, number);
        }
    }
    if (rank == 0) spin_until(taken, end - 1);
    return 1e3 * BLOCK * BLOCKS / (now() - begin);
}

static double copy_large(void)
{
    static size_t at;
    const double begin = now();
    int number;
    for (number = 0; number < BLOCKS; number++) {
        memcpy(to_large + at, from_large + at, BLOCK);
        __asm__ volatile("" ::"r"(to_large) : "memory");
        at = (at + BLOCK) % HUGE_BUFFER;
    }
    return 1e3 * BLOCK * BLOCKS / (now() - begin);
}

static double copy_hot(void)
{
    const double begin = now();
    int number;
    for (number = 0; number < BLOCKS; number++) {
        memcpy(copy, block, BLOCK);
        __asm__ volatile("" ::"r"(copy) : "memory");
    }
    return 1e3 * BLOCK * BLOCKS / (now() - begin);
}

static void need_large_buffers(void)
{
    if (from_large) return;
    from_large = (char *)malloc(HUGE_BUFFER);
    to_large = (char *)malloc(HUGE_BUFFER);
    if (!from_large || !to_large) fail("no memory");
    memset(from_large, 1, HUGE_BUFFER);
    memset(to_large, 2, HUGE_BUFFER);
}

static void mediums(int pair, int print)
{
    const double ours = against_server(medium_flood);
    const double ring = block_ring(pair);
    if (rank != 0) return;
    need_large_buffers();
    {
        const double large = copy_large(), hot = copy_hot();
        if (print)
            printf("c_medium_mbps %.1f\nc_ring_mbps %.1f\nc_memcpy_mbps %.1f\nc_memcpy_hot_mbps %.1f\n", ours, ring,
                   large, hot);
    }
}

#include "sizes.h"

/* --- puts and gets of 1 MB --- */

static char big[MEGABYTE];

static double large_speed(int which)
{
    const double begin = now();
    int time;
    for (time = 0; time < LARGE_TIMES; time++) {
        switch (which) {
        case 0: must(gex_RMA_PutBlocking(team, peer, theirs, big, MEGABYTE, 0), "put"); break;
        case 1: memcpy(own, big, MEGABYTE); break;
        case 2: must(gex_RMA_GetBlocking(team, big, peer, theirs, MEGABYTE, 0), "get"); break;
        default: memcpy(big, own, MEGABYTE); break;
        }
        __asm__ volatile("" ::: "memory");
    }
    return 1e3 * MEGABYTE * LARGE_TIMES / (now() - begin);
}

static void large_puts(int pair, int print)
{
    double found[4];
    int step;
    if (rank != 0) return;
    for (step = 0; step < 4; step++) {
        const int which = pair % 2 == 0 ? step : step ^ 1;
        found[which] = large_speed(which);
    }
    if (print)
        printf("c_put_mbps %.1f\nc_copy_in_mbps %.1f\nc_get_mbps %.1f\nc_copy_out_mbps %.1f\n", found[0], found[1],
               found[2], found[3]);
}

/* --- puts and gets of 8 bytes --- */

/* Words of the peer's segment in turn, team and rank in locals. Each put and get is to reach memory, as each store and load
 * of a reference does, so nothing may be merged. */
static uint64_t words[PUT_WORDS];

#define LOOP(name, statement)                                                                                        \
    __attribute__((__noinline__)) static double name(void)                                                           \
    {                                                                                                                \
        const gex_TM_t tm = team;                                                                                    \
        const gex_Rank_t to_rank = peer;                                                                             \
        uint64_t *const to = (uint64_t *)(void *)theirs;                                                             \
        volatile uint64_t *const here = (volatile uint64_t *)(void *)theirs_here;                                    \
        uint64_t *const from = words;                                                                                \
        const double begin = now();                                                                                  \
        size_t turn, at;                                                                                             \
        for (turn = 0; turn < PUTS / PUT_WORDS; turn++)                                                              \
            for (at = 0; at < PUT_WORDS; at++) {                                                                     \
                statement;                                                                                           \
                __asm__ volatile("" ::: "memory");                                                                   \
            }                                                                                                        \
        (void)tm, (void)to_rank, (void)to, (void)here, (void)from;                                                   \
        return (now() - begin) / (double)(PUTS / PUT_WORDS * PUT_WORDS);                                             \
    }

LOOP(store_word, here[at] = from[at])
LOOP(put_blocking, (void)gex_RMA_PutBlocking(tm, to_rank, &to[at], &from[at], 8, 0))
LOOP(put_nbi, (void)gex_RMA_PutNBI(tm, to_rank, &to[at], &from[at], 8, GEX_EVENT_NOW, 0))
LOOP(store_value, here[at] = at)
LOOP(put_value, (void)gex_RMA_PutBlockingVal(tm, to_rank, &to[at], at, 8, 0))
LOOP(load_word, from[at] = here[at])
LOOP(get_blocking, (void)gex_RMA_GetBlocking(tm, &from[at], to_rank, &to[at], 8, 0))
LOOP(get_nbi, (void)gex_RMA_GetNBI(tm, &from[at], to_rank, &to[at], 8, 0))
LOOP(get_value, from[at] = gex_RMA_GetBlockingVal(tm, to_rank, &to[at], 8, 0))

/* What the API gives is in memory, so what the reference fetches goes there too. */
static gex_AD_t counters;
static uint64_t fetched;
LOOP(raw_add, (void)__atomic_fetch_add(&here[at], 1, __ATOMIC_ACQ_REL))
LOOP(raw_fetch_add, fetched = __atomic_fetch_add(&here[at], 1, __ATOMIC_ACQ_REL))
LOOP(add_nbi, (void)gex_AD_OpNBI_U64(counters, NULL, to_rank, &to[at], GEX_OP_ADD, 1, 0, 0))
LOOP(fetch_add_nb,
     gex_Event_Wait(gex_AD_OpNB_U64(counters, &fetched, to_rank, &to[at], GEX_OP_FADD, 1, 0, 0)))

struct loop {
    const char *key;
    double (*run)(void);
};
enum { MOST_LOOPS = 9 };

static void fastest(const struct loop *loops, int count, int print)
{
    /* A loop is over in some 30 us: the fastest of many is one that nothing disturbed, neither an interrupt nor another
     * program on the other thread of the processor's core. */
    double found[MOST_LOOPS];
    int turn, which;
    if (rank != 0) return;
    for (which = 0; which < count; which++) found[which] = 1e9;
    for (which = 0; which < PUT_WORDS; which++) words[which] = (uint64_t)which * 3; /* else compilers know them */
    for (turn = 0; turn < PUT_LOOPS; turn++)
        for (which = 0; which < count; which++) {
            const double each = loops[which].run();
            if (each < found[which]) found[which] = each;
        }
    gex_NBI_Wait(GEX_EC_ALL, 0);
    for (which = 0; print && which < count; which++) printf("%s %.4f\n", loops[which].key, found[which]);
}

static void small_puts(int pair, int print)
{
    static const struct loop loops[] = {{"c_store_ns", store_word},
                                        {"c_put8_blocking_ns", put_blocking},
                                        {"c_put8_nbi_ns", put_nbi},
                                        {"c_store_value_ns", store_value},
                                        {"c_put8_value_ns", put_value},
                                        {"c_load_ns", load_word},
                                        {"c_get8_blocking_ns", get_blocking},
                                        {"c_get8_nbi_ns", get_nbi},
                                        {"c_get8_value_ns", get_value}};
    (void)pair;
    fastest(loops, sizeof loops / sizeof *loops, print);
}

static void atomics(int pair, int print)
{
    static const struct loop loops[] = {{"c_raw_add_ns", raw_add},
                                        {"c_raw_fetch_add_ns", raw_fetch_add},
                                        {"c_atomic_add_ns", add_nbi},
                                        {"c_atomic_fetch_add_ns", fetch_add_nb}};
    (void)pair;
    if (counters == GEX_AD_INVALID) gex_AD_Create(&counters, team, GEX_DT_U64, GEX_OP_ADD | GEX_OP_FADD, 0);
    fastest(loops, sizeof loops / sizeof *loops, print);
}

/* --- barriers --- */

static void barriers(int pair, int print)
{
    double begin, ours, ball;
    int round;
    meet();
    begin = now();
    for (round = 0; round < ROUNDS; round++) meet();
    ours = (now() - begin) / ROUNDS;
    ball = ping_pong(6, 6, pair, ROUNDS);
    if (print) printf("c_barrier_ns %.1f\nc_barrier_pingpong_ns %.1f\n", ours, ball);
}

/* How far apart the processors are now: what the rest of the launch depends on. */
static void distance(int pair, int print)
{
    const double apart = ping_pong(8, 9, pair, DISTANCE_TRIPS);
    if (print) printf("c_distance_ns %.2f\n", apart);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(int pair, int print);
    } kinds[] = {{"short", shorts},     {"flood", floods},    {"medium", mediums}, {"sizes", medium_sizes},
                 {"putget", large_puts}, {"put8", small_puts}, {"atomic", atomics},
                 {"barrier", barriers}};
    size_t at;
    int pair, pairs;
    join(&argc, &argv);
    pairs = argc == 3 ? atoi(argv[2]) : 0;
    for (at = 0; at < sizeof kinds / sizeof *kinds; at++)
        if (argc == 3 && strcmp(argv[1], kinds[at].name) == 0) break;
    if (at == sizeof kinds / sizeof *kinds || pairs < 1) 
        fail("usage: bench_c short|flood|medium|sizes|putget|put8|atomic|barrier PAIRS");
    memset(big, 1, sizeof big);
    memset(block, 1, sizeof block);
    for (pair = 0; pair <= pairs; pair++) {
        kinds[at].run(pair, rank == 0 && pair > 0);
        distance(pair, rank == 0 && pair > 0);
    }
    __asm__ volatile("" ::"r"(total));
    fflush(stdout);
    meet();
    gasnet_exit(0);
    return 1;
}
