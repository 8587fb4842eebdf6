/* The program's part of trace and statistics (GASNET_TRACEFILE, GASNET_STATSFILE, --trace).
 *
 * Behind gasnetex.h these write into the trace of the rank, where it takes them; arguments are evaluated only then.
 * Without gasnetex.h there is no rank, and they do nothing. */
#ifndef GASNET_IBV_TOOLS_TRACE_H
#define GASNET_IBV_TOOLS_TRACE_H 1

#include "../base.h"

GEXI_BEGIN_C

/* For clients that hand the function on instead of calling the macro. */
__attribute__((__format__(__printf__, 1, 2))) GEXI_INLINE void _gasnett_trace_printf_noop(const char *format, ...)
{
    (void)format;
}

GEXI_END_C

#ifdef _INCLUDED_GASNETEX_H

#include <stdarg.h>
#include <stdio.h>

GEXI_BEGIN_C

/* What a text is for: the trace (0), or the statistics (1); more 2 when no mask keeps it out. */
#define GEXI_TRACE_STATS 1
#define GEXI_TRACE_FORCE 2

/* Whether such a text would be kept. */
GEXI_API int gexi_trace_takes(int what);
/* Keeps it. */
GEXI_API void gexi_trace_text(int what, const char *text);
/* The letters of the trace's mask, or of that of the statistics. Stays valid. */
GEXI_API const char *gexi_trace_getmask(int what);
GEXI_API void gexi_trace_setmask(int what, const char *mask);
GEXI_API int gexi_trace_getlocal(void);
GEXI_API void gexi_trace_setlocal(int on);
/* The program's source line on this thread; `file` stays valid. `freeze`: 1 ignores others from now on, -1 no more. */
GEXI_API void gexi_trace_setline(const char *file, unsigned int line);
GEXI_API void gexi_trace_getline(const char **file_p, unsigned int *line_p);
GEXI_API void gexi_trace_freezeline(int freeze);
/* A function to be called before statistics are written; writes them now, and may begin anew. */
typedef void (*gexi_stats_callback_t)(void);
GEXI_API void gexi_stats_init(gexi_stats_callback_t callback);
GEXI_API void gexi_stats_dump(int reset);

__attribute__((__format__(__printf__, 2, 3))) GEXI_INLINE void gexi_trace_printf(int what, const char *format, ...)
{
    char text[4096];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    gexi_trace_text(what, text);
}

GEXI_END_C

#define GEXI_TRACE_PRINTF(what, ...) (gexi_trace_takes(what) ? gexi_trace_printf(what, __VA_ARGS__) : (void)0)

#define GASNETT_TRACE_ENABLED gexi_trace_takes(0)
#define GASNETT_TRACE_PRINTF(...) GEXI_TRACE_PRINTF(0, __VA_ARGS__)
#define GASNETT_TRACE_PRINTF_FORCE(...) GEXI_TRACE_PRINTF(GEXI_TRACE_FORCE, __VA_ARGS__)
#define GASNETT_TRACE_GETMASK() gexi_trace_getmask(0)
#define GASNETT_TRACE_SETMASK(mask) gexi_trace_setmask(0, mask)
#define GASNETT_TRACE_GET_TRACELOCAL() gexi_trace_getlocal()
#define GASNETT_TRACE_SET_TRACELOCAL(on) gexi_trace_setlocal(on)
#define GASNETT_TRACE_SETSOURCELINE(file, line) gexi_trace_setline(file, (unsigned int)(line))
/* Of any type of pointer that holds such things, as the original's. */
#define GASNETT_TRACE_GETSOURCELINE(file_p, line_p)                                                                  \
    gexi_trace_getline((const char **)(void *)(file_p), (unsigned int *)(void *)(line_p))
#define GASNETT_TRACE_FREEZESOURCELINE() gexi_trace_freezeline(1)
#define GASNETT_TRACE_UNFREEZESOURCELINE() gexi_trace_freezeline(-1)
#define GASNETT_STATS_INIT(callback) gexi_stats_init((gexi_stats_callback_t)(callback))
#define GASNETT_STATS_DUMP(reset) gexi_stats_dump(reset)
#define GASNETT_STATS_PRINTF(...) GEXI_TRACE_PRINTF(GEXI_TRACE_STATS, __VA_ARGS__)
#define GASNETT_STATS_PRINTF_FORCE(...) GEXI_TRACE_PRINTF(GEXI_TRACE_STATS | GEXI_TRACE_FORCE, __VA_ARGS__)
#define GASNETT_STATS_GETMASK() gexi_trace_getmask(GEXI_TRACE_STATS)
#define GASNETT_STATS_SETMASK(mask) gexi_trace_setmask(GEXI_TRACE_STATS, mask)

#else

#define GASNETT_TRACE_ENABLED 0
#define GASNETT_TRACE_PRINTF(...) ((void)0)
#define GASNETT_TRACE_PRINTF_FORCE(...) ((void)0)
#define GASNETT_TRACE_GETMASK() ""
#define GASNETT_TRACE_SETMASK(mask) ((void)0)
#define GASNETT_TRACE_GET_TRACELOCAL() 0
#define GASNETT_TRACE_SET_TRACELOCAL(on) ((void)0)
#define GASNETT_TRACE_SETSOURCELINE(file, line) ((void)0)
#define GASNETT_TRACE_GETSOURCELINE(file_p, line_p) ((void)0)
#define GASNETT_TRACE_FREEZESOURCELINE() ((void)0)
#define GASNETT_TRACE_UNFREEZESOURCELINE() ((void)0)
#define GASNETT_STATS_INIT(callback) ((void)0)
#define GASNETT_STATS_DUMP(reset) ((void)0)
#define GASNETT_STATS_PRINTF(...) ((void)0)
#define GASNETT_STATS_PRINTF_FORCE(...) ((void)0)
#define GASNETT_STATS_GETMASK() ""
#define GASNETT_STATS_SETMASK(mask) ((void)0)

#endif

#endif
