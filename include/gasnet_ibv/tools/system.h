/* The machine, memory, checksums. */
#ifndef GASNET_IBV_TOOLS_SYSTEM_H
#define GASNET_IBV_TOOLS_SYSTEM_H 1

#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include "errors.h"
#include "libc.h"

GEXI_BEGIN_C

/* Processors that are on; 0 when that is not known. */
GEXI_INLINE int gasnett_cpu_count(void)
{
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 ? (int)count : 0;
}

/* Bytes of memory of this host; 0 when that is not known, unless it is `fatal` not to know. */
GEXI_INLINE uint64_t gasnett_getPhysMemSz(int fatal)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (pages > 0 && page > 0) return (uint64_t)pages * (uint64_t)page;
    if (fatal) gasnett_fatalerror("the size of this host's memory is not known");
    return 0;
}

GEXI_INLINE const char *gasnett_gethostname(void)
{
    static __thread char name[256];
    if (gexi_libc_gethostname(name, sizeof(name) - 1) != 0) (void)snprintf(name, sizeof(name), "unknown");
    return name;
}

/* Path of this program. */
GEXI_INLINE const char *gasnett_exe_name(void)
{
    static __thread char path[4096];
    long length = gexi_libc_readlink("/proc/self/exe", path, sizeof(path) - 1);
    path[length > 0 ? length : 0] = 0;
    return path;
}

/* Binds the calling thread to processor `rank` modulo their number. A wish: a refusal changes nothing. */
GEXI_INLINE void gasnett_set_affinity(int rank)
{
    uint64_t mask[16] = {0};
    int count = gasnett_cpu_count(), cpu;
    if (rank < 0 || count <= 0) return;
    cpu = rank % (count < 1024 ? count : 1024);
    mask[cpu / 64] = (uint64_t)1 << (cpu % 64);
    (void)gexi_libc_sched_setaffinity(0, sizeof(mask), mask);
}

#define gasnett_isLittleEndian() 1

/* Raises the soft limit of a resource to the hard one; non-zero when it is there. */
GEXI_INLINE int gasnett_maximize_rlimit(int resource, const char *name)
{
    struct rlimit limit;
    (void)name;
#ifdef __cplusplus
    __rlimit_resource_t which = (__rlimit_resource_t)resource;
#else
    int which = resource;
#endif
    if (getrlimit(which, &limit) != 0) return 0;
    if (limit.rlim_cur == limit.rlim_max) return 1;
    limit.rlim_cur = limit.rlim_max;
    return setrlimit(which, &limit) == 0;
}

GEXI_INLINE void gasnett_maximize_rlimits(void)
{
    (void)gasnett_maximize_rlimit(RLIMIT_CPU, "RLIMIT_CPU");
    (void)gasnett_maximize_rlimit(RLIMIT_DATA, "RLIMIT_DATA");
    (void)gasnett_maximize_rlimit(RLIMIT_AS, "RLIMIT_AS");
    (void)gasnett_maximize_rlimit(RLIMIT_NOFILE, "RLIMIT_NOFILE");
}

GEXI_INLINE unsigned int gasnett_release_version(void)
{
    return GASNET_RELEASE_VERSION_MAJOR * 10000U + GASNET_RELEASE_VERSION_MINOR * 100U + GASNET_RELEASE_VERSION_PATCH;
}
#define gasnett_release_version_str                                                                                  \
    GEXI_TEXT(GASNET_RELEASE_VERSION_MAJOR)                                                                          \
    "." GEXI_TEXT(GASNET_RELEASE_VERSION_MINOR) "." GEXI_TEXT(GASNET_RELEASE_VERSION_PATCH)

/* Reasons not to trust timings: none. */
GEXI_INLINE const char *gasnett_performance_warning_str(void)
{
    return "";
}

/* 64-bit FNV-1a. */
GEXI_INLINE uint64_t gasnett_checksum(const void *data, int length)
{
    const unsigned char *at = (const unsigned char *)data;
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    int i;
    for (i = 0; i < length; i++) sum = (sum ^ at[i]) * UINT64_C(0x100000001b3);
    return sum;
}

/* Number of bytes that are zero. */
GEXI_INLINE size_t gasnett_count0s(const void *src, size_t length)
{
    const unsigned char *at = (const unsigned char *)src;
    size_t i, zeros = 0;
    for (i = 0; i < length; i++) zeros += at[i] == 0;
    return zeros;
}

GEXI_INLINE size_t gasnett_count0s_copy(void *dst, const void *src, size_t length)
{
    memcpy(dst, src, length);
    return gasnett_count0s(dst, length);
}

GEXI_INLINE size_t gasnett_count0s_uint32_t(uint32_t value)
{
    return gasnett_count0s(&value, sizeof(value));
}

GEXI_INLINE size_t gasnett_count0s_uint64_t(uint64_t value)
{
    return gasnett_count0s(&value, sizeof(value));
}

GEXI_INLINE size_t gasnett_count0s_uintptr_t(uintptr_t value)
{
    return gasnett_count0s(&value, sizeof(value));
}

/* Debugging allocator: the ordinary one here. */
GEXI_INLINE char *gasnett_debug_strndup(const char *text, size_t most)
{
    size_t length = 0;
    char *copy;
    while (length < most && text[length]) length++;
    copy = (char *)malloc(length + 1);
    if (!copy) return NULL;
    memcpy(copy, text, length);
    copy[length] = 0;
    return copy;
}
#define gasnett_debug_malloc(size) malloc(size)
#define gasnett_debug_calloc(count, size) calloc(count, size)
#define gasnett_debug_realloc(pointer, size) realloc(pointer, size)
#define gasnett_debug_free(pointer) free(pointer)
#define gasnett_debug_strdup(text) gasnett_debug_strndup(text, (size_t)-1)
#define gasnett_debug_memcheck(pointer) ((void)(pointer))
#define gasnett_debug_memcheck_one() ((void)0)
#define gasnett_debug_memcheck_all() ((void)0)

typedef struct {
    uint64_t live_bytes;     /* handed out by the allocator */
    uint64_t overhead_bytes; /* held by it, free */
} gasnett_heapstats_t;

/* 0, or non-zero when the C library cannot say. */
GEXI_INLINE int gasnett_getheapstats(gasnett_heapstats_t *stats)
{
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
    struct mallinfo2 info = mallinfo2();
    stats->live_bytes = info.uordblks + info.hblkhd;
    stats->overhead_bytes = info.fordblks;
    return 0;
#else
    stats->live_bytes = stats->overhead_bytes = 0;
    return 1;
#endif
}

GEXI_END_C
#endif
