/* The library's own diagnostics: with its handlers and a segment, with neither, section by section. */
#include "t.h"

#include <gasnet_tools.h>

int main(int argc, char **argv)
{
    gex_AM_Entry_t *table = NULL;
    int count = 0, at;
    t_join("diagnostics", &argc, &argv);
    /* Nothing registered, no segment: barriers alone. */
    CHECK_EQ(gasnett_run_diagnostics(3, 1, NULL, t_tm), 0);
    gasnett_diagnostic_gethandlers(&table, &count);
    CHECK(table != NULL && count > 0);
    OK(gex_EP_RegisterHandlers(t_ep, table, (size_t)count));
    for (at = 0; at < count; at++) CHECK(table[at].gex_index >= GEX_AM_INDEX_BASE);
    CHECK_EQ(gasnett_run_diagnostics(3, 1, "m"), 0);
    t_attach(4096);
    CHECK_EQ(gasnett_run_diagnostics(20, 1, "", t_tm, t_base(t_rank, NULL), (t_rank + 1) % t_size), 0);
    CHECK_EQ(gasnett_run_diagnostics(5, 3, "TB"), 0);
    t_pass();
    return 1;
}
