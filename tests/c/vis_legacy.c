/* The vector, indexed and strided calls of GASNet-1: each form of each moves the same bytes there and back. */
#include <gasnet.h>

#include "t.h"

enum { ROWS = 300, ROW = 24, APART = 40, AREA = 1 << 16 };
static unsigned char mine[AREA], back[AREA];
static gasnet_memvec_t mine_list[ROWS], back_list[ROWS], there_list[1];
static void *mine_index[ROWS], *back_index[ROWS], *there_index[2];

/* Waits for what a form started. */
static void done(int form, gasnet_handle_t handle, int put)
{
    if (form == 1) gasnet_wait_syncnb(handle);
    else if (form == 2 && put) gasnet_wait_syncnbi_puts();
    else if (form == 2) gasnet_wait_syncnbi_gets();
}

#define FORMS(form, put, name, ...)                                                                                  \
    do {                                                                                                             \
        gasnet_handle_t handle = GASNET_INVALID_HANDLE;                                                              \
        if (form == 0) name##_bulk(__VA_ARGS__);                                                                     \
        else if (form == 1) handle = name##_nb_bulk(__VA_ARGS__);                                                    \
        else name##_nbi_bulk(__VA_ARGS__);                                                                           \
        done(form, handle, put);                                                                                     \
    } while (0)

/* Every row is there, and nothing between them. */
static void check(uint32_t key)
{
    int row, at;
    for (row = 0; row < ROWS; row++)
        for (at = 0; at < APART; at++)
            CHECK(back[row * APART + at] == (at < ROW ? t_byte(key, (size_t)(row * APART + at)) : 0));
    memset(back, 0, sizeof back);
}

static void transfers(gasnet_node_t to, unsigned char *there)
{
    size_t count[2] = {ROW, ROWS}, apart[1] = {APART}, close[1] = {ROW};
    int form, row;
    there_list[0].addr = there_index[0] = there;
    there_list[0].len = ROWS * ROW;
    there_index[1] = there + ROWS * ROW / 2;
    for (row = 0; row < ROWS; row++) {
        mine_list[row].addr = mine_index[row] = mine + row * APART;
        back_list[row].addr = back_index[row] = back + row * APART;
        mine_list[row].len = back_list[row].len = ROW;
    }
    for (form = 0; form < 3; form++) {
        uint32_t key = (uint32_t)(10 * to) + (uint32_t)form;
        t_fill(mine, key, sizeof mine);
        FORMS(form, 1, gasnet_putv, to, 1, there_list, ROWS, mine_list);
        FORMS(form, 0, gasnet_getv, ROWS, back_list, to, 1, there_list);
        check(key);
        t_fill(mine, key + 1, sizeof mine);
        FORMS(form, 1, gasnet_puti, to, 2, there_index, ROWS * ROW / 2, ROWS, mine_index, ROW);
        FORMS(form, 0, gasnet_geti, ROWS, back_index, ROW, to, 2, there_index, ROWS * ROW / 2);
        check(key + 1);
        t_fill(mine, key + 2, sizeof mine);
        FORMS(form, 1, gasnet_puts, to, there, close, mine, apart, count, 1);
        FORMS(form, 0, gasnet_gets, back, apart, to, there, close, count, 1);
        check(key + 2);
        /* The first count alone is contiguous bytes. */
        count[0] = ROWS * APART;
        FORMS(form, 1, gasnet_puts, to, there, NULL, mine, NULL, count, 0);
        FORMS(form, 0, gasnet_gets, back, NULL, to, there, NULL, count, 0);
        CHECK(t_same(back, key + 2, ROWS * APART));
        memset(back, 0, sizeof back);
        count[0] = ROW;
    }
}

int main(int argc, char **argv)
{
    gasnet_seginfo_t segments[64];
    gasnet_node_t to;
    t_name = "vis_legacy";
    OK(gasnet_init(&argc, &argv));
    t_rank = gasnet_mynode();
    t_size = gasnet_nodes();
    OK(gasnet_attach(NULL, 0, (uintptr_t)AREA * t_size, 0));
    gasnet_QueryGexObjects(&t_client, &t_ep, &t_tm, &t_segment);
    gasnet_set_waitmode(GASNET_WAIT_BLOCK);
    OK(gasnet_getSegmentInfo(segments, (int)t_size));
    for (to = 0; to < t_size; to++) transfers(to, (unsigned char *)segments[to].addr + (size_t)t_rank * AREA);
    t_pass();
    return 1;
}
