/* Memory fences and the hint of a spinning loop. */
#ifndef GASNET_IBV_TOOLS_FENCES_H
#define GASNET_IBV_TOOLS_FENCES_H 1

#include "platform.h"

#define gasnett_compiler_fence() GEXI_COMPILER_FENCE()

#if defined(__x86_64__)
/* Stores become visible in order and loads are done in order: only the compiler needs to be told. */
#define gasnett_local_wmb() GEXI_COMPILER_FENCE()
#define gasnett_local_rmb() GEXI_COMPILER_FENCE()
#define gasnett_local_mb() __asm__ __volatile__("lock; addl $0, -8(%%rsp)" ::: "memory", "cc")
#define gasnett_spinloop_hint() __asm__ __volatile__("pause" ::: "memory")
#else
#define gasnett_local_wmb() __asm__ __volatile__("dmb ishst" ::: "memory")
#define gasnett_local_rmb() __asm__ __volatile__("dmb ishld" ::: "memory")
#define gasnett_local_mb() __asm__ __volatile__("dmb ish" ::: "memory")
#define gasnett_spinloop_hint() __asm__ __volatile__("yield" ::: "memory")
#endif

/* The weak forms are for threads of this process only. */
#ifdef GASNETT_THREAD_SAFE
#define gasnett_weak_wmb() gasnett_local_wmb()
#define gasnett_weak_rmb() gasnett_local_rmb()
#define gasnett_weak_mb() gasnett_local_mb()
#else
#define gasnett_weak_wmb() ((void)0)
#define gasnett_weak_rmb() ((void)0)
#define gasnett_weak_mb() ((void)0)
#endif

#endif
