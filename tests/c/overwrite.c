/* A put whose source is the program's again on return: it is changed at once, and what arrives is what it was. With the argument
 * "apart" (no two ranks share memory) also which of them waited: GASNET_NONBULKPUT_BOUNCE_LIMIT. */
#include "t.h"
#include <gasnet.h>

/* Whatever the device takes with the request itself is free at once: this much with the software adapter, less with others. */
#define INLINE (68 << 10)
#define ROOM ((size_t)1 << 19)

enum { NB, NBI, OLD_NB, OLD_NBI, BLOCKING, WAYS };

static unsigned char outside[ROOM], back[ROOM];
static char *here, *there;
static int apart;
static size_t limit = 65536;
static long at_once, waited;

static void overwrite(int way, size_t bytes, int in_segment, gex_Rank_t to)
{
    void *source = in_segment ? (void *)here : (void *)outside;
    uint32_t key = (uint32_t)bytes * 16 + (uint32_t)way * 2 + (uint32_t)in_segment;
    char *dest = there + ROOM;
    gex_Event_t event = GEX_EVENT_INVALID;
    gasnet_handle_t old = GASNET_INVALID_HANDLE;
    t_fill(source, key, bytes);
    switch (way) {
    case NB: event = gex_RMA_PutNB(t_tm, to, dest, source, bytes, GEX_EVENT_NOW, 0); break;
    case NBI: OK(gex_RMA_PutNBI(t_tm, to, dest, source, bytes, GEX_EVENT_NOW, 0)); break;
    case OLD_NB: old = gasnet_put_nb(to, dest, source, bytes); break;
    case OLD_NBI: gasnet_put_nbi(to, dest, source, bytes); break;
    default: OK(gex_RMA_PutBlocking(t_tm, to, dest, source, bytes, 0)); break;
    }
    memset(source, 0xEE, bytes);
    if (way == NB && apart) {
        /* What was waited for has arrived too: there is one acknowledgement. */
        if (event == GEX_EVENT_INVALID) waited++;
        else at_once++;
        if (in_segment && bytes > INLINE) CHECK_EQ(event != GEX_EVENT_INVALID, bytes <= limit);
    }
    gex_Event_Wait(event);
    if (old != GASNET_INVALID_HANDLE) gasnet_wait_syncnb(old);
    gex_NBI_Wait(GEX_EC_ALL, 0);
    memset(back, 0, bytes);
    OK(gex_RMA_GetBlocking(t_tm, back, to, dest, bytes, 0));
    CHECK(t_same(back, key, bytes));
}

int main(int argc, char **argv)
{
    const char *text = getenv("GASNET_NONBULKPUT_BOUNCE_LIMIT");
    size_t sizes[16];
    int count = 0, at, way;
    gex_Rank_t to;
    t_start("overwrite", &argc, &argv, 2 * ROOM);
    apart = argc > 1 && strcmp(argv[1], "apart") == 0;
    if (text) limit = (size_t)atol(text);
    to = (t_rank + 1) % t_size;
    there = t_base(to, NULL);
    (void)t_base(t_rank, &here);
    for (at = -1; at <= 1; at++)
        if (limit + (size_t)at - 1 < ROOM - 1) sizes[count++] = limit + (size_t)at;
    if (2 * limit > 0 && 2 * limit <= ROOM) sizes[count++] = 2 * limit;
    sizes[count++] = 1;
    sizes[count++] = 8;
    sizes[count++] = INLINE;
    sizes[count++] = INLINE + 1;
    sizes[count++] = 4096;
    sizes[count++] = 65536;
    sizes[count++] = 65537;
    sizes[count++] = 200000;
    sizes[count++] = ROOM;
    for (at = 0; at < count; at++)
        for (way = 0; way < WAYS; way++) {
            overwrite(way, sizes[at], 0, to);
            overwrite(way, sizes[at], 1, to);
        }
    if (apart) printf("rank %u: %ld at once, %ld waited\n", (unsigned)t_rank, at_once, waited);
    fflush(stdout);
    t_pass();
    return 1;
}
