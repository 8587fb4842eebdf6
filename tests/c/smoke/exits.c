/* Ends the job in one of several ways: `exits way code`; the launcher must report the code. */
#include <gasnetex.h>
#include <signal.h>

static gex_TM_t tm;
static int code;

static void on_exit_request(gex_Token_t token)
{
    (void)token;
    gasnet_exit(code);
}

static void prepare_and_exit(gex_Token_t token)
{
    (void)gex_AM_PrepareReplyMedium(token, NULL, 0, 0, NULL, 0, 0);
    gasnet_exit(code);
}

static void on_signal(int signal)
{
    (void)signal;
    gasnet_exit(code);
}

static void at_end(void)
{
    gasnet_exit(code);
}

static void forever(void)
{
    GASNET_BLOCKUNTIL(0);
}

int main(int argc, char **argv)
{
    gex_Client_t client;
    gex_EP_t ep;
    gex_AM_Entry_t table[] = {
        {0, (gex_AM_Fn_t)on_exit_request, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 0, NULL, NULL},
        {0, (gex_AM_Fn_t)prepare_and_exit, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 0, NULL, NULL},
    };
    gex_Rank_t me, last;
    const char *way;
    if (gex_Client_Init(&client, &ep, &tm, "exits", &argc, &argv, 0) || argc < 3) return 100;
    way = argv[1];
    code = atoi(argv[2]);
    me = gex_TM_QueryRank(tm);
    last = gex_TM_QuerySize(tm) - 1;
    if (gex_EP_RegisterHandlers(ep, table, 2)) return 101;
    gex_Event_Wait(gex_Coll_BarrierNB(tm, 0));
    if (!strcmp(way, "handler")) {
        if (!me) gex_AM_RequestShort0(tm, last, table[0].gex_index, 0);
        forever();
    } else if (!strcmp(way, "reply")) {
        gex_AM_RequestShort0(tm, last, table[1].gex_index, 0);
        forever();
    } else if (!strcmp(way, "prepared")) {
        (void)gex_AM_PrepareRequestMedium(tm, last, NULL, 10, 10, NULL, 0, 0);
        if (me == last) gasnet_exit(code);
        for (;;) continue;
    } else if (!strcmp(way, "signal")) {
        signal(SIGQUIT, on_signal);
        if (me == last) raise(SIGINT);
        forever();
    } else if (!strcmp(way, "atexit")) {
        atexit(at_end);
        return 0;
    } else if (!strcmp(way, "spin")) {
        if (me == last) gasnet_exit(code);
        for (;;) continue;
    } else if (!strcmp(way, "barrier")) {
        if (me == last) return code;
        gex_Event_Wait(gex_Coll_BarrierNB(tm, 0));
    }
    return 102;
}
