/* Collectives between everything else. All ranks draw them from one sequence, so all know what comes. */
#ifndef TESTS_C_TRAFFIC_TOGETHER_H
#define TESTS_C_TRAFFIC_TOGETHER_H 1

#include "world.h"

#define TOGETHER 4
#define ELEMENTS 6000

enum { BARRIER, BROADCAST, ONE_SUM, ALL_SUM, ALL_MOST, ALL_USER, COLLECTIVES };
struct common {
    int used;
    gex_Event_t event;
    uint64_t *from, *to, *want;
    size_t count;
};

static uint32_t common_state;
static struct common commons[TOGETHER];
static int notified;
/* Members of the teams of the phase, as the model has them. */
static gex_Rank_t members[TEAMS][MOST_RANKS], sizes[TEAMS];

static size_t together(size_t most)
{
    return t_random(&common_state) % most;
}

static uint64_t part_of(gex_Rank_t rank, size_t key, size_t at)
{
    return ((uint64_t)rank * 2654435761U + key * 40503U + at * 97) ^ (uint64_t)at << 20;
}

/* Not commutative: the operands are in the order of the ranks. */
static uint64_t joined(uint64_t a, uint64_t b)
{
    /* Matrices with one row of (1, 0), packed: products of affine maps. */
    uint32_t a1 = (uint32_t)(a >> 32), a0 = (uint32_t)a, b1 = (uint32_t)(b >> 32), b0 = (uint32_t)b;
    return (uint64_t)(a1 * b1) << 32 | (uint32_t)(a1 * b0 + a0);
}

static void join_all(const void *left, void *right, size_t count, const void *cdata)
{
    uint64_t *to = (uint64_t *)right;
    const uint64_t *from = (const uint64_t *)left;
    size_t at;
    CHECK(cdata == (void *)&common_state);
    for (at = 0; at < count; at++) to[at] = joined(from[at], to[at]);
}

static void land_together(struct common *c)
{
    gex_Event_Wait(c->event);
    c->used = 0;
    if (memcmp(c->to, c->want, c->count * 8) != 0) {
        size_t at = 0;
        while (c->to[at] == c->want[at]) at++;
        FAIL("collective of %zu words: word %zu is %llx, not %llx", c->count, at, (unsigned long long)c->to[at],
             (unsigned long long)c->want[at]);
    }
}

static uint64_t expected(int kind, int team, gex_Rank_t root, size_t key, size_t at)
{
    gex_Rank_t rank;
    uint64_t all = part_of(members[team][0], key, at);
    if (kind == BROADCAST) return part_of(members[team][root], key, at);
    for (rank = 1; rank < sizes[team]; rank++) {
        uint64_t next = part_of(members[team][rank], key, at);
        all = kind == ALL_MOST ? (all > next ? all : next) : kind == ALL_USER ? joined(all, next) : all + next;
    }
    return all;
}

/* One collective, and sometimes the end of another one. Teams that this rank is not in draw alike. */
static void collective(struct worker *w)
{
    struct common *c = &commons[below(w, TOGETHER)];
    int kind = (int)together(COLLECTIVES), team = (int)together(TEAMS);
    size_t size = together(10), key = together(100000), count, at;
    gex_TM_t tm;
    gex_Rank_t root = (gex_Rank_t)together(1000), me;
    count = 1 + together(size < 6 ? 4 : size < 9 ? 200 : ELEMENTS);
    if (w->open) close_region(w);
    team %= team_count;
    if (notified && team == 0) {
        if (below(w, 2)) OK(gasnet_barrier_wait(7, 0));
        else
            while (gasnet_barrier_try(7, 0) == GASNET_ERR_NOT_READY) continue;
        notified = 0;
        w->operations++;
        return;
    }
    if (!notified && together(6) == 0) {
        /* The barrier with a name, in two halves. No collective of the team of all is between them. */
        for (at = 0; at < TOGETHER; at++)
            if (commons[at].used) land_together(&commons[at]);
        gasnet_barrier_notify(7, 0);
        notified = 1;
        return;
    }
    tm = teams[team];
    root %= sizes[team];
    me = gex_TM_QueryRank(tm);
    CHECK_EQ(gex_TM_QuerySize(tm), sizes[team]);
    CHECK_EQ(members[team][me], t_rank);
    if (c->used) land_together(c);
    w->operations++;
    c->used = 1;
    c->count = kind == BARRIER ? 0 : count;
    for (at = 0; at < c->count; at++) {
        c->from[at] = part_of(t_rank, key, at);
        c->to[at] = 0x7777;
        c->want[at] = kind == ONE_SUM && me != root ? 0x7777 : expected(kind, team, root, key, at);
    }
    switch (kind) {
    case BARRIER: c->event = gex_Coll_BarrierNB(tm, 0); break;
    case BROADCAST: c->event = gex_Coll_BroadcastNB(tm, root, c->to, c->from, count * 8, 0); break;
    case ONE_SUM:
        c->event = gex_Coll_ReduceToOneNB(tm, root, c->to, c->from, GEX_DT_U64, 8, count, GEX_OP_ADD, NULL, NULL, 0);
        break;
    case ALL_SUM:
        c->event = gex_Coll_ReduceToAllNB(tm, c->to, c->from, GEX_DT_U64, 8, count, GEX_OP_ADD, NULL, NULL, 0);
        break;
    case ALL_MOST:
        c->event = gex_Coll_ReduceToAllNB(tm, c->to, c->from, GEX_DT_U64, 8, count, GEX_OP_MAX, NULL, NULL, 0);
        break;
    default:
        c->event = gex_Coll_ReduceToAllNB(tm, c->to, c->from, GEX_DT_USER, 8, count, GEX_OP_USER_NC, join_all,
                                          &common_state, 0);
    }
    if (below(w, 3) == 0) land_together(c);
}

static void finish_together(void)
{
    int at;
    for (at = 0; at < TOGETHER; at++)
        if (commons[at].used) land_together(&commons[at]);
    if (notified) OK(gasnet_barrier_wait(7, 0));
    notified = 0;
}

/* Teams of a phase: cut from the team of all by random colors, keys turned around. */
static void make_teams(void)
{
    int number;
    teams[0] = t_tm;
    sizes[0] = t_size;
    for (number = 0; number < (int)t_size; number++) members[0][number] = (gex_Rank_t)number;
    team_count = 1 + (int)together(TEAMS);
    for (number = 1; number < team_count; number++) {
        gex_Rank_t colors = 1 + (gex_Rank_t)together(3), shift = (gex_Rank_t)together(5), turned = (gex_Rank_t)together(2), at;
#define COLOR(rank) (((rank) + shift) / 2 % colors)
        gex_TM_Split(&teams[number], t_tm, (int)COLOR(t_rank), turned ? -(int)t_rank : (int)t_rank, NULL, 0,
                     GEX_FLAG_TM_NO_SCRATCH);
        sizes[number] = 0;
        for (at = 0; at < t_size; at++) {
            gex_Rank_t rank = turned ? t_size - 1 - at : at;
            if (COLOR(rank) == COLOR(t_rank)) members[number][sizes[number]++] = rank;
        }
    }
}

static void end_teams(void)
{
    while (team_count > 1) OK(gex_TM_Destroy(teams[--team_count], NULL, 0));
}

static void together_start(void)
{
    int at;
    for (at = 0; at < TOGETHER; at++) {
        commons[at].from = (uint64_t *)malloc(ELEMENTS * 24);
        CHECK(commons[at].from != NULL);
        commons[at].to = commons[at].from + ELEMENTS;
        commons[at].want = commons[at].to + ELEMENTS;
    }
}

#endif
