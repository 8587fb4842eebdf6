/* Every rank greets. Start it as `gasnetrun_ibv -n 4 ./hello`. */
#include <stdio.h>
#include <unistd.h>

#include <gasnetex.h>

int main(int argc, char **argv)
{
    gex_Client_t client;
    gex_EP_t endpoint;
    gex_TM_t team;
    int code = gex_Client_Init(&client, &endpoint, &team, "hello", &argc, &argv, 0);
    if (code != GASNET_OK) {
        fprintf(stderr, "hello: gex_Client_Init: %s\n", gasnet_ErrorDesc(code));
        return 1;
    }
    char host[256] = "?";
    gethostname(host, sizeof host - 1);
    printf("hello from rank %u of %u on %s, process %ld\n", (unsigned)gex_TM_QueryRank(team),
           (unsigned)gex_TM_QuerySize(team), host, (long)getpid());
    /* Output of all ranks is complete before the first one leaves. */
    fflush(stdout);
    gex_Event_Wait(gex_Coll_BarrierNB(team, 0));
    gasnet_exit(0);
    return 0;
}
