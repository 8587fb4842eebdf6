/* All 17 numbers of arguments, by the numbered names and by the bare ones, of every category, with replies. */
#include "ams.h"

int main(int argc, char **argv)
{
    int sent = 0, count, category, bare;
    gex_Rank_t to;
    ams_start("am_arguments", &argc, &argv);
    for (count = 0; count <= 16; count++)
        for (bare = 0; bare < 2; bare++)
            for (to = 0; to < t_size; to++) {
                seed = sent++ * 77 - 5;
                for (category = SHORT; category < CATEGORIES; category++) {
                    ams_send(to, 0, category, count, (size_t)count * 3, bare);
                    ams_await(category, sent);
                }
            }
    t_barrier();
    CHECK_EQ(requests, (int)t_size * 17 * 2 * 3);
    t_pass();
    return 1;
}
