/* All memory of a process as the other side of everything that is one-sided: static data, stack, heap and fresh mappings,
 * in whatever segment mode it is compiled; in those with segments it looks at these alone. With an argument it names
 * memory that the other rank does not have, and must be ended for it. */
#include "t.h"

#include <gasnet.h>
#include <gasnet_coll.h>
#include <gasnet_ratomic.h>
#include <gasnet_vis.h>
#include <sys/mman.h>

#define AREA ((size_t)1 << 20)
#define LONGEST ((size_t)300000)

static unsigned char data[AREA], from[AREA], back[AREA];
static uint64_t words[8];
static const uint64_t constant = 0x1122334455667788;
static volatile int requests, replies;

/* Where each rank has this kind of memory. */
static char *where[64];

static void tell(void *mine)
{
    gex_Rank_t rank;
    for (rank = 0; rank < t_size; rank++)
        gex_Event_Wait(gex_Coll_BroadcastNB(t_tm, rank, &where[rank], &mine, sizeof mine, 0));
}

static void moves(size_t room)
{
    static const size_t lengths[] = {1, 8, 100, 4097, 65440, 65441, 200001};
    gex_Rank_t step;
    size_t at;
    for (step = 0; step < 2; step++) {
        gex_Rank_t to = (t_rank + 1 + step) % t_size;
        char *there = where[to];
        for (at = 0; at < sizeof lengths / sizeof lengths[0]; at++) {
            size_t bytes = lengths[at];
            gex_Event_t leaf = GEX_EVENT_NO_OP, root;
            if (bytes + 8 > room) break;
            t_fill(from, (uint32_t)at + t_rank, bytes);
            OK(gex_RMA_PutBlocking(t_tm, to, there + 3, from, bytes, 0));
            memset(back, 0, bytes);
            OK(gex_RMA_GetBlocking(t_tm, back, to, there + 3, bytes, 0));
            CHECK(t_same(back, (uint32_t)at + t_rank, bytes));
            root = gex_RMA_PutNB(t_tm, to, there + 1, from, bytes, &leaf, 0);
            gex_Event_Wait(leaf);
            memset(from, 0, bytes);
            gex_Event_Wait(root);
            OK(gex_RMA_GetNBI(t_tm, back, to, there + 1, bytes, 0));
            gex_NBI_Wait(GEX_EC_ALL, 0);
            CHECK(t_same(back, (uint32_t)at + t_rank, bytes));
        }
        OK(gex_RMA_PutBlockingVal(t_tm, to, there + 8, 0x0102030405060708, 8, 0));
        CHECK_EQ(gex_RMA_GetBlockingVal(t_tm, to, there + 9, 2, 0), 0x0607);
        gasnet_memset(to, there + 16, 0x5a, 16);
        CHECK_EQ(gex_RMA_GetBlockingVal(t_tm, to, there + 24, 8, 0), 0x5a5a5a5a5a5a5a5a);
        t_barrier();
    }
}

static void vectors(void)
{
    gex_Rank_t to = (t_rank + 1) % t_size;
    size_t counts[2] = {50, 30};
    ptrdiff_t far[2] = {100, 5000}, near[2] = {4, 200};
    gex_Memvec_t there[20], here;
    size_t at, total = 0;
    t_fill(from, 5, 6000);
    OK(gex_VIS_StridedPutBlocking(t_tm, to, where[to] + 7, far, from, near, 4, counts, 2, 0));
    memset(back, 0, 6000);
    OK(gex_VIS_StridedGetBlocking(t_tm, back, near, to, where[to] + 7, far, 4, counts, 2, 0));
    CHECK(t_same(back, 5, 6000));
    for (at = 0; at < 20; at++) {
        there[at].gex_addr = where[to] + 300000 + 10000 * at;
        there[at].gex_len = at == 3 ? 9000 : at * 17;
        total += there[at].gex_len;
    }
    here.gex_addr = from, here.gex_len = total;
    t_fill(from, 6, total);
    OK(gex_VIS_VectorPutBlocking(t_tm, to, 20, there, 1, &here, 0));
    here.gex_addr = back;
    memset(back, 0, total);
    OK(gex_VIS_VectorGetBlocking(t_tm, 1, &here, to, 20, there, 0));
    CHECK(t_same(back, 6, total));
    t_barrier();
}

