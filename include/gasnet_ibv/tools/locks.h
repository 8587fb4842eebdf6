/* Mutexes, conditions, read-write locks and thread-local keys. With tools for one thread, locks are empty. */
#ifndef GASNET_IBV_TOOLS_LOCKS_H
#define GASNET_IBV_TOOLS_LOCKS_H 1

#include <pthread.h>

#include "errors.h"
#include "platform.h"

GEXI_BEGIN_C

#ifdef GASNETT_THREAD_SAFE

#define GEXI_LOCK_STEP(what, call)                                                                                   \
    do {                                                                                                             \
        int gexi_error = (call);                                                                                     \
        if (GEXI_UNLIKELY(gexi_error != 0)) gexi_lock_failed(what, gexi_error);                                      \
    } while (0)

GEXI_INLINE void gexi_lock_failed(const char *what, int error)
{
    gasnett_fatalerror("%s failed: %s", what, strerror(error));
}

typedef pthread_mutex_t gasnett_mutex_t;
#define GASNETT_MUTEX_INITIALIZER PTHREAD_MUTEX_INITIALIZER
#define gasnett_mutex_init(mutex) GEXI_LOCK_STEP("gasnett_mutex_init", pthread_mutex_init(mutex, NULL))
#define gasnett_mutex_destroy(mutex) GEXI_LOCK_STEP("gasnett_mutex_destroy", pthread_mutex_destroy(mutex))
#define gasnett_mutex_destroy_ignoreerr(mutex) ((void)pthread_mutex_destroy(mutex))
#define gasnett_mutex_lock(mutex) GEXI_LOCK_STEP("gasnett_mutex_lock", pthread_mutex_lock(mutex))
#define gasnett_mutex_unlock(mutex) GEXI_LOCK_STEP("gasnett_mutex_unlock", pthread_mutex_unlock(mutex))
#define gasnett_mutex_trylock(mutex) pthread_mutex_trylock(mutex) /* 0 or EBUSY */

typedef pthread_cond_t gasnett_cond_t;
#define GASNETT_COND_INITIALIZER PTHREAD_COND_INITIALIZER
#define gasnett_cond_init(cond) GEXI_LOCK_STEP("gasnett_cond_init", pthread_cond_init(cond, NULL))
#define gasnett_cond_destroy(cond) GEXI_LOCK_STEP("gasnett_cond_destroy", pthread_cond_destroy(cond))
#define gasnett_cond_signal(cond) GEXI_LOCK_STEP("gasnett_cond_signal", pthread_cond_signal(cond))
#define gasnett_cond_broadcast(cond) GEXI_LOCK_STEP("gasnett_cond_broadcast", pthread_cond_broadcast(cond))
#define gasnett_cond_wait(cond, mutex) GEXI_LOCK_STEP("gasnett_cond_wait", pthread_cond_wait(cond, mutex))

/* The C library's read-write lock, whose type strict ISO modes hide: 56 bytes, all zero when free. */
typedef struct {
    uint64_t gexi_words[7];
} gasnett_rwlock_t;
#define GASNETT_RWLOCK_INITIALIZER {{0, 0, 0, 0, 0, 0, 0}}
extern int gexi_rwlock_init(gasnett_rwlock_t *lock, const void *attributes) __asm__("pthread_rwlock_init");
extern int gexi_rwlock_destroy(gasnett_rwlock_t *lock) __asm__("pthread_rwlock_destroy");
extern int gexi_rwlock_rdlock(gasnett_rwlock_t *lock) __asm__("pthread_rwlock_rdlock");
extern int gexi_rwlock_wrlock(gasnett_rwlock_t *lock) __asm__("pthread_rwlock_wrlock");
extern int gexi_rwlock_unlock(gasnett_rwlock_t *lock) __asm__("pthread_rwlock_unlock");
extern int gexi_rwlock_tryrdlock(gasnett_rwlock_t *lock) __asm__("pthread_rwlock_tryrdlock");
extern int gexi_rwlock_trywrlock(gasnett_rwlock_t *lock) __asm__("pthread_rwlock_trywrlock");
#define gasnett_rwlock_init(lock) GEXI_LOCK_STEP("gasnett_rwlock_init", gexi_rwlock_init(lock, NULL))
#define gasnett_rwlock_destroy(lock) GEXI_LOCK_STEP("gasnett_rwlock_destroy", gexi_rwlock_destroy(lock))
#define gasnett_rwlock_rdlock(lock) GEXI_LOCK_STEP("gasnett_rwlock_rdlock", gexi_rwlock_rdlock(lock))
#define gasnett_rwlock_wrlock(lock) GEXI_LOCK_STEP("gasnett_rwlock_wrlock", gexi_rwlock_wrlock(lock))
#define gasnett_rwlock_unlock(lock) GEXI_LOCK_STEP("gasnett_rwlock_unlock", gexi_rwlock_unlock(lock))
#define gasnett_rwlock_tryrdlock(lock) gexi_rwlock_tryrdlock(lock)
#define gasnett_rwlock_trywrlock(lock) gexi_rwlock_trywrlock(lock)

