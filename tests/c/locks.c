/* Handler-safe locks between handlers and the rest, and between threads in the modes that have them. */
#include "t.h"

static gex_HSL_t fixed = GEX_HSL_INITIALIZER, made;
static volatile long counter, replies_seen;

static void add(gex_Token_t token)
{
    gex_HSL_Lock(&fixed);
    counter = counter + 1;
    gex_HSL_Unlock(&fixed);
    OK(gex_AM_ReplyShort0(token, 201, 0));
}

static void added(gex_Token_t token)
{
    (void)token;
    gex_HSL_Lock(&made);
    replies_seen = replies_seen + 1;
    gex_HSL_Unlock(&made);
}

#if !GASNET_SEQ
static void *contend(void *unused)
{
    int round;
    for (round = 0; round < 20000; round++) {
        if (round % 3 == 0) {
            while (gex_HSL_Trylock(&fixed) != GASNET_OK) sched_yield();
        } else gex_HSL_Lock(&fixed);
        counter = counter + 1;
        gex_HSL_Unlock(&fixed);
    }
    return unused;
}
#endif

int main(int argc, char **argv)
{
    gex_AM_Entry_t table[2];
    gex_Rank_t to;
    int round, at;
    long expected;
    t_join("locks", &argc, &argv);
    gex_HSL_Init(&made);
    table[0] = t_entry(200, (gex_AM_Fn_t)add, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 0);
    table[1] = t_entry(201, (gex_AM_Fn_t)added, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REPLY, 0);
    OK(gex_EP_RegisterHandlers(t_ep, table, 2));
    t_barrier();
    OK(gex_HSL_Trylock(&made));
#if !GASNET_SEQ
    CHECK_EQ(gex_HSL_Trylock(&made), GASNET_ERR_NOT_READY);
#endif
    gex_HSL_Unlock(&made);
    expected = (long)t_size * 300;
#if GASNET_SEQ
    at = 0;
    (void)at;
#else
    {
        pthread_t threads[4];
        for (at = 0; at < 4; at++) CHECK(pthread_create(&threads[at], NULL, contend, NULL) == 0);
#endif
        for (round = 0; round < 300; round++)
            for (to = 0; to < t_size; to++) OK(gex_AM_RequestShort0(t_tm, to, 200, 0));
        GASNET_BLOCKUNTIL(replies_seen == expected);
#if !GASNET_SEQ
        for (at = 0; at < 4; at++) CHECK(pthread_join(threads[at], NULL) == 0);
        expected += 80000;
    }
#endif
    t_barrier();
    CHECK_EQ(counter, expected);
    gex_HSL_Destroy(&made);
    t_pass();
    return 1;
}
