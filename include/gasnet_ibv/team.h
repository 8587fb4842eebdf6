/* Teams and pairs. */
#ifndef GASNET_IBV_TEAM_H
#define GASNET_IBV_TEAM_H 1

#include "types.h"
#include "world.h"

GEXI_BEGIN_C

GEXI_API gex_Rank_t gexi_TM_QueryRank(gex_TM_t tm);
GEXI_API gex_Rank_t gexi_TM_QuerySize(gex_TM_t tm);

GEXI_INLINE gex_Rank_t gex_TM_QueryRank(gex_TM_t tm)
{
    return GEXI_LIKELY(tm == gexi_world.tm0) ? gexi_world.rank : gexi_TM_QueryRank(tm);
}

GEXI_INLINE gex_Rank_t gex_TM_QuerySize(gex_TM_t tm)
{
    return GEXI_LIKELY(tm == gexi_world.tm0) ? gexi_world.size : gexi_TM_QuerySize(tm);
}

GEXI_API gex_Client_t gex_TM_QueryClient(gex_TM_t tm);
GEXI_API gex_EP_t gex_TM_QueryEP(gex_TM_t tm);
GEXI_API gex_Flags_t gex_TM_QueryFlags(gex_TM_t tm);
GEXI_API void gex_TM_SetCData(gex_TM_t tm, const void *cdata);
GEXI_API void *gex_TM_QueryCData(gex_TM_t tm);

/* Names (local endpoint, index of the remote one) for point-to-point calls, whose rank is then a job rank. */
GEXI_API gex_TM_t gex_TM_Pair(gex_EP_t local_ep, gex_EP_Index_t remote_ep_index);

GEXI_API gex_Rank_t gex_TM_TranslateRankToJobrank(gex_TM_t tm, gex_Rank_t rank);
/* GEX_RANK_INVALID when that rank of the job is not a member. */
GEXI_API gex_Rank_t gex_TM_TranslateJobrankToRank(gex_TM_t tm, gex_Rank_t jobrank);
GEXI_API gex_EP_Location_t gex_TM_TranslateRankToEP(gex_TM_t tm, gex_Rank_t rank, gex_Flags_t flags);

/* Further teams. Collective over `parent` and `tm`. Scratch space is the client's again after Destroy, which says where it
 * is; the library needs none. */
GEXI_API size_t gex_TM_Split(gex_TM_t *new_tm_p, gex_TM_t parent, int color, int key, void *scratch_addr,
                             size_t scratch_size, gex_Flags_t flags);
GEXI_API size_t gex_TM_Create(gex_TM_t *new_tms, size_t num_new_tms, gex_TM_t parent, gex_EP_Location_t *args,
                              size_t numargs, gex_Addr_t *scratch_addrs, size_t scratch_size, gex_Flags_t flags);
GEXI_API int gex_TM_Destroy(gex_TM_t tm, gex_Memvec_t *scratch_p, gex_Flags_t flags);

GEXI_END_C
#endif
