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

/* The library looks at itself: messages, transfers and barriers between all ranks, so many of each. Collective over tm0.
 * `sections` has letters of those that run (B barriers, M messages, T transfers), or is null or empty for all. Messages
 * need the handlers of the table to be registered, transfers a segment of the first endpoint at all ranks, whose first
 * 1000 bytes for each thread are written. In mode PAR so many threads transfer. What follows `sections` is not looked
 * at. Returns how many answers were wrong. */
GEXI_API int gasneti_run_diagnostics(int iterations, int threads, const char *sections, ...);
/* The table for gex_EP_RegisterHandlers, in memory of the library; before the call above. */
GEXI_API void gasneti_diagnostic_gethandlers(gex_AM_Entry_t **table_p, int *count_p);

/* Fresh zeroed memory of whole pages, or (void *)-1. */
GEXI_API void *gasneti_mmap(uintptr_t size);

GEXI_END_C
#endif
