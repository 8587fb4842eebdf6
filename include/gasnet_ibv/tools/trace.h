/* Tracing and statistics are not compiled in: these do nothing and do not evaluate their arguments. */
#ifndef GASNET_IBV_TOOLS_TRACE_H
#define GASNET_IBV_TOOLS_TRACE_H 1

#include "../base.h"

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

GEXI_BEGIN_C

/* For clients that hand the function on instead of calling the macro. */
__attribute__((__format__(__printf__, 1, 2))) GEXI_INLINE void _gasnett_trace_printf_noop(const char *format, ...)
{
    (void)format;
}

GEXI_END_C

#endif
