/* The MPI half of a program that opens it with dlopen, as Python does with mpi4py: the program
 * itself knows nothing of MPI.  Prints "compressed" or "bare" from rank 0. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

int plugin_run(void);

int plugin_run(void)
{
    enum { COUNT = 3000 };
    static float in[COUNT], out[COUNT], exact[COUNT];
    int rank;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < COUNT; i++)
        in[i] = (float)((i * 37 + rank) % 1001) / 1001.0f;
    MPI_Allreduce(in, out, COUNT, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    PMPI_Allreduce(in, exact, COUNT, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        puts(memcmp(out, exact, sizeof out) ? "compressed" : "bare");
    MPI_Finalize();
    return 0;
}
