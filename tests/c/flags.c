/* Flags of init, variables that a client defines itself, the hook of attach, threads that the library does not have. */
#include "t.h"

/* Defined here, although the library has them too. */
const char *gasnet_max_segsize_str = "8MB/P";
uint64_t gasnet_max_segsize = 0;

static void *hook_base;
static uintptr_t hook_size;
static void hook(void *base, uintptr_t size)
{
    hook_base = base;
    hook_size = size;
}

int main(void)
{
    const gex_Flags_t flags = GEX_FLAG_USES_GASNET1 | GEX_FLAG_DEFER_THREADS;
    const gex_ProgressThreadInfo_t *threads = NULL;
    unsigned int count = 77;
    t_name = "flags";
    OK(gex_Client_Init(&t_client, &t_ep, &t_tm, "FLAGS", NULL, NULL, flags));
    t_rank = gex_TM_QueryRank(t_tm);
    t_size = gex_TM_QuerySize(t_tm);
    OK(gasnet_set_waitmode(GASNET_WAIT_BLOCK));
    CHECK(gex_Client_QueryFlags(t_client) == flags);
    CHECK(strcmp(gex_Client_QueryName(t_client), "FLAGS") == 0);
    CHECK(gasnet_getMaxLocalSegmentSize() <= (uintptr_t)8 << 20);
    gex_System_SetVerboseErrors(0);
    CHECK_EQ(gex_System_QueryProgressThreads(t_client, &count, NULL, 0), GASNET_ERR_BAD_ARG);
    OK(gex_System_QueryProgressThreads(t_client, &count, &threads, 0));
    CHECK_EQ(count, 0);
    CHECK_EQ(gex_System_QueryProgressThreads(t_client, &count, &threads, 0), GASNET_ERR_RESOURCE);
    gex_System_SetVerboseErrors(1);
    gasnet_client_attach_hook = hook;
    t_attach(gasnet_getMaxLocalSegmentSize());
    CHECK(hook_base == gex_Segment_QueryAddr(t_segment) && hook_size == gex_Segment_QuerySize(t_segment));
    t_pass();
    return 1;
}