static void atomics(void)
{
    gex_AD_t domain;
    gex_Rank_t rank;
    uint64_t old = 0;
    int round;
    tell(words);
    gex_AD_Create(&domain, t_tm, GEX_DT_U64, GEX_OP_FADD | GEX_OP_ADD | GEX_OP_GET | GEX_OP_FCAS, 0);
    t_barrier();
    for (round = 0; round < 200; round++)
        for (rank = 0; rank < t_size; rank++)
            gex_Event_Wait(gex_AD_OpNB_U64(domain, &old, rank, where[rank] + 8, GEX_OP_FADD, 1, 0, 0));
    t_barrier();
    for (rank = 0; rank < t_size; rank++) {
        gex_Event_Wait(gex_AD_OpNB_U64(domain, &old, rank, where[rank] + 8, GEX_OP_GET, 0, 0, 0));
        CHECK_EQ(old, 200 * (uint64_t)t_size);
    }
    CHECK(words[1] == 200 * (uint64_t)t_size && words[0] == 0 && words[2] == 0);
    t_barrier();
    gex_AD_Destroy(domain);
}

static void on_request(gex_Token_t token, void *payload, size_t bytes, gex_AM_Arg_t key, gex_AM_Arg_t high,
                       gex_AM_Arg_t low)
{
    gex_Token_Info_t info;
    char *to = (char *)((uintptr_t)(uint32_t)high << 32 | (uint32_t)low);
    size_t most = gex_Token_MaxReplyLong(token, GEX_EVENT_NOW, 0, 1);
    CHECK(t_same(payload, (uint32_t)key, bytes));
    CHECK(gex_Token_Info(token, &info, GEX_TI_ALL) & GEX_TI_IS_LONG);
    CHECK(info.gex_is_long && info.gex_is_req && info.gex_entry && info.gex_entry->gex_index == 201);
    requests++;
    OK(gex_AM_ReplyLong(token, 202, payload, bytes < most ? bytes : most, to, GEX_EVENT_NOW, 0, key));
}

static void on_reply(gex_Token_t token, void *payload, size_t bytes, gex_AM_Arg_t key)
{
    (void)token;
    CHECK((unsigned char *)payload == data + 500000 && t_same(payload, (uint32_t)key, bytes));
    replies++;
}

static void longs(void)
{
    static const size_t lengths[] = {1, 100, 4100, 65440, 65441, LONGEST};
    uintptr_t answer = (uintptr_t)(data + 500000);
    int sent = 0, turn;
    gex_Rank_t rank;
    size_t at;
    /* One rank at a time: all write to the same places. */
    for (turn = 0; turn < (int)t_size; turn++) {
        for (rank = 0; turn == (int)t_rank && rank < t_size; rank++)
            for (at = 0; at < sizeof lengths / sizeof lengths[0]; at++) {
                size_t bytes = lengths[at];
                gex_AM_Arg_t high = (gex_AM_Arg_t)(answer >> 32), low = (gex_AM_Arg_t)answer;
                t_fill(from, (uint32_t)at, bytes);
                OK(gex_AM_RequestLong(t_tm, rank, 201, from, bytes, where[rank], GEX_EVENT_NOW, 0, (gex_AM_Arg_t)at, high, low));
                memset(from, 0, bytes);
                sent++;
                GASNET_BLOCKUNTIL(replies == sent);
                if (bytes <= 4100) {
                    gex_AM_SrcDesc_t sd = gex_AM_PrepareRequestLong(t_tm, rank, NULL, bytes, bytes, where[rank], NULL, 0, 3);
                    t_fill(gex_AM_SrcDescAddr(sd), (uint32_t)at, bytes);
                    gex_AM_CommitRequestLong(sd, 201, bytes, where[rank], (gex_AM_Arg_t)at, high, low);
                    sent++;
                    GASNET_BLOCKUNTIL(replies == sent);
                }
            }
        t_barrier();
    }
}

