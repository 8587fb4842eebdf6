/* gasnet_config.h: how this GASNet was made, in numbers. Build systems read the file; the tools include it. Needs no
 * thread mode. */
#ifndef GASNET_CONFIG_H
#define GASNET_CONFIG_H 1

/* Says the versions first, so that a compiler refuses this file when its copy of them differs. */
#include "gasnet_fwd.h"

/* Written out, because build systems look for the lines. */
#define GASNET_RELEASE_VERSION_MAJOR 2025
#define GASNET_RELEASE_VERSION_MINOR 8
#define GASNET_RELEASE_VERSION_PATCH 0
#define GEX_SPEC_VERSION_MAJOR 0
#define GEX_SPEC_VERSION_MINOR 19

/* Which memory other ranks reach: a program chooses another mode than FAST for each of its files, or for none. */
#if defined(GASNET_SEGMENT_FAST) + defined(GASNET_SEGMENT_LARGE) + defined(GASNET_SEGMENT_EVERYTHING) > 1
#error "gasnet_ibv: define only one of GASNET_SEGMENT_FAST, GASNET_SEGMENT_LARGE, GASNET_SEGMENT_EVERYTHING"
#endif
#if defined(GASNET_SEGMENT_EVERYTHING)
#undef GASNET_SEGMENT_EVERYTHING
#define GASNET_SEGMENT_EVERYTHING 1
#elif defined(GASNET_SEGMENT_LARGE)
#undef GASNET_SEGMENT_LARGE
#define GASNET_SEGMENT_LARGE 1
#else
#undef GASNET_SEGMENT_FAST
#define GASNET_SEGMENT_FAST 1
#endif
#if !defined(GASNET_NDEBUG) && !defined(GASNET_DEBUG)
#define GASNET_NDEBUG 1
#endif

/* A client's own configuration may have said the same before. */
#ifndef HAVE_PTHREAD_H
#define HAVE_PTHREAD_H 1
#endif
#ifndef HAVE_PTHREAD_SETCONCURRENCY
#define HAVE_PTHREAD_SETCONCURRENCY 1
#endif

/* Bytes of the basic types, usable in #if. */
#ifndef SIZEOF_CHAR
#define SIZEOF_CHAR 1
#endif
#ifndef SIZEOF_SHORT
#define SIZEOF_SHORT 2
#endif
#ifndef SIZEOF_INT
#define SIZEOF_INT 4
#endif
#ifndef SIZEOF_LONG
#define SIZEOF_LONG 8
#endif
#ifndef SIZEOF_LONG_LONG
#define SIZEOF_LONG_LONG 8
#endif
#ifndef SIZEOF_VOID_P
#define SIZEOF_VOID_P 8
#endif
#ifndef SIZEOF_SIZE_T
#define SIZEOF_SIZE_T 8
#endif
#ifndef SIZEOF_PTRDIFF_T
#define SIZEOF_PTRDIFF_T 8
#endif

#endif
