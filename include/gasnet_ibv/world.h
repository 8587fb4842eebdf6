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

/* Local address of [address, address + length) in the segment of `rank`, or null where the inline path ends: another
 * team than tm0, a rank of another host, a range outside of its segment, no bytes. */
GEXI_INLINE void *gexi_reach(gex_TM_t tm, gex_Rank_t rank, const void *address, size_t length)
{
    const struct gexi_peer *peer;
    uintptr_t offset;
    uint32_t place = rank - gexi_world.peer_first;
    if (GEXI_UNLIKELY(tm != gexi_world.tm0) || GEXI_UNLIKELY(place >= gexi_world.peer_count)) return NULL;
    peer = &gexi_world.peers[place];
    offset = (uintptr_t)address - peer->owner_base;
    if (GEXI_UNLIKELY(offset >= peer->size) || GEXI_UNLIKELY(length - 1 >= peer->size - offset)) return NULL;
    return (void *)(peer->local_base + offset);
}

GEXI_END_C
#endif
