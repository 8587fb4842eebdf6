/* Requests and replies of every category, negotiated or not. A payload is a part of the pool, which every rank has. */
#ifndef TESTS_C_TRAFFIC_MESSAGES_H
#define TESTS_C_TRAFFIC_MESSAGES_H 1

#include "world.h"

enum { ONE = 200, SHORTS, MEDIUMS, LONGS, HASH, BACK_SHORT, BACK_MEDIUM, BACK_LONG };
enum { NOTHING, BY_SHORT, BY_MEDIUM, BY_LONG, BY_PREPARED_MEDIUM, BY_PREPARED_LONG, WANTS };
#define NO_FLIGHT 255
#define LIST gex_AM_Arg_t who, gex_AM_Arg_t key, gex_AM_Arg_t length, gex_AM_Arg_t place, gex_AM_Arg_t back, gex_AM_Arg_t room

static uint64_t got[MOST_RANKS], sums_got[MOST_RANKS], replies[THREADS], hashes[MOST_RANKS][THREADS];
static unsigned rooms_back[THREADS];

static void count(gex_Token_t token, uint64_t what)
{
    gex_Token_Info_t info;
    CHECK(gex_Token_Info(token, &info, GEX_TI_SRCRANK | GEX_TI_IS_REQ) & GEX_TI_SRCRANK);
    __atomic_fetch_add(&sums_got[info.gex_srcrank], what, __ATOMIC_RELAXED);
    __atomic_fetch_add(&got[info.gex_srcrank], 1, __ATOMIC_RELEASE);
}

static gex_Rank_t source(gex_Token_t token)
{
    gex_Token_Info_t info;
    CHECK(gex_Token_Info(token, &info, GEX_TI_SRCRANK) & GEX_TI_SRCRANK);
    return info.gex_srcrank;
}

static void check(const void *data, size_t bytes, gex_AM_Arg_t key, gex_AM_Arg_t length)
{
    CHECK_EQ(bytes, length);
    CHECK(memcmp(data, pool + key, bytes) == 0);
}

/* Answers as the request wants. `who` has the thread, the flight and the way; `back` the key of the payload and `room`
 * the room of a Long and the payload's length. */
static void answer(gex_Token_t token, gex_AM_Arg_t who, gex_AM_Arg_t back, gex_AM_Arg_t room)
{
    size_t length = (size_t)room & 0xffff;
    void *data = pool + back;
    int thread = who & 0xff, want = who >> 16;
    char *to = bases[source(token)] + answer_at(thread, (unsigned)room >> 16 & 0xff);
    gex_AM_SrcDesc_t sd;
    switch (want) {
    case BY_SHORT: OK(gex_AM_ReplyShort3(token, BACK_SHORT, 0, who, back, room)); break;
    case BY_MEDIUM: OK(gex_AM_ReplyMedium3(token, BACK_MEDIUM, data, length, GEX_EVENT_NOW, 0, who, back, room)); break;
    case BY_LONG: OK(gex_AM_ReplyLong3(token, BACK_LONG, data, length, to, GEX_EVENT_NOW, 0, who, back, room)); break;
    case BY_PREPARED_MEDIUM:
        sd = gex_AM_PrepareReplyMedium(token, NULL, length, length + 8, NULL, 0, 3);
        CHECK(gex_AM_SrcDescSize(sd) >= length);
        memcpy(gex_AM_SrcDescAddr(sd), data, length);
        gex_AM_CommitReplyMedium3(sd, BACK_MEDIUM, length, who, back, room);
        break;
    case BY_PREPARED_LONG:
        sd = gex_AM_PrepareReplyLong(token, NULL, 0, length, NULL, NULL, 0, 3);
        OK(gex_AM_CancelReplyLong(sd, 0));
        sd = gex_AM_PrepareReplyLong(token, data, length, length, to, GEX_EVENT_NOW, 0, 3);
        OK(gex_AM_CommitReplyLong3_v2(sd, BACK_LONG, length, to, 0, who, back, room));
        break;
    default: break;
    }
}

