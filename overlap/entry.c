/* The public collectives: described, checked, then collected by the open group or submitted. */
#include "base/status.h"
#include "overlap/group.h"
#include "overlap/submit.h"

static qcclResult_t enter(const char *name, const struct plan_key *key, const void *sendbuff,
                          void *recvbuff, qcclComm_t comm, void *stream)
{
    struct call call;
    qcclResult_t result = qccl_describe(&call, name, key, sendbuff, recvbuff, comm);
    if (qccl_group_is_open())
        return qccl_group_collect(&call, stream, result);
    RETURN_IF_FAILED(result);
    return qccl_submit(&call, stream);
}

qcclResult_t qcclAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                           qcclDataType_t datatype, qcclRedOp_t op, qcclComm_t comm, void *stream)
{
    struct plan_key key = {
        .collective = qcclCollAllReduce, .count = count, .type = datatype, .op = op};
    return enter("qcclAllReduce", &key, sendbuff, recvbuff, comm, stream);
}

qcclResult_t qcclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                               qcclDataType_t datatype, qcclRedOp_t op, qcclComm_t comm,
                               void *stream)
{
    struct plan_key key = {
        .collective = qcclCollReduceScatter, .count = recvcount, .type = datatype, .op = op};
    return enter("qcclReduceScatter", &key, sendbuff, recvbuff, comm, stream);
}

qcclResult_t qcclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
                           qcclDataType_t datatype, qcclComm_t comm, void *stream)
{
    struct plan_key key = {.collective = qcclCollAllGather, .count = sendcount, .type = datatype};
    return enter("qcclAllGather", &key, sendbuff, recvbuff, comm, stream);
}

qcclResult_t qcclAllGatherDelta(const float *master, void *replica, size_t shardcount,
                                qcclDataType_t datatype, qcclComm_t comm, void *stream)
{
    struct plan_key key = {
        .collective = qcclCollAllGatherDelta, .count = shardcount, .type = datatype};
    return enter("qcclAllGatherDelta", &key, master, replica, comm, stream);
}
