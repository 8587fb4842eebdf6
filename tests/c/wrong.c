/* Wrong uses: `wrong codes` tries all that return an error code; `wrong NAME` one that ends the process, and prints
 * TEST FAILED when it does not. */
#include "t.h"

#include <gasnet_mk.h>

static char area[4096];

static void handler(gex_Token_t token)
{
    (void)token;
}

static void takes(gex_Token_t token, void *data, size_t bytes)
{
    (void)token;
    (void)data;
    (void)bytes;
}

static gex_Token_t kept;
static volatile int kept_one;
static void keep(gex_Token_t token)
{
    kept = token;
    kept_one = 1;
}

static void replies_twice(gex_Token_t token)
{
    OK(gex_AM_ReplyShort0(token, 202, 0));
    CHECK_EQ(gex_AM_ReplyShort0(token, 202, 0), GASNET_ERR_BAD_ARG);
    kept_one = 2;
}

static int table_of(gex_AM_Index_t index, gex_Flags_t flags, unsigned nargs)
{
    gex_AM_Entry_t table[2];
    table[0] = t_entry(index, (gex_AM_Fn_t)handler, flags, nargs);
    return gex_EP_RegisterHandlers(t_ep, table, 1);
}

static void tables(void)
{
    const gex_Flags_t fine = GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST;
    gex_AM_Entry_t many[129];
    int at;
    CHECK_EQ(table_of(127, fine, 0), GASNET_ERR_RESOURCE);
    CHECK_EQ(table_of(1, fine, 0), GASNET_ERR_RESOURCE);
    OK(table_of(210, fine, 0));
    CHECK_EQ(table_of(210, fine, 0), GASNET_ERR_RESOURCE);
    CHECK_EQ(gex_EP_RegisterHandlers(t_ep, NULL, 1), GASNET_ERR_BAD_ARG);
    CHECK_EQ(table_of(211, GEX_FLAG_AM_REQUEST, 0), GASNET_ERR_BAD_ARG);
    CHECK_EQ(table_of(211, GEX_FLAG_AM_SHORT, 0), GASNET_ERR_BAD_ARG);
    CHECK_EQ(table_of(211, fine, 17), GASNET_ERR_BAD_ARG);
    for (at = 0; at < 129; at++) many[at] = t_entry(0, (gex_AM_Fn_t)handler, fine, 0);
    CHECK_EQ(gex_EP_RegisterHandlers(t_ep, many, 129), GASNET_ERR_BAD_ARG);
    CHECK_EQ(gex_EP_RegisterHandlers(t_ep, many, 128), GASNET_ERR_RESOURCE);
}

static void segments_and_endpoints(void)
{
    gex_Segment_t segment = GEX_SEGMENT_INVALID;
    gex_EP_t ep = GEX_EP_INVALID;
    OK(gex_Segment_Create(&segment, t_client, area, sizeof area, GEX_MK_HOST, 0));
    CHECK_EQ(gex_EP_BindSegment(t_ep, segment, 0), GASNET_ERR_BAD_ARG); /* has one */
    CHECK_EQ(gex_EP_BindSegment(GEX_EP_INVALID, segment, 0), GASNET_ERR_BAD_ARG);
    OK(gex_EP_Create(&ep, t_client, GEX_EP_CAPABILITY_RMA, 0));
    CHECK_EQ(gex_EP_BindSegment(ep, GEX_SEGMENT_INVALID, 0), GASNET_ERR_BAD_ARG);
    CHECK_EQ(gex_EP_BindSegment(ep, segment, 1), GASNET_ERR_BAD_ARG);
    OK(gex_EP_BindSegment(ep, segment, 0));
    CHECK_EQ(gex_EP_BindSegment(ep, segment, 0), GASNET_ERR_BAD_ARG);
    CHECK_EQ(gex_EP_Create(&ep, t_client, 0, 0), GASNET_ERR_BAD_ARG);
    CHECK_EQ(gex_EP_Create(&ep, t_client, GEX_EP_CAPABILITY_ALL, 0), GASNET_ERR_BAD_ARG);
    CHECK(gex_Segment_Attach(&segment, t_tm, 4096) != GASNET_OK); /* twice */
}

