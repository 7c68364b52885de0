/* The functions of NCCL that the drop-in takes the place of, in both of its builds.
 *
 * Each goes on to NCCL's function of the same name between begin and end.  NCCL calls some of its
 * own public functions, which may lead here again: those calls are passed on unseen. */
#include <stdint.h>

#include "collectives/dropin/nccl_call.h"

typedef ncclResult_t all_reduce_fn(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t,
                                   ncclComm_t, cudaStream_t);
typedef ncclResult_t all_gather_fn(const void *, void *, size_t, ncclDataType_t, ncclComm_t,
                                   cudaStream_t);
typedef ncclResult_t init_rank_fn(ncclComm_t *, int, ncclUniqueId, int);
typedef ncclResult_t init_config_fn(ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *);
typedef ncclResult_t init_scalable_fn(ncclComm_t *, int, int, int, ncclUniqueId *, ncclConfig_t *);
typedef ncclResult_t init_all_fn(ncclComm_t *, int, const int *);
typedef ncclResult_t split_fn(ncclComm_t, int, int, ncclComm_t *, ncclConfig_t *);
typedef ncclResult_t shrink_fn(ncclComm_t, int *, int, ncclComm_t *, ncclConfig_t *, int);
typedef ncclResult_t comm_fn(ncclComm_t);
typedef ncclResult_t revoke_fn(ncclComm_t, int);
typedef ncclResult_t async_error_fn(ncclComm_t, ncclResult_t *);
typedef ncclResult_t op_create_fn(ncclRedOp_t *, void *, ncclDataType_t, ncclScalarResidence_t,
                                  ncclComm_t);
typedef ncclResult_t op_destroy_fn(ncclRedOp_t, ncclComm_t);
typedef ncclResult_t group_fn(void);
typedef ncclResult_t simulate_fn(ncclSimInfo_t *);

/* Declared here as well, since an older nccl.h lacks some. */
QCCL_API all_reduce_fn ncclAllReduce, ncclReduceScatter;
QCCL_API all_gather_fn ncclAllGather;
QCCL_API init_rank_fn ncclCommInitRank;
QCCL_API init_config_fn ncclCommInitRankConfig;
QCCL_API init_scalable_fn ncclCommInitRankScalable;
QCCL_API init_all_fn ncclCommInitAll;
QCCL_API split_fn ncclCommSplit;
QCCL_API shrink_fn ncclCommShrink;
QCCL_API comm_fn ncclCommFinalize, ncclCommDestroy, ncclCommAbort;
QCCL_API revoke_fn ncclCommRevoke;
QCCL_API async_error_fn ncclCommGetAsyncError;
QCCL_API op_create_fn ncclRedOpCreatePreMulSum;
QCCL_API op_destroy_fn ncclRedOpDestroy;
QCCL_API group_fn ncclGroupStart, ncclGroupEnd;
QCCL_API simulate_fn ncclGroupSimulateEnd;

/* ------------------------------------------------------------------ going on */

static _Thread_local int inside; /* NCCL, or this library on its way there */

/* NCCL's function, to be called between this and end; NULL: *result says why there is none. */
static any_function *begin(struct nccl_next *next, ncclResult_t *result)
{
    any_function *go_on = qccl_nccl_next(next, result);
    inside += go_on != NULL;
    return go_on;
}

/* Whether it was the program that called, and there is something to note about it. */
static bool noted(void)
{
    return inside == 1 && qccl_nccl_settings()->watches;
}

static ncclResult_t end(ncclResult_t result)
{
    inside--;
    return result;
}

/* ------------------------------------------------------------------ collectives */

/* What becomes of a call: it goes on to NCCL, for a reason that is noted. */
static void offer(const struct nccl_call *call)
{
    struct nccl_comm *comm = noted() ? qccl_nccl_comm(call->comm) : NULL;
    if (comm)
        qccl_nccl_note(comm, call, qccl_nccl_decide(qccl_nccl_settings(), call, comm));
}

ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    static struct nccl_next next = {.name = "ncclAllReduce"};
    const struct nccl_call call = {.collective = qcclCollAllReduce,
                                   .site = __builtin_return_address(0),
                                   .count = count,
                                   .type = type,
                                   .op = op,
                                   .comm = comm};
    ncclResult_t result;
    all_reduce_fn *go_on = (all_reduce_fn *)begin(&next, &result);
    if (!go_on)
        return result;
    offer(&call);
    return end(go_on(sendbuff, recvbuff, count, type, op, comm, stream));
}

