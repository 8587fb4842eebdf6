/* The gasnett_* tools, alone: no library of ours is linked. */
#include <gasnet_tools.h>

static int failures;
static void check(int good, const char *what, int line)
{
    if (good) return;
    failures++;
    printf("line %d: %s\n", line, what);
}
#define CHECK(condition) check(condition, #condition, __LINE__)

GASNETT_IDENT(mark, "$GASNetTest: tools $");
GASNETT_THREADKEY_DECLARE(declared);
GASNETT_THREADKEY_DEFINE(declared);

static int printed;
GASNETT_BEGIN_EXTERNC
static int print_mine(int fd)
{
    printed += fd;
    return 0;
}
gasnett_backtrace_type_t gasnett_backtrace_user = {"USER", &print_mine, 1};
GASNETT_END_EXTERNC

GASNETT_FORMAT_PRINTF(format_text, 3, 4, static void format_text(char *into, size_t room, const char *format, ...))
{
    va_list list;
    va_start(list, format);
    (void)vsnprintf(into, room, format, list);
    va_end(list);
}

GASNETT_INLINE(twice) int twice(int x)
{
    return 2 * x;
}

static int fall(int x)
{
    switch (x) {
    case 1: x++; GASNETT_FALLTHROUGH
    case 2: x++; break;
    default: break;
    }
    return x;
}

static volatile sig_atomic_t caught;
static void on_signal(int number)
{
    caught += number;
}

