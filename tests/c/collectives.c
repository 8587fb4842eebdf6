/* Reductions and broadcasts on several teams: every type and operation, 1 byte to 4 MB, functions of the program, many
 * under way that are waited for in another order, all against a computation of one process. */
#include <gasnet_coll.h>

#include "t.h"

#define TEAMS 4
static gex_TM_t teams[TEAMS];

static gex_Rank_t size_of(gex_TM_t tm)
{
    return gex_TM_QuerySize(tm);
}

/* Every type: what rank `rank` of a team contributes, and what all operations make of two values. Factors are small, so
 * that sums and products of floating numbers are exact. */
#define TYPE(name, type, integer)                                                                                    \
    static type value_##name(gex_Rank_t rank, size_t at)                                                             \
    {                                                                                                                \
        return (type)(1 + (rank * 7 + at * 5) % 3);                                                                  \
    }                                                                                                                \
    static type op_##name(gex_OP_t op, type a, type b)                                                               \
    {                                                                                                                \
        switch (op) {                                                                                                \
        case GEX_OP_ADD: return (type)(a + b);                                                                       \
        case GEX_OP_MULT: return (type)(a * b);                                                                      \
        case GEX_OP_MIN: return a < b ? a : b;                                                                       \
        case GEX_OP_MAX: return a > b ? a : b;                                                                       \
        default: return bits_##name(op, a, b);                                                                       \
        }                                                                                                            \
    }                                                                                                                \
    static void reduce_##name(gex_TM_t tm, gex_OP_t op, size_t count)                                                \
    {                                                                                                                \
        gex_Rank_t size = size_of(tm), me = gex_TM_QueryRank(tm), root = (gex_Rank_t)(count % size), rank;           \
        type *from = (type *)malloc(count * sizeof(type)), *to = (type *)malloc(count * sizeof(type));               \
        type *same = (type *)malloc(count * sizeof(type));                                                           \
        gex_Event_t events[3];                                                                                       \
        size_t at;                                                                                                   \
        CHECK(from && to && same);                                                                                   \
        for (at = 0; at < count; at++) from[at] = same[at] = value_##name(me, at);                                   \
        memset(to, 0xee, count * sizeof(type));                                                                      \
        events[0] = gex_Coll_ReduceToAllNB(tm, to, from, GEX_DT_##name, sizeof(type), count, op, NULL, NULL, 0);     \
        events[1] = gex_Coll_ReduceToOneNB(tm, root, me == root ? same : NULL, same, GEX_DT_##name, sizeof(type),    \
                                           count, op, NULL, NULL, 0);                                                \
        gex_Event_Wait(events[1]);                                                                                   \
        gex_Event_Wait(events[0]);                                                                                   \
        for (at = 0; at < count; at++) {                                                                             \
            type all = value_##name(0, at);                                                                          \
            for (rank = 1; rank < size; rank++) all = op_##name(op, all, value_##name(rank, at));                    \
            if (to[at] != all) FAIL("%s op %#x of %zu on %u ranks", #name, (unsigned)op, count, (unsigned)size);     \
            CHECK(from[at] == value_##name(me, at));                                                                 \
            CHECK(same[at] == (me == root ? all : from[at]));                                                        \
        }                                                                                                            \
        gex_Event_Wait(gex_Coll_ReduceToAllNB(tm, from, from, GEX_DT_##name, sizeof(type), count, op, NULL, NULL, 0)); \
        CHECK(memcmp(from, to, count * sizeof(type)) == 0);                                                          \
        free(from);                                                                                                  \
        free(to);                                                                                                    \
        free(same);                                                                                                  \
    }                                                                                                                \
    static void all_##name(gex_TM_t tm)                                                                              \
    {                                                                                                                \
        static const gex_OP_t ops[] = {GEX_OP_ADD, GEX_OP_MULT, GEX_OP_MIN, GEX_OP_MAX,                              \
                                       GEX_OP_AND, GEX_OP_OR,   GEX_OP_XOR};                                         \
        unsigned op;                                                                                                 \
        for (op = 0; op < (integer ? 7 : 4); op++) {                                                                 \
            reduce_##name(tm, ops[op], 1);                                                                           \
            reduce_##name(tm, ops[op], 13 + op);                                                                     \
            if (op < 2 && tm == t_tm) reduce_##name(tm, ops[op], 9001);                                              \
        }                                                                                                            \
    }

#define BITS(name, type)                                                                                             \
    static type bits_##name(gex_OP_t op, type a, type b)                                                             \
    {                                                                                                                \
        return op == GEX_OP_AND ? a & b : op == GEX_OP_OR ? a | b : a ^ b;                                           \
    }
#define NO_BITS(name, type)                                                                                          \
    static type bits_##name(gex_OP_t op, type a, type b)                                                             \
    {                                                                                                                \
        FAIL("%x %f %f", (unsigned)op, (double)a, (double)b);                                                        \
        return a;                                                                                                    \
    }

BITS(I32, int32_t)
BITS(U32, uint32_t)
BITS(I64, int64_t)
BITS(U64, uint64_t)
NO_BITS(FLT, float)
NO_BITS(DBL, double)
TYPE(I32, int32_t, 1)
TYPE(U32, uint32_t, 1)
TYPE(I64, int64_t, 1)
TYPE(U64, uint64_t, 1)
TYPE(FLT, float, 0)
TYPE(DBL, double, 0)

/* Signs and extremes of the types. */
static void extremes(void)
{
    int32_t low = t_rank == 0 ? INT32_MIN : -1;
    uint32_t high = t_rank == 0 ? UINT32_MAX : 1;
    int64_t wide = t_rank == 0 ? INT64_MAX : 0;
    uint64_t top = t_rank == 0 ? UINT64_MAX : 7;
    double deep = t_rank == 0 ? -1e300 : 1.5;
    gex_Event_t events[5];
    events[0] = gex_Coll_ReduceToAllNB(t_tm, &low, &low, GEX_DT_I32, 4, 1, GEX_OP_MIN, NULL, NULL, 0);
    events[1] = gex_Coll_ReduceToAllNB(t_tm, &high, &high, GEX_DT_U32, 4, 1, GEX_OP_MAX, NULL, NULL, 0);
    events[2] = gex_Coll_ReduceToAllNB(t_tm, &wide, &wide, GEX_DT_I64, 8, 1, GEX_OP_MAX, NULL, NULL, 0);
    events[3] = gex_Coll_ReduceToAllNB(t_tm, &top, &top, GEX_DT_U64, 8, 1, GEX_OP_MAX, NULL, NULL, 0);
    events[4] = gex_Coll_ReduceToAllNB(t_tm, &deep, &deep, GEX_DT_DBL, 8, 1, GEX_OP_MIN, NULL, NULL, 0);
    gex_Event_WaitAll(events, 5, 0);
    CHECK(low == INT32_MIN && high == UINT32_MAX && wide == INT64_MAX && top == UINT64_MAX && deep == -1e300);
}

/* A type of the program's: elements that are joined, first to last, and know that they were joined in order. */
typedef struct {
    uint32_t first, last, bytes, ordered;
} run_t;

static const int data_of_program = 1;

static void join(const void *left, void *right_and_out, size_t count, const void *data)
{
    const char *a = (const char *)left;
    char *b = (char *)right_and_out;
    size_t at;
    CHECK(data == &data_of_program && count > 0);
    for (at = 0; at < count; at++) {
        const run_t *l = (const run_t *)(const void *)a;
        run_t *r = (run_t *)(void *)b;
        CHECK(((uintptr_t)l | (uintptr_t)r) % sizeof(uint32_t) == 0 && l->bytes == r->bytes);
        CHECK(t_same(l + 1, l->bytes, l->bytes - sizeof(run_t)));
        r->ordered = l->ordered && r->ordered && l->last + 1 == r->first;
        r->first = l->first;
        a += r->bytes;
        b += r->bytes;
    }
}

static void sum_of_pairs(const void *left, void *right_and_out, size_t count, const void *data)
{
    const uint16_t *a = (const uint16_t *)left;
    uint16_t *b = (uint16_t *)right_and_out;
    size_t at;
    CHECK(data == NULL);
    for (at = 0; at < 3 * count; at++) b[at] = (uint16_t)(a[at] + b[at]);
}

/* `count` elements of `bytes` bytes. */
static void by_function(gex_TM_t tm, uint32_t bytes, size_t count)
{
    gex_Rank_t me = gex_TM_QueryRank(tm), size = size_of(tm), root = (gex_Rank_t)((bytes / 4 + count) % size);
    char *from = (char *)malloc(bytes * count), *to = (char *)malloc(bytes * count);
    size_t at;
    int turn;
    CHECK(from && to);
    for (at = 0; at < count; at++) {
        run_t *run = (run_t *)(void *)(from + at * bytes);
        run->first = run->last = me;
        run->bytes = bytes;
        run->ordered = 1;
        t_fill(run + 1, bytes, bytes - sizeof *run);
    }
    for (turn = 0; turn < 2; turn++) {
        gex_Event_t event;
        memset(to, 0, bytes * count);
        event = turn ? gex_Coll_ReduceToAllNB(tm, to, from, GEX_DT_USER, bytes, count, GEX_OP_USER_NC, join,
                                              (void *)(uintptr_t)&data_of_program, 0)
                     : gex_Coll_ReduceToOneNB(tm, root, to, from, GEX_DT_USER, bytes, count, GEX_OP_USER_NC, join,
                                              (void *)(uintptr_t)&data_of_program, 0);
        gex_Event_Wait(event);
        for (at = 0; at < count && (turn || me == root); at++) {
            run_t *run = (run_t *)(void *)(to + at * bytes);
            CHECK(run->first == 0 && run->last == size - 1 && run->ordered && run->bytes == bytes);
            CHECK(t_same(run + 1, bytes, bytes - sizeof *run));
        }
        if (!turn && me != root)
            for (at = 0; at < bytes; at++) CHECK(to[at] == 0);
    }
    free(from);
    free(to);
}

static void functions(gex_TM_t tm)
{
    static const uint32_t bytes[] = {16, 20, 100, 4096, 40000, 70000, 300000};
    uint16_t triple[3 * 11];
    unsigned at;
    for (at = 0; at < sizeof bytes / sizeof *bytes; at++) {
        by_function(tm, bytes[at], 1);
        by_function(tm, bytes[at], 3 + 200 / (1 + bytes[at] / 100));
    }
    for (at = 0; at < 33; at++) triple[at] = (uint16_t)(at + gex_TM_QueryRank(tm));
    gex_Event_Wait(gex_Coll_ReduceToAllNB(tm, triple, triple, GEX_DT_USER, 6, 11, GEX_OP_USER, sum_of_pairs, NULL, 0));
    for (at = 0; at < 33; at++) CHECK_EQ(triple[at], at * size_of(tm) + size_of(tm) * (size_of(tm) - 1) / 2);
}

static void broadcasts(gex_TM_t tm, size_t bytes)
{
    gex_Rank_t root = (gex_Rank_t)(bytes % size_of(tm)), me = gex_TM_QueryRank(tm);
    char *from = (char *)malloc(bytes), *to = (char *)malloc(bytes);
    CHECK(from && to);
    memset(to, 0xaa, bytes);
    t_fill(from, (uint32_t)bytes + me, bytes);
    gex_Event_Wait(gex_Coll_BroadcastNB(tm, root, to, from, bytes, 0));
    CHECK(t_same(to, (uint32_t)bytes + root, bytes) && t_same(from, (uint32_t)bytes + me, bytes));
    free(from);
    free(to);
}

#define FLIGHT 24
/* Collectives of all kinds on all teams at once. */
static void in_flight(uint32_t seed)
{
    static int64_t from[FLIGHT][700], to[FLIGHT][700];
    gex_Event_t events[FLIGHT];
    unsigned at, left = FLIGHT;
    uint32_t random = seed;
    for (at = 0; at < FLIGHT; at++) {
        gex_TM_t tm = teams[at % TEAMS];
        gex_Rank_t root = seed % size_of(tm), me = gex_TM_QueryRank(tm);
        size_t count = at % 5 == 0 ? 700 : 1 + at, i;
        for (i = 0; i < count; i++) from[at][i] = (int64_t)(me * 1000 + i);
        memset(to[at], 0, sizeof to[at]);
        switch (at % 6) {
        case 0: events[at] = gex_Coll_BarrierNB(tm, 0); break;
        case 1: events[at] = gex_Coll_BroadcastNB(tm, root, to[at], from[at], 8 * count, 0); break;
        case 2:
        case 3:
            events[at] = gex_Coll_ReduceToOneNB(tm, root, to[at], from[at], GEX_DT_I64, 8, count, GEX_OP_ADD, NULL, NULL, 0);
            break;
        default:
            events[at] = gex_Coll_ReduceToAllNB(tm, to[at], from[at], GEX_DT_I64, 8, count, GEX_OP_ADD, NULL, NULL, 0);
        }
    }
    /* Each rank in an order of its own, by every kind of call. */
    random += t_rank * 977;
    while (left > 0) {
        at = t_random(&random) % FLIGHT;
        if (left < FLIGHT / 4) {
            gex_Event_WaitAll(events, FLIGHT, 0);
            left = 0;
        } else if (events[at] != GEX_EVENT_INVALID && t_random(&random) % 3 == 0) {
            if (gex_Event_Test(events[at]) != GASNET_OK) gex_Event_Wait(events[at]);
            events[at] = GEX_EVENT_INVALID;
            left--;
        } else {
            left--;
        }
    }
    gex_Event_WaitAll(events, FLIGHT, 0);
    for (at = 0; at < FLIGHT; at++) {
        gex_TM_t tm = teams[at % TEAMS];
        gex_Rank_t size = size_of(tm), root = seed % size, me = gex_TM_QueryRank(tm);
        size_t count = at % 5 == 0 ? 700 : 1 + at, i;
        for (i = 0; i < count; i++) {
            int64_t sum = (int64_t)(size * (size - 1) / 2 * 1000 + size * i);
            if (at % 6 == 1) sum = (int64_t)(root * 1000 + i);
            if (at % 6 == 0 || ((at % 6 == 2 || at % 6 == 3) && me != root)) sum = 0;
            CHECK_EQ(to[at][i], sum);
        }
    }
}

/* Nobody passes before all have come. */
static void barriers(gex_TM_t tm)
{
    unsigned turn;
    for (turn = 0; turn < 10; turn++) {
        gex_Event_t events[8];
        uint32_t came = 0, mine = 1;
        unsigned at;
        for (at = 0; at < 8; at++) events[at] = gex_Coll_BarrierNB(tm, 0);
        gex_Event_Wait(events[5]);
        while (gex_Event_Test(events[7]) != GASNET_OK) gasnet_AMPoll();
        for (at = 0; at < 8; at++)
            if (at != 5 && at != 7) gex_Event_Wait(events[at]);
        gex_Coll_BarrierBlocking(tm, 0);
        gex_Event_Wait(gex_Coll_ReduceToAllNB(tm, &came, &mine, GEX_DT_U32, 4, 1, GEX_OP_ADD, NULL, NULL, 0));
        CHECK_EQ(came, size_of(tm));
    }
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {1, 2, 7, 8, 100, 4096, 32768, 32769, 65536, 65537, 1 << 20, 1 << 22};
    unsigned team, at;
    t_start("collectives", &argc, &argv, 4096);
    teams[0] = t_tm;
    gex_TM_Split(&teams[1], t_tm, 0, -(int)t_rank, NULL, 0, GEX_FLAG_TM_NO_SCRATCH);
    gex_TM_Split(&teams[2], t_tm, (int)(t_rank % 2), 0, NULL, 0, GEX_FLAG_TM_NO_SCRATCH);
    gex_TM_Split(&teams[3], teams[2], (int)(t_rank % 3), 0, NULL, 0, GEX_FLAG_TM_NO_SCRATCH);
    extremes();
    for (team = 0; team < TEAMS; team++) {
        gex_TM_t tm = teams[team];
        barriers(tm);
        if (team % 2 == 0) {
            all_I32(tm);
            all_U64(tm);
            all_FLT(tm);
        } else {
            all_U32(tm);
            all_I64(tm);
            all_DBL(tm);
        }
        if (team == 0 || team == 3) functions(tm);
        for (at = 0; at < sizeof sizes / sizeof *sizes; at++) broadcasts(tm, sizes[at]);
        if (team < 2) reduce_DBL(tm, GEX_OP_ADD, 1 << 19);
    }
    for (at = 0; at < 40; at++) in_flight(at);
    OK(gex_TM_Destroy(teams[2], NULL, 0));
    OK(gex_TM_Destroy(teams[3], NULL, 0));
    OK(gex_TM_Destroy(teams[1], NULL, 0));
    t_pass();
    return 1;
}
