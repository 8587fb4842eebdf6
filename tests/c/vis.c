/* Vector, indexed and strided transfers of random descriptions against a model in plain memory, with every kind of
 * completion, in every direction; peer completion; the cases of nothing. */
#include <gasnet_tools.h>
#include <gasnet_vis.h>

#include "t.h"

#define AREA ((size_t)1 << 18)
#define DIMS 16
#define ENTRIES 4000

/* The local side is in memory of the program and in the own segment, which adapters reach, in turn. */
static unsigned char heap[AREA], model[AREA], there[AREA], back[AREA], *mine = heap;
static uint32_t state;

enum { BLOCKING, EVENT, LEAF, IMPLICIT, GROUP, REGION, IMMEDIATE, PAIR, KINDS };
static gex_TM_t team;
static gex_Flags_t flags;

static size_t below(size_t most)
{
    return t_random(&state) % most;
}

static unsigned char *part(gex_Rank_t rank)
{
    /* Each rank has its own part of every segment. */
    return (unsigned char *)t_base(rank, NULL) + (size_t)t_rank * AREA;
}

static void choose(int round)
{
    mine = round / 3 % 2 ? (unsigned char *)t_base(t_rank, NULL) + (size_t)t_size * AREA : heap;
}

/* Which team and flags a kind of call is made with. */
static void prepare(int kind)
{
    team = kind == PAIR ? gex_TM_Pair(t_ep, 0) : t_tm;
    flags = kind == LEAF || kind == GROUP ? GEX_FLAG_ENABLE_LEAF_LC : kind == IMMEDIATE ? GEX_FLAG_IMMEDIATE : 0;
    if (kind == REGION) gex_NBI_BeginAccessRegion(0);
}

/* What waits for a transfer of a kind. A source may be used again after its local completion. */
static void complete(int kind, gex_Event_t event, int put)
{
    switch (kind) {
    case EVENT:
    case PAIR: gex_Event_Wait(event); break;
    case LEAF:
        if (put) {
            gex_Event_Wait(gex_Event_QueryLeaf(event, GEX_EC_LC));
            memset(mine, 0x77, AREA);
        }
        while (gex_Event_Test(event) != GASNET_OK) OK(gasnet_AMPoll());
        break;
    case IMPLICIT:
    case IMMEDIATE: gex_NBI_Wait(put ? GEX_EC_PUT : GEX_EC_GET, 0); break;
    case GROUP:
        if (put) {
            gex_NBI_Wait(GEX_EC_LC, 0);
            memset(mine, 0x78, AREA);
        }
        gex_NBI_Wait(GEX_EC_ALL, 0);
        break;
    case REGION: gex_Event_Wait(gex_NBI_EndAccessRegion(0)); break;
    default: break;
    }
}

