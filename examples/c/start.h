/* What the larger examples share: start with a segment, messages about failures, addresses of all segments. */
#ifndef START_H
#define START_H

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gasnetex.h>

static gex_EP_t endpoint;
static gex_TM_t team;
static gex_Rank_t rank, size;

/* One line on standard error, then the end of the whole job. */
__attribute__((__noreturn__, __format__(__printf__, 1, 2))) static void fail(const char *format, ...)
{
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    fprintf(stderr, "rank %u: %s\n", (unsigned)rank, text);
    gasnet_exit(1);
    abort();
}

#define OK(call)                                                                                                     \
    do {                                                                                                             \
        int ok_code = (call);                                                                                        \
        if (ok_code != GASNET_OK) fail("%s: %s", #call, gasnet_ErrorDesc(ok_code));                                  \
    } while (0)

/* Memory that is there, or the end. */
static inline void *checked(void *memory)
{
    if (!memory) fail("out of memory");
    return memory;
}

static inline void barrier(void)
{
    gex_Event_Wait(gex_Coll_BarrierNB(team, 0));
}

/* Joins the job. Called by all ranks, once. */
static inline void join_job(const char *name, int *argc, char ***argv)
{
    gex_Client_t client;
    OK(gex_Client_Init(&client, &endpoint, &team, name, argc, argv, 0));
    rank = gex_TM_QueryRank(team);
    size = gex_TM_QuerySize(team);
    /* Kind to machines with fewer processors than ranks: spin a little, then sleep. */
    OK(gasnet_set_waitmode(GASNET_WAIT_SPINBLOCK));
}

/* Gives this rank a segment of at least `bytes`; returns its start. Called by all ranks. */
static inline void *attach(size_t bytes)
{
    gex_Segment_t segment;
    uintptr_t pages = (bytes + GASNET_PAGESIZE - 1) / GASNET_PAGESIZE;
    if (pages == 0) pages = 1;
    OK(gex_Segment_Attach(&segment, team, pages * GASNET_PAGESIZE));
    return gex_Segment_QueryAddr(segment);
}

/* Start of another rank's segment, an address for puts and gets to it. After attach(). */
static inline void *segment_of(gex_Rank_t other)
{
    void *start = NULL;
    uintptr_t bytes = 0;
    gex_Event_Wait(gex_EP_QueryBoundSegmentNB(team, other, &start, NULL, &bytes, 0));
    if (!start) fail("rank %u has no segment", (unsigned)other);
    return start;
}

/* The end, together: output of all ranks is out before the first one leaves. */
__attribute__((__noreturn__)) static inline void leave(int code)
{
    fflush(NULL);
    barrier();
    gasnet_exit(code);
    abort();
}

#endif
