/* Thread mode, identification and limits; all usable in #if unless they are strings or names. */
#ifndef GASNET_IBV_CONFIG_H
#define GASNET_IBV_CONFIG_H 1

#include "../gasnet_fwd.h"
#include "base.h"

/* The debug library checks what the specification demands of programs: GASNET_DEBUG chooses it, and is defined for each
 * file of a program or for none. */
#if defined(GASNET_DEBUG) && defined(GASNET_NDEBUG)
#error "gasnet_ibv: define only one of GASNET_DEBUG and GASNET_NDEBUG"
#elif defined(GASNET_DEBUG)
#undef GASNET_DEBUG
#define GASNET_DEBUG 1
#define GEXI_ABI_OF(prefix, mode) prefix##_ibv_##mode##_debug_abi1
#define GEXI_BUILD_NAME "debug"
#else
#define GEXI_ABI_OF(prefix, mode) prefix##_ibv_##mode##_abi1
#define GEXI_BUILD_NAME "nodebug"
/* Guarded: a client's build system, or the original's own configuration, may say the same on the command line. */
#ifndef GASNET_NDEBUG
#define GASNET_NDEBUG 1
#endif
#endif

/* Exactly one of the three is chosen by the client before it includes the first header. */
#if defined(GASNET_SEQ) + defined(GASNET_PARSYNC) + defined(GASNET_PAR) == 0
#error "gasnet_ibv: no thread mode: define one of GASNET_SEQ, GASNET_PARSYNC, GASNET_PAR before including gasnetex.h"
#elif defined(GASNET_SEQ) + defined(GASNET_PARSYNC) + defined(GASNET_PAR) > 1
#error "gasnet_ibv: several thread modes: define only one of GASNET_SEQ, GASNET_PARSYNC, GASNET_PAR"
#endif

#if defined(GASNET_SEQ)
#undef GASNET_SEQ
#define GASNET_SEQ 1
#define GEXI_ABI_NAME(prefix) GEXI_ABI_OF(prefix, seq)
#define GEXI_MODE_NAME "SEQ"
#define GEXI_MODE_NUMBER 1
#elif defined(GASNET_PARSYNC)
#undef GASNET_PARSYNC
#define GASNET_PARSYNC 1
#define GEXI_ABI_NAME(prefix) GEXI_ABI_OF(prefix, parsync)
#define GEXI_MODE_NAME "PARSYNC"
#define GEXI_MODE_NUMBER 2
#else
#undef GASNET_PAR
#define GASNET_PAR 1
#define GEXI_ABI_NAME(prefix) GEXI_ABI_OF(prefix, par)
#define GEXI_MODE_NAME "PAR"
#define GEXI_MODE_NUMBER 3
#endif

/* Grows when the header and the library stop fitting together, and with it the number in GEXI_ABI_NAME. */
#define GEXI_ABI 1

#define GASNET_CONDUIT_IBV 1
#define GASNET_IBV_CONDUIT 1
#define GASNET_CONDUIT_NAME IBV
#define GASNET_CONDUIT_NAME_STR "IBV"
#define GASNET_CORE_NAME IBV
#define GASNET_CORE_NAME_STR "IBV"
#define GASNET_CORE_VERSION 2.17
#define GASNET_CORE_VERSION_STR "2.17"
#define GASNET_EXTENDED_NAME IBV
#define GASNET_EXTENDED_NAME_STR "IBV"
#define GASNET_EXTENDED_VERSION 2.17
#define GASNET_EXTENDED_VERSION_STR "2.17"

/* Which memory other ranks reach, as in gasnet_config.h. Defined by each file to tell the library at init: a program whose
 * files name several does not start. */
#if defined(GASNET_SEGMENT_FAST) + defined(GASNET_SEGMENT_LARGE) + defined(GASNET_SEGMENT_EVERYTHING) > 1
#error "gasnet_ibv: define only one of GASNET_SEGMENT_FAST, GASNET_SEGMENT_LARGE, GASNET_SEGMENT_EVERYTHING"
#elif defined(GASNET_SEGMENT_EVERYTHING)
#undef GASNET_SEGMENT_EVERYTHING
#define GASNET_SEGMENT_EVERYTHING 1
#define GEXI_SEGMENT_NAME "EVERYTHING"
#define GEXI_SEGMENT_SYMBOL "gexi_segment_everything"
#elif defined(GASNET_SEGMENT_LARGE)
#undef GASNET_SEGMENT_LARGE
#define GASNET_SEGMENT_LARGE 1
#define GEXI_SEGMENT_NAME "LARGE"
#define GEXI_SEGMENT_SYMBOL "gexi_segment_large"
#else
#undef GASNET_SEGMENT_FAST
#define GASNET_SEGMENT_FAST 1
#define GEXI_SEGMENT_NAME "FAST"
#define GEXI_SEGMENT_SYMBOL "gexi_segment_fast"
#endif
#define GASNET_PSHM 1
#define GASNET_ALIGNED_SEGMENTS 0
#define GASNET_NULL_ARGV_OK 1
#define GASNET_MAXNODES 65535
#define GASNET_MAXEPS 33
#define GASNET_PAGESIZE 4096
/* Threads of the network, which GASNET_RCV_THREAD and GASNET_SND_THREAD start, in every mode: those for receives run
 * handlers beside the program. */
