/* Formats of numbers and sizes of types, which the tools give: in text, and in #if. */
#include <gasnet_tools.h>

#include "t.h"

#if SIZEOF_CHAR != 1 || SIZEOF_SHORT != 2 || SIZEOF_INT != 4 || SIZEOF_LONG != 8 || SIZEOF_LONG_LONG != 8 ||           \
    SIZEOF_VOID_P != 8 || SIZEOF_SIZE_T != 8 || SIZEOF_PTRDIFF_T != 8
#error "sizes of types are constants of the preprocessor"
#endif

static void sizes(void)
{
    CHECK_EQ(SIZEOF_CHAR, sizeof(char));
    CHECK_EQ(SIZEOF_SHORT, sizeof(short));
    CHECK_EQ(SIZEOF_INT, sizeof(int));
    CHECK_EQ(SIZEOF_LONG, sizeof(long));
    CHECK_EQ(SIZEOF_LONG_LONG, sizeof(long long));
    CHECK_EQ(SIZEOF_VOID_P, sizeof(void *));
    CHECK_EQ(SIZEOF_SIZE_T, sizeof(size_t));
    CHECK_EQ(SIZEOF_PTRDIFF_T, sizeof(ptrdiff_t));
}

#define SAYS(text, format, value)                                                                                    \
    do {                                                                                                             \
        char t_text[64];                                                                                             \
        (void)snprintf(t_text, sizeof t_text, "%" format, value);                                                    \
        if (strcmp(t_text, text)) FAIL("%%%s says %s, not %s", format, t_text, text);                                \
    } while (0)

int main(int argc, char **argv)
{
    const size_t size = (size_t)1 << 40 | 171;
    const ptrdiff_t back = -(ptrdiff_t)((size_t)1 << 40), there = (ptrdiff_t)size;
    const uintptr_t word = size;
    t_join("numbers", &argc, &argv);
    sizes();
    SAYS("1099511627947", PRIuSZ, size);
    SAYS("1099511627947", PRIdSZ, (ssize_t)size);
    SAYS("1099511627947", PRIiSZ, (ssize_t)size);
    SAYS("-1", PRIdSZ, (ssize_t)-1);
    SAYS("20000000000253", PRIoSZ, size);
    SAYS("100000000ab", PRIxSZ, size);
    SAYS("100000000AB", PRIXSZ, size);
    SAYS("-1099511627776", PRIdPD, back);
    SAYS("-1099511627776", PRIiPD, back);
    SAYS("1099511627947", PRIuPD, there);
    SAYS("20000000000253", PRIoPD, there);
    SAYS("100000000ab", PRIxPD, there);
    SAYS("100000000AB", PRIXPD, there);
    SAYS("1099511627947", PRIuPTR, word);
    SAYS("1099511627947", PRIdPTR, (intptr_t)word);
    SAYS("100000000ab", PRIxPTR, word);
    SAYS("100000000AB", PRIXPTR, word);
    SAYS("1099511627947", PRIu64, (uint64_t)size);
    t_pass();
    return 1;
}
