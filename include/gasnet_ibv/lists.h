/* Lists of vector, indexed and strided access in text, for messages of clients. Each function writes at most as many
 * bytes, the final zero included, as its partner with _bufsz names. Names as in helpers.h. */
#ifndef GASNET_IBV_LISTS_H
#define GASNET_IBV_LISTS_H 1

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "types.h"

GEXI_BEGIN_C

/* Entries of a list: bytes of the least and of the largest, bytes of all, first and last address of all. */
typedef struct {
    size_t minsz;
    size_t maxsz;
    uintptr_t totalsz;
    void *minaddr; /* null when no entry has a byte, as is maxaddr */
    void *maxaddr;
} gasneti_memveclist_stats_t;

typedef struct {
    void *minaddr;
    void *maxaddr;
} gasneti_addrlist_stats_t;

/* Room for what does not repeat, and for one entry. */
#define GEXI_LIST_HEAD ((size_t)192)
#define GEXI_LIST_MEMVEC ((size_t)48)
#define GEXI_LIST_ADDR ((size_t)24)
#define GEXI_LIST_STRIDE ((size_t)24)

/* Appends at `at`; returns the new end, which holds the final zero. */
__attribute__((__format__(__printf__, 3, 4))) static __attribute__((__unused__)) char *
gexi_append(char *at, const char *end, const char *format, ...)
{
    size_t room = (size_t)(end - at);
    int used;
    va_list list;
    va_start(list, format);
    used = vsnprintf(at, room, format, list);
    va_end(list);
    return at + (used < 0 ? 0 : (size_t)used < room ? (size_t)used : room - 1);
}

/* Takes the bytes of one entry into the bounds. */
GEXI_INLINE void gexi_bounds(void **least, void **most, void *address, size_t length)
{
    uintptr_t first = (uintptr_t)address, last = first + length - 1;
    if (length == 0) return;
    if (!*least || first < (uintptr_t)*least) *least = address;
    if (!*most || last > (uintptr_t)*most) *most = (void *)last;
}

GEXI_INLINE size_t gasneti_format_memveclist_bufsz(size_t count)
{
    return GEXI_LIST_HEAD + count * GEXI_LIST_MEMVEC;
}

GEXI_INLINE gasneti_memveclist_stats_t gasneti_format_memveclist(char *buffer, size_t count, const gex_Memvec_t list[])
{
    const char *end = buffer + gasneti_format_memveclist_bufsz(count);
    gasneti_memveclist_stats_t stats = {0, 0, 0, NULL, NULL};
    size_t i;
    for (i = 0; i < count; i++) {
        size_t length = list[i].gex_len;
        if (i == 0 || length < stats.minsz) stats.minsz = length;
        if (length > stats.maxsz) stats.maxsz = length;
        stats.totalsz += length;
        gexi_bounds(&stats.minaddr, &stats.maxaddr, list[i].gex_addr, length);
    }
    buffer = gexi_append(buffer, end, "%zu entries, %zu bytes, each %zu to %zu, at %p to %p:", count,
                         (size_t)stats.totalsz, stats.minsz, stats.maxsz, stats.minaddr, stats.maxaddr);
    for (i = 0; i < count; i++) buffer = gexi_append(buffer, end, " (%p, %zu)", list[i].gex_addr, list[i].gex_len);
    return stats;
}

GEXI_INLINE size_t gasneti_format_addrlist_bufsz(size_t count)
{
    return GEXI_LIST_HEAD + count * GEXI_LIST_ADDR;
}

GEXI_INLINE gasneti_addrlist_stats_t gasneti_format_addrlist(char *buffer, size_t count, void *const list[],
                                                             size_t length)
{
    const char *end = buffer + gasneti_format_addrlist_bufsz(count);
    gasneti_addrlist_stats_t stats = {NULL, NULL};
    size_t i;
    for (i = 0; i < count; i++) gexi_bounds(&stats.minaddr, &stats.maxaddr, list[i], length);
    buffer = gexi_append(buffer, end, "%zu addresses, each of %zu bytes, at %p to %p:", count, length, stats.minaddr,
                         stats.maxaddr);
    for (i = 0; i < count; i++) buffer = gexi_append(buffer, end, " %p", list[i]);
    return stats;
}

