/* The inline path of put and get: what it serves itself, byte for byte, and what it hands to the library. Queries before
 * and after init, and events that are complete. The library is played by stubs that count. */
#include <gasnet.h>

static int failures, calls;
static void check(int good, const char *what, int line)
{
    if (good) return;
    failures++;
    printf("line %d: %s\n", line, what);
}
#define CHECK(condition) check(condition, #condition, __LINE__)
/* The statement stays inline, or goes to the library once. */
#define INLINE(...)                                                                                                  \
    do {                                                                                                             \
        calls = 0;                                                                                                   \
        __VA_ARGS__;                                                                                                 \
        check(calls == 0, "inline: " #__VA_ARGS__, __LINE__);                                                        \
    } while (0)
#define LIBRARY(...)                                                                                                 \
    do {                                                                                                             \
        calls = 0;                                                                                                   \
        __VA_ARGS__;                                                                                                 \
        check(calls == 1, "library: " #__VA_ARGS__, __LINE__);                                                       \
    } while (0)

#define TM0 ((gex_TM_t)64)
#define EVENT ((gex_Event_t)128)
static const struct gexi_peer no_peer[1] = {{0, 0, 0, 0}};

GEXI_BEGIN_C
const int GEXI_ABI_NAME(gexi_requires) = 1;
struct gexi_world gexi_world = {1, GEXI_MODE_NUMBER, (gex_TM_t)2, 0, 0, no_peer, 0, 0, NULL, NULL, 0};
#define PUT_STUB(result, name, value, ...)                                                                           \
    result name(gex_TM_t tm, gex_Rank_t rank, __VA_ARGS__, size_t nbytes, gex_Flags_t flags)                         \
    {                                                                                                                \
        calls++;                                                                                                     \
        (void)tm, (void)rank, (void)nbytes, (void)flags;                                                             \
        return value;                                                                                                \
    }
int gexi_RMA_PutBlocking(gex_TM_t tm, gex_Rank_t rank, void *dest, const void *src, size_t n, gex_Flags_t flags)
{
    (void)tm, (void)rank, (void)dest, (void)src, (void)n, (void)flags;
    return ++calls;
}
int gexi_RMA_PutNBI(gex_TM_t tm, gex_Rank_t rank, void *dest, const void *src, size_t n, gex_Event_t *lc,
                    gex_Flags_t flags)
{
    (void)tm, (void)rank, (void)dest, (void)src, (void)n, (void)flags, (void)lc;
    return ++calls;
}
gex_Event_t gexi_RMA_PutNB(gex_TM_t tm, gex_Rank_t rank, void *dest, const void *src, size_t n, gex_Event_t *lc,
                           gex_Flags_t flags)
{
    (void)tm, (void)rank, (void)dest, (void)src, (void)n, (void)flags, (void)lc;
    calls++;
    return EVENT;
}
int gexi_RMA_GetBlocking(gex_TM_t tm, void *dest, gex_Rank_t rank, const void *src, size_t n, gex_Flags_t flags)
{
    (void)tm, (void)rank, (void)dest, (void)src, (void)n, (void)flags;
    return ++calls;
}
int gexi_RMA_GetNBI(gex_TM_t tm, void *dest, gex_Rank_t rank, const void *src, size_t n, gex_Flags_t flags)
{
    (void)tm, (void)rank, (void)dest, (void)src, (void)n, (void)flags;
    return ++calls;
}
gex_Event_t gexi_RMA_GetNB(gex_TM_t tm, void *dest, gex_Rank_t rank, const void *src, size_t n, gex_Flags_t flags)
{
    (void)tm, (void)rank, (void)dest, (void)src, (void)n, (void)flags;
    calls++;
    return EVENT;
}
gex_RMA_Value_t gexi_RMA_GetBlockingVal(gex_TM_t tm, gex_Rank_t rank, const void *src, size_t n, gex_Flags_t flags)
{
    (void)tm, (void)rank, (void)src, (void)n, (void)flags;
    calls++;
    return 99;
}
PUT_STUB(int, gexi_RMA_PutBlockingVal, ((void)dest, (void)value, 1), void *dest, gex_RMA_Value_t value)
PUT_STUB(int, gexi_RMA_PutNBIVal, ((void)dest, (void)value, 1), void *dest, gex_RMA_Value_t value)
PUT_STUB(gex_Event_t, gexi_RMA_PutNBVal, ((void)dest, (void)value, EVENT), void *dest, gex_RMA_Value_t value)
void gexi_RMA_Memset(gex_TM_t tm, gex_Rank_t rank, void *dest, int value, size_t n)
{
    (void)tm, (void)rank, (void)dest, (void)value, (void)n;
    calls++;
}
int gexi_Event_Test(gex_Event_t event)
{
    CHECK(event == EVENT);
    calls++;
    return GASNET_ERR_NOT_READY;
}
void gexi_Event_Wait(gex_Event_t event)
{
    CHECK(event == EVENT);
    calls++;
}
gex_Rank_t gexi_TM_QueryRank(gex_TM_t tm)
{
    (void)tm;
    return 1000 + (gex_Rank_t)++calls;
}
gex_Rank_t gexi_TM_QuerySize(gex_TM_t tm)
{
    (void)tm;
    return 1000 + (gex_Rank_t)++calls;
}
gex_Rank_t gexi_System_QueryJobRank(void)
{
    return 1000 + (gex_Rank_t)++calls;
}
gex_Rank_t gexi_System_QueryJobSize(void)
{
    return 1000 + (gex_Rank_t)++calls;
}
GEXI_END_C

/* Job of 6; this is rank 3; ranks 2 to 4 share memory, but 4 has no segment. */
#define SEGMENT 64
static unsigned char mine[SEGMENT], memory[SEGMENT + 8];
static unsigned char *const theirs = memory;
static volatile size_t two = 2; /* a number that no compiler knows */
#define FAR 0x700000000000 /* where rank 2 sees its segment */
static struct gexi_peer peers[3];

static unsigned char *far(size_t offset)
{
    return (unsigned char *)(FAR + offset);
}

__attribute__((__noinline__)) static void before_init(void)
{
    unsigned char word[8] = {0};
    LIBRARY(CHECK(gex_RMA_PutBlocking(TM0, 0, mine, word, 8, 0) == 1));
    LIBRARY((void)gex_RMA_PutBlocking(GEX_TM_INVALID, 0, mine, word, 8, 0));
    LIBRARY(CHECK(gex_TM_QueryRank(GEX_TM_INVALID) == 1001));
    LIBRARY(CHECK(gex_TM_QuerySize(TM0) == 1001));
    LIBRARY(CHECK(gex_System_QueryJobRank() == 1001));
    LIBRARY(CHECK(gex_System_QueryJobSize() == 1001));
}

__attribute__((__noinline__)) static void init(void)
{
    gexi_world.rank = 3;
    gexi_world.peers = peers;
    gexi_world.peer_first = 2;
    gexi_world.size = 6;
    gexi_world.tm0 = TM0;
}

__attribute__((__noinline__)) static void attach(void)
{
    peers[0].owner_base = (uintptr_t)FAR, peers[0].local_base = (uintptr_t)theirs, peers[0].size = SEGMENT;
    peers[1].owner_base = peers[1].local_base = (uintptr_t)mine, peers[1].size = SEGMENT;
    gexi_world.peer_count = 3;
}

static void queries(void)
{
    INLINE(CHECK(gex_TM_QueryRank(TM0) == 3 && gex_TM_QuerySize(TM0) == 6));
    INLINE(CHECK(gex_System_QueryJobRank() == 3 && gex_System_QueryJobSize() == 6));
    LIBRARY(CHECK(gex_TM_QueryRank((gex_TM_t)65) == 1001));
    LIBRARY(CHECK(gex_TM_QuerySize(GEX_TM_INVALID) == 1001));
}

/* Every offset and length, in the segment and over its end, through every form. */
static void ranges(void)
{
    unsigned char from[SEGMENT + 2], into[SEGMENT + 2];
    size_t offset, length, i;
    for (i = 0; i < sizeof(from); i++) from[i] = (unsigned char)(i + 1);
    for (offset = 0; offset <= SEGMENT + 1; offset++)
        for (length = 0; length <= SEGMENT + 2 - (offset > SEGMENT ? SEGMENT : offset); length++) {
            int inside = length > 0 && offset + length <= SEGMENT;
            memset(theirs, 0, SEGMENT);
            memset(into, 0, sizeof(into));
            calls = 0;
            (void)gex_RMA_PutBlocking(TM0, 2, far(offset), from, length, 0);
            CHECK(calls == !inside);
            for (i = 0; i < SEGMENT; i++)
                CHECK(theirs[i] == (inside && i >= offset && i < offset + length ? from[i - offset] : 0));
            calls = 0;
            (void)gex_RMA_GetBlocking(TM0, into, 2, far(offset), length, 0);
            CHECK(calls == !inside);
            for (i = 0; i < sizeof(into); i++) CHECK(into[i] == (inside && i < length ? from[i] : 0));
        }
    LIBRARY((void)gex_RMA_PutBlocking(TM0, 2, far(0) - 1, from, two, 0));
    LIBRARY((void)gex_RMA_PutBlocking(TM0, 2, far(SEGMENT - 32), from, 33, 0));
    LIBRARY((void)gex_RMA_PutBlocking(TM0, 2, far(8), from, SIZE_MAX, 0));
    LIBRARY((void)gex_RMA_PutBlocking(TM0, 2, far(8), from, SIZE_MAX - 7, 0));
}

/* Few bytes, a number that the compiler knows: not compared with the segment, so it goes beside it. */
__attribute__((__flatten__)) static void small(void)
{
#ifdef __OPTIMIZE__
    unsigned char from[2] = {1, 2}, into[2] = {0};
    INLINE((void)gex_RMA_PutBlocking(TM0, 2, far(SEGMENT), from, 2, 0));
    CHECK(theirs[SEGMENT] == 1 && theirs[SEGMENT + 1] == 2 && theirs[SEGMENT + 2] == 0);
    INLINE((void)gex_RMA_GetBlocking(TM0, into, 2, far(SEGMENT), 2, 0));
    CHECK(into[0] == 1 && into[1] == 2);
    INLINE(CHECK(gex_RMA_GetBlockingVal(TM0, 2, far(SEGMENT), 2, 0) == 0x201));
#endif
}

static void sides(void)
{
    unsigned char word[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    INLINE(CHECK(gex_RMA_PutBlocking(TM0, 3, mine + 8, word, 8, 0) == 0));
    CHECK(!memcmp(mine + 8, word, 8));
    LIBRARY((void)gex_RMA_PutBlocking(TM0, 4, mine, word, 8, 0)); /* no segment */
    LIBRARY((void)gex_RMA_PutBlocking(TM0, 4, NULL, word, 8, 0));
    LIBRARY((void)gex_RMA_PutBlocking(TM0, 1, mine, word, 8, 0)); /* below the neighbourhood */
    LIBRARY((void)gex_RMA_PutBlocking(TM0, 5, mine, word, 8, 0)); /* above it */
    LIBRARY((void)gex_RMA_PutBlocking(TM0, GEX_RANK_INVALID, mine, word, 8, 0));
    LIBRARY((void)gex_RMA_PutBlocking((gex_TM_t)65, 3, mine, word, 8, 0)); /* a pair */
    LIBRARY((void)gex_RMA_PutBlocking(TM0, 3, mine, NULL, 8, 0));
    LIBRARY((void)gex_RMA_GetBlocking(TM0, NULL, 3, mine, 8, 0));
    INLINE((void)gex_RMA_PutBlocking(TM0, 3, mine, word, 8, GEX_FLAG_IMMEDIATE | GEX_FLAG_PEER_NEVER_SELF));
    LIBRARY((void)gex_RMA_PutBlocking(TM0, 3, mine, word, 8, GEX_FLAG_PEER_NEVER_NBRHD));
    LIBRARY((void)gex_RMA_PutBlocking(TM0, 3, mine, word, 8, GEX_FLAG_PEER_SEG_OFFSET));
    LIBRARY((void)gex_RMA_PutBlocking(TM0, 3, mine, word, 8, 1U << 31));
}

static void forms(void)
{
    unsigned char word[8] = {1, 2, 3, 4, 5, 6, 7, 8}, back[8];
    gex_Event_t leaf = EVENT;
    INLINE(CHECK(gex_RMA_PutNB(TM0, 2, far(0), word, 8, GEX_EVENT_NOW, 0) == GEX_EVENT_INVALID));
    INLINE(CHECK(gex_RMA_PutNB(TM0, 2, far(0), word, 8, GEX_EVENT_DEFER, 0) == GEX_EVENT_INVALID));
    INLINE(CHECK(gex_RMA_PutNB(TM0, 2, far(0), word, 8, &leaf, 0) == GEX_EVENT_INVALID));
    CHECK(leaf == GEX_EVENT_INVALID && !memcmp(theirs, word, 8));
    LIBRARY(CHECK(gex_RMA_PutNB(TM0, 2, far(0), word, 8, GEX_EVENT_GROUP, 0) == EVENT));
    LIBRARY((void)gex_RMA_PutNB(TM0, 2, far(0), word, 8, NULL, 0));
    INLINE(CHECK(gex_RMA_PutNBI(TM0, 2, far(8), word, 8, GEX_EVENT_NOW, 0) == 0));
    INLINE(CHECK(gex_RMA_PutNBI(TM0, 2, far(8), word, 8, GEX_EVENT_DEFER, 0) == 0));
    INLINE(CHECK(gex_RMA_PutNBI(TM0, 2, far(8), word, 8, GEX_EVENT_GROUP, 0) == 0));
    CHECK(!memcmp(theirs + 8, word, 8));
    LIBRARY((void)gex_RMA_PutNBI(TM0, 2, far(8), word, 8, &leaf, 0));
    LIBRARY((void)gex_RMA_PutNBI(TM0, 2, far(8), word, 8, NULL, 0));
    INLINE(CHECK(gex_RMA_GetNB(TM0, back, 2, far(0), 8, 0) == GEX_EVENT_INVALID));
    CHECK(!memcmp(back, word, 8));
    INLINE(CHECK(gex_RMA_GetNBI(TM0, back, 2, far(8), 8, 0) == 0));
    CHECK(!memcmp(back, word, 8));
    INLINE(CHECK(gex_Event_Test(GEX_EVENT_INVALID) == GASNET_OK));
    INLINE(gex_Event_Wait(GEX_EVENT_INVALID));
    LIBRARY(CHECK(gex_Event_Test(EVENT) == GASNET_ERR_NOT_READY));
    LIBRARY(gex_Event_Wait(EVENT));
}

static void words(void)
{
    static const unsigned char value[8] = {0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0x81};
    const gex_RMA_Value_t number = UINT64_C(0x8123456789abcdef);
    size_t length, i;
    for (length = 1; length <= 8; length++) {
        gex_RMA_Value_t low = length == 8 ? number : number & ((UINT64_C(1) << (8 * length)) - 1);
        int form;
        for (form = 0; form < 3; form++) {
            memset(theirs, 0x55, SEGMENT);
            if (form == 0) INLINE(CHECK(gex_RMA_PutBlockingVal(TM0, 2, far(3), number, length, 0) == 0));
            if (form == 1) INLINE(CHECK(gex_RMA_PutNBIVal(TM0, 2, far(3), number, length, 0) == 0));
            if (form == 2) INLINE(CHECK(!gex_RMA_PutNBVal(TM0, 2, far(3), number, length, 0)));
            for (i = 0; i < SEGMENT; i++)
                CHECK(theirs[i] == (i >= 3 && i < 3 + length ? value[i - 3] : 0x55));
            INLINE(CHECK(gex_RMA_GetBlockingVal(TM0, 2, far(3), length, 0) == low));
        }
    }
    LIBRARY(CHECK(gex_RMA_PutBlockingVal(TM0, 2, far(0), 1, 9, 0) == 1));
    LIBRARY(CHECK(gex_RMA_PutNBIVal(TM0, 2, far(0), 1, 0, 0) == 1));
    LIBRARY(CHECK(gex_RMA_PutNBVal(TM0, 2, far(SEGMENT - 1), 1, two, 0) == EVENT));
    LIBRARY(CHECK(gex_RMA_GetBlockingVal(TM0, 5, far(0), 8, 0) == 99));
}

static void former(void)
{
    unsigned char word[8] = {1, 2, 3, 4, 5, 6, 7, 8}, back[8] = {0};
    INLINE(gasnet_put(2, far(16), word, 8));
    INLINE(gasnet_get(back, 2, far(16), 8));
    CHECK(!memcmp(back, word, 8));
    INLINE(gasnet_wait_syncnb(gasnet_put_nb_bulk(2, far(24), word, 8)));
    INLINE(gasnet_memset(2, far(16), 7, 8));
    CHECK(theirs[16] == 7 && theirs[23] == 7 && theirs[24] == 1);
    LIBRARY(gasnet_memset(5, far(16), 7, 8));
    INLINE(CHECK(gasnet_memset_nb(2, far(16), 9, 1) == GASNET_INVALID_HANDLE && theirs[16] == 9));
    INLINE(CHECK(gasnet_wait_syncnb_valget(gasnet_get_nb_val(2, far(16), 1)) == 9));
}

/* Apart, because the compiler may keep what it saw before attach: that is slow, and only that. */
__attribute__((__noinline__)) static void before_attach(void)
{
    unsigned char word[8] = {0};
    LIBRARY((void)gex_RMA_PutBlocking(TM0, 3, mine, word, 8, 0));
}

int main(void)
{
    before_init();
    init();
    before_attach();
    attach();
    queries();
    ranges();
    small();
    sides();
    forms();
    words();
    former();
    if (!failures) printf("reach: all hold\n");
    return failures ? 1 : 0;
}
