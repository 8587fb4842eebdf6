/* Fatal errors, signals, backtraces, waiting for a debugger. */
#ifndef GASNET_IBV_TOOLS_ERRORS_H
#define GASNET_IBV_TOOLS_ERRORS_H 1

#include <execinfo.h>
#include <signal.h>
#include <stdarg.h>
#include <unistd.h>

#include "annotations.h"
#include "libc.h"

GEXI_BEGIN_C

typedef void (*gasnett_sighandlerfn_t)(int);

/* Like signal(): the handler stays, interrupted calls go on. Returns the former one. */
GEXI_INLINE gasnett_sighandlerfn_t gasnett_reghandler(int number, gasnett_sighandlerfn_t handler)
{
    return gexi_libc_signal(number, handler);
}

/* A client may define this variable to print backtraces its own way. */
typedef struct {
    const char *name;
    int (*fnp)(int fd); /* 0: printed */
    int threadsupport;
} gasnett_backtrace_type_t;
extern gasnett_backtrace_type_t gasnett_backtrace_user __attribute__((__weak__));

/* Functions on this thread's stack, one a line. 0: printed. */
GEXI_INLINE int gasnett_print_backtrace(int fd)
{
    gasnett_backtrace_type_t *user = &gasnett_backtrace_user;
    void *frames[100];
    int count;
    if (user && user->fnp && user->fnp(fd) == 0) return 0;
    count = backtrace(frames, (int)(sizeof(frames) / sizeof(frames[0])));
    if (count <= 0) return 1;
    backtrace_symbols_fd(frames, count, fd);
    return 0;
}

/* With GASNET_BACKTRACE set to yes: 0 printed, 1 not enabled. */
GEXI_INLINE int gasnett_print_backtrace_ifenabled(int fd)
{
    const char *wish = getenv("GASNET_BACKTRACE");
    if (!wish || (*wish != '1' && *wish != 'y' && *wish != 'Y')) return 1;
    return gasnett_print_backtrace(fd);
}

/* Loads what a backtrace needs now, so that a signal handler need not. */
GEXI_INLINE void gasnett_backtrace_init(const char *exe_name)
{
    void *frame;
    (void)exe_name;
    (void)backtrace(&frame, 1);
}

/* Prints where to attach, and stops until a debugger sets *flag. */
GEXI_INLINE void gasnett_freezeForDebuggerNow(volatile int *flag, const char *flag_name)
{
    char host[256] = "?";
    (void)gexi_libc_gethostname(host, sizeof(host) - 1);
    fprintf(stderr, "gasnet_ibv: process %ld on %s waits for a debugger; set %s to go on\n", (long)getpid(), host,
            flag_name);
    while (!*flag) (void)sleep(1);
}

GEXI_INLINE void gasnett_freezeForDebuggerErr(void)
{
    static volatile int gexi_resume;
    const char *wish = getenv("GASNET_FREEZE_ON_ERROR");
    if (wish && (*wish == '1' || *wish == 'y' || *wish == 'Y')) gasnett_freezeForDebuggerNow(&gexi_resume, "gexi_resume");
}

/* Ends this process at once. */
GEXI_INLINE GEXI_NORETURN void gasnett_killmyprocess(int code)
{
    _exit(code);
}

/* "function at file:line", in memory of the calling thread. */
GEXI_INLINE const char *gexi_location(const char *function, const char *file, int line)
{
    static __thread char text[512];
    (void)snprintf(text, sizeof(text), "%s at %s:%d", function, file, line);
    return text;
}
#define gasnett_current_loc gexi_location(__func__, __FILE__, __LINE__)

/* Prints one line on stderr and aborts. */
static __attribute__((__unused__, __cold__, __noinline__, __noreturn__, __format__(__printf__, 2, 3))) void
gexi_fatal(const char *where, const char *format, ...)
{
    char text[2048];
    int used = snprintf(text, sizeof(text), "gasnet_ibv: fatal error (process %ld): %s%s", (long)getpid(),
                        where ? where : "", where ? ": " : "");
    size_t room, length = used < 0 ? 0 : (size_t)used < sizeof(text) ? (size_t)used : sizeof(text) - 1;
    va_list list;
    (void)fflush(stdout);
    room = sizeof(text) - length;
    va_start(list, format);
    used = vsnprintf(text + length, room, format, list);
    va_end(list);
    if (used > 0) length += (size_t)used < room ? (size_t)used : room - 1;
    if (length == sizeof(text) - 1) length--;
    text[length++] = '\n';
    if (write(STDERR_FILENO, text, length) < 0) length = 0; /* nothing left to tell it to */
    (void)gasnett_print_backtrace_ifenabled(STDERR_FILENO);
    gasnett_freezeForDebuggerErr();
    abort();
}
#define gasnett_fatalerror(...) gexi_fatal(gasnett_current_loc, __VA_ARGS__)
#define gasnett_fatalerror_nopos(...) gexi_fatal(NULL, __VA_ARGS__)

GEXI_END_C
#endif
