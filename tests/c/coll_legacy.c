/* Collectives of GASNet-1: all of them, on all kinds of teams, with all pairs of sync flags, many sizes and roots, blocking
 * and several under way; barriers of teams with names. */
#include <gasnet_coll.h>
#include <gasnet_tools.h>

#include "t.h"

#define TEAMS 3

static gasnet_team_handle_t teams[TEAMS];
static const int syncs[9] = {
    GASNET_COLL_IN_NOSYNC | GASNET_COLL_OUT_NOSYNC,   GASNET_COLL_IN_NOSYNC | GASNET_COLL_OUT_MYSYNC,
    GASNET_COLL_IN_NOSYNC | GASNET_COLL_OUT_ALLSYNC,  GASNET_COLL_IN_MYSYNC | GASNET_COLL_OUT_NOSYNC,
    GASNET_COLL_IN_MYSYNC | GASNET_COLL_OUT_MYSYNC,   GASNET_COLL_IN_MYSYNC | GASNET_COLL_OUT_ALLSYNC,
    GASNET_COLL_IN_ALLSYNC | GASNET_COLL_OUT_NOSYNC,  GASNET_COLL_IN_ALLSYNC | GASNET_COLL_OUT_MYSYNC,
    GASNET_COLL_IN_ALLSYNC | GASNET_COLL_OUT_ALLSYNC,
};

/* What image `from` has for image `to`. */
static uint32_t key(uint32_t seed, gasnet_image_t from, gasnet_image_t to)
{
    return seed * 10007 + from * 101 + to;
}

static void fill(char *at, uint32_t seed, gasnet_image_t from, gasnet_image_t images, size_t bytes)
{
    gasnet_image_t to;
    for (to = 0; to < images; to++) t_fill(at + to * bytes, key(seed, from, to), bytes);
}

enum { BROADCAST, SCATTER, GATHER, GATHER_ALL, EXCHANGE, KINDS };

/* One collective, checked. Buffers are as large as what is read or written, and no larger. */
struct one {
    int kind;
    gasnet_team_handle_t team;
    gasnet_image_t root, me, images;
    size_t bytes;
    uint32_t seed;
    char *from, *to;
    gasnet_coll_handle_t handle;
};

static void begin(struct one *one, int flags, int blocking)
{
    gasnet_image_t sources = 1, results = 1;
    size_t n = one->bytes;
    int is_root = one->me == one->root;
    if (one->kind == EXCHANGE || (one->kind == SCATTER && is_root)) sources = one->images;
    if (one->kind >= GATHER_ALL || (one->kind == GATHER && is_root)) results = one->images;
    one->from = (char *)malloc(sources * n + 1);
    one->to = (char *)malloc(results * n + 1);
    CHECK(one->from && one->to);
    fill(one->from, one->seed, one->me, sources, n);
    memset(one->to, 0xcc, results * n + 1);
    one->handle = GASNET_COLL_INVALID_HANDLE;
    switch (one->kind + (blocking ? KINDS : 0)) {
    case BROADCAST: one->handle = gasnet_coll_broadcast_nb(one->team, one->to, one->root, one->from, n, flags); break;
    case SCATTER: one->handle = gasnet_coll_scatter_nb(one->team, one->to, one->root, is_root ? one->from : NULL, n, flags); break;
    case GATHER: one->handle = gasnet_coll_gather_nb(one->team, one->root, is_root ? one->to : NULL, one->from, n, flags); break;
    case GATHER_ALL: one->handle = gasnet_coll_gather_all_nb(one->team, one->to, one->from, n, flags); break;
    case EXCHANGE: one->handle = gasnet_coll_exchange_nb(one->team, one->to, one->from, n, flags); break;
    case BROADCAST + KINDS: gasnet_coll_broadcast(one->team, one->to, one->root, one->from, n, flags); break;
    case SCATTER + KINDS: gasnet_coll_scatter(one->team, one->to, one->root, one->from, n, flags); break;
    case GATHER + KINDS: gasnet_coll_gather(one->team, one->root, one->to, one->from, n, flags); break;
    case GATHER_ALL + KINDS: gasnet_coll_gather_all(one->team, one->to, one->from, n, flags); break;
    default: gasnet_coll_exchange(one->team, one->to, one->from, n, flags);
    }
}

