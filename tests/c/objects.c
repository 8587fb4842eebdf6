/* Clients, endpoints, teams, pairs, segments: queries, client data, creation, binding, publication; host and
 * neighbourhood; direct access to neighbours. */
#include "t.h"

#include <gasnet_mk.h>

static unsigned char own[3 * 4096 + 100];
static int another;

static void client_data(void)
{
    int mark;
    CHECK(gex_Client_QueryCData(t_client) == NULL && gex_EP_QueryCData(t_ep) == NULL);
    CHECK(gex_TM_QueryCData(t_tm) == NULL && gex_Segment_QueryCData(t_segment) == NULL);
    gex_Client_SetCData(t_client, &mark);
    gex_EP_SetCData(t_ep, &mark + 1);
    gex_TM_SetCData(t_tm, &another);
    gex_Segment_SetCData(t_segment, own);
    CHECK(gex_Client_QueryCData(t_client) == &mark && gex_EP_QueryCData(t_ep) == &mark + 1);
    CHECK(gex_TM_QueryCData(t_tm) == &another && gex_Segment_QueryCData(t_segment) == own);
}

static void queries(void)
{
    gex_EP_Location_t where;
    gex_Rank_t at;
    CHECK(gex_Client_QueryFlags(t_client) == 0 && gex_EP_QueryFlags(t_ep) == 0 && gex_TM_QueryFlags(t_tm) == 0);
    CHECK(strcmp(gex_Client_QueryName(t_client), "objects") == 0);
    CHECK(gex_TM_QueryClient(t_tm) == t_client && gex_EP_QueryClient(t_ep) == t_client);
    CHECK(gex_TM_QueryEP(t_tm) == t_ep && gex_EP_QueryIndex(t_ep) == 0);
    CHECK(gex_EP_QuerySegment(t_ep) == t_segment && gex_Segment_QueryClient(t_segment) == t_client);
    CHECK(gex_Segment_QueryFlags(t_segment) == 0);
    for (at = 0; at < t_size; at++) {
        CHECK(gex_TM_TranslateRankToJobrank(t_tm, at) == at && gex_TM_TranslateJobrankToRank(t_tm, at) == at);
        where = gex_TM_TranslateRankToEP(t_tm, at, 0);
        CHECK(where.gex_rank == at && where.gex_ep_index == 0);
    }
    CHECK(gex_TM_TranslateJobrankToRank(t_tm, t_size) == GEX_RANK_INVALID);
}

static void host(void)
{
    gex_RankInfo_t *near = NULL, *all = NULL;
    gex_Rank_t nears = 0, alls = 0, me = 0, mine = 0, sets = 0, set = 0, hosts = 0, my_host = 0, at;
    gasnet_nodeinfo_t nodes[64];
    gex_System_QueryNbrhdInfo(&near, &nears, &me);
    gex_System_QueryHostInfo(&all, &alls, &mine);
    gex_System_QueryNbrhdInfo(NULL, NULL, NULL);
    gex_System_QueryHostInfo(NULL, &alls, NULL);
    gex_System_QueryMyPosition(&sets, &set, &hosts, &my_host);
    gex_System_QueryMyPosition(NULL, NULL, NULL, NULL);
    CHECK(near[me].gex_jobrank == t_rank && all[mine].gex_jobrank == t_rank);
    CHECK(nears <= alls && alls <= t_size && set < sets && my_host < hosts && hosts <= sets);
    for (at = 1; at < alls; at++) CHECK(all[at - 1].gex_jobrank < all[at].gex_jobrank);
    OK(gasnet_getNodeInfo(nodes, (int)t_size));
    for (at = 0; at < nears; at++) {
        char *here, *there = t_base(near[at].gex_jobrank, &here);
        CHECK(here != NULL);
        if (near[at].gex_jobrank == t_rank) CHECK(here == there);
        CHECK_EQ(nodes[near[at].gex_jobrank].supernode, nodes[t_rank].supernode);
        CHECK(there + nodes[near[at].gex_jobrank].offset == here);
        /* Written directly; the owner looks. */
        *(volatile uint32_t *)(here + 256 + 4 * t_rank) = 70000 + t_rank;
    }
    t_barrier();
    for (at = 0; at < nears; at++) {
        gex_Rank_t from = near[at].gex_jobrank;
        CHECK_EQ(*(volatile uint32_t *)((char *)gex_Segment_QueryAddr(t_segment) + 256 + 4 * from), 70000 + from);
    }
    CHECK(gex_System_GetVerboseErrors() == 1);
    gex_System_SetVerboseErrors(0);
    CHECK(gex_System_GetVerboseErrors() == 0);
    gex_System_SetVerboseErrors(1);
#if GASNET_SEQ
    CHECK(gex_System_QueryMaxThreads() == 1);
#else
    CHECK(gex_System_QueryMaxThreads() > 1);
#endif
    CHECK(gex_System_QueryHiddenAMConcurrencyLevel() <= GASNET_HIDDEN_AM_CONCURRENCY_LEVEL);
}

static void segment_table(void)
{
    gasnet_seginfo_t table[64];
    gasnet_nodeinfo_t nodes[64];
    gex_Rank_t at;
    void *owner = NULL, *here = NULL;
    uintptr_t size = 0;
    OK(gasnet_getSegmentInfo(table, 64));
    OK(gasnet_getNodeInfo(nodes, 64));
    for (at = 0; at < t_size; at++) {
        CHECK(table[at].addr == t_base(at, NULL) && table[at].size >= 8192);
        OK(gex_Segment_QueryBound(t_tm, at, &owner, &here, &size));
        CHECK(owner == table[at].addr && size == table[at].size);
        /* Mapped here where its owner is a neighbour, and nowhere else. */
        CHECK_EQ(here != NULL, nodes[at].supernode == nodes[t_rank].supernode);
    }
    gex_Event_Wait(gex_EP_QueryBoundSegmentNB(t_tm, t_rank, NULL, NULL, NULL, 0));
    CHECK(gex_EP_QueryBoundSegmentNB(t_tm, t_rank, &owner, NULL, NULL, GEX_FLAG_IMMEDIATE) == GEX_EVENT_INVALID);
}

