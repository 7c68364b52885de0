/* qccl over MPI: the calls that need MPI's types.  See qccl.h for everything else. */
#ifndef QCCL_QCCL_MPI_H
#define QCCL_QCCL_MPI_H

#include <mpi.h>

#include "qccl/qccl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes this rank's communicator over MPI.  Collective over mpi_comm, an intra-communicator; blocks
 * until every rank has called. The MPI communicator is duplicated, so that qccl's messages never
 * meet the program's; the duplicate is freed by qcclCommDestroy, which must come before
 * MPI_Finalize and, for MPI, is called on every rank. Calls that are not compressed go to MPI's own
 * collectives and give exactly their results. MPI_Init_thread(MPI_THREAD_MULTIPLE) is needed when
 * several threads use communicators at once. config may be NULL; versions and configurations are
 * compared. Returns qcclInvalidArgument, qcclInvalidUsage (MPI is not initialised or already
 * finalized), qcclMismatch on every rank (the sentence names both values), qcclRemoteError (another
 * rank failed or gave up meanwhile), qcclOutOfMemory, qcclSystemError.  On an error *comm is left
 * alone. */
QCCL_API qcclResult_t qcclCommInitMpi(qcclComm_t *comm, MPI_Comm mpi_comm,
                                      const qcclConfig_t *config);

#ifdef __cplusplus
}
#endif
#endif
