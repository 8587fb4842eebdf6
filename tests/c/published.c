/* Segments of gex_Segment_Create, bound and published: memory of the program of odd size at an odd address and memory
 * of the library, one segment at several endpoints, the first endpoint without attach. Every rank puts to, gets from
 * and sends to every rank. */
#include "t.h"

enum { BYTES = 300001, SLOT = 100000 };

static gex_EP_t eps[4];
static gex_Segment_t program, library;
static unsigned char *own;
static int arrivals;

/* A Long lands where its sender said, its payload in place. */
static void landed(gex_Token_t token, void *data, size_t bytes, gex_AM_Arg_t from, gex_AM_Arg_t key)
{
    unsigned char *there = own + BYTES - bytes - (bytes ? (size_t)from : 0);
    CHECK(bytes == 0 || (data == there && t_same(data, (uint32_t)key, bytes)));
    gex_AM_ReplyShort(token, 201, 0);
    arrivals++;
}

static int answers;

static void answered(gex_Token_t token)
{
    (void)token;
    answers++;
}

/* Publication over a team with the ranks the other way round, and puts by its ranks. */
static void permuted(void)
{
    gex_TM_t back;
    gex_EP_t ep;
    gex_Segment_t segment;
    gex_Rank_t last = t_size - 1, turn;
    void *owner = NULL;
    uintptr_t size = 0;
    CHECK_EQ(gex_TM_Split(&back, t_tm, 0, -(int)t_rank, NULL, 0, GEX_FLAG_TM_NO_SCRATCH), 1);
    CHECK(gex_TM_QueryRank(back) == last - t_rank && gex_TM_QuerySize(back) == t_size);
    OK(gex_EP_Create(&ep, t_client, GEX_EP_CAPABILITY_RMA, 0));
    OK(gex_Segment_Create(&segment, t_client, NULL, 8 * t_size, GEX_MK_HOST, 0));
    OK(gex_EP_BindSegment(ep, segment, 0));
    OK(gex_EP_PublishBoundSegment(back, &ep, 1, 0));
    for (turn = 0; turn < t_size; turn++) {
        /* A pair counts by job ranks, the team by its own. */
        gex_TM_t pair = gex_TM_Pair(t_ep, gex_EP_QueryIndex(ep));
        gex_Event_Wait(gex_EP_QueryBoundSegmentNB(pair, turn, &owner, NULL, &size, 0));
        CHECK(owner != NULL && size >= 8 * t_size);
        OK(gex_RMA_PutBlockingVal(pair, turn, (char *)owner + 8 * t_rank, 1000 * t_rank + turn, 8, 0));
        gex_Event_Wait(gex_EP_QueryBoundSegmentNB(back, last - turn, &owner, NULL, &size, 0));
        CHECK(size >= BYTES);
        CHECK_EQ(gex_RMA_GetBlockingVal(back, last - turn, owner, 1, 0),
                 gex_RMA_GetBlockingVal(t_tm, turn, owner, 1, 0));
    }
    t_barrier();
    for (turn = 0; turn < t_size; turn++)
        CHECK_EQ(((uint64_t *)gex_Segment_QueryAddr(segment))[turn], 1000 * turn + t_rank);
    CHECK_EQ(gex_TM_Destroy(back, NULL, 0), 0);
    /* What was published stays. */
    CHECK_EQ(gex_RMA_GetBlockingVal(gex_TM_Pair(t_ep, gex_EP_QueryIndex(ep)), t_rank, gex_Segment_QueryAddr(segment), 8, 0),
             t_rank);
    t_barrier();
}

/* Where the segment of that rank's endpoint begins. */
static unsigned char *found(gex_TM_t tm, gex_Rank_t rank, uintptr_t least)
{
    void *owner = NULL, *again = NULL, *here;
    uintptr_t size = 0, same = 0;
    gex_Event_Wait(gex_EP_QueryBoundSegmentNB(tm, rank, &owner, &here, &size, 0));
    CHECK(owner != NULL && size >= least);
    CHECK(gex_Segment_QueryBound(tm, rank, &again, &here, &same) == 0 && again == owner && same == size);
    return (unsigned char *)owner;
}

static void transfers(gex_TM_t tm, gex_Rank_t to, uintptr_t bytes, uint32_t key)
{
    static const size_t sizes[] = {1, 8, 73, 4097, 70000};
    static unsigned char back[70000], other[70000];
    unsigned char *base = found(tm, to, bytes);
    size_t at;
    for (at = 0; at < sizeof sizes / sizeof *sizes; at++) {
        size_t len = sizes[at];
        /* The last bytes of the part of this rank. */
        unsigned char *there = base + bytes - 1 - t_rank * 71000 - len;
        gex_Event_t source = GEX_EVENT_INVALID, event;
        t_fill(other, key + (uint32_t)at, len);
        OK(gex_RMA_PutBlocking(tm, to, there, other, len, 0));
        memset(back, 0, len);
        OK(gex_RMA_GetBlocking(tm, back, to, there, len, 0));
        CHECK(t_same(back, key + (uint32_t)at, len));
        /* The local end in a segment of the program's own, too. */
        t_fill(own + 3, key + 77, len);
        event = gex_RMA_PutNB(tm, to, there, own + 3, len, &source, 0);
        gex_Event_Wait(source);
        memset(own + 3, 0, len);
        gex_Event_Wait(event);
        gex_RMA_GetNBI(tm, own + 3, to, there, len, 0);
        gex_NBI_Wait(GEX_EC_GET, 0);
        CHECK(t_same(own + 3, key + 77, len));
    }
    OK(gex_RMA_PutBlockingVal(tm, to, base + bytes - 4 - t_rank * 71000, 0x01020304, 4, 0));
    CHECK_EQ(gex_RMA_GetBlockingVal(tm, to, base + bytes - 4 - t_rank * 71000, 4, 0), 0x01020304);
}

