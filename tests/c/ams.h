/* Every category with every number of arguments, as request and as reply: handlers that check what arrives and answer,
 * and functions that send. The handler of number M of a category has the index FIRST(M) + category. */
#ifndef TESTS_C_AMS_H
#define TESTS_C_AMS_H 1

#include "counts.h"
#include "t.h"

enum { SHORT, MEDIUM, LONG, CATEGORIES };
/* Threads of a rank that send, each to a room of its own; a program may say more. */
#ifndef AMS_THREADS
#define AMS_THREADS 1
#endif
/* Room of one Long in a segment; each pair of ranks has one for requests and one for replies, for each thread. */
#ifndef ROOM
#define ROOM ((size_t)1 << 18)
#endif
#define FIRST(M) ((gex_AM_Index_t)(GEX_AM_INDEX_BASE + 6 * (M)))

static int replies[CATEGORIES], requests;
static __thread unsigned char answer[ROOM];
static char **bases;
static int32_t seed;

/* Argument number `at` of a message. Uses the whole word. */
static int32_t value(int at)
{
    return (int32_t)((uint32_t)seed * 2654435761U + (uint32_t)at * 0x9e3779b9U);
}

static uint32_t key_of(gex_Rank_t from, int category, size_t bytes, int reply)
{
    return (uint32_t)(from * 64 + (unsigned)category * 2 + (unsigned)reply) * 7919U + (uint32_t)bytes;
}

static char *landing(gex_Rank_t at, gex_Rank_t from, int thread, int reply)
{
    return bases[at] + (2 * (from * AMS_THREADS + (unsigned)thread) + (unsigned)reply) * ROOM;
}

/* Thread whose room a Long of that rank came to. */
static int thread_of(gex_Rank_t from, int reply, const void *data)
{
    size_t at = (size_t)((const char *)data - landing(t_rank, from, 0, reply));
    CHECK(at % (2 * ROOM) == 0 && at / (2 * ROOM) < AMS_THREADS);
    return (int)(at / (2 * ROOM));
}

/* Handlers run on several threads at once. */
static int add_one(int *to)
{
    return __atomic_fetch_add(to, 1, __ATOMIC_ACQ_REL);
}

/* Checks a message; returns who sent it. */
static gex_Rank_t arrived(gex_Token_t token, void *data, size_t bytes, int category, int reply, int count,
                          const gex_AM_Arg_t *args)
{
    gex_Token_Info_t info;
    gex_TI_t got = gex_Token_Info(token, &info, GEX_TI_ALL);
    int at;
    CHECK((got & GEX_TI_ALL) == GEX_TI_ALL);
    CHECK(info.gex_srcrank < t_size && info.gex_ep == t_ep);
    CHECK_EQ(info.gex_is_req, !reply);
    CHECK_EQ(info.gex_is_long, category == LONG);
    CHECK_EQ(info.gex_entry->gex_index, FIRST(count) + category + 3 * reply);
    CHECK_EQ(info.gex_entry->gex_nargs, count);
    /* The first argument names the rest. */
    for (at = 1; at < count; at++)
        CHECK_EQ((uint32_t)args[at] - (uint32_t)args[0], (uint32_t)at * 0x9e3779b9U);
    if (category == SHORT) return info.gex_srcrank;
    CHECK(t_same(data, key_of(info.gex_srcrank, category, bytes, reply), bytes));
    if (category == LONG) {
        (void)thread_of(info.gex_srcrank, reply, data);
    } else {
        CHECK((uintptr_t)data % 8 == 0);
        memset(data, 0x3c, bytes); /* ours until we return */
    }
    return info.gex_srcrank;
}

static const void *answer_for(gex_Rank_t to, int category, size_t bytes)
{
    (void)to;
    t_fill(answer, key_of(t_rank, category, bytes, 1), bytes);
    return answer;
}

