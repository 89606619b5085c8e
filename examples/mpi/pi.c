/* Pi by the midpoint rule: each rank adds up its share of the slices, MPI adds up the ranks. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    long slices = argc > 1 ? atol(argv[1]) : 10000000;
    double target = 1e-9, mine = 0, pi = 0;
    int rank, ranks, length;
    char host[MPI_MAX_PROCESSOR_NAME] = "", *hosts = NULL;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Get_processor_name(host, &length);
    if (rank == 0)
        hosts = malloc(ranks * sizeof host);
    MPI_Gather(host, sizeof host, MPI_CHAR, hosts, sizeof host, MPI_CHAR, 0, MPI_COMM_WORLD);
    /* Only rank 0 prints: mpirun may mix the lines of several. */
    for (int other = 0; rank == 0 && other < ranks; other++)
        printf("rank %d of %d runs on %s\n", other, ranks, hosts + other * sizeof host);
    fflush(stdout);
    free(hosts);
    for (long slice = rank; slice < slices; slice += ranks) {
        double x = (slice + 0.5) / slices;
        mine += 4 / (1 + x * x);
    }
    mine /= slices;
    MPI_Reduce(&mine, &pi, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    double error = fabs(pi - acos(-1));
    if (rank == 0)
        printf("pi %.12f on %d ranks, error %.1e (target %.0e)\n", pi, ranks, error, target);
    MPI_Bcast(&error, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    MPI_Finalize();
    return error > target;
}
