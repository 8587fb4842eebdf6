/* Random traffic of all kinds of operations at once, checked against a model that knows what every byte must be:
 *   traffic [OPERATIONS per rank] [SEED] [light]
 * Most operations of light traffic are such as are inlined for neighbours. In mode PAR two threads of each rank share the operations. */
#include "traffic/atomics.h"
#include "traffic/messages.h"
#include "traffic/together.h"
#include "traffic/transfers.h"

/* Operations of a thread between two comparisons of all memory, and collectives between them. */
#define PHASE 1000
#define MEETINGS 25

static uint32_t seed = 1;
static unsigned long wanted = 2000 / THREADS;
static int light;

static void step(struct worker *w)
{
    gex_Rank_t to = (gex_Rank_t)below(w, t_size);
    size_t kind = below(w, 100);
    if (light && below(w, 10)) kind = 32 + kind % 36 + (kind > 70 ? 50 : 0);
    if (kind >= 100) shared_word(w, to);
    else if (kind < 16) short_request(w, to);
    else if (kind < 26) medium_request(w, to);
    else if (kind < 32) long_request(w, to);
    else if (kind < 46) contiguous_put(w, to);
    else if (kind < 58) contiguous_get(w, to);
    else if (kind < 68) value(w, to);
    else if (kind < 74) strided(w, to, kind % 2);
    else if (kind < 78) vector(w, to, kind % 2);
    else if (kind < 82) indexed(w, to, kind % 2);
    else if (kind < 91) own_word(w, to);
    else if (kind < 96) shared_word(w, to);
    else if (kind < 98 && !w->open) {
        if (w->closed) finish_all(w);
        gex_NBI_BeginAccessRegion(0);
        w->open = 1;
    } else if (w->open) close_region(w);
    else if (below(w, 3) == 0) finish_all(w);
    else OK(gasnet_AMPoll());
}

static void *phase(void *which)
{
    struct worker *w = (struct worker *)which;
    int at;
    for (at = 0; at < PHASE; at++) {
        if (w->number == 0 && at % (PHASE / MEETINGS) == 0) collective(w);
        step(w);
    }
    finish_all(w);
    GASNET_BLOCKUNTIL(__atomic_load_n(&replies[w->number], __ATOMIC_ACQUIRE) == w->asked);
    return NULL;
}

/* Every rank is told how many requests came its way, and waits for them. */
static void settle(void)
{
    static uint64_t mine[MOST_RANKS * MOST_RANKS * 2], all[MOST_RANKS * MOST_RANKS * 2];
    size_t words = (size_t)t_size * t_size * 2;
    gex_Rank_t rank;
    int thread;
    memset(mine, 0, sizeof mine);
    for (thread = 0; thread < THREADS; thread++)
        for (rank = 0; rank < t_size; rank++) {
            mine[(t_rank * t_size + rank) * 2] += workers[thread].sent[rank];
            mine[(t_rank * t_size + rank) * 2 + 1] += workers[thread].told[rank];
        }
    gex_Event_Wait(gex_Coll_ReduceToAllNB(t_tm, all, mine, GEX_DT_U64, 8, words, GEX_OP_ADD, NULL, NULL, 0));
    for (rank = 0; rank < t_size; rank++) {
        uint64_t count = all[(rank * t_size + t_rank) * 2], sum = all[(rank * t_size + t_rank) * 2 + 1];
        GASNET_BLOCKUNTIL(__atomic_load_n(&got[rank], __ATOMIC_ACQUIRE) >= count);
        CHECK_EQ(got[rank], count);
        CHECK_EQ(sums_got[rank], sum);
    }
}

static uint64_t hash(const void *data)
{
    uint64_t sum = 14695981039346656037U, word;
    size_t at;
    for (at = 0; at < SLOT; at += 8) {
        memcpy(&word, (const char *)data + at, 8);
        sum = (sum ^ word) * 1099511628211U;
    }
    return sum;
}

/* Tells the owners of the segments what must be in them. */
static void tell(struct worker *w)
{
    gex_Rank_t rank;
    for (rank = 0; rank < t_size; rank++) {
        uint64_t sum = hash(w->slots[rank]);
        OK(gex_AM_RequestShort3(t_tm, rank, HASH, 0, w->number, (gex_AM_Arg_t)sum, (gex_AM_Arg_t)(sum >> 32)));
        w->sent[rank]++;
        w->told[rank] += (uint64_t)w->number;
    }
}