static void one(gex_Token_t token, gex_AM_Arg_t key)
{
    count(token, (uint64_t)key);
}

static void shorts(gex_Token_t token, LIST)
{
    CHECK_EQ(length ^ key, place);
    answer(token, who, back, room);
    count(token, (uint64_t)key);
}

static void mediums(gex_Token_t token, void *data, size_t bytes, LIST)
{
    CHECK_EQ(place, key * 3);
    check(data, bytes, key, length);
    memset(data, 0x11, bytes); /* ours until we return */
    answer(token, who, back, room);
    count(token, (uint64_t)key);
}

static void longs(gex_Token_t token, void *data, size_t bytes, LIST)
{
    check(data, bytes, key, length);
    CHECK(bytes == 0 || (char *)data == bases[t_rank] + slot_at(source(token), who & 0xff) + place);
    answer(token, who, back, room);
    count(token, (uint64_t)key);
}

/* What the thread of a rank has left in its slot here. */
static void hash_of(gex_Token_t token, gex_AM_Arg_t thread, gex_AM_Arg_t low, gex_AM_Arg_t high)
{
    hashes[source(token)][thread] = (uint64_t)(uint32_t)high << 32 | (uint32_t)low;
    count(token, (uint64_t)thread);
}

static void back(gex_AM_Arg_t who, gex_AM_Arg_t room)
{
    int thread = who & 0xff, flight = who >> 8 & 0xff;
    if (who >> 16 == BY_LONG || who >> 16 == BY_PREPARED_LONG)
        __atomic_fetch_and(&rooms_back[thread], ~(1U << (room >> 16)), __ATOMIC_RELEASE);
    if (flight != NO_FLIGHT) __atomic_store_n(&answered[thread][flight], 1, __ATOMIC_RELEASE);
    __atomic_fetch_add(&replies[thread], 1, __ATOMIC_RELEASE);
}

static void back_short(gex_Token_t token, gex_AM_Arg_t who, gex_AM_Arg_t key, gex_AM_Arg_t room)
{
    (void)token;
    CHECK(key >= 0);
    back(who, room);
}

static void back_medium(gex_Token_t token, void *data, size_t bytes, gex_AM_Arg_t who, gex_AM_Arg_t key, gex_AM_Arg_t room)
{
    (void)token;
    check(data, bytes, key, room & 0xffff);
    back(who, room);
}

static void back_long(gex_Token_t token, void *data, size_t bytes, gex_AM_Arg_t who, gex_AM_Arg_t key, gex_AM_Arg_t room)
{
    (void)token;
    check(data, bytes, key, room & 0xffff);
    CHECK(bytes == 0 || (char *)data == bases[t_rank] + answer_at(who & 0xff, (unsigned)room >> 16));
    back(who, room);
}

static void register_handlers(void)
{
#define REQUEST(index, f, category, n) t_entry(index, (gex_AM_Fn_t)f, category | GEX_FLAG_AM_REQUEST, n)
#define BACK(index, f, category) t_entry(index, (gex_AM_Fn_t)f, category | GEX_FLAG_AM_REPLY, 3)
    gex_AM_Entry_t table[8];
    table[0] = REQUEST(ONE, one, GEX_FLAG_AM_SHORT, 1);
    table[1] = REQUEST(SHORTS, shorts, GEX_FLAG_AM_SHORT, 6);
    table[2] = REQUEST(MEDIUMS, mediums, GEX_FLAG_AM_MEDIUM, 6);
    table[3] = REQUEST(LONGS, longs, GEX_FLAG_AM_LONG, 6);
    table[4] = REQUEST(HASH, hash_of, GEX_FLAG_AM_SHORT, 3);
    table[5] = BACK(BACK_SHORT, back_short, GEX_FLAG_AM_SHORT);
    table[6] = BACK(BACK_MEDIUM, back_medium, GEX_FLAG_AM_MEDIUM);
    table[7] = BACK(BACK_LONG, back_long, GEX_FLAG_AM_LONG);
    OK(gex_EP_RegisterHandlers(t_ep, table, 8));
}

