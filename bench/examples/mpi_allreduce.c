/* MPI_Allreduce and qcclAllReduce on the same values: how far the results are apart, and what each
 * rank sent.
 *
 *     mpirun -n 4 mpi_allreduce [policy] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "qccl/qccl_mpi.h"

enum { COUNT = 1 << 20 };
static float gradient[COUNT], exact[COUNT], result[COUNT];

static void check(qcclResult_t status)
{
    if (status == qcclSuccess)
        return;
    fprintf(stderr, "qccl: %s\n", qcclGetLastError());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < COUNT; i++)
        gradient[i] = sinf((float)i * 0.37f + (float)rank);

    qcclComm_t comm;
    qcclConfig_t config = QCCL_CONFIG_INITIALIZER;
    config.policy = argc > 1 ? argv[1] : NULL;
    check(qcclCommInitMpi(&comm, MPI_COMM_WORLD, &config));

    MPI_Allreduce(gradient, exact, COUNT, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    check(qcclAllReduce(gradient, result, COUNT, qcclFloat32, qcclSum, comm, NULL));

    double energy = 0, error = 0;
    for (int i = 0; i < COUNT; i++) {
        double lost = (double)result[i] - exact[i];
        energy += (double)exact[i] * exact[i];
        error += lost * lost;
    }
    qcclStats_t stats = {.size = sizeof stats};
    check(qcclCommGetStats(comm, &stats));
    if (rank == 0)
        printf("rank 0 sent %llu bytes instead of %llu, relative error %.3g\n",
               (unsigned long long)stats.wire_bytes, (unsigned long long)stats.raw_bytes,
               sqrt(error / energy));
    check(qcclCommDestroy(comm)); /* before MPI_Finalize */
    MPI_Finalize();
    return 0;
}
