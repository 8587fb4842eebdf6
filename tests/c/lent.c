/* Local completion of messages: a source is changed as soon as its event says so, and what arrives is what was sent. With the
 * argument "apart" (no two ranks share memory) also which payloads are read where they are: GASNET_AM_GATHER_MIN. */
#include "t.h"

#define ROOM ((size_t)72 << 10)
#define SIZES (sizeof sizes / sizeof sizes[0])
/* Longs up to this go in one message. */
#define PACKED 4012

enum { MEDIUM, LONG, CATEGORIES };
enum { NOW, EVENT, GROUP, REGION, WITH_PUTS, PREPARED, DECLINES, WAYS };
enum { TAKE_MEDIUM = GEX_AM_INDEX_BASE, TAKE_LONG, ASK, ACK, ANSWER_MEDIUM, ANSWER_LONG };

static const size_t sizes[] = {0, 1, 63, 64, 65, 1499, 1500, 1501, 4012, 4013, 20000, 65000};
static unsigned char outside[72 << 10];
static int acks, answers, apart;
static long gather_min = 1500, lent, copied;
/* First address of each segment there, of the own one here. */
static char **bases, *here;

/* Parts of a segment: source, landings of requests and of replies by sender, sources of replies by size and asker. */
static size_t landing(gex_Rank_t from, int reply)
{
    return ROOM * (1 + 2 * from + (unsigned)reply);
}

static size_t answer_source(gex_Rank_t asker, int category, size_t number)
{
    return ROOM * (1 + 2 * t_size + (asker * CATEGORIES + (unsigned)category) * SIZES + number);
}

typedef struct {
    gex_Event_t event;
    char *source;
    size_t bytes;
} given_t;
static given_t *given;

static size_t given_at(gex_Rank_t asker, int category, size_t number)
{
    return (asker * CATEGORIES + (unsigned)category) * SIZES + number;
}

static uint32_t key_of(gex_Rank_t from, size_t number, int way)
{
    return (uint32_t)(from * 1009 + number * 31 + (unsigned)way);
}

static gex_Rank_t source_of(gex_Token_t token)
{
    gex_Token_Info_t info;
    CHECK(gex_Token_Info(token, &info, GEX_TI_SRCRANK) & GEX_TI_SRCRANK);
    return info.gex_srcrank;
}

static void take(gex_Token_t token, void *data, size_t bytes, gex_AM_Arg_t key)
{
    CHECK(t_same(data, (uint32_t)key, bytes));
    gex_AM_ReplyShort(token, ACK, 0);
}

static void ack(gex_Token_t token)
{
    (void)token;
    acks++;
}

static void answered(gex_Token_t token, void *data, size_t bytes, gex_AM_Arg_t key)
{
    (void)token;
    CHECK(t_same(data, (uint32_t)key, bytes));
    answers++;
}

/* Whether a payload stays where it is: 1, 0, or -1 where that is not said. Without the argument it depends on who shares
 * memory with whom. */
static int stays(int category, size_t bytes)
{
    if (!apart) return -1;
    if (category == LONG && bytes > PACKED) return -1;
    return gather_min >= 0 && bytes > 0 && bytes >= (size_t)gather_min;
}

static void check_event(gex_Event_t event, int category, size_t bytes, int in_segment)
{
    int expected = in_segment ? stays(category, bytes) : 0; /* from elsewhere it never does */
    if (event == GEX_EVENT_INVALID) {
        copied++;
        CHECK(expected != 1);
    } else {
        lent++;
        CHECK(expected != 0);
    }
}

static void ask(gex_Token_t token, gex_AM_Arg_t category, gex_AM_Arg_t number, gex_AM_Arg_t key)
{
    gex_Rank_t from = source_of(token);
    size_t bytes = sizes[number], at = given_at(from, category, (size_t)number);
    gex_Event_t *event = &given[at].event;
    char *source = here + answer_source(from, category, (size_t)number), *to = bases[from] + landing(t_rank, 1);
    t_fill(source, (uint32_t)key, bytes);
    if (category == MEDIUM) OK(gex_AM_ReplyMedium1(token, ANSWER_MEDIUM, source, bytes, event, 0, key));
    else OK(gex_AM_ReplyLong1(token, ANSWER_LONG, source, bytes, to, event, 0, key));
    check_event(*event, category, bytes, 1);
    given[at].source = source;
    given[at].bytes = bytes;
}

