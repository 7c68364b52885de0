/* The bucketer: tensors come in one by one, as a backward pass finishes them; when enough bytes
 * have come together they start as one all-reduce.
 *
 *   add  t0   t1   t2 | t3  t4 | flush
 *   call [   bucket 0 ]
 *             call     [bucket 1]  */
#include <stdio.h>

#include "base/memory.h"
#include "base/status.h"
#include "overlap/group.h"

struct qcclBucketer {
    struct qcclComm *comm;
    size_t bytes;
    qcclDataType_t type;
    qcclRedOp_t op;
    qcclStream_t stream;
    struct bundle *bucket; /* NULL: nothing has come since the last one started */
    uint64_t started;      /* since the last flush */
};

static struct call describe(const struct qcclBucketer *b, const void *sendbuff, void *recvbuff,
                            size_t count)
{
    const struct plan_key key = {
        .collective = qcclCollAllReduce, .count = count, .type = b->type, .op = b->op};
    struct call call = qccl_call("qcclBucketerAdd", b->comm, &key, sendbuff, recvbuff);
    /* Buckets of one size would share error feedback otherwise. */
    call.tensor += b->started;
    return call;
}

qcclResult_t qcclBucketerCreate(qcclBucketer_t *bucketer, qcclComm_t comm, size_t bytes,
                                qcclDataType_t datatype, qcclRedOp_t op, void *stream)
{
    CHECK_ARG(bucketer, "qcclBucketerCreate: bucketer is NULL");
    RETURN_IF_FAILED(qccl_comm_usable(comm, "qcclBucketerCreate"));
    const struct qcclBucketer wanted = {
        .comm = comm, .bytes = bytes, .type = datatype, .op = op, .stream = stream};
    struct call call = describe(&wanted, NULL, NULL, 0);
    call.name = "qcclBucketerCreate";
    RETURN_IF_FAILED(qccl_call_check(&call)); /* type and op */
    struct qcclBucketer *made = qccl_alloc(1, sizeof *made);
    if (!made)
        return qccl_fail(qcclOutOfMemory, "no memory for a bucketer");
    *made = wanted;
    *bucketer = made;
    return qcclSuccess;
}

static qcclResult_t start(struct qcclBucketer *b)
{
    struct bundle *full = b->bucket;
    b->bucket = NULL;
    b->started++;
    return qccl_bundle_start(full);
}

qcclResult_t qcclBucketerAdd(qcclBucketer_t bucketer, const void *sendbuff, void *recvbuff,
                             size_t count)
{
    CHECK_ARG(bucketer, "qcclBucketerAdd: the bucketer is NULL");
    const struct call call = describe(bucketer, sendbuff, recvbuff, count);
    RETURN_IF_FAILED(qccl_call_check(&call));
    RETURN_IF_FAILED(qccl_bundle_add(&bucketer->bucket, &call, bucketer->stream));
    return qccl_bundle_bytes(bucketer->bucket) < bucketer->bytes ? qcclSuccess : start(bucketer);
}

qcclResult_t qcclBucketerFlush(qcclBucketer_t bucketer)
{
    CHECK_ARG(bucketer, "qcclBucketerFlush: the bucketer is NULL");
    qcclResult_t result = bucketer->bucket ? start(bucketer) : qcclSuccess;
    bucketer->started = 0;
    return result;
}

qcclResult_t qcclBucketerDestroy(qcclBucketer_t bucketer)
{
    if (!bucketer)
        return qcclSuccess;
    char sentence[512];
    qcclResult_t result = qcclBucketerFlush(bucketer), waited = qcclSuccess;
    snprintf(sentence, sizeof sentence, "%s", qccl_last_error());
    if (bucketer->stream)
        waited = qcclStreamSynchronize(bucketer->stream);
    qccl_free(bucketer);
    return result == qcclSuccess ? waited : qccl_fail(result, "%s", sentence);
}
