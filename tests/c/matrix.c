/* Every operation with every size, from and to memory in the segment, outside it, and read-only. Each rank works with the
 * next one; the owner of the memory looks at it itself, and at the bytes around it. */
#include <sys/mman.h>

#include "t.h"

#include <gasnet_vis.h>

#define LARGEST (((size_t)1 << 20) + 3)
#define GUARD 64
/* Bytes of a room: the largest size, at any alignment, with what is around it. */
#define ROOM ((size_t)(LARGEST + 3 * GUARD + GASNET_PAGESIZE) / GASNET_PAGESIZE * GASNET_PAGESIZE)

static const size_t sizes[] = {1, 7, 8, 9, 64, 65, 72, 73, 1024, 4096, 16384, 16385, 65528, 65536, 65537, 131073, LARGEST};
enum { IN_SEGMENT, OUTSIDE, READ_ONLY, PLACES };
static const char *const names[] = {"in the segment", "outside", "read-only"};

/* What an operation does: the caller's bytes come to the owner, the owner's to the caller, or the owner answers a request
 * with bytes of its own. */
enum { PUTS, GETS, ANSWERS };

static unsigned char *rooms[PLACES], *landing, *theirs;
static gex_Rank_t next, before;
static uint32_t cell;
static int arrived, answered;
/* Of the cell that is under way: where the owner's bytes for an answer are, where they go, and how many. */
static unsigned char *answer, *answer_to;
static size_t answer_bytes;

static uint32_t key_of(gex_Rank_t rank)
{
    return cell * 64 + rank;
}

enum { MEDIUM = 200, LONG, ASK_MEDIUM, ASK_LONG, MEDIUM_BACK, LONG_BACK };

static void count(int *what)
{
    __atomic_fetch_add(what, 1, __ATOMIC_ACQ_REL);
}

static void medium(gex_Token_t token, void *data, size_t bytes)
{
    (void)token;
    CHECK(t_same(data, key_of(before), bytes));
    count(&arrived);
}

static void long_(gex_Token_t token, void *data, size_t bytes)
{
    (void)token;
    CHECK(data == landing && t_same(data, key_of(before), bytes));
    count(&arrived);
}

static void ask_medium(gex_Token_t token)
{
    OK(gex_AM_ReplyMedium0(token, MEDIUM_BACK, answer, answer_bytes, GEX_EVENT_NOW, 0));
}

static void ask_long(gex_Token_t token)
{
    OK(gex_AM_ReplyLong0(token, LONG_BACK, answer, answer_bytes, answer_to, GEX_EVENT_NOW, 0));
}

static void medium_back(gex_Token_t token, void *data, size_t bytes)
{
    (void)token;
    CHECK_EQ(bytes, answer_bytes);
    CHECK(t_same(data, key_of(next), bytes));
    count(&answered);
}

static void long_back(gex_Token_t token, void *data, size_t bytes)
{
    (void)token;
    CHECK(data == landing && bytes == answer_bytes && t_same(data, key_of(next), bytes));
    count(&answered);
}

static int is_read_only(const unsigned char *local)
{
    return local >= rooms[READ_ONLY] && local < rooms[READ_ONLY] + ROOM;
}

static void wait_for(int *what)
{
    GASNET_BLOCKUNTIL(__atomic_load_n(what, __ATOMIC_ACQUIRE) > 0);
    CHECK_EQ(__atomic_exchange_n(what, 0, __ATOMIC_ACQ_REL), 1);
}

static void put(unsigned char *local, size_t bytes)
{
    OK(gex_RMA_PutBlocking(t_tm, next, theirs, local, bytes, 0));
}

static void put_nb(unsigned char *local, size_t bytes)
{
    gex_Event_Wait(gex_RMA_PutNB(t_tm, next, theirs, local, bytes, GEX_EVENT_DEFER, 0));
}

/* Memory that is the caller's again is used before the put is complete. */
static void put_leaf(unsigned char *local, size_t bytes)
{
    gex_Event_t leaf = GEX_EVENT_NO_OP, root = gex_RMA_PutNB(t_tm, next, theirs, local, bytes, &leaf, 0);
    gex_Event_Wait(leaf);
    if (!is_read_only(local)) memset(local, 0, bytes);
    gex_Event_Wait(root);
}

static void put_now(unsigned char *local, size_t bytes)
{
    gex_Event_t event = gex_RMA_PutNB(t_tm, next, theirs, local, bytes, GEX_EVENT_NOW, 0);
    if (!is_read_only(local)) memset(local, 0, bytes);
    gex_Event_Wait(event);
}