static void kinds(void)
{
    gex_Segment_t segment = GEX_SEGMENT_INVALID;
    gex_MK_t kind = GEX_MK_INVALID;
    gex_MK_Create_args_t args;
    int device;
    memset(&args, 0, sizeof args);
    for (device = GEX_MK_CLASS_CUDA_UVA; device <= GEX_MK_CLASS_ZE + 1; device++) {
        args.gex_class = (gex_MK_Class_t)device;
        CHECK_EQ(gex_MK_Create(&kind, t_client, &args, 0), GASNET_ERR_BAD_ARG);
    }
    args.gex_class = GEX_MK_CLASS_HOST;
    CHECK_EQ(gex_MK_Create(&kind, t_client, &args, 1), GASNET_ERR_BAD_ARG);
    CHECK_EQ(gex_MK_Create(&kind, t_client, NULL, 0), GASNET_ERR_BAD_ARG);
    CHECK_EQ(gex_MK_Create(NULL, t_client, &args, 0), GASNET_ERR_BAD_ARG);
    CHECK_EQ(gex_MK_Create(&kind, GEX_CLIENT_INVALID, &args, 0), GASNET_ERR_BAD_ARG);
    args.gex_flags = 1;
    CHECK_EQ(gex_MK_Create(&kind, t_client, &args, 0), GASNET_ERR_BAD_ARG);
    gex_MK_Destroy(GEX_MK_INVALID, 0);
    CHECK_EQ(gex_Segment_Create(&segment, t_client, area, sizeof area, GEX_MK_INVALID, 0), GASNET_ERR_BAD_ARG);
    CHECK_EQ(gex_Segment_Create(&segment, t_client, area, sizeof area, GEX_MK_HOST, 1), GASNET_ERR_BAD_ARG);
    CHECK_EQ(gex_Segment_Create(&segment, t_client, area, 0, GEX_MK_HOST, 0), GASNET_ERR_BAD_ARG);
}

static void messages(void)
{
    gex_Event_t leaf = GEX_EVENT_INVALID;
    char *mine = t_base(t_rank, NULL);
    gex_Rank_t none = t_size;
    CHECK_EQ(gex_AM_RequestShort0(t_tm, none, 200, 0), GASNET_ERR_BAD_ARG);
    CHECK_EQ(gex_AM_RequestShort0(GEX_TM_INVALID, 0, 200, 0), GASNET_ERR_BAD_ARG);
    CHECK_EQ(gex_AM_RequestShort0((gex_TM_t)(void *)area, 0, 200, 0), GASNET_ERR_BAD_ARG);
    CHECK_EQ(gex_AM_RequestMedium0(t_tm, 0, 203, area, (size_t)1 << 30, GEX_EVENT_NOW, 0), GASNET_ERR_BAD_ARG);
    CHECK_EQ(gex_AM_RequestMedium0(t_tm, 0, 203, area, 8, NULL, 0), GASNET_ERR_BAD_ARG);
    CHECK_EQ(gex_AM_RequestMedium0(t_tm, 0, 203, area, 8, GEX_EVENT_DEFER, 0), GASNET_ERR_BAD_ARG);
    CHECK_EQ(gex_AM_RequestMedium0(t_tm, 0, 203, NULL, 8, GEX_EVENT_NOW, 0), GASNET_ERR_BAD_ARG);
    CHECK_EQ(gex_AM_RequestLong0(t_tm, t_rank, 204, area, 8, area, GEX_EVENT_NOW, 0), GASNET_ERR_BAD_ARG);
    CHECK_EQ(gex_AM_RequestLong0(t_tm, t_rank, 204, area, 8, mine - 1, GEX_EVENT_NOW, 0), GASNET_ERR_BAD_ARG);
    CHECK_EQ(gex_AM_RequestLong0(t_tm, t_rank, 204, area, 8, mine + 8189, &leaf, 0), GASNET_ERR_BAD_ARG);
    CHECK_EQ(gexi_AM_RequestShort(t_tm, 0, 200, 0, 17, (const gex_AM_Arg_t *)(const void *)area), GASNET_ERR_BAD_ARG);
    CHECK_EQ(gex_AM_ReplyShort0((gex_Token_t)(void *)area, 202, 0), GASNET_ERR_BAD_ARG);
    CHECK_EQ(gex_AM_ReplyShort0(NULL, 202, 0), GASNET_ERR_BAD_ARG);
    /* A token lives as long as its handler. */
    OK(gex_AM_RequestShort0(t_tm, t_rank, 200, 0));
    GASNET_BLOCKUNTIL(kept_one == 1);
    CHECK_EQ(gex_AM_ReplyShort0(kept, 202, 0), GASNET_ERR_BAD_ARG);
    OK(gex_AM_RequestShort0(t_tm, t_rank, 201, 0));
    GASNET_BLOCKUNTIL(kept_one == 2);
    CHECK_EQ(gex_AM_CancelRequestMedium((gex_AM_SrcDesc_t)(void *)area, 0), GASNET_ERR_BAD_ARG);
    CHECK_EQ(gex_AM_CancelRequestLong(GEX_AM_SRCDESC_NO_OP, 0), GASNET_ERR_BAD_ARG);
}

