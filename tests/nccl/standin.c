/* The functions of the NCCL for tests: see standin.h.
 *
 * As in NCCL each pncclX is strong and ncclX a weak name for it, and some call others by their
 * public names, which a preloaded library may have taken. */
#include "tests/nccl/standin.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PATIENCE = 20 }; /* seconds */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long ids;

/* A communicator that is to be made. */
struct birth {
    struct birth *next;
    ncclComm_t *slot;
    long id;
    int nranks, rank;
    bool blocking;
};

static _Thread_local int depth;
static _Thread_local struct birth *births;
static _Thread_local struct part *waiting;

/* ------------------------------------------------------------------ errors */

static ncclResult_t planted(const char *name)
{
    const char *plan = getenv("STANDIN_FAIL");
    size_t n = strlen(name);
    if (!plan || strncmp(plan, name, n) != 0 || plan[n] != '=')
        return ncclSuccess;
    return (ncclResult_t)strtol(plan + n + 1, NULL, 10);
}

/* ------------------------------------------------------------------ groups */

static struct timespec in_a_while(void)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += PATIENCE;
    return end;
}

/* For who has the lock, as the next three. */
static ncclResult_t wait_for_all(const struct birth *b)
{
    const struct timespec end = in_a_while();
    while ((*b->slot)->world->joined < b->nranks)
        if (pthread_cond_timedwait(&changed, &lock, &end) == ETIMEDOUT)
            return ncclRemoteError;
    return ncclSuccess;
}

static bool pending(const struct part *part, ncclComm_t comm)
{
    const struct part *p = comm->parts;
    while (p && p != part)
        p = p->next;
    return p != NULL;
}

static ncclResult_t bear(void)
{
    ncclResult_t result = ncclSuccess;
    for (struct birth *b = births; b; b = b->next)
        *b->slot = standin_join(standin_world(b->id, b->nranks), b->rank, b->blocking);
    pthread_cond_broadcast(&changed);
    while (births) {
        struct birth *b = births;
        ncclResult_t one = b->blocking ? wait_for_all(b) : ncclInProgress;
        result = one == ncclSuccess ? result : one;
        births = b->next;
        free(b);
    }
    return result;
}

static ncclResult_t post_all(void)
{
    enum { MANY = 64 };
    struct part *posted[MANY];
    ncclComm_t of[MANY];
    bool blocking = true;
    int n = 0;
    while (waiting && n < MANY) {
        struct part *p = waiting;
        waiting = p->next;
        p->next = NULL;
        posted[n] = p;
        of[n] = p->comm;
        blocking = blocking && p->comm->blocking;
        n++;
        standin_post(p);
    }
    pthread_cond_broadcast(&changed);
    const struct timespec end = in_a_while();
    for (int i = 0; blocking && i < n; i++)
        while (pending(posted[i], of[i]))
            if (pthread_cond_timedwait(&changed, &lock, &end) == ETIMEDOUT)
                return ncclRemoteError;
    return blocking ? ncclSuccess : ncclInProgress;
}

/* nccl.h declares them without saying that they take nothing. */
ncclResult_t pncclGroupStart(void);
ncclResult_t pncclGroupEnd(void);

ncclResult_t pncclGroupStart(void)
{
    depth++;
    return planted("ncclGroupStart");
}

static ncclResult_t end_group(void)
{
    if (--depth > 0)
        return ncclSuccess;
    pthread_mutex_lock(&lock);
    ncclResult_t born = births ? bear() : ncclSuccess;
    ncclResult_t posted = waiting ? post_all() : ncclSuccess;
    pthread_mutex_unlock(&lock);
    return born == ncclSuccess ? posted : born;
}

ncclResult_t pncclGroupEnd(void)
{
    if (depth == 0)
        return ncclInvalidUsage;
    ncclResult_t result = end_group(), plan = planted("ncclGroupEnd");
    return plan == ncclSuccess ? result : plan;
}

/* Tells the time that the group would take, and forgets it. */
ncclResult_t pncclGroupSimulateEnd(ncclSimInfo_t *info)
{
    if (depth == 0)
        return ncclInvalidUsage;
    depth--;
    while (depth == 0 && waiting) {
        struct part *p = waiting;
        waiting = p->next;
        free(p);
    }
    info->estimatedTime = 1.0f;
    return ncclSuccess;
}

/* ------------------------------------------------------------------ collectives */

