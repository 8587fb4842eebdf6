/* What the other parts of the tools are made with, and their general macros. */
#ifndef GASNET_IBV_TOOLS_PLATFORM_H
#define GASNET_IBV_TOOLS_PLATFORM_H 1

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "../../gasnet_config.h"
#include "../../gasnet_portable_platform.h"
#include "../base.h"
#include "numbers.h"

#ifndef _STRINGIFY
#define _STRINGIFY(x) GEXI_TEXT(x)
#endif
#ifndef _CONCAT
#define _CONCAT(a, b) GEXI_PASTE(a, b)
#endif
#ifndef if_pf
#define if_pf(condition) if (__builtin_expect(!!(condition), 0))
#define if_pt(condition) if (__builtin_expect(!!(condition), 1))
#endif

/* Thread mode of the tools: the client's own word, else that of gasnetex.h, else whether the build has threads. */
#if defined(GASNETT_THREAD_SAFE) && defined(GASNETT_THREAD_SINGLE)
#error "gasnet_tools.h: define only one of GASNETT_THREAD_SAFE and GASNETT_THREAD_SINGLE"
#elif defined(GASNETT_THREAD_SAFE)
#undef GASNETT_THREAD_SAFE
#define GASNETT_THREAD_SAFE 1
#elif defined(GASNETT_THREAD_SINGLE)
#undef GASNETT_THREAD_SINGLE
#define GASNETT_THREAD_SINGLE 1
#elif defined(GASNET_PAR) || defined(GASNET_PARSYNC) || (!defined(GASNET_SEQ) && defined(_REENTRANT))
#define GASNETT_THREAD_SAFE 1
#else
#define GASNETT_THREAD_SINGLE 1
#endif

#define GASNETT_RELEASE_VERSION_MAJOR GASNET_RELEASE_VERSION_MAJOR
#define GASNETT_RELEASE_VERSION_MINOR GASNET_RELEASE_VERSION_MINOR
#define GASNETT_RELEASE_VERSION_PATCH GASNET_RELEASE_VERSION_PATCH
#define GASNETT_SPEC_VERSION_MAJOR 1
#define GASNETT_SPEC_VERSION_MINOR 20

#define GASNETT_CACHE_LINE_BYTES 64
#define GASNETT_PAGESIZE 4096
#define GASNETT_PAGESHIFT 12
#ifdef GASNETT_THREAD_SAFE
#define GASNETT_MAX_THREADS 256
#define GEXI_TOOLS_MODE "PAR"
#else
#define GASNETT_MAX_THREADS 1
#define GEXI_TOOLS_MODE "SEQ"
#endif
#if defined(__x86_64__)
#define GASNETT_SYSTEM_TUPLE "x86_64-unknown-linux-gnu"
#else
#define GASNETT_SYSTEM_TUPLE "aarch64-unknown-linux-gnu"
#endif
#define GASNETT_CONFIG_STRING                                                                                        \
    "RELEASE=" GEXI_TEXT(GASNET_RELEASE_VERSION_MAJOR) "." GEXI_TEXT(GASNET_RELEASE_VERSION_MINOR) "." GEXI_TEXT(    \
        GASNET_RELEASE_VERSION_PATCH) ",SPEC=" GEXI_TEXT(GASNETT_SPEC_VERSION_MAJOR) "." GEXI_TEXT(                  \
        GASNETT_SPEC_VERSION_MINOR) ",THREADMODEL=" GEXI_TOOLS_MODE                                                  \
                                    ",PTR=64bit,CACHE_LINE_BYTES=64,nodebug,timers_os,membars_native,"               \
                                    "atomics_native,atomic32_native,atomic64_native"

#endif
