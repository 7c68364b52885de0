/* Stands in for world_mpi.c in a build without MPI; see world.h. */
#include "bench/report.h"
#include "bench/world.h"

int bench_world_open_mpi(struct bench_world *world)
{
    *world = (struct bench_world){.backend = NULL};
    return bench_usage_error("a launcher started this program, but it was built without MPI");
}
