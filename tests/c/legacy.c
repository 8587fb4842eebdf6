/* A program of the GASNet-1 interface. */
#include <gasnet.h>

#include "t.h"

enum { PING = 130, PONG, MEDIUM, LONG, LONG_BACK, MEDIUM_BACK };
static int pongs, mediums, echoes, longs, backs;
static char *bases[64];
static char *landing_of(gasnet_node_t at, gasnet_node_t from)
{
    return bases[at] + 4096 * (1 + from);
}

static void ping(gasnet_token_t token, gasnet_handlerarg_t a, gasnet_handlerarg_t b)
{
    CHECK(b == a + 1);
    OK(gasnet_AMReplyShort2(token, PONG, a, -b));
}

static void pong(gasnet_token_t token, gasnet_handlerarg_t a, gasnet_handlerarg_t b)
{
    (void)token;
    CHECK(-b == a + 1);
    pongs++;
}

static void medium(gasnet_token_t token, void *data, size_t bytes)
{
    gasnet_node_t from = 0;
    OK(gasnet_AMGetMsgSource(token, &from));
    CHECK(t_same(data, from, bytes));
    OK(gasnet_AMReplyMedium0(token, MEDIUM_BACK, data, bytes));
    mediums++;
}

static void echo(gasnet_token_t token, void *data, size_t bytes)
{
    (void)token;
    CHECK(t_same(data, t_rank, bytes));
    echoes++;
}

static void landed(gasnet_token_t token, void *data, size_t bytes, gasnet_handlerarg_t a)
{
    gasnet_node_t from = 0;
    OK(gasnet_AMGetMsgSource(token, &from));
    CHECK((char *)data == landing_of(t_rank, from) && t_same(data, (uint32_t)a, bytes));
    longs++;
    OK(gasnet_AMReplyLong(token, LONG_BACK, data, bytes, landing_of(from, t_rank) + 2048, 1, a));
}

static void came_back(gasnet_token_t token, void *data, size_t bytes, gasnet_handlerarg_t a)
{
    (void)token;
    CHECK(t_same(data, (uint32_t)a, bytes));
    backs++;
}

static void one_sided(gasnet_node_t to)
{
    char *place = bases[to] + 4096 * (40 + t_rank);
    unsigned char data[3000], back[3000];
    gasnet_handle_t handles[3];
    gasnet_valget_handle_t value;
    t_fill(data, 8, sizeof data);
    gasnet_put(to, place, data, sizeof data);
    memset(back, 0, sizeof back);
    gasnet_get_bulk(back, to, place, sizeof back);
    CHECK(t_same(back, 8, sizeof back));
    handles[0] = gasnet_put_nb(to, place, data + 1, 100);
    handles[1] = gasnet_put_nb_bulk(to, place + 100, data + 101, 100);
    handles[2] = GASNET_INVALID_HANDLE;
    gasnet_wait_syncnb_all(handles, 3);
    handles[0] = gasnet_get_nb(back, to, place, 100);
    handles[1] = gasnet_get_nb_bulk(back + 100, to, place + 100, 100);
    gasnet_wait_syncnb(handles[1]);
    while (gasnet_try_syncnb(handles[0]) != GASNET_OK) continue;
    CHECK(memcmp(back, data + 1, 200) == 0);
    gasnet_put_nbi(to, place, data, 10);
    gasnet_put_nbi_bulk(to, place + 10, data + 10, 10);
    gasnet_wait_syncnbi_puts();
    gasnet_get_nbi(back, to, place, 20);
    gasnet_wait_syncnbi_gets();
    CHECK(memcmp(back, data, 20) == 0);
    gasnet_begin_nbi_accessregion();
    gasnet_put_nbi_val(to, place, 0x55aa, 2);
    gasnet_wait_syncnb(gasnet_end_nbi_accessregion());
    gasnet_put_val(to, place + 2, 1, 1);
    gasnet_wait_syncnb(gasnet_put_nb_val(to, place + 3, 2, 1));
    CHECK(gasnet_get_val(to, place, 4) == 0x020155aaU);
    value = gasnet_get_nb_val(to, place, 2);
    CHECK(gasnet_wait_syncnb_valget(value) == 0x55aa);
    gasnet_memset(to, place, 0x77, 500);
    gasnet_wait_syncnb(gasnet_memset_nb(to, place + 500, 0x78, 500));
    gasnet_memset_nbi(to, place + 1000, 0x79, 500);
    gasnet_wait_syncnbi_all();
    gasnet_get(back, to, place, 1500);
    CHECK(back[0] == 0x77 && back[499] == 0x77 && back[500] == 0x78 && back[1499] == 0x79);
}

