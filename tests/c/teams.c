/* Teams: splits by color and key, of splits, from lists; translation of ranks; messages, puts and gets by team rank;
 * scratch space; teams that end in another order. */
#include "t.h"

static unsigned hits;
static gex_Rank_t last;

static void on_hit(gex_Token_t token, gex_AM_Arg_t from)
{
    gex_Token_Info_t info;
    gex_Token_Info(token, &info, GEX_TI_SRCRANK);
    CHECK_EQ(info.gex_srcrank, from);
    last = info.gex_srcrank;
    hits++;
}

static void on_data(gex_Token_t token, void *data, size_t bytes, gex_AM_Arg_t key)
{
    (void)token;
    CHECK(t_same(data, (uint32_t)key, bytes));
    hits++;
}

/* Where a member's segment begins, by its rank in the team. */
static char *base_in(gex_TM_t tm, gex_Rank_t rank)
{
    void *owner = NULL;
    gex_Event_Wait(gex_EP_QueryBoundSegmentNB(tm, rank, &owner, NULL, NULL, 0));
    return (char *)owner;
}

/* The team has these ranks of the job, as `rank_at` says them. */
static void check_members(gex_TM_t tm, gex_Rank_t count, gex_Rank_t (*rank_at)(gex_Rank_t))
{
    gex_Rank_t at;
    CHECK(tm != GEX_TM_INVALID && tm != t_tm);
    CHECK_EQ(gex_TM_QuerySize(tm), count);
    CHECK_EQ(gex_TM_TranslateRankToJobrank(tm, gex_TM_QueryRank(tm)), t_rank);
    CHECK(gex_TM_QueryEP(tm) == t_ep && gex_TM_QueryClient(tm) == t_client && gex_TM_QueryFlags(tm) == 0);
    for (at = 0; at < count; at++) {
        gex_EP_Location_t where = gex_TM_TranslateRankToEP(tm, at, 0);
        CHECK_EQ(gex_TM_TranslateRankToJobrank(tm, at), rank_at(at));
        CHECK_EQ(gex_TM_TranslateJobrankToRank(tm, rank_at(at)), at);
        CHECK(where.gex_rank == rank_at(at) && where.gex_ep_index == 0);
    }
    CHECK_EQ(gex_TM_TranslateJobrankToRank(tm, t_size), GEX_RANK_INVALID);
}

static gex_Rank_t same(gex_Rank_t at)
{
    return at;
}

static gex_Rank_t reversed(gex_Rank_t at)
{
    return t_size - 1 - at;
}

static gex_Rank_t of_my_half(gex_Rank_t at)
{
    return 2 * at + t_rank % 2;
}

static gex_Rank_t myself(gex_Rank_t at)
{
    (void)at;
    return t_rank;
}

