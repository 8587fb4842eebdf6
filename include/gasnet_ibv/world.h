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

/* The steps from (team, rank) to an address: entry of the table, or null where the inline path ends; where a range of
 * `length` bytes may begin at the owner, from gexi_low to before gexi_high, nowhere for no bytes and for too many; what
 * added to an address of the owner gives the address here.
 *
 * On x86 each step is an assembler statement of which the compiler is not told that it reads memory. So it keeps the
 * results over the stores of a loop, which it would have to assume to change the table. That is sound: the table changes
 * once, from nothing to its final content, each step takes the result of the one before, and a result from before the
 * change is "nothing", which is the slow path. No step touches memory that may not exist, so it may also run in vain.
 * GEXI_PLAIN asks for the C statements on x86 too. */
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

GEXI_INLINE uintptr_t gexi_high(uintptr_t entry, size_t length)
{
    uintptr_t high;
    __asm__("xorl %k[high], %k[high]\n\t"
            "testq %[entry], %[entry]\n\t"
            "je 1f\n\t"
            "movq 8(%[entry]), %[high]\n\t"
            "subq %[most], %[high]\n\t"
            "ja 2f\n\t"
            "xorl %k[high], %k[high]\n\t"
            "jmp 1f\n"
            "2:\n\t"
            "addq (%[entry]), %[high]\n"
            "1:"
            : [high] "=&r"(high)
            : [entry] "r"(entry), [most] "r"(length - 1)
            : "cc");
    return high;
}

GEXI_INLINE uintptr_t gexi_low(uintptr_t entry, uintptr_t high)
{
    uintptr_t low;
    __asm__("xorl %k[low], %k[low]\n\t"
            "testq %[high], %[high]\n\t"
            "je 1f\n\t"
            "movq (%[entry]), %[low]\n"
            "1:"
            : [low] "=&r"(low)
            : [entry] "r"(entry), [high] "r"(high)
            : "cc");
    return low;
}

GEXI_INLINE uintptr_t gexi_shift(uintptr_t entry, uintptr_t high)
{
    uintptr_t shift;
    __asm__("xorl %k[shift], %k[shift]\n\t"
            "testq %[high], %[high]\n\t"
            "je 1f\n\t"
            "movq 16(%[entry]), %[shift]\n\t"
            "subq (%[entry]), %[shift]\n"
            "1:"
            : [shift] "=&r"(shift)
            : [entry] "r"(entry), [high] "r"(high)
            : "cc");
    return shift;
}

#else

GEXI_INLINE uintptr_t gexi_entry(gex_TM_t tm, gex_Rank_t rank)
{
    uint32_t place = rank - gexi_world.peer_first;
    return tm == gexi_world.tm0 && place < gexi_world.peer_count ? (uintptr_t)&gexi_world.peers[place] : 0;
}

GEXI_INLINE uintptr_t gexi_high(uintptr_t entry, size_t length)
{
    const struct gexi_peer *peer = (const struct gexi_peer *)entry;
    return peer && length - 1 < peer->size ? peer->owner_base + peer->size - (length - 1) : 0;
}

GEXI_INLINE uintptr_t gexi_low(uintptr_t entry, uintptr_t high)
{
    return high ? ((const struct gexi_peer *)entry)->owner_base : 0;
}

GEXI_INLINE uintptr_t gexi_shift(uintptr_t entry, uintptr_t high)
{
    const struct gexi_peer *peer = (const struct gexi_peer *)entry;
    return high ? peer->local_base - peer->owner_base : 0;
}

#endif

/* Whether [address, address + length) of `rank` can be reached here, and then address + *shift is where. Not so for
 * another team than tm0, a rank of another host, a range that is not wholly in the segment, no bytes. */
GEXI_INLINE int gexi_reach(gex_TM_t tm, gex_Rank_t rank, const void *address, size_t length, uintptr_t *shift)
{
    uintptr_t entry = gexi_entry(tm, rank);
    uintptr_t high = gexi_high(entry, length);
    uintptr_t low = gexi_low(entry, high);
    *shift = gexi_shift(entry, high);
    return GEXI_LIKELY((uintptr_t)address < high) && GEXI_LIKELY((uintptr_t)address >= low);
}

#define GEXI_HERE(address, shift) ((void *)((uintptr_t)(address) + (shift)))

GEXI_END_C
#endif
