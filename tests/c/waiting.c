/* Wait modes and GASNET_BLOCKUNTIL: condition in the caller's scope, not polled for when it holds, in any statement. */
#include "t.h"

static volatile int arrived;

static void arrive(gex_Token_t token)
{
    (void)token;
    arrived++;
}

static int looked;
static int enough(int wanted, int unused)
{
    (void)unused;
    looked++;
    return arrived >= wanted;
}

int main(int argc, char **argv)
{
    gex_AM_Entry_t table[1];
    static const int modes[] = {GASNET_WAIT_SPIN, GASNET_WAIT_BLOCK, GASNET_WAIT_SPINBLOCK};
    gex_Rank_t to;
    unsigned at;
    int round, wanted = 0;
    t_join("waiting", &argc, &argv);
    table[0] = t_entry(200, (gex_AM_Fn_t)arrive, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 0);
    OK(gex_EP_RegisterHandlers(t_ep, table, 1));
    t_barrier();
    to = (t_rank + 1) % t_size;
    gex_System_SetVerboseErrors(0);
    CHECK_EQ(gasnet_set_waitmode(3), GASNET_ERR_BAD_ARG);
    CHECK_EQ(gasnet_set_waitmode(-1), GASNET_ERR_BAD_ARG);
    gex_System_SetVerboseErrors(1);
    for (at = 0; at < 3; at++) {
        OK(gasnet_set_waitmode(modes[at]));
        for (round = 0; round < (at ? 50 : 3); round++) {
            OK(gex_AM_RequestShort0(t_tm, to, 200, 0));
            wanted++;
            if (round % 2) GASNET_BLOCKUNTIL(enough(wanted, 1));
            else GASNET_BLOCKUNTIL(arrived >= wanted);
        }
    }
    looked = 0;
    GASNET_BLOCKUNTIL(enough(wanted, 2));
    CHECK_EQ(looked, 1);
    for (;;) {
        GASNET_BLOCKUNTIL(1);
        break;
    }
    GASNET_BEGIN_FUNCTION();
    GASNET_POST_THREADINFO(GASNET_GET_THREADINFO());
    OK(gasnet_set_waitmode(GASNET_WAIT_BLOCK));
    t_pass();
    return 1;
}
