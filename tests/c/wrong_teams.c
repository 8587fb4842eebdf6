/* Wrong uses of teams and collectives: `wrong_teams NAME` tries one that ends the process, and prints TEST FAILED when it
 * does not; `wrong_teams answers` those that answer. */
#include <unistd.h>
#include <gasnet_coll.h>
#include <gasnet_vis.h>

#include "t.h"

static char data[4096];
static gex_TM_t ended, half;

static void nothing(const void *a, void *b, size_t count, const void *cdata)
{
    (void)a;
    (void)b;
    (void)count;
    (void)cdata;
}

/* A function that calls what no function of a reduction may call. */
static void calls(const void *a, void *b, size_t count, const void *cdata)
{
    nothing(a, b, count, cdata);
    gex_Event_Wait(gex_Coll_BroadcastNB(t_tm, 0, data, data, 8, 0));
}

static gex_Event_t to_all(size_t bytes, size_t count, gex_DT_t dt, gex_OP_t op, gex_Coll_ReduceFn_t function)
{
    return gex_Coll_ReduceToAllNB(t_tm, data, data, dt, bytes, count, op, function, NULL, 0);
}

static void answers(void)
{
    gex_TM_t pair = gex_TM_Pair(t_ep, 0);
    CHECK_EQ(gex_TM_TranslateRankToJobrank(half, 1), GEX_RANK_INVALID);
    CHECK_EQ(gex_TM_TranslateRankToJobrank(t_tm, t_size), GEX_RANK_INVALID);
    CHECK_EQ(gex_TM_TranslateJobrankToRank(half, 1 - t_rank), GEX_RANK_INVALID);
    CHECK_EQ(gex_TM_TranslateRankToJobrank(ended, 0), GEX_RANK_INVALID);
    CHECK_EQ(gex_TM_TranslateRankToJobrank(pair, 0), GEX_RANK_INVALID);
    CHECK_EQ(gex_TM_TranslateRankToJobrank(GEX_TM_INVALID, 0), GEX_RANK_INVALID);
    CHECK_EQ(gex_TM_QueryRank(ended), GEX_RANK_INVALID);
    CHECK_EQ(gex_TM_QuerySize(ended), 0);
    CHECK_EQ(gex_TM_QuerySize(pair), 0);
    CHECK(gex_TM_QueryEP(ended) == GEX_EP_INVALID && gex_TM_QueryCData(ended) == NULL);
    CHECK_EQ(gex_AM_RequestShort0(ended, 0, 200, 0), GASNET_ERR_BAD_ARG);
    CHECK_EQ(gex_AM_RequestShort0(half, 1, 200, 0), GASNET_ERR_BAD_ARG);
    CHECK_EQ(gex_AM_RequestShort0((gex_TM_t)(void *)data, 0, 200, 0), GASNET_ERR_BAD_ARG);
    CHECK_EQ(gex_EP_PublishBoundSegment(ended, NULL, 0, 0), GASNET_ERR_BAD_ARG);
    CHECK_EQ(gex_Segment_Attach(&t_segment, half, 4096), GASNET_ERR_BAD_ARG);
    CHECK_EQ(gasnet_coll_barrier_wait(half, 0, 0), GASNET_ERR_BAD_ARG);
    CHECK_EQ(gasnet_coll_barrier_try(half, 0, 0), GASNET_ERR_BAD_ARG);
    CHECK_EQ(gasnet_coll_barrier_result(half, NULL), GASNET_ERR_BAD_ARG);
    CHECK_EQ(gasnet_coll_barrier(ended, 0, 0), GASNET_ERR_BAD_ARG);
    t_pass();
}

#define NOSYNC (GASNET_COLL_IN_NOSYNC | GASNET_COLL_OUT_NOSYNC)
#define CASE(text) else if (strcmp(name, text) == 0)

