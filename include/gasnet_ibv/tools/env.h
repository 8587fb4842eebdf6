/* Environment, and numbers in text. */
#ifndef GASNET_IBV_TOOLS_ENV_H
#define GASNET_IBV_TOOLS_ENV_H 1

#include "errors.h"
#include "libc.h"

GEXI_BEGIN_C

/* The job's environment when gasnetex.h came first, else that of this process. */
#ifdef _INCLUDED_GASNETEX_H
#define gexi_tools_getenv(name) gasnet_getenv(name)
#else
#define gexi_tools_getenv(name) getenv(name)
#endif

/* Not to be changed or freed, though the type allows it: clients rely on it. */
GEXI_INLINE char *gasnett_getenv(const char *name)
{
    return gexi_tools_getenv(name);
}

GEXI_INLINE void gasnett_setenv(const char *name, const char *value)
{
    if (gexi_libc_setenv(name, value, 1) != 0) gasnett_fatalerror("cannot set variable %s: %s", name, strerror(errno));
}

GEXI_INLINE void gasnett_unsetenv(const char *name)
{
    if (gexi_libc_unsetenv(name) != 0) gasnett_fatalerror("cannot unset variable %s: %s", name, strerror(errno));
}

/* 1 yes, 0 no, -1 neither. */
GEXI_INLINE int gexi_yes_or_no(const char *text)
{
    char low[4] = {0, 0, 0, 0};
    size_t i;
    for (i = 0; i < 4 && text[i]; i++) low[i] = (char)(text[i] >= 'A' && text[i] <= 'Z' ? text[i] + 32 : text[i]);
    if (i == 4) return -1;
    if (!strcmp(low, "1") || !strcmp(low, "y") || !strcmp(low, "yes")) return 1;
    if (!strcmp(low, "0") || !strcmp(low, "n") || !strcmp(low, "no")) return 0;
    return -1;
}

/* Whether GASNET_VERBOSEENV asks for every setting to be shown. */
GEXI_INLINE int gasnett_verboseenv(void)
{
    const char *text = gasnett_getenv("GASNET_VERBOSEENV");
    return text && gexi_yes_or_no(text) == 1;
}

GEXI_INLINE void gasnett_envstr_display(const char *name, const char *value, int is_default)
{
    if (gasnett_verboseenv())
        fprintf(stderr, "ENV parameter: %s = %s%s\n", name, value ? value : "*not set*",
                is_default ? "   (default)" : "");
}

/* Writes `value`, as bytes with a unit when it is a size of memory. Returns `buffer`. */
GEXI_INLINE char *gasnett_format_number(int64_t value, char *buffer, size_t length, int is_mem_size)
{
    static const char unit[5][3] = {"B", "KB", "MB", "GB", "TB"};
    int step = 0;
    if (!is_mem_size) {
        (void)snprintf(buffer, length, "%" PRId64, value);
        return buffer;
    }
    while (step < 4 && value != 0 && value % 1024 == 0) {
        value /= 1024;
        step++;
    }
    (void)snprintf(buffer, length, "%" PRId64 " %s", value, unit[step]);
    return buffer;
}

GEXI_INLINE void gasnett_envint_display(const char *name, int64_t value, int is_default, int is_mem_size)
{
    char text[32];
    gasnett_envstr_display(name, gasnett_format_number(value, text, sizeof(text), is_mem_size), is_default);
}

GEXI_INLINE void gasnett_envdbl_display(const char *name, double value, int is_default)
{
    char text[32];
    (void)snprintf(text, sizeof(text), "%g", value);
    gasnett_envstr_display(name, text, is_default);
}

/* Factor of the unit that `text` begins with: K, M, G, T, P, with or without B; B alone is 1; none is `otherwise`.
 * 0 when it is something else. */
GEXI_INLINE uint64_t gexi_unit(const char *text, uint64_t otherwise)
{
    static const char letters[] = "KMGTP";
    const char *at;
    uint64_t factor = 1;
    char letter;
    while (*text == ' ') text++;
    if (!*text) return otherwise;
    letter = (char)(*text >= 'a' && *text <= 'z' ? *text - 32 : *text);
    at = strchr(letters, letter);
    if (at) {
        factor <<= 10 * (at - letters + 1);
        text++;
        if (*text == 'i') text++;
    } else if (letter != 'B') return 0;
    if (*text == 'B' || *text == 'b') text++;
    while (*text == ' ') text++;
    return *text ? 0 : factor;
}

/* A number, decimal with a fraction or hexadecimal, with a unit; without a unit it is multiplied by `mem_multiplier`,
 * when that is not 0. Ends the process when it is no number. */
GEXI_INLINE int64_t gasnett_parse_int(const char *text, uint64_t mem_multiplier)
{
    char *end = NULL;
    uint64_t factor;
    long long whole;
    errno = 0;
    whole = strtoll(text, &end, 0);
    if (end != text && *end == '.') {
        double number = strtod(text, &end);
        factor = gexi_unit(end, mem_multiplier ? mem_multiplier : 1);
        number *= (double)factor;
        if (factor && number < 9.2e18 && number > -9.2e18) return (int64_t)number;
    } else if (end != text && errno == 0) {
        int64_t result;
        factor = gexi_unit(end, mem_multiplier ? mem_multiplier : 1);
        if (factor && factor <= INT64_MAX && !__builtin_mul_overflow((int64_t)whole, (int64_t)factor, &result))
            return result;
    }
    gasnett_fatalerror("\"%s\" is no number in range; give digits, and for memory a unit such as KB, MB, GB", text);
}

GEXI_INLINE char *gasnett_getenv_withdefault(const char *name, const char *otherwise)
{
    char *text = gasnett_getenv(name);
    gasnett_envstr_display(name, text ? text : otherwise, !text);
    return text ? text : (char *)(uintptr_t)otherwise;
}

GEXI_INLINE int gasnett_getenv_yesno_withdefault(const char *name, int otherwise)
{
    const char *text = gasnett_getenv(name);
    int value = text ? gexi_yes_or_no(text) : !!otherwise;
    if (value < 0) gasnett_fatalerror("variable %s is \"%s\"; give yes or no", name, text);
    gasnett_envstr_display(name, value ? "YES" : "NO", !text);
    return value;
}

GEXI_INLINE int64_t gasnett_getenv_int_withdefault(const char *name, int64_t otherwise, uint64_t mem_multiplier)
{
    const char *text = gasnett_getenv(name);
    int64_t value = text ? gasnett_parse_int(text, mem_multiplier) : otherwise;
    gasnett_envint_display(name, value, !text, mem_multiplier != 0);
    return value;
}

/* A decimal number, or a fraction such as 1/3. */
GEXI_INLINE double gasnett_getenv_dbl_withdefault(const char *name, double otherwise)
{
    const char *text = gasnett_getenv(name);
    double value = otherwise;
    if (text) {
        char *end = NULL;
        value = strtod(text, &end);
        if (end != text && *end == '/') {
            char *below = end + 1;
            double divisor = strtod(below, &end);
            if (end == below || divisor == 0.0) end = (char *)text;
            else value /= divisor;
        }
        if (end == text || *end) gasnett_fatalerror("variable %s is \"%s\"; give a number such as 0.5", name, text);
    }
    gasnett_envdbl_display(name, value, !text);
    return value;
}

GEXI_INLINE void gasnett_flush_streams(void)
{
    (void)fflush(NULL);
}

GEXI_INLINE void gasnett_close_streams(void)
{
    (void)fflush(NULL);
    (void)fclose(stdin);
    (void)fclose(stdout);
    (void)fclose(stderr);
}

GEXI_END_C
#endif
