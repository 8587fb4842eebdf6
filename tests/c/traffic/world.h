/* What a rank of the random traffic knows: its part of every segment as it must be there, and what is under way.
 *
 * Each thread of each rank owns a slot and some words in every segment, and writes nothing else there but the words that
 * all share. So it knows what its puts leave and its gets bring. What is under way and touches the same bytes is waited
 * for first. */
#ifndef TESTS_C_TRAFFIC_WORLD_H
#define TESTS_C_TRAFFIC_WORLD_H 1

#include <pthread.h>

#include <gasnet_coll.h>
#include <gasnet_ratomic.h>
#include <gasnet_vis.h>

#include "../t.h"

#if GASNET_PAR
#define THREADS 2
#else
#define THREADS 1
#endif
#define SLOT ((size_t)1 << 15)
/* Operations of a thread under way; so many of them use buffers in the own segment. */
#define FLIGHTS 16
#define STAGED 6
/* Long replies of a thread under way, and their room. */
#define ANSWERS 4
#define ANSWER ((size_t)2048)
/* Words of a thread in a segment, and words that all share; 8 bytes each, whatever their type. */
#define WORDS 12
#define MOST_RANKS 16

enum { PUT, GET, LONG, WORD };
/* Ways to complete. */
enum { EVENT, IMPLICIT, REGION, REPLY };

struct flight {
    int used, kind, how;
    gex_EC_t category;
    gex_Event_t event;
    gex_Rank_t to;
    /* Bytes of the slot there; words are behind it. */
    size_t from, end;
    /* Sources and results; what a result must be; its bytes. */
    unsigned char *buffer, *want;
    size_t length;
};

struct worker {
    int number;
    uint32_t state;
    struct flight flights[FLIGHTS];
    unsigned char *slots[MOST_RANKS];
    uint64_t words[MOST_RANKS][WORDS];
    /* What this thread added to the words that all share. */
    uint64_t sums[MOST_RANKS][WORDS];
    /* Whether an access region is open; one that is closed has an event. */
    int open, closed;
    gex_Event_t region;
    unsigned answers; /* rooms in use */
    uint64_t operations, asked, sent[MOST_RANKS], told[MOST_RANKS];
};

static struct worker workers[THREADS];
static char *bases[MOST_RANKS];
static unsigned char *pool;
#define POOL (3 * SLOT)
/* Teams of the phase; the first is that of all ranks. */
#define TEAMS 4
static gex_TM_t teams[TEAMS];
static int team_count;

static size_t below(struct worker *w, size_t most)
{
    return t_random(&w->state) % most;
}

static size_t slot_at(gex_Rank_t owner, int thread)
{
    return (owner * THREADS + (size_t)thread) * SLOT;
}

static size_t stage_at(int thread)
{
    return slot_at(t_size, 0) + (size_t)thread * STAGED * SLOT;
}

static size_t answer_at(int thread, unsigned room)
{
    return stage_at(THREADS) + ((size_t)thread * ANSWERS + room) * ANSWER;
}

static size_t words_at(gex_Rank_t owner, int thread)
{
    return answer_at(THREADS, 0) + (owner * THREADS + (size_t)thread) * WORDS * 8;
}

/* All share those of an owner that is none. */
static size_t shared_at(void)
{
    return words_at(t_size, 0);
}

static char *slot_of(struct worker *w, gex_Rank_t to)
{
    return bases[to] + slot_at(t_rank, w->number);
}

/* Mostly small, seldom as large as a slot. */
static size_t some_length(struct worker *w, size_t most)
{
    size_t kind = below(w, 100), length;
    length = below(w, kind < 60 ? 65 : kind < 90 ? 1025 : kind < 99 ? 8193 : SLOT + 1);
    return length < most ? length : most;
}

static void land(struct flight *f)
{
    f->used = 0;
    if (f->length > 0 && memcmp(f->buffer, f->want, f->length) != 0) {
        size_t at = 0;
        while (f->buffer[at] == f->want[at]) at++;
        FAIL("kind %d way %d with rank %u, bytes %zu to %zu there: of %zu bytes number %zu is %d, not %d", f->kind,
             f->how, (unsigned)f->to, f->from, f->end, f->length, at, f->buffer[at], f->want[at]);
    }
}

