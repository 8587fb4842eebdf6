/* Puts, gets and values of random sizes and places, blocking, explicit and implicit, in every direction. */
#include "t.h"

#define AREA ((size_t)1 << 19)
static unsigned char mine[AREA], back[AREA];

static void random_ranges(void)
{
    uint32_t state = 77 + t_rank;
    int round;
    for (round = 0; round < 400; round++) {
        gex_Rank_t to = t_random(&state) % t_size;
        /* Each rank has its own part of every segment. */
        char *part = t_base(to, NULL) + (size_t)t_rank * AREA;
        size_t room = round % 7 == 0 ? AREA : 300;
        size_t at = t_random(&state) % (AREA - room + 1), bytes = t_random(&state) % (room + 1);
        t_fill(mine, (uint32_t)round, bytes);
        switch (round % 5) {
        case 0: OK(gex_RMA_PutBlocking(t_tm, to, part + at, mine, bytes, 0)); break;
        case 1: gex_Event_Wait(gex_RMA_PutNB(t_tm, to, part + at, mine, bytes, GEX_EVENT_NOW, 0)); break;
        case 2: {
            gex_Event_t leaf = GEX_EVENT_NO_OP, root = gex_RMA_PutNB(t_tm, to, part + at, mine, bytes, &leaf, 0);
            gex_Event_Wait(leaf);
            memset(mine, 0, bytes);
            gex_Event_Wait(root);
            break;
        }
        case 3:
            OK(gex_RMA_PutNBI(t_tm, to, part + at, mine, bytes, GEX_EVENT_DEFER, 0));
            gex_NBI_Wait(GEX_EC_PUT, 0);
            break;
        default:
            OK(gex_RMA_PutNBI(t_tm, to, part + at, mine, bytes, GEX_EVENT_GROUP, GEX_FLAG_IMMEDIATE));
            gex_NBI_Wait(GEX_EC_LC, 0);
            memset(mine, 0, bytes);
            gex_NBI_Wait(GEX_EC_ALL, 0);
        }
        memset(back, 0xee, bytes + 1);
        switch (round % 3) {
        case 0: OK(gex_RMA_GetBlocking(t_tm, back, to, part + at, bytes, 0)); break;
        case 1: gex_Event_Wait(gex_RMA_GetNB(t_tm, back, to, part + at, bytes, 0)); break;
        default:
            OK(gex_RMA_GetNBI(t_tm, back, to, part + at, bytes, 0));
            while (gex_NBI_Test(GEX_EC_GET, 0) != GASNET_OK) OK(gasnet_AMPoll());
        }
        CHECK(t_same(back, (uint32_t)round, bytes));
        CHECK(bytes == AREA || back[bytes] == 0xee);
    }
}

static void values(void)
{
    gex_Rank_t to = (t_rank + 1) % t_size;
    unsigned char *part = (unsigned char *)t_base(to, NULL) + (size_t)t_rank * AREA;
    size_t bytes, at;
    for (bytes = 1; bytes <= 8; bytes++)
        for (at = 0; at < 9; at++) {
            gex_RMA_Value_t value = 0xf1e2d3c4b5a69788ULL + at * 0x0101010101010101ULL, mask = ~(gex_RMA_Value_t)0;
            if (bytes < 8) mask = ((gex_RMA_Value_t)1 << 8 * bytes) - 1;
            memset(back, 0x5a, 32);
            OK(gex_RMA_PutBlocking(t_tm, to, part, back, 32, 0));
            if (at % 3 == 0) OK(gex_RMA_PutBlockingVal(t_tm, to, part + 8 + at, value, bytes, 0));
            else if (at % 3 == 1) gex_Event_Wait(gex_RMA_PutNBVal(t_tm, to, part + 8 + at, value, bytes, 0));
            else {
                OK(gex_RMA_PutNBIVal(t_tm, to, part + 8 + at, value, bytes, 0));
                gex_NBI_Wait(GEX_EC_PUT, 0);
            }
            CHECK(gex_RMA_GetBlockingVal(t_tm, to, part + 8 + at, bytes, 0) == (value & mask));
            OK(gex_RMA_GetBlocking(t_tm, back, to, part, 32, 0));
            CHECK(back[7 + at] == 0x5a && back[8 + at + bytes] == 0x5a);
        }
}

/* Nothing is touched by zero bytes, whatever the addresses are. */
static void nothing(void)
{
    gex_Event_t leaf = GEX_EVENT_NO_OP;
    gex_Rank_t to = t_size - 1;
    OK(gex_RMA_PutBlocking(t_tm, to, NULL, NULL, 0, 0));
    OK(gex_RMA_GetBlocking(t_tm, NULL, to, NULL, 0, 0));
    gex_Event_Wait(gex_RMA_PutNB(t_tm, to, NULL, NULL, 0, &leaf, 0));
    CHECK(leaf == GEX_EVENT_INVALID);
    gex_Event_Wait(gex_RMA_GetNB(t_tm, NULL, to, NULL, 0, 0));
    OK(gex_RMA_PutNBI(t_tm, to, NULL, NULL, 0, GEX_EVENT_DEFER, 0));
    OK(gex_RMA_GetNBI(t_tm, NULL, to, NULL, 0, 0));
    gex_NBI_Wait(GEX_EC_ALL, 0);
}

static void flags(void)
{
    gex_Rank_t to = (t_rank + 1) % t_size;
    char *part = t_base(to, NULL) + (size_t)t_rank * AREA;
    gex_Flags_t promise = t_size > 1 ? GEX_FLAG_PEER_NEVER_SELF : 0;
    t_fill(mine, 9, 100);
    OK(gex_RMA_PutBlocking(t_tm, to, part, mine, 100, promise));
    gex_Event_Wait(gex_RMA_GetNB(t_tm, back, to, part, 100, promise));
    CHECK(t_same(back, 9, 100));
}

int main(int argc, char **argv)
{
    t_join("rma", &argc, &argv);
    t_attach(AREA * t_size);
    random_ranges();
    values();
    nothing();
    flags();
    t_pass();
    return 1;
}
