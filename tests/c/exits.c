/* Ends a job in every way: exits CASE [milliseconds]. The job's exit code is the number of the case for 1 to 58.
 * last: highest rank; peer: the next one. The program's own SIGQUIT handler exits with 4, which must never win over a
 * code that was there before. A line with TEST FAILED means that a call returned which must not. */
#undef NDEBUG
#include <assert.h>
#include <sys/time.h>

#include "t.h"

#include <gasnet_tools.h>

enum { THREADS = 4, EXIT = 200, NOTHING, SINK, LANDING, PREPARE, RAISE };
static int number;
static long rest_ms = 100;
static char *bases[64];
static int last, peer;

static void returned(const char *what)
{
    t_say("TEST FAILED: %s returned", what);
    _exit(99);
}

static void on_quit(int signal)
{
    static const char line[] = "exits: SIGQUIT handler\n";
    (void)signal;
    if (write(2, line, sizeof line - 1) < 0) _exit(98);
    gasnet_exit(4);
}

static void on_user(int signal)
{
    (void)signal;
    gasnet_exit(number);
}

static void at_end(void)
{
    gasnet_exit(number);
}

static void rest(void)
{
    struct timespec time;
    time.tv_sec = rest_ms / 1000;
    time.tv_nsec = rest_ms % 1000 * 1000000;
    while (nanosleep(&time, &time)) continue;
}

static void spin(void)
{
    volatile int turn = 0;
    for (;;) turn = turn + 1;
}

static void exit_handler(gex_Token_t token)
{
    (void)token;
    gasnet_exit(number);
}

static void nothing(gex_Token_t token)
{
    (void)token;
}

static void sink(gex_Token_t token, void *data, size_t bytes)
{
    (void)token;
    (void)data;
    (void)bytes;
}

static void prepare_handler(gex_Token_t token)
{
    gex_AM_SrcDesc_t sd = gex_AM_PrepareReplyMedium(token, NULL, 0, 0, NULL, 0, 0);
    if (last) gasnet_exit(number);
    gex_AM_CommitReplyMedium0(sd, SINK, 0);
}

static void raise_handler(gex_Token_t token)
{
    (void)token;
    raise(SIGUSR1);
    returned("the signal");
}

/* Runs after the library has left the job with the code of main: the first code counts, and the process ends here. */
static __attribute__((__destructor__)) void at_unload(void)
{
    if (number != 21) return;
    if (write(1, "UNLOADED\n", 9) < 0) _exit(98);
    gasnet_exit(number);
}

static void poll_for_ever(void)
{
    for (;;) {
        OK(gasnet_AMPoll());
        sched_yield();
    }
}

static void ask(gex_Rank_t to)
{
    OK(gex_AM_RequestShort0(t_tm, to, EXIT, 0));
    poll_for_ever();
}

#if GASNET_PAR
static pthread_barrier_t meeting, never;

static void every_kind(gex_Rank_t to)
{
    static __thread char data[4096];
    size_t most = gex_AM_MaxRequestMedium(t_tm, to, GEX_EVENT_NOW, 0, 0);
    if (most > sizeof data) most = sizeof data;
    OK(gex_AM_RequestShort0(t_tm, to, NOTHING, 0));
    OK(gex_AM_RequestMedium0(t_tm, to, SINK, data, most, GEX_EVENT_NOW, 0));
    OK(gex_AM_RequestMedium0(t_tm, to, SINK, data, 1, GEX_EVENT_NOW, 0));
    OK(gex_AM_RequestLong0(t_tm, to, LANDING, data, sizeof data, bases[to], GEX_EVENT_NOW, 0));
    OK(gex_RMA_PutBlocking(t_tm, to, bases[to] + 4096, data, 4096, 0));
    OK(gex_RMA_GetBlocking(t_tm, data, to, bases[to] + 4096, 4096, 0));
}