/* Everything point-to-point by ranks of the team. */
static void traffic(gex_TM_t tm)
{
    gex_Rank_t size = gex_TM_QuerySize(tm), me = gex_TM_QueryRank(tm), to = (me + 1) % size;
    gex_Rank_t job = gex_TM_TranslateRankToJobrank(tm, to);
    gex_Rank_t before = gex_TM_TranslateRankToJobrank(tm, (me + size - 1) % size);
    unsigned char data[300], back[300];
    void *owner = NULL, *own = NULL;
    uintptr_t bytes = 0;
    gex_Event_t lc;
    gex_AM_SrcDesc_t prepared;
    gex_Event_Wait(gex_Coll_BarrierNB(tm, 0));
    hits = 0;
    gex_Event_Wait(gex_Coll_BarrierNB(tm, 0));
    OK(gex_AM_RequestShort1(tm, to, 200, 0, (gex_AM_Arg_t)t_rank));
    t_fill(data, 77 + t_rank, sizeof data);
    OK(gex_AM_RequestMedium1(tm, to, 201, data, sizeof data, &lc, 0, (gex_AM_Arg_t)(77 + t_rank)));
    gex_Event_Wait(lc);
    CHECK(gex_AM_MaxRequestMedium(tm, to, GEX_EVENT_NOW, 0, 1) >= 512);
    OK(gex_AM_RequestLong1(tm, to, 201, data, sizeof data, base_in(tm, to) + 4096, GEX_EVENT_NOW, 0,
                           (gex_AM_Arg_t)(77 + t_rank)));
    prepared = gex_AM_PrepareRequestLong(tm, to, data, 9, sizeof data, NULL, GEX_EVENT_NOW, 0, 1);
    gex_AM_CommitRequestLong1(prepared, 201, 9, base_in(tm, to) + 5120, (gex_AM_Arg_t)(77 + t_rank));
    GASNET_BLOCKUNTIL(hits == 4);
    CHECK_EQ(last, before);
    gex_Event_Wait(gex_EP_QueryBoundSegmentNB(tm, to, &owner, NULL, &bytes, 0));
    CHECK(owner == t_base(job, NULL) && bytes >= 1 << 16);
    OK(gex_RMA_PutBlocking(tm, to, (char *)owner + 1024, data, sizeof data, 0));
    gex_Event_Wait(gex_RMA_PutNB(tm, to, (char *)owner + 2048, data, sizeof data, GEX_EVENT_NOW, 0));
    OK(gex_RMA_PutNBI(tm, to, (char *)owner + 3072, data, sizeof data, GEX_EVENT_DEFER, 0));
    gex_NBI_Wait(GEX_EC_ALL, 0);
    OK(gex_RMA_PutBlockingVal(tm, to, (char *)owner + 8, 4711 + t_rank, 8, 0));
    memset(back, 0, sizeof back);
    OK(gex_RMA_GetBlocking(tm, back, to, (char *)owner + 3072, sizeof back, 0));
    CHECK(memcmp(back, data, sizeof back) == 0);
    gex_Event_Wait(gex_RMA_GetNB(tm, back, to, (char *)owner + 1024, sizeof back, 0));
    CHECK(memcmp(back, data, sizeof back) == 0);
    CHECK_EQ(gex_RMA_GetBlockingVal(tm, to, (char *)owner + 8, 8, 0), 4711 + t_rank);
    gex_Event_Wait(gex_Coll_BarrierNB(tm, 0));
    own = gex_Segment_QueryAddr(t_segment);
    CHECK(t_same((char *)own + 2048, 77 + before, sizeof data));
    CHECK(t_same((char *)own + 4096, 77 + before, sizeof data) && t_same((char *)own + 5120, 77 + before, 9));
    CHECK_EQ(*(volatile uint64_t *)((char *)own + 8), 4711 + before);
    CHECK(gex_TM_QueryCData(tm) == NULL);
    gex_TM_SetCData(tm, &hits);
    CHECK(gex_TM_QueryCData(tm) == &hits);
    gex_TM_SetCData(tm, NULL);
}

static void scratch(void)
{
    gex_TM_t tm = GEX_TM_INVALID, none = GEX_TM_INVALID;
    gex_Memvec_t lent;
    char *base = (char *)gex_Segment_QueryAddr(t_segment);
    size_t size = gex_TM_Split(&tm, t_tm, 1, 0, NULL, 0, GEX_FLAG_TM_SCRATCH_SIZE_RECOMMENDED);
    CHECK(size > 0 && size <= 1 << 15 && tm == GEX_TM_INVALID);
    CHECK_EQ(gex_TM_Split(NULL, t_tm, 1, 0, NULL, 0, GEX_FLAG_TM_SCRATCH_SIZE_RECOMMENDED), 0);
    gex_TM_Split(&tm, t_tm, (int)t_rank, 0, base + 4096, size, 0);
    check_members(tm, 1, myself);
    memset(&lent, 0, sizeof lent);
    CHECK(gex_TM_Destroy(tm, &lent, 0) != 0);
    CHECK(lent.gex_addr == base + 4096 && lent.gex_len == size);
    gex_TM_Split(&tm, t_tm, 0, 0, base, size, 0);
    CHECK_EQ(gex_TM_Destroy(tm, NULL, GEX_FLAG_GLOBALLY_QUIESCED), 0);
    gex_TM_Split(&tm, t_tm, 3, 0, base, size, GEX_FLAG_TM_NO_SCRATCH);
    lent.gex_len = 1;
    OK(gex_TM_Destroy(tm, &lent, 0));
    CHECK(lent.gex_len == 1);
    /* The last rank joins nothing. */
    gex_TM_Split(t_rank + 1 == t_size ? NULL : &none, t_tm, 0, 0, NULL, 0, GEX_FLAG_TM_NO_SCRATCH);
    CHECK_EQ(none == GEX_TM_INVALID, t_rank + 1 == t_size);
    if (none != GEX_TM_INVALID) {
        check_members(none, t_size - 1, same);
        OK(gex_TM_Destroy(none, NULL, 0));
    }
}