#define GASNET_SND_THREAD 1
#define GASNET_RCV_THREAD 1
#define GASNET_HIDDEN_AM_CONCURRENCY_LEVEL 1
#define GASNET_IBV_MAX_HCAS 1
#define GEX_AM_INDEX_BASE 128
#define SIZEOF_GEX_RMA_VALUE_T 8

#define GASNET_SUPPORTS_TI_SRCRANK 1
#define GASNET_SUPPORTS_TI_EP 1
#define GASNET_SUPPORTS_TI_ENTRY 1
#define GASNET_SUPPORTS_TI_IS_REQ 1
#define GASNET_SUPPORTS_TI_IS_LONG 1
#define GASNET_SUPPORTS_AM_CANCEL 20240418L
#define GASNET_SUPPORTS_AM_COMMIT_V2 20240906L
#define GASNET_NATIVE_NP_ALLOC_REQ_MEDIUM 1
#define GASNET_NATIVE_NP_ALLOC_REP_MEDIUM 1
#define GASNET_NATIVE_NP_ALLOC_REQ_LONG 1
#define GASNET_NATIVE_NP_ALLOC_REP_LONG 1
#define GASNET_HAVE_MK_CLASS_HOST 1

/* Limit of client threads; the original's tools headers ask for this name when they stand behind gasnetex.h. */
#ifndef GASNETI_MAX_THREADS
#define GASNETI_MAX_THREADS 256
#endif

/* Two builds with equal strings fit together. */
#define GASNET_CONFIG_STRING                                                                                         \
    "RELEASE=" GEXI_TEXT(GASNET_RELEASE_VERSION_MAJOR) "." GEXI_TEXT(GASNET_RELEASE_VERSION_MINOR) "." GEXI_TEXT(    \
        GASNET_RELEASE_VERSION_PATCH) ",SPEC=" GEXI_TEXT(GEX_SPEC_VERSION_MAJOR) "." GEXI_TEXT(                      \
        GEX_SPEC_VERSION_MINOR) ",CONDUIT=IBV(IBV-" GASNET_CORE_VERSION_STR "/IBV-" GASNET_EXTENDED_VERSION_STR      \
                                "),THREADMODEL=" GEXI_MODE_NAME                                                      \
                                ",SEGMENT=" GEXI_SEGMENT_NAME ",PTR=64bit,CACHE_LINE_BYTES=64,noalign,pshm," GEXI_BUILD_NAME            \
                                ",notrace,nostats,nodebugmalloc,nosrclines,timers_native,membars_native,atomics_native,"              \
                                "atomic32_native,atomic64_native,notiopt"

/* A missing symbol of this name at link time means: the library is for another thread mode, with or without checks as
 * the program is not, or for another version of these headers. Every object file refers to it, so a mixture is found whichever file it is in. */
GEXI_BEGIN_C
GEXI_API const int GEXI_ABI_NAME(gexi_requires);
GEXI_END_C
static const int *const gexi_requires_here __attribute__((__used__)) = &GEXI_ABI_NAME(gexi_requires);

/* The launcher looks for these in the file of a program, which has none of the library's own when that is shared. Clients'
 * launchers expect to find each once: one copy remains however many files include this, and those that drop unused
 * sections keep it where the tools can say so. */
#if defined(__has_attribute)
#if __has_attribute(__retain__)
#define GEXI_IDENT_FLAGS "aGR"
#endif
#endif
#ifndef GEXI_IDENT_FLAGS
#define GEXI_IDENT_FLAGS "aG"
#endif
__asm__(".pushsection .rodata.gexi_identification,\"" GEXI_IDENT_FLAGS "\",%progbits,gexi_identification,comdat\n"
        ".weak gexi_identification\n.hidden gexi_identification\n.type gexi_identification,%object\n"
        "gexi_identification:\n"
        ".asciz \"$GASNetConduitName: IBV $\", \"$GASNetSSHSpawner: 1 $\", \"$GASNetPMISpawner: 1 $\"\n"
        ".asciz \"$GASNetMPISpawner: 1 $\"\n.size gexi_identification,.-gexi_identification\n.popsection");

GEXI_BEGIN_C
GEXI_API const int gexi_segment_fast;
GEXI_API const int gexi_segment_large;
GEXI_API const int gexi_segment_everything;
GEXI_END_C
/* Not zero where a file of the program has this segment mode; the library's own words of these names are. */
__asm__(".pushsection .rodata." GEXI_SEGMENT_SYMBOL ",\"" GEXI_IDENT_FLAGS "\",%progbits," GEXI_SEGMENT_SYMBOL ",comdat\n"
        ".globl " GEXI_SEGMENT_SYMBOL "\n.type " GEXI_SEGMENT_SYMBOL ",%object\n.balign 4\n" GEXI_SEGMENT_SYMBOL ":\n"
        ".long 1\n.size " GEXI_SEGMENT_SYMBOL ",4\n.popsection");

#endif