static void rest(void)
{
    gasnet_seginfo_t info[1];
    gex_Client_t client;
    gex_EP_t ep;
    gex_TM_t tm;
    CHECK_EQ(gex_Client_Init(&client, &ep, &tm, "again", NULL, NULL, 0), GASNET_ERR_NOT_INIT);
    CHECK_EQ(gasnet_barrier_wait(0, 0), GASNET_ERR_BAD_ARG);
    CHECK_EQ(gex_AM_CommitRequestMedium0_v2((gex_AM_SrcDesc_t)(void *)area, 203, 0, 0), GASNET_ERR_BAD_ARG);
    CHECK_EQ(gasnet_getSegmentInfo(info, -1), GASNET_ERR_BAD_ARG);
    CHECK_EQ(gasnet_getNodeInfo(NULL, -1), GASNET_ERR_BAD_ARG);
    CHECK_EQ(gasnet_set_waitmode(9), GASNET_ERR_BAD_ARG);
    CHECK_EQ(gex_System_QueryProgressThreads(t_client, NULL, NULL, 0), GASNET_ERR_BAD_ARG);
    CHECK(gex_AM_MaxRequestMedium(GEX_TM_INVALID, 0, GEX_EVENT_NOW, 0, 0) == 0);
    CHECK(gex_Client_QueryName(GEX_CLIENT_INVALID) == NULL);
    CHECK(gex_TM_QueryEP(GEX_TM_INVALID) == GEX_EP_INVALID);
    CHECK(gex_Segment_QueryAddr(GEX_SEGMENT_INVALID) == NULL);
}

static void before(void)
{
    CHECK_EQ(gasnet_AMPoll(), GASNET_ERR_NOT_INIT);
    CHECK_EQ(gex_AM_RequestShort0((gex_TM_t)(void *)area, 0, 200, 0), GASNET_ERR_NOT_INIT);
    CHECK_EQ(gex_Segment_Attach(&t_segment, GEX_TM_INVALID, 4096), GASNET_ERR_NOT_INIT);
    CHECK_EQ(gex_EP_RegisterHandlers(GEX_EP_INVALID, NULL, 0), GASNET_ERR_NOT_INIT);
    CHECK_EQ(gex_RMA_PutBlocking((gex_TM_t)(void *)area, 0, area, area, 8, 0), GASNET_ERR_NOT_INIT);
    CHECK_EQ(gex_RMA_GetNBI((gex_TM_t)(void *)area, area, 0, area, 8, 0), GASNET_ERR_NOT_INIT);
}

/* A number that no compiler knows: of few bytes that it knows the release headers do not look where they go. */
static volatile size_t eight = 8;

