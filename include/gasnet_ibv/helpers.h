/* Helpers that the gasnett_* tools take from the conduit library. Their names are the original's, so that its own
 * tools headers can stand behind gasnetex.h. */
#ifndef GASNET_IBV_HELPERS_H
#define GASNET_IBV_HELPERS_H 1

#include "lists.h"
#include "types.h"

GEXI_BEGIN_C

/* Text such as "GEX_OP_ADD|GEX_OP_GET" with its final zero. Returns the bytes needed; writes them when `buffer` is not null. */
GEXI_API size_t gasneti_format_op(char *buffer, gex_OP_t op);
GEXI_API size_t gasneti_format_dt(char *buffer, gex_DT_t dt);
GEXI_API size_t gasneti_format_ti(char *buffer, gex_TI_t ti);

/* Fresh zeroed memory of whole pages, or (void *)-1. */
GEXI_API void *gasneti_mmap(uintptr_t size);

GEXI_END_C
#endif
