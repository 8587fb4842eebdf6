/* gasnet_portable_platform.h: compiler, system and processor in macros that #if can use. Needs nothing else. */
#ifndef GASNET_PORTABLE_PLATFORM_H
#define GASNET_PORTABLE_PLATFORM_H 1

/* Unless another copy of these words stands before. */
#ifndef PLATFORM_COMPILER_FAMILYNAME

/* Versions as one number that grows with them. */
#define PLATFORM_COMPILER_VERSION_INT(major, minor, patch) (((major) << 16) | ((minor) << 8) | (patch))

#if defined(__clang__)
#define PLATFORM_COMPILER_CLANG 1
#define PLATFORM_COMPILER_FAMILYNAME Clang
#define PLATFORM_COMPILER_FAMILYID 19
#define PLATFORM_COMPILER_VERSION PLATFORM_COMPILER_VERSION_INT(__clang_major__, __clang_minor__, __clang_patchlevel__)
#define PLATFORM_COMPILER_VERSION_STR __clang_version__
#ifdef __cplusplus
#define PLATFORM_COMPILER_CLANG_CXX 1
#else
#define PLATFORM_COMPILER_CLANG_C 1
#endif
#else
#define PLATFORM_COMPILER_GNU 1
#define PLATFORM_COMPILER_FAMILYNAME GNU
#define PLATFORM_COMPILER_FAMILYID 1
#define PLATFORM_COMPILER_VERSION PLATFORM_COMPILER_VERSION_INT(__GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__)
#define PLATFORM_COMPILER_VERSION_STR __VERSION__
#ifdef __cplusplus
#define PLATFORM_COMPILER_GNU_CXX 1
#else
#define PLATFORM_COMPILER_GNU_C 1
#endif
#endif

#define PLATFORM_COMPILER_VERSION_GE(a, b, c) (PLATFORM_COMPILER_VERSION >= PLATFORM_COMPILER_VERSION_INT(a, b, c))
#define PLATFORM_COMPILER_VERSION_GT(a, b, c) (PLATFORM_COMPILER_VERSION > PLATFORM_COMPILER_VERSION_INT(a, b, c))
#define PLATFORM_COMPILER_VERSION_LE(a, b, c) (PLATFORM_COMPILER_VERSION <= PLATFORM_COMPILER_VERSION_INT(a, b, c))
#define PLATFORM_COMPILER_VERSION_LT(a, b, c) (PLATFORM_COMPILER_VERSION < PLATFORM_COMPILER_VERSION_INT(a, b, c))
#define PLATFORM_COMPILER_VERSION_EQ(a, b, c) (PLATFORM_COMPILER_VERSION == PLATFORM_COMPILER_VERSION_INT(a, b, c))
#define PLATFORM_COMPILER_VERSION_NE(a, b, c) (PLATFORM_COMPILER_VERSION != PLATFORM_COMPILER_VERSION_INT(a, b, c))

#ifdef __cplusplus
#define PLATFORM_COMPILER_CXX_LANGLVL __cplusplus
#elif defined(__STDC_VERSION__)
#define PLATFORM_COMPILER_C_LANGLVL __STDC_VERSION__
#else
#define PLATFORM_COMPILER_C_LANGLVL 199000L
#endif

/* Compiler and language in one literal. */
#define GEXI_PLATFORM_TEXT_(word) #word
#define GEXI_PLATFORM_TEXT(word) GEXI_PLATFORM_TEXT_(word)
#ifdef __cplusplus
#define GEXI_PLATFORM_STANDARD GEXI_PLATFORM_TEXT(__cplusplus)
#elif defined(__STDC_VERSION__)
#define GEXI_PLATFORM_STANDARD "__STDC__," GEXI_PLATFORM_TEXT(__STDC_VERSION__)
#else
#define GEXI_PLATFORM_STANDARD "__STDC__"
#endif
#define PLATFORM_COMPILER_IDSTR                                                                                      \
    "|COMPILER_FAMILY:" GEXI_PLATFORM_TEXT(PLATFORM_COMPILER_FAMILYNAME) "|COMPILER_VERSION:"                        \
    PLATFORM_COMPILER_VERSION_STR "|COMPILER_FAMILYID:" GEXI_PLATFORM_TEXT(PLATFORM_COMPILER_FAMILYID)               \
    "|STD:" GEXI_PLATFORM_STANDARD "|"

#define PLATFORM_OS_LINUX 1
#define PLATFORM_OS_FAMILYNAME LINUX
#define PLATFORM_ARCH_64 1
#define PLATFORM_ARCH_LITTLE_ENDIAN 1
#if defined(__x86_64__)
#define PLATFORM_ARCH_X86_64 1
#define PLATFORM_ARCH_FAMILYNAME X86
#else
#define PLATFORM_ARCH_AARCH64 1
#define PLATFORM_ARCH_FAMILYNAME AARCH64
#endif

#endif
#endif
