/* More than any queue holds: all to one while that one sleeps, immediate sends, thousands of operations under way. */
#include "t.h"

enum { SHORTS = 5000, MEDIUMS = 500, BYTES = 4000, DEEP = 3000 };
static long shorts, mediums, answers;

static void on_short(gex_Token_t token, gex_AM_Arg_t a, gex_AM_Arg_t b)
{
    CHECK_EQ(b, ~a);
    shorts++;
    OK(gex_AM_ReplyShort1(token, 202, 0, a));
}

static void on_medium(gex_Token_t token, void *data, size_t bytes, gex_AM_Arg_t key)
{
    CHECK(bytes == BYTES && t_same(data, (uint32_t)key, bytes));
    mediums++;
    OK(gex_AM_ReplyMedium1(token, 203, data, bytes, GEX_EVENT_NOW, 0, key));
}

static void answered(gex_Token_t token, gex_AM_Arg_t a)
{
    (void)token;
    (void)a;
    answers++;
}

static void answered_with(gex_Token_t token, void *data, size_t bytes, gex_AM_Arg_t key)
{
    (void)token;
    CHECK(t_same(data, (uint32_t)key, bytes));
    answers++;
}

/* Everybody sends to `to`, which at first does not listen. */
static void all_to(gex_Rank_t to, long *sent)
{
    static unsigned char data[BYTES];
    int at;
    if (t_rank == to) {
        struct timespec rest = {0, 100000000};
        nanosleep(&rest, NULL);
    }
    for (at = 0; at < SHORTS; at++) {
        if (at % 2) {
            while (gex_AM_RequestShort(t_tm, to, 200, GEX_FLAG_IMMEDIATE, at, ~at) != 0) {
                OK(gasnet_AMPoll());
                sched_yield();
            }
        } else OK(gex_AM_RequestShort(t_tm, to, 200, 0, at, ~at));
        if (at % (SHORTS / MEDIUMS) == 0) {
            t_fill(data, (uint32_t)at, BYTES);
            OK(gex_AM_RequestMedium(t_tm, to, 201, data, BYTES, at % 4 ? GEX_EVENT_NOW : GEX_EVENT_GROUP, 0, at));
            gex_NBI_Wait(GEX_EC_AM, 0);
        }
    }
    *sent += SHORTS + MEDIUMS;
    GASNET_BLOCKUNTIL(answers == *sent);
    t_barrier();
}

static void deep(void)
{
    static uint64_t from[DEEP], back[DEEP];
    static gex_Event_t events[DEEP];
    gex_Rank_t to = (t_rank + 1) % t_size;
    char *base = t_base(to, NULL);
    int at;
    for (at = 0; at < DEEP; at++) {
        from[at] = (uint64_t)at * 3 + t_rank;
        events[at] = gex_RMA_PutNB(t_tm, to, base + 8 * at, &from[at], 8, GEX_EVENT_DEFER, 0);
    }
    gex_Event_WaitAll(events, DEEP, 0);
    for (at = 0; at < DEEP; at++)
        while (gex_RMA_GetNBI(t_tm, &back[at], to, base + 8 * at, 8, GEX_FLAG_IMMEDIATE)) OK(gasnet_AMPoll());
    gex_NBI_Wait(GEX_EC_ALL, 0);
    CHECK(memcmp(from, back, sizeof from) == 0);
}

int main(int argc, char **argv)
{
    gex_AM_Entry_t table[4];
    gex_Rank_t to;
    long sent = 0;
    t_join("flood", &argc, &argv);
    table[0] = t_entry(200, (gex_AM_Fn_t)on_short, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 2);
    table[1] = t_entry(201, (gex_AM_Fn_t)on_medium, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REQUEST, 1);
    table[2] = t_entry(202, (gex_AM_Fn_t)answered, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REPLY, 1);
    table[3] = t_entry(203, (gex_AM_Fn_t)answered_with, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REPLY, 1);
    OK(gex_EP_RegisterHandlers(t_ep, table, 4));
    t_attach(DEEP * 8);
    t_barrier();
    for (to = 0; to < t_size; to += t_size > 1 ? t_size - 1 : 1) all_to(to, &sent);
    t_barrier();
    CHECK_EQ(shorts, t_rank == 0 || t_rank == t_size - 1 ? (long)t_size * SHORTS : 0);
    deep();
    t_pass();
    return 1;
}