static int in_handler;
static void transfers(gex_Token_t token)
{
    (void)token;
    gex_RMA_PutBlocking(t_tm, t_rank, area, area, eight, 0);
    in_handler = 1;
}

/* Ends by the transfer or message of this name. What is returned is not looked at, as programs do. */
static void fatal(const char *name)
{
    static char data[64];
    char *mine = t_base(t_rank, NULL);
    gex_AM_SrcDesc_t sd;
    gex_Rank_t none = t_size;
    int at;
#define CASE(text) else if (strcmp(name, text) == 0)
    if (strcmp(name, "put outside") == 0) gex_RMA_PutBlocking(t_tm, t_rank, mine + 8190, data, eight, 0);
    CASE("put of all") gex_RMA_PutBlocking(t_tm, t_rank, mine, data, ~(size_t)0, 0);
    CASE("put to nobody") gex_RMA_PutBlocking(t_tm, none, mine, data, 8, 0);
    CASE("put without team") gex_RMA_PutBlocking(GEX_TM_INVALID, 0, mine, data, 8, 0);
    CASE("put from null") gex_RMA_PutBlocking(t_tm, t_rank, mine, NULL, 8, 0);
    CASE("put to null") gex_RMA_PutBlocking(t_tm, t_rank, NULL, data, eight, 0);
    CASE("put by offset") gex_RMA_PutBlocking(t_tm, t_rank, NULL, data, 8, GEX_FLAG_PEER_SEG_OFFSET);
    CASE("put in a handler")
    {
        gex_AM_RequestShort0(t_tm, t_rank, 205, 0);
        GASNET_BLOCKUNTIL(in_handler);
    }
    CASE("get outside") gex_RMA_GetBlocking(t_tm, data, t_rank, mine - 8, eight, 0);
    CASE("get to null") gex_RMA_GetBlocking(t_tm, NULL, t_rank, mine, 8, 0);
    CASE("get from nobody") gex_RMA_GetBlocking(t_tm, data, none, mine, 8, 0);
    CASE("put nbi outside") gex_RMA_PutNBI(t_tm, t_rank, mine + 8192, data, eight - 7, GEX_EVENT_NOW, 0);
    CASE("put nbi without completion") gex_RMA_PutNBI(t_tm, t_rank, mine, data, 8, NULL, 0);
    CASE("get nbi outside") gex_RMA_GetNBI(t_tm, data, t_rank, mine - 1, eight, 0);
    CASE("put nb outside") gex_Event_Wait(gex_RMA_PutNB(t_tm, t_rank, data, data, eight, GEX_EVENT_NOW, 0));
    CASE("put nb grouped") gex_Event_Wait(gex_RMA_PutNB(t_tm, t_rank, mine, data, 8, GEX_EVENT_GROUP, 0));
    CASE("get nb outside") gex_Event_Wait(gex_RMA_GetNB(t_tm, data, t_rank, mine - 8, eight, 0));
    CASE("value of 9 bytes") gex_RMA_PutBlockingVal(t_tm, t_rank, mine, 1, 9, 0);
    CASE("value nbi outside") gex_RMA_PutNBIVal(t_tm, t_rank, mine + 8185, 1, eight, 0);
    CASE("value nb to nobody") gex_Event_Wait(gex_RMA_PutNBVal(t_tm, none, mine, 1, 8, 0));
    CASE("get value outside") (void)gex_RMA_GetBlockingVal(t_tm, t_rank, data, eight, 0);
    CASE("commit of nothing") gex_AM_CommitRequestMedium0((gex_AM_SrcDesc_t)(void *)data, 203, 0);
    CASE("commit of too much")
    {
        sd = gex_AM_PrepareRequestMedium(t_tm, t_rank, NULL, 8, 8, NULL, 0, 0);
        gex_AM_CommitRequestMedium0(sd, 203, 9);
    }
    CASE("commit of another kind")
    {
        sd = gex_AM_PrepareRequestMedium(t_tm, t_rank, NULL, 8, 8, NULL, 0, 0);
        gex_AM_CommitRequestLong0(sd, 203, 8, mine);
    }
    CASE("commit with other count")
    {
        sd = gex_AM_PrepareRequestMedium(t_tm, t_rank, NULL, 8, 8, NULL, 0, 1);
        gex_AM_CommitRequestMedium0(sd, 203, 8);
    }
    CASE("commit of a reply twice") gex_AM_CommitReplyLong0(GEX_AM_SRCDESC_NO_OP, 203, 0, NULL);
    CASE("no handler") for (at = 0; at < 1000; at++) gex_AM_RequestShort0(t_tm, t_rank, 222, 0), gasnet_AMPoll();
    CASE("other count") for (at = 0; at < 1000; at++) gex_AM_RequestShort2(t_tm, t_rank, 200, 0, 1, 2), gasnet_AMPoll();
    CASE("other category")
    for (at = 0; at < 1000; at++)
        gex_AM_RequestMedium0(t_tm, t_rank, 200, data, 4, GEX_EVENT_NOW, 0), gasnet_AMPoll();
    CASE("prepare twice")
    {
        (void)gex_AM_PrepareRequestMedium(t_tm, t_rank, NULL, 1, 1, NULL, 0, 0);
        (void)gex_AM_PrepareRequestMedium(t_tm, t_rank, NULL, 1, 1, NULL, 0, 0);
    }
    CASE("end without region") gex_Event_Wait(gex_NBI_EndAccessRegion(0));
    CASE("wait for no event") gex_Event_Wait((gex_Event_t)(void *)area);
    CASE("barrier of no team") gex_Event_Wait(gex_Coll_BarrierNB(GEX_TM_INVALID, 0));
    else t_say("no such case: %s", name);
    t_say("TEST FAILED: %s went on", name);
    gasnet_exit(0);
}

