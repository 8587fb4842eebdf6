/* Several threads of every rank send at once: all categories and numbers of arguments, request and reply, to every rank
 * and to the rank itself, every byte checked on both sides. Where threads may not be inside together, one sends. */
#define AMS_THREADS 3
#define ROOM ((size_t)1 << 14)
#include "ams.h"

#if GASNET_PAR
enum { SENDERS = AMS_THREADS };
static pthread_barrier_t meeting;
#define MEET() ((void)pthread_barrier_wait(&meeting))
#else
enum { SENDERS = 1 };
#define MEET() ((void)0)
#endif

static const size_t sizes[] = {0, 1, 64, 513, 4097};
enum { SIZES = sizeof sizes / sizeof *sizes };
static gex_HSL_t lock = GEX_HSL_INITIALIZER;
static int waves;

/* All threads send what belongs to this number, and help until everything is answered. */
static void wave(int thread, int number)
{
    int count = number / SIZES, category;
    size_t bytes = sizes[number % SIZES];
    gex_Rank_t step;
    MEET();
    if (thread == 0) seed = number * 31 + 7;
    MEET();
    for (step = 0; step < t_size; step++)
        for (category = SHORT; category < CATEGORIES; category++)
            ams_send((t_rank + step + (unsigned)thread) % t_size, thread, category, count,
                     category == LONG ? bytes * 3 + 1 : bytes, (number + thread) % 2);
    for (category = SHORT; category < CATEGORIES; category++)
        ams_await(category, (number + 1) * SENDERS * (int)t_size);
    gex_HSL_Lock(&lock);
    waves++;
    gex_HSL_Unlock(&lock);
}

static void *work(void *which)
{
    int number;
    for (number = 0; number < 17 * SIZES; number++) wave((int)(intptr_t)which, number);
    return NULL;
}

int main(int argc, char **argv)
{
    ams_start("am_threads", &argc, &argv);
#if GASNET_PAR
    {
        pthread_t threads[SENDERS];
        intptr_t at;
        pthread_barrier_init(&meeting, NULL, SENDERS);
        for (at = 1; at < SENDERS; at++) CHECK(pthread_create(&threads[at], NULL, work, (void *)at) == 0);
        (void)work(NULL);
        for (at = 1; at < SENDERS; at++) CHECK(pthread_join(threads[at], NULL) == 0);
    }
#else
    (void)work(NULL);
#endif
    CHECK_EQ(waves, 17 * SIZES * SENDERS);
    /* What others ask of this rank comes until they have their answers. */
    t_barrier();
    CHECK_EQ(requests, 17 * SIZES * SENDERS * CATEGORIES * (int)t_size);
    t_pass();
    return 1;
}