#define ATOMICS(kind, widest)                                                                                        \
    do {                                                                                                             \
        gasnett_##kind##_t a = gasnett_##kind##_init(5);                                                             \
        gasnett_##kind##_val_t most = (gasnett_##kind##_val_t)(widest);                                              \
        CHECK(gasnett_##kind##_read(&a, 0) == 5);                                                                    \
        gasnett_##kind##_set(&a, 7, GASNETT_ATOMIC_REL);                                                             \
        gasnett_##kind##_increment(&a, 0);                                                                           \
        gasnett_##kind##_decrement(&a, GASNETT_ATOMIC_MB_POST);                                                      \
        CHECK(gasnett_##kind##_add(&a, 3, 0) == 10 && gasnett_##kind##_subtract(&a, 4, 0) == 6);                     \
        CHECK(gasnett_##kind##_swap(&a, 1, GASNETT_ATOMIC_MB_PRE) == 6);                                             \
        CHECK(!gasnett_##kind##_compare_and_swap(&a, 2, 9, GASNETT_ATOMIC_ACQ_IF_FALSE));                            \
        CHECK(gasnett_##kind##_compare_and_swap(&a, 1, 2, GASNETT_ATOMIC_ACQ_IF_TRUE));                              \
        CHECK(!gasnett_##kind##_decrement_and_test(&a, GASNETT_ATOMIC_RMB_POST_IF_TRUE));                            \
        CHECK(gasnett_##kind##_decrement_and_test(&a, GASNETT_ATOMIC_RMB_POST_IF_FALSE));                            \
        CHECK(gasnett_##kind##_subtract(&a, 1, 0) == most);                                                          \
    } while (0)

static void numbers(void)
{
    char text[32];
    CHECK(gasnett_parse_int("42", 0) == 42 && gasnett_parse_int("-7", 0) == -7 && gasnett_parse_int("0x10", 0) == 16);
    CHECK(gasnett_parse_int("64KB", 0) == 65536 && gasnett_parse_int("1.5M", 1) == 1572864);
    CHECK(gasnett_parse_int("2", 1024) == 2048 && gasnett_parse_int("2 gb", 1) == INT64_C(2147483648));
    CHECK(gasnett_parse_int("3B", 1024) == 3);
    CHECK(!strcmp(gasnett_format_number(65536, text, sizeof(text), 1), "64 KB"));
    CHECK(!strcmp(gasnett_format_number(65536, text, sizeof(text), 0), "65536"));
    CHECK(!strcmp(gasnett_format_number(1025, text, sizeof(text), 1), "1025 B"));
    (void)snprintf(text, sizeof(text), "%" PRIuSZ " %" PRIxSZ " %" PRIdPD, sizeof(text), sizeof(text), (ptrdiff_t)-5);
    CHECK(!strcmp(text, "32 20 -5") && SIZEOF_SIZE_T == sizeof(size_t) && SIZEOF_VOID_P == sizeof(void *));
}

static void environment(void)
{
    gasnett_unsetenv("TOOLS_TEST");
    CHECK(gasnett_getenv("TOOLS_TEST") == NULL && gasnett_getenv_int_withdefault("TOOLS_TEST", 3, 0) == 3);
    CHECK(!strcmp(gasnett_getenv_withdefault("TOOLS_TEST", "x"), "x") && gasnett_getenv_yesno_withdefault("TOOLS_TEST", 1));
    gasnett_setenv("TOOLS_TEST", "NO");
    CHECK(!gasnett_getenv_yesno_withdefault("TOOLS_TEST", 1));
    gasnett_setenv("TOOLS_TEST", "2K");
    CHECK(gasnett_getenv_int_withdefault("TOOLS_TEST", 3, 1) == 2048);
    gasnett_setenv("TOOLS_TEST", "1/4");
    CHECK(gasnett_getenv_dbl_withdefault("TOOLS_TEST", 0) == 0.25);
}

int main(void)
{
    char text[16];
    gasnett_tick_t start = gasnett_ticks_now(), length;
    gasnett_heapstats_t heap;
    uint64_t copy, bytes = UINT64_C(0x00ff00ff00ff00ff);
    CHECK(GASNETT_SPEC_VERSION_MAJOR == 1 && GASNETT_SPEC_VERSION_MINOR == 20 && GASNETT_PAGESIZE == 1 << GASNETT_PAGESHIFT);
    CHECK(GASNETT_CACHE_LINE_BYTES == 64 && GASNETT_MAX_THREADS >= 1 && GASNETT_CONFIG_STRING[0] && GASNETT_SYSTEM_TUPLE[0]);
    CHECK(MIN(1, 2) == 1 && MAX(1, 2) == 2 && !strcmp(_STRINGIFY(_CONCAT(a, b)), "ab"));
    CHECK(PLATFORM_OS_LINUX && PLATFORM_ARCH_64 && PLATFORM_COMPILER_VERSION_STR[0] && HAVE_PTHREAD_H);
    if_pf (gasnett_ticks_to_ns(2000) != 2000) CHECK(0);
    if_pt (gasnett_ticks_to_us(2000) == 2) failures += 0;
    ATOMICS(atomic, UINT32_MAX);
    ATOMICS(atomic32, UINT32_MAX);
    ATOMICS(atomic64, UINT64_MAX);
    ATOMICS(strongatomic, GASNETT_STRONGATOMIC_MAX);
    ATOMICS(strongatomic32, UINT32_MAX);
    ATOMICS(strongatomic64, UINT64_MAX);
    numbers();
    environment();
    CHECK(gasnett_nsleep(2000000) == 0);
    length = gasnett_ticks_now() - start;
    CHECK(gasnett_ticks_to_ns(length) >= 2000000 && gasnett_gettimeofday_us() > UINT64_C(1600000000000000));
    CHECK(gasnett_tick_granularityus() > 0 && gasnett_tick_overheadus() > 0);
    gasnett_sched_yield();
    CHECK(gasnett_cpu_count() > 0 && gasnett_getPhysMemSz(1) > 0 && gasnett_gethostname()[0] && gasnett_exe_name()[0] == '/');
    CHECK(GASNETT_RELEASE_VERSION_MAJOR * 10000 + GASNETT_RELEASE_VERSION_MINOR * 100 + GASNETT_RELEASE_VERSION_PATCH ==
          (int)gasnett_release_version());
    CHECK(!strcmp(gasnett_release_version_str, "2025.8.0") && gasnett_performance_warning_str());
    CHECK(gasnett_checksum("abc", 3) != gasnett_checksum("acb", 3) && gasnett_checksum("abc", 3) == gasnett_checksum("abc", 3));
    CHECK(gasnett_count0s(&bytes, 8) == 4 && gasnett_count0s_copy(&copy, &bytes, 8) == 4 && copy == bytes);
    CHECK(gasnett_count0s_uint32_t(0xff) == 3 && gasnett_count0s_uint64_t(0xff) == 7 && gasnett_count0s_uintptr_t(0xff) == 7);
    CHECK(gasnett_getheapstats(&heap) == 0 || heap.live_bytes == 0);
    gasnett_maximize_rlimits();
    gasnett_set_affinity(-1);
    CHECK(gasnett_reghandler(SIGUSR1, on_signal) == SIG_DFL);
    (void)raise(SIGUSR1);
    (void)raise(SIGUSR1); /* the handler stays */
    CHECK(caught == 2 * SIGUSR1 && gasnett_reghandler(SIGUSR1, SIG_DFL) == on_signal);
    gasnett_backtrace_init("tools");
    CHECK(gasnett_print_backtrace(2) == 0 && printed == 2);
    format_text(text, sizeof(text), "%d", twice(21));
    CHECK(!strcmp(text, "42") && fall(1) == 3 && fall(2) == 3 && mark[0] == '$');
    CHECK(strstr(gasnett_current_loc, "main at ") != NULL);
    gasnett_threadkey_set(declared, text);
    CHECK(gasnett_threadkey_get(declared) == text);
    gasnett_flush_streams();
    if (!failures) printf("tools: all hold\n");
    if (!failures && getenv("TOOLS_FATAL")) gasnett_fatalerror("wanted %d", 1);
    return failures ? 1 : 0;
}
