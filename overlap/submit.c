/* Checked calls get going: run at once, or put on a stream. */
#include "overlap/submit.h"

#include "base/memory.h"
#include "base/status.h"
#include "overlap/pipeline.h"
#include "overlap/stream.h"

bool qccl_may_use_threads(const struct qcclComm *comm)
{
    bool (*may)(void) = comm->transport.may_use_threads;
    return !may || may();
}

static qcclResult_t run_call(void *call)
{
    return qccl_call_run(call);
}

static qcclResult_t run_queued(void *call)
{
    qcclResult_t result = qccl_call_run(call);
    qccl_call_free(call);
    return result;
}

/* As the call gets its place on a stream, so that the orders of turns and places agree. */
static void take_turn(void *call)
{
    qccl_call_take_turn(call);
}

qcclResult_t qccl_queue(struct call *call, qcclStream_t stream)
{
    call->priority = qccl_stream_priority(stream);
    call->overlapped = true;
    if (qccl_stream_put_placed(stream, take_turn, run_queued, call) == qcclSuccess)
        return qcclSuccess;
    return qccl_comm_lose(call->comm,
                          qccl_fail(qcclOutOfMemory, "%s: no memory to queue it", call->name));
}

static qcclResult_t put_on_stream(struct call *call, qcclStream_t stream)
{
    if (!qccl_may_use_threads(call->comm)) {
        call->priority = qccl_stream_priority(stream);
        qccl_stream_run(stream, take_turn, run_call, call);
        return qcclSuccess; /* the stream keeps the error */
    }
    struct call *queued = qccl_alloc(1, sizeof *queued);
    if (!queued)
        return qccl_comm_lose(call->comm,
                              qccl_fail(qcclOutOfMemory, "%s: no memory to queue it", call->name));
    *queued = *call;
    qcclResult_t result = qccl_queue(queued, stream);
    if (result != qcclSuccess)
        qccl_free(queued);
    return result;
}

execute_fn *qccl_executor(const struct qcclComm *comm)
{
    return comm->serial ? qccl_run_serial : qccl_run_pipelined;
}

qcclResult_t qccl_submit(const struct call *call, void *stream)
{
    struct call mine = *call;
    mine.execute = qccl_executor(call->comm);
    if (stream)
        return put_on_stream(&mine, stream);
    qccl_call_take_turn(&mine);
    return qccl_call_run(&mine);
}

qcclResult_t qccl_describe(struct call *call, const char *name, const struct plan_key *key,
                           const void *sendbuff, void *recvbuff, qcclComm_t comm)
{
    RETURN_IF_FAILED(qccl_comm_usable(comm, name));
    *call = qccl_call(name, comm, key, sendbuff, recvbuff);
    return qccl_call_check(call);
}

qcclResult_t qccl_enter(const char *name, const struct plan_key *key, const void *sendbuff,
                        void *recvbuff, qcclComm_t comm, void *stream)
{
    struct call call;
    RETURN_IF_FAILED(qccl_describe(&call, name, key, sendbuff, recvbuff, comm));
    return qccl_submit(&call, stream);
}