/* A transfer in the form of its kind. With the immediate flag it may be declined, for a while. */
#define TRANSFER(kind, put, name, ...)                                                                               \
    do {                                                                                                             \
        gex_Event_t t_event = GEX_EVENT_INVALID;                                                                     \
        prepare(kind);                                                                                               \
        switch (kind) {                                                                                              \
        case BLOCKING: OK(gex_VIS_##name##Blocking(team, __VA_ARGS__, flags)); break;                                \
        case EVENT:                                                                                                  \
        case LEAF:                                                                                                   \
        case PAIR: t_event = gex_VIS_##name##NB(team, __VA_ARGS__, flags); break;                                    \
        default:                                                                                                     \
            while (gex_VIS_##name##NBI(team, __VA_ARGS__, flags)) OK(gasnet_AMPoll());                               \
        }                                                                                                            \
        complete(kind, t_event, put);                                                                                \
    } while (0)

/* A box without overlap, its dimensions in any order and direction. */
struct box {
    ptrdiff_t strides[DIMS];
    size_t first, span;
};

static void random_box(struct box *box, size_t element, const size_t *count, size_t dims)
{
    size_t order[DIMS], at, reach = element;
    box->first = 0;
    for (at = 0; at < dims; at++) order[at] = at;
    for (at = dims; at > 1; at--) {
        size_t other = below(at), held = order[other];
        order[other] = order[at - 1];
        order[at - 1] = held;
    }
    for (at = 0; at < dims; at++) {
        size_t dim = order[at], stride = reach + (below(2) ? 0 : below(9));
        int backwards = below(2) && count[dim] > 0;
        box->strides[dim] = backwards ? -(ptrdiff_t)stride : (ptrdiff_t)stride;
        if (backwards) box->first += stride * (count[dim] - 1);
        reach = stride * (count[dim] ? count[dim] : 1);
    }
    box->span = reach;
}

/* Copies as the description says, element by element. */
static void move_box(unsigned char *to, const ptrdiff_t *into, const unsigned char *from, const ptrdiff_t *out,
                     size_t element, const size_t *count, size_t dims)
{
    size_t k;
    if (!dims) {
        memcpy(to, from, element);
        return;
    }
    for (k = 0; k < count[dims - 1]; k++)
        move_box(to + into[dims - 1] * (ptrdiff_t)k, into, from + out[dims - 1] * (ptrdiff_t)k, out, element, count,
                 dims - 1);
}

static void check(gex_Rank_t to, const unsigned char *segment, const unsigned char *local, int round)
{
    OK(gex_RMA_GetBlocking(t_tm, back, to, segment, AREA, 0));
    if (memcmp(back, there, AREA)) FAIL("round %d: the segment of rank %u is wrong", round, to);
    if (local && memcmp(local, model, AREA)) FAIL("round %d: the local memory is wrong", round);
}

static void strided(void)
{
    static const size_t elements[] = {0, 1, 2, 8, 24, 64, 100, 4000};
    int round;
    for (round = 0; round < 200; round++) {
        gex_Rank_t to = (gex_Rank_t)below(t_size);
        unsigned char *segment = part(to);
        size_t element = elements[below(8)], dims = below(6), count[DIMS], at;
        int put = round % 2, kind = round / 2 % KINDS;
        struct box here, far;
        for (at = 0; at < dims; at++) count[at] = below(element > 1000 ? 3 : 6) + (round % 5 != 0);
        random_box(&here, element, count, dims);
        random_box(&far, element, count, dims);
        if (here.span > AREA || far.span > AREA) continue;
        choose(round);
        /* Sources may repeat elements. */
        if (round % 9 == 0) {
            struct box *source = put ? &here : &far;
            for (at = 0; at < dims; at++) source->strides[at] = at ? 0 : 3;
            source->first = 0;
        }
        t_fill(mine, (uint32_t)round, AREA);
        t_fill(there, (uint32_t)round + 5000, AREA);
        OK(gex_RMA_PutBlocking(t_tm, to, segment, there, AREA, 0));
        memcpy(model, mine, AREA);
        if (put) {
            move_box(there + far.first, far.strides, mine + here.first, here.strides, element, count, dims);
            TRANSFER(kind, 1, StridedPut, to, segment + far.first, far.strides, mine + here.first, here.strides,
                     element, count, dims);
        } else {
            move_box(model + here.first, here.strides, there + far.first, far.strides, element, count, dims);
            TRANSFER(kind, 0, StridedGet, mine + here.first, here.strides, to, segment + far.first, far.strides,
                     element, count, dims);
        }
        check(to, segment, put ? NULL : mine, round);
    }
}

static gex_Memvec_t local_list[ENTRIES], remote_list[ENTRIES];

/* Ranges of `total` bytes in an area, in any order, with gaps and without. Some are empty. */
static size_t random_list(gex_Memvec_t *list, unsigned char *base, size_t total)
{
    static const size_t lengths[] = {9, 40, 500, 6000};
    size_t count = 0, offset = 0, at;
    while (total > 0) {
        size_t bytes = count + 2 > ENTRIES ? total : below(lengths[below(4)]);
        if (bytes > total) bytes = total;
        offset += below(3) ? 0 : below(12);
        list[count].gex_addr = bytes ? base + offset : NULL;
        list[count++].gex_len = bytes;
        offset += bytes;
        total -= bytes;
    }
    CHECK(offset <= AREA);
    for (at = below(2) ? count : 0; at > 1; at--) {
        size_t other = below(at);
        gex_Memvec_t held = list[other];
        list[other] = list[at - 1];
        list[at - 1] = held;
    }
    return count;
}

/* Copies between two lists; `from` and `to` stand for the addresses `source` and `dest` in them. */
static void move_lists(unsigned char *to, const unsigned char *dest, const gex_Memvec_t *into,
                       const unsigned char *from, const unsigned char *source, const gex_Memvec_t *out, size_t total)
{
    size_t a = 0, b = 0;
    while (total-- > 0) {
        while (a >= into->gex_len) into++, a = 0;
        while (b >= out->gex_len) out++, b = 0;
        to[(unsigned char *)into->gex_addr + a++ - dest] = from[(unsigned char *)out->gex_addr + b++ - source];
    }
}

static void vectors(void)
{
    int round;
    for (round = 0; round < 96; round++) {
        gex_Rank_t to = (gex_Rank_t)below(t_size);
        unsigned char *segment = part(to);
        size_t total = below(round % 3 ? 3000 : 100000);
        size_t here, far;
        int put = round % 2, kind = round / 2 % KINDS;
        choose(round);
        here = random_list(local_list, mine, total);
        far = random_list(remote_list, segment, total);
        t_fill(mine, (uint32_t)round, AREA);
        t_fill(there, (uint32_t)round + 7000, AREA);
        OK(gex_RMA_PutBlocking(t_tm, to, segment, there, AREA, 0));
        memcpy(model, mine, AREA);
        if (put) {
            move_lists(there, segment, remote_list, mine, mine, local_list, total);
            TRANSFER(kind, 1, VectorPut, to, far, remote_list, here, local_list);
        } else {
            move_lists(model, mine, local_list, there, segment, remote_list, total);
            TRANSFER(kind, 0, VectorGet, here, local_list, to, far, remote_list);
        }
        check(to, segment, put ? NULL : mine, round);
    }
}

static void *local_index[ENTRIES], *remote_index[ENTRIES];

static void indexed(void)
{
    int round;
    for (round = 0; round < 48; round++) {
        gex_Rank_t to = (gex_Rank_t)below(t_size);
        unsigned char *segment = part(to);
        /* Lengths of the sides that divide the same total. */
        size_t unit = 1 + below(round % 3 ? 9 : 700), a = 1 + below(4), b = 1 + below(4), times = 1 + below(20);
        size_t far = a * times, here = b * times, far_len = unit * b, here_len = unit * a, at;
        int put = round % 2, kind = round / 2 % KINDS;
        choose(round);
        for (at = 0; at < far; at++) {
            remote_index[at] = segment + (round % 4 ? (far - 1 - at) * (far_len + 1) : at * far_len);
            remote_list[at].gex_addr = remote_index[at];
            remote_list[at].gex_len = far_len;
        }
        for (at = 0; at < here; at++) {
            local_index[at] = mine + (at ^ (here % 2 == 0)) * here_len;
            local_list[at].gex_addr = local_index[at];
            local_list[at].gex_len = here_len;
        }
        CHECK(far * (far_len + 1) <= AREA && here * here_len <= AREA);
        t_fill(mine, (uint32_t)round, AREA);
        t_fill(there, (uint32_t)round + 9000, AREA);
        OK(gex_RMA_PutBlocking(t_tm, to, segment, there, AREA, 0));
        memcpy(model, mine, AREA);
        if (put) {
            move_lists(there, segment, remote_list, mine, mine, local_list, far * far_len);
            TRANSFER(kind, 1, IndexedPut, to, far, remote_index, far_len, here, local_index, here_len);
        } else {
            move_lists(model, mine, local_list, there, segment, remote_list, far * far_len);
            TRANSFER(kind, 0, IndexedGet, here, local_index, here_len, to, far, remote_index, far_len);
        }
        check(to, segment, put ? NULL : mine, round);
    }
}

/* A transposition, a reflection, and 15 dimensions of two elements. */
static void shapes(void)
{
    enum { SIDE = 60 };
    gex_Rank_t to = (t_rank + 1) % t_size;
    unsigned char *segment = part(to);
    size_t count[DIMS] = {SIDE, SIDE}, at, bytes = SIDE * SIDE * 8;
    ptrdiff_t rows[DIMS] = {8, SIDE * 8}, columns[DIMS] = {SIDE * 8, 8}, turned[DIMS] = {-8, -SIDE * 8};
    t_fill(mine, 1, bytes);
    OK(gex_VIS_StridedPutBlocking(t_tm, to, segment, columns, mine, rows, 8, count, 2, 0));
    OK(gex_RMA_GetBlocking(t_tm, back, to, segment, bytes, 0));
    for (at = 0; at < SIDE * SIDE; at++)
        CHECK(!memcmp(mine + at * 8, back + (at % SIDE * SIDE + at / SIDE) * 8, 8));
    OK(gex_VIS_StridedGetBlocking(t_tm, back + bytes - 8, turned, to, segment, columns, 8, count, 2, 0));
    for (at = 0; at < SIDE * SIDE; at++) CHECK(!memcmp(mine + at * 8, back + bytes - 8 - at * 8, 8));
    for (at = 0; at < 15; at++) {
        count[at] = 2;
        rows[at] = (ptrdiff_t)1 << at;
        columns[at] = (ptrdiff_t)1 << (14 - at);
    }
    t_fill(mine, 2, 1 << 15);
    OK(gex_VIS_StridedPutBlocking(t_tm, to, segment, columns, mine, rows, 1, count, 15, 0));
    memset(back, 0, 1 << 15);
    OK(gex_VIS_StridedGetBlocking(t_tm, back, rows, to, segment, columns, 1, count, 15, 0));
    CHECK(t_same(back, 2, 1 << 15));
    OK(gex_RMA_GetBlocking(t_tm, back, to, segment, 1 << 15, 0));
    CHECK(back[1] == mine[1 << 14] && back[1 << 14] == mine[1]);
}

/* Nothing is moved and nothing is looked at. */
static void nothing(void)
{
    gex_Rank_t to = (t_rank + 1) % t_size;
    unsigned char *segment = part(to);
    gex_Memvec_t empty[2] = {{NULL, 0}, {NULL, 0}};
    size_t none[2] = {5, 0};
    ptrdiff_t strides[2] = {0, 0};
    void *addresses[1] = {NULL};
    int kind;
    for (kind = 0; kind < KINDS; kind++) {
        TRANSFER(kind, 1, VectorPut, to, 0, NULL, 0, NULL);
        TRANSFER(kind, 1, VectorPut, to, 2, empty, 0, NULL);
        TRANSFER(kind, 0, VectorGet, 1, empty, to, 2, empty);
        TRANSFER(kind, 1, IndexedPut, to, 0, NULL, 8, 0, NULL, 3);
        TRANSFER(kind, 0, IndexedGet, 1, addresses, 0, to, 7, NULL, 0);
        TRANSFER(kind, 1, StridedPut, to, NULL, NULL, NULL, NULL, 0, NULL, 3);
        TRANSFER(kind, 0, StridedGet, NULL, strides, to, NULL, strides, 8, none, 2);
        /* No dimensions: one element. */
        t_fill(mine, (uint32_t)kind, 5000);
        TRANSFER(kind, 1, StridedPut, to, segment, NULL, mine, NULL, 5000, NULL, 0);
        memset(back, 0, 5000);
        TRANSFER(kind, 0, StridedGet, back, NULL, to, segment, NULL, 5000, NULL, 0);
        CHECK(t_same(back, (uint32_t)kind, 5000));
    }
}

static gasnett_atomic_t arrived = gasnett_atomic_init(0);

/* Of the puts to this rank by another: the bytes must be here. */
static void peer_handler(gex_Token_t token, void *payload, size_t bytes)
{
    gex_Token_Info_t info;
    uint32_t word[2];
    size_t at;
    unsigned char *own = (unsigned char *)t_base(t_rank, NULL);
    CHECK(gex_Token_Info(token, &info, GEX_TI_ALL) & GEX_TI_SRCRANK);
    CHECK(!info.gex_is_req && !info.gex_is_long);
    CHECK(bytes >= sizeof word && bytes <= GEX_VIS_MAX_PEERCOMPLETION);
    memcpy(word, payload, sizeof word);
    own += (size_t)info.gex_srcrank * AREA;
    for (at = 0; at < word[1]; at++)
        if (own[2 * at] != t_byte(word[0], at)) FAIL("rank %u: byte %zu of %u is not here", info.gex_srcrank, at, word[1]);
    gasnett_atomic_increment(&arrived, 0);
}

static void peer_completion(void)
{
    static const uint32_t sizes[] = {0, 1, 700, 100000, 3};
    gex_Rank_t to, expected = 0;
    int round;
    for (round = 0; round < 5; round++) {
        for (to = 0; to < t_size; to++) {
            unsigned char payload[GEX_VIS_MAX_PEERCOMPLETION] = {0};
            uint32_t word[2] = {(uint32_t)round, sizes[round]};
            size_t count = word[1];
            ptrdiff_t apart = 2, close = 1;
            memcpy(payload, word, sizeof word);
            t_fill(mine, word[0], word[1]);
            gex_VIS_SetPeerCompletionHandler(230, payload, round % 2 ? sizeof payload : sizeof word, 0);
            if (round == 4) {
                gex_VIS_SetPeerCompletionHandler(0, NULL, 0, 0);
                OK(gex_VIS_StridedPutBlocking(t_tm, to, part(to), &apart, mine, &close, 1, &count, 1, 0));
            } else if (round % 2) {
                OK(gex_VIS_StridedPutBlocking(t_tm, to, part(to), &apart, mine, &close, 1, &count, 1, 0));
            } else {
                gex_Event_Wait(gex_VIS_StridedPutNB(t_tm, to, part(to), &apart, mine, &close, 1, &count, 1, 0));
            }
            /* Once only. */
            OK(gex_VIS_StridedPutBlocking(t_tm, to, part(to), &apart, mine, &close, 1, &count, 1, 0));
        }
        /* One from each rank in each round but the last. */
        expected += round < 4 ? t_size : 0;
        GASNET_BLOCKUNTIL((gex_Rank_t)gasnett_atomic_read(&arrived, 0) >= expected);
        t_barrier();
    }
    t_barrier();
    CHECK_EQ(gasnett_atomic_read(&arrived, 0), expected);
}

/* Wrong uses, at a rank that may share memory with this one or not: each ends the process. */
static void wrong(const char *name)
{
    gex_Rank_t to = t_size - 1;
    unsigned char *segment = (unsigned char *)t_base(to, NULL), *end = segment + AREA * (t_size + 1);
    gex_Memvec_t here[2], far[2];
    void *list[2];
    size_t count[2] = {2, 3};
    ptrdiff_t eight[2] = {8, 16}, seven[2] = {7, 16}, huge[2] = {PTRDIFF_MAX, 16};
    here[0].gex_addr = here[1].gex_addr = mine;
    far[0].gex_addr = far[1].gex_addr = list[0] = list[1] = segment;
    here[0].gex_len = here[1].gex_len = far[0].gex_len = far[1].gex_len = 4;
#define CASE(text) else if (strcmp(name, text) == 0)
    if (strcmp(name, "unequal totals") == 0) gex_VIS_VectorPutBlocking(t_tm, to, 2, far, 1, here, 0);
    CASE("unequal lengths") gex_VIS_IndexedGetNBI(t_tm, 2, list, 5, to, 2, list, 4, 0);
    CASE("null list") gex_VIS_VectorPutNBI(t_tm, to, 2, far, 2, NULL, 0);
    CASE("null index") gex_VIS_IndexedPutBlocking(t_tm, to, 2, NULL, 4, 2, list, 4, 0);
    CASE("null address") here[1].gex_addr = NULL, (void)gex_VIS_VectorPutNB(t_tm, to, 2, far, 2, here, 0);
    CASE("null strides") gex_VIS_StridedPutNBI(t_tm, to, segment, NULL, mine, eight, 8, count, 2, 0);
    CASE("null count") gex_VIS_StridedPutNBI(t_tm, to, segment, eight, mine, eight, 8, NULL, 2, 0);
    CASE("null place") gex_VIS_StridedGetNBI(t_tm, NULL, eight, to, segment, eight, 8, count, 1, 0);
    CASE("vector outside") far[1].gex_addr = end - 3, gex_VIS_VectorGetBlocking(t_tm, 2, here, to, 2, far, 0);
    CASE("strided outside") gex_VIS_StridedPutBlocking(t_tm, to, end - 40, eight, mine, eight, 8, count, 2, 0);
    CASE("overlap") gex_VIS_StridedPutBlocking(t_tm, to, segment, seven, mine, eight, 8, count, 2, 0);
    CASE("lists overlap") far[1].gex_addr = segment + 3, gex_VIS_VectorPutBlocking(t_tm, to, 2, far, 2, here, 0);
    CASE("dimensions overlap")
    {
        eight[1] = 12;
        gex_VIS_StridedPutBlocking(t_tm, to, segment, eight, mine, eight, 8, count, 2, 0);
    }
    CASE("unknown flags") gex_VIS_VectorPutBlocking(t_tm, to, 2, far, 2, here, 1U << 20);
    CASE("address space") gex_VIS_StridedPutBlocking(t_tm, to, segment, eight, mine, huge, 8, count + 1, 1, 0);
    CASE("lengths of all")
    {
        here[0].gex_len = here[1].gex_len = far[0].gex_len = far[1].gex_len = SIZE_MAX - 4;
        gex_VIS_VectorPutBlocking(t_tm, to, 2, far, 2, here, 0);
    }
    CASE("entries of all") gex_VIS_VectorPutBlocking(t_tm, to, SIZE_MAX / 2, far, 2, here, 0);
    CASE("index of all") gex_VIS_IndexedGetBlocking(t_tm, 2, list, 4, to, SIZE_MAX / 2, list, 4, 0);
    CASE("indexed lengths of all") gex_VIS_IndexedPutBlocking(t_tm, to, 2, list, SIZE_MAX, 2, list, SIZE_MAX, 0);
    CASE("elements of all")
    {
        count[0] = count[1] = SIZE_MAX;
        gex_VIS_StridedGetBlocking(t_tm, mine, eight, to, segment, eight, 8, count, 2, 0);
    }
    CASE("dimensions of all")
    gex_VIS_StridedGetBlocking(t_tm, mine, eight, to, segment, eight, 8, count, SIZE_MAX / 2, 0);
    CASE("not a team") gex_VIS_IndexedGetBlocking((gex_TM_t)(void *)mine, 2, list, 4, to, 2, list, 4, 0);
    CASE("nobody") gex_VIS_StridedPutBlocking(t_tm, t_size, segment, eight, mine, eight, 8, count, 2, 0);
    CASE("no team") gex_VIS_VectorPutBlocking(GEX_TM_INVALID, 0, 2, far, 2, here, 0);
    CASE("long completion") gex_VIS_SetPeerCompletionHandler(230, mine, 128, 0);
    CASE("immediate completion")
    {
        gex_VIS_SetPeerCompletionHandler(230, mine, 8, 0);
        gex_VIS_VectorPutBlocking(t_tm, to, 2, far, 2, here, GEX_FLAG_IMMEDIATE);
    }
    t_say("TEST FAILED: nothing happened");
    gasnet_exit(1);
}

int main(int argc, char **argv)
{
    gex_AM_Entry_t entry;
    t_join("vis", &argc, &argv);
    entry = t_entry(230, (gex_AM_Fn_t)peer_handler, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REPLY, 0);
    OK(gex_EP_RegisterHandlers(t_ep, &entry, 1));
    t_attach(AREA * (t_size + 1));
    t_barrier();
    if (argc > 1 && t_rank == 0) wrong(argv[1]);
    state = 1000 + t_rank;
    strided();
    vectors();
    indexed();
    shapes();
    nothing();
    t_barrier();
    peer_completion();
    t_pass();
    return 1;
}
