/* Handler-safe locks: the only locks for both handlers and the rest of a client. Short, not recursive, no
 * communication while one is held. All-zero memory is an unlocked lock, in every thread mode the same 16 bytes.
 *
 * gexi_state: 0 free, 1 held, 2 held and somebody may sleep. In SEQ one thread runs everything, handlers too, so
 * there is nobody to exclude. */
#ifndef GASNET_IBV_HSL_H
#define GASNET_IBV_HSL_H 1

#include "types.h"

GEXI_BEGIN_C

typedef struct {
    uint32_t gexi_state;
    uint32_t gexi_reserved[3];
} gex_HSL_t;
#define GEX_HSL_INITIALIZER {0, {0, 0, 0}}

/* Blocks until the lock is ours: the word was not 0. Never polls. */
GEXI_API void gexi_HSL_LockSlow(uint32_t *state);
/* Wakes one sleeper: the word was 2 and has been set to 0. */
GEXI_API void gexi_HSL_Wake(uint32_t *state);

#ifdef GASNET_DEBUG

/* As below; they end the process where a rule is broken. */
GEXI_API void gexi_HSL_CheckedInit(gex_HSL_t *hsl);
GEXI_API void gexi_HSL_CheckedDestroy(gex_HSL_t *hsl);
GEXI_API void gexi_HSL_CheckedLock(gex_HSL_t *hsl);
GEXI_API void gexi_HSL_CheckedUnlock(gex_HSL_t *hsl);
GEXI_API int gexi_HSL_CheckedTrylock(gex_HSL_t *hsl);

GEXI_INLINE void gex_HSL_Init(gex_HSL_t *hsl)
{
    gexi_HSL_CheckedInit(hsl);
}

GEXI_INLINE void gex_HSL_Destroy(gex_HSL_t *hsl)
{
    gexi_HSL_CheckedDestroy(hsl);
}

GEXI_INLINE void gex_HSL_Lock(gex_HSL_t *hsl)
{
    gexi_HSL_CheckedLock(hsl);
}

GEXI_INLINE void gex_HSL_Unlock(gex_HSL_t *hsl)
{
    gexi_HSL_CheckedUnlock(hsl);
}

GEXI_INLINE int gex_HSL_Trylock(gex_HSL_t *hsl)
{
    return gexi_HSL_CheckedTrylock(hsl);
}

#else

GEXI_INLINE void gex_HSL_Init(gex_HSL_t *hsl)
{
    hsl->gexi_state = 0;
    hsl->gexi_reserved[0] = hsl->gexi_reserved[1] = hsl->gexi_reserved[2] = 0;
}

GEXI_INLINE void gex_HSL_Destroy(gex_HSL_t *hsl)
{
    (void)hsl;
}

GEXI_INLINE int gexi_HSL_Take(gex_HSL_t *hsl)
{
    uint32_t seen = 0;
    return __atomic_compare_exchange_n(&hsl->gexi_state, &seen, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

GEXI_INLINE void gex_HSL_Lock(gex_HSL_t *hsl)
{
    if (GEXI_UNLIKELY(!gexi_HSL_Take(hsl))) gexi_HSL_LockSlow(&hsl->gexi_state);
}

GEXI_INLINE void gex_HSL_Unlock(gex_HSL_t *hsl)
{
    if (GEXI_UNLIKELY(__atomic_exchange_n(&hsl->gexi_state, 0, __ATOMIC_RELEASE) == 2))
        gexi_HSL_Wake(&hsl->gexi_state);
}

/* GASNET_OK, or GASNET_ERR_NOT_READY when somebody holds it. */
GEXI_INLINE int gex_HSL_Trylock(gex_HSL_t *hsl)
{
    return gexi_HSL_Take(hsl) ? GASNET_OK : GASNET_ERR_NOT_READY;
}

#endif

GEXI_END_C
#endif
