/* Joins, meets, says hello, exits: `hello [code]`, or `hello return code` to return from main. */
#include <gasnetex.h>

int main(int argc, char **argv)
{
    gex_Client_t client;
    gex_EP_t ep;
    gex_TM_t tm;
    int failed = gex_Client_Init(&client, &ep, &tm, "hello", &argc, &argv, 0);
    if (failed) {
        fprintf(stderr, "init: %s\n", gasnet_ErrorName(failed));
        return 1;
    }
    gex_Event_Wait(gex_Coll_BarrierNB(tm, 0));
    printf("hello from %u of %u\n", (unsigned)gex_TM_QueryRank(tm), (unsigned)gex_TM_QuerySize(tm));
    fflush(stdout);
    gex_Event_Wait(gex_Coll_BarrierNB(tm, 0));
    if (argc == 3 && !strcmp(argv[1], "return")) return atoi(argv[2]);
    gasnet_exit(argc > 1 ? atoi(argv[1]) : 0);
}