#else

typedef struct {
    char gexi_nothing;
} gasnett_mutex_t, gasnett_cond_t, gasnett_rwlock_t;
#define GASNETT_MUTEX_INITIALIZER {0}
#define GASNETT_COND_INITIALIZER {0}
#define GASNETT_RWLOCK_INITIALIZER {0}
#define gasnett_mutex_init(mutex) ((void)(mutex))
#define gasnett_mutex_destroy(mutex) ((void)(mutex))
#define gasnett_mutex_destroy_ignoreerr(mutex) ((void)(mutex))
#define gasnett_mutex_lock(mutex) ((void)(mutex))
#define gasnett_mutex_unlock(mutex) ((void)(mutex))
#define gasnett_mutex_trylock(mutex) ((void)(mutex), 0)
#define gasnett_cond_init(cond) ((void)(cond))
#define gasnett_cond_destroy(cond) ((void)(cond))
#define gasnett_cond_signal(cond) ((void)(cond))
#define gasnett_cond_broadcast(cond) ((void)(cond))
/* Nobody else could wake us. */
#define gasnett_cond_wait(cond, mutex)                                                                               \
    ((void)(cond), (void)(mutex), gasnett_fatalerror("gasnett_cond_wait would wait for ever: tools for one thread"))
#define gasnett_rwlock_init(lock) ((void)(lock))
#define gasnett_rwlock_destroy(lock) ((void)(lock))
#define gasnett_rwlock_rdlock(lock) ((void)(lock))
#define gasnett_rwlock_wrlock(lock) ((void)(lock))
#define gasnett_rwlock_unlock(lock) ((void)(lock))
#define gasnett_rwlock_tryrdlock(lock) ((void)(lock), 0)
#define gasnett_rwlock_trywrlock(lock) ((void)(lock), 0)

#endif

/* Checked by debugging builds of the original only. */
#define gasnett_mutex_assertlocked(mutex) ((void)(mutex))
#define gasnett_mutex_assertunlocked(mutex) ((void)(mutex))
#define gasnett_rwlock_assertlocked(lock) ((void)(lock))
#define gasnett_rwlock_assertrdlocked(lock) ((void)(lock))
#define gasnett_rwlock_assertwrlocked(lock) ((void)(lock))
#define gasnett_rwlock_assertunlocked(lock) ((void)(lock))

/* One void * for each thread, null at first. DECLARE in headers, DEFINE in one file. */
#define GASNETT_THREADKEY_DECLARE(key) extern __thread void *GEXI_PASTE(gexi_key_, key)
#define GASNETT_THREADKEY_DEFINE(key) __thread void *GEXI_PASTE(gexi_key_, key)
#define gasnett_threadkey_init(key) ((void)GEXI_PASTE(gexi_key_, key))
/* Keys are ready from the start. Clients take the address of this one. */
GEXI_INLINE void _gasneti_threadkey_init(void **key)
{
    (void)key;
}
#define gasnett_threadkey_get(key) (GEXI_PASTE(gexi_key_, key))
#define gasnett_threadkey_set(key, value) ((void)(GEXI_PASTE(gexi_key_, key) = (void *)(value)))
#define gasnett_threadkey_get_noinit(key) gasnett_threadkey_get(key)
#define gasnett_threadkey_set_noinit(key, value) gasnett_threadkey_set(key, value)

GEXI_END_C
#endif
