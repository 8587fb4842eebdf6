/* Atomic domains: every operation on every type against a model, with events and without, in access regions and under
 * contention. `atomics NAME` is one wrong use, which ends the process; `atomics contend N` N turns of contention. */
#include <gasnet_ratomic.h>

#include "t.h"

#define TURNS 40
#define AREA 4096

/* X(type, C type, more) for every type. */
#define INTEGERS(X) X(I32, int32_t) X(U32, uint32_t) X(I64, int64_t) X(U64, uint64_t)
#define FLOATS(X) X(FLT, float) X(DBL, double)

#define COMMON_OPS(X, dt)                                                                                            \
    X(ADD, dt) X(SUB, dt) X(MULT, dt) X(MIN, dt) X(MAX, dt) X(INC, dt) X(DEC, dt) X(SET, dt) X(CAS, dt) X(FADD, dt)  \
    X(FSUB, dt) X(FMULT, dt) X(FMIN, dt) X(FMAX, dt) X(FINC, dt) X(FDEC, dt) X(SWAP, dt) X(FCAS, dt) X(GET, dt)
#define BIT_OPS(X, dt) X(AND, dt) X(OR, dt) X(XOR, dt) X(FAND, dt) X(FOR, dt) X(FXOR, dt)

#define BIT_OF(op, dt) GEX_OP_##op |
#define COMMON_SET ((gex_OP_t)(COMMON_OPS(BIT_OF, 0) 0))
#define BIT_SET ((gex_OP_t)(BIT_OPS(BIT_OF, 0) 0))
#define FETCHING ((gex_OP_t)~0U << 15)

/* Unsigned arithmetic wraps. */
#define MODEL_INTEGER(dt, type)                                                                                      \
    static type model_##dt(gex_OP_t op, type old, type a, type b)                                                    \
    {                                                                                                                \
        uint64_t x = (uint64_t)old, y = (uint64_t)a;                                                                 \
        switch (op) {                                                                                                \
        case GEX_OP_AND: case GEX_OP_FAND: return (type)(x & y);                                                     \
        case GEX_OP_OR: case GEX_OP_FOR: return (type)(x | y);                                                       \
        case GEX_OP_XOR: case GEX_OP_FXOR: return (type)(x ^ y);                                                     \
        case GEX_OP_ADD: case GEX_OP_FADD: return (type)(x + y);                                                     \
        case GEX_OP_SUB: case GEX_OP_FSUB: return (type)(x - y);                                                     \
        case GEX_OP_MULT: case GEX_OP_FMULT: return (type)(x * y);                                                   \
        case GEX_OP_INC: case GEX_OP_FINC: return (type)(x + 1);                                                     \
        case GEX_OP_DEC: case GEX_OP_FDEC: return (type)(x - 1);                                                     \
        MODEL_COMMON                                                                                                 \
        }                                                                                                            \
    }
#define MODEL_FLOAT(dt, type)                                                                                        \
    static type model_##dt(gex_OP_t op, type old, type a, type b)                                                    \
    {                                                                                                                \
        switch (op) {                                                                                                \
        case GEX_OP_ADD: case GEX_OP_FADD: return old + a;                                                           \
        case GEX_OP_SUB: case GEX_OP_FSUB: return old - a;                                                           \
        case GEX_OP_MULT: case GEX_OP_FMULT: return old * a;                                                         \
        case GEX_OP_INC: case GEX_OP_FINC: return old + 1;                                                           \
        case GEX_OP_DEC: case GEX_OP_FDEC: return old - 1;                                                           \
        MODEL_COMMON                                                                                                 \
        }                                                                                                            \
    }
#define MODEL_COMMON                                                                                                 \
    case GEX_OP_MIN: case GEX_OP_FMIN: return old < a ? old : a;                                                     \
    case GEX_OP_MAX: case GEX_OP_FMAX: return old > a ? old : a;                                                     \
    case GEX_OP_SET: case GEX_OP_SWAP: return a;                                                                     \
    case GEX_OP_CAS: case GEX_OP_FCAS: return old == a ? b : old;                                                    \
    default: return old;

INTEGERS(MODEL_INTEGER)
FLOATS(MODEL_FLOAT)

