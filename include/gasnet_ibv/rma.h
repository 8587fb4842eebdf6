/* One-sided access. Within a host a transfer is done when the call returns: a copy through the mapping of the
 * neighbour's segment, without a call where the range is in it. The library does the rest, and names errors. */
#ifndef GASNET_IBV_RMA_H
#define GASNET_IBV_RMA_H 1

#include <string.h>

#include "event.h"
#include "types.h"
#include "world.h"

GEXI_BEGIN_C

/* What the inline functions below do not serve, so none of these is on the fast path. */
GEXI_API int gexi_RMA_PutBlocking(gex_TM_t tm, gex_Rank_t rank, void *dest, const void *src, size_t nbytes,
                                  gex_Flags_t flags) GEXI_COLD;
GEXI_API int gexi_RMA_PutNBI(gex_TM_t tm, gex_Rank_t rank, void *dest, const void *src, size_t nbytes,
                             gex_Event_t *lc_opt, gex_Flags_t flags) GEXI_COLD;
GEXI_API gex_Event_t gexi_RMA_PutNB(gex_TM_t tm, gex_Rank_t rank, void *dest, const void *src, size_t nbytes,
                                    gex_Event_t *lc_opt, gex_Flags_t flags) GEXI_COLD;
GEXI_API int gexi_RMA_GetBlocking(gex_TM_t tm, void *dest, gex_Rank_t rank, const void *src, size_t nbytes,
                                  gex_Flags_t flags) GEXI_COLD;
GEXI_API int gexi_RMA_GetNBI(gex_TM_t tm, void *dest, gex_Rank_t rank, const void *src, size_t nbytes,
                             gex_Flags_t flags) GEXI_COLD;
GEXI_API gex_Event_t gexi_RMA_GetNB(gex_TM_t tm, void *dest, gex_Rank_t rank, const void *src, size_t nbytes,
                                    gex_Flags_t flags) GEXI_COLD;
GEXI_API gex_RMA_Value_t gexi_RMA_GetBlockingVal(gex_TM_t tm, gex_Rank_t rank, const void *src, size_t nbytes,
                                                 gex_Flags_t flags) GEXI_COLD;
GEXI_API int gexi_RMA_PutBlockingVal(gex_TM_t tm, gex_Rank_t rank, void *dest, gex_RMA_Value_t value, size_t nbytes,
                                     gex_Flags_t flags) GEXI_COLD;
GEXI_API int gexi_RMA_PutNBIVal(gex_TM_t tm, gex_Rank_t rank, void *dest, gex_RMA_Value_t value, size_t nbytes,
                                gex_Flags_t flags) GEXI_COLD;
GEXI_API gex_Event_t gexi_RMA_PutNBVal(gex_TM_t tm, gex_Rank_t rank, void *dest, gex_RMA_Value_t value, size_t nbytes,
                                       gex_Flags_t flags) GEXI_COLD;

/* The flags that change nothing for a neighbour. */
#define GEXI_RMA_PLAIN(flags) (((flags) & ~(GEX_FLAG_IMMEDIATE | GEX_FLAG_PEER_NEVER_SELF)) == 0)

/* One access for the sizes of machine words; memcpy for the others. */
GEXI_INLINE void gexi_store(void *to, gex_RMA_Value_t value, size_t nbytes)
{
    uint8_t narrow8 = (uint8_t)value;
    uint16_t narrow16 = (uint16_t)value;
    uint32_t narrow32 = (uint32_t)value;
    switch (nbytes) {
    case 8: memcpy(to, &value, 8); break;
    case 4: memcpy(to, &narrow32, 4); break;
    case 2: memcpy(to, &narrow16, 2); break;
    case 1: memcpy(to, &narrow8, 1); break;
    default: memcpy(to, &value, nbytes); break; /* little-endian: the low bytes come first */
    }
}

