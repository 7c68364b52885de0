/* The ranks of a program: threads of one process, or the processes that mpirun started, behind one
 * interface.
 *
 * A program opens a world, hands it a function to run as each rank, and closes it.  Inside, ranks
 * meet at barriers and combine small arrays of numbers; collectives of qccl are made by
 * bench_world_comms.  The MPI half is a file of its own, world_mpi.c, that meson leaves out, for
 * world_alone.c, where there is no MPI. */
#ifndef BENCH_WORLD_H
#define BENCH_WORLD_H

#include <stdbool.h>
#include <stddef.h>

#include "qccl/qccl.h"

enum bench_combine { BENCH_SUM, BENCH_MAX, BENCH_MIN };

struct bench_world;

struct bench_backend {
    const char *name; /* "threads", "mpi" */
    qcclResult_t (*comms)(struct bench_world *world, qcclComm_t *comms, const qcclConfig_t *config);
    void (*barrier)(struct bench_world *world);
    void (*combine)(struct bench_world *world, int rank, double *values, size_t count,
                    enum bench_combine how);
    int (*agree)(struct bench_world *world, int status);
    void (*fail)(struct bench_world *world);
    void (*close)(struct bench_world *world);
};

struct bench_world {
    const struct bench_backend *backend;
    int nranks;
    int first, local; /* this process runs ranks first .. first + local - 1 */
    int *nodes;       /* the node of each rank where the backend knows, else NULL */
    void *state;
    bool threads; /* set before opening: streams will work beside the caller */
};

/* Opens the world: of the launcher's size under mpirun, else of `ranks` threads.  Under mpirun
 * ranks must be 0 or equal to that size.  Returns an exit status, after an error with its sentence
 * printed. */
int bench_world_open(struct bench_world *world, int ranks, int ranks_by_default);

/* Makes a communicator for each rank of this process; comms[0] is rank `first`'s.  Every process
 * calls it. */
qcclResult_t bench_world_comms(struct bench_world *world, qcclComm_t *comms,
                               const qcclConfig_t *config);

/* The largest exit status of all processes: what one alone may have run into stops all.  Every
 * process calls it, outside bench_world_run. */
int bench_world_agree(struct bench_world *world, int status);

/* Runs body once as each rank of this process and returns when all have returned. */
int bench_world_run(struct bench_world *world, void (*body)(void *context, int rank),
                    void *context);

/* For use inside body; every rank calls them. */
void bench_world_barrier(struct bench_world *world);
/* Each of the count values becomes its sum, maximum or minimum over ranks. */
void bench_world_combine(struct bench_world *world, int rank, double *values, size_t count,
                         enum bench_combine how);

/* Prints a sentence and ends the whole program, all ranks of it. */
_Noreturn void bench_world_fail(struct bench_world *world, int rank, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

void bench_world_close(struct bench_world *world);

/* Opens a world of MPI processes; EXIT_USAGE with a sentence in a build without MPI. */
int bench_world_open_mpi(struct bench_world *world);

#endif
