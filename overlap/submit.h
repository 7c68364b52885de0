/* How a checked call gets going: run at once, or put on a stream. */
#ifndef QCCL_OVERLAP_SUBMIT_H
#define QCCL_OVERLAP_SUBMIT_H

#include "collectives/call.h"

/* What runs the communicator's plans. */
execute_fn *qccl_executor(const struct qcclComm *comm);

/* Whether other threads of this process may run the communicator's calls. */
bool qccl_may_use_threads(const struct qcclComm *comm);

/* call: checked.  stream: a qcclStream_t, or NULL: run now.  The call takes its turn here. */
qcclResult_t qccl_submit(const struct call *call, void *stream);

/* Describes a call and checks it. */
qcclResult_t qccl_describe(struct call *call, const char *name, const struct plan_key *key,
                           const void *sendbuff, void *recvbuff, qcclComm_t comm);

/* Describes, checks and submits a call of the library's own, also where a group is open. */
qcclResult_t qccl_enter(const char *name, const struct plan_key *key, const void *sendbuff,
                        void *recvbuff, qcclComm_t comm, void *stream);

/* Puts a call that was allocated on the stream, which frees it; it takes its turn with its place.
 * qcclOutOfMemory: it is still the caller's, and the communicator is broken. */
qcclResult_t qccl_queue(struct call *call, qcclStream_t stream);

#endif
