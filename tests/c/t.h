/* What the test programs share: start, checks with place and rank, tables, a deterministic sequence, the end. */
#ifndef TESTS_C_T_H
#define TESTS_C_T_H 1

#include <signal.h>
#include <stdarg.h>
#include <time.h>

#include <gasnetex.h>
#ifdef GASNET_SEGMENT_EVERYTHING
#include <gasnet_coll.h>
#endif

#define T_UNUSED __attribute__((__unused__))

static gex_Client_t t_client T_UNUSED;
static gex_EP_t t_ep T_UNUSED;
static gex_TM_t t_tm T_UNUSED;
static gex_Segment_t t_segment T_UNUSED;
static gex_Rank_t t_rank T_UNUSED, t_size T_UNUSED;
static const char *t_name T_UNUSED = "?";

/* One write, so that lines of several ranks do not mix. */
__attribute__((__format__(__printf__, 1, 2))) static T_UNUSED void t_say(const char *format, ...)
{
    char line[600];
    int used = snprintf(line, sizeof line, "%s: rank %u: ", t_name, (unsigned)t_rank);
    va_list list;
    va_start(list, format);
    used += vsnprintf(line + used, sizeof line - (size_t)used - 2, format, list);
    va_end(list);
    if (used > (int)sizeof line - 2) used = (int)sizeof line - 2;
    line[used++] = '\n';
    if (write(2, line, (size_t)used) < 0) return;
}

#define FAIL(...)                                                                                                    \
    do {                                                                                                             \
        t_say(__VA_ARGS__);                                                                                          \
        gasnet_exit(97);                                                                                             \
    } while (0)

#define CHECK(cond)                                                                                                  \
    do {                                                                                                             \
        if (!(cond)) FAIL("%s:%d: does not hold: %s", __FILE__, __LINE__, #cond);                                    \
    } while (0)

#define CHECK_EQ(got, expected)                                                                                      \
    do {                                                                                                             \
        long long t_got = (long long)(got), t_expected = (long long)(expected);                                      \
        if (t_got != t_expected)                                                                                     \
            FAIL("%s:%d: %s is %lld, not %lld", __FILE__, __LINE__, #got, t_got, t_expected);                        \
    } while (0)

#define OK(call) CHECK_EQ(call, GASNET_OK)

/* Joins the job without a segment. */
static T_UNUSED void t_join(const char *name, int *argc, char ***argv)
{
    int code;
    t_name = name;
    code = gex_Client_Init(&t_client, &t_ep, &t_tm, name, argc, argv, 0);
    if (code != GASNET_OK) {
        t_say("gex_Client_Init: %s", gasnet_ErrorName(code));
        exit(96);
    }
    t_rank = gex_TM_QueryRank(t_tm);
    t_size = gex_TM_QuerySize(t_tm);
    /* There are more ranks than processors in most of these tests. */
    OK(gasnet_set_waitmode(GASNET_WAIT_BLOCK));
}

#ifdef GASNET_SEGMENT_EVERYTHING
/* Without segments: memory of the allocator stands for one, and each rank tells where its own is. */
static void *t_bases[64] T_UNUSED;

static T_UNUSED void t_attach(uintptr_t bytes)
{
    gex_Rank_t rank;
    void *owner = &owner, *mine = calloc(1, bytes);
    uintptr_t size = 0;
    t_segment = (gex_Segment_t)&owner;
    OK(gex_Segment_Attach(&t_segment, t_tm, bytes));
    CHECK(t_segment == GEX_SEGMENT_INVALID && gex_EP_QuerySegment(t_ep) == GEX_SEGMENT_INVALID);
    gex_Event_Wait(gex_EP_QueryBoundSegmentNB(t_tm, t_size - 1, &owner, NULL, &size, 0));
    CHECK(owner == NULL && size == (uintptr_t)-1);
    CHECK(mine != NULL && t_size <= 64);
    for (rank = 0; rank < t_size; rank++)
        gex_Event_Wait(gex_Coll_BroadcastNB(t_tm, rank, &t_bases[rank], &mine, sizeof mine, 0));
}
#else
static T_UNUSED void t_attach(uintptr_t bytes)
{
    bytes = (bytes + GASNET_PAGESIZE - 1) / GASNET_PAGESIZE * GASNET_PAGESIZE;
    OK(gex_Segment_Attach(&t_segment, t_tm, bytes));
}
#endif

static T_UNUSED void t_start(const char *name, int *argc, char ***argv, uintptr_t bytes)
{
    t_join(name, argc, argv);
    t_attach(bytes);
}

static T_UNUSED void t_barrier(void)
{
    gex_Event_Wait(gex_Coll_BarrierNB(t_tm, 0));
}

/* First address of that rank's segment in its own address space, and here. */
static T_UNUSED char *t_base(gex_Rank_t rank, char **here)
{
#ifdef GASNET_SEGMENT_EVERYTHING
    if (here) *here = rank == t_rank ? (char *)t_bases[rank] : NULL;
    return (char *)t_bases[rank];
#else
    void *owner = NULL, *local = NULL;
    uintptr_t size = 0;
    gex_Event_Wait(gex_EP_QueryBoundSegmentNB(t_tm, rank, &owner, &local, &size, 0));
    CHECK(size > 0 && owner != NULL);
    if (here) *here = (char *)local;
    return (char *)owner;
#endif
}

static T_UNUSED gex_AM_Entry_t t_entry(gex_AM_Index_t index, gex_AM_Fn_t function, gex_Flags_t flags,
                                       unsigned int nargs)
{
    gex_AM_Entry_t entry;
    entry.gex_index = index;
    entry.gex_fnptr = function;
    entry.gex_flags = flags;
    entry.gex_nargs = nargs;
    entry.gex_cdata = NULL;
    entry.gex_name = NULL;
    return entry;
}

/* Byte `at` of the data number `key`. */
static T_UNUSED unsigned char t_byte(uint32_t key, size_t at)
{
    uint32_t word = key * 2654435761U + (uint32_t)at * 40503U;
    word ^= word >> 15;
    return (unsigned char)(word * 2246822519U >> 24);
}

static T_UNUSED void t_fill(void *to, uint32_t key, size_t bytes)
{
    size_t at;
    for (at = 0; at < bytes; at++) ((unsigned char *)to)[at] = t_byte(key, at);
}

static T_UNUSED int t_same(const void *data, uint32_t key, size_t bytes)
{
    size_t at;
    for (at = 0; at < bytes; at++)
        if (((const unsigned char *)data)[at] != t_byte(key, at)) return 0;
    return 1;
}

static T_UNUSED uint32_t t_random(uint32_t *state)
{
    *state = *state * 1664525U + 1013904223U;
    return *state >> 8;
}

/* All ranks are here: one line, and the end of the job. */
static T_UNUSED void t_pass(void)
{
    t_barrier();
    if (t_rank == 0) printf("PASS %s\n", t_name);
    t_barrier();
    gasnet_exit(0);
}

#endif
