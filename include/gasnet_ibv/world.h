/* What the library publishes so that queries and accesses to neighbours need no call.
 *
 * Layout and thread rules: docs/design/c-face.md. Only the library writes. While `size` or `peer_count` is zero,
 * or when an access does not fit, the inline functions call the library, which does the same work and reports
 * what is wrong; so a reader that sees old values is slow, never mistaken. */
#ifndef GASNET_IBV_WORLD_H
#define GASNET_IBV_WORLD_H 1

#include "types.h"

GEXI_BEGIN_C

/* One rank whose segment is mapped here. All zero: not reachable by plain loads and stores. */
struct gexi_peer {
    uintptr_t owner_base; /* first address of the segment as the owner sees it */
    uintptr_t size;       /* bytes; written last */
    uintptr_t local_base; /* first address of the segment here */
    uintptr_t reserved;
};

struct gexi_world {
    uint32_t abi;                  /* GEXI_ABI of the library */
    uint32_t mode;                 /* GEXI_MODE_NUMBER of the library */
    gex_TM_t tm0;                  /* 2, which no client holds, until init */
    uint32_t rank;                 /* in the job, and in tm0 */
    uint32_t size;                 /* of the job; 0 until init */
    const struct gexi_peer *peers; /* entry of job rank r: peers[r - peer_first] */
    uint32_t peer_first;
    uint32_t peer_count; /* 0 until a segment is attached; written last */
    gex_EP_t ep0;
    gex_Client_t client;
    uint64_t reserved;
};

GEXI_API struct gexi_world gexi_world;

/* The steps from (team, rank) to an address: entry of the table, or null where the inline path ends; what added to
 * an address of the owner gives the offset in the segment, or 0; at how many offsets a range of `length` bytes may
 * begin, none for no bytes and for too many; where the segment is here. One comparison of offset and span finds
 * whether a range is inside, and a loop needs the offset alone.
 *
 * On x86 each step is an assembler statement of which the compiler is not told that it reads memory. So it keeps the
 * results over the stores of a loop, which it would have to assume to change the table. That is sound: the table
 * changes once, from nothing to its final content, the span takes the results of the steps before it, and a result
 * from before the change is "nothing", which makes the span 0: the slow path. No step touches memory that may not
 * exist, so it may also run in vain. GEXI_PLAIN asks for the C statements on x86 too. */
#if defined(__x86_64__) && !defined(GEXI_PLAIN)

GEXI_INLINE uintptr_t gexi_entry(gex_TM_t tm, gex_Rank_t rank)
{
    uintptr_t entry;
    __asm__("xorl %k[entry], %k[entry]\n\t"
            "cmpq 8(%[world]), %[tm]\n\t"
            "jne 1f\n\t"
            "movl %k[rank], %k[entry]\n\t"
            "subl 32(%[world]), %k[entry]\n\t"
            "cmpl 36(%[world]), %k[entry]\n\t"
            "jb 2f\n\t"
            "xorl %k[entry], %k[entry]\n\t"
            "jmp 1f\n"
            "2:\n\t"
            "shlq $5, %[entry]\n\t"
            "addq 24(%[world]), %[entry]\n"
            "1:"
            : [entry] "=&r"(entry)
            : [world] "r"(&gexi_world), [tm] "r"(tm), [rank] "r"(rank)
            : "cc");
    return entry;
}

GEXI_INLINE uintptr_t gexi_bias(uintptr_t entry)
{
    uintptr_t bias;
    __asm__("xorl %k[bias], %k[bias]\n\t"
            "testq %[entry], %[entry]\n\t"
            "je 1f\n\t"
            "subq (%[entry]), %[bias]\n"
            "1:"
            : [bias] "=&r"(bias)
            : [entry] "r"(entry)
            : "cc");
    return bias;
}

GEXI_INLINE uintptr_t gexi_span(uintptr_t entry, uintptr_t bias, size_t length)
{
    uintptr_t span;
    __asm__("xorl %k[span], %k[span]\n\t"
            "testq %[entry], %[entry]\n\t"
            "je 1f\n\t"
            "testq %[bias], %[bias]\n\t"
            "je 1f\n\t"
            "movq 8(%[entry]), %[span]\n\t"
            "subq %[most], %[span]\n\t"
            "ja 1f\n\t"
            "xorl %k[span], %k[span]\n"
            "1:"
            : [span] "=&r"(span)
            : [entry] "r"(entry), [bias] "r"(bias), [most] "r"(length - 1)
            : "cc");
    return span;
}

GEXI_INLINE uintptr_t gexi_first(uintptr_t entry, uintptr_t span)
{
    uintptr_t first;
    __asm__("xorl %k[first], %k[first]\n\t"
            "testq %[span], %[span]\n\t"
            "je 1f\n\t"
            "movq 16(%[entry]), %[first]\n"
            "1:"
            : [first] "=&r"(first)
            : [entry] "r"(entry), [span] "r"(span)
            : "cc");
    return first;
}

#else

GEXI_INLINE uintptr_t gexi_entry(gex_TM_t tm, gex_Rank_t rank)
{
    uint32_t place = rank - gexi_world.peer_first;
    return tm == gexi_world.tm0 && place < gexi_world.peer_count ? (uintptr_t)&gexi_world.peers[place] : 0;
}

