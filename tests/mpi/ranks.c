/* An MPI program with several ways to run and to end. Usage: ranks WHAT [NUMBER]
 *   run        hello, ring, barriers, reduction, attributes; rank 0 prints PASS
 *   abort N    rank 1 aborts with N while the others sleep
 *   exit N     rank 1 returns N after MPI_Finalize
 *   quit N     rank 1 exits with N without MPI_Finalize while the others sleep
 *   die        rank 1 is killed while the others sleep
 *   spawn      rank 0 tries MPI_Comm_spawn
 *   size       prints how many ranks there are */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, size;

static void need(int good, const char *what) {
    if (!good) {
        fprintf(stderr, "rank %d of %d: %s\n", rank, size, what);
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
}

static void ring(void) {
    int token = 0, to = (rank + 1) % size, from = (rank + size - 1) % size;
    if (size == 1) return;
    if (rank == 0) MPI_Send(&token, 1, MPI_INT, to, 7, MPI_COMM_WORLD);
    MPI_Recv(&token, 1, MPI_INT, from, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    token++;
    if (rank != 0) MPI_Send(&token, 1, MPI_INT, to, 7, MPI_COMM_WORLD);
    if (rank == 0) need(token == size, "the ring");
}

static void large(void) {
    enum { COUNT = 1 << 17 };
    int *mine = malloc(sizeof(int) * COUNT), *all = malloc(sizeof(int) * COUNT);
    for (int i = 0; i < COUNT; i++) mine[i] = rank + i;
    MPI_Allreduce(mine, all, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < COUNT; i++) need(all[i] == size * (size - 1) / 2 + size * i, "a large sum");
    free(mine);
    free(all);
}

static void run(void) {
    char name[MPI_MAX_PROCESSOR_NAME];
    int length, sum, found, *appnum, *universe;
    MPI_Get_processor_name(name, &length);
    printf("hello from rank %d of %d\n", rank, size);
    ring();
    for (int i = 0; i < 10; i++) MPI_Barrier(MPI_COMM_WORLD);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    need(sum == size * (size - 1) / 2, "the sum");
    large();
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &appnum, &found);
    printf("rank %d: appnum %d\n", rank, found ? *appnum : -1);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &universe, &found);
    need(!found || *universe == size, "the universe");
    MPI_Comm node;
    int local;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &local);
    printf("rank %d: %d ranks share its host\n", rank, local);
    MPI_Comm_free(&node);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("PASS %d\n", size);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "run";
    int number = argc > 2 ? atoi(argv[2]) : 0, code = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (!strcmp(what, "run")) {
        run();
    } else if (!strcmp(what, "size")) {
        printf("size %d\n", size);
    } else if (!strcmp(what, "exit")) {
        code = rank == 1 ? number : 0;
    } else if (!strcmp(what, "spawn")) {
        MPI_Comm between;
        MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
        if (rank == 0 && MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_SELF, &between,
                                        MPI_ERRCODES_IGNORE))
            printf("spawn refused\n");
        MPI_Barrier(MPI_COMM_WORLD);
    } else {
        /* The others are past MPI_Init, and hear of nothing but their launcher. */
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 1) {
            usleep(100 * 1000);
            if (!strcmp(what, "abort")) MPI_Abort(MPI_COMM_WORLD, number);
            if (!strcmp(what, "quit")) _exit(number);
            if (!strcmp(what, "die")) raise(SIGKILL);
        }
        sleep(60);
    }
    MPI_Finalize();
    return code;
}
