/* Negotiated payload: library and client buffers, every number of arguments, cancel, immediate, both categories. */
#include "counts.h"
#include "t.h"

#define ROOM ((size_t)1 << 17)
#define FIRST(M) ((gex_AM_Index_t)(GEX_AM_INDEX_BASE + 4 * (M)))
static int medium_replies, long_replies;
static char **bases;

static int32_t value(int at)
{
    return 1000003 * (at + 1);
}

static char *landing(gex_Rank_t at, gex_Rank_t from, int reply)
{
    return bases[at] + (2 * from + (unsigned)reply) * ROOM;
}

static gex_Rank_t source_of(gex_Token_t token)
{
    gex_Token_Info_t info;
    CHECK(gex_Token_Info(token, &info, GEX_TI_SRCRANK) & GEX_TI_SRCRANK);
    return info.gex_srcrank;
}

static void check(int count, const gex_AM_Arg_t *args, const void *data, size_t bytes, uint32_t key)
{
    int at;
    for (at = 0; at < count; at++) CHECK_EQ(args[at], value(at));
    CHECK(t_same(data, key, bytes));
}

/* A reply that was cancelled gives the right to reply back. */
#define HANDLERS(M)                                                                                                   \
    static void medium_request##M(gex_Token_t token, void *data, size_t bytes P##M)                                  \
    {                                                                                                                \
        const gex_AM_Arg_t args[] = {0 U##M};                                                                        \
        size_t size;                                                                                                 \
        gex_AM_SrcDesc_t sd;                                                                                         \
        check(M, args + 1, data, bytes, M);                                                                          \
        sd = gex_AM_PrepareReplyMedium(token, NULL, 1, 64, NULL, 0, 3);                                              \
        CHECK(sd != GEX_AM_SRCDESC_NO_OP);                                                                           \
        OK(gex_AM_CancelReplyMedium(sd, 0));                                                                         \
        sd = gex_AM_PrepareReplyMedium(token, NULL, bytes, bytes + 100000, NULL, 0, M);                              \
        CHECK(sd != GEX_AM_SRCDESC_NO_OP);                                                                           \
        size = gex_AM_SrcDescSize(sd);                                                                               \
        CHECK(size >= bytes && size <= bytes + 100000 && (uintptr_t)gex_AM_SrcDescAddr(sd) % 8 == 0);                \
        t_fill(gex_AM_SrcDescAddr(sd), M + 50, bytes);                                                               \
        if (M % 3 == 0) gex_AM_CommitReplyMedium##M(sd, FIRST(M) + 1, bytes U##M);                                   \
        else if (M % 3 == 1) gex_AM_CommitReplyMedium(sd, FIRST(M) + 1, bytes U##M);                                 \
        else OK(gex_AM_CommitReplyMedium##M##_v2(sd, FIRST(M) + 1, bytes, 0 U##M));                                  \
    }                                                                                                                \
    static void medium_reply##M(gex_Token_t token, void *data, size_t bytes P##M)                                    \
    {                                                                                                                \
        const gex_AM_Arg_t args[] = {0 U##M};                                                                        \
        (void)token;                                                                                                 \
        check(M, args + 1, data, bytes, M + 50);                                                                     \
        medium_replies++;                                                                                            \
    }                                                                                                                \
    static void long_request##M(gex_Token_t token, void *data, size_t bytes P##M)                                    \
    {                                                                                                                \
        const gex_AM_Arg_t args[] = {0 U##M};                                                                        \
        static unsigned char source[ROOM];                                                                           \
        gex_Rank_t from = source_of(token);                                                                          \
        char *to = landing(from, t_rank, 1);                                                                         \
        gex_AM_SrcDesc_t sd;                                                                                         \
        CHECK((char *)data == landing(t_rank, from, 0));                                                             \
        check(M, args + 1, data, bytes, M + 100);                                                                    \
        t_fill(source, M + 150, bytes);                                                                              \
        sd = gex_AM_PrepareReplyLong(token, source, bytes, bytes, M % 2 ? to : NULL, GEX_EVENT_NOW, 0, M);           \
        CHECK(sd != GEX_AM_SRCDESC_NO_OP && gex_AM_SrcDescAddr(sd) == source);                                       \
        CHECK_EQ(gex_AM_SrcDescSize(sd), bytes);                                                                     \
        if (M % 3 == 0) gex_AM_CommitReplyLong##M(sd, FIRST(M) + 3, bytes, to U##M);                                 \
        else if (M % 3 == 1) gex_AM_CommitReplyLong(sd, FIRST(M) + 3, bytes, to U##M);                               \
        else OK(gex_AM_CommitReplyLong_v2(sd, FIRST(M) + 3, bytes, to, 0 U##M));                                     \
    }                                                                                                                \
    static void long_reply##M(gex_Token_t token, void *data, size_t bytes P##M)                                      \
    {                                                                                                                \
        const gex_AM_Arg_t args[] = {0 U##M};                                                                        \
        CHECK((char *)data == landing(t_rank, source_of(token), 1));                                                 \
        check(M, args + 1, data, bytes, M + 150);                                                                    \
        long_replies++;                                                                                              \
    }
EACH(HANDLERS)

#define REGISTER(M)                                                                                                   \
    {                                                                                                                \
        gex_AM_Entry_t table[4];                                                                                     \
        gex_Flags_t request = GEX_FLAG_AM_REQUEST, reply = GEX_FLAG_AM_REPLY;                                        \
        table[0] = t_entry(FIRST(M), (gex_AM_Fn_t)medium_request##M, GEX_FLAG_AM_MEDIUM | request, M);               \
        table[1] = t_entry(FIRST(M) + 1, (gex_AM_Fn_t)medium_reply##M, GEX_FLAG_AM_MEDIUM | reply, M);               \
        table[2] = t_entry(FIRST(M) + 2, (gex_AM_Fn_t)long_request##M, GEX_FLAG_AM_LONG | request, M);               \
        table[3] = t_entry(FIRST(M) + 3, (gex_AM_Fn_t)long_reply##M, GEX_FLAG_AM_LONG | reply, M);                   \
        OK(gex_EP_RegisterHandlers(t_ep, table, 4));                                                                 \
    }

static unsigned char source[ROOM];
static int expected;

#define MEDIUM(M)                                                                                                     \
    {                                                                                                                \
        gex_AM_SrcDesc_t sd;                                                                                         \
        if (own) {                                                                                                   \
            t_fill(source, M, bytes);                                                                                \
            sd = gex_AM_PrepareRequestMedium(t_tm, to, source, bytes, bytes, GEX_EVENT_NOW, 0, M);                   \
            CHECK(sd != GEX_AM_SRCDESC_NO_OP && gex_AM_SrcDescAddr(sd) == source);                                   \
            gex_AM_CommitRequestMedium##M(sd, FIRST(M), bytes V##M);                                                 \
            memset(source, 0, bytes);                                                                                \
        } else {                                                                                                     \
            while ((sd = gex_AM_PrepareRequestMedium(t_tm, to, NULL, bytes, bytes + 9999, NULL, GEX_FLAG_IMMEDIATE,  \
                                                     M)) == GEX_AM_SRCDESC_NO_OP)                                    \
                OK(gasnet_AMPoll());                                                                                 \
            CHECK(gex_AM_SrcDescSize(sd) >= bytes && gex_AM_SrcDescSize(sd) <= bytes + 9999);                        \
            t_fill(gex_AM_SrcDescAddr(sd), M, bytes);                                                                \
            OK(gex_AM_CommitRequestMedium_v2(sd, FIRST(M), bytes, 0 V##M));                                          \
        }                                                                                                            \
    }

#define LONG(M)                                                                                                       \
    {                                                                                                                \
        gex_AM_SrcDesc_t sd;                                                                                         \
        char *there = landing(to, t_rank, 0);                                                                        \
        sd = gex_AM_PrepareRequestLong(t_tm, to, NULL, 8, 100, NULL, NULL, 0, 2);                                    \
        CHECK(sd != GEX_AM_SRCDESC_NO_OP);                                                                           \
        OK(gex_AM_CancelRequestLong(sd, 0));                                                                         \
        if (own) {                                                                                                   \
            gex_Event_t event = GEX_EVENT_INVALID;                                                                   \
            t_fill(source, M + 100, bytes);                                                                          \
            sd = gex_AM_PrepareRequestLong(t_tm, to, source, bytes, bytes, there, &event, 0, M);                     \
            CHECK(sd != GEX_AM_SRCDESC_NO_OP);                                                                       \
            OK(gex_AM_CommitRequestLong##M##_v2(sd, FIRST(M) + 2, bytes, there, 0 V##M));                            \
            gex_Event_Wait(event);                                                                                   \
        } else {                                                                                                     \
            sd = gex_AM_PrepareRequestLong(t_tm, to, NULL, bytes, bytes, NULL, NULL, 0, M);                          \
            CHECK(sd != GEX_AM_SRCDESC_NO_OP);                                                                       \
            t_fill(gex_AM_SrcDescAddr(sd), M + 100, bytes);                                                          \
            if (M % 2) gex_AM_CommitRequestLong##M(sd, FIRST(M) + 2, bytes, there V##M);                             \
            else gex_AM_CommitRequestLong(sd, FIRST(M) + 2, bytes, there V##M);                                      \
        }                                                                                                            \
    }

#define BOTH(M)                                                                                                       \
    {                                                                                                                \
        expected++;                                                                                                  \
        MEDIUM(M)                                                                                                    \
        GASNET_BLOCKUNTIL(medium_replies == expected);                                                               \
        LONG(M)                                                                                                      \
        GASNET_BLOCKUNTIL(long_replies == expected);                                                                 \
    }

static void exchange(gex_Rank_t to, size_t bytes, int own)
{
    EACH(BOTH)
}

/* Nothing is sent by what was cancelled, and buffers come back: far more than there can be. */
static void cancelled(void)
{
    int round;
    for (round = 0; round < 2000; round++) {
        gex_AM_SrcDesc_t sd = gex_AM_PrepareRequestMedium(t_tm, (t_rank + 1) % t_size, NULL, 100, 4000, NULL, 0, 1);
        CHECK(sd != GEX_AM_SRCDESC_NO_OP);
        memset(gex_AM_SrcDescAddr(sd), 1, 100);
        OK(gex_AM_CancelRequestMedium(sd, 0));
    }
}

static int forgotten_replies;

static void forget_request(gex_Token_t token)
{
    CHECK(gex_AM_PrepareReplyMedium(token, NULL, 100, 4000, NULL, GEX_FLAG_IMMEDIATE, 1) != GEX_AM_SRCDESC_NO_OP);
    forgotten_replies++;
}

/* The same of replies that their handlers neither sent nor cancelled. */
static void forgotten(void)
{
    const gex_AM_Index_t handler = GEX_AM_INDEX_BASE + 100;
    gex_AM_Entry_t entry =
        t_entry(handler, (gex_AM_Fn_t)forget_request, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 0);
    int round;
    OK(gex_EP_RegisterHandlers(t_ep, &entry, 1));
    for (round = 1; round <= 2000; round++) {
        OK(gex_AM_RequestShort0(t_tm, t_rank, handler, 0));
        GASNET_BLOCKUNTIL(forgotten_replies == round);
    }
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {0, 1, 8, 100, 4096, 60000};
    unsigned at;
    gex_Rank_t to;
    t_join("am_negotiated", &argc, &argv);
    EACH(REGISTER)
    t_attach(2 * ROOM * t_size);
    bases = (char **)malloc(t_size * sizeof *bases);
    for (to = 0; to < t_size; to++) bases[to] = t_base(to, NULL);
    t_barrier();
    for (to = 0; to < t_size; to++)
        for (at = 0; at < sizeof sizes / sizeof *sizes; at++) {
            exchange(to, sizes[at], 0);
            exchange(to, sizes[at], 1);
        }
    cancelled();
    forgotten();
    t_pass();
    return 1;
}
