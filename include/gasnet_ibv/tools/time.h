/* Timers, sleeping, yielding. A tick is a nanosecond of the monotonic clock, which the kernel serves without a
 * system call and calibrates itself; GASNET_TSC_RATE and its relatives have nothing to set. */
#ifndef GASNET_IBV_TOOLS_TIME_H
#define GASNET_IBV_TOOLS_TIME_H 1

#include <sched.h>
#include <sys/time.h>
#include <time.h>

#include "libc.h"

GEXI_BEGIN_C

typedef uint64_t gasnett_tick_t;
#define GASNETT_TICK_MIN ((gasnett_tick_t)0)
#define GASNETT_TICK_MAX (~(gasnett_tick_t)0)

GEXI_INLINE uint64_t gexi_clock_ns(int clock)
{
    struct gexi_timespec now = {0, 0};
    (void)gexi_libc_clock_gettime(clock, &now); /* cannot fail: the clock exists */
    return (uint64_t)now.seconds * 1000000000U + (uint64_t)now.nanoseconds;
}

GEXI_INLINE gasnett_tick_t gasnett_ticks_now(void)
{
    return gexi_clock_ns(GEXI_CLOCK_MONOTONIC);
}

GEXI_INLINE uint64_t gasnett_ticks_to_ns(gasnett_tick_t ticks)
{
    return ticks;
}

GEXI_INLINE uint64_t gasnett_ticks_to_us(gasnett_tick_t ticks)
{
    return ticks / 1000U;
}

GEXI_INLINE uint64_t gasnett_gettimeofday_us(void)
{
    return gexi_clock_ns(GEXI_CLOCK_REALTIME) / 1000U;
}

/* Microseconds that one reading costs. */
GEXI_INLINE double gasnett_tick_overheadus(void)
{
    gasnett_tick_t start = gasnett_ticks_now(), end = start;
    int i;
    for (i = 0; i < 1000; i++) end = gasnett_ticks_now();
    return (double)(end - start) / 1e6;
}

/* Microseconds between two readings that differ. */
GEXI_INLINE double gasnett_tick_granularityus(void)
{
    gasnett_tick_t least = GASNETT_TICK_MAX;
    int i;
    for (i = 0; i < 100; i++) {
        gasnett_tick_t start = gasnett_ticks_now(), end;
        do end = gasnett_ticks_now();
        while (end == start);
        if (end - start < least) least = end - start;
    }
    return (double)least / 1e3;
}

/* Sleeps for at least `ns` nanoseconds; 0, or the error number. */
GEXI_INLINE int gasnett_nsleep(uint64_t ns)
{
    struct gexi_timespec left;
    left.seconds = (long)(ns / 1000000000U);
    left.nanoseconds = (long)(ns % 1000000000U);
    while (gexi_libc_nanosleep(&left, &left) != 0)
        if (errno != EINTR) return errno;
    return 0;
}

GEXI_INLINE void gasnett_sched_yield(void)
{
    (void)sched_yield();
}

GEXI_END_C
#endif