/* The words that all share, by what all did to them. */
static void compare_sums(void)
{
    uint64_t mine[MOST_RANKS * WORDS], sums[MOST_RANKS * WORDS], bits[MOST_RANKS * WORDS];
    const char *here = bases[t_rank] + shared_at();
    size_t at, count = (size_t)t_size * WORDS;
    memset(mine, 0, sizeof mine);
    for (at = 0; at < count; at++) {
        int thread;
        for (thread = 0; thread < THREADS; thread++) {
            uint64_t part = workers[thread].sums[at / WORDS][at % WORDS];
            mine[at] = at % 2 ? mine[at] ^ part : mine[at] + part;
        }
    }
    gex_Event_Wait(gex_Coll_ReduceToAllNB(t_tm, sums, mine, GEX_DT_U64, 8, count, GEX_OP_ADD, NULL, NULL, 0));
    gex_Event_Wait(gex_Coll_ReduceToAllNB(t_tm, bits, mine, GEX_DT_U64, 8, count, GEX_OP_XOR, NULL, NULL, 0));
    for (at = 0; at < WORDS; at++) {
        uint64_t word;
        memcpy(&word, here + at * 8, 8);
        CHECK_EQ(word, (at % 2 ? bits : sums)[t_rank * WORDS + at]);
    }
}

/* All memory against all models. */
static void compare(void)
{
    gex_Rank_t rank;
    int thread;
    for (thread = 0; thread < THREADS; thread++) tell(&workers[thread]);
    settle();
    for (rank = 0; rank < t_size; rank++)
        for (thread = 0; thread < THREADS; thread++)
            if (hashes[rank][thread] != hash(bases[t_rank] + slot_at(rank, thread)))
                FAIL("the slot of thread %d of rank %u has other bytes than its model", thread, (unsigned)rank);
    for (thread = 0; thread < THREADS; thread++)
        for (rank = 0; rank < t_size; rank++) {
            uint64_t words[WORDS];
            OK(gex_RMA_GetBlocking(t_tm, words, rank, bases[rank] + words_at(t_rank, thread), sizeof words, 0));
            CHECK(memcmp(words, workers[thread].words[rank], sizeof words) == 0);
        }
    compare_sums();
    t_barrier();
}

static void start_worker(struct worker *w, int number)
{
    gex_Rank_t rank;
    int at;
    w->number = number;
    w->state = seed * 2654435761U + (uint32_t)t_rank * 40503U + (uint32_t)number * 97;
    for (rank = 0; rank < t_size; rank++) {
        w->slots[rank] = (unsigned char *)calloc(1, SLOT);
        CHECK(w->slots[rank] != NULL);
    }
    for (at = 0; at < FLIGHTS; at++) {
        struct flight *f = &w->flights[at];
        f->want = (unsigned char *)malloc(SLOT);
        f->buffer = at < STAGED ? (unsigned char *)bases[t_rank] + stage_at(number) + (size_t)at * SLOT
                                : (unsigned char *)malloc(SLOT);
        CHECK(f->want && f->buffer);
    }
}

static void start(int *argc, char ***argv)
{
    uint32_t state = 99;
    gex_Rank_t rank;
    size_t at;
    t_join("traffic", argc, argv);
    if (*argc > 1) wanted = strtoul((*argv)[1], NULL, 10) / THREADS;
    if (*argc > 2) seed = (uint32_t)strtoul((*argv)[2], NULL, 10);
    light = *argc > 3;
    CHECK(t_size <= MOST_RANKS);
    register_handlers();
    t_attach(shared_at() + WORDS * 8);
    for (rank = 0; rank < t_size; rank++) bases[rank] = t_base(rank, NULL);
    pool = (unsigned char *)malloc(POOL);
    CHECK(pool != NULL);
    for (at = 0; at < POOL; at++) pool[at] = (unsigned char)t_random(&state);
    common_state = seed;
    together_start();
    for (at = 0; at < THREADS; at++) start_worker(&workers[at], (int)at);
    t_barrier();
}

int main(int argc, char **argv)
{
    unsigned long done;
    uint64_t operations = 0, all;
    int thread;
    start(&argc, &argv);
    for (done = 0; done < wanted; done += PHASE) {
        pthread_t others[THREADS];
        make_teams();
        make_domains(t_tm);
        t_barrier();
        for (thread = 1; thread < THREADS; thread++)
            CHECK(pthread_create(&others[thread], NULL, phase, &workers[thread]) == 0);
        (void)phase(&workers[0]);
        for (thread = 1; thread < THREADS; thread++) CHECK(pthread_join(others[thread], NULL) == 0);
        finish_together();
        t_barrier();
        compare();
        for (thread = 0; thread < 6; thread++) gex_AD_Destroy(domains[thread]);
        end_teams();
    }
    for (thread = 0; thread < THREADS; thread++) operations += workers[thread].operations;
    gex_Event_Wait(gex_Coll_ReduceToAllNB(t_tm, &all, &operations, GEX_DT_U64, 8, 1, GEX_OP_ADD, NULL, NULL, 0));
    if (t_rank == 0) printf("%llu operations, seed %u\n", (unsigned long long)all, (unsigned)seed);
    t_pass();
    return 1;
}
