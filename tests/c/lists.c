/* Lists of vector, indexed and strided access in text: what they say, and that they keep to their room. */
#include <gasnet_tools.h>

#include "t.h"

/* Memory for a text of exactly this length, so that tools that watch memory see a byte too many. */
static char *room(size_t bytes)
{
    char *text = (char *)malloc(bytes);
    CHECK(text != NULL);
    memset(text, 'x', bytes);
    return text;
}

/* The text ends in its room, and begins so. */
static void said(char *text, size_t bytes, const char *begin)
{
    CHECK(memchr(text, 0, bytes) != NULL);
    if (strncmp(text, begin, strlen(begin))) FAIL("\"%s\" does not begin with \"%s\"", text, begin);
    free(text);
}

#define AT(address) ((void *)(uintptr_t)(address))

static void vectors(void)
{
    const gex_Memvec_t list[3] = {{AT(0x2000), 64}, {NULL, 0}, {AT(0x1000), 16}};
    size_t bytes = gasnett_format_memveclist_bufsz(3);
    char *text = room(bytes);
    gasneti_memveclist_stats_t stats = gasnett_format_memveclist(text, 3, list);
    CHECK(stats.minsz == 0 && stats.maxsz == 64 && stats.totalsz == 80);
    CHECK(stats.minaddr == AT(0x1000) && stats.maxaddr == AT(0x203f));
    said(text, bytes, "3 entries, 80 bytes, each 0 to 64, at 0x1000 to 0x203f: (0x2000, 64) (");
    bytes = gasnett_format_memveclist_bufsz(0);
    text = room(bytes);
    stats = gasnett_format_memveclist(text, 0, NULL);
    CHECK(stats.minsz == 0 && stats.maxsz == 0 && stats.totalsz == 0 && !stats.minaddr && !stats.maxaddr);
    said(text, bytes, "0 entries, 0 bytes, ");
    bytes = gasnett_format_putvgetv_bufsz(1, 3);
    text = room(bytes);
    CHECK_EQ(gasnett_format_putvgetv(text, t_tm, 7, 1, list, 3, list), 80);
    CHECK(strstr(text, "; from 3 entries, 80 bytes") != NULL);
    said(text, bytes, "rank 7, to 1 entries, 64 bytes");
}

static void addresses(void)
{
    void *list[2] = {AT(0x3000), AT(0x1800)};
    size_t bytes = gasnett_format_addrlist_bufsz(2);
    char *text = room(bytes);
    gasneti_addrlist_stats_t stats = gasnett_format_addrlist(text, 2, list, 8);
    CHECK(stats.minaddr == AT(0x1800) && stats.maxaddr == AT(0x3007));
    said(text, bytes, "2 addresses, each of 8 bytes, at 0x1800 to 0x3007: 0x3000 0x1800");
    bytes = gasnett_format_putigeti_bufsz(1, 2);
    text = room(bytes);
    CHECK_EQ(gasnett_format_putigeti(text, t_tm, 7, 1, list, 16, 2, list, 8), 16);
    CHECK(strstr(text, "; from 2 addresses, each of 8 bytes") != NULL);
    said(text, bytes, "rank 7, to 1 addresses, each of 16 bytes");
}

static void strides(void)
{
    const ptrdiff_t to[2] = {-8, 4096}, from[2] = {8, 128};
    const size_t count[2] = {10, 3};
    size_t bytes = gasnett_format_strides_bufsz(2);
    char *text = room(bytes);
    gasnett_format_strides(text, 2, to);
    said(text, bytes, "[-8, 4096]");
    bytes = gasnett_format_strides_bufsz(0);
    text = room(bytes);
    gasnett_format_strides(text, 0, NULL);
    said(text, bytes, "[]");
    bytes = gasnett_format_putsgets_bufsz(2);
    text = room(bytes);
    CHECK_EQ(gasnett_format_putsgets(text, NULL, t_tm, 7, AT(0x5000), to, AT(0x6000), from, 4, count, 2), 120);
    said(text, bytes,
         "rank 7, 120 bytes, elements of 4, counts [10, 3], to 0x5000 by [-8, 4096], from 0x6000 by [8, 128]");
}

/* The longest numbers, many times. */
static void longest(void)
{
    enum { N = 50 };
    gex_Memvec_t vector[N];
    void *address[N];
    ptrdiff_t stride[N];
    size_t count[N], i, bytes;
    char *text;
    for (i = 0; i < N; i++) {
        vector[i].gex_addr = address[i] = AT(UINTPTR_MAX - 1);
        vector[i].gex_len = count[i] = SIZE_MAX;
        stride[i] = PTRDIFF_MIN;
    }
    bytes = gasnett_format_putvgetv_bufsz(N, N);
    text = room(bytes);
    (void)gasnett_format_putvgetv(text, t_tm, GEX_RANK_INVALID, N, vector, N, vector);
    CHECK(text[strlen(text) - 1] == ')');
    said(text, bytes, "rank 4294967295, ");
    bytes = gasnett_format_putigeti_bufsz(N, N);
    text = room(bytes);
    (void)gasnett_format_putigeti(text, t_tm, 0, N, address, SIZE_MAX, N, address, SIZE_MAX);
    CHECK(text[strlen(text) - 1] == 'e');
    said(text, bytes, "rank 0, ");
    bytes = gasnett_format_putsgets_bufsz(N);
    text = room(bytes);
    (void)gasnett_format_putsgets(text, NULL, t_tm, 0, address[0], stride, address[0], stride, SIZE_MAX, count, N);
    CHECK(text[strlen(text) - 1] == ']');
    said(text, bytes, "rank 0, ");
}

int main(int argc, char **argv)
{
    t_join("lists", &argc, &argv);
    vectors();
    addresses();
    strides();
    longest();
    t_pass();
    return 1;
}
