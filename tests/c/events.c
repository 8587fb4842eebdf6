/* Events in arrays, leaves, access regions. */
#include "t.h"

#define SLOT 4096
static unsigned char mine[SLOT * 64], back[SLOT * 64];

static void arrays(void)
{
    gex_Rank_t to = (t_rank + 1) % t_size;
    char *base = t_base(to, NULL);
    gex_Event_t events[66];
    int round, at;
    for (round = 0; round < 5; round++) {
        t_fill(mine, (uint32_t)round + 100 * t_rank, sizeof mine);
        for (at = 0; at < 64; at++)
            events[at] = gex_RMA_PutNB(t_tm, to, base + at * SLOT, mine + at * SLOT, SLOT, GEX_EVENT_DEFER, 0);
        events[64] = events[65] = GEX_EVENT_INVALID;
        if (round % 2) gex_Event_WaitAll(events, 66, 0);
        else
            while (gex_Event_TestAll(events, 66, 0) != GASNET_OK) OK(gasnet_AMPoll());
        for (at = 0; at < 66; at++) CHECK(events[at] == GEX_EVENT_INVALID);
        /* All are invalid, or there is none. */
        OK(gex_Event_TestSome(events, 66, 0));
        OK(gex_Event_TestSome(events, 0, 0));
        OK(gex_Event_TestAll(events, 0, 0));
        gex_Event_WaitSome(events, 66, 0);
        gex_Event_WaitAll(NULL, 0, 0);
        for (at = 0; at < 64; at++)
            events[at] = gex_RMA_GetNB(t_tm, back + at * SLOT, to, base + at * SLOT, SLOT, 0);
        gex_Event_WaitSome(events, 64, 0);
        gex_Event_WaitAll(events, 64, 0);
        CHECK(t_same(back, (uint32_t)round + 100 * t_rank, sizeof back));
    }
    gex_Event_Wait(GEX_EVENT_INVALID);
    OK(gex_Event_Test(GEX_EVENT_INVALID));
}

/* A root that is surely not complete: the others begin it only when rank 0 lets them. */
static void pending(void)
{
    volatile uint64_t *gate;
    gex_Event_t events[2];
    gex_Rank_t to;
    char *here;
    (void)t_base(t_rank, &here);
    gate = (volatile uint64_t *)here;
    t_barrier();
    *gate = 0;
    t_barrier();
    if (t_rank == 0 && t_size > 1) {
        gex_Event_t own = gex_Coll_BarrierNB(t_tm, 0);
        CHECK_EQ(gex_Event_Test(own), GASNET_ERR_NOT_READY);
        events[0] = own;
        events[1] = GEX_EVENT_INVALID;
        CHECK_EQ(gex_Event_TestAll(events, 2, 0), GASNET_ERR_NOT_READY);
        CHECK_EQ(gex_Event_TestSome(events, 2, 0), GASNET_ERR_NOT_READY);
        CHECK(events[0] == own);
        for (to = 1; to < t_size; to++) OK(gex_RMA_PutBlockingVal(t_tm, to, t_base(to, NULL), 1, 8, 0));
        gex_Event_WaitSome(events, 2, 0);
        CHECK(events[0] == GEX_EVENT_INVALID);
    } else {
        if (t_rank > 0) GASNET_BLOCKUNTIL(*gate == 1);
        gex_Event_Wait(gex_Coll_BarrierNB(t_tm, 0));
    }
}

static void regions(void)
{
    gex_Rank_t to = (t_rank + 1) % t_size;
    char *base = t_base(to, NULL);
    gex_Event_t root, leaf = GEX_EVENT_INVALID;
    int at;
    t_barrier();
    t_fill(mine, 4, sizeof mine);
    gex_NBI_BeginAccessRegion(0);
    for (at = 0; at < 64; at++)
        OK(gex_RMA_PutNBI(t_tm, to, base + at * SLOT, mine + at * SLOT, SLOT, at % 2 ? GEX_EVENT_DEFER : GEX_EVENT_GROUP, 0));
    /* Independent of the region. */
    OK(gex_RMA_GetBlocking(t_tm, back, to, base, 8, 0));
    root = gex_NBI_EndAccessRegion(0);
    if (root != GEX_EVENT_INVALID) {
        leaf = gex_Event_QueryLeaf(root, GEX_EC_PUT);
        CHECK(leaf == gex_Event_QueryLeaf(root, GEX_EC_PUT));
    }
    gex_Event_Wait(root);
    gex_NBI_BeginAccessRegion(0);
    gex_Event_Wait(gex_NBI_EndAccessRegion(0));
    gex_NBI_BeginAccessRegion(0);
    for (at = 0; at < 64; at++) OK(gex_RMA_GetNBI(t_tm, back + at * SLOT, to, base + at * SLOT, SLOT, 0));
    root = gex_NBI_EndAccessRegion(0);
    while (gex_Event_Test(root) != GASNET_OK) OK(gasnet_AMPoll());
    CHECK(t_same(back, 4, sizeof back));
    CHECK(gex_Event_QueryLeaf(GEX_EVENT_INVALID, GEX_EC_LC) == GEX_EVENT_INVALID);
    gex_NBI_Wait(GEX_EC_ALL, 0);
    OK(gex_NBI_Test(GEX_EC_PUT | GEX_EC_GET | GEX_EC_AM | GEX_EC_RMW, 0));
}

int main(int argc, char **argv)
{
    t_start("events", &argc, &argv, SLOT * 64);
    arrays();
    pending();
    regions();
    t_pass();
    return 1;
}
