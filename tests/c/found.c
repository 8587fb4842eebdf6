/* Headers that build systems look for, versions, and the tools with nothing but gasnet.h. */
#include <gasnet_config.h>
#include <gasnet_portable_platform.h>

#include <gasnet.h>
#include <ibv-conduit/gasnet_core.h>

#include "t.h"

#if GASNETT_RELEASE_VERSION_MAJOR * 10000 + GASNETT_RELEASE_VERSION_MINOR * 100 + GASNETT_RELEASE_VERSION_PATCH !=     \
    GASNET_RELEASE_VERSION_MAJOR * 10000 + GASNET_RELEASE_VERSION_MINOR * 100 + GASNET_RELEASE_VERSION_PATCH
#error "the release of the tools is that of the conduit"
#endif
#if !PLATFORM_COMPILER_VERSION_GE(4, 0, 0) || !PLATFORM_COMPILER_VERSION_GT(4, 0, 0) ||                                \
    PLATFORM_COMPILER_VERSION_LE(4, 0, 0) || PLATFORM_COMPILER_VERSION_LT(4, 0, 0) ||                                  \
    PLATFORM_COMPILER_VERSION_EQ(4, 0, 0) || !PLATFORM_COMPILER_VERSION_NE(4, 0, 0)
#error "compilers are compared"
#endif
#if defined(__cplusplus) ? PLATFORM_COMPILER_GNU_C + PLATFORM_COMPILER_CLANG_C                                         \
                         : PLATFORM_COMPILER_GNU_CXX + PLATFORM_COMPILER_CLANG_CXX
#error "the language is not the other one"
#endif

GASNETT_IDENT(mark, "$GASNetTest: " PLATFORM_COMPILER_IDSTR " $");

int main(int argc, char **argv)
{
    gasnett_tick_t begin = gasnett_ticks_now();
    t_join("found", &argc, &argv);
    CHECK(gasnett_ticks_now() >= begin && gasnett_cpu_count() > 0);
    CHECK(!strncmp(GASNETT_CONFIG_STRING, "RELEASE=2025.8.0,", 17));
    CHECK(strstr(mark, "|COMPILER_FAMILY:" _STRINGIFY(PLATFORM_COMPILER_FAMILYNAME) "|"));
    CHECK(strstr(mark, PLATFORM_COMPILER_VERSION_STR) != NULL);
    t_pass();
    return 1;
}