static void *thread(void *which)
{
    int first = which == NULL && last;
    pthread_barrier_wait(&meeting);
    if (number == 51) gasnet_exit(number);
    if (first) {
        rest();
        if (number == 57) exit(number);
        if (number == 58) pthread_kill(pthread_self(), SIGUSR1);
        gasnet_exit(number);
    }
    switch (number) {
    case 52: pthread_barrier_wait(&never); break;
    case 53: spin(); break;
    case 54: poll_for_ever(); break;
    case 56: GASNET_BLOCKUNTIL(last > 1); break; /* never */
    case 57: /* exit() of a thread, whose exit handlers run there */
    case 58: poll_for_ever(); break;
    default:
        for (;;) every_kind((t_rank + 1) % t_size);
    }
    returned("a wait of a thread");
    return NULL;
}

static void threads(void)
{
    pthread_t all[THREADS];
    intptr_t at;
    pthread_barrier_init(&meeting, NULL, THREADS);
    pthread_barrier_init(&never, NULL, THREADS + 1);
    for (at = 0; at < THREADS; at++) CHECK(pthread_create(&all[at], NULL, thread, (void *)at) == 0);
    for (at = 0; at < THREADS; at++) pthread_join(all[at], NULL);
}
#endif

/* Not inlined, so that backtraces have a name to show. */
static __attribute__((__noinline__)) void crash_here(void)
{
    volatile int zero = 0;
    volatile int *volatile nowhere = NULL;
    switch (number % 100) {
    case 2: gasnett_fatalerror("case %d", number);
    case 7: assert(zero); break;
    case 8: *nowhere = 1; break;
    case 3: abort();
    case 4: raise(SIGSEGV); break;
    case 5: raise(SIGBUS); break;
    default: zero = 1 / zero; raise(SIGFPE);
    }
}

static void crash(void)
{
    crash_here();
    returned("a crash");
}

/* A backtrace of a program that goes on. */
static void on_quit_trace(int signal)
{
    (void)signal;
    if (gasnett_print_backtrace_ifenabled(2) != 0) returned("a backtrace that was asked for");
}

static __attribute__((__noinline__)) int trace_here(void)
{
    if (number == 101) raise(SIGQUIT);
    else if (gasnett_print_backtrace(2) != 0) returned("a backtrace that was asked for");
    t_barrier();
    return 0;
}

#if !GASNET_SEQ
static void *crash_thread(void *unused)
{
    crash();
    return unused;
}
#endif