/* Registered before init, so it runs after the library has left the job. */
static void after(void)
{
    if (gasnet_AMPoll() != GASNET_ERR_NOT_INIT || gasnet_barrier(0, 0) != GASNET_ERR_NOT_INIT ||
        gex_AM_RequestShort0(t_tm, 0, 200, 0) != GASNET_ERR_NOT_INIT ||
        gex_RMA_PutBlocking(t_tm, t_rank, area, area, eight, 0) != GASNET_ERR_NOT_INIT ||
        gex_System_QueryJobRank() != t_rank)
        t_say("TEST FAILED: another answer after the end");
}

int main(int argc, char **argv)
{
    gex_AM_Entry_t table[5];
    if (argc < 2) return 98;
    if (strcmp(argv[1], "exit before init") == 0) gasnet_exit(11);
    if (strcmp(argv[1], "codes") == 0) before();
    if (strcmp(argv[1], "after exit") == 0) atexit(after);
    t_join("wrong", &argc, &argv);
    table[0] = t_entry(200, (gex_AM_Fn_t)keep, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 0);
    table[1] = t_entry(201, (gex_AM_Fn_t)replies_twice, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 0);
    table[2] = t_entry(202, (gex_AM_Fn_t)handler, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REPLY, 0);
    table[3] = t_entry(203, (gex_AM_Fn_t)takes, GEX_FLAG_AM_MEDLONG | GEX_FLAG_AM_REQREP, 0);
    table[4] = t_entry(205, (gex_AM_Fn_t)transfers, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 0);
    OK(gex_EP_RegisterHandlers(t_ep, table, 5));
    if (strcmp(argv[1], "codes") == 0) {
        CHECK(gex_Segment_Attach(&t_segment, t_tm, 100) == GASNET_ERR_BAD_ARG);
        CHECK(gex_Segment_Attach(NULL, t_tm, 4096) == GASNET_ERR_BAD_ARG);
    }
    t_attach(8192);
    t_barrier();
    if (strcmp(argv[1], "after exit") == 0) return 0;
    if (strcmp(argv[1], "codes") != 0) fatal(argv[1]);
    tables();
    segments_and_endpoints();
    kinds();
    messages();
    rest();
    t_pass();
    return 1;
}
