/* gasnet_vis.h: vector, indexed and strided access. Within a neighbourhood a transfer is done when the call returns;
 * over the network many short runs share messages, and long ones are put or got by themselves. Lists and strides are
 * used during the call alone. */
#ifndef GASNET_VIS_H
#define GASNET_VIS_H 1

#include "gasnetex.h"

GEXI_BEGIN_C

#define GEX_VIS_MAX_PEERCOMPLETION ((size_t)127)

#define GEXI_VIS(result, suffix)                                                                                     \
    GEXI_API result gex_VIS_VectorGet##suffix(gex_TM_t tm, size_t dstcount, gex_Memvec_t const dstlist[],            \
                                              gex_Rank_t srcrank, size_t srccount, gex_Memvec_t const srclist[],     \
                                              gex_Flags_t flags);                                                    \
    GEXI_API result gex_VIS_VectorPut##suffix(gex_TM_t tm, gex_Rank_t dstrank, size_t dstcount,                      \
                                              gex_Memvec_t const dstlist[], size_t srccount,                         \
                                              gex_Memvec_t const srclist[], gex_Flags_t flags);                      \
    GEXI_API result gex_VIS_IndexedGet##suffix(gex_TM_t tm, size_t dstcount, void *const dstlist[], size_t dstlen,   \
                                               gex_Rank_t srcrank, size_t srccount, void *const srclist[],           \
                                               size_t srclen, gex_Flags_t flags);                                    \
    GEXI_API result gex_VIS_IndexedPut##suffix(gex_TM_t tm, gex_Rank_t dstrank, size_t dstcount,                     \
                                               void *const dstlist[], size_t dstlen, size_t srccount,                \
                                               void *const srclist[], size_t srclen, gex_Flags_t flags);             \
    GEXI_API result gex_VIS_StridedGet##suffix(gex_TM_t tm, void *dstaddr, const ptrdiff_t dststrides[],             \
                                               gex_Rank_t srcrank, void *srcaddr, const ptrdiff_t srcstrides[],      \
                                               size_t elemsz, const size_t count[], size_t stridelevels,             \
                                               gex_Flags_t flags);                                                   \
    GEXI_API result gex_VIS_StridedPut##suffix(gex_TM_t tm, gex_Rank_t dstrank, void *dstaddr,                       \
                                               const ptrdiff_t dststrides[], void *srcaddr,                          \
                                               const ptrdiff_t srcstrides[], size_t elemsz, const size_t count[],    \
                                               size_t stridelevels, gex_Flags_t flags)

GEXI_VIS(gex_Event_t, NB);
GEXI_VIS(int, NBI);
GEXI_VIS(int, Blocking);

/* For the next put of this thread: a reply handler without arguments, which takes Mediums, runs at the target when the
 * bytes are visible there. Index 0: none. */
GEXI_API void gex_VIS_SetPeerCompletionHandler(gex_AM_Index_t handler, const void *source_addr, size_t nbytes,
                                               gex_Flags_t flags);

GEXI_END_C
#endif