/* How the target shall answer, and what it is told for that. */
struct wish {
    int want;
    gex_AM_Arg_t back, room;
};

static struct wish some_wish(struct worker *w, int must)
{
    struct wish wish;
    unsigned used = __atomic_load_n(&rooms_back[w->number], __ATOMIC_ACQUIRE), room = (unsigned)below(w, ANSWERS);
    wish.want = must + (int)below(w, (size_t)(WANTS - must));
    if (wish.want == BY_LONG || wish.want == BY_PREPARED_LONG) {
        if (used & 1U << room) wish.want = BY_SHORT;
        else __atomic_fetch_or(&rooms_back[w->number], 1U << room, __ATOMIC_RELAXED);
    }
    wish.back = (gex_AM_Arg_t)below(w, POOL - SLOT);
    wish.room = (gex_AM_Arg_t)(room << 16 | (unsigned)some_length(w, below(w, 20) ? 256 : ANSWER));
    return wish;
}

/* It was not sent after all. */
static void withdraw(struct worker *w, struct wish wish)
{
    if (wish.want == BY_LONG || wish.want == BY_PREPARED_LONG)
        __atomic_fetch_and(&rooms_back[w->number], ~(1U << (wish.room >> 16)), __ATOMIC_RELAXED);
}

static void sent(struct worker *w, gex_Rank_t to, struct wish wish, size_t key)
{
    w->sent[to]++;
    w->told[to] += key;
    if (wish.want != NOTHING) w->asked++;
}

#define WHO(flight) ((gex_AM_Arg_t)(w->number | (flight) << 8 | wish.want << 16))

static void short_request(struct worker *w, gex_Rank_t to)
{
    gex_AM_Arg_t key = (gex_AM_Arg_t)below(w, 1000000), other = (gex_AM_Arg_t)below(w, 1000000);
    struct wish wish = {NOTHING, 0, 0};
    gex_Rank_t rank = to;
    gex_TM_t tm = name_of(w, &rank);
    w->operations++;
    if (below(w, 2)) {
        OK(gex_AM_RequestShort1(tm, rank, ONE, 0, key));
    } else {
        wish = some_wish(w, 0);
        if (gex_AM_RequestShort6(tm, rank, SHORTS, below(w, 8) ? 0 : GEX_FLAG_IMMEDIATE, WHO(NO_FLIGHT), key, other,
                                 other ^ key, wish.back, wish.room) != GASNET_OK) {
            withdraw(w, wish);
            return;
        }
    }
    sent(w, to, wish, (size_t)key);
}

static void medium_request(struct worker *w, gex_Rank_t to)
{
    size_t key = below(w, POOL - SLOT), length, most, way = below(w, 4);
    struct wish wish;
    struct flight *f;
    gex_Rank_t rank = to;
    gex_TM_t tm = name_of(w, &rank);
    gex_AM_SrcDesc_t sd;
    most = gex_AM_MaxRequestMedium(tm, rank, GEX_EVENT_NOW, 0, 6);
    length = some_length(w, most < SLOT ? most : SLOT);
    if (w->open) return;
    f = take(w);
    wish = some_wish(w, 0);
    w->operations++;
#define REST(n) (gex_AM_Arg_t)key, (gex_AM_Arg_t)(n), (gex_AM_Arg_t)key * 3, wish.back, wish.room
    if (way < 2) {
        memcpy(f->buffer, pool + key, length);
        if (way == 0) {
            if (gex_AM_RequestMedium6(tm, rank, MEDIUMS, f->buffer, length, GEX_EVENT_NOW,
                                      below(w, 8) ? 0 : GEX_FLAG_IMMEDIATE, WHO(NO_FLIGHT), REST(length)) != GASNET_OK) {
                withdraw(w, wish);
                return;
            }
            memset(f->buffer, 0x33, length);
        } else {
            gex_Event_t free_again = GEX_EVENT_INVALID;
            OK(gex_AM_RequestMedium6(tm, rank, MEDIUMS, f->buffer, length, &free_again, 0, WHO(NO_FLIGHT), REST(length)));
            f->event = free_again;
            book(f, PUT, EVENT, to, SLOT * 2, SLOT * 2);
        }
    } else {
        size_t least = below(w, length + 1);
        sd = gex_AM_PrepareRequestMedium(tm, rank, way == 2 ? NULL : pool + key, least, length,
                                         way == 2 ? NULL : GEX_EVENT_NOW, 0, 6);
        CHECK(gex_AM_SrcDescSize(sd) >= least && gex_AM_SrcDescSize(sd) <= length);
        if (gex_AM_SrcDescSize(sd) < length) length = gex_AM_SrcDescSize(sd);
        if (way == 2) memcpy(gex_AM_SrcDescAddr(sd), pool + key, length);
        if (below(w, 10) == 0) {
            OK(gex_AM_CancelRequestMedium(sd, 0));
            withdraw(w, wish);
            return;
        }
        gex_AM_CommitRequestMedium6(sd, MEDIUMS, length, WHO(NO_FLIGHT), REST(length));
    }
    sent(w, to, wish, key);
}

