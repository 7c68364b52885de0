/* Another tool on MPI's profiling interface, as it would be preloaded behind the drop-in: counts
 * the allreduces that reach it, and says so in MPI_Finalize. */
#include <mpi.h>
#include <stdio.h>

static int calls;

int MPI_Allreduce(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
                  MPI_Comm comm)
{
    calls++;
    return PMPI_Allreduce(sendbuf, recvbuf, count, datatype, op, comm);
}

int MPI_Finalize(void)
{
    int rank;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        fprintf(stderr, "tool: %d allreduces\n", calls);
    return PMPI_Finalize();
}