GEXI_INLINE gex_RMA_Value_t gexi_load(const void *from, size_t nbytes)
{
    gex_RMA_Value_t value = 0;
    uint8_t narrow8;
    uint16_t narrow16;
    uint32_t narrow32;
    switch (nbytes) {
    case 8: memcpy(&value, from, 8); break;
    case 4: memcpy(&narrow32, from, 4); value = narrow32; break;
    case 2: memcpy(&narrow16, from, 2); value = narrow16; break;
    case 1: memcpy(&narrow8, from, 1); value = narrow8; break;
    default: memcpy(&value, from, nbytes); break;
    }
    return value;
}

GEXI_INLINE int gex_RMA_PutBlocking(gex_TM_t tm, gex_Rank_t rank, void *dest, const void *src, size_t nbytes,
                                    gex_Flags_t flags)
{
    struct gexi_place at;
    if (GEXI_UNLIKELY(!gexi_reach(tm, rank, dest, nbytes, &at)) || GEXI_UNLIKELY(!src) ||
        GEXI_UNLIKELY(!GEXI_RMA_PLAIN(flags)))
        return gexi_RMA_PutBlocking(tm, rank, gexi_again(at), src, nbytes, flags);
    memcpy(GEXI_HERE(at), src, nbytes);
    GEXI_ORDER();
    return 0;
}

GEXI_INLINE int gex_RMA_PutNBI(gex_TM_t tm, gex_Rank_t rank, void *dest, const void *src, size_t nbytes,
                               gex_Event_t *lc_opt, gex_Flags_t flags)
{
    struct gexi_place at;
    if (GEXI_UNLIKELY(!gexi_reach(tm, rank, dest, nbytes, &at)) || GEXI_UNLIKELY(!src) ||
        GEXI_UNLIKELY(!GEXI_RMA_PLAIN(flags)) ||
        GEXI_UNLIKELY((uintptr_t)lc_opt - 1 > 2)) /* neither NOW, DEFER nor GROUP */
        return gexi_RMA_PutNBI(tm, rank, gexi_again(at), src, nbytes, lc_opt, flags);
    memcpy(GEXI_HERE(at), src, nbytes);
    return 0;
}

GEXI_INLINE gex_Event_t gex_RMA_PutNB(gex_TM_t tm, gex_Rank_t rank, void *dest, const void *src, size_t nbytes,
                                      gex_Event_t *lc_opt, gex_Flags_t flags)
{
    struct gexi_place at;
    if (GEXI_UNLIKELY(!gexi_reach(tm, rank, dest, nbytes, &at)) || GEXI_UNLIKELY(!src) ||
        GEXI_UNLIKELY(!GEXI_RMA_PLAIN(flags)) ||
        GEXI_UNLIKELY(lc_opt == NULL) || GEXI_UNLIKELY(lc_opt == GEX_EVENT_GROUP))
        return gexi_RMA_PutNB(tm, rank, gexi_again(at), src, nbytes, lc_opt, flags);
    memcpy(GEXI_HERE(at), src, nbytes);
    if (lc_opt != GEX_EVENT_NOW && lc_opt != GEX_EVENT_DEFER) *lc_opt = GEX_EVENT_INVALID;
    return GEX_EVENT_INVALID;
}

GEXI_INLINE int gex_RMA_GetBlocking(gex_TM_t tm, void *dest, gex_Rank_t rank, const void *src, size_t nbytes,
                                    gex_Flags_t flags)
{
    struct gexi_place at;
    if (GEXI_UNLIKELY(!gexi_reach(tm, rank, src, nbytes, &at)) || GEXI_UNLIKELY(!dest) ||
        GEXI_UNLIKELY(!GEXI_RMA_PLAIN(flags)))
        return gexi_RMA_GetBlocking(tm, dest, rank, gexi_again(at), nbytes, flags);
    memcpy(dest, GEXI_HERE(at), nbytes);
    GEXI_ACQUIRE();
    return 0;
}

GEXI_INLINE int gex_RMA_GetNBI(gex_TM_t tm, void *dest, gex_Rank_t rank, const void *src, size_t nbytes,
                               gex_Flags_t flags)
{
    struct gexi_place at;
    if (GEXI_UNLIKELY(!gexi_reach(tm, rank, src, nbytes, &at)) || GEXI_UNLIKELY(!dest) ||
        GEXI_UNLIKELY(!GEXI_RMA_PLAIN(flags)))
        return gexi_RMA_GetNBI(tm, dest, rank, gexi_again(at), nbytes, flags);
    memcpy(dest, GEXI_HERE(at), nbytes);
    return 0;
}

