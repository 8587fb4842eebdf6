/* GASNet and MPI in one program: each moves data that the other one checks. */
#include <gasnetex.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static void need(int good, const char *what) {
    if (!good) {
        fprintf(stderr, "hybrid: %s\n", what);
        gasnet_exit(99);
    }
}

int main(int argc, char **argv) {
    gex_Client_t client;
    gex_EP_t endpoint;
    gex_TM_t team;
    gex_Segment_t segment;
    int rank, size, sum;
    MPI_Init(&argc, &argv);
    need(gex_Client_Init(&client, &endpoint, &team, "hybrid", &argc, &argv, 0) == GASNET_OK, "gex_Client_Init");
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    need((int)gex_TM_QueryRank(team) == rank, "the ranks differ");
    need((int)gex_TM_QuerySize(team) == size, "the sizes differ");
    need(gex_Segment_Attach(&segment, team, 65536) == GASNET_OK, "gex_Segment_Attach");
    int *mine = gex_Segment_QueryAddr(segment);
    for (int turn = 1; turn <= 20; turn++) {
        /* A put to the next rank, checked by a sum over MPI, which is checked by a message to the previous one. */
        gex_Rank_t next = (gex_Rank_t)((rank + 1) % size);
        void *there;
        uintptr_t length;
        gex_Event_Wait(gex_EP_QueryBoundSegmentNB(team, next, &there, NULL, &length, 0));
        int value = turn * 1000 + rank;
        gex_RMA_PutBlocking(team, next, there, &value, sizeof value, 0);
        gex_Event_Wait(gex_Coll_BarrierNB(team, 0));
        need(*mine == turn * 1000 + (rank + size - 1) % size, "the put");
        MPI_Allreduce(mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        need(sum == turn * 1000 * size + size * (size - 1) / 2, "the sum");
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (rank == 0) printf("PASS %d\n", size);
    fflush(stdout);
    if (argc > 1) MPI_Abort(MPI_COMM_WORLD, atoi(argv[1]));
    MPI_Finalize();
    gex_Event_Wait(gex_Coll_BarrierNB(team, 0));
    gasnet_exit(0);
    return 0;
}