static void lists(void)
{
    static gex_EP_Location_t all[64], half[64];
    static gex_Addr_t places[64];
    gex_Memvec_t lent;
    gex_TM_t back = GEX_TM_INVALID, part = GEX_TM_INVALID;
    gex_Rank_t at, count = (t_size + 1 - t_rank % 2) / 2;
    char *base = (char *)gex_Segment_QueryAddr(t_segment);
    for (at = 0; at < t_size; at++) {
        all[at].gex_rank = reversed(at);
        all[at].gex_ep_index = 0;
        places[at] = (gex_Addr_t)(uintptr_t)(512 * at);
    }
    CHECK(gex_TM_Create(&back, 1, t_tm, all, t_size, NULL, 0, GEX_FLAG_TM_SCRATCH_SIZE_RECOMMENDED) > 0);
    gex_TM_Create(&back, 1, t_tm, all, t_size, places, 512, GEX_FLAG_TM_GLOBAL_SCRATCH | GEX_FLAG_SCRATCH_SEG_OFFSET);
    check_members(back, t_size, reversed);
    traffic(back);
    for (at = 0; at < count; at++) {
        half[at].gex_rank = of_my_half(at);
        half[at].gex_ep_index = 0;
    }
    places[0] = base;
    /* Two teams in one call. */
    gex_TM_Create(&part, 1, back, half, count, places, 4096, GEX_FLAG_TM_LOCAL_SCRATCH | GEX_FLAG_RANK_IS_JOBRANK);
    check_members(part, count, of_my_half);
    traffic(part);
    CHECK(gex_TM_Destroy(back, &lent, 0) != 0);
    CHECK(lent.gex_addr == base + 512 * reversed(t_rank) && lent.gex_len == 512);
    gex_TM_Create(t_rank == 0 ? &back : NULL, t_rank == 0, t_tm, all + t_size - 1, t_rank == 0, NULL, 0,
                  GEX_FLAG_TM_NO_SCRATCH);
    if (t_rank == 0) {
        check_members(back, 1, same);
        OK(gex_TM_Destroy(back, NULL, 0));
    }
    traffic(part);
    CHECK(gex_TM_Destroy(part, NULL, 0) == 0);
}

/* Splits of splits, down to teams of one; then they end, the first ones first. */
static void nested(void)
{
    gex_TM_t chain[8], parent = t_tm;
    unsigned depth = 0, at;
    while (gex_TM_QuerySize(parent) > 1) {
        gex_Rank_t me = gex_TM_QueryRank(parent), half = gex_TM_QuerySize(parent) / 2;
        gex_TM_Split(&chain[depth], parent, me < half ? 5 : 1000000007, -(int)me, NULL, 0, GEX_FLAG_TM_NO_SCRATCH);
        parent = chain[depth++];
        CHECK_EQ(gex_TM_TranslateRankToJobrank(parent, gex_TM_QueryRank(parent)), t_rank);
        traffic(parent);
    }
    for (at = 0; at < depth; at++) OK(gex_TM_Destroy(chain[at], NULL, 0));
}

int main(int argc, char **argv)
{
    gex_AM_Entry_t table[2];
    gex_TM_t half = GEX_TM_INVALID, back = GEX_TM_INVALID;
    unsigned turn;
    t_start("teams", &argc, &argv, 1 << 16);
    table[0] = t_entry(200, (gex_AM_Fn_t)on_hit, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 1);
    table[1] = t_entry(201, (gex_AM_Fn_t)on_data, GEX_FLAG_AM_MEDLONG | GEX_FLAG_AM_REQUEST, 1);
    OK(gex_EP_RegisterHandlers(t_ep, table, 2));
    t_barrier();
    gex_TM_Split(&half, t_tm, (int)(t_rank % 2), 0, NULL, 0, GEX_FLAG_TM_NO_SCRATCH);
    check_members(half, (t_size + 1 - t_rank % 2) / 2, of_my_half);
    gex_TM_Split(&back, t_tm, 0, -(int)t_rank, NULL, 0, GEX_FLAG_TM_NO_SCRATCH);
    check_members(back, t_size, reversed);
    CHECK(half != back);
    traffic(half);
    traffic(back);
    OK(gex_TM_Destroy(half, NULL, 0));
    traffic(back);
    nested();
    scratch();
    lists();
    for (turn = 0; turn < 100; turn++) {
        gex_TM_t tm = GEX_TM_INVALID;
        gex_TM_Split(&tm, back, (int)(turn % 3), (int)(turn * t_rank % 5), NULL, 0, GEX_FLAG_TM_NO_SCRATCH);
        CHECK_EQ(gex_TM_QuerySize(tm), t_size);
        gex_Coll_BarrierBlocking(tm, 0);
        OK(gex_TM_Destroy(tm, NULL, turn % 2 ? GEX_FLAG_GLOBALLY_QUIESCED : 0));
    }
    OK(gex_TM_Destroy(back, NULL, 0));
    t_pass();
    return 1;
}