static ncclResult_t add(const struct part *part)
{
    int made = part->op - ncclNumOps;
    if (!part->comm || part->comm->aborted || (made >= 0 && !part->comm->made[made]))
        return ncclInvalidArgument;
    struct part *copy = malloc(sizeof *copy), **end = &waiting;
    *copy = *part;
    depth++;
    while (*end)
        end = &(*end)->next;
    *end = copy;
    return end_group();
}

ncclResult_t pncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                            ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    ncclResult_t plan = planted("ncclAllReduce");
    const struct part part = {.comm = comm,
                              .kind = ALL_REDUCE,
                              .send = send,
                              .recv = recv,
                              .count = count,
                              .type = type,
                              .op = (int)op};
    (void)stream;
    return plan == ncclSuccess ? add(&part) : plan;
}

ncclResult_t pncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type,
                                ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    const struct part part = {.comm = comm,
                              .kind = REDUCE_SCATTER,
                              .send = send,
                              .recv = recv,
                              .count = count,
                              .type = type,
                              .op = (int)op};
    (void)stream;
    return add(&part);
}

/* Alone, it is another collective, by its public name. */
ncclResult_t pncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type,
                            ncclComm_t comm, cudaStream_t stream)
{
    const struct part part = {
        .comm = comm, .kind = ALL_GATHER, .send = send, .recv = recv, .count = count, .type = type};
    if (comm && comm->world->nranks == 1)
        return ncclAllReduce(send, recv, count, type, ncclSum, comm, stream);
    return add(&part);
}

ncclResult_t pncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type,
                            int root, ncclComm_t comm, cudaStream_t stream)
{
    const struct part part = {.comm = comm,
                              .kind = BROADCAST,
                              .send = send,
                              .recv = recv,
                              .count = count,
                              .type = type,
                              .root = root};
    (void)stream;
    return add(&part);
}

/* ------------------------------------------------------------------ communicators */

ncclResult_t pncclGetUniqueId(ncclUniqueId *id)
{
    pthread_mutex_lock(&lock);
    ids++;
    memset(id, 0, sizeof *id);
    memcpy(id, &ids, sizeof ids);
    pthread_mutex_unlock(&lock);
    return ncclSuccess;
}

static ncclResult_t make(ncclComm_t *slot, long id, int nranks, int rank, bool blocking)
{
    if (!slot || nranks < 1 || nranks > STANDIN_RANKS || rank < 0 || rank >= nranks)
        return ncclInvalidArgument;
    struct birth *b = malloc(sizeof *b);
    *b = (struct birth){.next = births,
                        .slot = slot,
                        .id = id,
                        .nranks = nranks,
                        .rank = rank,
                        .blocking = blocking};
    births = b;
    depth++;
    return end_group();
}

ncclResult_t pncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank,
                                     ncclConfig_t *config)
{
    long number;
    ncclResult_t plan = planted("ncclCommInitRankConfig");
    memcpy(&number, &id, sizeof number);
    return plan == ncclSuccess ? make(comm, number, nranks, rank, !config || config->blocking)
                               : plan;
}

ncclResult_t pncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank)
{
    return ncclCommInitRankConfig(comm, nranks, id, rank, NULL);
}

ncclResult_t pncclCommInitRankScalable(ncclComm_t *comm, int nranks, int rank, int nids,
                                       ncclUniqueId *named, ncclConfig_t *config)
{
    return nids < 1 ? ncclInvalidArgument
                    : ncclCommInitRankConfig(comm, nranks, named[0], rank, config);
}

ncclResult_t pncclCommInitAll(ncclComm_t *comms, int ndev, const int *devlist)
{
    ncclUniqueId id;
    (void)devlist;
    ncclGetUniqueId(&id);
    ncclGroupStart();
    for (int i = 0; i < ndev; i++)
        ncclCommInitRank(&comms[i], ndev, id, i);
    return ncclGroupEnd();
}

ncclResult_t pncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *slot,
                            ncclConfig_t *config)
{
    const struct part part = {
        .comm = comm, .kind = SPLIT, .color = color, .key = key, .slot = slot};
    (void)config;
    return add(&part);
}

ncclResult_t pncclCommShrink(ncclComm_t comm, int *exclude, int count, ncclComm_t *slot,
                             ncclConfig_t *config, int flags)
{
    int rank = comm->rank;
    (void)config;
    (void)flags;
    for (int i = 0; i < count; i++)
        rank -= exclude[i] < comm->rank;
    long id = (1L << 50) + comm->world->id * 100 + ++comm->shrinks;
    return make(slot, id, comm->world->nranks - count, rank, comm->blocking);
}

