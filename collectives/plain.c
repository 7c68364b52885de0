/* Uncompressed collectives over a byte mover: direct exchange, each shard combined by its owner in
 * rank order.
 *
 * Chunks bound the memory for received parts; results go straight to their place. */
#include <string.h>

#include "base/status.h"
#include "collectives/combine.h"
#include "collectives/comm.h"

enum { PLAIN_CHUNK_BYTES = 1 << 18 };

/* A reduction being run. */
struct exchange {
    struct qcclComm *comm;
    const char *input;
    char *output;              /* of this rank's shard */
    size_t shard_elems, count; /* count: all elements of the input */
    qcclDataType_t type;
    qcclRedOp_t op;
    size_t bytes; /* of one element */
    size_t chunk_elems;
    char *received;
    const void **parts;
};

static size_t chunk_of(const struct exchange *x, int shard, size_t begin)
{
    size_t first = (size_t)shard * x->shard_elems + begin;
    size_t end = (size_t)(shard + 1) * x->shard_elems;
    end = end < x->count ? end : x->count;
    if (begin >= x->shard_elems || first >= end)
        return 0;
    return end - first < x->chunk_elems ? end - first : x->chunk_elems;
}

static const char *input_at(const struct exchange *x, int shard, size_t begin)
{
    return x->input + ((size_t)shard * x->shard_elems + begin) * x->bytes;
}

static qcclResult_t send_if(const qcclTransport_t *t, const void *buffer, size_t bytes, int peer)
{
    return bytes ? t->isend(t->context, buffer, bytes, peer) : qcclSuccess;
}

static qcclResult_t recv_if(const qcclTransport_t *t, void *buffer, size_t bytes, int peer)
{
    return bytes ? t->irecv(t->context, buffer, bytes, peer) : qcclSuccess;
}

/* Chunk `begin` of every shard to its owner, combined there into x->output. */
static qcclResult_t reduce_chunk(struct exchange *x, size_t begin)
{
    const qcclTransport_t *t = &x->comm->transport.mover;
    size_t own = chunk_of(x, t->rank, begin);
    for (int k = 1; k < t->nranks; k++) {
        int from = (t->rank + t->nranks - k) % t->nranks;
        RETURN_IF_FAILED(recv_if(t, x->received + (size_t)from * x->chunk_elems * x->bytes,
                                 own * x->bytes, from));
    }
    for (int k = 1; k < t->nranks; k++) {
        int to = (t->rank + k) % t->nranks;
        RETURN_IF_FAILED(send_if(t, input_at(x, to, begin), chunk_of(x, to, begin) * x->bytes, to));
    }
    RETURN_IF_FAILED(t->wait(t->context, x->comm->timeout));
    for (int r = 0; r < t->nranks; r++)
        x->parts[r] = r == t->rank ? input_at(x, r, begin)
                                   : x->received + (size_t)r * x->chunk_elems * x->bytes;
    qccl_combine(x->output + begin * x->bytes, x->parts, t->nranks, own, x->type, x->op);
    return qcclSuccess;
}

/* The combined chunk of every shard to everyone. */
static qcclResult_t gather_chunk(struct exchange *x, char *output, size_t begin)
{
    const qcclTransport_t *t = &x->comm->transport.mover;
    size_t own = chunk_of(x, t->rank, begin) * x->bytes;
    for (int k = 1; k < t->nranks; k++) {
        int from = (t->rank + t->nranks - k) % t->nranks;
        char *to = output + ((size_t)from * x->shard_elems + begin) * x->bytes;
        RETURN_IF_FAILED(recv_if(t, to, chunk_of(x, from, begin) * x->bytes, from));
    }
    for (int k = 1; k < t->nranks; k++)
        RETURN_IF_FAILED(send_if(t, x->output + begin * x->bytes, own, (t->rank + k) % t->nranks));
    return t->wait(t->context, x->comm->timeout);
}

/* gather: NULL, or the whole result of an allreduce. */
static qcclResult_t run_exchange(struct exchange *x, char *gather)
{
    size_t n = (size_t)qccl_nranks(x->comm), pointers = (n * sizeof *x->parts + 63) / 64 * 64;
    x->bytes = qcclTypeBytes(x->type);
    x->chunk_elems = PLAIN_CHUNK_BYTES / x->bytes;
    if (x->chunk_elems > x->shard_elems)
        x->chunk_elems = x->shard_elems;
    RETURN_IF_FAILED(qccl_comm_workspace(x->comm, pointers + n * x->chunk_elems * x->bytes));
    x->parts = (const void **)(void *)x->comm->workspace;
    x->received = (char *)x->comm->workspace + pointers;
    for (size_t begin = 0; begin < x->shard_elems; begin += x->chunk_elems) {
        RETURN_IF_FAILED(reduce_chunk(x, begin));
        if (gather)
            RETURN_IF_FAILED(gather_chunk(x, gather, begin));
    }
    return qcclSuccess;
}

qcclResult_t qccl_plain_allreduce(struct qcclComm *comm, const void *sendbuff, void *recvbuff,
                                  size_t count, qcclDataType_t type, qcclRedOp_t op)
{
    size_t n = (size_t)qccl_nranks(comm), shard = count / n + (count % n != 0);
    struct exchange x = {
        .comm = comm,
        .input = sendbuff,
        .output = (char *)recvbuff + (size_t)qccl_rank(comm) * shard * qcclTypeBytes(type),
        .shard_elems = shard,
        .count = count,
        .type = type,
        .op = op,
    };
    return run_exchange(&x, recvbuff);
}

qcclResult_t qccl_plain_reducescatter(struct qcclComm *comm, const void *sendbuff, void *recvbuff,
                                      size_t recvcount, qcclDataType_t type, qcclRedOp_t op)
{
    struct exchange x = {
        .comm = comm,
        .input = sendbuff,
        .output = recvbuff,
        .shard_elems = recvcount,
        .count = recvcount * (size_t)qccl_nranks(comm),
        .type = type,
        .op = op,
    };
    return run_exchange(&x, NULL);
}

qcclResult_t qccl_plain_allgather(struct qcclComm *comm, const void *sendbuff, void *recvbuff,
                                  size_t sendcount, qcclDataType_t type)
{
    const qcclTransport_t *t = &comm->transport.mover;
    size_t bytes = sendcount * qcclTypeBytes(type);
    char *out = recvbuff, *own = out + (size_t)t->rank * bytes;
    if (bytes && own != sendbuff)
        memcpy(own, sendbuff, bytes);
    for (int k = 1; k < t->nranks; k++) {
        int from = (t->rank + t->nranks - k) % t->nranks;
        RETURN_IF_FAILED(recv_if(t, out + (size_t)from * bytes, bytes, from));
    }
    for (int k = 1; k < t->nranks; k++)
        RETURN_IF_FAILED(send_if(t, own, bytes, (t->rank + k) % t->nranks));
    return t->wait(t->context, comm->timeout);
}
