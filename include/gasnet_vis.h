/* gasnet_vis.h: vector, indexed and strided access. Not in the library yet: a program that calls it does not link. */
#ifndef GASNET_VIS_H
#define GASNET_VIS_H 1

#include "gasnetex.h"

GEXI_BEGIN_C

#define GEX_VIS_MAX_PEERCOMPLETION ((size_t)127)

#define GEXI_VIS_LATER(result, suffix)                                                                               \
    GEXI_LATER result gex_VIS_VectorGet##suffix(gex_TM_t tm, size_t dstcount, gex_Memvec_t const dstlist[],          \
                                                gex_Rank_t srcrank, size_t srccount, gex_Memvec_t const srclist[],   \
                                                gex_Flags_t flags);                                                  \
    GEXI_LATER result gex_VIS_VectorPut##suffix(gex_TM_t tm, gex_Rank_t dstrank, size_t dstcount,                    \
                                                gex_Memvec_t const dstlist[], size_t srccount,                       \
                                                gex_Memvec_t const srclist[], gex_Flags_t flags);                    \
    GEXI_LATER result gex_VIS_IndexedGet##suffix(gex_TM_t tm, size_t dstcount, void *const dstlist[], size_t dstlen, \
                                                 gex_Rank_t srcrank, size_t srccount, void *const srclist[],         \
                                                 size_t srclen, gex_Flags_t flags);                                  \
    GEXI_LATER result gex_VIS_IndexedPut##suffix(gex_TM_t tm, gex_Rank_t dstrank, size_t dstcount,                   \
                                                 void *const dstlist[], size_t dstlen, size_t srccount,              \
                                                 void *const srclist[], size_t srclen, gex_Flags_t flags);           \
    GEXI_LATER result gex_VIS_StridedGet##suffix(gex_TM_t tm, void *dstaddr, const ptrdiff_t dststrides[],           \
                                                 gex_Rank_t srcrank, void *srcaddr, const ptrdiff_t srcstrides[],    \
                                                 size_t elemsz, const size_t count[], size_t stridelevels,           \
                                                 gex_Flags_t flags);                                                 \
    GEXI_LATER result gex_VIS_StridedPut##suffix(gex_TM_t tm, gex_Rank_t dstrank, void *dstaddr,                     \
                                                 const ptrdiff_t dststrides[], void *srcaddr,                        \
                                                 const ptrdiff_t srcstrides[], size_t elemsz, const size_t count[],  \
                                                 size_t stridelevels, gex_Flags_t flags)

GEXI_VIS_LATER(gex_Event_t, NB);
GEXI_VIS_LATER(int, NBI);
GEXI_VIS_LATER(int, Blocking);

GEXI_LATER void gex_VIS_SetPeerCompletionHandler(gex_AM_Index_t handler, const void *source_addr, size_t nbytes,
                                                 gex_Flags_t flags);

GEXI_END_C
#endif
