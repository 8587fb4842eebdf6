/* A segment of client memory bound to the first endpoint instead of an attached one: puts, gets, values, Longs,
 * atomics. */
#include <sys/syscall.h>

#include <gasnet_ratomic.h>

#include "t.h"

/* Leave that this process gave to others to reach its memory: the library's call comes here. */
static int leaves;
static unsigned long leave_for;
#ifdef __cplusplus
extern "C"
#endif
int prctl(int option, ...)
{
    unsigned long args[4];
    va_list list;
    int at;
    va_start(list, option);
    for (at = 0; at < 4; at++) args[at] = va_arg(list, unsigned long);
    va_end(list);
    if (option == 0x59616d61) { /* PR_SET_PTRACER */
        leaves++;
        leave_for = args[0];
    }
    return (int)syscall(SYS_prctl, option, args[0], args[1], args[2], args[3]);
}

/* Only where the system asks for it, only when there is somebody to reach what was published, and not for everybody. */
static void check_leave(int published)
{
    FILE *file = fopen("/proc/sys/kernel/yama/ptrace_scope", "r");
    int restricted = file && getc(file) == '1';
    if (file) fclose(file);
    CHECK_EQ(leaves, published && restricted && t_size > 1);
    if (leaves) CHECK(leave_for > 1 && leave_for != ~0UL && leave_for != (unsigned long)getpid());
}

static unsigned char memory[200000];
static int arrivals;

static void landed(gex_Token_t token, void *data, size_t bytes, gex_AM_Arg_t key)
{
    (void)token;
    CHECK((unsigned char *)data == memory + 16 + 150000 && t_same(data, (uint32_t)key, bytes));
    arrivals++;
}

/* All ranks count on a word of each. Only its owner maps it. */
static void count(void)
{
    gex_Rank_t rank;
    uint64_t sum = 0, seen = 0;
    gex_AD_t ad;
    gex_AD_Create(&ad, t_tm, GEX_DT_U64, GEX_OP_FADD | GEX_OP_INC | GEX_OP_GET, 0);
    for (rank = 0; rank < t_size; rank++) {
        uintptr_t at = ((uintptr_t)t_base(rank, NULL) + 190000) / 8 * 8;
        gex_Event_Wait(gex_AD_OpNB_U64(ad, &seen, rank, (void *)at, GEX_OP_FADD, 2, 0, 0));
        CHECK(seen < 3 * t_size);
        OK(gex_AD_OpNBI_U64(ad, NULL, rank, (void *)at, GEX_OP_INC, 0, 0, 0));
    }
    gex_NBI_Wait(GEX_EC_ALL, 0);
    t_barrier();
    for (rank = 0; rank < t_size; rank++) {
        uintptr_t at = ((uintptr_t)t_base(rank, NULL) + 190000) / 8 * 8;
        gex_Event_Wait(gex_AD_OpNB_U64(ad, &seen, rank, (void *)at, GEX_OP_GET, 0, 0, 0));
        sum += seen;
    }
    CHECK_EQ(sum, 3 * t_size * t_size);
    t_barrier();
    gex_AD_Destroy(ad);
}

int main(int argc, char **argv)
{
    gex_AM_Entry_t table[1];
    gex_Rank_t to;
    static unsigned char back[5000];
    t_join("created_segment", &argc, &argv);
    to = (t_rank + 1) % t_size;
    table[0] = t_entry(0, (gex_AM_Fn_t)landed, GEX_FLAG_AM_LONG | GEX_FLAG_AM_REQUEST, 1);
    OK(gex_EP_RegisterHandlers(t_ep, table, 1));
    CHECK_EQ(table[0].gex_index, 255);
    OK(gex_Segment_Create(&t_segment, t_client, memory + 16, sizeof memory - 33, GEX_MK_HOST, 0));
    OK(gex_EP_BindSegment(t_ep, t_segment, 0));
    CHECK(gex_EP_QuerySegment(t_ep) == t_segment);
    OK(gex_EP_PublishBoundSegment(t_tm, NULL, 0, 0));
    check_leave(0);
    OK(gex_EP_PublishBoundSegment(t_tm, &t_ep, 1, 0));
    check_leave(1);
    t_barrier();
    t_fill(back, t_rank, sizeof back);
    OK(gex_RMA_PutBlocking(t_tm, to, t_base(to, NULL) + 1, back, sizeof back, 0));
    gex_Event_Wait(gex_RMA_GetNB(t_tm, back, to, t_base(to, NULL) + 1, sizeof back, 0));
    CHECK(t_same(back, t_rank, sizeof back));
    OK(gex_RMA_PutBlockingVal(t_tm, to, t_base(to, NULL) + 120001, 99, 4, 0));
    OK(gex_AM_RequestLong(t_tm, to, 255, back, sizeof back, t_base(to, NULL) + 150000, GEX_EVENT_NOW, 0, t_rank));
    GASNET_BLOCKUNTIL(arrivals == 1);
    t_barrier();
    CHECK(memory[16 + 120001] == 99);
    CHECK(t_same(memory + 17, (t_rank + t_size - 1) % t_size, sizeof back));
    count();
    t_pass();
    return 1;
}
