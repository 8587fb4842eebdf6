/* The smallest program: identification, sizes, error texts, attach, a barrier with names, the end. */
#include "t.h"

int main(int argc, char **argv)
{
    uintptr_t most;
    CHECK(strcmp(gasnet_ErrorName(GASNET_ERR_BAD_ARG), "GASNET_ERR_BAD_ARG") == 0);
    CHECK(strcmp(gasnet_ErrorDesc(GASNET_ERR_NOT_READY), "Non-blocking operation not complete") == 0);
    CHECK(strcmp(gasnet_ErrorDesc(GASNET_OK), "No error") == 0);
    CHECK(strcmp(gasnet_ErrorDesc(77), "no description available") == 0);
    t_join("hello", &argc, &argv);
    CHECK(t_size >= 1 && t_rank < t_size);
    CHECK(gex_System_QueryJobRank() == t_rank && gex_System_QueryJobSize() == t_size);
    CHECK(strstr(GASNET_CONFIG_STRING, "IBV") != NULL);
    most = gasnet_getMaxLocalSegmentSize();
    CHECK(most >= GASNET_PAGESIZE && most % GASNET_PAGESIZE == 0);
    CHECK(gasnet_getMaxGlobalSegmentSize() <= most);
    t_attach(GASNET_PAGESIZE);
    CHECK(gex_Segment_QuerySize(t_segment) >= GASNET_PAGESIZE);
    CHECK((uintptr_t)gex_Segment_QueryAddr(t_segment) % GASNET_PAGESIZE == 0);
    gasnet_barrier_notify(7, 0);
    CHECK_EQ(gasnet_barrier_wait(7, 0), GASNET_OK);
    t_pass();
    return 1;
}
