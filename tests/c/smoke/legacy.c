/* The GASNet-1 layer, with what may be asked before init, and variables that a client may set. */
#include <gasnet.h>

const char *gasnet_max_segsize_str = "64MB/P";

static int failures;
static volatile int got;
static void *hooked;

#define CHECK(condition)                                                                                            \
    do {                                                                                                            \
        if (!(condition)) {                                                                                         \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                         \
            failures++;                                                                                             \
        }                                                                                                           \
    } while (0)
#define OK(call) CHECK((call) == GASNET_OK)

static void any(gasnet_token_t token, gasnet_handlerarg_t a, gasnet_handlerarg_t b)
{
    gasnet_node_t source = 1u << 30;
    OK(gasnet_AMGetMsgSource(token, &source));
    CHECK(source < gasnet_nodes() && a == 3 && b == -4);
    OK(gasnet_AMReplyMedium1(token, 210, "answer", 7, 11));
}

static void answer(gasnet_token_t token, void *buffer, size_t bytes, gasnet_handlerarg_t a)
{
    (void)token;
    CHECK(bytes == 7 && !strcmp(buffer, "answer") && a == 11);
    got++;
}

static void hook(void *base, uintptr_t size)
{
    hooked = base;
    CHECK(size == 2 * GASNET_PAGESIZE);
}

int main(int argc, char **argv)
{
    gasnet_handlerentry_t table[] = {{0, (void (*)())any}, {210, (void (*)())answer}};
    gasnet_seginfo_t *segments;
    gasnet_node_t peer;
    gasnet_handle_t handle;
    gex_TM_t tm;
    gex_Segment_t segment;
    int value = 7, back = 0;

    gex_System_SetVerboseErrors(0);
    CHECK(!strcmp(gasnet_ErrorName(GASNET_ERR_BAD_ARG), "GASNET_ERR_BAD_ARG"));
    CHECK(gasnet_AMPoll() == GASNET_ERR_NOT_INIT);
    CHECK(gasnet_attach(table, 2, GASNET_PAGESIZE, 0) == GASNET_ERR_NOT_INIT);
    CHECK(gex_AM_RequestShort0(NULL, 0, 200, 0) == GASNET_ERR_NOT_INIT);
    CHECK(gex_System_QueryJobRank() == GEX_RANK_INVALID);
    gasnet_client_attach_hook = hook;
    OK(gasnet_init(&argc, &argv));
    CHECK(gasnet_init(&argc, &argv) == GASNET_ERR_NOT_INIT);
    CHECK(gasnet_getMaxLocalSegmentSize() == 64 << 20);
    CHECK(gasnet_attach(table, -1, GASNET_PAGESIZE, 0) == GASNET_ERR_BAD_ARG);
    CHECK(gasnet_attach(NULL, 0, 100, 0) == GASNET_ERR_BAD_ARG);
    OK(gasnet_attach(table, 2, 2 * GASNET_PAGESIZE, 0));
    CHECK(table[0].index == 255);
    CHECK(gasnet_attach(NULL, 0, GASNET_PAGESIZE, 0) == GASNET_ERR_NOT_INIT);
    gasnet_QueryGexObjects(NULL, NULL, &tm, &segment);
    CHECK(gex_TM_QueryRank(tm) == gasnet_mynode() && hooked == gex_Segment_QueryAddr(segment));
    OK(gasnet_barrier(5, 0));

    peer = (gasnet_mynode() + 1) % gasnet_nodes();
    segments = malloc(sizeof *segments * gasnet_nodes());
    OK(gasnet_getSegmentInfo(segments, (int)gasnet_nodes()));
    CHECK(segments[gasnet_mynode()].addr == hooked && segments[peer].size == 2 * GASNET_PAGESIZE);
    OK(gasnet_AMRequestShort2(peer, 255, 3, -4));
    OK(gasnet_AMRequestShort(peer, 255, 2, 3, -4));
    GASNET_BLOCKUNTIL(got == 2);
    gasnet_put(peer, segments[peer].addr, &value, sizeof value);
    handle = gasnet_get_nb(&back, peer, segments[peer].addr, sizeof back);
    gasnet_wait_syncnb(handle);
    CHECK(back == 7);
    gasnet_memset(peer, segments[peer].addr, 1, 3);
    CHECK(gasnet_get_val(peer, segments[peer].addr, 4) == 0x10101);
    gasnet_memset(peer, (char *)segments[peer].addr + 100, 2, 0);
    free(segments);
    OK(gasnet_barrier(0, GASNET_BARRIERFLAG_UNNAMED));
    if (!gasnet_mynode() && !failures) puts("all good");
    fflush(stdout);
    gasnet_exit(failures != 0);
}
