/* Functions of the C library that strict ISO modes hide, under names of ours. */
#ifndef GASNET_IBV_TOOLS_LIBC_H
#define GASNET_IBV_TOOLS_LIBC_H 1

#include "platform.h"

GEXI_BEGIN_C

struct gexi_timespec {
    long seconds;
    long nanoseconds;
};
#define GEXI_CLOCK_REALTIME 0
#define GEXI_CLOCK_MONOTONIC 1

extern int gexi_libc_clock_gettime(int clock, struct gexi_timespec *now) __asm__("clock_gettime");
extern int gexi_libc_nanosleep(const struct gexi_timespec *length, struct gexi_timespec *left) __asm__("nanosleep");
extern int gexi_libc_setenv(const char *name, const char *value, int overwrite) __asm__("setenv");
extern int gexi_libc_unsetenv(const char *name) __asm__("unsetenv");
extern int gexi_libc_gethostname(char *name, size_t length) __asm__("gethostname");
extern long gexi_libc_readlink(const char *path, char *buffer, size_t length) __asm__("readlink");
extern int gexi_libc_sched_setaffinity(int pid, size_t length, const void *mask) __asm__("sched_setaffinity");
extern void (*gexi_libc_signal(int signal, void (*handler)(int)))(int) __asm__("signal");

GEXI_END_C
#endif