GEXI_INLINE size_t gasneti_format_strides_bufsz(size_t count)
{
    return 3 + count * GEXI_LIST_STRIDE;
}

GEXI_INLINE void gasneti_format_strides(char *buffer, size_t count, const ptrdiff_t list[])
{
    const char *end = buffer + gasneti_format_strides_bufsz(count);
    size_t i;
    buffer = gexi_append(buffer, end, "[");
    for (i = 0; i < count; i++) buffer = gexi_append(buffer, end, "%s%td", i ? ", " : "", list[i]);
    (void)gexi_append(buffer, end, "]");
}

/* A whole operation of vectors, indexed or strided, with `rank` of `tm`. These return the bytes that it moves. */
GEXI_INLINE size_t gasneti_format_putvgetv_bufsz(size_t dstcount, size_t srccount)
{
    return GEXI_LIST_HEAD + gasneti_format_memveclist_bufsz(dstcount) + gasneti_format_memveclist_bufsz(srccount);
}

GEXI_INLINE size_t gasneti_format_putvgetv(char *buffer, gex_TM_t tm, gex_Rank_t rank, size_t dstcount,
                                           const gex_Memvec_t dstlist[], size_t srccount, const gex_Memvec_t srclist[])
{
    const char *end = buffer + gasneti_format_putvgetv_bufsz(dstcount, srccount);
    (void)tm;
    buffer = gexi_append(buffer, end, "rank %u, to ", (unsigned)rank);
    (void)gasneti_format_memveclist(buffer, dstcount, dstlist);
    buffer += strlen(buffer);
    buffer = gexi_append(buffer, end, "; from ");
    return (size_t)gasneti_format_memveclist(buffer, srccount, srclist).totalsz;
}

GEXI_INLINE size_t gasneti_format_putigeti_bufsz(size_t dstcount, size_t srccount)
{
    return GEXI_LIST_HEAD + gasneti_format_addrlist_bufsz(dstcount) + gasneti_format_addrlist_bufsz(srccount);
}

GEXI_INLINE size_t gasneti_format_putigeti(char *buffer, gex_TM_t tm, gex_Rank_t rank, size_t dstcount,
                                           void *const dstlist[], size_t dstlen, size_t srccount,
                                           void *const srclist[], size_t srclen)
{
    const char *end = buffer + gasneti_format_putigeti_bufsz(dstcount, srccount);
    (void)tm;
    buffer = gexi_append(buffer, end, "rank %u, to ", (unsigned)rank);
    (void)gasneti_format_addrlist(buffer, dstcount, dstlist, dstlen);
    buffer += strlen(buffer);
    buffer = gexi_append(buffer, end, "; from ");
    (void)gasneti_format_addrlist(buffer, srccount, srclist, srclen);
    return srccount * srclen;
}

GEXI_INLINE size_t gasneti_format_putsgets_bufsz(size_t stridelevels)
{
    return GEXI_LIST_HEAD + 3 * gasneti_format_strides_bufsz(stridelevels);
}

/* `stats` is for conduits that keep more about a list than this one: not read, may be null. */
GEXI_INLINE size_t gasneti_format_putsgets(char *buffer, void *stats, gex_TM_t tm, gex_Rank_t rank, void *dstaddr,
                                           const ptrdiff_t dststrides[], void *srcaddr, const ptrdiff_t srcstrides[],
                                           size_t elemsz, const size_t count[], size_t stridelevels)
{
    const char *end = buffer + gasneti_format_putsgets_bufsz(stridelevels);
    size_t i, total = elemsz;
    (void)stats;
    (void)tm;
    for (i = 0; i < stridelevels; i++) total *= count[i];
    buffer = gexi_append(buffer, end, "rank %u, %zu bytes, elements of %zu, counts [", (unsigned)rank, total, elemsz);
    for (i = 0; i < stridelevels; i++) buffer = gexi_append(buffer, end, "%s%zu", i ? ", " : "", count[i]);
    buffer = gexi_append(buffer, end, "], to %p by ", dstaddr);
    gasneti_format_strides(buffer, stridelevels, dststrides);
    buffer += strlen(buffer);
    buffer = gexi_append(buffer, end, ", from %p by ", srcaddr);
    gasneti_format_strides(buffer, stridelevels, srcstrides);
    return total;
}

GEXI_END_C
#endif
