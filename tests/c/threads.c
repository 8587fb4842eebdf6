/* Threads of the client, before and after init: all of them communicate (PAR), or one at a time (PARSYNC). */
#include "t.h"

#if GASNET_SEQ
int main(int argc, char **argv)
{
    t_join("threads", &argc, &argv);
    CHECK_EQ(gex_System_QueryMaxThreads(), 1);
    t_pass();
    return 1;
}
#else
#define THREADS 4
#define AREA 8192
static int requests_seen, mine_seen[THREADS];
static gex_HSL_t lock = GEX_HSL_INITIALIZER;
#if GASNET_PARSYNC
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
#define ENTER() pthread_mutex_lock(&turn)
#define LEAVE() pthread_mutex_unlock(&turn)
#else
#define ENTER() ((void)0)
#define LEAVE() ((void)0)
#endif

static void ask(gex_Token_t token, void *data, size_t bytes, gex_AM_Arg_t thread)
{
    CHECK(t_same(data, (uint32_t)thread, bytes));
    gex_HSL_Lock(&lock);
    requests_seen++;
    gex_HSL_Unlock(&lock);
    OK(gex_AM_ReplyMedium1(token, 201, data, bytes, GEX_EVENT_NOW, 0, thread));
}

static void answered(gex_Token_t token, void *data, size_t bytes, gex_AM_Arg_t thread)
{
    (void)token;
    CHECK(t_same(data, (uint32_t)thread, bytes));
    __atomic_fetch_add(&mine_seen[thread], 1, __ATOMIC_RELEASE);
}

static void *work(void *which)
{
    int thread = (int)(intptr_t)which, round;
    unsigned char data[2000], back[2000];
    for (round = 0; round < 100; round++) {
        gex_Rank_t to = (t_rank + (unsigned)round) % t_size;
        char *place;
        size_t bytes = (size_t)(round * 19);
        t_fill(data, (uint32_t)thread, sizeof data);
        ENTER();
        place = t_base(to, NULL) + (t_rank * THREADS + (unsigned)thread) * AREA;
        OK(gex_RMA_PutNBI(t_tm, to, place, data, bytes, GEX_EVENT_DEFER, 0));
        gex_NBI_Wait(GEX_EC_PUT, 0);
        gex_Event_Wait(gex_RMA_GetNB(t_tm, back, to, place, bytes, 0));
        CHECK(t_same(back, (uint32_t)thread, bytes));
        OK(gex_AM_RequestMedium1(t_tm, to, 200, data, bytes, GEX_EVENT_NOW, 0, thread));
        LEAVE();
        for (;;) {
            int seen;
            ENTER();
            OK(gasnet_AMPoll());
            seen = __atomic_load_n(&mine_seen[thread], __ATOMIC_ACQUIRE);
            LEAVE();
            if (seen == round + 1) break;
            sched_yield();
        }
    }
    return NULL;
}

static volatile int go;
static void *before_init(void *unused)
{
    while (!__atomic_load_n(&go, __ATOMIC_ACQUIRE)) usleep(1000);
    CHECK(gex_System_QueryJobSize() == t_size);
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS], early;
    gex_AM_Entry_t table[2];
    int at;
    if (pthread_create(&early, NULL, before_init, NULL) != 0) return 95;
    t_join("threads", &argc, &argv);
    __atomic_store_n(&go, 1, __ATOMIC_RELEASE);
    pthread_join(early, NULL);
    CHECK(gex_System_QueryMaxThreads() >= THREADS + 1);
    table[0] = t_entry(200, (gex_AM_Fn_t)ask, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REQUEST, 1);
    table[1] = t_entry(201, (gex_AM_Fn_t)answered, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REPLY, 1);
    OK(gex_EP_RegisterHandlers(t_ep, table, 2));
    t_attach(AREA * THREADS * t_size);
    t_barrier();
    for (at = 0; at < THREADS; at++) CHECK(pthread_create(&threads[at], NULL, work, (void *)(intptr_t)at) == 0);
    for (at = 0; at < THREADS; at++) CHECK(pthread_join(threads[at], NULL) == 0);
    t_barrier();
    CHECK_EQ(requests_seen, THREADS * 100);
    t_pass();
    return 1;
}
#endif
