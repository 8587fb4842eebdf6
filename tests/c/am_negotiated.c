/* Negotiated payload: library and client buffers, every number of arguments, cancel, immediate, both categories. */
#include "t.h"

#define P0
#define P1 P0, gex_AM_Arg_t a0
#define P2 P1, gex_AM_Arg_t a1
#define P3 P2, gex_AM_Arg_t a2
#define P4 P3, gex_AM_Arg_t a3
#define P5 P4, gex_AM_Arg_t a4
#define P6 P5, gex_AM_Arg_t a5
#define P7 P6, gex_AM_Arg_t a6
#define P8 P7, gex_AM_Arg_t a7
#define P9 P8, gex_AM_Arg_t a8
#define P10 P9, gex_AM_Arg_t a9
#define P11 P10, gex_AM_Arg_t a10
#define P12 P11, gex_AM_Arg_t a11
#define P13 P12, gex_AM_Arg_t a12
#define P14 P13, gex_AM_Arg_t a13
#define P15 P14, gex_AM_Arg_t a14
#define P16 P15, gex_AM_Arg_t a15
#define V0
#define V1 V0, value(0)
#define V2 V1, value(1)
#define V3 V2, value(2)
#define V4 V3, value(3)
#define V5 V4, value(4)
#define V6 V5, value(5)
#define V7 V6, value(6)
#define V8 V7, value(7)
#define V9 V8, value(8)
#define V10 V9, value(9)
#define V11 V10, value(10)
#define V12 V11, value(11)
#define V13 V12, value(12)
#define V14 V13, value(13)
#define V15 V14, value(14)
#define V16 V15, value(15)
#define U0
#define U1 U0, a0
#define U2 U1, a1
#define U3 U2, a2
#define U4 U3, a3
#define U5 U4, a4
#define U6 U5, a5
#define U7 U6, a6
#define U8 U7, a7
#define U9 U8, a8
#define U10 U9, a9
#define U11 U10, a10
#define U12 U11, a11
#define U13 U12, a12
#define U14 U13, a13
#define U15 U14, a14
#define U16 U15, a15
#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) \
    X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16)

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
    t_pass();
    return 1;
}
