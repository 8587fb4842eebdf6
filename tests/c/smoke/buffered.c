/* All output is in the stream's buffer when the ranks exit: more than the launcher and pipes keep. */
#include <gasnet.h>
#include <stdio.h>

static char buffer[4 << 20];

int main(int argc, char **argv) {
    if (gasnet_init(&argc, &argv) != GASNET_OK || gasnet_attach(NULL, 0, GASNET_PAGESIZE, 0) != GASNET_OK) return 1;
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    for (int line = 0; line < 30000; line++) printf("rank %d, line %d of the last words\n", (int)gasnet_mynode(), line);
    gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
    gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS);
    gasnet_exit(0);
}
