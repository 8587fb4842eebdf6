/* Barriers of a team, and the split-phase barrier of the job with ids. */
#ifndef GASNET_IBV_BARRIER_H
#define GASNET_IBV_BARRIER_H 1

#include "event.h"
#include "types.h"

GEXI_BEGIN_C

/* Completes when every member has called it. Several may be under way, and be waited for in any order. */
GEXI_API gex_Event_t gex_Coll_BarrierNB(gex_TM_t tm, gex_Flags_t flags);

GEXI_INLINE void gex_Coll_BarrierBlocking(gex_TM_t tm, gex_Flags_t flags)
{
    gex_Event_Wait(gex_Coll_BarrierNB(tm, flags));
}

/* One at a time in a process, over the whole job. */
#define GASNET_BARRIERFLAG_ANONYMOUS 1
#define GASNET_BARRIERFLAG_MISMATCH 2
#define GASNET_BARRIERFLAG_UNNAMED 9
GEXI_API void gasnet_barrier_notify(int id, int flags);
GEXI_API int gasnet_barrier_wait(int id, int flags);
GEXI_API int gasnet_barrier_try(int id, int flags);
GEXI_API int gasnet_barrier(int id, int flags);
/* 0 and the agreed id after a named barrier, non-zero after an anonymous one. */
GEXI_API int gasnet_barrier_result(int *id);

GEXI_END_C
#endif
