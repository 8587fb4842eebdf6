/* Handler tables: chosen and fixed indices, several tables, what a token says, registration before and after attach,
 * messages before attach. */
#include "t.h"

static int seen[256];
static int context;

static void any_short(gex_Token_t token)
{
    gex_Token_Info_t info;
    CHECK(gex_Token_Info(token, &info, GEX_TI_ENTRY | GEX_TI_SRCRANK) & GEX_TI_ENTRY);
    CHECK(info.gex_entry->gex_fnptr == (gex_AM_Fn_t)any_short);
    CHECK(info.gex_entry->gex_cdata == &context && strcmp(info.gex_entry->gex_name, "any short") == 0);
    CHECK(info.gex_entry->gex_flags == (GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQREP));
    seen[info.gex_entry->gex_index]++;
}

static void either(gex_Token_t token, void *data, size_t bytes, gex_AM_Arg_t is_long)
{
    gex_Token_Info_t info;
    CHECK(gex_Token_Info(token, &info, GEX_TI_ALL) & GEX_TI_IS_LONG);
    CHECK_EQ(info.gex_is_long, is_long);
    CHECK_EQ(info.gex_is_req, 1);
    if (is_long) CHECK(data == NULL && bytes == 0);
    else CHECK(t_same(data, 5, bytes));
    CHECK(gex_Token_MaxReplyMedium(token, GEX_EVENT_NOW, 0, 3) ==
          gex_AM_MaxReplyMedium(t_tm, info.gex_srcrank, GEX_EVENT_NOW, 0, 3));
    CHECK(gex_Token_MaxReplyLong(token, GEX_EVENT_NOW, 0, 3) ==
          gex_AM_MaxReplyLong(t_tm, info.gex_srcrank, GEX_EVENT_NOW, 0, 3));
    seen[info.gex_entry->gex_index]++;
}

int main(int argc, char **argv)
{
    gex_AM_Entry_t table[6];
    unsigned char data[200];
    gex_Rank_t to;
    int at, expected;
    t_join("handlers", &argc, &argv);
    expected = (int)t_size;
    for (at = 0; at < 6; at++) {
        table[at] = t_entry(0, (gex_AM_Fn_t)any_short, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQREP, 0);
        table[at].gex_cdata = &context;
        table[at].gex_name = "any short";
    }
    table[1].gex_index = 254;
    table[4].gex_index = GEX_AM_INDEX_BASE;
    OK(gex_EP_RegisterHandlers(t_ep, table, 6));
    /* The fixed ones first, then from the top. */
    CHECK_EQ(table[0].gex_index, 255);
    CHECK_EQ(table[1].gex_index, 254);
    CHECK_EQ(table[2].gex_index, 253);
    CHECK_EQ(table[3].gex_index, 252);
    CHECK_EQ(table[4].gex_index, 128);
    CHECK_EQ(table[5].gex_index, 251);
    OK(gex_EP_RegisterHandlers(t_ep, NULL, 0));
    memset(table, 0, sizeof table);
    table[0] = t_entry(0, (gex_AM_Fn_t)either, GEX_FLAG_AM_MEDLONG | GEX_FLAG_AM_REQUEST, 1);
    OK(gex_EP_RegisterHandlers(t_ep, table, 1));
    CHECK_EQ(table[0].gex_index, 250);
    t_barrier();
    /* Nothing is attached yet. */
    t_fill(data, 5, sizeof data);
    for (to = 0; to < t_size; to++) {
        OK(gex_AM_RequestShort0(t_tm, to, 251, 0));
        OK(gex_AM_RequestMedium1(t_tm, to, 250, data, sizeof data, GEX_EVENT_NOW, 0, 0));
        OK(gex_AM_RequestLong1(t_tm, to, 250, NULL, 0, NULL, GEX_EVENT_NOW, 0, 1));
    }
    GASNET_BLOCKUNTIL(seen[251] == expected && seen[250] == 2 * expected);
    t_barrier();
    t_attach(4096);
    memset(table, 0, sizeof table);
    table[0] = t_entry(129, (gex_AM_Fn_t)any_short, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQREP, 0);
    table[0].gex_cdata = &context;
    table[0].gex_name = "any short";
    OK(gex_EP_RegisterHandlers(t_ep, table, 1));
    memset(table, 0xff, sizeof table); /* the library has its own copy */
    t_barrier();
    for (to = 0; to < t_size; to++) OK(gex_AM_RequestShort(t_tm, to, 129, 0));
    for (to = 0; to < t_size; to++) {
        gex_Event_t event = GEX_EVENT_INVALID;
        OK(gex_AM_RequestMedium(t_tm, to, 250, data, sizeof data, &event, 0, 0));
        OK(gex_AM_RequestMedium(t_tm, to, 250, data, sizeof data, GEX_EVENT_GROUP, 0, 0));
        gex_Event_Wait(event);
        gex_NBI_Wait(GEX_EC_AM, 0);
    }
    GASNET_BLOCKUNTIL(seen[129] == expected && seen[250] == 4 * expected);
    t_pass();
    return 1;
}
