/* What a communicator needs from below: a byte mover, and where the library below has them, its own
 * collectives.
 *
 * The mover is the public qcclTransport_t, so a user's transport, threads and MPI are the same
 * thing to the rest. Native collectives take the calls that are not compressed; what they do not
 * handle, and every such call of a mover without them, is done by collectives/plain.c over the
 * mover. */
#ifndef QCCL_COLLECTIVES_TRANSPORT_H
#define QCCL_COLLECTIVES_TRANSPORT_H

#include <stdbool.h>

#include "qccl/qccl.h"

/* The collectives of the library below, on whole user buffers; in place where sendbuff is the place
 * NCCL names. Each blocks until done, and takes any count. */
struct native_collectives {
    /* Whether the library below knows this type and reduction. */
    bool (*handles)(qcclDataType_t type, qcclRedOp_t op);
    qcclResult_t (*allreduce)(void *context, const void *sendbuff, void *recvbuff, size_t count,
                              qcclDataType_t type, qcclRedOp_t op);
    qcclResult_t (*reducescatter)(void *context, const void *sendbuff, void *recvbuff,
                                  size_t recvcount, qcclDataType_t type, qcclRedOp_t op);
    qcclResult_t (*allgather)(void *context, const void *sendbuff, void *recvbuff, size_t sendcount,
                              qcclDataType_t type);
};

struct transport {
    qcclTransport_t mover;
    const struct native_collectives *native; /* NULL: none */
    bool (*may_use_threads)(void);           /* whether any thread may call the mover; NULL: yes */
    /* From now on a wait that finds nothing leaves the core for so long, since others compute
     * meanwhile; 0: as is fastest.  NULL: the mover's waits cost nothing. */
    void (*set_nap)(void *context, long nap_ns);
    const int *nodes; /* the node of each rank where the transport knows; NULL: all on one */
};

/* The movers of nranks threads of this process, into movers[0..nranks-1].  All or none. */
qcclResult_t qccl_thread_movers(struct transport *transports, int nranks);

/* Makes a communicator over a transport; compares versions and configurations with the other ranks
 * when `compare`. On success the communicator owns the transport; on an error the caller still
 * does. */
qcclResult_t qccl_comm_create(qcclComm_t *comm, const struct transport *transport,
                              const qcclConfig_t *config, bool compare);

#endif
