/* Puts and gets of all forms: contiguous, values, vector, indexed, strided. */
#ifndef TESTS_C_TRAFFIC_TRANSFERS_H
#define TESTS_C_TRAFFIC_TRANSFERS_H 1

#include "world.h"

/* Fills with data that no other put of this thread is likely to have. */
static void some_data(struct worker *w, unsigned char *to, size_t length)
{
    memcpy(to, pool + below(w, POOL - SLOT), length);
}

static void contiguous_put(struct worker *w, gex_Rank_t to)
{
    size_t length = some_length(w, SLOT), from = below(w, SLOT - length + 1), local = below(w, 3);
    struct flight *f;
    gex_Event_t done = GEX_EVENT_INVALID, *lc = local == 0 ? GEX_EVENT_NOW : GEX_EVENT_DEFER;
    gex_Flags_t flags = below(w, 8) ? 0 : GEX_FLAG_IMMEDIATE;
    gex_Rank_t rank = to;
    gex_TM_t tm = name_of(w, &rank);
    char *dest;
    int how;
    if (!clear(w, to, from, from + length, 1)) return;
    f = take(w);
    how = some_way(w);
    dest = slot_of(w, to) + from;
    some_data(w, f->buffer, length);
    w->operations++;
    if (!w->open && below(w, 4) == 0) {
        OK(gex_RMA_PutBlocking(tm, rank, dest, f->buffer, length, 0));
        memcpy(w->slots[to] + from, f->buffer, length);
        return;
    }
    if (how == EVENT) {
        if (local == 2) lc = &done;
        f->event = gex_RMA_PutNB(tm, rank, dest, f->buffer, length, lc, flags);
        if (f->event == GEX_EVENT_NO_OP) return;
    } else {
        if (local == 2) lc = GEX_EVENT_GROUP;
        if (gex_RMA_PutNBI(tm, rank, dest, f->buffer, length, lc, flags) != GASNET_OK) return;
    }
    memcpy(w->slots[to] + from, f->buffer, length);
    book(f, PUT, how, to, from, from + length);
    if (local == 2 && how == EVENT) gex_Event_Wait(done);
    else if (local == 2 && how == IMPLICIT && below(w, 2)) gex_NBI_Wait(GEX_EC_LC, 0);
    else if (local != 0) return;
    memset(f->buffer, 0x5c, length);
}

static void contiguous_get(struct worker *w, gex_Rank_t from_rank)
{
    size_t length = some_length(w, SLOT), from = below(w, SLOT - length + 1);
    struct flight *f;
    gex_Flags_t flags = below(w, 8) ? 0 : GEX_FLAG_IMMEDIATE;
    gex_Rank_t rank = from_rank;
    gex_TM_t tm = name_of(w, &rank);
    char *source;
    int how;
    if (!clear(w, from_rank, from, from + length, 0)) return;
    f = take(w);
    how = some_way(w);
    source = slot_of(w, from_rank) + from;
    memset(f->buffer, 0x6d, length);
    w->operations++;
    if (!w->open && below(w, 4) == 0) {
        OK(gex_RMA_GetBlocking(tm, f->buffer, rank, source, length, 0));
        CHECK(memcmp(f->buffer, w->slots[from_rank] + from, length) == 0);
        return;
    }
    if (how == EVENT) {
        f->event = gex_RMA_GetNB(tm, f->buffer, rank, source, length, flags);
        if (f->event == GEX_EVENT_NO_OP) return;
    } else if (gex_RMA_GetNBI(tm, f->buffer, rank, source, length, flags) != GASNET_OK) return;
    book(f, GET, how, from_rank, from, from + length);
    memcpy(f->want, w->slots[from_rank] + from, length);
    f->length = length;
}

static void value(struct worker *w, gex_Rank_t to)
{
    size_t length = 1 + below(w, 8), from = below(w, SLOT - length + 1), kind = below(w, 4);
    gex_RMA_Value_t value = 0;
    gex_Rank_t rank = to;
    gex_TM_t tm = name_of(w, &rank);
    char *place = slot_of(w, to) + from;
    struct flight *f;
    if (!clear(w, to, from, from + length, 1)) return;
    w->operations++;
    if (kind == 0 && !w->open) {
        gex_RMA_Value_t want = 0;
        memcpy(&want, w->slots[to] + from, length);
        value = gex_RMA_GetBlockingVal(tm, rank, place, length, 0);
        if (value != want) FAIL("value of %zu bytes at %zu of rank %u", length, from, (unsigned)to);
        return;
    }
    some_data(w, (unsigned char *)&value, 8);
    memcpy(w->slots[to] + from, &value, length);
    if (kind == 1 && !w->open) {
        OK(gex_RMA_PutBlockingVal(tm, rank, place, value, length, 0));
        return;
    }
    f = take(w);
    if (kind == 2 && !w->open) {
        f->event = gex_RMA_PutNBVal(tm, rank, place, value, length, 0);
        book(f, PUT, EVENT, to, from, from + length);
    } else {
        OK(gex_RMA_PutNBIVal(tm, rank, place, value, length, 0));
        book(f, PUT, w->open ? REGION : IMPLICIT, to, from, from + length);
    }
}

