/* The program's part of the trace, and that puts and gets are counted one by one where that is asked for. With the
 * argument "on" the job is traced (GASNET_TRACEFILE, GASNET_STATSFILE), else it is not. */
#include "t.h"

#include <gasnet_tools.h>

static int evaluated;

static int touch(void)
{
    return ++evaluated;
}

static void last_words(void)
{
    GASNETT_STATS_PRINTF("callback of rank %u", (unsigned)t_rank);
}

#if !GASNET_SEQ
static gex_HSL_t lock = GEX_HSL_INITIALIZER;
static volatile int held;

/* Has the lock for a while. */
static void *hold(void *unused)
{
    gex_HSL_Lock(&lock);
    held = 1;
    usleep(50000);
    gex_HSL_Unlock(&lock);
    return unused;
}

/* Waits for the lock once. */
static void wait_for_lock(void)
{
    pthread_t holder;
    CHECK(pthread_create(&holder, NULL, hold, NULL) == 0);
    while (!held) sched_yield();
    gex_HSL_Lock(&lock);
    gex_HSL_Unlock(&lock);
    CHECK(pthread_join(holder, NULL) == 0);
}
#endif

int main(int argc, char **argv)
{
    int on, i;
    const char *file = NULL;
    unsigned int line = 0;
    char *here;
    t_join("traced", &argc, &argv);
    on = argc > 1 && strcmp(argv[1], "on") == 0;
    CHECK(!!GASNETT_TRACE_ENABLED == on);
    GASNETT_TRACE_SETSOURCELINE("somewhere.c", 77);
    GASNETT_TRACE_GETSOURCELINE(&file, &line);
    CHECK(line == 77 && strcmp(file, "somewhere.c") == 0);
    GASNETT_TRACE_FREEZESOURCELINE();
    GASNETT_TRACE_SETSOURCELINE("elsewhere.c", 1);
    GASNETT_TRACE_GETSOURCELINE(&file, &line);
    CHECK(line == 77);
    GASNETT_TRACE_UNFREEZESOURCELINE();
    GASNETT_TRACE_PRINTF("a text %d", touch());
    GASNETT_TRACE_PRINTF_FORCE("forced %d", touch());
    GASNETT_STATS_PRINTF("for the statistics %d", touch());
    CHECK(evaluated == (on ? 3 : 0));
    CHECK((strchr(GASNETT_TRACE_GETMASK(), 'H') != NULL) == on);
    GASNETT_TRACE_SETMASK("G");
    CHECK(strcmp(GASNETT_TRACE_GETMASK(), on ? "GU" : "") == 0);
    GASNETT_TRACE_PRINTF("masked %d", touch());
    CHECK(evaluated == (on ? 3 : 0));
    GASNETT_TRACE_SETMASK("^D");
    GASNETT_TRACE_SET_TRACELOCAL(GASNETT_TRACE_GET_TRACELOCAL());
    GASNETT_STATS_INIT(last_words);

    t_attach(1 << 16);
    here = t_base(t_rank, NULL);
    for (i = 0; i < 100; i++) {
        uint64_t value = (uint64_t)i;
        CHECK(gex_RMA_PutBlocking(t_tm, t_rank, here, &value, sizeof value, 0) == 0);
        CHECK(gex_RMA_GetBlocking(t_tm, &value, t_rank, here, sizeof value, 0) == 0);
        CHECK(value == (uint64_t)i);
    }
#if !GASNET_SEQ
    wait_for_lock();
#endif
    t_pass();
    return 0;
}
