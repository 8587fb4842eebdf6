/* PAR: several threads of every rank send, put and wait at the same time. */
#include <gasnetex.h>

enum { THREADS = 4, ROUNDS = 2000 };
static gex_TM_t tm;
static gex_Rank_t me, ranks;
static gex_HSL_t lock = GEX_HSL_INITIALIZER;
static long requests, replies; /* under the lock */
static uint64_t *owners[64];

static void reply(gex_Token_t token, gex_AM_Arg_t thread)
{
    (void)token;
    (void)thread;
    gex_HSL_Lock(&lock);
    replies++;
    gex_HSL_Unlock(&lock);
}

static void request(gex_Token_t token, void *buffer, size_t bytes, gex_AM_Arg_t thread)
{
    if (bytes != 1000 || ((char *)buffer)[999] != (char)thread) abort();
    gex_HSL_Lock(&lock);
    requests++;
    gex_HSL_Unlock(&lock);
    gex_AM_ReplyShort1(token, 201, 0, thread);
}

static long read_count(long *count)
{
    long value;
    gex_HSL_Lock(&lock);
    value = *count;
    gex_HSL_Unlock(&lock);
    return value;
}

static void *work(void *argument)
{
    int thread = (int)(intptr_t)argument, round;
    char payload[1000];
    memset(payload, thread, sizeof payload);
    for (round = 0; round < ROUNDS; round++) {
        gex_Rank_t peer = (me + (unsigned)round) % ranks;
        uint64_t value = (uint64_t)round, back;
        uint64_t *place = owners[peer] + me * THREADS + (unsigned)thread;
        gex_AM_RequestMedium1(tm, peer, 200, payload, sizeof payload, GEX_EVENT_NOW, 0, thread);
        gex_RMA_PutBlocking(tm, peer, place, &value, 8, 0);
        gex_RMA_GetBlocking(tm, &back, peer, place, 8, 0);
        if (back != value) abort();
    }
    GASNET_BLOCKUNTIL(read_count(&replies) == (long)THREADS * ROUNDS);
    return NULL;
}

int main(int argc, char **argv)
{
    gex_Client_t client;
    gex_EP_t ep;
    gex_Segment_t segment;
    gex_AM_Entry_t table[] = {
        {200, (gex_AM_Fn_t)request, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REQUEST, 1, NULL, NULL},
        {201, (gex_AM_Fn_t)reply, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REPLY, 1, NULL, NULL},
    };
    pthread_t threads[THREADS];
    gex_Rank_t rank;
    int at;
    if (gex_Client_Init(&client, &ep, &tm, "threads", &argc, &argv, 0)) return 1;
    me = gex_TM_QueryRank(tm);
    ranks = gex_TM_QuerySize(tm);
    if (gex_EP_RegisterHandlers(ep, table, 2) || gex_Segment_Attach(&segment, tm, 4 * GASNET_PAGESIZE)) return 2;
    for (rank = 0; rank < ranks; rank++)
        gex_Event_Wait(gex_EP_QueryBoundSegmentNB(tm, rank, (void **)&owners[rank], NULL, NULL, 0));
    gex_Event_Wait(gex_Coll_BarrierNB(tm, 0));
    for (at = 0; at < THREADS; at++)
        if (pthread_create(&threads[at], NULL, work, (void *)(intptr_t)at)) return 3;
    for (at = 0; at < THREADS; at++) pthread_join(threads[at], NULL);
    for (at = 0; at < 1000; at++) gex_Event_Wait(gex_Coll_BarrierNB(tm, 0));
    if (me == 0) puts("all good");
    fflush(stdout);
    gasnet_exit(read_count(&requests) == (long)THREADS * ROUNDS ? 0 : 4);
}