#define HANDLERS(M)                                                                                                  \
    static void short_request##M(gex_Token_t token P##M)                                                             \
    {                                                                                                                \
        const gex_AM_Arg_t args[] = {0 U##M};                                                                        \
        (void)arrived(token, NULL, 0, SHORT, 0, M, args + 1);                                                        \
        if (add_one(&requests) % 2) OK(gex_AM_ReplyShort##M(token, FIRST(M) + 3, 0 U##M));                           \
        else OK(gex_AM_ReplyShort(token, FIRST(M) + 3, 0 U##M));                                                     \
    }                                                                                                                \
    static void short_reply##M(gex_Token_t token P##M)                                                               \
    {                                                                                                                \
        const gex_AM_Arg_t args[] = {0 U##M};                                                                        \
        (void)arrived(token, NULL, 0, SHORT, 1, M, args + 1);                                                        \
        if (M > 0) CHECK_EQ(args[1], value(0));                                                                      \
        (void)add_one(&replies[SHORT]);                                                                              \
    }                                                                                                                \
    static void medium_request##M(gex_Token_t token, void *data, size_t bytes P##M)                                  \
    {                                                                                                                \
        const gex_AM_Arg_t args[] = {0 U##M};                                                                        \
        gex_Rank_t from = arrived(token, data, bytes, MEDIUM, 0, M, args + 1);                                       \
        const void *source = answer_for(from, MEDIUM, bytes);                                                        \
        if (add_one(&requests) % 2) {                                                                                \
            memcpy(data, source, bytes); /* a reply may be sent from the handler's own buffer */                     \
            OK(gex_AM_ReplyMedium##M(token, FIRST(M) + 4, data, bytes, GEX_EVENT_NOW, 0 U##M));                      \
        } else OK(gex_AM_ReplyMedium(token, FIRST(M) + 4, source, bytes, GEX_EVENT_NOW, 0 U##M));                    \
    }                                                                                                                \
    static void medium_reply##M(gex_Token_t token, void *data, size_t bytes P##M)                                    \
    {                                                                                                                \
        const gex_AM_Arg_t args[] = {0 U##M};                                                                        \
        (void)arrived(token, data, bytes, MEDIUM, 1, M, args + 1);                                                   \
        if (M > 0) CHECK_EQ(args[1], value(0));                                                                      \
        (void)add_one(&replies[MEDIUM]);                                                                             \
    }                                                                                                                \
    static void long_request##M(gex_Token_t token, void *data, size_t bytes P##M)                                    \
    {                                                                                                                \
        const gex_AM_Arg_t args[] = {0 U##M};                                                                        \
        gex_Rank_t from = arrived(token, data, bytes, LONG, 0, M, args + 1);                                         \
        const void *source = answer_for(from, LONG, bytes);                                                          \
        char *to = landing(from, t_rank, thread_of(from, 0, data), 1);                                               \
        if (add_one(&requests) % 2)                                                                                  \
            OK(gex_AM_ReplyLong##M(token, FIRST(M) + 5, source, bytes, to, GEX_EVENT_NOW, 0 U##M));                  \
        else OK(gex_AM_ReplyLong(token, FIRST(M) + 5, source, bytes, to, GEX_EVENT_NOW, 0 U##M));                    \
    }                                                                                                                \
    static void long_reply##M(gex_Token_t token, void *data, size_t bytes P##M)                                      \
    {                                                                                                                \
        const gex_AM_Arg_t args[] = {0 U##M};                                                                        \
        (void)arrived(token, data, bytes, LONG, 1, M, args + 1);                                                     \
        if (M > 0) CHECK_EQ(args[1], value(0));                                                                      \
        (void)add_one(&replies[LONG]);                                                                               \
    }
EACH(HANDLERS)

#define REGISTER(M)                                                                                                  \
    {                                                                                                                \
        gex_AM_Entry_t table[6];                                                                                     \
        gex_Flags_t request = GEX_FLAG_AM_REQUEST, reply = GEX_FLAG_AM_REPLY;                                        \
        table[0] = t_entry(FIRST(M), (gex_AM_Fn_t)short_request##M, GEX_FLAG_AM_SHORT | request, M);                 \
        table[1] = t_entry(FIRST(M) + 1, (gex_AM_Fn_t)medium_request##M, GEX_FLAG_AM_MEDIUM | request, M);           \
        table[2] = t_entry(FIRST(M) + 2, (gex_AM_Fn_t)long_request##M, GEX_FLAG_AM_LONG | request, M);               \
        table[3] = t_entry(FIRST(M) + 3, (gex_AM_Fn_t)short_reply##M, GEX_FLAG_AM_SHORT | reply, M);                 \
        table[4] = t_entry(FIRST(M) + 4, (gex_AM_Fn_t)medium_reply##M, GEX_FLAG_AM_MEDIUM | reply, M);               \
        table[5] = t_entry(FIRST(M) + 5, (gex_AM_Fn_t)long_reply##M, GEX_FLAG_AM_LONG | reply, M);                   \
        OK(gex_EP_RegisterHandlers(t_ep, table, 6));                                                                 \
    }

/* Joins with segments and handlers in place on all ranks. */
static void ams_start(const char *name, int *argc, char ***argv)
{
    gex_Rank_t at;
    t_join(name, argc, argv);
    EACH(REGISTER)
    t_attach(2 * ROOM * AMS_THREADS * t_size);
    bases = (char **)malloc(t_size * sizeof *bases);
    for (at = 0; at < t_size; at++) bases[at] = t_base(at, NULL);
    t_barrier();
}

/* Sends one request; `bare` chooses the name without a number. `data` is not used again after the call. */
#define SEND(M)                                                                                                      \
    case M:                                                                                                          \
        if (category == SHORT) {                                                                                     \
            if (bare) OK(gex_AM_RequestShort(t_tm, to, FIRST(M), 0 V##M));                                           \
            else OK(gex_AM_RequestShort##M(t_tm, to, FIRST(M), 0 V##M));                                             \
        } else if (category == MEDIUM) {                                                                             \
            if (bare) OK(gex_AM_RequestMedium(t_tm, to, FIRST(M) + 1, data, bytes, GEX_EVENT_NOW, 0 V##M));          \
            else OK(gex_AM_RequestMedium##M(t_tm, to, FIRST(M) + 1, data, bytes, GEX_EVENT_NOW, 0 V##M));            \
        } else {                                                                                                     \
            if (bare) OK(gex_AM_RequestLong(t_tm, to, FIRST(M) + 2, data, bytes, place, GEX_EVENT_NOW, 0 V##M));     \
            else OK(gex_AM_RequestLong##M(t_tm, to, FIRST(M) + 2, data, bytes, place, GEX_EVENT_NOW, 0 V##M));       \
        }                                                                                                            \
        break;

static void ams_send(gex_Rank_t to, int thread, int category, int count, size_t bytes, int bare)
{
    static __thread unsigned char data[ROOM];
    char *place = landing(to, t_rank, thread, 0);
    if (category != SHORT) t_fill(data, key_of(t_rank, category, bytes, 0), bytes);
    switch (count) {
        EACH(SEND)
    }
    memset(data, 0x11, bytes < 64 ? bytes : 64);
}

static void ams_await(int category, int count)
{
    GASNET_BLOCKUNTIL(__atomic_load_n(&replies[category], __ATOMIC_ACQUIRE) == count);
}

#endif