/* With an opcode that the compiler knows, and with one that it does not. The two ways to be complete take turns. */
#define FIXED_CASE(op, dt)                                                                                           \
    case GEX_OP_##op:                                                                                                \
        if (implicit) OK(gex_AD_OpNBI_##dt(ad, result, rank, at, GEX_OP_##op, a, b, 0));                             \
        else gex_Event_Wait(gex_AD_OpNB_##dt(ad, result, rank, at, GEX_OP_##op, a, b, 0));                           \
        break;
#define ISSUE(dt, type, cases)                                                                                       \
    static void fixed_##dt(gex_AD_t ad, type *result, gex_Rank_t rank, type *at, gex_OP_t op, type a, type b,        \
                           int implicit)                                                                             \
    {                                                                                                                \
        switch (op) {                                                                                                \
            cases                                                                                                    \
        default: FAIL("no operation %#x", (unsigned)op);                                                             \
        }                                                                                                            \
        if (implicit)                                                                                                \
            gex_NBI_Wait(op == GEX_OP_SET ? GEX_EC_PUT : op == GEX_OP_GET ? GEX_EC_GET : GEX_EC_RMW, 0);             \
    }                                                                                                                \
    static void any_##dt(gex_AD_t ad, type *result, gex_Rank_t rank, type *at, gex_OP_t op, type a, type b,          \
                         int implicit)                                                                               \
    {                                                                                                                \
        const gex_Flags_t flags = GEX_FLAG_AD_REL | GEX_FLAG_AD_ACQ | GEX_FLAG_RANK_IS_JOBRANK;                      \
        if (implicit) {                                                                                              \
            OK(gex_AD_OpNBI_##dt(ad, result, rank, at, op, a, b, flags));                                            \
            gex_NBI_Wait(GEX_EC_ALL, 0);                                                                             \
        } else gex_Event_Wait(gex_AD_OpNB_##dt(ad, result, rank, at, op, a, b, flags));                              \
    }

ISSUE(I32, int32_t, COMMON_OPS(FIXED_CASE, I32) BIT_OPS(FIXED_CASE, I32))
ISSUE(U32, uint32_t, COMMON_OPS(FIXED_CASE, U32) BIT_OPS(FIXED_CASE, U32))
ISSUE(I64, int64_t, COMMON_OPS(FIXED_CASE, I64) BIT_OPS(FIXED_CASE, I64))
ISSUE(U64, uint64_t, COMMON_OPS(FIXED_CASE, U64) BIT_OPS(FIXED_CASE, U64))
ISSUE(FLT, float, COMMON_OPS(FIXED_CASE, FLT))
ISSUE(DBL, double, COMMON_OPS(FIXED_CASE, DBL))

/* Values that show the rules of each type. */
static const int32_t values_I32[] = {-1, 7, INT32_MIN, INT32_MAX};
static const uint32_t values_U32[] = {0, 7, UINT32_MAX, 0x80000001U};
static const int64_t values_I64[] = {-1, 7, INT64_MIN, INT64_MAX};
static const uint64_t values_U64[] = {0, 7, UINT64_MAX, (uint64_t)1 << 63 | 5};
static const float values_FLT[] = {-1.5f, 0.25f, 3.0e30f, 1.0f};
static const double values_DBL[] = {-1.5, 0.25, 3.0e300, 1.0};

/* Every operation on a word of `rank` that only this rank uses. */
#define AGAINST_MODEL(dt, type)                                                                                      \
    static void against_model_##dt(gex_Rank_t rank, gex_OP_t ops)                                                    \
    {                                                                                                                \
        gex_AD_t ad = GEX_AD_INVALID;                                                                                \
        type *at = (type *)(void *)(t_base(rank, NULL) + AREA + (size_t)t_rank * 64 + 8);                            \
        int turn = 0;                                                                                                \
        gex_AD_Create(&ad, t_tm, GEX_DT_##dt, ops, GEX_FLAG_AD_FAVOR_REMOTE);                                        \
        CHECK(gex_AD_QueryDT(ad) == GEX_DT_##dt && gex_AD_QueryOps(ad) == ops && gex_AD_QueryTM(ad) == t_tm);        \
        CHECK(gex_AD_QueryFlags(ad) == GEX_FLAG_AD_FAVOR_REMOTE && gex_AD_QueryCData(ad) == NULL);                   \
        gex_AD_SetCData(ad, &turn);                                                                                  \
        CHECK(gex_AD_QueryCData(ad) == &turn);                                                                       \
        for (gex_OP_t op = 1; op != 0 && op <= GEX_OP_GET; op <<= 1) {                                               \
            if (!(ops & op)) continue;                                                                               \
            for (int which = 0; which < 4; which++, turn++) {                                                        \
                type old = values_##dt[which], a = values_##dt[which ^ (turn >> 1 & 1)], b = values_##dt[1];         \
                type got = values_##dt[2], after = values_##dt[3];                                                   \
                fixed_##dt(ad, NULL, rank, at, GEX_OP_SET, old, 0, turn & 1);                                        \
                if (turn & 2) fixed_##dt(ad, &got, rank, at, op, a, b, turn & 1);                                    \
                else any_##dt(ad, &got, rank, at, op, a, b, turn & 1);                                               \
                fixed_##dt(ad, &after, rank, at, GEX_OP_GET, 0, 0, turn & 1);                                        \
                if (op & FETCHING ? got != old : got != values_##dt[2])                                              \
                    FAIL(#dt " operation %#x of rank %u, value %d: other result", (unsigned)op, rank, which);        \
                if (after != model_##dt(op, old, a, b))                                                              \
                    FAIL(#dt " operation %#x of rank %u, value %d: other word", (unsigned)op, rank, which);          \
            }                                                                                                        \
        }                                                                                                            \
        gex_AD_Destroy(ad);                                                                                          \
    }
INTEGERS(AGAINST_MODEL)
FLOATS(AGAINST_MODEL)

/* What adapters can do, on a word of `rank` that only this rank uses: its value changes by compare and swap. */
#define OFFLOADED(dt, type)                                                                                          \
    static void offloaded_##dt(gex_Rank_t rank, gex_OP_t ops, gex_Flags_t favor)                                     \
    {                                                                                                                \
        type *at = (type *)(void *)(t_base(rank, NULL) + AREA + AREA / 2 + (size_t)t_rank * 64 + 8);                 \
        int turn = 0;                                                                                                \
        gex_AD_t ad;                                                                                                 \
        gex_AD_Create(&ad, t_tm, GEX_DT_##dt, ops, favor);                                                           \
        for (gex_OP_t op = 1; op != 0 && op <= GEX_OP_GET; op <<= 1) {                                               \
            if (!(ops & op)) continue;                                                                               \
            for (int which = 0; which < 4; which++, turn++) {                                                        \
                type old = values_##dt[which], a = values_##dt[which ^ (turn >> 1 & 1)], b = values_##dt[1];         \
                type before = 0, got = values_##dt[2], after = values_##dt[3];                                       \
                fixed_##dt(ad, &before, rank, at, GEX_OP_GET, 0, 0, turn & 1);                                       \
                any_##dt(ad, NULL, rank, at, GEX_OP_CAS, before, old, turn & 1);                                     \
                if (turn & 2) fixed_##dt(ad, &got, rank, at, op, a, b, turn & 1);                                    \
                else any_##dt(ad, &got, rank, at, op, a, b, turn & 1);                                               \
                fixed_##dt(ad, &after, rank, at, GEX_OP_GET, 0, 0, turn & 1);                                        \
                if (op & FETCHING ? got != old : got != values_##dt[2])                                              \
                    FAIL(#dt " operation %#x of rank %u, value %d: other result", (unsigned)op, rank, which);        \
                if (after != model_##dt(op, old, a, b))                                                              \
                    FAIL(#dt " operation %#x of rank %u, value %d: other word", (unsigned)op, rank, which);          \
            }                                                                                                        \
        }                                                                                                            \
        fixed_##dt(ad, &values_of_##dt, rank, at, GEX_OP_GET, 0, 0, 0);                                              \
        any_##dt(ad, NULL, rank, at, GEX_OP_CAS, values_of_##dt, 0, 0);                                              \
        gex_AD_Destroy(ad);                                                                                          \
    }
static int64_t values_of_I64;
static uint64_t values_of_U64;
static double values_of_DBL;
OFFLOADED(I64, int64_t)
OFFLOADED(U64, uint64_t)
OFFLOADED(DBL, double)

static void offloaded(gex_Rank_t rank)
{
    const gex_OP_t compare = GEX_OP_GET | GEX_OP_CAS | GEX_OP_FCAS;
    const gex_OP_t add = GEX_OP_ADD | GEX_OP_SUB | GEX_OP_INC | GEX_OP_DEC | GEX_OP_FADD | GEX_OP_FSUB | GEX_OP_FINC
                         | GEX_OP_FDEC;
    offloaded_I64(rank, compare | add, 0);
    offloaded_U64(rank, compare | add, GEX_FLAG_AD_FAVOR_MY_NBRHD);
    offloaded_U64(rank, compare | add, GEX_FLAG_AD_FAVOR_REMOTE | GEX_FLAG_AD_FAVOR_MY_RANK);
    offloaded_DBL(rank, compare, 0);
}

/* Many without and with event, in a region; the words of the right neighbour that nobody else uses. */
static void in_flight(void)
{
    gex_Rank_t right = (t_rank + 1) % t_size;
    uint64_t *at = (uint64_t *)(void *)(t_base(right, NULL) + AREA), got[TURNS], sum = 0;
    gex_Event_t events[TURNS], region;
    gex_AD_t ad;
    int turn;
    gex_AD_Create(&ad, t_tm, GEX_DT_U64, GEX_OP_FADD | GEX_OP_ADD | GEX_OP_SET | GEX_OP_GET, 0);
    gex_Event_Wait(gex_AD_OpNB_U64(ad, NULL, right, at, GEX_OP_SET, 0, 0, 0));
    gex_Event_Wait(gex_AD_OpNB_U64(ad, NULL, right, at + 1, GEX_OP_SET, 0, 0, 0));
    for (turn = 0; turn < TURNS; turn++) {
        events[turn] = gex_AD_OpNB_U64(ad, &got[turn], right, at, GEX_OP_FADD, 1, 0, 0);
        OK(gex_AD_OpNBI_U64(ad, NULL, right, at + 1, GEX_OP_ADD, 2, 0, 0));
    }
    gex_Event_WaitAll(events, TURNS, 0);
    for (turn = 0; turn < TURNS; turn++) sum += got[turn];
    CHECK_EQ(sum, TURNS * (TURNS - 1) / 2);
    while (gex_NBI_Test(GEX_EC_RMW, 0) != GASNET_OK) OK(gasnet_AMPoll());
    gex_NBI_BeginAccessRegion(0);
    for (turn = 0; turn < TURNS; turn++)
        OK(gex_AD_OpNBI_U64(ad, &got[turn], right, at + 1, GEX_OP_FADD, 1, 0, 0));
    OK(gex_AD_OpNBI_U64(ad, &sum, right, at, GEX_OP_GET, 0, 0, 0));
    region = gex_NBI_EndAccessRegion(0);
    if (region != GEX_EVENT_INVALID) {
        gex_Event_Wait(gex_Event_QueryLeaf(region, GEX_EC_RMW));
        gex_Event_Wait(gex_Event_QueryLeaf(region, GEX_EC_GET));
        CHECK(gex_Event_Test(gex_Event_QueryLeaf(region, GEX_EC_PUT)) == GASNET_OK);
    }
    gex_Event_Wait(region);
    CHECK_EQ(sum, TURNS);
    for (turn = 0, sum = 0; turn < TURNS; turn++) sum += got[turn];
    CHECK_EQ(sum, TURNS * 2 * TURNS + TURNS * (TURNS - 1) / 2);
    for (turn = 0; turn < TURNS;) {
        int sent = gex_AD_OpNBI_U64(ad, NULL, right, at, GEX_OP_ADD, 1, 0, GEX_FLAG_IMMEDIATE);
        region = gex_AD_OpNB_U64(ad, &got[0], right, at, GEX_OP_FADD, 1, 0, GEX_FLAG_IMMEDIATE);
        turn += (sent == 0) + (region != GEX_EVENT_NO_OP);
        if (region != GEX_EVENT_NO_OP) gex_Event_Wait(region);
        if (sent || region == GEX_EVENT_NO_OP) OK(gasnet_AMPoll());
    }
    gex_NBI_Wait(GEX_EC_ALL, 0);
    gex_Event_Wait(gex_AD_OpNB_U64(ad, &sum, right, at, GEX_OP_GET, 0, 0, 0));
    CHECK_EQ(sum, TURNS + turn);
    t_barrier();
    gex_AD_Destroy(ad);
}

/* Ranks of a domain are those of its team, or of the job. Each rank counts on a word of each member, under both names. */
static void teams(void)
{
    gex_TM_t team = GEX_TM_INVALID;
    gex_Rank_t size, mine, rank;
    int32_t seen = -1;
    gex_AD_t ad;
    gex_TM_Split(&team, t_tm, (int)(t_rank % 2), -(int)t_rank, NULL, 0, GEX_FLAG_TM_NO_SCRATCH);
    size = gex_TM_QuerySize(team);
    mine = gex_TM_QueryRank(team);
    gex_AD_Create(&ad, team, GEX_DT_I32, GEX_OP_ADD | GEX_OP_GET | GEX_OP_SET, 0);
    CHECK(gex_AD_QueryTM(ad) == team);
    for (rank = 0; rank < size; rank++) {
        gex_Rank_t job = gex_TM_TranslateRankToJobrank(team, rank);
        int32_t *at = (int32_t *)(void *)(t_base(job, NULL) + AREA / 2);
        gex_Flags_t where = job == t_rank ? GEX_FLAG_AD_MY_RANK | GEX_FLAG_AD_MY_NBRHD : 0;
        OK(gex_AD_OpNBI_I32(ad, NULL, rank, at, GEX_OP_ADD, (int32_t)job + 1, 0, where));
        OK(gex_AD_OpNBI_I32(ad, NULL, job, at, GEX_OP_ADD, 1000, 0, where | GEX_FLAG_RANK_IS_JOBRANK));
    }
    gex_NBI_Wait(GEX_EC_RMW, 0);
    t_barrier();
    gex_Event_Wait(gex_AD_OpNB_I32(ad, &seen, mine, t_base(t_rank, NULL) + AREA / 2, GEX_OP_GET, 0, 0, 0));
    CHECK_EQ(seen, (int)size * ((int)t_rank + 1001));
    gex_Event_Wait(gex_AD_OpNB_I32(ad, NULL, mine, t_base(t_rank, NULL) + AREA / 2, GEX_OP_SET, 0, 0, 0));
    gex_AD_Destroy(ad);
    t_barrier();
    gex_TM_Destroy(team, NULL, GEX_FLAG_GLOBALLY_QUIESCED);
}

#if GASNET_PAR
#define THREADS 2
#else
#define THREADS 1
#endif

/* All threads of all ranks on the same words, which are rank 0's. */
struct shared {
    uint64_t sum, exchanged;
    double real;
    int32_t most;
    uint32_t bits;
};
static gex_AD_t ad_u64, ad_dbl, ad_i32, ad_u32;
static struct shared *shared;
static int turns = 25;

static void *contender(void *which)
{
    int thread = (int)(intptr_t)which, me = (int)t_rank * THREADS + thread, turn;
    uint64_t last = 0, got, seen, old;
    for (turn = 0; turn < turns; turn++) {
        gex_Event_t event = gex_AD_OpNB_U64(ad_u64, &got, 0, &shared->sum, GEX_OP_FINC, 0, 0, 0);
        OK(gex_AD_OpNBI_DBL(ad_dbl, NULL, 0, &shared->real, GEX_OP_ADD, 0.5, 0, 0));
        OK(gex_AD_OpNBI_I32(ad_i32, NULL, 0, &shared->most, GEX_OP_MAX, me * turns + turn, 0, 0));
        OK(gex_AD_OpNBI_U32(ad_u32, NULL, 0, &shared->bits, GEX_OP_XOR, 1U << me % 32, 0, 0));
        gex_Event_Wait(event);
        CHECK(turn == 0 || got > last);
        last = got;
        /* Two more by compare and swap. */
        gex_Event_Wait(gex_AD_OpNB_U64(ad_u64, &seen, 0, &shared->exchanged, GEX_OP_GET, 0, 0, 0));
        for (;; seen = old) {
            gex_Event_Wait(gex_AD_OpNB_U64(ad_u64, &old, 0, &shared->exchanged, GEX_OP_FCAS, seen, seen + 2, 0));
            if (old == seen) break;
        }
    }
    gex_NBI_Wait(GEX_EC_RMW, 0);
    return NULL;
}

static void contention(void)
{
    uint64_t all = (uint64_t)t_size * THREADS, total = all * (uint64_t)turns, bits = 0, number;
    struct shared seen;
    shared = (struct shared *)(void *)t_base(0, NULL);
    gex_AD_Create(&ad_u64, t_tm, GEX_DT_U64, GEX_OP_FINC | GEX_OP_GET | GEX_OP_FCAS, 0);
    gex_AD_Create(&ad_dbl, t_tm, GEX_DT_DBL, GEX_OP_ADD, GEX_FLAG_AD_FAVOR_MY_NBRHD);
    gex_AD_Create(&ad_i32, t_tm, GEX_DT_I32, GEX_OP_MAX, 0);
    gex_AD_Create(&ad_u32, t_tm, GEX_DT_U32, GEX_OP_XOR, GEX_FLAG_AD_FAVOR_MY_RANK);
    t_barrier();
#if GASNET_PAR
    {
        pthread_t other;
        CHECK(pthread_create(&other, NULL, contender, (void *)(intptr_t)1) == 0);
        contender((void *)(intptr_t)0);
        CHECK(pthread_join(other, NULL) == 0);
    }
#else
    contender(NULL);
#endif
    t_barrier();
    OK(gex_RMA_GetBlocking(t_tm, &seen, 0, shared, sizeof seen, 0));
    CHECK_EQ(seen.sum, total);
    CHECK_EQ(seen.exchanged, total * 2);
    CHECK(seen.real == (double)total / 2);
    CHECK_EQ(seen.most, total - 1);
    if (turns % 2)
        for (number = 0; number < all; number++) bits ^= 1U << number % 32;
    CHECK_EQ(seen.bits, bits);
    t_barrier();
    gex_AD_Destroy(ad_u64);
    gex_AD_Destroy(ad_dbl);
    gex_AD_Destroy(ad_i32);
    gex_AD_Destroy(ad_u32);
}

/* Flat: the operation is a constant for the header. */
static __attribute__((__noinline__, __flatten__)) void both(gex_AD_t ad, uint64_t *got, gex_Rank_t rank, void *at)
{
    gex_Event_Wait(gex_AD_OpNB_U64(ad, got, rank, at, GEX_OP_FADD | GEX_OP_SET, 1, 2, 0));
}

/* Ends by the wrong use of this name; `rank` is this one's, or a remote one where there is any. */
static void wrong(const char *name)
{
    gex_Rank_t rank = t_size - 1, none = t_size;
    char *base = t_base(rank, NULL);
    uint64_t got;
    int32_t narrow;
    gex_AD_t ad, other;
    gex_AD_Create(&ad, t_tm, GEX_DT_U64, GEX_OP_FADD | GEX_OP_SET, 0);
#define CASE(text) else if (strcmp(name, text) == 0)
#define USE(result, to, at, op, flags) gex_Event_Wait(gex_AD_OpNB_U64(ad, result, to, at, op, 1, 2, flags))
    if (strcmp(name, "another operation") == 0) USE(&got, rank, base, GEX_OP_ADD, 0);
    CASE("two operations") USE(&got, rank, base, GEX_OP_FADD | GEX_OP_SET, 0);
    CASE("two constants") both(ad, &got, rank, base);
    CASE("another type") gex_Event_Wait(gex_AD_OpNB_I32(ad, &narrow, rank, base, GEX_OP_FADD, 1, 2, 0));
    CASE("unknown type") gex_AD_Create(&other, t_tm, GEX_DT_USER, GEX_OP_ADD, 0);
    CASE("bits of a float") gex_AD_Create(&other, t_tm, GEX_DT_FLT, GEX_OP_ADD | GEX_OP_XOR, 0);
    CASE("unknown operation") gex_AD_Create(&other, t_tm, GEX_DT_U32, GEX_OP_ADD | GEX_OP_USER, 0);
    CASE("unknown flags") gex_AD_Create(&other, t_tm, GEX_DT_U32, GEX_OP_ADD, 8);
    CASE("no team") gex_AD_Create(&other, GEX_TM_INVALID, GEX_DT_U32, GEX_OP_ADD, 0);
    CASE("no type") gex_AD_Create(&other, t_tm, 0, GEX_OP_ADD, 0);
    CASE("two types") gex_AD_Create(&other, t_tm, GEX_DT_U32 | GEX_DT_I32, GEX_OP_ADD, 0);
    CASE("no place") gex_AD_Create(NULL, t_tm, GEX_DT_U32, GEX_OP_ADD, 0);
    CASE("no operation") USE(&got, rank, base, 0, 0);
    CASE("flags of nothing") USE(&got, rank, base, GEX_OP_FADD, 1U << 20);
    CASE("destroyed team")
    {
        gex_TM_t team;
        gex_TM_Split(&team, t_tm, 0, 0, NULL, 0, GEX_FLAG_TM_NO_SCRATCH);
        OK(gex_TM_Destroy(team, NULL, 0));
        gex_AD_Create(&other, team, GEX_DT_U32, GEX_OP_ADD, 0);
    }
    CASE("misaligned") USE(&got, rank, base + 4, GEX_OP_FADD, 0);
    CASE("outside") USE(&got, rank, base - 8, GEX_OP_FADD, 0);
    CASE("at the end") OK(gex_AD_OpNBI_U64(ad, NULL, rank, base + AREA * 2, GEX_OP_SET, 1, 0, 0));
    CASE("nobody") USE(&got, none, base, GEX_OP_FADD, 0);
    CASE("no result") USE(NULL, rank, base, GEX_OP_FADD, 0);
    CASE("no domain") gex_Event_Wait(gex_AD_OpNB_U64(GEX_AD_INVALID, &got, rank, base, GEX_OP_FADD, 1, 0, 0));
    CASE("not a domain") (void)gex_AD_Destroy((gex_AD_t)(void *)&got);
    CASE("not a member") /* of the team of this rank alone */
    {
        gex_TM_t alone;
        gex_TM_Split(&alone, t_tm, (int)t_rank, 0, NULL, 0, GEX_FLAG_TM_NO_SCRATCH);
        gex_AD_Create(&other, alone, GEX_DT_U64, GEX_OP_FADD, 0);
        gex_Event_Wait(gex_AD_OpNB_U64(other, &got, (t_rank + 1) % t_size, base, GEX_OP_FADD, 1, 0,
                                       GEX_FLAG_RANK_IS_JOBRANK));
    }
    CASE("not mine") USE(&got, (t_rank + 1) % t_size, base, GEX_OP_FADD, GEX_FLAG_AD_MY_RANK);
    CASE("by offset") USE(&got, rank, base, GEX_OP_FADD, GEX_FLAG_PEER_SEG_OFFSET);
    CASE("after destroy")
    {
        gex_AD_Destroy(ad);
        USE(&got, rank, base, GEX_OP_FADD, 0);
    }
    CASE("destroy twice")
    {
        gex_AD_Destroy(ad);
        gex_AD_Destroy(ad);
    }
    CASE("destroy in flight") /* of a remote rank */
    {
        gex_Event_t event = gex_AD_OpNB_U64(ad, &got, (t_rank + 1) % t_size, t_base((t_rank + 1) % t_size, NULL),
                                            GEX_OP_FADD, 1, 0, 0);
        gex_AD_Destroy(ad);
        gex_Event_Wait(event);
    }
    CASE("not my neighbour") USE(&got, (t_rank + 1) % t_size, base, GEX_OP_FADD, GEX_FLAG_AD_MY_NBRHD);
    else t_say("no such case: %s", name);
    t_say("TEST FAILED: %s went on", name);
    gasnet_exit(0);
}

int main(int argc, char **argv)
{
    gex_Rank_t rank;
    t_join("atomics", &argc, &argv);
    t_attach(AREA * 2);
    t_barrier();
    if (argc == 3) turns = atoi(argv[2]);
    else if (argc == 2) wrong(argv[1]);
    else {
        for (rank = 0; rank < t_size; rank++) {
            /* Own, right and, of many, not the others. */
            if (rank != t_rank && rank != (t_rank + 1) % t_size) continue;
            against_model_I32(rank, COMMON_SET | BIT_SET);
            against_model_U32(rank, COMMON_SET | BIT_SET);
            against_model_I64(rank, COMMON_SET | BIT_SET);
            against_model_U64(rank, COMMON_SET | BIT_SET);
            against_model_FLT(rank, COMMON_SET);
            against_model_DBL(rank, COMMON_SET);
            offloaded(rank);
        }
        t_barrier();
        in_flight();
        teams();
    }
    contention();
    t_pass();
    return 1;
}
