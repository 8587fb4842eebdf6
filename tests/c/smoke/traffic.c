/* One program that touches every block of calls once and checks what comes out. */
#include <gasnet.h>
#include <gasnet_coll.h>

static gex_Client_t client;
static gex_EP_t ep;
static gex_TM_t tm;
static gex_Segment_t segment;
static gex_Rank_t me, ranks;
static int failures;

#define CHECK(condition)                                                                                            \
    do {                                                                                                            \
        if (!(condition)) {                                                                                         \
            fprintf(stderr, "rank %u: %s:%d: %s\n", (unsigned)me, __FILE__, __LINE__, #condition);                  \
            failures++;                                                                                             \
        }                                                                                                           \
    } while (0)
#define OK(call) CHECK((call) == GASNET_OK)

static volatile int shorts, mediums, longs, done;
static char *base;

static void short_reply(gex_Token_t token, gex_AM_Arg_t a, gex_AM_Arg_t b)
{
    (void)token;
    CHECK(b == -a);
    shorts++;
}

static void short_request(gex_Token_t token, gex_AM_Arg_t a)
{
    gex_Token_Info_t info;
    CHECK((gex_Token_Info(token, &info, GEX_TI_ALL) & GEX_TI_ALL) == GEX_TI_ALL);
    CHECK(info.gex_is_req && !info.gex_is_long && info.gex_ep == ep && info.gex_entry->gex_nargs == 1);
    CHECK(!gex_AM_ReplyShort2(token, 201, 0, a, -a));
}

static void medium_request(gex_Token_t token, void *buffer, size_t bytes, gex_AM_Arg_t a0, gex_AM_Arg_t a1,
                           gex_AM_Arg_t a2, gex_AM_Arg_t a3, gex_AM_Arg_t a4, gex_AM_Arg_t a5, gex_AM_Arg_t a6,
                           gex_AM_Arg_t a7, gex_AM_Arg_t a8, gex_AM_Arg_t a9, gex_AM_Arg_t a10, gex_AM_Arg_t a11,
                           gex_AM_Arg_t a12, gex_AM_Arg_t a13, gex_AM_Arg_t a14, gex_AM_Arg_t a15)
{
    CHECK(a0 == 0 && a1 == 1 && a2 == 2 && a3 == 3 && a4 == 4 && a5 == 5 && a6 == 6 && a7 == 7 && a8 == 8);
    CHECK(a9 == 9 && a10 == 10 && a11 == 11 && a12 == 12 && a13 == 13 && a14 == 14 && a15 == -15);
    ((char *)buffer)[0]++;
    CHECK(!gex_AM_ReplyMedium(token, 203, buffer, bytes, GEX_EVENT_NOW, 0));
}

static void medium_reply(gex_Token_t token, void *buffer, size_t bytes)
{
    const char *text = buffer;
    size_t at;
    (void)token;
    CHECK(text[0] == 'b');
    for (at = 1; at < bytes; at++)
        if (text[at] != 'a') {
            CHECK(!"payload");
            break;
        }
    mediums++;
}

static void long_request(gex_Token_t token, void *buffer, size_t bytes, gex_AM_Arg_t from)
{
    char *owner;
    gex_EP_QueryBoundSegmentNB(tm, from, (void **)&owner, NULL, NULL, GEX_FLAG_IMMEDIATE);
    CHECK(bytes == 8 && buffer == base + 64 + 8 * from && *(uint64_t *)buffer == 77 + (unsigned)from);
    CHECK(!gex_AM_ReplyLong0(token, 205, buffer, bytes, owner + 2048 + 8 * me, GEX_EVENT_NOW, 0));
}

static void long_reply(gex_Token_t token, void *buffer, size_t bytes)
{
    (void)token;
    CHECK(bytes == 8 && *(uint64_t *)buffer == 77 + (unsigned)me);
    longs++;
}

static void prepared(gex_Token_t token, void *buffer, size_t bytes, gex_AM_Arg_t a)
{
    (void)token;
    CHECK(bytes == 100 && a == 5 && ((char *)buffer)[99] == 'x');
    done++;
}

static gex_AM_Entry_t table[] = {
    {200, (gex_AM_Fn_t)short_request, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 1, NULL, "short request"},
    {201, (gex_AM_Fn_t)short_reply, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REPLY, 2, NULL, NULL},
    {202, (gex_AM_Fn_t)medium_request, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REQUEST, 16, NULL, NULL},
    {203, (gex_AM_Fn_t)medium_reply, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REPLY, 0, NULL, NULL},
    {204, (gex_AM_Fn_t)long_request, GEX_FLAG_AM_MEDLONG | GEX_FLAG_AM_REQREP, 1, NULL, NULL},
    {205, (gex_AM_Fn_t)long_reply, GEX_FLAG_AM_LONG | GEX_FLAG_AM_REPLY, 0, NULL, NULL},
    {0, (gex_AM_Fn_t)prepared, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REQUEST, 1, NULL, NULL},
};

static void barrier(void)
{
    gex_Event_Wait(gex_Coll_BarrierNB(tm, 0));
}

static void messages(void)
{
    size_t most = gex_AM_LUBRequestMedium();
    char *payload = malloc(most);
    gex_Rank_t peer;
    memset(payload, 'a', most);
    for (peer = 0; peer < ranks; peer++) {
        char *owner;
        uint64_t word = 77 + me;
        gex_AM_SrcDesc_t sd;
        gex_Event_t local = GEX_EVENT_NO_OP;
        gex_EP_QueryBoundSegmentNB(tm, peer, (void **)&owner, NULL, NULL, 0);
        CHECK(!gex_AM_RequestShort(tm, peer, 200, 0, (gex_AM_Arg_t)peer));
        CHECK(!gex_AM_RequestMedium(tm, peer, 202, payload, most, &local, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13,
                                    14, -15));
        gex_Event_Wait(local);
        CHECK(!gex_AM_RequestMedium(tm, peer, 202, payload, 9, GEX_EVENT_GROUP, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11,
                                    12, 13, 14, -15));
        gex_NBI_Wait(GEX_EC_AM, 0);
        CHECK(!gex_AM_RequestLong1(tm, peer, 204, &word, 8, owner + 64 + 8 * me, GEX_EVENT_NOW, 0, (gex_AM_Arg_t)me));
        sd = gex_AM_PrepareRequestMedium(tm, peer, NULL, 100, 200, NULL, 0, 1);
        CHECK(sd != GEX_AM_SRCDESC_NO_OP && gex_AM_SrcDescSize(sd) >= 100);
        memset(gex_AM_SrcDescAddr(sd), 'x', 100);
        gex_AM_CommitRequestMedium1(sd, table[6].gex_index, 100, 5);
        sd = gex_AM_PrepareRequestMedium(tm, peer, NULL, 100, 200, NULL, 0, 1);
        OK(gex_AM_CancelRequestMedium(sd, 0));
    }
    GASNET_BLOCKUNTIL(shorts == (int)ranks && mediums == 2 * (int)ranks && longs == (int)ranks && done == (int)ranks);
    free(payload);
    barrier();
}

static void access_memory(void)
{
    gex_Rank_t peer = (me + 1) % ranks;
    char *owner, *here;
    uintptr_t size;
    uint64_t value = 0x1122334455667788 + me, back = 0;
    gex_Event_t events[3], leaf;
    gex_Event_Wait(gex_EP_QueryBoundSegmentNB(tm, peer, (void **)&owner, (void **)&here, &size, 0));
    CHECK(size == gex_Segment_QuerySize(segment) && here);
    OK(gex_RMA_PutBlocking(tm, peer, owner + 1001, &value, 8, 0));
    OK(gex_RMA_GetBlocking(tm, &back, peer, owner + 1001, 8, 0));
    CHECK(back == value && !memcmp(here + 1001, &value, 8));
    CHECK(gex_RMA_GetBlockingVal(tm, peer, owner + 1001, 3, 0) == (value & 0xffffff));
    events[0] = gex_RMA_PutNB(tm, peer, owner + 1100, &value, 8, &leaf, 0);
    events[1] = gex_RMA_GetNB(tm, &back, peer, owner + 1100, 0, 0);
    events[2] = gex_Coll_BarrierNB(tm, 0);
    gex_Event_WaitAll(events, 3, 0);
    CHECK(!events[0] && !events[1] && !events[2]);
    gex_NBI_BeginAccessRegion(0);
    OK(gex_RMA_PutNBI(tm, peer, owner + 1200, &value, 8, GEX_EVENT_DEFER, 0));
    gex_Event_Wait(gex_NBI_EndAccessRegion(0));
    OK(gex_RMA_PutNBIVal(gex_TM_Pair(ep, 0), peer, owner + 1200, 5, 8, 0));
    gex_NBI_Wait(GEX_EC_ALL, 0);
    CHECK(gex_RMA_GetBlockingVal(tm, peer, owner + 1200, 8, 0) == 5);
    barrier();
}

static void own_memory(void)
{
    static char memory[5000];
    gex_EP_t second;
    gex_Segment_t mine;
    gex_Rank_t peer = (me + 1) % ranks;
    void *owner;
    uintptr_t size;
    gex_TM_t pair;
    OK(gex_EP_Create(&second, client, GEX_EP_CAPABILITY_RMA, 0));
    OK(gex_Segment_Create(&mine, client, memory + 3, 4003, GEX_MK_HOST, 0));
    OK(gex_EP_BindSegment(second, mine, 0));
    OK(gex_EP_PublishBoundSegment(tm, &second, 1, 0));
    pair = gex_TM_Pair(ep, gex_EP_QueryIndex(second));
    gex_Event_Wait(gex_EP_QueryBoundSegmentNB(pair, peer, &owner, NULL, &size, 0));
    CHECK(size == 4003);
    OK(gex_RMA_PutBlockingVal(pair, peer, (char *)owner + 4002, 9, 1, 0));
    CHECK(gex_RMA_GetBlockingVal(pair, peer, (char *)owner + 4002, 1, 0) == 9);
    barrier();
    CHECK(memory[4005] == 9);
    barrier();
}

static void collectives(void)
{
    gex_Event_t events[8];
    int at, id, data[40000];
    for (at = 0; at < 8; at++) events[at] = gex_Coll_BarrierNB(tm, 0);
    for (at = 7; at >= 0; at--) gex_Event_Wait(events[at]);
    for (at = 0; at < 40000; at++) data[at] = me == ranks - 1 ? at : -1;
    gex_Event_Wait(gex_Coll_BroadcastNB(tm, ranks - 1, data, data, sizeof data, 0));
    for (at = 0; at < 40000 && data[at] == at; at++) continue;
    CHECK(at == 40000);
    gasnet_barrier_notify((int)0xcafef00d, 0);
    OK(gasnet_barrier_wait((int)0xcafef00d, 0));
    OK(gasnet_barrier_result(&id));
    CHECK(id == (int)0xcafef00d);
    CHECK(gasnet_barrier(1, GASNET_BARRIERFLAG_MISMATCH) == GASNET_ERR_BARRIER_MISMATCH);
    OK(gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS));
    CHECK(gasnet_barrier_result(&id) != 0);
}

