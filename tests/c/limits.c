/* Sizes of payloads: every query, their order and symmetry. */
#include "t.h"

typedef size_t (*query)(gex_TM_t, gex_Rank_t, const gex_Event_t *, gex_Flags_t, unsigned int);

static void check(query most, size_t bound)
{
    static const gex_Flags_t flags[] = {0, GEX_FLAG_IMMEDIATE, GEX_FLAG_AM_PREPARE_LEAST_CLIENT, GEX_FLAG_AM_PREPARE_LEAST_ALLOC};
    const gex_Event_t *locals[] = {GEX_EVENT_NOW, GEX_EVENT_GROUP, NULL};
    size_t least = ~(size_t)0;
    unsigned which, local, count;
    gex_Event_t event = GEX_EVENT_INVALID;
    locals[2] = &event;
    CHECK(bound >= 512);
    for (which = 0; which < 4; which++)
        for (local = 0; local < 3; local++) {
            const gex_Event_t *lc = which == 3 ? NULL : locals[local];
            size_t before = ~(size_t)0;
            for (count = 0; count <= gex_AM_MaxArgs(); count++) {
                gex_Rank_t to;
                size_t all = most(t_tm, GEX_RANK_INVALID, lc, flags[which], count), found = ~(size_t)0;
                for (to = 0; to < t_size; to++) {
                    size_t one = most(t_tm, to, lc, flags[which], count);
                    if (one < found) found = one;
                }
                CHECK(all == found && all >= 512 && all <= before);
                before = all;
                if (which < 2 && all < least) least = all;
            }
        }
    CHECK_EQ(bound, least);
}

int main(int argc, char **argv)
{
    t_join("limits", &argc, &argv);
    CHECK(gex_AM_MaxArgs() == 16);
    check(gex_AM_MaxRequestMedium, gex_AM_LUBRequestMedium());
    check(gex_AM_MaxReplyMedium, gex_AM_LUBReplyMedium());
    check(gex_AM_MaxRequestLong, gex_AM_LUBRequestLong());
    check(gex_AM_MaxReplyLong, gex_AM_LUBReplyLong());
    t_pass();
    return 1;
}
