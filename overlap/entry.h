/* How a checked call gets going: run at once, or put on a stream. */
#ifndef QCCL_OVERLAP_ENTRY_H
#define QCCL_OVERLAP_ENTRY_H

#include "collectives/call.h"

/* What runs the communicator's plans. */
execute_fn *qccl_executor(const struct qcclComm *comm);

/* Whether other threads of this process may run the communicator's calls. */
bool qccl_may_use_threads(const struct qcclComm *comm);

/* call: checked.  stream: a qcclStream_t, or NULL: run now.  The call takes its turn here. */
qcclResult_t qccl_submit(const struct call *call, void *stream);

/* Checks a call and submits it, also where a group is open. */
qcclResult_t qccl_enter(const char *name, const struct plan_key *key, const void *sendbuff,
                        void *recvbuff, qcclComm_t comm, void *stream);

/* Runs a call that has its turn, and frees it: a job of a stream. */
qcclResult_t qccl_run_queued(void *call);

#endif