static void mistakes(void)
{
    gex_AM_Entry_t bad = {100, (gex_AM_Fn_t)long_reply, GEX_FLAG_AM_LONG | GEX_FLAG_AM_REPLY, 0, NULL, NULL};
    gex_Segment_t other;
    gex_System_SetVerboseErrors(0);
    CHECK(gex_EP_RegisterHandlers(ep, &bad, 1) == GASNET_ERR_RESOURCE);
    bad.gex_index = 200;
    CHECK(gex_EP_RegisterHandlers(ep, &bad, 1) == GASNET_ERR_RESOURCE);
    bad.gex_index = 0;
    bad.gex_flags = GEX_FLAG_AM_LONG;
    CHECK(gex_EP_RegisterHandlers(ep, &bad, 1) == GASNET_ERR_BAD_ARG);
    CHECK(gex_EP_RegisterHandlers(ep, NULL, 1) == GASNET_ERR_BAD_ARG);
    CHECK(gex_Client_Init(&client, &ep, &tm, "again", NULL, NULL, 0) == GASNET_ERR_NOT_INIT);
    CHECK(gex_Segment_Attach(&other, tm, GASNET_PAGESIZE) == GASNET_ERR_NOT_INIT);
    CHECK(gex_AM_RequestShort0(NULL, 0, 201, 0) == GASNET_ERR_BAD_ARG);
    CHECK(gex_AM_RequestShort0(tm, ranks, 201, 0) == GASNET_ERR_BAD_ARG);
    CHECK(gex_AM_ReplyShort0((gex_Token_t)tm, 201, 0) == GASNET_ERR_BAD_ARG);
    CHECK(gasnet_set_waitmode(7) == GASNET_ERR_BAD_ARG);
    gex_System_SetVerboseErrors(1);
}

int main(int argc, char **argv)
{
    gex_Rank_t count, index;
    gex_RankInfo_t *neighbours;
    if (gex_Client_Init(&client, &ep, &tm, "traffic", &argc, &argv, 0)) return 1;
    me = gex_TM_QueryRank(tm);
    ranks = gex_TM_QuerySize(tm);
    CHECK(!strcmp(gex_Client_QueryName(client), "traffic"));
    CHECK(gex_EP_QuerySegment(ep) == GEX_SEGMENT_INVALID);
    OK(gex_EP_RegisterHandlers(ep, table, sizeof table / sizeof *table));
    CHECK(table[6].gex_index == 255);
    OK(gex_Segment_Attach(&segment, tm, 16 * GASNET_PAGESIZE));
    base = gex_Segment_QueryAddr(segment);
    CHECK(gex_EP_QuerySegment(ep) == segment);
    gex_System_QueryNbrhdInfo(&neighbours, &count, &index);
    CHECK(count == ranks && neighbours[index].gex_jobrank == me);
    messages();
    access_memory();
    own_memory();
    collectives();
    mistakes();
    barrier();
    if (me == 0 && !failures) puts("all good");
    fflush(stdout);
    gasnet_exit(failures != 0);
}
