/* The MPI mover: one rank's end of a duplicated communicator, its requests under way, and its
 * notices.
 *
 * Data travels under one tag, in the order of the calls.  A notice is one integer under a second
 * tag, sent at most once by every rank to every other: qcclSuccess, "I have destroyed my
 * communicator", or the result code for which the rank gave up.  A wait that makes no progress
 * looks for notices now and then, so a rank that fails ends the waits of the others.  The
 * duplicate is freed when all have left (collectives/mpi_notice.c). */
#ifndef QCCL_COLLECTIVES_MPI_TRANSPORT_H
#define QCCL_COLLECTIVES_MPI_TRANSPORT_H

#include <mpi.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/transport.h"

/* One request: bytes of a message, which stand behind before_bytes of the same message. */
struct mpi_piece {
    uint64_t number; /* of its operation */
    int peer;
    bool receives;
    size_t before_bytes, bytes, message_bytes;
};

struct mpi_mover {
    MPI_Comm comm;
    int rank, nranks;
    int *nodes; /* the node of each rank */

    uint64_t started;    /* operations since the last wait */
    int count, capacity; /* of the two arrays below */
    MPI_Request *requests;
    struct mpi_piece *pieces;

    long nap_ns; /* how long a wait that finds nothing leaves the core; 0: it spins at first */

    qcclResult_t broken; /* the error that ended this mover, and its sentence */
    char reason[512];

    atomic_bool abort_wanted;
    atomic_bool told;        /* this rank has sent its notices, or nobody needs them any more */
    atomic_uintptr_t thread; /* the thread that used the mover last */
    MPI_Request *notices;    /* the sends of this rank's notices, nranks of them */
    bool *left;              /* which ranks have destroyed their communicators, */
    int nleft;               /* how many, */
    double left_time;        /* and when the last of these notices was seen, in MPI's seconds */
    bool closed;
    struct mpi_mover *next; /* in the list of all movers of the process */
};

/* Makes the mover of a communicator that is this library's own.  Local: the ranks agree that all
 * have one before any opens it; until then it can be freed, and the caller owns comm. */
qcclResult_t qccl_mpi_mover_create(struct mpi_mover **mover, MPI_Comm comm);
void qccl_mpi_mover_free(struct mpi_mover *mover);

/* The transport of a mover: collectives/transport.h. */
struct transport qccl_mpi_transport(struct mpi_mover *mover);

/* MPI's own collectives on the mover's communicator. */
extern const struct native_collectives qccl_mpi_native;

/* Whether the mover can be used: fails when it is broken, when this rank aborted it, or another
 * gave up. */
qcclResult_t qccl_mpi_ready(struct mpi_mover *mover);

/* Keeps code and the last error's sentence as what broke the mover, tells the others, and returns
 * code. */
qcclResult_t qccl_mpi_break(struct mpi_mover *mover, qcclResult_t code);

/* Ends what is under way after an error: receives are cancelled, and what has begun is given a
 * moment to end.  A transfer that is stuck in the middle cannot be stopped in MPI; its request is
 * let go. */
void qccl_mpi_abandon(struct mpi_mover *mover);

/* qcclSystemError with MPI's sentence unless error is MPI_SUCCESS. */
qcclResult_t qccl_mpi_check(int error, const char *call);

/* Receives the notices that are there. */
qcclResult_t qccl_mpi_read_notices(struct mpi_mover *mover);
/* Sends this rank's notice to all others, unless that was done; never blocks. */
void qccl_mpi_tell(struct mpi_mover *mover, qcclResult_t code);
/* abort and close of the transport. */
void qccl_mpi_abort(void *context);
void qccl_mpi_close(void *context);

/* Makes MPI_Finalize call this library first. */
qcclResult_t qccl_mpi_watch_finalize(void);
/* Puts a mover on the list of the process; from now on it owns its communicator and ends with
 * qccl_mpi_close. */
void qccl_mpi_open(struct mpi_mover *mover);
/* Frees what closed movers hold, of those that all ranks have left. */
void qccl_mpi_reap(void);

/* The most bytes of one MPI message, and the most elements of one MPI collective: both are ints in
 * MPI. */
size_t qccl_mpi_limit(void);
/* Sets it; 0: the default.  For tests, which want the split of huge messages without the memory. */
void qccl_mpi_set_limit(size_t limit);

#endif