/* Sources of replies are changed when they may be. */
static int settle(void)
{
    size_t at;
    int left = 0;
    for (at = 0; at < t_size * CATEGORIES * SIZES; at++) {
        if (given[at].source == NULL) continue;
        if (gex_Event_Test(given[at].event) != GASNET_OK) {
            left++;
            continue;
        }
        memset(given[at].source, 0xEE, given[at].bytes);
        given[at].source = NULL;
    }
    return left;
}

static void await(const int *count, int wanted)
{
    while (*count < wanted) {
        OK(gasnet_AMPoll());
        settle();
    }
}

static int post(int category, gex_Rank_t to, const void *source, size_t bytes, gex_Event_t *lc_opt, gex_Flags_t flags,
                uint32_t key)
{
    char *dest = bases[to] + landing(t_rank, 0);
    if (category == MEDIUM)
        return gex_AM_RequestMedium1(t_tm, to, TAKE_MEDIUM, source, bytes, lc_opt, flags, (gex_AM_Arg_t)key);
    return gex_AM_RequestLong1(t_tm, to, TAKE_LONG, source, bytes, dest, lc_opt, flags, (gex_AM_Arg_t)key);
}

static void post_prepared(int category, gex_Rank_t to, const void *source, size_t bytes, gex_Event_t *lc_opt,
                          uint32_t key)
{
    char *dest = bases[to] + landing(t_rank, 0);
    gex_AM_SrcDesc_t sd;
    if (category == MEDIUM) {
        sd = gex_AM_PrepareRequestMedium(t_tm, to, source, bytes, bytes, lc_opt, 0, 1);
        gex_AM_CommitRequestMedium1(sd, TAKE_MEDIUM, bytes, (gex_AM_Arg_t)key);
    } else {
        sd = gex_AM_PrepareRequestLong(t_tm, to, source, bytes, bytes, dest, lc_opt, 0, 1);
        gex_AM_CommitRequestLong1(sd, TAKE_LONG, bytes, dest, (gex_AM_Arg_t)key);
    }
}

/* The library's own buffer. */
static void post_filled(int category, gex_Rank_t to, size_t bytes, uint32_t key)
{
    char *dest = bases[to] + landing(t_rank, 0);
    gex_AM_SrcDesc_t sd;
    if (category == MEDIUM) sd = gex_AM_PrepareRequestMedium(t_tm, to, NULL, bytes, bytes, NULL, 0, 1);
    else sd = gex_AM_PrepareRequestLong(t_tm, to, NULL, bytes, bytes, dest, NULL, 0, 1);
    t_fill(gex_AM_SrcDescAddr(sd), key, bytes);
    if (category == MEDIUM) gex_AM_CommitRequestMedium1(sd, TAKE_MEDIUM, bytes, (gex_AM_Arg_t)key);
    else gex_AM_CommitRequestLong1(sd, TAKE_LONG, bytes, dest, (gex_AM_Arg_t)key);
}

