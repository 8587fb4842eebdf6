/* Atomic variables of 32 and 64 bits.
 *
 * gasnett_atomic[32|64]: between threads; plain memory operations where the tools are for one thread.
 * gasnett_strongatomic[32|64]: always atomic, so also between processes and with signal handlers. */
#ifndef GASNET_IBV_TOOLS_ATOMICS_H
#define GASNET_IBV_TOOLS_ATOMICS_H 1

#include "fences.h"

#define GASNETT_ATOMIC_NONE 0
#define GASNETT_ATOMIC_WMB_PRE 0x01
#define GASNETT_ATOMIC_RMB_PRE 0x02
#define GASNETT_ATOMIC_MB_PRE 0x07
#define GASNETT_ATOMIC_WMB_POST 0x08
#define GASNETT_ATOMIC_RMB_POST 0x10
#define GASNETT_ATOMIC_MB_POST 0x38
#define GASNETT_ATOMIC_RMB_POST_IF_TRUE 0x40
#define GASNETT_ATOMIC_RMB_POST_IF_FALSE 0x80
#define GASNETT_ATOMIC_REL 0x100
#define GASNETT_ATOMIC_ACQ 0x200
#define GASNETT_ATOMIC_ACQ_IF_TRUE 0x400
#define GASNETT_ATOMIC_ACQ_IF_FALSE 0x800

#define GASNETT_HAVE_ATOMIC_CAS 1
#define GASNETT_HAVE_ATOMIC_ADD_SUB 1
#define GASNETT_HAVE_STRONGATOMIC_CAS 1
#define GASNETT_HAVE_STRONGATOMIC_ADD_SUB 1

/* Release and acquire cost nothing on x86; on ARM they are full fences here. */
#if defined(__x86_64__)
#define GEXI_TOOLS_ORDER() GEXI_COMPILER_FENCE()
#else
#define GEXI_TOOLS_ORDER() gasnett_local_mb()
#endif

GEXI_BEGIN_C

GEXI_INLINE void gexi_fence_before(int flags)
{
    if ((flags & GASNETT_ATOMIC_MB_PRE) == GASNETT_ATOMIC_MB_PRE) gasnett_local_mb();
    else if (flags & GASNETT_ATOMIC_REL) GEXI_TOOLS_ORDER();
    else {
        if (flags & GASNETT_ATOMIC_WMB_PRE) gasnett_local_wmb();
        if (flags & GASNETT_ATOMIC_RMB_PRE) gasnett_local_rmb();
    }
}

GEXI_INLINE void gexi_fence_after(int flags)
{
    if ((flags & GASNETT_ATOMIC_MB_POST) == GASNETT_ATOMIC_MB_POST) gasnett_local_mb();
    else if (flags & GASNETT_ATOMIC_ACQ) GEXI_TOOLS_ORDER();
    else {
        if (flags & GASNETT_ATOMIC_WMB_POST) gasnett_local_wmb();
        if (flags & GASNETT_ATOMIC_RMB_POST) gasnett_local_rmb();
    }
}

GEXI_INLINE int gexi_fence_after_test(int result, int flags)
{
    gexi_fence_after(flags);
    if (result ? (flags & GASNETT_ATOMIC_ACQ_IF_TRUE) : (flags & GASNETT_ATOMIC_ACQ_IF_FALSE)) GEXI_TOOLS_ORDER();
    if (result ? (flags & GASNETT_ATOMIC_RMB_POST_IF_TRUE) : (flags & GASNETT_ATOMIC_RMB_POST_IF_FALSE))
        gasnett_local_rmb();
    return result;
}