GEXI_INLINE uintptr_t gexi_bias(uintptr_t entry)
{
    return entry ? 0 - ((const struct gexi_peer *)entry)->owner_base : 0;
}

GEXI_INLINE uintptr_t gexi_span(uintptr_t entry, uintptr_t bias, size_t length)
{
    const struct gexi_peer *peer = (const struct gexi_peer *)entry;
    return bias && length - 1 < peer->size ? peer->size - (length - 1) : 0;
}

GEXI_INLINE uintptr_t gexi_first(uintptr_t entry, uintptr_t span)
{
    return span ? ((const struct gexi_peer *)entry)->local_base : 0;
}

#endif

/* gcc moves assembler statements out of a loop only after it has chosen what the loop counts, and then adds the bias
 * again in each turn; a call of a constant function it moves before. So there entry and bias come from a call, once for
 * a loop. Where team or rank may change from access to access (also: a team in a variable that other code sees) that
 * call is made each time; both in one, so that the table is looked up once. */
#if defined(GASNET_DEBUG)
/* The library looks at every access. */
#define GEXI_ENTRY_AND_BIAS(tm, rank) const uintptr_t entry = ((void)(tm), (void)(rank), 0), bias = 0
#elif defined(__x86_64__) && defined(__OPTIMIZE__) && !defined(__clang__) && !defined(GEXI_PLAIN)
__extension__ typedef unsigned __int128 gexi_two_words;
__attribute__((__unused__, __const__, __noinline__)) static gexi_two_words gexi_entry_and_bias(gex_TM_t tm,
                                                                                               gex_Rank_t rank)
{
    uintptr_t entry = gexi_entry(tm, rank);
    return (gexi_two_words)entry << 64 | gexi_bias(entry);
}
#define GEXI_ENTRY_AND_BIAS(tm, rank)                                                                                \
    const gexi_two_words both = gexi_entry_and_bias(tm, rank);                                                       \
    const uintptr_t entry = (uintptr_t)(both >> 64), bias = (uintptr_t)both
#else
#define GEXI_ENTRY_AND_BIAS(tm, rank) const uintptr_t entry = gexi_entry(tm, rank), bias = gexi_bias(entry)
#endif

/* What added to an address of the owner gives the same byte here; GEXI_NO_WAY, which no difference of two segments is,
 * where the inline path ends. A constant function, so that a loop asks once and a compiler may take the branch out of it. */
#define GEXI_NO_WAY ((uintptr_t)1)
#if defined(GASNET_DEBUG)
#define gexi_way(tm, rank) ((void)(tm), (void)(rank), GEXI_NO_WAY)
#else
#if defined(__x86_64__) && defined(__OPTIMIZE__) && !defined(__clang__) && !defined(GEXI_PLAIN)
__attribute__((__unused__, __const__, __noinline__)) static uintptr_t gexi_way(gex_TM_t tm, gex_Rank_t rank)
#else
GEXI_INLINE uintptr_t gexi_way(gex_TM_t tm, gex_Rank_t rank)
#endif
{
    uintptr_t entry = gexi_entry(tm, rank), bias = gexi_bias(entry);
    uintptr_t first = gexi_first(entry, gexi_span(entry, bias, 1));
    return first ? first + bias : GEXI_NO_WAY;
}
#endif

/* Accesses of so few bytes, a number that the compiler knows, are not compared with the segment: that comparison would
 * cost them more than a tenth, up to as much again as the access. The debug library looks at these, too. */
#define GEXI_SMALL(length) (__builtin_constant_p(length) && (length) - 1 < 32)

/* Where an access goes: byte `offset` of what begins here at `first`. */
struct gexi_place {
    uintptr_t offset, first, bias;
};

/* Whether [address, address + length) of `rank` can be reached here, and then GEXI_HERE(place) is where. Not so for
 * another team than tm0, a rank of another host, no bytes, and, unless GEXI_SMALL, a range that is not wholly in the
 * segment. */
GEXI_INLINE int gexi_reach(gex_TM_t tm, gex_Rank_t rank, const void *address, size_t length, struct gexi_place *place)
{
    if (GEXI_SMALL(length)) {
        place->bias = 0;
        place->first = gexi_way(tm, rank);
        place->offset = (uintptr_t)address;
        return place->first != GEXI_NO_WAY;
    } else {
        GEXI_ENTRY_AND_BIAS(tm, rank);
        uintptr_t span = gexi_span(entry, bias, length);
        place->bias = bias;
        place->first = gexi_first(entry, span);
        place->offset = (uintptr_t)address + bias;
        return place->offset < span;
    }
}

#define GEXI_HERE(place) ((void *)((place).first + (place).offset))

/* The address that `place` was made of, for the call that the inline path ends in. A compiler does not see that it
 * is the same: so a loop keeps the offset alone, and not the address beside it for a call that is never made. */
GEXI_INLINE void *gexi_again(struct gexi_place place)
{
    uintptr_t offset = place.offset;
    __asm__("" : "+r"(offset));
    return (void *)(offset - place.bias);
}

GEXI_END_C
#endif