/* Memory of the client and of the library in further endpoints, found through pairs. */
static void further_endpoints(void)
{
    gex_Segment_t mine, library;
    gex_EP_t eps[2];
    gex_TM_t pair;
    gex_EP_Index_t at;
    gex_Rank_t to = (t_rank + 1) % t_size, from = (t_rank + t_size - 1) % t_size;
    void *owner, *here;
    uintptr_t size;
    static unsigned char back[sizeof own];
    OK(gex_EP_Create(&eps[0], t_client, GEX_EP_CAPABILITY_RMA, 0));
    OK(gex_EP_Create(&eps[1], t_client, GEX_EP_CAPABILITY_RMA, 0));
    CHECK(gex_EP_QueryIndex(eps[0]) == 1 && gex_EP_QueryIndex(eps[1]) == 2);
    CHECK(gex_EP_QuerySegment(eps[0]) == GEX_SEGMENT_INVALID && gex_EP_QueryClient(eps[1]) == t_client);
    OK(gex_Segment_Create(&mine, t_client, own + 16, 3 * 4096 + 7, GEX_MK_HOST, 0));
    CHECK(gex_Segment_QueryAddr(mine) == own + 16 && gex_Segment_QuerySize(mine) == 3 * 4096 + 7);
    OK(gex_Segment_Create(&library, t_client, NULL, 100000, GEX_MK_HOST, 0));
    CHECK(gex_Segment_QueryAddr(library) != NULL && gex_Segment_QuerySize(library) >= 100000);
    OK(gex_EP_BindSegment(eps[0], mine, 0));
    OK(gex_EP_BindSegment(eps[1], library, 0));
    CHECK(gex_EP_QuerySegment(eps[0]) == mine);
    OK(gex_EP_PublishBoundSegment(t_tm, eps, 2, 0));
    t_barrier();
    for (at = 1; at <= 2; at++) {
        pair = gex_TM_Pair(t_ep, at);
        CHECK(pair != t_tm && pair != GEX_TM_INVALID && pair == gex_TM_Pair(t_ep, at));
        gex_Event_Wait(gex_EP_QueryBoundSegmentNB(pair, to, &owner, &here, &size, 0));
        CHECK(size >= 3 * 4096 + 7);
        t_fill(back, t_rank + at * 16U, 9000);
        OK(gex_RMA_PutBlocking(pair, to, (char *)owner + 5, back, 9000, 0));
        memset(back, 0, sizeof back);
        OK(gex_RMA_GetBlocking(pair, back, to, (char *)owner + 5, 9000, 0));
        CHECK(t_same(back, t_rank + at * 16U, 9000));
        t_barrier();
        CHECK(t_same((char *)gex_Segment_QueryAddr(at == 1 ? mine : library) + 5, from + at * 16U, 9000));
        t_barrier();
    }
    CHECK(gex_TM_Pair(t_ep, 1) != gex_TM_Pair(t_ep, 2) && gex_TM_Pair(eps[0], 1) != gex_TM_Pair(t_ep, 1));
    /* A pair of first endpoints is as good as the team. */
    pair = gex_TM_Pair(t_ep, 0);
    OK(gex_RMA_PutBlockingVal(pair, to, t_base(to, NULL) + 128, 4711, 8, 0));
    CHECK(gex_RMA_GetBlockingVal(pair, to, t_base(to, NULL) + 128, 8, 0) == 4711);
    CHECK(gex_AM_MaxRequestMedium(pair, to, GEX_EVENT_NOW, 0, 4) == gex_AM_MaxRequestMedium(t_tm, to, GEX_EVENT_NOW, 0, 4));
}

/* Memory of the host is the only kind. */
static void kinds(void)
{
    gex_MK_t kind = GEX_MK_INVALID;
    gex_MK_Create_args_t args;
    gex_Segment_t segment;
    memset(&args, 0, sizeof args);
    args.gex_class = GEX_MK_CLASS_HOST;
    OK(gex_MK_Create(&kind, t_client, &args, 0));
    CHECK(kind == GEX_MK_HOST);
    OK(gex_Segment_Create(&segment, t_client, own, sizeof own, kind, 0));
    gex_Segment_Destroy(segment, 0);
    gex_MK_Destroy(kind, 0);
    CHECK(GEX_MK_HOST != GEX_MK_INVALID);
}

static void segment_alone(void)
{
    gex_Segment_t segment;
    int round;
    for (round = 0; round < 100; round++) {
        OK(gex_Segment_Create(&segment, t_client, NULL, 1 << 20, GEX_MK_HOST, 0));
        memset(gex_Segment_QueryAddr(segment), 1, 1 << 20);
        gex_Segment_Destroy(segment, 0);
    }
}

int main(int argc, char **argv)
{
    t_join("objects", &argc, &argv);
    CHECK(gex_EP_QuerySegment(t_ep) == GEX_SEGMENT_INVALID);
    t_attach(8192 * (t_rank + 1));
    client_data();
    queries();
    host();
    segment_table();
    further_endpoints();
    kinds();
    segment_alone();
    t_pass();
    return 1;
}