static void longs(gex_Rank_t to)
{
    static const size_t sizes[] = {0, 1, 5000, 65000, 140000};
    unsigned char *base = found(t_tm, to, BYTES);
    size_t at;
    for (at = 0; at < sizeof sizes / sizeof *sizes; at++) {
        size_t len = sizes[at];
        t_fill(own, t_rank + (uint32_t)at, len);
        gex_AM_RequestLong(t_tm, to, 200, own, len, base + BYTES - len - (len ? t_rank : 0), GEX_EVENT_NOW, 0,
                           (gex_AM_Arg_t)t_rank, (gex_AM_Arg_t)(t_rank + at));
        GASNET_BLOCKUNTIL(answers == 1);
        answers = 0;
    }
}

int main(int argc, char **argv)
{
    gex_AM_Entry_t table[2];
    gex_EP_t pair[2];
    gex_Rank_t turn, to;
    uintptr_t size = 1;
    int ep;
    t_join("published", &argc, &argv);
    table[0] = t_entry(200, (gex_AM_Fn_t)landed, GEX_FLAG_AM_LONG | GEX_FLAG_AM_REQUEST, 2);
    table[1] = t_entry(201, (gex_AM_Fn_t)answered, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REPLY, 0);
    OK(gex_EP_RegisterHandlers(t_ep, table, 2));
    own = (unsigned char *)calloc(BYTES + 4096 + 16, 1);
    CHECK(own != NULL);
    own = (unsigned char *)(((uintptr_t)own + 4095) / 4096 * 4096 + 16);
    OK(gex_Segment_Create(&program, t_client, own, BYTES, GEX_MK_HOST, 0));
    OK(gex_Segment_Create(&library, t_client, NULL, t_size * 71000 + 1, GEX_MK_HOST, 0));
    eps[0] = t_ep;
    for (ep = 1; ep < 4; ep++) OK(gex_EP_Create(&eps[ep], t_client, GEX_EP_CAPABILITY_RMA, 0));
    OK(gex_EP_BindSegment(eps[0], program, 0));
    OK(gex_EP_BindSegment(eps[1], program, 0));
    OK(gex_EP_BindSegment(eps[2], library, 0));
    CHECK(gex_EP_QuerySegment(eps[1]) == program && gex_EP_QuerySegment(eps[3]) == GEX_SEGMENT_INVALID);
    /* Nobody has published yet. */
    to = (t_rank + 1) % t_size;
    gex_Event_Wait(gex_EP_QueryBoundSegmentNB(t_tm, to, NULL, NULL, &size, 0));
    CHECK((size == 0) == (to != t_rank));
    /* In two calls, not the same at all ranks; again; and one that has none. */
    OK(gex_EP_PublishBoundSegment(t_tm, eps, t_rank % 2 ? 2 : 4, 0));
    pair[0] = eps[2];
    pair[1] = eps[0];
    OK(gex_EP_PublishBoundSegment(t_tm, pair, 2, 0));
    OK(gex_EP_PublishBoundSegment(t_tm, NULL, 0, 0));
    OK(gex_EP_PublishBoundSegment(t_tm, &eps[3], 1, 0));
    t_barrier();
    for (turn = 0; turn < t_size; turn++) {
        to = (t_rank + turn) % t_size;
        /* A part of the program's segment for each of three writers; the others leave it alone. */
        if (t_rank < 3) {
            transfers(t_tm, to, BYTES, t_rank * 100);
            transfers(gex_TM_Pair(t_ep, 1), to, BYTES, t_rank * 100 + 30);
            transfers(gex_TM_Pair(eps[3], 0), to, BYTES, t_rank * 100 + 50);
        }
        transfers(gex_TM_Pair(eps[1], 2), to, t_size * 71000 + 1, t_rank * 100 + 60);
        gex_Event_Wait(gex_EP_QueryBoundSegmentNB(gex_TM_Pair(t_ep, 3), to, NULL, NULL, &size, 0));
        CHECK_EQ(size, 0);
        t_barrier();
        /* One sender a turn for each receiver, in the same place. */
        longs(to);
        GASNET_BLOCKUNTIL(arrivals == 5 * (int)(turn + 1));
        t_barrier();
    }
    permuted();
    t_pass();
    return 1;
}
