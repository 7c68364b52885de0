/* Sharded data parallelism: what its files share.  shard.c makes it and runs a step, shard_state.c
 * saves, loads and repairs.
 *
 *   all elements, tensor after tensor   |  t0  |     t1      |t2|   t3    | 0 |
 *   buckets                             |    0      |    1      |    2       |
 *   shards of a bucket                  | r0 |r1|r2| ...
 */
#ifndef QCCL_OVERLAP_SHARD_H
#define QCCL_OVERLAP_SHARD_H

#include "collectives/call.h"

struct shard_bucket {
    size_t first, elems; /* the first element of all; of this rank's shard */
    size_t missing;      /* elements whose gradients are not finished yet */
    float *master, *m, *v;
    float *transient; /* with DUO: tentative weights */
    float *gradient;  /* without: the average */
    qcclEvent_t reduced, gathered;
};

struct qcclShard {
    struct qcclComm *comm;
    qcclOptimizer_t optimizer; /* size 0: the caller's own */
    qcclDataType_t type;
    float clip;
    bool plain;
    size_t elems, padded; /* of all tensors; with what fills the last bucket */
    int ntensors;
    size_t *offsets; /* ntensors + 1 */
    bool *finished, *decays;
    int nbuckets;
    struct shard_bucket *buckets;
    size_t bucket_elems; /* of all but the last bucket, all ranks' */
    char *weights;
    float *gradients;
    qcclDuo_t duo;
    size_t *duo_counts; /* of its buckets */
    int exact_policy;   /* gathers in full precision */
    uint64_t step;      /* steps taken */
    uint16_t version;   /* of the replicas */
    bool started;
    bool pending; /* with DUO: the last step is not committed */
    float last_rate;
    int owned; /* buckets that qcclShardOwned has given out in this step */
};

/* The elements of a bucket over all ranks. */
static inline size_t qccl_shard_bucket_elems(const struct qcclShard *s,
                                             const struct shard_bucket *b)
{
    return b->elems * (size_t)qccl_nranks(s->comm);
}

/* Where a bucket's weights begin, and this rank's part of them. */
char *qccl_shard_weights(const struct qcclShard *s, const struct shard_bucket *b);
char *qccl_shard_own_weights(const struct qcclShard *s, const struct shard_bucket *b);

/* Waits for the gathers in flight, which read masters and write weights. */
void qccl_shard_settle(const struct qcclShard *s);

/* The communicator's sequence number; *next becomes it where next is not NULL. */
uint32_t qccl_shard_sequence(struct qcclShard *s, const uint32_t *next);

/* Every rank's own part of the weights to all, in full precision; blocks.  It draws no random
 * numbers and so leaves the sequence number alone: training goes on as without it. */
qcclResult_t qccl_shard_gather_exact(struct qcclShard *s);
/* The same for the masters. */
qcclResult_t qccl_shard_gather_masters(struct qcclShard *s);

#endif
