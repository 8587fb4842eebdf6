/* gasnet_tools.h: the gasnett_* portability tools, our own.
 *
 * Inline over the C library: no library of ours is needed, unless gasnetex.h came first, which makes gasnett_getenv
 * see the job's environment, and for what section "library" below takes from it. Thread mode: GASNETT_THREAD_SAFE or
 * GASNETT_THREAD_SINGLE, else that of gasnetex.h. */
#ifndef GASNET_TOOLS_H
#define GASNET_TOOLS_H 1
#define _INCLUDED_GASNET_TOOLS_H 1

#include "gasnet_ibv/tools/annotations.h"
#include "gasnet_ibv/tools/atomics.h"
#include "gasnet_ibv/tools/env.h"
#include "gasnet_ibv/tools/errors.h"
#include "gasnet_ibv/tools/fences.h"
#include "gasnet_ibv/tools/locks.h"
#include "gasnet_ibv/tools/platform.h"
#include "gasnet_ibv/tools/system.h"
#include "gasnet_ibv/tools/time.h"
#include "gasnet_ibv/tools/trace.h"

/* Library: need gasnetex.h, before or after this header. */
#define gasnett_run_diagnostics gasneti_run_diagnostics
#define gasnett_diagnostic_gethandlers gasneti_diagnostic_gethandlers
#define gasnett_mmap(size) gasneti_mmap(size)
#define gasnett_format_op(buffer, op) gasneti_format_op(buffer, op)
#define gasnett_format_dt(buffer, dt) gasneti_format_dt(buffer, dt)
#define gasnett_format_ti(buffer, ti) gasneti_format_ti(buffer, ti)

/* Lists in text; gasnet_ibv/lists.h says what these return and write. */
#define gasnett_format_memveclist gasneti_format_memveclist
#define gasnett_format_memveclist_bufsz gasneti_format_memveclist_bufsz
#define gasnett_format_addrlist gasneti_format_addrlist
#define gasnett_format_addrlist_bufsz gasneti_format_addrlist_bufsz
#define gasnett_format_strides gasneti_format_strides
#define gasnett_format_strides_bufsz gasneti_format_strides_bufsz
#define gasnett_format_putvgetv gasneti_format_putvgetv
#define gasnett_format_putvgetv_bufsz gasneti_format_putvgetv_bufsz
#define gasnett_format_putigeti gasneti_format_putigeti
#define gasnett_format_putigeti_bufsz gasneti_format_putigeti_bufsz
#define gasnett_format_putsgets gasneti_format_putsgets
#define gasnett_format_putsgets_bufsz gasneti_format_putsgets_bufsz

#endif