ncclResult_t ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t count,
                               ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream)
{
    static struct nccl_next next = {.name = "ncclReduceScatter"};
    const struct nccl_call call = {.collective = qcclCollReduceScatter,
                                   .site = __builtin_return_address(0),
                                   .count = count,
                                   .type = type,
                                   .op = op,
                                   .comm = comm};
    ncclResult_t result;
    all_reduce_fn *go_on = (all_reduce_fn *)begin(&next, &result);
    if (!go_on)
        return result;
    offer(&call);
    return end(go_on(sendbuff, recvbuff, count, type, op, comm, stream));
}

ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
    static struct nccl_next next = {.name = "ncclAllGather"};
    const struct nccl_call call = {.collective = qcclCollAllGather,
                                   .site = __builtin_return_address(0),
                                   .count = count,
                                   .type = type,
                                   .comm = comm};
    ncclResult_t result;
    all_gather_fn *go_on = (all_gather_fn *)begin(&next, &result);
    if (!go_on)
        return result;
    offer(&call);
    return end(go_on(sendbuff, recvbuff, count, type, comm, stream));
}

/* ------------------------------------------------------------------ birth of communicators */

/* As begin; a program with settings that are wrong gets no communicator. */
static any_function *begin_comm(struct nccl_next *next, ncclResult_t *result)
{
    const struct nccl_settings *settings = qccl_nccl_settings();
    if (!*settings->error)
        return begin(next, result);
    qccl_nccl_say("%s", settings->error);
    *result = ncclInvalidArgument;
    return NULL;
}

static ncclResult_t end_comm(ncclComm_t *slots, int n, ncclComm_t parent,
                             const ncclConfig_t *config, ncclResult_t result)
{
    if (noted())
        qccl_nccl_created(slots, n, parent, config, result);
    return end(result);
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank)
{
    static struct nccl_next next = {.name = "ncclCommInitRank"};
    ncclResult_t result;
    init_rank_fn *go_on = (init_rank_fn *)begin_comm(&next, &result);
    return go_on ? end_comm(comm, 1, NULL, NULL, go_on(comm, nranks, id, rank)) : result;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    static struct nccl_next next = {.name = "ncclCommInitRankConfig"};
    ncclResult_t result;
    init_config_fn *go_on = (init_config_fn *)begin_comm(&next, &result);
    return go_on ? end_comm(comm, 1, NULL, config, go_on(comm, nranks, id, rank, config)) : result;
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int nranks, int rank, int nids,
                                      ncclUniqueId *ids, ncclConfig_t *config)
{
    static struct nccl_next next = {.name = "ncclCommInitRankScalable"};
    ncclResult_t result;
    init_scalable_fn *go_on = (init_scalable_fn *)begin_comm(&next, &result);
    return go_on ? end_comm(comm, 1, NULL, config, go_on(comm, nranks, rank, nids, ids, config))
                 : result;
}

ncclResult_t ncclCommInitAll(ncclComm_t *comms, int ndev, const int *devlist)
{
    static struct nccl_next next = {.name = "ncclCommInitAll"};
    ncclResult_t result;
    init_all_fn *go_on = (init_all_fn *)begin_comm(&next, &result);
    return go_on ? end_comm(comms, ndev, NULL, NULL, go_on(comms, ndev, devlist)) : result;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm,
                           ncclConfig_t *config)
{
    static struct nccl_next next = {.name = "ncclCommSplit"};
    ncclResult_t result;
    split_fn *go_on = (split_fn *)begin_comm(&next, &result);
    return go_on ? end_comm(newcomm, 1, comm, config, go_on(comm, color, key, newcomm, config))
                 : result;
}

