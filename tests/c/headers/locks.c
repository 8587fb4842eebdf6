/* Handler-safe locks really exclude: the header's half of the protocol, with the library's half as docs/design/c-face.md
 * says it. In SEQ too, because a thread for receives may run handlers beside the program. */
#include <gasnetex.h>
#include <pthread.h>
#include <sched.h>

#include <linux/futex.h>
#include <sys/syscall.h>

extern long gexi_test_syscall(long number, ...) __asm__("syscall");

#define THREADS 4
#define ROUNDS 50000

GEXI_BEGIN_C
const int GEXI_ABI_NAME(gexi_requires) = 1;
void gexi_HSL_LockSlow(uint32_t *state)
{
    while (__atomic_exchange_n(state, 2, __ATOMIC_ACQUIRE) != 0)
        (void)gexi_test_syscall(SYS_futex, state, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
}
void gexi_HSL_Wake(uint32_t *state)
{
    (void)gexi_test_syscall(SYS_futex, state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
GEXI_END_C

static gex_HSL_t all_zero, initialized = GEX_HSL_INITIALIZER;
static volatile long total;
static int waiting;

static void *count(void *unused)
{
    int i;
    (void)__atomic_add_fetch(&waiting, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&waiting, __ATOMIC_SEQ_CST) < THREADS) (void)sched_yield(); /* all start at once */
    for (i = 0; i < ROUNDS; i++) {
        long seen;
        if (i % 8 == 0) {
            while (gex_HSL_Trylock(&initialized) != GASNET_OK) (void)sched_yield();
        } else gex_HSL_Lock(&initialized);
        seen = total; /* lost without exclusion */
        if (i % 64 == 1) (void)sched_yield(); /* others run while this one holds the lock */
        total = seen + 1;
        gex_HSL_Unlock(&initialized);
    }
    return unused;
}

int main(void)
{
    gex_HSL_t fresh;
    pthread_t threads[THREADS];
    int i;
    if (memcmp(&all_zero, &initialized, sizeof(all_zero))) return 1;
    memset(&fresh, 0xff, sizeof(fresh));
    gex_HSL_Init(&fresh);
    if (memcmp(&fresh, &all_zero, sizeof(fresh))) return 2;
    gex_HSL_Lock(&fresh);
    if (gex_HSL_Trylock(&fresh) != GASNET_ERR_NOT_READY) return 4;
    gex_HSL_Unlock(&fresh);
    if (gex_HSL_Trylock(&fresh) != GASNET_OK) return 5;
    gex_HSL_Unlock(&fresh);
    for (i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, count, NULL)) return 6;
    for (i = 0; i < THREADS; i++) (void)pthread_join(threads[i], NULL);
    if (total != (long)THREADS * ROUNDS) return 7;
    if (memcmp(&initialized, &all_zero, sizeof(all_zero))) return 8;
    gex_HSL_Destroy(&fresh);
    printf("locks: all hold\n");
    return 0;
}
