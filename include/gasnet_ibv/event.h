/* Events and implicit synchronization. */
#ifndef GASNET_IBV_EVENT_H
#define GASNET_IBV_EVENT_H 1

#include "types.h"

GEXI_BEGIN_C

GEXI_API int gexi_Event_Test(gex_Event_t event);
GEXI_API void gexi_Event_Wait(gex_Event_t event);

/* 0 when complete, else GASNET_ERR_NOT_READY. Does not poll. */
GEXI_INLINE int gex_Event_Test(gex_Event_t event)
{
    if (event != GEX_EVENT_INVALID) return gexi_Event_Test(event);
    GEXI_ORDER();
    return GASNET_OK;
}

GEXI_INLINE void gex_Event_Wait(gex_Event_t event)
{
    if (event != GEX_EVENT_INVALID) gexi_Event_Wait(event);
    GEXI_ORDER();
}

/* Arrays: entries that complete are overwritten with GEX_EVENT_INVALID. */
GEXI_API int gex_Event_TestSome(gex_Event_t *events, size_t count, gex_Flags_t flags);
GEXI_API void gex_Event_WaitSome(gex_Event_t *events, size_t count, gex_Flags_t flags);
GEXI_API int gex_Event_TestAll(gex_Event_t *events, size_t count, gex_Flags_t flags);
GEXI_API void gex_Event_WaitAll(gex_Event_t *events, size_t count, gex_Flags_t flags);
GEXI_API gex_Event_t gex_Event_QueryLeaf(gex_Event_t root, gex_EC_t category);

/* Implicit operations of the calling thread. */
GEXI_API int gex_NBI_Test(gex_EC_t mask, gex_Flags_t flags);
GEXI_API void gex_NBI_Wait(gex_EC_t mask, gex_Flags_t flags);
GEXI_API void gex_NBI_BeginAccessRegion(gex_Flags_t flags);
GEXI_API gex_Event_t gex_NBI_EndAccessRegion(gex_Flags_t flags);

GEXI_END_C
#endif