/* One side of a transfer: its places, in order, and how far they reach. */
struct side {
    ptrdiff_t strides[3];
    size_t first, reach;
};

/* Nested steps with gaps, some of them backwards. Elements do not overlap. */
static struct side some_side(struct worker *w, size_t element, const size_t *counts, size_t levels)
{
    struct side side = {{0, 0, 0}, 0, element};
    size_t level, gaps = below(w, 2) ? 1 : 40;
    for (level = 0; level < levels; level++) {
        size_t step = side.reach + below(w, gaps);
        side.strides[level] = (ptrdiff_t)step;
        side.reach += step * (counts[level] - 1);
    }
    for (level = 0; level < levels; level++)
        if (below(w, 4) == 0) {
            side.first += (size_t)side.strides[level] * (counts[level] - 1);
            side.strides[level] = -side.strides[level];
        }
    return side;
}

/* Copies what a strided transfer copies. */
static void by_steps(unsigned char *to, const struct side *t, const unsigned char *from, const struct side *f,
                     size_t element, const size_t *counts)
{
    size_t i, j, k;
    for (k = 0; k < counts[2]; k++)
        for (j = 0; j < counts[1]; j++)
            for (i = 0; i < counts[0]; i++) {
                ptrdiff_t x = (ptrdiff_t)i, y = (ptrdiff_t)j, z = (ptrdiff_t)k;
                memcpy(to + (ptrdiff_t)t->first + x * t->strides[0] + y * t->strides[1] + z * t->strides[2],
                       from + (ptrdiff_t)f->first + x * f->strides[0] + y * f->strides[1] + z * f->strides[2], element);
            }
}