/* Sends, waits as `way` says, and changes the source at once. */
static void lend(int category, int way, size_t number, gex_Rank_t to, int in_segment)
{
    void *source = in_segment ? (void *)here : (void *)outside;
    size_t bytes = sizes[number];
    uint32_t key = key_of(t_rank, number, way);
    gex_Event_t event = GEX_EVENT_INVALID;
    static uint64_t word = 5;
    t_fill(source, key, bytes);
    switch (way) {
    case NOW: OK(post(category, to, source, bytes, GEX_EVENT_NOW, 0, key)); break;
    case EVENT: OK(post(category, to, source, bytes, &event, 0, key)); break;
    case PREPARED: post_prepared(category, to, source, bytes, &event, key); break;
    case GROUP:
        OK(post(category, to, source, bytes, GEX_EVENT_GROUP, 0, key));
        gex_NBI_Wait(GEX_EC_AM, 0);
        break;
    case REGION:
        gex_NBI_BeginAccessRegion(0);
        OK(post(category, to, source, bytes, GEX_EVENT_GROUP, 0, key));
        event = gex_NBI_EndAccessRegion(0);
        break;
    case WITH_PUTS:
        OK(gex_RMA_PutNBI(t_tm, to, bases[to] + landing(t_rank, 1), &word, 8, GEX_EVENT_DEFER, 0));
        OK(post(category, to, source, bytes, GEX_EVENT_GROUP, 0, key));
        while (gex_NBI_Test(GEX_EC_ALL, 0) != GASNET_OK) OK(gasnet_AMPoll());
        break;
    default:
        while (post(category, to, source, bytes, &event, GEX_FLAG_IMMEDIATE, key) != GASNET_OK) OK(gasnet_AMPoll());
    }
    if (way == EVENT || way == REGION || way == PREPARED) check_event(event, category, bytes, in_segment);
    gex_Event_Wait(event);
    memset(source, 0xEE, bytes);
}

int main(int argc, char **argv)
{
    const char *text = getenv("GASNET_AM_GATHER_MIN");
    gex_AM_Entry_t table[] = {
        {TAKE_MEDIUM, (gex_AM_Fn_t)take, GEX_FLAG_AM_REQUEST | GEX_FLAG_AM_MEDIUM, 1, NULL, NULL},
        {TAKE_LONG, (gex_AM_Fn_t)take, GEX_FLAG_AM_REQUEST | GEX_FLAG_AM_LONG, 1, NULL, NULL},
        {ASK, (gex_AM_Fn_t)ask, GEX_FLAG_AM_REQUEST | GEX_FLAG_AM_SHORT, 3, NULL, NULL},
        {ACK, (gex_AM_Fn_t)ack, GEX_FLAG_AM_REPLY | GEX_FLAG_AM_SHORT, 0, NULL, NULL},
        {ANSWER_MEDIUM, (gex_AM_Fn_t)answered, GEX_FLAG_AM_REPLY | GEX_FLAG_AM_MEDIUM, 1, NULL, NULL},
        {ANSWER_LONG, (gex_AM_Fn_t)answered, GEX_FLAG_AM_REPLY | GEX_FLAG_AM_LONG, 1, NULL, NULL},
    };
    gex_Rank_t rank, to;
    int category, way, sent = 0;
    size_t number;
    t_join("lent", &argc, &argv);
    apart = argc > 1 && strcmp(argv[1], "apart") == 0;
    if (text) gather_min = atol(text);
    given = (given_t *)calloc(t_size * CATEGORIES * SIZES, sizeof *given);
    bases = (char **)calloc(t_size, sizeof *bases);
    CHECK(given != NULL && bases != NULL);
    t_attach(answer_source(t_size, 0, 0));
    for (rank = 0; rank < t_size; rank++) bases[rank] = t_base(rank, rank == t_rank ? &here : NULL);
    OK(gex_EP_RegisterHandlers(t_ep, table, sizeof table / sizeof table[0]));
    t_barrier();
    to = (t_rank + 1) % t_size;
    for (category = 0; category < CATEGORIES; category++)
        for (number = 0; number < SIZES; number++) {
            for (way = 0; way < WAYS; way++) {
                lend(category, way, number, to, way % 2 == 0 || number % 3 != 0);
                await(&acks, ++sent);
            }
            post_filled(category, to, sizes[number], 77);
            await(&acks, ++sent);
        }
    /* Until here puts of others land where answers will. */
    t_barrier();
    for (number = 0; number < SIZES; number++)
        for (category = 0; category < CATEGORIES; category++) {
            uint32_t key = key_of(t_rank, number, 50);
            OK(gex_AM_RequestShort3(t_tm, to, ASK, 0, category, (gex_AM_Arg_t)number, (gex_AM_Arg_t)key));
            await(&answers, (int)number * CATEGORIES + category + 1);
        }
    t_barrier();
    while (settle() > 0) OK(gasnet_AMPoll());
    if (apart) printf("rank %u: %ld lent, %ld copied\n", (unsigned)t_rank, lent, copied);
    fflush(stdout);
    t_pass();
    return 1;
}
