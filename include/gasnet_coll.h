/* gasnet_coll.h: collectives beside the barrier. */
#ifndef GASNET_COLL_H
#define GASNET_COLL_H 1

#include "gasnet_ibv/gasnet1_coll.h"
#include "gasnetex.h"

GEXI_BEGIN_C

/* Copies `nbytes` from `src` of the root to `dst` of every member. Buffers belong to the call until it is complete. */
GEXI_API gex_Event_t gex_Coll_BroadcastNB(gex_TM_t tm, gex_Rank_t root, void *dst, const void *src, size_t nbytes,
                                          gex_Flags_t flags);

/* Combines `dt_cnt` elements of every member, one for one, in the order of the members' ranks. GEX_OP_ADD, MULT, MIN, MAX;
 * of integers also AND, OR, XOR; GEX_OP_USER, and GEX_OP_USER_NC for what is not commutative, call `user_op`. Sources and
 * results may be the same. */
typedef void (*gex_Coll_ReduceFn_t)(const void *arg1, void *arg2_and_out, size_t count, const void *cdata);
GEXI_API gex_Event_t gex_Coll_ReduceToOneNB(gex_TM_t tm, gex_Rank_t root, void *dst, const void *src, gex_DT_t dt,
                                            size_t dt_sz, size_t dt_cnt, gex_OP_t op, gex_Coll_ReduceFn_t user_op,
                                            void *user_cdata, gex_Flags_t flags);
GEXI_API gex_Event_t gex_Coll_ReduceToAllNB(gex_TM_t tm, void *dst, const void *src, gex_DT_t dt, size_t dt_sz,
                                            size_t dt_cnt, gex_OP_t op, gex_Coll_ReduceFn_t user_op,
                                            void *user_cdata, gex_Flags_t flags);

GEXI_END_C
#endif
