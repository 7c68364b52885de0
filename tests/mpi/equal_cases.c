/* See equal_cases.h. */
#include "tests/mpi/equal_cases.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "tests/mpi/rank_test.h"

enum { ROOM = 64, MAX_RANKS = 64 };

/* Values of very different size from group to group, and every seventh case with a NaN and an
 * infinity. */
static float value_of(const struct equal_case *c, int rank, size_t i)
{
    uint64_t seed = ((uint64_t)c->number << 40) + ((uint64_t)(rank + 1) << 32) + i;
    float value = mixed_float(seed);
    if (c->number % 7 == 3 && i % 301 == 40)
        return rank % 2 ? INFINITY : NAN;
    return ldexpf(value, (int)((i / 96) * 7 % 23) - 11);
}

static void put(void *values, size_t i, qcclDataType_t type, float value)
{
    uint16_t half = type == qcclFloat16 ? qccl_fp16_nearest(value) : qccl_bf16_nearest(value);
    if (type == qcclFloat32)
        memcpy((char *)values + i * sizeof value, &value, sizeof value);
    else
        memcpy((char *)values + i * sizeof half, &half, sizeof half);
}

static void fill(const struct equal_case *c, void *values, size_t count, qcclDataType_t type,
                 int rank)
{
    for (size_t i = 0; i < count; i++)
        put(values, i, type, value_of(c, rank, i));
}

static bool is_delta(const struct equal_case *c)
{
    return c->collective == qcclCollAllGatherDelta;
}

static size_t send_bytes(const struct equal_case *c, int nranks)
{
    size_t shards = c->collective == qcclCollReduceScatter ? (size_t)nranks : 1;
    return shards * c->count * qcclTypeBytes(is_delta(c) ? qcclFloat32 : c->type);
}

size_t equal_result_bytes(const struct equal_case *c, int nranks)
{
    bool gathers = c->collective == qcclCollAllGather || is_delta(c);
    return (gathers ? (size_t)nranks : 1) * c->count * qcclTypeBytes(c->type);
}

bool equal_buffers_make(struct equal_buffers *b, const struct equal_case *c, int rank, int nranks)
{
    size_t shard = c->count * qcclTypeBytes(c->type), place = (size_t)rank * shard;
    qcclDataType_t send_type = is_delta(c) ? qcclFloat32 : c->type;
    b->result_bytes = equal_result_bytes(c, nranks);
    b->send_memory = malloc(send_bytes(c, nranks) + ROOM);
    b->recv_memory = malloc(b->result_bytes + ROOM);
    if (!b->send_memory || !b->recv_memory) {
        equal_buffers_free(b);
        return false;
    }
    b->send = b->send_memory + c->offset;
    b->recv = b->recv_memory + c->offset;
    memset(b->recv_memory, 0x5a, b->result_bytes + ROOM);
    if (is_delta(c)) /* the replica is the same everywhere */
        fill(c, b->recv, (size_t)nranks * c->count, c->type, -1);
    if (c->in_place && c->collective == qcclCollAllReduce)
        b->recv = b->send;
    if (c->in_place && c->collective == qcclCollReduceScatter)
        b->recv = (char *)b->send + place;
    if (c->in_place && c->collective == qcclCollAllGather)
        b->send = (char *)b->recv + place;
    fill(c, b->send, send_bytes(c, nranks) / qcclTypeBytes(send_type), send_type, rank);
    return true;
}

void equal_buffers_free(struct equal_buffers *b)
{
    free(b->send_memory);
    free(b->recv_memory);
    b->send_memory = b->recv_memory = NULL;
}

qcclResult_t equal_case_run(const struct equal_case *c, const struct equal_buffers *b,
                            qcclComm_t comm)
{
    switch (c->collective) {
    case qcclCollAllReduce:
        return qcclAllReduce(b->send, b->recv, c->count, c->type, c->op, comm, NULL);
    case qcclCollReduceScatter:
        return qcclReduceScatter(b->send, b->recv, c->count, c->type, c->op, comm, NULL);
    case qcclCollAllGather:
        return qcclAllGather(b->send, b->recv, c->count, c->type, comm, NULL);
    default:
        return qcclAllGatherDelta(b->send, b->recv, c->count, c->type, comm, NULL);
    }
}

/* ------------------------------------------------------------------ the same on threads */

struct worker {
    const struct equal_case *c;
    qcclComm_t comm;
    int rank, nranks;
    unsigned char *result;
    bool right;
    char sentence[300];
};

static void *work(void *argument)
{
    struct worker *w = argument;
    struct equal_buffers buffers = {.send_memory = NULL};
    if (!equal_buffers_make(&buffers, w->c, w->rank, w->nranks))
        return NULL;
    w->right = equal_case_run(w->c, &buffers, w->comm) == qcclSuccess;
    if (w->right)
        memcpy(w->result, buffers.recv, buffers.result_bytes);
    else
        snprintf(w->sentence, sizeof w->sentence, "%.250s", qcclGetLastError());
    equal_buffers_free(&buffers);
    return NULL;
}

bool equal_case_run_threads(const struct equal_case *c, const qcclComm_t *comms, int nranks,
                            unsigned char *results, char *sentence, size_t capacity)
{
    struct equal_case plain = *c;
    struct worker workers[MAX_RANKS];
    pthread_t threads[MAX_RANKS];
    bool right = true;
    require(nranks <= MAX_RANKS, "%d ranks are more than %d", nranks, MAX_RANKS);
    plain.in_place = false;
    plain.offset = 0;
    for (int r = 0; r < nranks; r++) {
        workers[r] = (struct worker){.c = &plain, .comm = comms[r], .rank = r, .nranks = nranks};
        workers[r].result = results + (size_t)r * equal_result_bytes(c, nranks);
        require(pthread_create(&threads[r], NULL, work, &workers[r]) == 0, "no thread");
    }
    for (int r = 0; r < nranks; r++)
        pthread_join(threads[r], NULL);
    for (int r = 0; r < nranks && right; r++) {
        right = workers[r].right;
        if (!right)
            snprintf(sentence, capacity, "thread rank %d: %s", r, workers[r].sentence);
    }
    return right;
}
