/* What a call costs that a drop-in passes on: MPI_Allreduce against PMPI_Allreduce, the bare MPI,
 * in turn.
 *
 *     qccl-mpi-overhead                                         no library in between: the noise
 *     qccl-run [--policy POLICY] qccl-mpi-overhead              with it
 *
 * Rounds of both are as long as each other and alternate; each round's difference is a sample, the
 * median of which is printed, with the quarter and the three-quarter point. */
#include <mpi.h>
#include <stdio.h>

#include "bench/samples.h"

enum { ROUNDS = 401, CALLS = 2000 };

typedef int allreduce_fn(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm);

struct kind {
    const char *name;
    MPI_Datatype type;
    MPI_Op op;
    MPI_Comm comm;
};

/* Nanoseconds of one call. */
static double time_calls(allreduce_fn *allreduce, const struct kind *kind)
{
    double in = 1, out;
    double start = bench_now();
    for (int i = 0; i < CALLS; i++)
        allreduce(&in, &out, 1, kind->type, kind->op, kind->comm);
    return (bench_now() - start) * 1e9 / CALLS;
}

static void measure(const struct kind *kind, int rank)
{
    double more[ROUNDS], bare[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        bare[i] = time_calls(PMPI_Allreduce, kind);
        more[i] = time_calls(MPI_Allreduce, kind) - bare[i];
    }
    double bare_ns = bench_median(bare, ROUNDS), ns = bench_median(more, ROUNDS);
    if (rank == 0)
        printf("| %-34s | %8.1f | %8.1f | %8.1f | %8.1f |\n", kind->name, bare_ns, ns,
               more[ROUNDS / 4], more[ROUNDS - 1 - ROUNDS / 4]);
}

int main(int argc, char **argv)
{
    int rank, nranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &nranks);
    const struct kind kinds[] = {
        {.name = "int, MPI_COMM_SELF", .type = MPI_INT, .op = MPI_SUM, .comm = MPI_COMM_SELF},
        {.name = "float maximum, MPI_COMM_SELF",
         .type = MPI_FLOAT,
         .op = MPI_MAX,
         .comm = MPI_COMM_SELF},
        {.name = "float sum, MPI_COMM_SELF",
         .type = MPI_FLOAT,
         .op = MPI_SUM,
         .comm = MPI_COMM_SELF},
        {.name = "float sum, MPI_COMM_WORLD",
         .type = MPI_FLOAT,
         .op = MPI_SUM,
         .comm = MPI_COMM_WORLD},
    };
    if (rank == 0)
        printf("%d ranks, nanoseconds a call\n"
               "| %-34s | %8s | %8s | %8s | %8s |\n|---|---|---|---|---|\n",
               nranks, "allreduce of one value", "bare", "more", "25%", "75%");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        measure(&kinds[i], rank);
    MPI_Finalize();
    return 0;
}
