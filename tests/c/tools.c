/* Tools next to the conduit: timers, atomics, fences, environment of the job. */
#include <gasnet_tools.h>

#include "t.h"

/* Clients hand these on. */
static void (*const trace)(const char *, ...) = _gasnett_trace_printf_noop;
static void (*const ready)(void **) = _gasneti_threadkey_init;
static void *key;

int main(int argc, char **argv)
{
    char *value;
    gasnett_tick_t begin, end;
    gasnett_atomic_t word = gasnett_atomic_init(5);
    t_join("tools", &argc, &argv);
    begin = gasnett_ticks_now();
    do end = gasnett_ticks_now();
    while (gasnett_ticks_to_us(end - begin) < 1000);
    CHECK(gasnett_ticks_to_ns(end - begin) >= 1000000);
    gasnett_atomic_increment(&word, 0);
    CHECK(gasnett_atomic_read(&word, 0) == 6);
    CHECK(gasnett_atomic_compare_and_swap(&word, 6, 9, 0) && gasnett_atomic_add(&word, 1, 0) == 10);
    CHECK(gasnett_atomic_decrement_and_test(&word, 0) == 0);
    gasnett_local_wmb();
    gasnett_local_rmb();
    gasnett_local_mb();
    gasnett_sched_yield();
    value = gasnett_getenv("PATH");
    CHECK(value != NULL && value == gasnet_getenv("PATH") && gasnett_getenv("T_NOT_THERE_AT_ALL") == NULL);
    value = gasnett_getenv_withdefault("T_NOT_THERE_AT_ALL", "otherwise");
    CHECK(!strcmp(value, "otherwise"));
    trace("%d", 1);
    ready(&key);
    CHECK(key == NULL);
    CHECK(gasnett_getenv_int_withdefault("T_NOT_THERE_AT_ALL", 17, 0) == 17);
    CHECK(gasnett_cpu_count() >= 1);
    t_pass();
    return 1;
}