static void put_nbi(unsigned char *local, size_t bytes)
{
    OK(gex_RMA_PutNBI(t_tm, next, theirs, local, bytes, GEX_EVENT_DEFER, 0));
    gex_NBI_Wait(GEX_EC_PUT, 0);
}

static void put_vector(unsigned char *local, size_t bytes)
{
    size_t half = bytes / 2;
    gex_Memvec_t to, from[2];
    to.gex_addr = theirs;
    to.gex_len = bytes;
    from[0].gex_addr = local;
    from[0].gex_len = half;
    from[1].gex_addr = local + half;
    from[1].gex_len = bytes - half;
    OK(gex_VIS_VectorPutBlocking(t_tm, next, 1, &to, 2, from, 0));
}

static void get(unsigned char *local, size_t bytes)
{
    OK(gex_RMA_GetBlocking(t_tm, local, next, theirs, bytes, 0));
}

static void get_nb(unsigned char *local, size_t bytes)
{
    gex_Event_Wait(gex_RMA_GetNB(t_tm, local, next, theirs, bytes, 0));
}

static void get_nbi(unsigned char *local, size_t bytes)
{
    OK(gex_RMA_GetNBI(t_tm, local, next, theirs, bytes, 0));
    gex_NBI_Wait(GEX_EC_GET, 0);
}

static void get_vector(unsigned char *local, size_t bytes)
{
    size_t half = bytes / 2;
    gex_Memvec_t to[2], from;
    from.gex_addr = theirs;
    from.gex_len = bytes;
    to[0].gex_addr = local;
    to[0].gex_len = half;
    to[1].gex_addr = local + half;
    to[1].gex_len = bytes - half;
    OK(gex_VIS_VectorGetBlocking(t_tm, 2, to, next, 1, &from, 0));
}

static void request_medium(unsigned char *local, size_t bytes)
{
    OK(gex_AM_RequestMedium0(t_tm, next, MEDIUM, local, bytes, GEX_EVENT_NOW, 0));
    wait_for(&arrived);
}

static void request_long(unsigned char *local, size_t bytes)
{
    gex_Event_t leaf = GEX_EVENT_NO_OP;
    OK(gex_AM_RequestLong0(t_tm, next, LONG, local, bytes, theirs, &leaf, 0));
    gex_Event_Wait(leaf);
    wait_for(&arrived);
}

static void reply_medium(unsigned char *local, size_t bytes)
{
    (void)local, (void)bytes;
    OK(gex_AM_RequestShort0(t_tm, next, ASK_MEDIUM, 0));
    wait_for(&answered);
}

static void reply_long(unsigned char *local, size_t bytes)
{
    (void)local, (void)bytes;
    OK(gex_AM_RequestShort0(t_tm, next, ASK_LONG, 0));
    wait_for(&answered);
}

static size_t any(void)
{
    return LARGEST;
}

static size_t reply_medium_most(void)
{
    return gex_AM_LUBReplyMedium();
}

static size_t request_medium_most(void)
{
    return gex_AM_LUBRequestMedium();
}

static size_t request_long_most(void)
{
    return gex_AM_LUBRequestLong();
}

static size_t reply_long_most(void)
{
    return gex_AM_LUBReplyLong();
}

static const struct {
    const char *name;
    int kind;
    /* Whether bytes land in the owner's segment (or, of an answer, in the caller's). */
    int lands;
    size_t (*most)(void);
    void (*run)(unsigned char *local, size_t bytes);
} operations[] = {
    {"put", PUTS, 1, any, put},
    {"put with an event", PUTS, 1, any, put_nb},
    {"put with a leaf event", PUTS, 1, any, put_leaf},
    {"put from memory that is free on return", PUTS, 1, any, put_now},
    {"implicit put", PUTS, 1, any, put_nbi},
    {"put of a list", PUTS, 1, any, put_vector},
    {"get", GETS, 0, any, get},
    {"get with an event", GETS, 0, any, get_nb},
    {"implicit get", GETS, 0, any, get_nbi},
    {"get into a list", GETS, 0, any, get_vector},
    {"Medium", PUTS, 0, request_medium_most, request_medium},
    {"Long", PUTS, 1, request_long_most, request_long},
    {"answer by a Medium", ANSWERS, 0, reply_medium_most, reply_medium},
    {"answer by a Long", ANSWERS, 1, reply_long_most, reply_long},
};