/* Cases that return from main give its code, the others do not come back. */
static int act(void)
{
    gex_AM_SrcDesc_t sd;
    if (number == 100 || number == 101) return trace_here();
    if (number >= 100) {
        int all = number / 100 % 2 == 0;
        if (last || all) {
            rest();
#if !GASNET_SEQ
            if (number >= 300) {
                pthread_t one;
                CHECK(pthread_create(&one, NULL, crash_thread, NULL) == 0);
                pthread_join(one, NULL);
            }
#endif
            crash();
        }
        t_barrier();
        returned("the barrier");
    }
    switch (number) {
    case 1: gasnet_exit(number);
    case 2: return number;
    case 3:
    case 5:
        if (last) {
            rest();
            gasnet_exit(number);
        }
        break;
    case 4:
        if (last) {
            rest();
            raise(SIGINT);
            spin();
        }
        break;
    case 8:
    case 9:
        if (last) {
            rest();
            return number;
        }
        break;
    case 10: ask((gex_Rank_t)peer); break;
    case 11:
        if (t_rank == 0) ask(t_size - 1);
        poll_for_ever();
        break;
    case 12:
        if (last) ask(t_rank);
        poll_for_ever();
        break;
    case 13: ask(t_size - 1); break;
    case 14:
        sd = gex_AM_PrepareRequestMedium(t_tm, (gex_Rank_t)peer, NULL, 0, 0, NULL, 0, 0);
        if (last) gasnet_exit(number);
        gex_AM_CommitRequestMedium0(sd, SINK, 0);
        poll_for_ever();
        break;
    case 15:
        OK(gex_AM_RequestShort0(t_tm, (gex_Rank_t)peer, PREPARE, 0));
        poll_for_ever();
        break;
    case 16: /* every rank has another code: the largest counts */
        gasnet_exit(number - (int)(t_size - 1 - t_rank));
    case 17: /* asked by an exit handler of the program */
        atexit(at_end);
        return 0;
    case 18: {
        static gex_HSL_t lock = GEX_HSL_INITIALIZER;
        gex_HSL_Lock(&lock);
        if (last) {
            rest();
            gasnet_exit(number);
        }
        gex_HSL_Unlock(&lock);
        break;
    }
    case 19: /* in a signal handler */
        signal(SIGUSR1, on_user);
        if (last) {
            rest();
            raise(SIGUSR1);
            spin();
        }
        break;
    case 20: exit(number);
    case 21: return 0; /* asked by a destructor, see at_unload */
    case 22: { /* in a timer's signal handler, in the middle of anything */
        struct itimerval soon;
        memset(&soon, 0, sizeof soon);
        soon.it_value.tv_usec = rest_ms * 1000 % 1000000 + 1;
        signal(SIGALRM, on_user);
        if (last) setitimer(ITIMER_REAL, &soon, NULL);
        for (;;) {
            OK(gex_AM_RequestShort0(t_tm, (gex_Rank_t)peer, NOTHING, 0));
            OK(gex_AM_RequestMedium0(t_tm, (gex_Rank_t)peer, SINK, bases, sizeof bases, GEX_EVENT_NOW, 0));
        }
    }
    case 23: /* while a handler runs on this thread, from a signal */
        signal(SIGUSR1, on_user);
        if (last) OK(gex_AM_RequestShort0(t_tm, t_rank, RAISE, 0));
        poll_for_ever();
        break;
    case 24: /* in a region, with transfers under way and a lock held */
        gex_NBI_BeginAccessRegion(0);
        if (last) {
            OK(gex_RMA_PutNBI(t_tm, (gex_Rank_t)peer, bases[peer], bases, sizeof bases, GEX_EVENT_DEFER, 0));
            gasnet_exit(number);
        }
        gex_Event_Wait(gex_NBI_EndAccessRegion(0));
        break;
#if GASNET_PAR
    case 51:
    case 52:
    case 53:
    case 54:
    case 55:
    case 56:
    case 57:
    case 58: threads(); break;
#endif
    default: returned("nothing: no such case"); break;
    }
    if (number == 5 || number == 9) spin();
    t_barrier();
    returned("the barrier");
    return 99;
}

int main(int argc, char **argv)
{
    gex_AM_Entry_t table[6];
    gex_Rank_t at;
    if (argc < 2) return 98;
    number = atoi(argv[1]);
    if (argc > 2) rest_ms = atol(argv[2]);
    t_join("exits", &argc, &argv);
    last = t_rank == t_size - 1;
    peer = (int)((t_rank + 1) % t_size);
    if (number == 57 || number == 58) signal(SIGUSR1, on_user);
    signal(SIGQUIT, number == 101 ? on_quit_trace : on_quit);
    table[0] = t_entry(EXIT, (gex_AM_Fn_t)exit_handler, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 0);
    table[1] = t_entry(NOTHING, (gex_AM_Fn_t)nothing, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 0);
    table[2] = t_entry(SINK, (gex_AM_Fn_t)sink, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REQREP, 0);
    table[3] = t_entry(LANDING, (gex_AM_Fn_t)sink, GEX_FLAG_AM_LONG | GEX_FLAG_AM_REQUEST, 0);
    table[4] = t_entry(PREPARE, (gex_AM_Fn_t)prepare_handler, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 0);
    table[5] = t_entry(RAISE, (gex_AM_Fn_t)raise_handler, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 0);
    OK(gex_EP_RegisterHandlers(t_ep, table, 6));
    t_barrier();
    if (number == 6) gasnet_exit(number);
    if (number == 7 && last) {
        rest();
        gasnet_exit(number);
    }
    t_attach(65536);
    for (at = 0; at < t_size; at++) bases[at] = t_base(at, NULL);
    t_barrier();
    return act();
}