static void check(struct one *one)
{
    gasnet_image_t from, results = 1;
    size_t n = one->bytes;
    if (one->kind == BROADCAST) CHECK(t_same(one->to, key(one->seed, one->root, 0), n));
    if (one->kind == SCATTER) CHECK(t_same(one->to, key(one->seed, one->root, one->me), n));
    if (one->kind >= GATHER_ALL || (one->kind == GATHER && one->me == one->root)) {
        results = one->images;
        for (from = 0; from < results; from++)
            CHECK(t_same(one->to + from * n, key(one->seed, from, one->kind == EXCHANGE ? one->me : 0), n));
    } else if (one->kind == GATHER && n > 0) {
        CHECK_EQ((unsigned char)one->to[0], 0xcc);
    }
    CHECK_EQ((unsigned char)one->to[results * n], 0xcc);
    free(one->from);
    free(one->to);
}

static struct one make(int kind, gasnet_team_handle_t team, size_t bytes, uint32_t seed)
{
    struct one one;
    memset(&one, 0, sizeof one);
    one.kind = kind;
    one.team = team;
    one.me = gex_TM_QueryRank(team);
    one.images = gex_TM_QuerySize(team);
    one.root = seed % one.images;
    one.bytes = bytes;
    one.seed = seed;
    return one;
}

static void blocking(gasnet_team_handle_t team)
{
    static const size_t sizes[] = {0, 1, 8, 100, 4096, 20000, 70000, 300000};
    uint32_t seed = 1;
    unsigned at;
    int kind;
    for (at = 0; at < sizeof sizes / sizeof *sizes; at++)
        for (kind = 0; kind < KINDS; kind++, seed++) {
            struct one one = make(kind, team, sizes[at], seed);
            begin(&one, syncs[seed % 9] | GASNET_COLL_LOCAL, 1);
            check(&one);
        }
}

#define FLIGHT 18
static void in_flight(uint32_t seed)
{
    struct one all[FLIGHT];
    gasnet_coll_handle_t handles[FLIGHT];
    unsigned at;
    uint32_t random = seed + t_rank;
    for (at = 0; at < FLIGHT; at++) {
        all[at] = make((int)(at + seed) % KINDS, teams[at % TEAMS], at % 7 == 0 ? 30000 : 3 * at, seed + at);
        begin(&all[at], syncs[(at + seed) % 9], 0);
        handles[at] = all[at].handle;
    }
    at = t_random(&random) % FLIGHT;
    while (gasnet_coll_try_sync(handles[at]) != GASNET_OK) continue;
    handles[at] = GASNET_COLL_INVALID_HANDLE;
    gasnet_coll_wait_sync(handles[at]);
    at = t_random(&random) % FLIGHT;
    gasnet_coll_wait_sync(handles[at]);
    handles[at] = GASNET_COLL_INVALID_HANDLE;
    gasnet_coll_wait_sync_some(handles, FLIGHT);
    (void)gasnet_coll_try_sync_some(handles, FLIGHT);
    if (gasnet_coll_try_sync_all(handles, FLIGHT) != GASNET_OK) gasnet_coll_wait_sync_all(handles, FLIGHT);
    for (at = 0; at < FLIGHT; at++) check(&all[at]);
}

/* IN_ALLSYNC: what another rank puts before it begins the call is sent; OUT_ALLSYNC: what a rank gets from another after
 * the call has come there. The root is in no hurry, and the last rank is late. */