/* Bytes, and what is around them. */
static void prepare(unsigned char *at, uint32_t key, size_t bytes)
{
    memset(at - GUARD, 0x5a, GUARD);
    memset(at + bytes, 0x5a, GUARD);
    if (key) t_fill(at, key, bytes);
    else memset(at, 0xee, bytes);
}

static int is_around(const unsigned char *at, size_t bytes)
{
    size_t i;
    for (i = 1; i <= GUARD; i++)
        if (at[-(ptrdiff_t)i] != 0x5a || at[bytes + i - 1] != 0x5a) return 0;
    return 1;
}

static void read_only(int yes)
{
    if (mprotect(rooms[READ_ONLY], ROOM, yes ? PROT_READ : PROT_READ | PROT_WRITE)) FAIL("mprotect");
}

static void run(size_t operation, size_t bytes, int place, unsigned char *landings[3])
{
    /* Another alignment each time; the room of read-only memory is a mapping of its own. */
    size_t at = GUARD + cell % 61;
    unsigned char *local = rooms[place] + at, *from_here = landings[0] + at;
    int kind = operations[operation].kind;
    landing = from_here;
    theirs = landings[1] + at;
    if (place == READ_ONLY) read_only(0);
    prepare(local, kind == GETS ? 0 : key_of(t_rank), bytes);
    if (place == READ_ONLY) read_only(1);
    prepare(landing, kind == GETS ? key_of(t_rank) : 0, bytes);
    answer = local;
    answer_bytes = bytes;
    /* The answer goes to the rank that asks. */
    answer_to = landings[2] + at;
    t_barrier();
    operations[operation].run(local, bytes);
    t_barrier();
    if (kind == GETS) {
        if (!t_same(local, key_of(next), bytes) || !is_around(local, bytes))
            FAIL("%s of %lu bytes, %s: other bytes", operations[operation].name, (unsigned long)bytes, names[place]);
    } else if (operations[operation].lands && !t_same(landing, key_of(kind == PUTS ? before : next), bytes))
        FAIL("%s of %lu bytes, %s: other bytes", operations[operation].name, (unsigned long)bytes, names[place]);
    if (!is_around(landing, bytes))
        FAIL("%s of %lu bytes, %s: bytes around them", operations[operation].name, (unsigned long)bytes, names[place]);
}

int main(int argc, char **argv)
{
    size_t largest = LARGEST, operation, size;
    unsigned char *landings[3];
    int place;
    gex_AM_Entry_t entries[] = {
        t_entry(MEDIUM, (gex_AM_Fn_t)medium, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REQUEST, 0),
        t_entry(LONG, (gex_AM_Fn_t)long_, GEX_FLAG_AM_LONG | GEX_FLAG_AM_REQUEST, 0),
        t_entry(ASK_MEDIUM, (gex_AM_Fn_t)ask_medium, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 0),
        t_entry(ASK_LONG, (gex_AM_Fn_t)ask_long, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 0),
        t_entry(MEDIUM_BACK, (gex_AM_Fn_t)medium_back, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REPLY, 0),
        t_entry(LONG_BACK, (gex_AM_Fn_t)long_back, GEX_FLAG_AM_LONG | GEX_FLAG_AM_REPLY, 0),
    };
    t_join("matrix", &argc, &argv);
    OK(gex_EP_RegisterHandlers(t_ep, entries, sizeof entries / sizeof *entries));
    t_attach(2 * ROOM);
    if (argc > 1) largest = strtoul(argv[1], NULL, 10);
    next = (t_rank + 1) % t_size;
    before = (t_rank + t_size - 1) % t_size;
    landings[0] = (unsigned char *)gex_Segment_QueryAddr(t_segment);
    landings[1] = (unsigned char *)t_base(next, NULL);
    landings[2] = (unsigned char *)t_base(before, NULL);
    rooms[IN_SEGMENT] = landings[0] + ROOM;
    rooms[OUTSIDE] = (unsigned char *)malloc(ROOM);
    rooms[READ_ONLY] = (unsigned char *)mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(rooms[OUTSIDE] != NULL && rooms[READ_ONLY] != (unsigned char *)MAP_FAILED);
    for (operation = 0; operation < sizeof operations / sizeof *operations; operation++)
        for (size = 0; size < sizeof sizes / sizeof *sizes; size++)
            for (place = 0; place < PLACES; place++) {
                if (sizes[size] > largest || sizes[size] > operations[operation].most()) continue;
                if (operations[operation].kind == GETS && place == READ_ONLY) continue;
                cell++;
                run(operation, sizes[size], place, landings);
            }
    if (t_rank == 0) printf("%u cells\n", (unsigned)cell);
    t_pass();
    return 1;
}
