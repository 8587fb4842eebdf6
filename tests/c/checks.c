/* Broken rules that the debug library finds: `checks NAME` breaks one, and prints TEST FAILED when nobody notices.
 * Without a name what looks like them and is legal. */
#include <pthread.h>

#include <gasnet_coll.h>
#include <gasnet_ratomic.h>

#include "t.h"

static gex_HSL_t lock = GEX_HSL_INITIALIZER, other = GEX_HSL_INITIALIZER;
static char *mine;
static char data[64];
static const char *wrong = "";
static volatile int seen;

static void in_handler(gex_Token_t token)
{
    if (strcmp(wrong, "poll in a handler") == 0) gasnet_AMPoll();
    if (strcmp(wrong, "request in a handler") == 0) gex_AM_RequestShort0(t_tm, t_rank, 202, 0);
    if (strcmp(wrong, "put in a handler") == 0) gex_RMA_PutBlocking(t_tm, t_rank, mine, data, 8, 0);
    if (strcmp(wrong, "lock kept by a handler") == 0) gex_HSL_Lock(&lock);
    if (strcmp(wrong, "reply with a lock") == 0) gex_HSL_Lock(&lock), gex_AM_ReplyShort0(token, 201, 0);
    if (strcmp(wrong, "reply kept by a handler") == 0)
        (void)gex_AM_PrepareReplyMedium(token, NULL, 1, 1, NULL, 0, 0);
    if (!*wrong) {
        gex_HSL_Lock(&lock);
        CHECK(gex_System_QueryJobRank() == t_rank && gex_TM_QuerySize(t_tm) == t_size);
        gex_HSL_Unlock(&lock);
        gex_AM_ReplyShort0(token, 201, 0);
        return;
    }
    seen = 1;
}

static void done(gex_Token_t token)
{
    (void)token;
    seen = 1;
}

static void *elsewhere(void *unused)
{
    gasnet_AMPoll();
    return unused;
}

static volatile int leave;
static void *waits(void *unused)
{
    seen = 2;
    GASNET_BLOCKUNTIL(leave);
    return unused;
}

static void legal(void)
{
    gex_HSL_t fresh;
    gex_AM_SrcDesc_t sd;
    gex_AM_RequestShort0(t_tm, (t_rank + 1) % t_size, 200, 0);
    GASNET_BLOCKUNTIL(seen);
    gex_HSL_Init(&fresh);
    gex_HSL_Lock(&fresh);
    CHECK_EQ(gex_HSL_Trylock(&lock), GASNET_OK);
    gex_HSL_Unlock(&lock);
    gex_HSL_Unlock(&fresh);
    gex_HSL_Destroy(&fresh);
    sd = gex_AM_PrepareRequestMedium(t_tm, t_rank, NULL, 8, 8, NULL, 0, 0);
    CHECK(gex_AM_SrcDescSize(sd) == 8 && gex_AM_SrcDescAddr(sd) != NULL);
    gex_HSL_Lock(&lock);
    gex_HSL_Unlock(&lock);
    CHECK_EQ(gex_AM_CancelRequestMedium(sd, 0), 0);
    gex_RMA_PutBlocking(t_tm, t_rank, mine, data, 8, GEX_FLAG_SELF_SEG_UNKNOWN | GEX_FLAG_PEER_SEG_BOUND);
    gex_RMA_PutBlocking(t_tm, t_rank, mine, mine + 8, 8, GEX_FLAG_SELF_SEG_BOUND);
    gex_NBI_BeginAccessRegion(0);
    gex_RMA_PutNBI(t_tm, (t_rank + 1) % t_size, t_base((t_rank + 1) % t_size, NULL), data, 8, GEX_EVENT_NOW, 0);
    gex_Event_Wait(gex_NBI_EndAccessRegion(0));
    gex_NBI_Wait(GEX_EC_ALL, 0);
}

/* A put that is under way for a while where ranks share no memory. */
static gex_Event_t put(void)
{
    gex_Rank_t to = (t_rank + 1) % t_size;
    gex_Event_t event = gex_RMA_PutNB(t_tm, to, t_base(to, NULL), mine, 4096, GEX_EVENT_DEFER, 0);
    if (event == GEX_EVENT_INVALID) t_say("TEST FAILED: complete at once");
    return event;
}

