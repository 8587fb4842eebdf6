/* Broadcast from every root, many sizes, several under way, waited for in another order; source and result the same. */
#include <gasnet_coll.h>

#include "t.h"

static unsigned char from[1 << 18], to[4][1 << 18];

int main(int argc, char **argv)
{
    static const size_t sizes[] = {1, 7, 8, 64, 1000, 4096, 65537, 1 << 18};
    unsigned at, slot;
    gex_Rank_t root;
    t_start("broadcast", &argc, &argv, 4096);
    for (root = 0; root < t_size; root++)
        for (at = 0; at < sizeof sizes / sizeof *sizes; at++) {
            gex_Event_t events[4];
            if (t_rank == root) t_fill(from, root + 50 * at, sizes[at]);
            for (slot = 0; slot < 4; slot++) {
                memset(to[slot], 0xdd, sizes[at]);
                events[slot] = gex_Coll_BroadcastNB(t_tm, root, to[slot], t_rank == root ? from : NULL, sizes[at], 0);
            }
            gex_Event_Wait(events[2]);
            CHECK(t_same(to[2], root + 50 * at, sizes[at]));
            events[2] = GEX_EVENT_INVALID;
            gex_Event_WaitAll(events, 4, 0);
            for (slot = 0; slot < 4; slot++) CHECK(t_same(to[slot], root + 50 * at, sizes[at]));
            gex_Event_Wait(gex_Coll_BroadcastNB(t_tm, root, t_rank == root ? from : to[0], from, sizes[at], 0));
            CHECK(t_same(t_rank == root ? from : to[0], root + 50 * at, sizes[at]));
        }
    t_pass();
    return 1;
}
