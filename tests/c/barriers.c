/* Barriers: the one with names in every mixture of flags, the team's one, several under way, late comers. */
#include "t.h"

static void anonymous_and_named(void)
{
    gex_Rank_t odd;
    int id = 0;
    OK(gasnet_barrier(5, GASNET_BARRIERFLAG_ANONYMOUS));
    CHECK(gasnet_barrier_result(&id) != 0);
    OK(gasnet_barrier((int)0xcafef00dU, 0));
    CHECK_EQ(gasnet_barrier_result(&id), 0);
    CHECK_EQ(id, (int)0xcafef00dU);
    OK(gasnet_barrier(0, GASNET_BARRIERFLAG_UNNAMED));
    for (odd = 0; odd < t_size; odd++) {
        int mine = t_rank == odd;
        /* One rank without a name among ranks with one, then the other way round. */
        OK(gasnet_barrier(mine ? 99 : 1234, mine ? GASNET_BARRIERFLAG_ANONYMOUS : 0));
        if (t_size > 1) {
            CHECK_EQ(gasnet_barrier_result(&id), 0);
            CHECK_EQ(id, 1234);
        }
        OK(gasnet_barrier(-5, mine ? 0 : GASNET_BARRIERFLAG_ANONYMOUS));
        CHECK_EQ(gasnet_barrier_result(&id), 0);
        CHECK_EQ(id, -5);
        /* Notified without a name, waited for with one. */
        gasnet_barrier_notify(0, mine ? GASNET_BARRIERFLAG_ANONYMOUS : 0);
        OK(gasnet_barrier_wait(0, 0));
        gasnet_barrier_notify(3, mine ? GASNET_BARRIERFLAG_ANONYMOUS : 0);
        if (t_size > 1) CHECK_EQ(gasnet_barrier_wait(mine ? 4 : 3, 0), mine ? GASNET_ERR_BARRIER_MISMATCH : GASNET_OK);
        else OK(gasnet_barrier_wait(3, 0));
        /* One rank says mismatch: all see it. */
        gasnet_barrier_notify(1, mine ? GASNET_BARRIERFLAG_MISMATCH : 0);
        CHECK_EQ(gasnet_barrier_wait(1, mine ? GASNET_BARRIERFLAG_MISMATCH : 0), GASNET_ERR_BARRIER_MISMATCH);
        /* Two names. */
        if (t_size > 1) CHECK_EQ(gasnet_barrier(mine ? 1 : 0x10001, 0), GASNET_ERR_BARRIER_MISMATCH);
    }
    gasnet_barrier_notify(0, 0);
    CHECK_EQ(gasnet_barrier_wait(1, 0), GASNET_ERR_BARRIER_MISMATCH);
}

static void tried(void)
{
    int round;
    for (round = 0; round < 50; round++) {
        int code, turns = 0;
        gasnet_barrier_notify(round, 0);
        while ((code = gasnet_barrier_try(round, 0)) == GASNET_ERR_NOT_READY) {
            struct timespec rest = {0, 100000};
            CHECK(++turns < 200000);
            nanosleep(&rest, NULL);
        }
        OK(code);
    }
}

static void of_the_team(void)
{
    gex_Event_t events[8];
    int at, round;
    for (round = 0; round < 30; round++) {
        for (at = 0; at < 8; at++) events[at] = gex_Coll_BarrierNB(t_tm, 0);
        /* In any order, by every call. */
        gex_Event_Wait(events[5]);
        gex_Event_Wait(events[7]);
        gex_Event_WaitAll(events, 3, 0);
        while (gex_Event_Test(events[6]) != GASNET_OK) OK(gasnet_AMPoll());
        gex_Event_WaitSome(events + 3, 1, 0);
        gex_Event_Wait(events[4]);
        gex_Coll_BarrierBlocking(t_tm, 0);
    }
}

/* What a rank wrote to the start of its segment: looked at where it is mapped, fetched from a rank that is no neighbour. */
static uint64_t cell_of(gex_Rank_t who)
{
    char *here, *owner = t_base(who, &here);
    if (here) return *(volatile uint64_t *)here;
    CHECK(who != t_rank);
    return gex_RMA_GetBlockingVal(t_tm, who, owner, sizeof(uint64_t), 0);
}

/* Nobody passes before the last one has come: each in turn is late, and the others look at what it wrote. */
static void late(void)
{
    gex_Rank_t who;
    for (who = 0; who < t_size; who++) {
        if (who == t_rank) {
            struct timespec rest = {0, 20000000};
            char *here;
            (void)t_base(who, &here);
            CHECK(here != NULL);
            nanosleep(&rest, NULL);
            *(volatile uint64_t *)here = 1000 + who;
        }
        if (who % 2) t_barrier();
        else OK(gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS));
        CHECK_EQ(cell_of(who), 1000 + who);
    }
}

int main(int argc, char **argv)
{
    t_start("barriers", &argc, &argv, 65536);
    anonymous_and_named();
    tried();
    of_the_team();
    late();
    t_pass();
    return 1;
}