/* Whoever does not wait asks again and again; without polls somebody has to poll. */
#define UNTIL(call) while ((call) != GASNET_OK) OK(gasnet_AMPoll())
static void tries(gasnet_node_t to)
{
    unsigned char data[900], back[900];
    char *place = landing_of(to, t_rank);
    gasnet_handle_t handles[3];
    int at, turn;
    t_fill(data, 5, sizeof data);
    for (turn = 0; turn < 5; turn++) {
        gasnet_put_bulk(to, place, data, sizeof data);
        memset(back, 0, sizeof back);
        for (at = 0; at < 3; at++) handles[at] = gasnet_get_nb(back + 300 * at, to, place + 300 * at, 300);
        switch (turn) {
        case 0: UNTIL(gasnet_try_syncnb_all(handles, 3)); break;
        case 1: UNTIL(gasnet_try_syncnb_all_nopoll(handles, 3)); break;
        case 2:
            for (at = 0; at < 3; at++) UNTIL(gasnet_try_syncnb_nopoll(handles[at]));
            break;
        case 3:
            UNTIL(gasnet_try_syncnb_some(handles, 3));
            UNTIL(gasnet_try_syncnb_some_nopoll(handles, 3));
            gasnet_wait_syncnb_all(handles, 3);
            break;
        default:
            gasnet_wait_syncnb_some(handles, 3);
            gasnet_wait_syncnb_all(handles, 3);
        }
        CHECK(t_same(back, 5, sizeof back));
    }
    for (turn = 0; turn < 4; turn++) {
        t_fill(data, (uint32_t)turn, sizeof data);
        gasnet_put_nbi_bulk(to, place, data, sizeof data);
        if (turn % 2) UNTIL(gasnet_try_syncnbi_puts());
        else UNTIL(gasnet_try_syncnbi_puts_nopoll());
        gasnet_get_nbi_bulk(back, to, place, sizeof back);
        switch (turn) {
        case 0: UNTIL(gasnet_try_syncnbi_gets()); break;
        case 1: UNTIL(gasnet_try_syncnbi_gets_nopoll()); break;
        case 2: UNTIL(gasnet_try_syncnbi_all()); break;
        default: UNTIL(gasnet_try_syncnbi_all_nopoll());
        }
        CHECK(t_same(back, (uint32_t)turn, sizeof back));
    }
}

int main(int argc, char **argv)
{
    gasnet_handlerentry_t table[] = {{PING, (void (*)())ping},
                                     {PONG, (void (*)())pong},
                                     {MEDIUM, (void (*)())medium},
                                     {LONG, (void (*)())landed},
                                     {LONG_BACK, (void (*)())came_back},
                                     {0, (void (*)())pong},
                                     {MEDIUM_BACK, (void (*)())echo}};
    gasnet_seginfo_t segments[64];
    gasnet_hsl_t lock = GASNET_HSL_INITIALIZER;
    unsigned char data[1500];
    gasnet_node_t to;
    int all, id;
    t_name = "legacy";
    OK(gasnet_init(&argc, &argv));
    t_rank = gasnet_mynode();
    t_size = gasnet_nodes();
    all = (int)t_size;
    CHECK(gasnet_getMaxLocalSegmentSize() >= gasnet_getMaxGlobalSegmentSize());
    OK(gasnet_attach(table, 7, 4096 * 128, 0));
    CHECK_EQ(table[5].index, 255);
    gasnet_QueryGexObjects(&t_client, &t_ep, &t_tm, &t_segment);
    CHECK(gex_TM_QuerySize(t_tm) == t_size && gex_EP_QuerySegment(t_ep) == t_segment);
    gasnet_set_waitmode(GASNET_WAIT_BLOCK);
    OK(gasnet_getSegmentInfo(segments, (int)t_size));
    for (to = 0; to < t_size; to++) {
        CHECK(segments[to].size >= 4096 * 128);
        bases[to] = (char *)segments[to].addr;
    }
    gasnet_barrier_notify(1, 0);
    OK(gasnet_barrier_wait(1, 0));
    OK(gasnet_barrier_result(&id));
    CHECK_EQ(id, 1);
    CHECK(gasnet_AMMaxArgs() == 16 && gasnet_AMMaxMedium() >= 512);
    CHECK(gasnet_AMMaxLongRequest() >= 512 && gasnet_AMMaxLongReply() >= 512);
    for (to = 0; to < t_size; to++) {
        OK(gasnet_AMRequestShort2(to, PING, 5, 6));
        OK(gasnet_AMRequestShort(to, PING, 2, 7, 8));
        t_fill(data, t_rank, sizeof data);
        OK(gasnet_AMRequestMedium0(to, MEDIUM, data, sizeof data));
        OK(gasnet_AMRequestMedium(to, MEDIUM, data, 9, 0));
        t_fill(data, 77, sizeof data);
        OK(gasnet_AMRequestLong1(to, LONG, data, sizeof data, landing_of(to, t_rank), 77));
    }
    GASNET_BLOCKUNTIL(pongs == 2 * all && mediums == 2 * all && echoes == 2 * all && longs == all && backs == all);
    OK(gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS));
    for (to = 0; to < t_size; to++) OK(gasnet_AMRequestLongAsync1(to, LONG, data, 100, landing_of(to, t_rank), 77));
    GASNET_BLOCKUNTIL(longs == 2 * all && backs == 2 * all);
    gasnet_hsl_lock(&lock);
    gasnet_hsl_unlock(&lock);
    OK(gasnet_hsl_trylock(&lock));
    gasnet_hsl_unlock(&lock);
    gasnet_hsl_destroy(&lock);
    gasnet_hold_interrupts();
    gasnet_resume_interrupts();
    for (to = 0; to < t_size; to++) one_sided(to);
    OK(gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS));
    for (to = 0; to < t_size; to++) tries(to);
    t_pass();
    return 1;
}
