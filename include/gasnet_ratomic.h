/* gasnet_ratomic.h: remote atomics.
 *
 * A domain operates on words of one type in the segments of a team's ranks, by the operations it was created for. They
 * are atomic to each other on whatever rank and thread they start, and to nothing else: between phases of a domain and
 * of other accesses to a word all ranks wait for their operations and meet in a barrier. */
#ifndef GASNET_RATOMIC_H
#define GASNET_RATOMIC_H 1

#include "gasnetex.h"

#include "gasnet_ibv/atomics.h"

GEXI_BEGIN_C

/* Collective over the team. */
GEXI_API void gex_AD_Create(gex_AD_t *ad_p, gex_TM_t tm, gex_DT_t dt, gex_OP_t ops, gex_Flags_t flags);
/* Collective; after a barrier that follows the last wait for an operation of the domain on any rank. */
GEXI_API void gex_AD_Destroy(gex_AD_t ad);

GEXI_API gex_Flags_t gex_AD_QueryFlags(gex_AD_t ad);
GEXI_API gex_TM_t gex_AD_QueryTM(gex_AD_t ad);
GEXI_API gex_DT_t gex_AD_QueryDT(gex_AD_t ad);
GEXI_API gex_OP_t gex_AD_QueryOps(gex_AD_t ad);
GEXI_API void gex_AD_SetCData(gex_AD_t ad, const void *cdata);
GEXI_API void *gex_AD_QueryCData(gex_AD_t ad);

/* For each type DT: gex_Event_t gex_AD_OpNB_DT(ad, result_p, tgt_rank, tgt_addr, opcode, operand1, operand2, flags),
 * and int gex_AD_OpNBI_DT(the same). What an operation fetches is in *result_p when it is complete; operands that it
 * does not have are ignored. */
GEXI_AD_OPERATIONS(I32, int32_t)
GEXI_AD_OPERATIONS(U32, uint32_t)
GEXI_AD_OPERATIONS(I64, int64_t)
GEXI_AD_OPERATIONS(U64, uint64_t)
GEXI_AD_OPERATIONS(FLT, float)
GEXI_AD_OPERATIONS(DBL, double)

GEXI_END_C
#endif
