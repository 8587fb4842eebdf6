/* Waiting for a condition of the client, and hooks for thread identity. */
#ifndef GASNET_IBV_WAIT_H
#define GASNET_IBV_WAIT_H 1

#include "am.h"
#include "types.h"

GEXI_BEGIN_C

#define GASNET_WAIT_SPIN 0
#define GASNET_WAIT_BLOCK 1
#define GASNET_WAIT_SPINBLOCK 2
/* How blocked calls of this process wait; spinning is the default. */
GEXI_API int gasnet_set_waitmode(int mode);

/* Called after the `turn`th poll (from 0) of one wait that has not helped: rests as the wait mode says. */
GEXI_API void gexi_wait_hook(unsigned int turn);

/* Runs handlers until `cond` holds. No poll when it holds at once; `cond` is read in the caller's scope. */
#define GASNET_BLOCKUNTIL(cond)                                                                                      \
    do {                                                                                                             \
        if (!(cond)) {                                                                                               \
            unsigned int gexi_turn = 0;                                                                              \
            for (;;) {                                                                                               \
                (void)gasnet_AMPoll();                                                                               \
                if (cond) break;                                                                                     \
                gexi_wait_hook(gexi_turn++);                                                                         \
            }                                                                                                        \
        }                                                                                                            \
        GEXI_ACQUIRE();                                                                                              \
    } while (0)

/* The library keeps its thread state itself, so there is nothing to hand on. */
typedef void *gasnet_threadinfo_t;
#define GASNET_BEGIN_FUNCTION() ((void)0)
#define GASNET_POST_THREADINFO(info) ((void)(info))
#define GASNET_GET_THREADINFO() ((gasnet_threadinfo_t)0)

GEXI_END_C
#endif
