/* Ranks as MPI processes; see world.h. */
#include <mpi.h>
#include <stdlib.h>

#include "bench/report.h"
#include "bench/world.h"
#include "qccl/qccl_mpi.h"

static qcclResult_t mpi_comms(struct bench_world *world, qcclComm_t *comms,
                              const qcclConfig_t *config)
{
    (void)world;
    return qcclCommInitMpi(comms, MPI_COMM_WORLD, config);
}

static void mpi_barrier(struct bench_world *world)
{
    (void)world;
    MPI_Barrier(MPI_COMM_WORLD);
}

static void mpi_combine(struct bench_world *world, int rank, double *values, size_t count,
                        enum bench_combine how)
{
    (void)world;
    (void)rank;
    MPI_Allreduce(MPI_IN_PLACE, values, (int)count, MPI_DOUBLE,
                  how == BENCH_SUM   ? MPI_SUM
                  : how == BENCH_MAX ? MPI_MAX
                                     : MPI_MIN,
                  MPI_COMM_WORLD);
}

static int mpi_agree(struct bench_world *world, int status)
{
    (void)world;
    MPI_Allreduce(MPI_IN_PLACE, &status, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return status;
}

static void mpi_fail(struct bench_world *world)
{
    (void)world;
    MPI_Abort(MPI_COMM_WORLD, EXIT_WRONG);
}

static void mpi_close(struct bench_world *world)
{
    (void)world;
    MPI_Finalize();
}

static const struct bench_backend mpi_backend = {
    .name = "mpi",
    .comms = mpi_comms,
    .barrier = mpi_barrier,
    .combine = mpi_combine,
    .agree = mpi_agree,
    .fail = mpi_fail,
    .close = mpi_close,
};

/* The first rank that shares memory with a rank names its node. */
static int find_nodes(struct bench_world *world)
{
    MPI_Comm node;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    int lowest;
    MPI_Allreduce(&world->first, &lowest, 1, MPI_INT, MPI_MIN, node);
    MPI_Comm_free(&node);
    world->nodes = malloc((size_t)world->nranks * sizeof *world->nodes);
    if (!world->nodes)
        return bench_error("no memory for %d ranks", world->nranks);
    MPI_Allgather(&lowest, 1, MPI_INT, world->nodes, 1, MPI_INT, MPI_COMM_WORLD);
    return 0;
}

int bench_world_open_mpi(struct bench_world *world)
{
    int provided, level = world->threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED;
    *world = (struct bench_world){.backend = &mpi_backend, .local = 1};
    if (MPI_Init_thread(NULL, NULL, level, &provided) != MPI_SUCCESS)
        return bench_error("MPI_Init_thread failed");
    MPI_Comm_size(MPI_COMM_WORLD, &world->nranks);
    MPI_Comm_rank(MPI_COMM_WORLD, &world->first);
    return find_nodes(world);
}