GEXI_INLINE gex_Event_t gex_RMA_GetNB(gex_TM_t tm, void *dest, gex_Rank_t rank, const void *src, size_t nbytes,
                                      gex_Flags_t flags)
{
    struct gexi_place at;
    if (GEXI_UNLIKELY(!gexi_reach(tm, rank, src, nbytes, &at)) || GEXI_UNLIKELY(!dest) ||
        GEXI_UNLIKELY(!GEXI_RMA_PLAIN(flags)))
        return gexi_RMA_GetNB(tm, dest, rank, gexi_again(at), nbytes, flags);
    memcpy(dest, GEXI_HERE(at), nbytes);
    return GEX_EVENT_INVALID;
}

GEXI_INLINE gex_RMA_Value_t gex_RMA_GetBlockingVal(gex_TM_t tm, gex_Rank_t rank, const void *src, size_t nbytes,
                                                   gex_Flags_t flags)
{
    struct gexi_place at;
    gex_RMA_Value_t value;
    if (GEXI_UNLIKELY(!gexi_reach(tm, rank, src, nbytes, &at)) || GEXI_UNLIKELY(nbytes > SIZEOF_GEX_RMA_VALUE_T) ||
        GEXI_UNLIKELY(!GEXI_RMA_PLAIN(flags)))
        return gexi_RMA_GetBlockingVal(tm, rank, gexi_again(at), nbytes, flags);
    value = gexi_load(GEXI_HERE(at), nbytes);
    GEXI_ACQUIRE();
    return value;
}

GEXI_INLINE int gex_RMA_PutBlockingVal(gex_TM_t tm, gex_Rank_t rank, void *dest, gex_RMA_Value_t value, size_t nbytes,
                                       gex_Flags_t flags)
{
    struct gexi_place at;
    if (GEXI_UNLIKELY(!gexi_reach(tm, rank, dest, nbytes, &at)) || GEXI_UNLIKELY(nbytes > SIZEOF_GEX_RMA_VALUE_T) ||
        GEXI_UNLIKELY(!GEXI_RMA_PLAIN(flags)))
        return gexi_RMA_PutBlockingVal(tm, rank, gexi_again(at), value, nbytes, flags);
    gexi_store(GEXI_HERE(at), value, nbytes);
    GEXI_ORDER();
    return 0;
}

GEXI_INLINE int gex_RMA_PutNBIVal(gex_TM_t tm, gex_Rank_t rank, void *dest, gex_RMA_Value_t value, size_t nbytes,
                                  gex_Flags_t flags)
{
    struct gexi_place at;
    if (GEXI_UNLIKELY(!gexi_reach(tm, rank, dest, nbytes, &at)) || GEXI_UNLIKELY(nbytes > SIZEOF_GEX_RMA_VALUE_T) ||
        GEXI_UNLIKELY(!GEXI_RMA_PLAIN(flags)))
        return gexi_RMA_PutNBIVal(tm, rank, gexi_again(at), value, nbytes, flags);
    gexi_store(GEXI_HERE(at), value, nbytes);
    return 0;
}

GEXI_INLINE gex_Event_t gex_RMA_PutNBVal(gex_TM_t tm, gex_Rank_t rank, void *dest, gex_RMA_Value_t value, size_t nbytes,
                                         gex_Flags_t flags)
{
    struct gexi_place at;
    if (GEXI_UNLIKELY(!gexi_reach(tm, rank, dest, nbytes, &at)) || GEXI_UNLIKELY(nbytes > SIZEOF_GEX_RMA_VALUE_T) ||
        GEXI_UNLIKELY(!GEXI_RMA_PLAIN(flags)))
        return gexi_RMA_PutNBVal(tm, rank, gexi_again(at), value, nbytes, flags);
    gexi_store(GEXI_HERE(at), value, nbytes);
    return GEX_EVENT_INVALID;
}

GEXI_END_C
#endif
