/* Vectors to and from segments that programs make and bind to a second endpoint, through pairs; and through a team of
 * the even or odd ranks. */
#include <gasnet_vis.h>

#include "t.h"

enum { ROWS = 700, ROW = 12, APART = 20, AREA = ROWS * APART };
static unsigned char mine[AREA], back[AREA];
static void *mine_index[ROWS], *there_index[ROWS];
static gex_Memvec_t back_list[ROWS], there_list[ROWS];
static gex_Rank_t told;

static void peer_handler(gex_Token_t token, void *payload, size_t bytes)
{
    (void)token;
    (void)payload;
    CHECK_EQ(bytes, 3);
    told++;
}

/* All three forms to the part of this rank at a rank of a team. */
static void transfers(gex_TM_t tm, gex_Rank_t to, unsigned char *there, uint32_t key)
{
    size_t count = ROWS, row;
    ptrdiff_t apart = APART, turned = -APART;
    for (row = 0; row < ROWS; row++) {
        mine_index[row] = mine + row * APART;
        there_index[row] = there_list[row].gex_addr = there + (ROWS - 1 - row) * APART;
        back_list[row].gex_addr = back + row * APART;
        back_list[row].gex_len = there_list[row].gex_len = ROW;
    }
    t_fill(mine, key, AREA);
    gex_Event_Wait(gex_VIS_IndexedPutNB(tm, to, ROWS, there_index, ROW, ROWS, mine_index, ROW, 0));
    memset(back, 0, AREA);
    OK(gex_VIS_VectorGetNBI(tm, ROWS, back_list, to, ROWS, there_list, 0));
    gex_NBI_Wait(GEX_EC_GET, 0);
    for (row = 0; row < ROWS; row++) CHECK(!memcmp(mine + row * APART, back + row * APART, ROW));
    t_fill(mine, key + 1, AREA);
    gex_VIS_SetPeerCompletionHandler(231, "abc", 3, 0);
    OK(gex_VIS_StridedPutBlocking(tm, to, there, &apart, mine + AREA - APART, &turned, ROW, &count, 1, 0));
    OK(gex_VIS_StridedGetBlocking(tm, back + AREA - APART, &turned, to, there, &apart, ROW, &count, 1, 0));
    for (row = 0; row < ROWS; row++) CHECK(!memcmp(mine + row * APART, back + row * APART, ROW));
}

static unsigned char *found(gex_TM_t tm, gex_Rank_t rank)
{
    void *owner = NULL, *here;
    uintptr_t size = 0;
    gex_Event_Wait(gex_EP_QueryBoundSegmentNB(tm, rank, &owner, &here, &size, 0));
    CHECK(owner != NULL && size >= AREA * t_size);
    return (unsigned char *)owner + (size_t)t_rank * AREA;
}

int main(int argc, char **argv)
{
    gex_AM_Entry_t entry;
    gex_EP_t second;
    gex_Segment_t made;
    gex_TM_t team;
    gex_Rank_t to, expected;
    t_join("vis_segments", &argc, &argv);
    entry = t_entry(231, (gex_AM_Fn_t)peer_handler, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REPLY, 0);
    OK(gex_EP_RegisterHandlers(t_ep, &entry, 1));
    t_attach((uintptr_t)AREA * t_size);
    OK(gex_Segment_Create(&made, t_client, NULL, (uintptr_t)AREA * t_size, GEX_MK_HOST, 0));
    OK(gex_EP_Create(&second, t_client, GEX_EP_CAPABILITY_RMA, 0));
    OK(gex_EP_BindSegment(second, made, 0));
    OK(gex_EP_PublishBoundSegment(t_tm, &second, 1, 0));
    t_barrier();
    for (to = 0; to < t_size; to++) {
        gex_TM_t pair = gex_TM_Pair(t_ep, 1);
        transfers(pair, to, found(pair, to), 100 * to);
        pair = gex_TM_Pair(second, 0);
        transfers(pair, to, found(pair, to), 100 * to + 50);
    }
    gex_TM_Split(&team, t_tm, (int)(t_rank % 2), (int)(t_size - t_rank), NULL, 0,
                 GEX_FLAG_TM_NO_SCRATCH);
    for (to = 0; to < gex_TM_QuerySize(team); to++) transfers(team, to, found(team, to), 1000 + 100 * to);
    expected = 2 * t_size + gex_TM_QuerySize(team);
    GASNET_BLOCKUNTIL(told == expected);
    t_pass();
    return 1;
}
