/* GASNet-1: vector, indexed and strided access, expressed over gasnet_vis.h. */
#ifndef GASNET_IBV_GASNET1_VIS_H
#define GASNET_IBV_GASNET1_VIS_H 1

#include "../gasnet_vis.h"
#include "gasnet1.h"

GEXI_BEGIN_C

/* The two types of a range differ in the names of their members alone. */
#define GEXI1_VECTOR(list) ((gex_Memvec_t const *)(const void *)(list))
/* Strides of GASNet-1 have no sign; the first count is the bytes of an element. */
#define GEXI1_STRIDES(strides) ((const ptrdiff_t *)(const void *)(strides))

#define GEXI1_VIS(result, done, suffix, form)                                                                        \
    GEXI_INLINE result gasnet_putv##suffix##_bulk(gasnet_node_t dstnode, size_t dstcount,                            \
                                                  gasnet_memvec_t const dstlist[], size_t srccount,                  \
                                                  gasnet_memvec_t const srclist[])                                   \
    {                                                                                                                \
        done gex_VIS_VectorPut##form(gexi_world.tm0, dstnode, dstcount, GEXI1_VECTOR(dstlist), srccount,             \
                                     GEXI1_VECTOR(srclist), 0);                                                      \
    }                                                                                                                \
    GEXI_INLINE result gasnet_getv##suffix##_bulk(size_t dstcount, gasnet_memvec_t const dstlist[],                  \
                                                  gasnet_node_t srcnode, size_t srccount,                            \
                                                  gasnet_memvec_t const srclist[])                                   \
    {                                                                                                                \
        done gex_VIS_VectorGet##form(gexi_world.tm0, dstcount, GEXI1_VECTOR(dstlist), srcnode, srccount,             \
                                     GEXI1_VECTOR(srclist), 0);                                                      \
    }                                                                                                                \
    GEXI_INLINE result gasnet_puti##suffix##_bulk(gasnet_node_t dstnode, size_t dstcount, void *const dstlist[],     \
                                                  size_t dstlen, size_t srccount, void *const srclist[],             \
                                                  size_t srclen)                                                     \
    {                                                                                                                \
        done gex_VIS_IndexedPut##form(gexi_world.tm0, dstnode, dstcount, dstlist, dstlen, srccount, srclist,         \
                                      srclen, 0);                                                                    \
    }                                                                                                                \
    GEXI_INLINE result gasnet_geti##suffix##_bulk(size_t dstcount, void *const dstlist[], size_t dstlen,             \
                                                  gasnet_node_t srcnode, size_t srccount,                            \
                                                  void *const srclist[], size_t srclen)                              \
    {                                                                                                                \
        done gex_VIS_IndexedGet##form(gexi_world.tm0, dstcount, dstlist, dstlen, srcnode, srccount, srclist,         \
                                      srclen, 0);                                                                    \
    }                                                                                                                \
    GEXI_INLINE result gasnet_puts##suffix##_bulk(gasnet_node_t dstnode, void *dstaddr, const size_t dststrides[],   \
                                                  void *srcaddr, const size_t srcstrides[],                          \
                                                  const size_t count[], size_t stridelevels)                         \
    {                                                                                                                \
        done gex_VIS_StridedPut##form(gexi_world.tm0, dstnode, dstaddr, GEXI1_STRIDES(dststrides), srcaddr,          \
                                      GEXI1_STRIDES(srcstrides), count[0], count + 1, stridelevels, 0);              \
    }                                                                                                                \
    GEXI_INLINE result gasnet_gets##suffix##_bulk(void *dstaddr, const size_t dststrides[], gasnet_node_t srcnode,   \
                                                  void *srcaddr, const size_t srcstrides[],                          \
                                                  const size_t count[], size_t stridelevels)                         \
    {                                                                                                                \
        done gex_VIS_StridedGet##form(gexi_world.tm0, dstaddr, GEXI1_STRIDES(dststrides), srcnode, srcaddr,          \
                                      GEXI1_STRIDES(srcstrides), count[0], count + 1, stridelevels, 0);              \
    }

GEXI1_VIS(void, (void), , Blocking)
GEXI1_VIS(gasnet_handle_t, return, _nb, NB)
GEXI1_VIS(void, (void), _nbi, NBI)

#undef GEXI1_VIS

GEXI_END_C
#endif