static ncclResult_t release(ncclComm_t comm)
{
    if (!comm)
        return ncclInvalidArgument;
    pthread_mutex_lock(&lock);
    comm->world->comms[comm->rank] = NULL;
    pthread_mutex_unlock(&lock);
    free(comm);
    return ncclSuccess;
}

ncclResult_t pncclCommDestroy(ncclComm_t comm)
{
    return release(comm);
}

ncclResult_t pncclCommAbort(ncclComm_t comm)
{
    return release(comm);
}

ncclResult_t pncclCommFinalize(ncclComm_t comm)
{
    return comm ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t pncclCommRevoke(ncclComm_t comm, int flags)
{
    if (!comm || flags)
        return ncclInvalidArgument;
    comm->aborted = true;
    return ncclSuccess;
}

ncclResult_t pncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    const char *plan = getenv("STANDIN_ASYNC");
    if (!comm || !error)
        return ncclInvalidArgument;
    pthread_mutex_lock(&lock);
    comm->polls -= comm->polls > 0;
    bool busy = comm->polls || comm->parts || comm->world->joined < comm->world->nranks;
    pthread_mutex_unlock(&lock);
    *error = plan ? (ncclResult_t)strtol(plan, NULL, 10) : busy ? ncclInProgress : ncclSuccess;
    return ncclSuccess;
}

ncclResult_t pncclCommCount(const ncclComm_t comm, int *count)
{
    if (!comm || comm->polls)
        return ncclInvalidArgument;
    *count = comm->world->nranks;
    return ncclSuccess;
}

ncclResult_t pncclCommUserRank(const ncclComm_t comm, int *rank)
{
    if (!comm || comm->polls)
        return ncclInvalidArgument;
    *rank = comm->rank;
    return ncclSuccess;
}

/* ------------------------------------------------------------------ the rest */

ncclResult_t pncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type,
                                       ncclScalarResidence_t residence, ncclComm_t comm)
{
    int i = 0;
    if (type != ncclFloat32 || residence != ncclScalarHostImmediate)
        return ncclInvalidArgument;
    while (i < STANDIN_OPS && comm->made[i])
        i++;
    if (i == STANDIN_OPS)
        return ncclInternalError;
    comm->made[i] = true;
    comm->scalars[i] = (double)*(float *)scalar;
    *op = (ncclRedOp_t)(ncclNumOps + i);
    return ncclSuccess;
}

ncclResult_t pncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    int i = (int)op - ncclNumOps;
    if (i < 0 || i >= STANDIN_OPS || !comm->made[i])
        return ncclInvalidArgument;
    comm->made[i] = false;
    return ncclSuccess;
}

ncclResult_t pncclGetVersion(int *version)
{
    *version = STANDIN_VERSION;
    return ncclSuccess;
}

const char *pncclGetErrorString(ncclResult_t result)
{
    return result == ncclSuccess ? "no error" : "an error of the NCCL for tests";
}

#pragma weak ncclAllGather = pncclAllGather
#pragma weak ncclAllReduce = pncclAllReduce
#pragma weak ncclBroadcast = pncclBroadcast
#pragma weak ncclCommAbort = pncclCommAbort
#pragma weak ncclCommCount = pncclCommCount
#pragma weak ncclCommDestroy = pncclCommDestroy
#pragma weak ncclCommFinalize = pncclCommFinalize
#pragma weak ncclCommGetAsyncError = pncclCommGetAsyncError
#pragma weak ncclCommInitAll = pncclCommInitAll
#pragma weak ncclCommInitRank = pncclCommInitRank
#pragma weak ncclCommInitRankConfig = pncclCommInitRankConfig
#pragma weak ncclCommInitRankScalable = pncclCommInitRankScalable
#pragma weak ncclCommRevoke = pncclCommRevoke
#pragma weak ncclCommShrink = pncclCommShrink
#pragma weak ncclCommSplit = pncclCommSplit
#pragma weak ncclCommUserRank = pncclCommUserRank
#pragma weak ncclGetErrorString = pncclGetErrorString
#pragma weak ncclGetUniqueId = pncclGetUniqueId
#pragma weak ncclGetVersion = pncclGetVersion
#pragma weak ncclGroupEnd = pncclGroupEnd
#pragma weak ncclGroupSimulateEnd = pncclGroupSimulateEnd
#pragma weak ncclGroupStart = pncclGroupStart
#pragma weak ncclRedOpCreatePreMulSum = pncclRedOpCreatePreMulSum
#pragma weak ncclRedOpDestroy = pncclRedOpDestroy
#pragma weak ncclReduceScatter = pncclReduceScatter
