/* Mediums of many sizes: round trips, whose reply is as large as the request, and a flood of 4 KB with such replies beside
 * memcpy of as many bytes. Part of bench_c.c. */

static const size_t sizes[] = {0,   8,   16,  24,  32,  48,  64,   80,   96,   112,  128, 160,
                               192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096};
enum { SIZES = sizeof sizes / sizeof *sizes, SIZE_TRIPS = 400, SIZE_TURNS = 20, ECHOES = 20000, ECHO_SIZE = 4096 };

static char payload[ECHO_SIZE];

/* Sizes take turns, because the machine's speed drifts; the median turn of each counts. */
static double size_trips[SIZES][SIZE_TURNS];

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double sized_trips(void)
{
    int turn, which, trip;
    for (turn = 0; turn < SIZE_TURNS; turn++)
        for (which = 0; which < SIZES; which++) {
            uint64_t wanted = pongs;
            const double begin = now();
            for (trip = 0; trip < SIZE_TRIPS; trip++) {
                must(gex_AM_RequestMedium0(team, peer, ECHO, payload, sizes[which], GEX_EVENT_NOW, 0), "request");
                wanted++;
                GASNET_BLOCKUNTIL(pongs == wanted);
            }
            size_trips[which][turn] = (now() - begin) / SIZE_TRIPS;
        }
    for (which = 0; which < SIZES; which++)
        qsort(size_trips[which], SIZE_TURNS, sizeof size_trips[which][0], by_value);
    return 0;
}

static double echo_flood(void)
{
    const uint64_t wanted = pongs + ECHOES;
    const double begin = now();
    int number;
    for (number = 0; number < ECHOES; number++)
        must(gex_AM_RequestMedium0(team, peer, ECHO, payload, ECHO_SIZE, GEX_EVENT_NOW, 0), "request");
    GASNET_BLOCKUNTIL(pongs == wanted);
    return 1e3 * 2 * ECHO_SIZE * ECHOES / (now() - begin);
}

/* As many bytes, those of a request and of its reply, by memcpy in blocks as large as the messages. */
static double echo_copy(void)
{
    static size_t at;
    const double begin = now();
    int number;
    for (number = 0; number < 2 * ECHOES; number++) {
        memcpy(to_large + at, from_large + at, ECHO_SIZE);
        __asm__ volatile("" ::"r"(to_large) : "memory");
        at = (at + ECHO_SIZE) % HUGE_BUFFER;
    }
    return 1e3 * 2 * ECHO_SIZE * ECHOES / (now() - begin);
}

static void medium_sizes(int pair, int print)
{
    double ours;
    int which;
    (void)pair;
    (void)against_server(sized_trips);
    for (which = 0; rank == 0 && print && which < SIZES; which++)
        printf("c_trip_%zu_ns %.2f\n", sizes[which], size_trips[which][SIZE_TURNS / 2]);
    ours = against_server(echo_flood);
    if (rank != 0) return;
    need_large_buffers();
    {
        const double copied = echo_copy();
        if (print) printf("c_echo_mbps %.1f\nc_echo_copy_mbps %.1f\n", ours, copied);
    }
}