/* Names memory that the next rank does not have. */
static void wrong(const char *what)
{
    gex_Rank_t to = (t_rank + 1) % t_size;
    char *nothing = (char *)(uintptr_t)0x4000;
    if (t_rank == 0) {
        if (!strcmp(what, "put")) OK(gex_RMA_PutBlocking(t_tm, to, nothing, from, 100, 0));
        if (!strcmp(what, "get")) OK(gex_RMA_GetBlocking(t_tm, back, to, nothing, 100, 0));
        if (!strcmp(what, "read-only")) OK(gex_RMA_PutBlocking(t_tm, to, where[to], from, 8, 0));
        if (!strcmp(what, "memset")) gasnet_memset(to, nothing, 1, 100);
        if (!strcmp(what, "long"))
            OK(gex_AM_RequestLong(t_tm, to, 201, from, 100, nothing, GEX_EVENT_NOW, 0, 0, 0, 0));
        if (!strcmp(what, "atomic")) {
            gex_AD_t domain;
            gex_AD_Create(&domain, t_tm, GEX_DT_U64, GEX_OP_ADD, 0);
            gex_Event_Wait(gex_AD_OpNB_U64(domain, NULL, to, nothing, GEX_OP_ADD, 1, 0, 0));
        }
    }
    GASNET_BLOCKUNTIL(replies < 0);
}

int main(int argc, char **argv)
{
    gex_AM_Entry_t table[2];
    unsigned char stack[2000];
    memset(stack, 0, sizeof stack);
    t_start("everything", &argc, &argv, AREA);
    table[0] = t_entry(201, (gex_AM_Fn_t)on_request, GEX_FLAG_AM_LONG | GEX_FLAG_AM_REQUEST, 3);
    table[1] = t_entry(202, (gex_AM_Fn_t)on_reply, GEX_FLAG_AM_LONG | GEX_FLAG_AM_REPLY, 1);
    OK(gex_EP_RegisterHandlers(t_ep, table, 2));
#ifndef GASNET_SEGMENT_EVERYTHING
    (void)moves, (void)vectors, (void)atomics, (void)longs, (void)wrong, (void)words, (void)constant;
    CHECK(gasnet_getMaxLocalSegmentSize() < (uintptr_t)-1 && gex_EP_QuerySegment(t_ep) == t_segment);
#else
    gasnet_seginfo_t rows[64];
    CHECK(gasnet_getMaxLocalSegmentSize() == (uintptr_t)-1 && gasnet_getMaxGlobalSegmentSize() == (uintptr_t)-1);
    OK(gasnet_getSegmentInfo(rows, (int)t_size));
    CHECK(rows[t_rank].addr == NULL && rows[t_rank].size == (uintptr_t)-1 && rows[t_size - 1].addr == NULL);
    CHECK(gex_AM_LUBReplyLong() >= 512 && gex_AM_LUBReplyLong() <= gex_AM_MaxReplyLong(t_tm, 0, GEX_EVENT_NOW, 0, 16));
    tell((void *)(uintptr_t)&constant);
    if (argc > 1) {
        wrong(argv[1]);
        return 1;
    }
    {
        uint64_t seen = 0;
        OK(gex_RMA_GetBlocking(t_tm, &seen, t_size - 1, where[t_size - 1], 8, 0));
        CHECK(seen == constant);
    }
    tell(data);
    moves(AREA);
    vectors();
    longs();
    tell(stack);
    moves(sizeof stack);
    tell(malloc(AREA));
    moves(AREA);
    vectors();
    tell(mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    moves(AREA);
    tell(mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    moves(AREA);
    atomics();
#endif
    t_pass();
    return 0;
}