/* Starts one of the three forms of a call, all with the same arguments. */
#define START(name, ...)                                                                                             \
    do {                                                                                                             \
        if (blocking) OK(gex_VIS_##name##Blocking(__VA_ARGS__, 0));                                                  \
        else if (how == EVENT) f->event = gex_VIS_##name##NB(__VA_ARGS__, 0);                                        \
        else OK(gex_VIS_##name##NBI(__VA_ARGS__, 0));                                                                \
    } while (0)

/* Buffers before a vector transfer: a put's source, a get's background, which its gaps keep. */
static void before(struct worker *w, struct flight *f, int put, size_t reach)
{
    if (put) some_data(w, f->buffer, reach);
    else memset(f->buffer, 0x6e, reach), memset(f->want, 0x6e, reach);
}

static void after(struct flight *f, int put, int how, int blocking, gex_Rank_t to, size_t from, size_t end, size_t reach)
{
    book(f, put ? PUT : GET, how, to, from, end);
    f->length = put ? 0 : reach;
    if (blocking) land(f);
}

static void strided(struct worker *w, gex_Rank_t to, int put)
{
    size_t levels = below(w, 4), element = 1 + below(w, below(w, 4) ? 16 : 300), counts[3] = {1, 1, 1}, level, from;
    struct side here, there;
    struct flight *f;
    gex_Rank_t rank = to;
    gex_TM_t tm = name_of(w, &rank);
    unsigned char *remote, *local;
    int how, blocking = !w->open && below(w, 3) == 0;
    for (level = 0; level < levels; level++) counts[level] = 1 + below(w, level == 0 ? 30 : 5);
    here = some_side(w, element, counts, levels);
    there = some_side(w, element, counts, levels);
    if (here.reach > SLOT || there.reach > SLOT) return;
    from = below(w, SLOT - there.reach + 1);
    if (!clear(w, to, from, from + there.reach, put)) return;
    f = take(w);
    how = some_way(w);
    before(w, f, put, here.reach);
    remote = (unsigned char *)slot_of(w, to) + from + there.first;
    local = f->buffer + here.first;
    w->operations++;
    if (put) {
        by_steps(w->slots[to] + from, &there, f->buffer, &here, element, counts);
        START(StridedPut, tm, rank, remote, there.strides, local, here.strides, element, counts, levels);
    } else {
        by_steps(f->want, &here, w->slots[to] + from, &there, element, counts);
        START(StridedGet, tm, local, here.strides, rank, remote, there.strides, element, counts, levels);
    }
    after(f, put, how, blocking, to, from, from + there.reach, here.reach);
}

#define ENTRIES 64
struct list {
    gex_Memvec_t entries[ENTRIES];
    size_t count, reach;
};

/* `total` bytes in some places with gaps, in shuffled order. */
static void some_list(struct worker *w, struct list *list, unsigned char *base, size_t total)
{
    size_t at, used = 0, place = 0, gaps = below(w, 2) ? 1 : 50, most = 1 + below(w, ENTRIES - 1);
    list->count = 0;
    while (used < total || list->count == 0) {
        size_t length = list->count + 1 == most ? total - used : below(w, total - used + 1);
        place += below(w, gaps);
        list->entries[list->count].gex_addr = base + place;
        list->entries[list->count++].gex_len = length;
        place += length;
        used += length;
    }
    list->reach = place;
    for (at = list->count; at-- > 1;) {
        size_t other = below(w, at + 1);
        gex_Memvec_t entry = list->entries[at];
        list->entries[at] = list->entries[other];
        list->entries[other] = entry;
    }
}

/* Copies what a transfer between two lists copies; `t` and `f` say where their bases are for this copy. */
static void by_lists(unsigned char *to, const struct list *t, const unsigned char *t_base, const unsigned char *from,
                     const struct list *f, const unsigned char *f_base)
{
    size_t i = 0, j = 0, a = 0, b = 0;
    while (i < t->count && j < f->count) {
        size_t left = t->entries[i].gex_len - a, right = f->entries[j].gex_len - b, step = left < right ? left : right;
        if (step > 0)
            memcpy(to + ((unsigned char *)t->entries[i].gex_addr - t_base) + a,
                   from + ((unsigned char *)f->entries[j].gex_addr - f_base) + b, step);
        a += step;
        b += step;
        if (a == t->entries[i].gex_len) i++, a = 0;
        if (j < f->count && b == f->entries[j].gex_len) j++, b = 0;
    }
}

static void vector(struct worker *w, gex_Rank_t to, int put)
{
    size_t total = some_length(w, SLOT / 4), from = below(w, SLOT / 2);
    struct list here, there;
    struct flight *f;
    gex_Rank_t rank = to;
    gex_TM_t tm = name_of(w, &rank);
    unsigned char *remote = (unsigned char *)slot_of(w, to) + from;
    int how, blocking = !w->open && below(w, 3) == 0;
    some_list(w, &there, remote, total);
    if (!clear(w, to, from, from + there.reach, put)) return;
    f = take(w);
    how = some_way(w);
    some_list(w, &here, f->buffer, total);
    before(w, f, put, here.reach);
    w->operations++;
    if (put) {
        by_lists(w->slots[to] + from, &there, remote, f->buffer, &here, f->buffer);
        START(VectorPut, tm, rank, there.count, there.entries, here.count, here.entries);
    } else {
        by_lists(f->want, &here, f->buffer, w->slots[to] + from, &there, remote);
        START(VectorGet, tm, here.count, here.entries, rank, there.count, there.entries);
    }
    after(f, put, how, blocking, to, from, from + there.reach, here.reach);
}

/* `count` runs of `length` bytes. */
static void equal_runs(struct worker *w, struct list *list, void **places, unsigned char *base, size_t count, size_t length)
{
    size_t at, gaps = below(w, 2) ? 1 : 50, place = 0;
    for (at = 0; at < count; at++) {
        place += below(w, gaps);
        list->entries[at].gex_addr = places[at] = base + place;
        list->entries[at].gex_len = length;
        place += length;
    }
    list->count = count;
    list->reach = place;
}

static void indexed(struct worker *w, gex_Rank_t to, int put)
{
    size_t few = 1 + below(w, 8), times = 1 + below(w, 8), unit = 1 + below(w, below(w, 4) ? 16 : 100);
    size_t from = below(w, SLOT / 2), flip = below(w, 2);
    size_t n = flip ? few : few * times, m = flip ? few * times : few, length = few * times * unit;
    struct list here, there;
    void *locals[ENTRIES], *remotes[ENTRIES];
    struct flight *f;
    gex_Rank_t rank = to;
    gex_TM_t tm = name_of(w, &rank);
    unsigned char *remote = (unsigned char *)slot_of(w, to) + from;
    int how, blocking = !w->open && below(w, 3) == 0;
    equal_runs(w, &there, remotes, remote, m, length / m);
    if (!clear(w, to, from, from + there.reach, put)) return;
    f = take(w);
    how = some_way(w);
    equal_runs(w, &here, locals, f->buffer, n, length / n);
    before(w, f, put, here.reach);
    w->operations++;
    if (put) {
        by_lists(w->slots[to] + from, &there, remote, f->buffer, &here, f->buffer);
        START(IndexedPut, tm, rank, m, remotes, length / m, n, locals, length / n);
    } else {
        by_lists(f->want, &here, f->buffer, w->slots[to] + from, &there, remote);
        START(IndexedGet, tm, n, locals, length / n, rank, m, remotes, length / m);
    }
    after(f, put, how, blocking, to, from, from + there.reach, here.reach);
}

#endif
