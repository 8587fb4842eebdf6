/* gasnet_mk.h: kinds of memory. Built in is that of the host, GEX_MK_HOST, which needs no creation. Of classes of devices
 * GASNET_HAVE_MK_CLASS_* is not defined, and gex_MK_Create returns GASNET_ERR_BAD_ARG. */
#ifndef GASNET_MK_H
#define GASNET_MK_H 1

#include "gasnetex.h"

GEXI_BEGIN_C

typedef enum { GEX_MK_CLASS_HOST, GEX_MK_CLASS_CUDA_UVA, GEX_MK_CLASS_HIP, GEX_MK_CLASS_ZE } gex_MK_Class_t;

typedef struct {
    uint64_t gex_flags;
    gex_MK_Class_t gex_class;
    union {
        struct {
            int gex_CUdevice;
        } gex_class_cuda_uva;
        struct {
            int gex_hipDevice;
        } gex_class_hip;
        struct {
            void *gex_zeDevice;
            void *gex_zeContext;
            uint32_t gex_zeMemoryOrdinal;
        } gex_class_ze;
    } gex_args;
} gex_MK_Create_args_t;

/* A kind of the class of `args`, with flags 0 in both places. Of GEX_MK_CLASS_HOST it is GEX_MK_HOST itself. */
GEXI_API int gex_MK_Create(gex_MK_t *mk_p, gex_Client_t client, const gex_MK_Create_args_t *args, gex_Flags_t flags);
GEXI_API void gex_MK_Destroy(gex_MK_t mk, gex_Flags_t flags);

GEXI_END_C
#endif