static void wrong(const char *name)
{
    gex_TM_t tm;
    gex_EP_Location_t list[3];
    gex_Memvec_t eight;
    eight.gex_addr = data, eight.gex_len = 8;
    memset(list, 0, sizeof list);
    if (strcmp(name, "answers") == 0) answers();
    CASE("barrier after destroy") gex_Coll_BarrierBlocking(ended, 0);
    CASE("put after destroy") gex_RMA_PutBlocking(ended, 0, data, data, 8, 0);
    CASE("put to no member") gex_RMA_PutBlocking(half, 1, data, data, 8, 0);
    CASE("vector after destroy") gex_VIS_VectorPutBlocking(ended, 0, 1, &eight, 1, &eight, 0);
    CASE("vector from no member") gex_VIS_VectorGetBlocking(half, 1, &eight, 1, 1, &eight, 0);
    CASE("barrier of nothing") gex_Coll_BarrierBlocking((gex_TM_t)(void *)data, 0);
    CASE("split after destroy") gex_TM_Split(&tm, ended, 0, 0, NULL, 0, GEX_FLAG_TM_NO_SCRATCH);
    CASE("create of null") gex_TM_Create(&tm, 1, t_tm, NULL, 2, NULL, 0, GEX_FLAG_TM_NO_SCRATCH);
    CASE("create too large") gex_TM_Create(&tm, 1, t_tm, list, SIZE_MAX / 2, NULL, 0, GEX_FLAG_TM_NO_SCRATCH);
    CASE("destroy twice") gex_TM_Destroy(ended, NULL, 0);
    CASE("destroy all") gex_TM_Destroy(t_tm, NULL, 0);
    CASE("barrier of a pair") gex_Coll_BarrierBlocking(gex_TM_Pair(t_ep, 0), 0);
    CASE("split a pair") gex_TM_Split(&tm, gex_TM_Pair(t_ep, 0), 0, 0, NULL, 0, GEX_FLAG_TM_NO_SCRATCH);
    CASE("negative color") gex_TM_Split(&tm, t_tm, -1, 0, NULL, 0, GEX_FLAG_TM_NO_SCRATCH);
    CASE("no scratch") gex_TM_Split(&tm, t_tm, 0, 0, NULL, 0, 0);
    CASE("scratch at null") gex_TM_Split(&tm, t_tm, 0, 0, NULL, 64, 0);
    CASE("split with a flag of create") gex_TM_Split(&tm, t_tm, 0, 0, data, 64, GEX_FLAG_TM_LOCAL_SCRATCH);
    CASE("create outside")
    {
        list[0].gex_rank = t_size;
        gex_TM_Create(&tm, 1, t_tm, list, 1, NULL, 0, GEX_FLAG_TM_NO_SCRATCH);
    }
    CASE("create twice")
    {
        list[0].gex_rank = list[1].gex_rank = t_rank;
        gex_TM_Create(&tm, 1, t_tm, list, 2, NULL, 0, GEX_FLAG_TM_NO_SCRATCH);
    }
    CASE("create without me")
    {
        list[0].gex_rank = 1 - t_rank;
        gex_TM_Create(&tm, 1, t_tm, list, 1, NULL, 0, GEX_FLAG_TM_NO_SCRATCH);
    }
    CASE("create of lists that differ")
    {
        list[0].gex_rank = t_rank;
        list[1].gex_rank = 1 - t_rank;
        gex_TM_Create(&tm, 1, t_tm, list, 2, NULL, 0, GEX_FLAG_TM_NO_SCRATCH);
    }
    CASE("create of endpoint 1")
    {
        list[0].gex_rank = t_rank;
        list[0].gex_ep_index = 1;
        gex_TM_Create(&tm, 1, t_tm, list, 1, NULL, 0, GEX_FLAG_TM_NO_SCRATCH);
    }
    CASE("create with two scratches")
    {
        list[0].gex_rank = t_rank;
        gex_TM_Create(&tm, 1, t_tm, list, 1, NULL, 64, GEX_FLAG_TM_LOCAL_SCRATCH | GEX_FLAG_TM_GLOBAL_SCRATCH);
    }
    CASE("root outside") gex_Event_Wait(gex_Coll_BroadcastNB(t_tm, t_size, data, data, 8, 0));
    CASE("root outside half") gex_Event_Wait(gex_Coll_BroadcastNB(half, 1, data, data, 8, 0));
    CASE("broadcast to null") gex_Event_Wait(gex_Coll_BroadcastNB(t_tm, 0, NULL, data, 8, 0));
    CASE("broadcast from null") gex_Event_Wait(gex_Coll_BroadcastNB(t_tm, t_rank, data, NULL, 8, 0));
    CASE("broadcast with flags") gex_Event_Wait(gex_Coll_BroadcastNB(t_tm, 0, data, data, 8, 1));
    CASE("broadcast of all") gex_Event_Wait(gex_Coll_BroadcastNB(t_tm, 0, data, data, SIZE_MAX, 0));
    CASE("broadcast of no team") gex_Event_Wait(gex_Coll_BroadcastNB(GEX_TM_INVALID, 0, data, data, 8, 0));
    CASE("reduce after destroy")
    gex_Event_Wait(gex_Coll_ReduceToAllNB(ended, data, data, GEX_DT_I32, 4, 1, GEX_OP_ADD, NULL, NULL, 0));
    CASE("reduce with flags")
    gex_Event_Wait(gex_Coll_ReduceToAllNB(t_tm, data, data, GEX_DT_I32, 4, 1, GEX_OP_ADD, NULL, NULL, 4));
    CASE("reduce to a root outside")
    gex_Event_Wait(gex_Coll_ReduceToOneNB(half, 1, data, data, GEX_DT_I32, 4, 1, GEX_OP_ADD, NULL, NULL, 0));
    CASE("no type") gex_Event_Wait(to_all(8, 1, 0, GEX_OP_ADD, NULL));
    CASE("no operation") gex_Event_Wait(to_all(8, 1, GEX_DT_I64, 0, NULL));
    CASE("elements of all") gex_Event_Wait(to_all(4, SIZE_MAX / 4, GEX_DT_I32, GEX_OP_ADD, NULL));
    CASE("size of elements") gex_Event_Wait(to_all(4, 1, GEX_DT_DBL, GEX_OP_ADD, NULL));
    CASE("no elements") gex_Event_Wait(to_all(8, 0, GEX_DT_DBL, GEX_OP_ADD, NULL));
    CASE("bits of floats") gex_Event_Wait(to_all(8, 1, GEX_DT_DBL, GEX_OP_XOR, NULL));
    CASE("operation of atomics") gex_Event_Wait(to_all(8, 1, GEX_DT_I64, GEX_OP_CAS, NULL));
    CASE("two types") gex_Event_Wait(to_all(8, 1, GEX_DT_I64 | GEX_DT_U64, GEX_OP_ADD, NULL));
    CASE("sum of user type") gex_Event_Wait(to_all(8, 1, GEX_DT_USER, GEX_OP_ADD, NULL));
    CASE("user without function") gex_Event_Wait(to_all(8, 1, GEX_DT_USER, GEX_OP_USER, NULL));
    CASE("too many elements") gex_Event_Wait(to_all(8, SIZE_MAX / 4, GEX_DT_DBL, GEX_OP_ADD, NULL));
    CASE("reduce to null")
    gex_Event_Wait(gex_Coll_ReduceToAllNB(t_tm, NULL, data, GEX_DT_I32, 4, 1, GEX_OP_ADD, NULL, NULL, 0));
    CASE("reduce from null")
    gex_Event_Wait(gex_Coll_ReduceToOneNB(t_tm, 0, data, NULL, GEX_DT_I32, 4, 1, GEX_OP_ADD, NULL, NULL, 0));
    CASE("calls in a function") gex_Event_Wait(to_all(8, 1, GEX_DT_USER, GEX_OP_USER, calls));
    CASE("sizes differ") gex_Event_Wait(gex_Coll_BroadcastNB(t_tm, 0, data, data, 8 + t_rank, 0));
    /* Each sends to the other and is done; what has come before the call is compared with it. */
    CASE("roots differ") {
        if (t_rank) for (int turn = 0; turn < 300; turn++, usleep(1000)) gasnet_AMPoll();
        gex_Event_Wait(gex_Coll_ReduceToOneNB(t_tm, 1 - t_rank, data, data, GEX_DT_I32, 4, 1, GEX_OP_ADD, NULL, NULL, 0));
    }
    CASE("each waits") gex_Event_Wait(gex_Coll_BroadcastNB(t_tm, 1 - t_rank, data, data, 8, 0));
    CASE("kinds differ")
    gex_Event_Wait(t_rank ? to_all(8, 1, GEX_DT_I64, GEX_OP_ADD, NULL) : gex_Coll_BroadcastNB(t_tm, 0, data, data, 8, 0));
    CASE("operations differ") gex_Event_Wait(to_all(8, 1, GEX_DT_I64, t_rank ? GEX_OP_ADD : GEX_OP_MAX, NULL));
    CASE("image outside") gasnet_coll_broadcast(t_tm, data, 2, data, 8, NOSYNC);
    CASE("image outside half") gasnet_coll_gather(half, 1, data, data, 8, NOSYNC);
    CASE("scatter from null") gasnet_coll_scatter(t_tm, data, t_rank, NULL, 8, NOSYNC);
    CASE("gather to null") gasnet_coll_gather(t_tm, t_rank, NULL, data, 8, NOSYNC);
    CASE("gather all to null") gasnet_coll_gather_all(t_tm, NULL, data, 8, NOSYNC);
    CASE("exchange from null") gasnet_coll_exchange(t_tm, data, NULL, 8, NOSYNC);
    CASE("exchange in place") gasnet_coll_exchange(t_tm, data, data, 8, NOSYNC);
    CASE("blocks too large") gasnet_coll_exchange(t_tm, data, data, SIZE_MAX / 2, NOSYNC);
    CASE("no sync flags") gasnet_coll_gather_all(t_tm, data, data, 8, GASNET_COLL_IN_NOSYNC);
    CASE("two sync flags") gasnet_coll_gather_all(t_tm, data, data, 8, NOSYNC | GASNET_COLL_IN_ALLSYNC);
    CASE("single and local") gasnet_coll_gather_all(t_tm, data, data, 8, NOSYNC | GASNET_COLL_SINGLE | GASNET_COLL_LOCAL);
    CASE("unknown flags") gasnet_coll_gather_all(t_tm, data, data, 8, NOSYNC | 1 << 20);
    CASE("gather after destroy") gasnet_coll_gather_all(ended, data, data, 8, NOSYNC);
    CASE("notify twice")
    {
        gasnet_coll_barrier_notify(half, 1, 0);
        gasnet_coll_barrier_notify(half, 1, 0);
    }
    CASE("blocks differ") gasnet_coll_exchange(t_tm, data, data + 1024, 8 + t_rank, NOSYNC);
    CASE("images differ")
    {
        gasnet_coll_scatter(t_tm, data, t_rank, data + 1024, 8, GASNET_COLL_IN_NOSYNC | GASNET_COLL_OUT_ALLSYNC);
    }
    else t_say("no such case: %s", name);
    /* The other rank may be the one that finds it. */
    if (strstr(name, "differ") || strstr(name, "each")) t_barrier();
    t_say("TEST FAILED: %s went on", name);
    gasnet_exit(0);
}

int main(int argc, char **argv)
{
    if (argc < 2) return 98;
    t_join("wrong_teams", &argc, &argv);
    gex_TM_Split(&ended, t_tm, 0, 0, NULL, 0, GEX_FLAG_TM_NO_SCRATCH);
    OK(gex_TM_Destroy(ended, NULL, 0));
    gex_TM_Split(&half, t_tm, (int)t_rank, 0, NULL, 0, GEX_FLAG_TM_NO_SCRATCH);
    wrong(argv[1]);
    return 1;
}