static void allsync(void)
{
    char *base = t_base(t_rank, NULL);
    gex_Rank_t next = (t_rank + 1) % t_size;
    char *there = t_base(next, NULL);
    uint64_t value, got[2];
    unsigned turn;
    for (turn = 1; turn < 30; turn++) {
        int flags = GASNET_COLL_IN_ALLSYNC | GASNET_COLL_OUT_ALLSYNC | GASNET_COLL_SRC_IN_SEGMENT | GASNET_COLL_DST_IN_SEGMENT;
        if (t_rank == t_size - 1 && turn % 4 == 0) gasnett_nsleep(2000000);
        value = turn * 1000 + next;
        gex_RMA_PutBlocking(t_tm, next, there, &value, 8, 0);
        gasnet_coll_gather_all(GASNET_TEAM_ALL, base + 64, base, 8, flags);
        gex_RMA_GetBlocking(t_tm, &got[0], next, there + 64, 8, 0);
        gex_RMA_GetBlocking(t_tm, &got[1], next, there + 64 + 8 * (t_size - 1), 8, 0);
        CHECK_EQ(got[0], turn * 1000);
        CHECK_EQ(got[1], turn * 1000 + t_size - 1);
        gasnet_coll_barrier_notify(GASNET_TEAM_ALL, 0, GASNET_BARRIERFLAG_UNNAMED);
        OK(gasnet_coll_barrier_wait(GASNET_TEAM_ALL, 0, GASNET_BARRIERFLAG_UNNAMED));
    }
}

static void barriers(gasnet_team_handle_t team)
{
    gex_Rank_t me = gex_TM_QueryRank(team), size = gex_TM_QuerySize(team);
    int id = -1, code;
    OK(gasnet_coll_barrier(team, 5, 0));
    OK(gasnet_coll_barrier_result(team, &id));
    CHECK_EQ(id, 5);
    gasnet_coll_barrier_notify(team, (int)0xcafef00d, me == 0 ? 0 : GASNET_BARRIERFLAG_ANONYMOUS);
    while ((code = gasnet_coll_barrier_try(team, (int)0xcafef00d, 0)) == GASNET_ERR_NOT_READY) continue;
    OK(code);
    OK(gasnet_coll_barrier_result(team, &id));
    CHECK_EQ(id, (int)0xcafef00d);
    OK(gasnet_coll_barrier(team, 0, GASNET_BARRIERFLAG_ANONYMOUS));
    CHECK(gasnet_coll_barrier_result(team, &id) != 0);
    gasnet_coll_barrier_notify(team, 1, 0);
    CHECK_EQ(gasnet_coll_barrier_wait(team, me == 0 ? 2 : 1, 0), me == 0 ? GASNET_ERR_BARRIER_MISMATCH : GASNET_OK);
    code = gasnet_coll_barrier(team, 1, me == size - 1 ? GASNET_BARRIERFLAG_MISMATCH : 0);
    CHECK_EQ(code, GASNET_ERR_BARRIER_MISMATCH);
    code = gasnet_coll_barrier(team, (int)me, 0);
    CHECK_EQ(code, size == 1 ? GASNET_OK : GASNET_ERR_BARRIER_MISMATCH);
    OK(gasnet_coll_barrier(team, 0, GASNET_BARRIERFLAG_UNNAMED));
}

int main(int argc, char **argv)
{
    unsigned team, at;
    t_start("coll_legacy", &argc, &argv, 65536);
    teams[0] = GASNET_TEAM_ALL;
    gex_TM_Split(&teams[1], t_tm, 0, -(int)t_rank, NULL, 0, GEX_FLAG_TM_NO_SCRATCH);
    gex_TM_Split(&teams[2], t_tm, (int)(t_rank % 2), 0, NULL, 0, GEX_FLAG_TM_NO_SCRATCH);
    allsync();
    for (team = 0; team < TEAMS; team++) {
        barriers(teams[team]);
        blocking(teams[team]);
    }
    for (at = 0; at < 20; at++) in_flight(at);
    CHECK_EQ(gasnet_coll_get_num_tree_classes(GASNET_TEAM_ALL, GASNET_COLL_SCATTER_OP), 1);
    gasnet_coll_set_tree_kind(GASNET_TEAM_ALL, 0, 2, GASNET_COLL_SCATTER_OP);
    gasnet_coll_set_dissem_limit(GASNET_TEAM_ALL, 64, GASNET_COLL_GATHER_ALL_OP);
    gasnet_coll_dumpTuningState(NULL, GASNET_TEAM_ALL);
    OK(gex_TM_Destroy(teams[2], NULL, 0));
    OK(gex_TM_Destroy(teams[1], NULL, 0));
    t_pass();
    return 1;
}
