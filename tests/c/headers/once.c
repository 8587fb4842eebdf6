/* Every macro that takes arguments evaluates each of them exactly once, and hands them on in their places; the
 * numbered and the counted messages with 0 to 16 arguments arrive with them. The library is played by small stubs. */
#include <gasnet.h>
#include <gasnet_coll.h>
#include <gasnet_tools.h>

static int failures;
static void check(int good, const char *what, int line)
{
    if (good) return;
    failures++;
    printf("line %d: %s\n", line, what);
}
#define CHECK(condition) check(condition, #condition, __LINE__)

/* Each use of V counts; a call with n of them must leave the count n higher. */
static int evaluated;
static long counted(long value)
{
    evaluated++;
    return value;
}
#define V(type, value) ((type)counted((long)(value)))
#define ONCE(expected, ...)                                                                                          \
    do {                                                                                                             \
        evaluated = 0;                                                                                               \
        __VA_ARGS__;                                                                                                 \
        check(evaluated == (expected), #__VA_ARGS__, __LINE__);                                                      \
    } while (0)

/* The library's part of the trace: off. */
int gexi_trace_takes(int what)
{
    return what < 0;
}
void gexi_trace_text(int what, const char *text)
{
    (void)what, (void)text;
}
const char *gexi_trace_getmask(int what)
{
    return what < 0 ? NULL : "";
}
void gexi_trace_setmask(int what, const char *mask)
{
    (void)what, (void)mask;
}
int gexi_trace_getlocal(void)
{
    return 0;
}
void gexi_trace_setlocal(int on)
{
    (void)on;
}
void gexi_trace_setline(const char *file, unsigned int line)
{
    (void)file, (void)line;
}
void gexi_trace_getline(const char **file_p, unsigned int *line_p)
{
    (void)file_p, (void)line_p;
}
void gexi_trace_freezeline(int freeze)
{
    (void)freeze;
}
void gexi_stats_init(gexi_stats_callback_t callback)
{
    (void)callback;
}
void gexi_stats_dump(int reset)
{
    (void)reset;
}

/* What the last message said. */
static struct {
    const char *call;
    uintptr_t a, b, c, d, e, f, g;
    unsigned int nargs;
    gex_AM_Arg_t args[16];
} last;
static int note(const char *call, uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e, uintptr_t f,
                uintptr_t g, unsigned int nargs, const gex_AM_Arg_t *args)
{
    unsigned int i;
    last.call = call;
    last.a = a, last.b = b, last.c = c, last.d = d, last.e = e, last.f = f, last.g = g;
    last.nargs = nargs;
    CHECK((nargs == 0) == (args == NULL) && nargs <= 16);
    for (i = 0; i < nargs; i++) last.args[i] = args[i];
    return 77;
}
#define U(x) ((uintptr_t)(x))

GEXI_BEGIN_C
const int GEXI_ABI_NAME(gexi_requires) = 1;
static const struct gexi_peer no_peer[1] = {{0, 0, 0, 0}};
struct gexi_world gexi_world = {1, GEXI_MODE_NUMBER, (gex_TM_t)2, 0, 0, no_peer, 0, 0, NULL, NULL, 0};

int gexi_AM_RequestShort(gex_TM_t tm, gex_Rank_t rank, gex_AM_Index_t handler, gex_Flags_t flags, unsigned int nargs,
                         const gex_AM_Arg_t *args)
{
    return note("RequestShort", U(tm), rank, handler, flags, 0, 0, 0, nargs, args);
}
int gexi_AM_RequestShort0(gex_TM_t tm, gex_Rank_t rank, gex_AM_Index_t handler, gex_Flags_t flags)
{
    return gexi_AM_RequestShort(tm, rank, handler, flags, 0, NULL);
}
int gexi_AM_RequestShort1(gex_TM_t tm, gex_Rank_t rank, gex_AM_Index_t handler, gex_Flags_t flags,
                          gex_AM_Arg_t a0)
{
    gex_AM_Arg_t args[] = {a0};
    return gexi_AM_RequestShort(tm, rank, handler, flags, 1, args);
}
int gexi_AM_RequestShort2(gex_TM_t tm, gex_Rank_t rank, gex_AM_Index_t handler, gex_Flags_t flags,
                          gex_AM_Arg_t a0, gex_AM_Arg_t a1)
{
    gex_AM_Arg_t args[] = {a0, a1};
    return gexi_AM_RequestShort(tm, rank, handler, flags, 2, args);
}
int gexi_AM_RequestShort3(gex_TM_t tm, gex_Rank_t rank, gex_AM_Index_t handler, gex_Flags_t flags,
                          gex_AM_Arg_t a0, gex_AM_Arg_t a1, gex_AM_Arg_t a2)
{
    gex_AM_Arg_t args[] = {a0, a1, a2};
    return gexi_AM_RequestShort(tm, rank, handler, flags, 3, args);
}
int gexi_AM_RequestMedium(gex_TM_t tm, gex_Rank_t rank, gex_AM_Index_t handler, const void *src, size_t n,
                          gex_Event_t *lc, gex_Flags_t flags, unsigned int nargs, const gex_AM_Arg_t *args)
{
    return note("RequestMedium", U(tm), rank, handler, flags, U(src), n, U(lc), nargs, args);
}
int gexi_AM_RequestLong(gex_TM_t tm, gex_Rank_t rank, gex_AM_Index_t handler, const void *src, size_t n, void *dest,
                        gex_Event_t *lc, gex_Flags_t flags, unsigned int nargs, const gex_AM_Arg_t *args)
{
    return note("RequestLong", U(tm), rank, handler, flags, U(src) + U(dest), n, U(lc), nargs, args);
}
int gexi_AM_ReplyShort(gex_Token_t token, gex_AM_Index_t handler, gex_Flags_t flags, unsigned int nargs,
                       const gex_AM_Arg_t *args)
{
    return note("ReplyShort", U(token), 0, handler, flags, 0, 0, 0, nargs, args);
}
int gexi_AM_ReplyShort0(gex_Token_t token, gex_AM_Index_t handler, gex_Flags_t flags)
{
    return gexi_AM_ReplyShort(token, handler, flags, 0, NULL);
}
int gexi_AM_ReplyShort1(gex_Token_t token, gex_AM_Index_t handler, gex_Flags_t flags,
                        gex_AM_Arg_t a0)
{
    gex_AM_Arg_t args[] = {a0};
    return gexi_AM_ReplyShort(token, handler, flags, 1, args);
}
int gexi_AM_ReplyShort2(gex_Token_t token, gex_AM_Index_t handler, gex_Flags_t flags,
                        gex_AM_Arg_t a0, gex_AM_Arg_t a1)
{
    gex_AM_Arg_t args[] = {a0, a1};
    return gexi_AM_ReplyShort(token, handler, flags, 2, args);
}
int gexi_AM_ReplyShort3(gex_Token_t token, gex_AM_Index_t handler, gex_Flags_t flags,
                        gex_AM_Arg_t a0, gex_AM_Arg_t a1, gex_AM_Arg_t a2)
{
    gex_AM_Arg_t args[] = {a0, a1, a2};
    return gexi_AM_ReplyShort(token, handler, flags, 3, args);
}
int gexi_AM_ReplyMedium(gex_Token_t token, gex_AM_Index_t handler, const void *src, size_t n, gex_Event_t *lc,
                        gex_Flags_t flags, unsigned int nargs, const gex_AM_Arg_t *args)
{
    return note("ReplyMedium", U(token), 0, handler, flags, U(src), n, U(lc), nargs, args);
}
int gexi_AM_ReplyLong(gex_Token_t token, gex_AM_Index_t handler, const void *src, size_t n, void *dest, gex_Event_t *lc,
                      gex_Flags_t flags, unsigned int nargs, const gex_AM_Arg_t *args)
{
    return note("ReplyLong", U(token), 0, handler, flags, U(src) + U(dest), n, U(lc), nargs, args);
}
int gexi_AM_CommitRequestMedium(gex_AM_SrcDesc_t sd, gex_AM_Index_t handler, size_t n, gex_Flags_t flags,
                                unsigned int nargs, const gex_AM_Arg_t *args)
{
    return note("CommitRequestMedium", U(sd), 0, handler, flags, 0, n, 0, nargs, args);
}
int gexi_AM_CommitReplyMedium(gex_AM_SrcDesc_t sd, gex_AM_Index_t handler, size_t n, gex_Flags_t flags,
                              unsigned int nargs, const gex_AM_Arg_t *args)
{
    return note("CommitReplyMedium", U(sd), 0, handler, flags, 0, n, 0, nargs, args);
}
int gexi_AM_CommitRequestLong(gex_AM_SrcDesc_t sd, gex_AM_Index_t handler, size_t n, void *dest, gex_Flags_t flags,
                              unsigned int nargs, const gex_AM_Arg_t *args)
{
    return note("CommitRequestLong", U(sd), 0, handler, flags, U(dest), n, 0, nargs, args);
}
int gexi_AM_CommitReplyLong(gex_AM_SrcDesc_t sd, gex_AM_Index_t handler, size_t n, void *dest, gex_Flags_t flags,
                            unsigned int nargs, const gex_AM_Arg_t *args)
{
    return note("CommitReplyLong", U(sd), 0, handler, flags, U(dest), n, 0, nargs, args);
}
static int wrong_counts;
int gexi1_wrong_count(const char *call, int stated, int given)
{
    CHECK(!strcmp(call, "gasnet_AMRequestShort") && stated == 3 && given == 2);
    wrong_counts++;
    return GASNET_ERR_BAD_ARG;
}
static int polls, rests;
int gasnet_AMPoll(void)
{
    polls++;
    return GASNET_OK;
}
void gexi_wait_hook(unsigned int turn)
{
    CHECK(turn == (unsigned int)rests);
    rests++;
}
void gexi_HSL_LockSlow(uint32_t *state)
{
    *state = 1;
}
void gexi_HSL_Wake(uint32_t *state)
{
    (void)state;
}
gex_Rank_t gexi_System_QueryJobRank(void)
{
    return 5;
}
gex_Rank_t gexi_System_QueryJobSize(void)
{
    return 6;
}
void *gasneti_mmap(uintptr_t size)
{
    return (void *)size;
}
size_t gasneti_format_op(char *buffer, gex_OP_t op)
{
    return U(buffer) + op;
}
size_t gasneti_format_dt(char *buffer, gex_DT_t dt)
{
    return U(buffer) + dt;
}
size_t gasneti_format_ti(char *buffer, gex_TI_t ti)
{
    return U(buffer) + ti;
}
char *gasnet_getenv(const char *name)
{
    return getenv(name);
}
GEXI_END_C

/* The fixed parameters of each kind, and how many they are. */
#define TM V(gex_TM_t, 64), V(gex_Rank_t, 3), V(gex_AM_Index_t, 200)
#define TOKEN V(gex_Token_t, 64), V(gex_AM_Index_t, 200)
#define BODY V(void *, 128), V(size_t, 9)
#define THERE V(void *, 256)
#define LC V(gex_Event_t *, 1)
#define FLAGS V(gex_Flags_t, 1)
#define SD V(gex_AM_SrcDesc_t, 64), V(gex_AM_Index_t, 200), V(size_t, 9)

/* The lists of 0 to 16 arguments; the value at place i is i - 7. Each is written as it follows fixed ones. */
#define ARGS0
#define ARGS1 , V(int, -7)
#define ARGS2 ARGS1, V(int, -6)
#define ARGS3 ARGS2, V(size_t, -5)
#define ARGS4 ARGS3, V(int, -4)
#define ARGS5 ARGS4, V(short, -3)
#define ARGS6 ARGS5, V(int, -2)
#define ARGS7 ARGS6, V(int, -1)
#define ARGS8 ARGS7, V(int, 0)
#define ARGS9 ARGS8, V(int, 1)
#define ARGS10 ARGS9, V(int, 2)
#define ARGS11 ARGS10, V(unsigned char, 3)
#define ARGS12 ARGS11, V(int, 4)
#define ARGS13 ARGS12, V(int, 5)
#define ARGS14 ARGS13, V(int, 6)
#define ARGS15 ARGS14, V(uint64_t, 7)
#define ARGS16 ARGS15, V(int, 8)

static void arrived(const char *call, unsigned int nargs, unsigned int flags, int line)
{
    unsigned int i;
    int good = last.call && !strcmp(last.call, call) && last.a == 64 && last.c == 200 && last.d == flags &&
               last.nargs == nargs;
    if (strstr(call, "Medium") || strstr(call, "Long")) good = good && last.f == 9;
    if (strstr(call, "Long")) good = good && last.e == (strstr(call, "Commit") ? 256U : 384U);
    for (i = 0; i < nargs; i++) good = good && last.args[i] == (int)i - 7;
    check(good, call, line);
    last.call = NULL;
}

/* One call with a number, one counted, then the same for each number. */
#define BOTH(kind, suffix, fixed, flags, n)                                                              \
    ONCE((fixed) + (n), (void)gex_AM_##kind##n##suffix(PARAMS_##kind##suffix ARGS##n));                                         \
    arrived(#kind, n, flags, __LINE__);                                                                              \
    ONCE((fixed) + (n), (void)gex_AM_##kind##suffix(PARAMS_##kind##suffix ARGS##n));                                            \
    arrived(#kind, n, flags, __LINE__)
#define EACH(kind, suffix, fixed, flags)                                                                 \
    BOTH(kind, suffix, fixed, flags, 0);                                                                 \
    BOTH(kind, suffix, fixed, flags, 1);                                                                 \
    BOTH(kind, suffix, fixed, flags, 2);                                                                 \
    BOTH(kind, suffix, fixed, flags, 3);                                                                 \
    BOTH(kind, suffix, fixed, flags, 4);                                                                 \
    BOTH(kind, suffix, fixed, flags, 5);                                                                 \
    BOTH(kind, suffix, fixed, flags, 6);                                                                 \
    BOTH(kind, suffix, fixed, flags, 7);                                                                 \
    BOTH(kind, suffix, fixed, flags, 8);                                                                 \
    BOTH(kind, suffix, fixed, flags, 9);                                                                 \
    BOTH(kind, suffix, fixed, flags, 10);                                                                \
    BOTH(kind, suffix, fixed, flags, 11);                                                                \
    BOTH(kind, suffix, fixed, flags, 12);                                                                \
    BOTH(kind, suffix, fixed, flags, 13);                                                                \
    BOTH(kind, suffix, fixed, flags, 14);                                                                \
    BOTH(kind, suffix, fixed, flags, 15);                                                                \
    BOTH(kind, suffix, fixed, flags, 16)

#define PARAMS_RequestShort TM, FLAGS
#define PARAMS_RequestMedium TM, BODY, LC, FLAGS
#define PARAMS_RequestLong TM, BODY, THERE, LC, FLAGS
#define PARAMS_ReplyShort TOKEN, FLAGS
#define PARAMS_ReplyMedium TOKEN, BODY, LC, FLAGS
#define PARAMS_ReplyLong TOKEN, BODY, THERE, LC, FLAGS
#define PARAMS_CommitRequestMedium SD
#define PARAMS_CommitReplyMedium SD
#define PARAMS_CommitRequestLong SD, THERE
#define PARAMS_CommitReplyLong SD, THERE
#define PARAMS_CommitRequestMedium_v2 SD, FLAGS
#define PARAMS_CommitReplyMedium_v2 SD, FLAGS
#define PARAMS_CommitRequestLong_v2 SD, THERE, FLAGS
#define PARAMS_CommitReplyLong_v2 SD, THERE, FLAGS

static void messages(void)
{
    EACH(RequestShort, , 4, 1);
    EACH(RequestMedium, , 7, 1);
    EACH(RequestLong, , 8, 1);
    EACH(ReplyShort, , 3, 1);
    EACH(ReplyMedium, , 6, 1);
    EACH(ReplyLong, , 7, 1);
}

static void commits(void)
{
    EACH(CommitRequestMedium, , 3, GEXI_COMMIT_MUST);
    EACH(CommitReplyMedium, , 3, GEXI_COMMIT_MUST);
    EACH(CommitRequestLong, , 4, GEXI_COMMIT_MUST);
    EACH(CommitReplyLong, , 4, GEXI_COMMIT_MUST);
    EACH(CommitRequestMedium, _v2, 4, 1);
    EACH(CommitReplyMedium, _v2, 4, 1);
    EACH(CommitRequestLong, _v2, 5, 1);
    EACH(CommitReplyLong, _v2, 5, 1);
}

#define NODE V(gasnet_node_t, 3), V(gasnet_handler_t, 200)
#define FORMER_RequestShort NODE
#define FORMER_RequestMedium NODE, BODY
#define FORMER_RequestLong NODE, BODY, THERE
#define FORMER_RequestLongAsync NODE, BODY, THERE
#define FORMER_ReplyShort TOKEN
#define FORMER_ReplyMedium TOKEN, BODY
#define FORMER_ReplyLong TOKEN, BODY, THERE
#define FORMER(kind, fixed, into, n)                                                                                 \
    ONCE((fixed) + (n), (void)gasnet_AM##kind##n(FORMER_##kind ARGS##n));                                            \
    arrived(into, n, 0, __LINE__);                                                                                   \
    ONCE((fixed) + 1 + (n), (void)gasnet_AM##kind(FORMER_##kind, V(int, n) ARGS##n));                                \
    arrived(into, n, 0, __LINE__)
#define FORMERS(kind, fixed, into)                                                                                   \
    FORMER(kind, fixed, into, 0);                                                                                    \
    FORMER(kind, fixed, into, 1);                                                                                    \
    FORMER(kind, fixed, into, 5);                                                                                    \
    FORMER(kind, fixed, into, 16)

static void former_messages(void)
{
    gexi_world.tm0 = (gex_TM_t)64;
    FORMERS(RequestShort, 2, "RequestShort");
    FORMERS(RequestMedium, 4, "RequestMedium");
    FORMERS(RequestLong, 5, "RequestLong");
    FORMERS(RequestLongAsync, 5, "RequestLong");
    FORMERS(ReplyShort, 2, "ReplyShort");
    FORMERS(ReplyMedium, 4, "ReplyMedium");
    FORMERS(ReplyLong, 5, "ReplyLong");
    ONCE(5, CHECK(gasnet_AMRequestShort(NODE, V(int, 3), V(int, 1), V(int, 2)) == GASNET_ERR_BAD_ARG));
    CHECK(wrong_counts == 1);
    gexi_world.tm0 = (gex_TM_t)2;
}

static int turns;
static int third(void)
{
    return ++turns >= 3;
}

static void waiting(void)
{
    int i, done = 0;
    polls = rests = 0;
    ONCE(1, GASNET_BLOCKUNTIL(V(int, 1)));
    CHECK(polls == 0 && rests == 0);
    GASNET_BLOCKUNTIL(third());
    CHECK(turns == 3 && polls == 2 && rests == 1);
    for (i = 0; i < 3; i++) {
        if (i == 1) GASNET_BLOCKUNTIL(1);
        else done++;
    }
    CHECK(done == 2);
    {
        GASNET_BEGIN_FUNCTION();
        ONCE(1, GASNET_POST_THREADINFO(V(gasnet_threadinfo_t, 0)));
        GASNET_POST_THREADINFO(GASNET_GET_THREADINFO());
    }
}

static void values(void)
{
    gex_HSL_t lock = GEX_HSL_INITIALIZER;
    ONCE(1, CHECK(GEX_OP_TO_FETCHING(V(gex_OP_t, GEX_OP_ADD)) == GEX_OP_FADD));
    ONCE(1, CHECK(GEX_OP_TO_NONFETCHING(V(gex_OP_t, GEX_OP_FADD)) == GEX_OP_ADD));
    ONCE(1, gasnet_hsl_init(V(gex_HSL_t *, &lock)));
    ONCE(1, gasnet_hsl_lock(V(gex_HSL_t *, &lock)));
    ONCE(1, gasnet_hsl_unlock(V(gex_HSL_t *, &lock)));
    ONCE(1, CHECK(gasnet_hsl_trylock(V(gex_HSL_t *, &lock)) == GASNET_OK));
#if !defined(GASNET_SEQ)
    CHECK(gasnet_hsl_trylock(&lock) == GASNET_ERR_NOT_READY);
#endif
    ONCE(1, gasnet_hsl_destroy(V(gex_HSL_t *, &lock)));
    CHECK(gasnet_mynode() == 5 && gasnet_nodes() == 6 && gasnet_AMMaxArgs() == 16 && gex_AM_MaxArgs() == 16);
    gasnet_hold_interrupts();
    gasnet_resume_interrupts();
}

GASNETT_THREADKEY_DEFINE(key);

static void tools(void)
{
    static gasnett_mutex_t mutex = GASNETT_MUTEX_INITIALIZER;
    static gasnett_cond_t cond = GASNETT_COND_INITIALIZER;
    static gasnett_rwlock_t rwlock = GASNETT_RWLOCK_INITIALIZER;
    gasnett_atomic_t atomic = gasnett_atomic_init(1);
    gasnett_atomic32_t atomic32 = gasnett_atomic32_init(2);
    gasnett_atomic64_t atomic64 = gasnett_atomic64_init(3);
    gasnett_strongatomic_t strong = gasnett_strongatomic_init(4);
    gasnett_strongatomic32_t strong32 = gasnett_strongatomic32_init(5);
    gasnett_strongatomic64_t strong64 = gasnett_strongatomic64_init(6);
    void *memory;
    CHECK(gasnett_atomic_read(&atomic, 0) + gasnett_atomic32_read(&atomic32, 0) + gasnett_atomic64_read(&atomic64, 0) +
              gasnett_strongatomic_read(&strong, 0) + gasnett_strongatomic32_read(&strong32, 0) +
              gasnett_strongatomic64_read(&strong64, 0) == 21);
#define MUTEX V(gasnett_mutex_t *, &mutex)
#define COND V(gasnett_cond_t *, &cond)
#define RWLOCK V(gasnett_rwlock_t *, &rwlock)
    ONCE(1, gasnett_mutex_init(MUTEX));
    ONCE(1, gasnett_mutex_lock(MUTEX));
    ONCE(1, gasnett_mutex_assertlocked(MUTEX));
    ONCE(1, gasnett_mutex_unlock(MUTEX));
    ONCE(1, gasnett_mutex_assertunlocked(MUTEX));
    ONCE(1, CHECK(gasnett_mutex_trylock(MUTEX) == 0));
    gasnett_mutex_unlock(&mutex);
    ONCE(1, gasnett_mutex_destroy(MUTEX));
    ONCE(1, gasnett_mutex_destroy_ignoreerr(MUTEX));
    ONCE(1, gasnett_cond_init(COND));
    ONCE(1, gasnett_cond_signal(COND));
    ONCE(1, gasnett_cond_broadcast(COND));
    if (failures < 0) ONCE(2, gasnett_cond_wait(COND, MUTEX)); /* compiled, not run: nobody would wake us */
    ONCE(1, gasnett_cond_destroy(COND));
    ONCE(1, gasnett_rwlock_init(RWLOCK));
    ONCE(1, gasnett_rwlock_rdlock(RWLOCK));
    ONCE(1, gasnett_rwlock_assertlocked(RWLOCK));
    ONCE(1, gasnett_rwlock_assertrdlocked(RWLOCK));
    ONCE(1, CHECK(gasnett_rwlock_tryrdlock(RWLOCK) == 0));
    gasnett_rwlock_unlock(&rwlock);
    ONCE(1, gasnett_rwlock_unlock(RWLOCK));
    ONCE(1, gasnett_rwlock_wrlock(RWLOCK));
    ONCE(1, gasnett_rwlock_assertwrlocked(RWLOCK));
    gasnett_rwlock_unlock(&rwlock);
    ONCE(1, gasnett_rwlock_assertunlocked(RWLOCK));
    ONCE(1, CHECK(gasnett_rwlock_trywrlock(RWLOCK) == 0));
    gasnett_rwlock_unlock(&rwlock);
    ONCE(1, gasnett_rwlock_destroy(RWLOCK));
    gasnett_threadkey_init(key);
    CHECK(gasnett_threadkey_get(key) == NULL && gasnett_threadkey_get_noinit(key) == NULL);
    ONCE(1, gasnett_threadkey_set(key, V(void *, 8)));
    ONCE(1, gasnett_threadkey_set_noinit(key, V(void *, 9)));
    CHECK(gasnett_threadkey_get(key) == (void *)9);
    ONCE(1, CHECK(gasnett_atomic_signed(V(gasnett_atomic_val_t, 0xffffffffU)) == -1));
    ONCE(1, CHECK(gasnett_strongatomic_signed(V(gasnett_strongatomic_val_t, 0xffffffffU)) == -1));
    ONCE(1, memory = gasnett_debug_malloc(V(size_t, 8)));
    ONCE(2, memory = gasnett_debug_realloc(V(void *, memory), V(size_t, 16)));
    ONCE(1, gasnett_debug_memcheck(V(void *, memory)));
    ONCE(1, gasnett_debug_free(V(void *, memory)));
    gasnett_debug_memcheck_one();
    gasnett_debug_memcheck_all();
    ONCE(2, memory = gasnett_debug_calloc(V(size_t, 8), V(size_t, 1)));
    free(memory);
    ONCE(1, memory = gasnett_debug_strdup(V(const char *, "text")));
    CHECK(!strcmp((char *)memory, "text"));
    free(memory);
    ONCE(1, CHECK(gasnett_mmap(V(uintptr_t, 4096)) == (void *)4096));
    ONCE(2, CHECK(gasnett_format_op(V(char *, 0), V(gex_OP_t, 1)) == 1));
    ONCE(2, CHECK(gasnett_format_dt(V(char *, 0), V(gex_DT_t, 2)) == 2));
    ONCE(2, CHECK(gasnett_format_ti(V(char *, 0), V(gex_TI_t, 4)) == 4));
    ONCE(1, gasnett_assume(V(int, 1)));
    ONCE(1, GASNETT_UNUSED_ARGS1(V(int, 1)));
    ONCE(2, GASNETT_UNUSED_ARGS2(V(int, 1), V(int, 2)));
    ONCE(3, GASNETT_UNUSED_ARGS3(V(int, 1), V(int, 2), V(int, 3)));
    ONCE(4, GASNETT_UNUSED_ARGS4(V(int, 1), V(int, 2), V(int, 3), V(int, 4)));
    ONCE(5, GASNETT_UNUSED_ARGS5(V(int, 1), V(int, 2), V(int, 3), V(int, 4), V(int, 5)));
    ONCE(6, GASNETT_UNUSED_ARGS6(V(int, 1), V(int, 2), V(int, 3), V(int, 4), V(int, 5), V(int, 6)));
    ONCE(7, GASNETT_UNUSED_ARGS7(V(int, 1), V(int, 2), V(int, 3), V(int, 4), V(int, 5), V(int, 6), V(int, 7)));
    ONCE(8, GASNETT_UNUSED_ARGS8(V(int, 1), V(int, 2), V(int, 3), V(int, 4), V(int, 5), V(int, 6), V(int, 7), V(int, 8)));
    ONCE(1, GASNETT_VALUE_ASSIGN(memory, V(void *, 0)));
    if (failures < 0) gasnett_fatalerror("%d", V(int, 1));
    if (failures < 0) gasnett_fatalerror_nopos("%d", V(int, 1));
    gasnett_local_wmb();
    gasnett_local_rmb();
    gasnett_local_mb();
    gasnett_weak_wmb();
    gasnett_weak_rmb();
    gasnett_weak_mb();
    gasnett_compiler_fence();
    gasnett_spinloop_hint();
    CHECK(gasnett_isLittleEndian());
    /* Nothing takes texts here, so what they are made of is not evaluated. */
    ONCE(0, GASNETT_TRACE_PRINTF("%d", V(int, 1)));
    ONCE(0, GASNETT_TRACE_PRINTF_FORCE("%d", V(int, 1)));
    ONCE(1, GASNETT_TRACE_SETMASK(V(char *, 0)));
    ONCE(1, GASNETT_TRACE_SET_TRACELOCAL(V(int, 1)));
    ONCE(2, GASNETT_TRACE_SETSOURCELINE(V(char *, 0), V(int, 1)));
    ONCE(2, GASNETT_TRACE_GETSOURCELINE(V(char **, 0), V(int *, 0)));
    ONCE(1, GASNETT_STATS_INIT(V(void *, 0)));
    ONCE(1, GASNETT_STATS_DUMP(V(int, 0)));
    ONCE(0, GASNETT_STATS_PRINTF("%d", V(int, 1)));
    ONCE(0, GASNETT_STATS_PRINTF_FORCE("%d", V(int, 1)));
    ONCE(1, GASNETT_STATS_SETMASK(V(char *, 0)));
    ONCE(2, gasnet_coll_loadTuningState(V(char *, 0), V(gasnet_team_handle_t, 0)));
    ONCE(2, gasnet_coll_dumpTuningState(V(char *, 0), V(gasnet_team_handle_t, 0)));
    ONCE(2, gasnet_coll_dumpProfile(V(char *, 0), V(gasnet_team_handle_t, 0)));
    GASNETT_TRACE_FREEZESOURCELINE();
    GASNETT_TRACE_UNFREEZESOURCELINE();
    CHECK(!GASNETT_TRACE_ENABLED && !GASNETT_TRACE_GET_TRACELOCAL() && !*GASNETT_TRACE_GETMASK() &&
          !*GASNETT_STATS_GETMASK());
}

int main(void)
{
    messages();
    commits();
    former_messages();
    waiting();
    values();
    tools();
    if (!failures) printf("once: all hold\n");
    return failures ? 1 : 0;
}