ncclResult_t ncclCommShrink(ncclComm_t comm, int *exclude, int count, ncclComm_t *newcomm,
                            ncclConfig_t *config, int flags)
{
    static struct nccl_next next = {.name = "ncclCommShrink"};
    ncclResult_t result;
    shrink_fn *go_on = (shrink_fn *)begin_comm(&next, &result);
    return go_on ? end_comm(newcomm, 1, comm, config,
                            go_on(comm, exclude, count, newcomm, config, flags))
                 : result;
}

/* ------------------------------------------------------------------ their end */

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    static struct nccl_next next = {.name = "ncclCommFinalize"};
    ncclResult_t result;
    comm_fn *go_on = (comm_fn *)begin(&next, &result);
    if (go_on && noted())
        qccl_nccl_closing(comm);
    return go_on ? end(go_on(comm)) : result;
}

ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags)
{
    static struct nccl_next next = {.name = "ncclCommRevoke"};
    ncclResult_t result;
    revoke_fn *go_on = (revoke_fn *)begin(&next, &result);
    if (go_on && noted())
        qccl_nccl_closing(comm);
    return go_on ? end(go_on(comm, flags)) : result;
}

/* Forgotten first: once NCCL has freed it, another thread may get the same address. */
ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    static struct nccl_next next = {.name = "ncclCommDestroy"};
    ncclResult_t result;
    comm_fn *go_on = (comm_fn *)begin(&next, &result);
    if (go_on && noted())
        qccl_nccl_gone(comm);
    return go_on ? end(go_on(comm)) : result;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    static struct nccl_next next = {.name = "ncclCommAbort"};
    ncclResult_t result;
    comm_fn *go_on = (comm_fn *)begin(&next, &result);
    if (go_on && noted())
        qccl_nccl_gone(comm);
    return go_on ? end(go_on(comm)) : result;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    static struct nccl_next next = {.name = "ncclCommGetAsyncError"};
    ncclResult_t result;
    async_error_fn *go_on = (async_error_fn *)begin(&next, &result);
    if (!go_on)
        return result;
    result = go_on(comm, error);
    if (noted() && result == ncclSuccess && *error != ncclSuccess && *error != ncclInProgress)
        qccl_nccl_failed(comm);
    return end(result);
}

/* ------------------------------------------------------------------ operations */

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t comm)
{
    static struct nccl_next next = {.name = "ncclRedOpCreatePreMulSum"};
    ncclResult_t result;
    op_create_fn *go_on = (op_create_fn *)begin(&next, &result);
    if (!go_on)
        return result;
    result = go_on(op, scalar, type, residence, comm);
    if (noted() && result == ncclSuccess)
        qccl_nccl_op_created(*op, type, comm);
    return end(result);
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    static struct nccl_next next = {.name = "ncclRedOpDestroy"};
    ncclResult_t result;
    op_destroy_fn *go_on = (op_destroy_fn *)begin(&next, &result);
    if (go_on && noted())
        qccl_nccl_op_gone(op, comm);
    return go_on ? end(go_on(op, comm)) : result;
}

/* ------------------------------------------------------------------ groups */

ncclResult_t ncclGroupStart(void)
{
    static struct nccl_next next = {.name = "ncclGroupStart"};
    ncclResult_t result;
    group_fn *go_on = (group_fn *)begin(&next, &result);
    if (!go_on)
        return result;
    result = go_on();
    if (noted() && result == ncclSuccess)
        qccl_nccl_group_opened();
    return end(result);
}

ncclResult_t ncclGroupEnd(void)
{
    static struct nccl_next next = {.name = "ncclGroupEnd"};
    ncclResult_t result;
    group_fn *go_on = (group_fn *)begin(&next, &result);
    if (!go_on)
        return result;
    result = go_on();
    if (noted())
        qccl_nccl_group_closed(result);
    return end(result);
}

/* Ends a group too, and starts nothing of it. */
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *info)
{
    static struct nccl_next next = {.name = "ncclGroupSimulateEnd"};
    ncclResult_t result;
    simulate_fn *go_on = (simulate_fn *)begin(&next, &result);
    if (!go_on)
        return result;
    result = go_on(info);
    if (noted())
        qccl_nccl_group_closed(result);
    return end(result);
}