static int answered[THREADS][FLIGHTS];

/* Waits for one operation, and for those that are waited for together with it. */
static void finish(struct worker *w, struct flight *f)
{
    int at, how = f->how;
    gex_EC_t mask = below(w, 2) ? (gex_EC_t)GEX_EC_ALL : f->category;
    switch (how) {
    case EVENT:
        if (below(w, 2)) gex_Event_Wait(f->event);
        else
            while (gex_Event_Test(f->event) != GASNET_OK) OK(gasnet_AMPoll());
        land(f);
        return;
    case REPLY:
        GASNET_BLOCKUNTIL(__atomic_load_n(&answered[w->number][f - w->flights], __ATOMIC_ACQUIRE));
        land(f);
        return;
    case IMPLICIT:
        if (below(w, 2)) gex_NBI_Wait(mask, 0);
        else
            while (gex_NBI_Test(mask, 0) != GASNET_OK) OK(gasnet_AMPoll());
        break;
    default:
        gex_Event_Wait(w->region);
        w->closed = 0;
        mask = (gex_EC_t)GEX_EC_ALL;
    }
    for (at = 0; at < FLIGHTS; at++) {
        f = &w->flights[at];
        if (f->used && f->how == how && (f->category & mask) == f->category) land(f);
    }
}

static void close_region(struct worker *w)
{
    w->region = gex_NBI_EndAccessRegion(0);
    w->open = 0;
    w->closed = 1;
}

static void finish_all(struct worker *w)
{
    int at;
    if (w->open) close_region(w);
    for (at = 0; at < FLIGHTS; at++)
        if (w->flights[at].used) finish(w, &w->flights[at]);
    if (w->closed) gex_Event_Wait(w->region);
    w->closed = 0;
}

/* A free entry; waits when there is none, which an open region forbids for its own operations. */
static struct flight *take(struct worker *w)
{
    size_t at, first = below(w, FLIGHTS);
    struct flight *f;
    for (at = 0; at < FLIGHTS; at++) {
        f = &w->flights[(first + at) % FLIGHTS];
        if (!f->used) return f;
    }
    if (w->open) close_region(w);
    f = &w->flights[first];
    finish(w, f);
    return f;
}

/* Makes these bytes free of what is under way and would interfere; whether it could. */
static int clear(struct worker *w, gex_Rank_t to, size_t from, size_t end, int writes)
{
    int at;
    for (at = 0; at < FLIGHTS; at++) {
        struct flight *f = &w->flights[at];
        if (!f->used || f->to != to || f->end <= from || end <= f->from || (!writes && f->kind == GET)) continue;
        if (w->open) return 0;
        finish(w, f);
    }
    return 1;
}

static void book(struct flight *f, int kind, int how, gex_Rank_t to, size_t from, size_t end)
{
    f->used = 1;
    f->kind = kind;
    f->how = how;
    f->to = to;
    f->from = from;
    f->end = end;
    f->length = 0;
    f->category = kind == PUT ? GEX_EC_PUT : kind == GET ? GEX_EC_GET : GEX_EC_RMW;
}

/* How an operation may be started now: what an open region takes is its own. */
static int some_way(struct worker *w)
{
    return w->open ? REGION : below(w, 2) ? EVENT : IMPLICIT;
}

/* A name of that rank: in the team of all, of some, or by a pair. */
static gex_TM_t name_of(struct worker *w, gex_Rank_t *rank)
{
    size_t which = below(w, 10);
    gex_TM_t tm = teams[which % (size_t)team_count];
    gex_Rank_t there;
    if (which == 9) return gex_TM_Pair(t_ep, 0);
    if (which < 4 || tm == t_tm) return t_tm;
    there = gex_TM_TranslateJobrankToRank(tm, *rank);
    if (there == GEX_RANK_INVALID) return t_tm;
    *rank = there;
    return tm;
}

#endif