/* The basic steps: processor atomics, and the same on plain memory. */
#define GEXI_HARD_LOAD(p) __atomic_load_n(p, __ATOMIC_RELAXED)
#define GEXI_HARD_STORE(p, v) __atomic_store_n(p, v, __ATOMIC_RELAXED)
#define GEXI_HARD_ADD(result, p, v) ((result) = __atomic_add_fetch(p, v, __ATOMIC_RELAXED))
#define GEXI_HARD_CAS(done, p, old, v)                                                                               \
    ((done) = __atomic_compare_exchange_n(p, &(old), v, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
#define GEXI_HARD_EXCHANGE(old, p, v) ((old) = __atomic_exchange_n(p, v, __ATOMIC_RELAXED))
#define GEXI_SOFT_LOAD(p) (*(p))
#define GEXI_SOFT_STORE(p, v) (*(p) = (v))
#define GEXI_SOFT_ADD(result, p, v)                                                                                  \
    do {                                                                                                             \
        (result) = *(p) + (v);                                                                                       \
        *(p) = (result);                                                                                             \
    } while (0)
#define GEXI_SOFT_EXCHANGE(old, p, v)                                                                                \
    do {                                                                                                             \
        (old) = *(p);                                                                                                \
        *(p) = (v);                                                                                                  \
    } while (0)
#define GEXI_SOFT_CAS(done, p, old, v)                                                                               \
    do {                                                                                                             \
        (done) = *(p) == (old);                                                                                      \
        if (done) *(p) = (v);                                                                                        \
    } while (0)

#define GEXI_ATOMIC(name, value, signed_value, kind)                                                                 \
    typedef value gasnett_##name##_val_t;                                                                            \
    typedef signed_value gasnett_##name##_sval_t;                                                                    \
    typedef struct {                                                                                                 \
        volatile value gexi_value;                                                                                   \
    } gasnett_##name##_t;                                                                                            \
    GEXI_INLINE void gasnett_##name##_set(gasnett_##name##_t *p, value v, int flags)                                 \
    {                                                                                                                \
        gexi_fence_before(flags);                                                                                    \
        GEXI_##kind##_STORE(&p->gexi_value, v);                                                                      \
        gexi_fence_after(flags);                                                                                     \
    }                                                                                                                \
    GEXI_INLINE value gasnett_##name##_read(const gasnett_##name##_t *p, int flags)                                  \
    {                                                                                                                \
        value seen;                                                                                                  \
        gexi_fence_before(flags);                                                                                    \
        seen = GEXI_##kind##_LOAD(&p->gexi_value);                                                                   \
        gexi_fence_after(flags);                                                                                     \
        return seen;                                                                                                 \
    }                                                                                                                \
    GEXI_INLINE value gasnett_##name##_add(gasnett_##name##_t *p, value v, int flags)                                \
    {                                                                                                                \
        value result;                                                                                                \
        gexi_fence_before(flags);                                                                                    \
        GEXI_##kind##_ADD(result, &p->gexi_value, v);                                                                \
        gexi_fence_after(flags);                                                                                     \
        return result;                                                                                               \
    }                                                                                                                \
    GEXI_INLINE value gasnett_##name##_subtract(gasnett_##name##_t *p, value v, int flags)                           \
    {                                                                                                                \
        return gasnett_##name##_add(p, (value)(0 - v), flags);                                                       \
    }                                                                                                                \
    GEXI_INLINE void gasnett_##name##_increment(gasnett_##name##_t *p, int flags)                                    \
    {                                                                                                                \
        (void)gasnett_##name##_add(p, 1, flags);                                                                     \
    }                                                                                                                \
    GEXI_INLINE void gasnett_##name##_decrement(gasnett_##name##_t *p, int flags)                                    \
    {                                                                                                                \
        (void)gasnett_##name##_subtract(p, 1, flags);                                                                \
    }                                                                                                                \
    /* Non-zero when the variable has become zero. */                                                                \
    GEXI_INLINE int gasnett_##name##_decrement_and_test(gasnett_##name##_t *p, int flags)                            \
    {                                                                                                                \
        value left;                                                                                                  \
        gexi_fence_before(flags);                                                                                    \
        GEXI_##kind##_ADD(left, &p->gexi_value, (value)(0 - (value)1));                                              \
        return gexi_fence_after_test(left == 0, flags);                                                              \
    }                                                                                                                \
    GEXI_INLINE value gasnett_##name##_swap(gasnett_##name##_t *p, value v, int flags)                               \
    {                                                                                                                \
        value old;                                                                                                   \
        gexi_fence_before(flags);                                                                                    \
        GEXI_##kind##_EXCHANGE(old, &p->gexi_value, v);                                                              \
        gexi_fence_after(flags);                                                                                     \
        return old;                                                                                                  \
    }                                                                                                                \
    /* Non-zero when the variable was `expected` and now is `v`. */                                                  \
    GEXI_INLINE int gasnett_##name##_compare_and_swap(gasnett_##name##_t *p, value expected, value v, int flags)     \
    {                                                                                                                \
        int done;                                                                                                    \
        gexi_fence_before(flags);                                                                                    \
        GEXI_##kind##_CAS(done, &p->gexi_value, expected, v);                                                        \
        return gexi_fence_after_test(done, flags);                                                                   \
    }                                                                                                                \
    struct gexi_semicolon

#ifdef GASNETT_THREAD_SAFE
GEXI_ATOMIC(atomic, uint32_t, int32_t, HARD);
GEXI_ATOMIC(atomic32, uint32_t, int32_t, HARD);
GEXI_ATOMIC(atomic64, uint64_t, int64_t, HARD);
#else
GEXI_ATOMIC(atomic, uint32_t, int32_t, SOFT);
GEXI_ATOMIC(atomic32, uint32_t, int32_t, SOFT);
GEXI_ATOMIC(atomic64, uint64_t, int64_t, SOFT);
#endif
GEXI_ATOMIC(strongatomic, uint32_t, int32_t, HARD);
GEXI_ATOMIC(strongatomic32, uint32_t, int32_t, HARD);
GEXI_ATOMIC(strongatomic64, uint64_t, int64_t, HARD);

#define gasnett_atomic_init(v) {(v)}
#define gasnett_atomic32_init(v) {(v)}
#define gasnett_atomic64_init(v) {(v)}
#define gasnett_strongatomic_init(v) {(v)}
#define gasnett_strongatomic32_init(v) {(v)}
#define gasnett_strongatomic64_init(v) {(v)}
#define gasnett_atomic_signed(v) ((gasnett_atomic_sval_t)(v))
#define gasnett_strongatomic_signed(v) ((gasnett_strongatomic_sval_t)(v))
#define GASNETT_ATOMIC_MAX UINT32_MAX
#define GASNETT_ATOMIC_SIGNED_MIN INT32_MIN
#define GASNETT_ATOMIC_SIGNED_MAX INT32_MAX
#define GASNETT_STRONGATOMIC_MAX UINT32_MAX
#define GASNETT_STRONGATOMIC_SIGNED_MIN INT32_MIN
#define GASNETT_STRONGATOMIC_SIGNED_MAX INT32_MAX

GEXI_END_C
#endif
