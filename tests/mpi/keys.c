/* Puts, fences and gets over the wire of PMI-1, without an MPI: rank 0 prints how long a round takes, in
 * microseconds. Usage: keys [ROUNDS [PUTS]] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int fd, rank, size;
static char answer[4096];

static void ask(const char *question, const char *expected) {
    size_t length = strlen(question), have = 0;
    if (write(fd, question, length) != (ssize_t)length) exit(1);
    do {
        ssize_t got = read(fd, answer + have, sizeof answer - 1 - have);
        if (got <= 0) exit(1);
        have += (size_t)got;
    } while (answer[have - 1] != '\n');
    answer[have] = 0;
    if (!strstr(answer, expected)) {
        fprintf(stderr, "rank %d: %s: %s", rank, question, answer);
        exit(1);
    }
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 10, puts = argc > 2 ? atoi(argv[2]) : 8;
    char space[256], line[1024], expected[64];
    double put = 0, fence = 0, get = 0, begin;
    fd = atoi(getenv("PMI_FD")), rank = atoi(getenv("PMI_RANK")), size = atoi(getenv("PMI_SIZE"));
    ask("cmd=init pmi_version=1 pmi_subversion=1\n", "rc=0");
    ask("cmd=get_my_kvsname\n", "kvsname=");
    sscanf(strstr(answer, "kvsname="), "kvsname=%255s", space);
    ask("cmd=barrier_in\n", "barrier_out");
    for (int round = 0; round < rounds; round++) {
        begin = now();
        for (int i = 0; i < puts; i++) {
            snprintf(line, sizeof line, "cmd=put kvsname=%s key=k-%d-%d-%d value=v-%d-%d-%d-%064d\n", space, round, rank, i,
                     round, rank, i, 0);
            ask(line, "rc=0");
        }
        put += now() - begin, begin = now();
        ask("cmd=barrier_in\n", "barrier_out");
        fence += now() - begin, begin = now();
        for (int i = 0; i < puts; i++) {
            int other = (rank + 1 + i) % size;
            snprintf(line, sizeof line, "cmd=get kvsname=%s key=k-%d-%d-%d\n", space, round, other, i);
            snprintf(expected, sizeof expected, "value=v-%d-%d-%d-", round, other, i);
            ask(line, expected);
        }
        get += now() - begin;
    }
    ask("cmd=barrier_in\n", "barrier_out");
    if (rank == 0)
        printf("%.0f %.0f %.0f\n", put / rounds, fence / rounds, get / rounds);
    ask("cmd=finalize\n", "finalize_ack");
    return 0;
}
