/* gasnet_ratomic.h: remote atomics. Not in the library yet: a program that calls it does not link. */
#ifndef GASNET_RATOMIC_H
#define GASNET_RATOMIC_H 1

#include "gasnetex.h"

GEXI_BEGIN_C

GEXI_LATER void gex_AD_Create(gex_AD_t *ad_p, gex_TM_t tm, gex_DT_t dt, gex_OP_t ops, gex_Flags_t flags);
GEXI_LATER void gex_AD_Destroy(gex_AD_t ad);
GEXI_LATER gex_Flags_t gex_AD_QueryFlags(gex_AD_t ad);
GEXI_LATER gex_TM_t gex_AD_QueryTM(gex_AD_t ad);
GEXI_LATER gex_DT_t gex_AD_QueryDT(gex_AD_t ad);
GEXI_LATER gex_OP_t gex_AD_QueryOps(gex_AD_t ad);
GEXI_LATER void gex_AD_SetCData(gex_AD_t ad, const void *cdata);
GEXI_LATER void *gex_AD_QueryCData(gex_AD_t ad);

#define GEXI_AD_LATER(dt, type)                                                                                      \
    GEXI_LATER gex_Event_t gex_AD_OpNB_##dt(gex_AD_t ad, type *result_p, gex_Rank_t tgt_rank, void *tgt_addr,        \
                                            gex_OP_t opcode, type operand1, type operand2, gex_Flags_t flags);       \
    GEXI_LATER int gex_AD_OpNBI_##dt(gex_AD_t ad, type *result_p, gex_Rank_t tgt_rank, void *tgt_addr,               \
                                     gex_OP_t opcode, type operand1, type operand2, gex_Flags_t flags)

GEXI_AD_LATER(I32, int32_t);
GEXI_AD_LATER(U32, uint32_t);
GEXI_AD_LATER(I64, int64_t);
GEXI_AD_LATER(U64, uint64_t);
GEXI_AD_LATER(FLT, float);
GEXI_AD_LATER(DBL, double);

GEXI_END_C
#endif