/* A Long lands in the slot; until its answer nothing else may touch the bytes. */
static void long_request(struct worker *w, gex_Rank_t to)
{
    size_t key = below(w, POOL - SLOT), length = some_length(w, SLOT), from = below(w, SLOT - length + 1), way = below(w, 4);
    struct wish wish;
    struct flight *f;
    int number;
    gex_Rank_t rank = to;
    gex_TM_t tm = name_of(w, &rank);
    gex_AM_SrcDesc_t sd;
    gex_Event_t free_again = GEX_EVENT_INVALID;
    char *dest = slot_of(w, to) + from;
    if (w->open || !clear(w, to, from, from + length, 1)) return;
    f = take(w);
    number = (int)(f - w->flights);
    wish = some_wish(w, 1);
    w->operations++;
    __atomic_store_n(&answered[w->number][number], 0, __ATOMIC_RELEASE);
    memcpy(f->buffer, pool + key, length);
#undef REST
#define REST(n) (gex_AM_Arg_t)key, (gex_AM_Arg_t)(n), (gex_AM_Arg_t)from, wish.back, wish.room
    if (way == 0) {
        OK(gex_AM_RequestLong6(tm, rank, LONGS, f->buffer, length, dest, GEX_EVENT_NOW, 0, WHO(number), REST(length)));
        memset(f->buffer, 0x44, length);
    } else if (way == 1) {
        OK(gex_AM_RequestLong6(tm, rank, LONGS, f->buffer, length, dest, &free_again, 0, WHO(number), REST(length)));
        gex_Event_Wait(free_again);
        memset(f->buffer, 0x45, length);
    } else {
        size_t most = gex_AM_MaxRequestLong(tm, rank, NULL, GEX_FLAG_AM_PREPARE_LEAST_ALLOC, 6);
        size_t least = below(w, (most < length ? most : length) + 1);
        sd = gex_AM_PrepareRequestLong(tm, rank, way == 2 ? NULL : f->buffer, least, length, below(w, 2) ? dest : NULL,
                                       way == 2 ? NULL : &free_again, 0, 6);
        CHECK(gex_AM_SrcDescSize(sd) >= least && gex_AM_SrcDescSize(sd) <= length);
        if (gex_AM_SrcDescSize(sd) < length) length = gex_AM_SrcDescSize(sd);
        if (way == 2) memcpy(gex_AM_SrcDescAddr(sd), pool + key, length);
        OK(gex_AM_CommitRequestLong6_v2(sd, LONGS, length, dest, 0, WHO(number), REST(length)));
        if (way == 3) {
            gex_Event_Wait(free_again);
            memset(f->buffer, 0x46, length);
        }
    }
    memcpy(w->slots[to] + from, pool + key, length);
    book(f, LONG, REPLY, to, from, from + length);
    sent(w, to, wish, key);
}

#endif
