/* Arguments and environment arrive as they were given; the caller's argc and argv are untouched. */
#include "t.h"

#if GASNET_SEQ
#define IN_SEQ(seq, other) ((void)(other), (seq))
#else
#define IN_SEQ(seq, other) (other)
#endif

int main(int argc, char **argv)
{
    static const char *const expected[] = {"GASNet is \"Global Address Space Networking\"", "a b  c", "", "-n", "$HOME *"};
    int before = argc, at;
    char **vector = argv, *first = argv[0];
    t_join("environment", &argc, &argv);
    CHECK(argc == before && argv == vector && argv[0] == first);
    if (argc > 1) {
        CHECK_EQ(argc, 6);
        for (at = 0; at < 5; at++) CHECK(strcmp(argv[at + 1], expected[at]) == 0);
        CHECK(gasnet_getenv("GASNET_DUMMY") && strcmp(gasnet_getenv("GASNET_DUMMY"), "GASNet dummy value") == 0);
        CHECK(gasnet_getenv("T_EMPTY") && gasnet_getenv("T_EMPTY")[0] == 0);
    }
    CHECK(gasnet_getenv("T_NOT_THERE_AT_ALL") == NULL);
    CHECK(gasnet_getenv("PATH") != NULL);
    {
        /* Programs have arrays of GASNETI_MAX_THREADS, so no setting makes it more. */
        const char *text = gasnet_getenv("GASNET_MAX_THREADS");
        long most = text && atol(text) < GASNETI_MAX_THREADS ? atol(text) : GASNETI_MAX_THREADS;
        CHECK_EQ(gex_System_QueryMaxThreads(), IN_SEQ(1, most));
    }
    t_pass();
    return 1;
}
