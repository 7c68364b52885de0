/* Calls that were merged into one, as if their tensors lay behind one another in every shard:
 *
 *   tensors    a: a0 a1 a2     b: b0 b1 b2        (0, 1, 2: the shard of each rank)
 *   message    a0 b0 | a1 b1 | a2 b2
 *
 * so that every rank's shard of the whole is its shards of the tensors.  An all-reduce has one
 * shard. */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "collectives/call.h"

/* ------------------------------------------------------------------ merging */

size_t qccl_call_bytes(const struct call *call)
{
    return call->send_bytes > call->recv_bytes ? call->send_bytes : call->recv_bytes;
}

bool qccl_calls_alike(const struct call *a, const struct call *b)
{
    const struct plan_key *x = &a->key, *y = &b->key;
    return a->comm == b->comm && x->collective == y->collective && x->type == y->type &&
           x->op == y->op && x->policy == y->policy && a->tensor == b->tensor &&
           a->replica == b->replica && !a->lost && !b->lost;
}

struct call qccl_call_empty(const struct call *like)
{
    struct call empty = *like;
    empty.key.count = empty.send_bytes = empty.recv_bytes = empty.in_place_offset = 0;
    return empty;
}

qcclResult_t qccl_call_append(struct call *into, const struct call *call)
{
    struct tensor *tensor = qccl_alloc(1, sizeof *tensor);
    if (!tensor)
        return qccl_fail(qcclOutOfMemory, "%s: no memory to collect a tensor", call->name);
    tensor->sendbuff = call->sendbuff;
    tensor->recvbuff = call->recvbuff;
    tensor->count = call->key.count;
    if (into->tensors)
        into->last->next = tensor;
    else
        into->tensors = tensor;
    into->last = tensor;
    /* All of them are proportional to the count. */
    into->key.count += call->key.count;
    into->send_bytes += call->send_bytes;
    into->recv_bytes += call->recv_bytes;
    into->in_place_offset += call->in_place_offset;
    return qcclSuccess;
}

void qccl_call_free(struct call *call)
{
    for (struct tensor *t = call->tensors, *next; t; t = next) {
        next = t->next;
        qccl_free(t);
    }
    qccl_free(call);
}

/* ------------------------------------------------------------------ moving tensors */

enum direction { FROM_SEND, FROM_RECV, TO_RECV };

/* Copies all tensors of a merged call from their send or receive buffers to the message, or back.
 * bytes: of the whole message. */
static void move_tensors(const struct call *call, char *message, size_t bytes, size_t elem_bytes,
                         enum direction direction)
{
    size_t shard_bytes = call->key.count * elem_bytes;
    size_t first = 0;
    for (const struct tensor *t = call->tensors; t; t = t->next) {
        size_t part = t->count * elem_bytes;
        const char *from = direction == FROM_SEND ? t->sendbuff : t->recvbuff;
        for (size_t s = 0; part && s * shard_bytes < bytes; s++) {
            char *here = message + s * shard_bytes + first;
            if (direction == TO_RECV)
                memcpy((char *)t->recvbuff + s * part, here, part);
            else
                memcpy(here, from + s * part, part);
        }
        first += part;
    }
}

qcclResult_t qccl_call_pack(const struct call *merged, struct call *packed)
{
    bool delta = merged->key.collective == qcclCollAllGatherDelta;
    size_t type_bytes = qcclTypeBytes(merged->key.type);
    size_t bytes = delta ? merged->send_bytes + merged->recv_bytes : qccl_call_bytes(merged);
    RETURN_IF_FAILED(qccl_comm_staging(merged->comm, bytes));
    char *larger = (char *)merged->comm->staging;
    char *smaller = larger + (delta ? merged->send_bytes : merged->in_place_offset);
    bool send_is_larger = delta || merged->send_bytes > merged->recv_bytes;
    char *send = send_is_larger ? larger : smaller, *recv = send_is_larger ? smaller : larger;
    move_tensors(merged, send, merged->send_bytes, delta ? sizeof(float) : type_bytes, FROM_SEND);
    if (delta) /* differences are taken from what the replica is */
        move_tensors(merged, recv, merged->recv_bytes, type_bytes, FROM_RECV);
    *packed = *merged;
    packed->sendbuff = send;
    packed->recvbuff = recv;
    return qcclSuccess;
}

void qccl_call_unpack(const struct call *packed)
{
    move_tensors(packed, packed->recvbuff, packed->recv_bytes, qcclTypeBytes(packed->key.type),
                 TO_RECV);
}