static void broken(const char *name)
{
    gex_Event_t events[2];
    wrong = name;
#define CASE(text) else if (strcmp(name, text) == 0)
    if (strstr(name, "handler") || strcmp(name, "reply with a lock") == 0) {
        gex_AM_RequestShort0(t_tm, t_rank, 200, 0);
        GASNET_BLOCKUNTIL(seen);
    }
    CASE("lock twice") gex_HSL_Lock(&lock), gex_HSL_Lock(&lock);
    CASE("unlock of nothing") gex_HSL_Unlock(&lock);
    CASE("unlock in another order") gex_HSL_Lock(&lock), gex_HSL_Lock(&other), gex_HSL_Unlock(&lock);
    CASE("destroy of a held lock") gex_HSL_Lock(&lock), gex_HSL_Destroy(&lock);
    CASE("lock after destroy") gex_HSL_Destroy(&lock), gex_HSL_Lock(&lock);
    CASE("poll with a lock") gex_HSL_Lock(&lock), gasnet_AMPoll();
    CASE("request with a lock") gex_HSL_Lock(&lock), gex_AM_RequestShort0(t_tm, t_rank, 202, 0);
    CASE("put with a lock") gex_HSL_Lock(&lock), gex_RMA_PutBlocking(t_tm, t_rank, mine, data, 8, 0);
    CASE("barrier with a lock") gex_HSL_Lock(&lock), (void)gex_Coll_BarrierNB(t_tm, 0);
    CASE("put after a prepare")
    {
        (void)gex_AM_PrepareRequestMedium(t_tm, t_rank, NULL, 1, 1, NULL, 0, 0);
        gex_RMA_PutBlocking(t_tm, t_rank, mine, data, 8, 0);
    }
    CASE("unknown flags of a put") gex_RMA_PutBlocking(t_tm, t_rank, mine, data, 8, 1U << 20);
    CASE("unknown flags of a message") CHECK_EQ(gex_AM_RequestShort0(t_tm, t_rank, 202, 1U << 20), 0);
    CASE("never self") gex_RMA_PutBlocking(t_tm, t_rank, mine, data, 8, GEX_FLAG_PEER_NEVER_SELF);
    CASE("never near") gex_RMA_GetNBI(t_tm, data, t_rank, mine, 8, GEX_FLAG_PEER_NEVER_NBRHD);
    CASE("local outside") gex_RMA_PutBlocking(t_tm, t_rank, mine, data, 8, GEX_FLAG_SELF_SEG_BOUND);
    CASE("few bytes outside") gex_RMA_PutBlocking(t_tm, t_rank, data, data, 8, 0);
    CASE("value outside") (void)gex_RMA_GetBlockingVal(t_tm, t_rank, data, 8, 0);
    CASE("region in a region") gex_NBI_BeginAccessRegion(0), gex_NBI_BeginAccessRegion(0);
    CASE("region ended twice")
    {
        gex_NBI_BeginAccessRegion(0);
        gex_Event_Wait(gex_NBI_EndAccessRegion(0));
        gex_Event_Wait(gex_NBI_EndAccessRegion(0));
    }
    CASE("wait in a region") gex_NBI_BeginAccessRegion(0), gex_NBI_Wait(GEX_EC_PUT, 0);
    CASE("no-op waited for") gex_Event_WaitAll((events[0] = GEX_EVENT_NO_OP, events), 1, 0);
    CASE("event twice in an array") gex_Event_WaitAll((events[0] = events[1] = put(), events), 2, 0);
    CASE("event waited for twice") gex_Event_Wait(events[0] = put()), gex_Event_Wait(events[0]);
    CASE("order of collectives")
    {
        gex_Event_t first = t_rank ? gex_Coll_BarrierNB(t_tm, 0) : gex_Coll_BroadcastNB(t_tm, 0, data, data, 8, 0);
        gex_Event_t second = t_rank ? gex_Coll_BroadcastNB(t_tm, 0, data, data, 8, 0) : gex_Coll_BarrierNB(t_tm, 0);
        gex_Event_Wait(first), gex_Event_Wait(second);
    }
    /* The barriers keep here who is done. */
    CASE("sizes of broadcasts")
    {
        gex_Event_Wait(gex_Coll_BroadcastNB(t_tm, 0, data, data, 4 + 4 * t_rank, 0));
        t_barrier();
    }
    CASE("types of reductions")
    {
        gex_DT_t type = t_rank ? GEX_DT_I64 : GEX_DT_U64;
        gex_Event_Wait(gex_Coll_ReduceToOneNB(t_tm, 1, data, data, type, 8, 1, GEX_OP_ADD, NULL, NULL, 0));
        t_barrier();
    }
    CASE("a team or a barrier")
    {
        gex_TM_t tm;
        if (t_rank) gex_TM_Split(&tm, t_tm, 0, 0, NULL, 0, GEX_FLAG_TM_NO_SCRATCH);
        else gex_Event_Wait(gex_Coll_BarrierNB(t_tm, 0));
    }
    CASE("order in a team")
    {
        gex_TM_t tm;
        gex_TM_Split(&tm, t_tm, 0, -(int)t_rank, NULL, 0, GEX_FLAG_TM_NO_SCRATCH);
        gex_Event_Wait(gex_Coll_BroadcastNB(tm, t_rank, data, data, 8, 0));
    }
    CASE("domains that differ")
    {
        gex_AD_t ad;
        gex_AD_Create(&ad, t_tm, GEX_DT_I64, t_rank ? GEX_OP_ADD : GEX_OP_SUB, 0);
        t_barrier();
    }
    CASE("second thread")
    {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, elsewhere, NULL) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    CASE("two threads inside")
    {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, waits, NULL) == 0);
        for (;;) gasnet_AMPoll();
    }
    else t_say("no such case: %s", name);
    t_say("TEST FAILED: %s went on", name);
    gasnet_exit(0);
}

int main(int argc, char **argv)
{
    gex_AM_Entry_t table[3];
    t_join("checks", &argc, &argv);
    table[0] = t_entry(200, (gex_AM_Fn_t)in_handler, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 0);
    table[1] = t_entry(201, (gex_AM_Fn_t)done, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REPLY, 0);
    table[2] = t_entry(202, (gex_AM_Fn_t)done, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 0);
    OK(gex_EP_RegisterHandlers(t_ep, table, 3));
    t_attach(8192);
    mine = t_base(t_rank, NULL);
    t_barrier();
    if (argc > 1) broken(argv[1]);
    legal();
    t_pass();
    return 1;
}
