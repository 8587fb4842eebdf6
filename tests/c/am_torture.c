/* All categories, sizes and numbers of arguments, request and reply, every rank to every rank and to itself, many under
 * way at once, every byte checked on both sides. */
#include "ams.h"

static const size_t sizes[] = {0, 1, 2, 3, 7, 8, 9, 31, 63, 64, 65, 127, 128, 129, 511, 512, 513, 1000, 4095, 4096, 4097};

static void wave(int count, size_t bytes, size_t long_bytes, int number)
{
    static int expected;
    gex_Rank_t step;
    int category;
    seed = number * 31 + 7;
    expected += (int)t_size;
    for (category = SHORT; category < CATEGORIES; category++)
        for (step = 0; step < t_size; step++)
            ams_send((t_rank + step) % t_size, 0, category, count, category == LONG ? long_bytes : bytes, number % 2);
    for (category = SHORT; category < CATEGORIES; category++) ams_await(category, expected);
}

int main(int argc, char **argv)
{
    int count, number = 0, waves = argc > 1 ? atoi(argv[1]) : 1;
    unsigned at;
    size_t longest;
    ams_start("am_torture", &argc, &argv);
    longest = gex_AM_LUBReplyLong() < ROOM ? gex_AM_LUBReplyLong() : ROOM;
    while (waves-- > 0) {
        for (count = 0; count <= 16; count++)
            for (at = 0; at < sizeof sizes / sizeof *sizes; at++) wave(count, sizes[at], sizes[at] * 3 + 1, number++);
        for (count = 0; count <= 16; count += 4) {
            size_t request = gex_AM_MaxRequestMedium(t_tm, GEX_RANK_INVALID, GEX_EVENT_NOW, 0, (unsigned)count);
            size_t reply = gex_AM_MaxReplyMedium(t_tm, GEX_RANK_INVALID, GEX_EVENT_NOW, 0, (unsigned)count);
            size_t most = request < reply ? request : reply;
            CHECK(most >= 512 && gex_AM_LUBRequestMedium() <= request && gex_AM_LUBReplyMedium() <= reply);
            if (most > ROOM) most = ROOM;
            wave(count, most, longest, number++);
            wave(count, most - 1, longest - 1, number++);
        }
    }
    t_pass();
    return 1;
}
