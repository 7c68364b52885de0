/* qccl for training: optimizers, DUO, and sharded data parallelism.  qccl.h includes it. */
#ifndef QCCL_QCCL_TRAINING_H
#define QCCL_QCCL_TRAINING_H

#include "qccl/qccl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ optimizers
 *
 * For weights x with moments m and v, all fp32, and a gradient g, of n elements each
 * (docs/training.md has the formulas to the bit).  Commit changes x, m and v.  Tentative leaves
 * them alone and writes to result what x would become.  Every processor computes the same bits. */

typedef enum {
    qcclSgd = 0,   /* momentum: m = momentum m + g; x = (1 - rate decay) x - rate m; v is unused */
    qcclAdamW = 1, /* Loshchilov and Hutter 2019 */
} qcclOptimizerKind_t;

typedef struct {
    size_t size; /* sizeof(qcclOptimizer_t) */
    qcclOptimizerKind_t kind;
    float momentum;              /* SGD */
    float beta1, beta2, epsilon; /* AdamW */
    float decay;                 /* weight decay, decoupled */
} qcclOptimizer_t;

/* step counts from 1; scale multiplies the gradient first (clipping).  x, m, v and result may be
 * the same buffers as in any elementwise loop: result == x is allowed.  Pure functions: any thread.
 * Return qcclInvalidArgument (a NULL buffer for n > 0, a kind, beta or epsilon out of range). */
QCCL_API qcclResult_t qcclOptimizerCommit(const qcclOptimizer_t *optimizer, float rate,
                                          uint64_t step, float scale, float *x, float *m, float *v,
                                          const float *g, size_t n);
QCCL_API qcclResult_t qcclOptimizerTentative(const qcclOptimizer_t *optimizer, float rate,
                                             uint64_t step, float scale, const float *x,
                                             const float *m, const float *v, const float *g,
                                             float *result, size_t n);

/* ------------------------------------------------------------------ DUO
 *
 * Double Update Overlap (NeurIPS 2025): every bucket of gradients is reduce-scattered twice.  The
 * fast reduction, at 4, 1 or 0 bits, gives what the next forward pass needs; the slow one, in high
 * precision from a kept copy of the gradients, runs under the compute of the next step, and only it
 * reaches the optimizer's state.  With any optimizer, each step, for each bucket b:
 *
 *     qcclDuoReduce(duo, b, gradient, stream)   as the backward pass finishes the bucket
 *     qcclDuoCommit(duo, b, &exact)             from the second step on: commit the step before
 *     qcclDuoFast(duo, b, &q)                   tentative evaluation with q: weights for forward
 *
 * and after the last step once more qcclDuoCommit.  A duo is used by one thread at a time.
 * docs/training.md explains it; bench/examples/duo_momentum.c is a whole program. */

typedef struct qcclDuo *qcclDuo_t;

enum {
    qcclDuoWait = 0, /* a commit waits for its slow reduction, however long */
    qcclDuoDrop = 1, /* when commits of a step had to wait on any rank, the slow reductions of the
                        next step travel as bf16 */
};

typedef struct {
    size_t size;          /* sizeof(qcclDuoConfig_t) */
    const size_t *counts; /* elements of each bucket's gradient, multiples of the ranks */
    int nbuckets;
    /* A codec ("int4", "sign1", "sr1", "int4:hadamard=32 intra=int8"), or "local": nothing is sent,
     * the owner's own gradient stands for the average.  NULL: int4. */
    const char *fast;
    /* "fp32", "bf16"; or "residual int8", "residual int4": g - Q(g) travels and completes the fast
     * sum (fast without hadamard=, intra= and local then; communicators of different seeds).
     * NULL: fp32. */
    const char *slow;
    int late; /* qcclDuoWait or qcclDuoDrop (fp32 only) */
} qcclDuoConfig_t;

/* Every rank calls it; blocks; compares configurations (qcclMismatch on every rank).  The two
 * communicators have the same ranks in the same order, are not the same, and outlive the duo; their
 * policies are not used.  Each bucket keeps two copies of its gradient and three shards. */
QCCL_API qcclResult_t qcclDuoCreate(qcclDuo_t *duo, qcclComm_t fast_comm, qcclComm_t slow_comm,
                                    const qcclDuoConfig_t *config);
/* Waits for the slow reductions in flight; NULL is allowed. */
QCCL_API qcclResult_t qcclDuoDestroy(qcclDuo_t duo);
/* Starts both reductions, averages, of counts[bucket] fp32 gradients.  gradient may be reused when
 * the call returns (stream NULL) or the stream is done.  Ranks reduce buckets in the same order.
 * qcclInvalidUsage when two reductions of the bucket wait for their commits already. */
QCCL_API qcclResult_t qcclDuoReduce(qcclDuo_t duo, int bucket, const float *gradient, void *stream);
/* Waits for the fast reduction of the bucket's newest qcclDuoReduce.  *shard = this rank's
 * counts[bucket] / nranks values, the library's until the bucket's next qcclDuoReduce. */
QCCL_API qcclResult_t qcclDuoFast(qcclDuo_t duo, int bucket, const float **shard);
/* Waits for the slow reduction of the bucket's oldest uncommitted qcclDuoReduce, and takes it off.
 * *shard: until the bucket's next qcclDuoReduce.  How long it waited is in qcclCommGetStats of
 * slow_comm, and in the log. */
QCCL_API qcclResult_t qcclDuoCommit(qcclDuo_t duo, int bucket, const float **shard);

/* ------------------------------------------------------------------ sharded data parallelism
 *
 * ZeRO-1/2 style training (Rajbhandari et al. 2020) with SDP4Bit's exchanges (NeurIPS 2024): every
 * rank holds all weights, and for its shard of each bucket fp32 masters and the optimizer's
 * moments. A step reduce-scatters gradients, updates the owned shards, and all-gathers weight
 * differences.
 *
 *     qcclShardCreate, fill in the weights, qcclShardStart
 *     each step:  forward, backward; qcclShardReduce(tensor) as each gradient is finished
 *                 qcclShardStep
 *
 * Codecs are the communicator's policy, such as QCCL_SDP4BIT_POLICY. */
#define QCCL_SDP4BIT_POLICY \
    "reducescatter: int4:hadamard=32 intra=int8; delta: int4:group=2048; min=0"

typedef struct qcclShard *qcclShard_t;

typedef struct {
    size_t size;               /* sizeof(qcclShardConfig_t) */
    qcclDataType_t datatype;   /* of the weights: fp32, bf16, fp16; 0: fp32 */
    size_t bucket_bytes;       /* of fp32 gradients; 0: 4 MiB */
    qcclOptimizer_t optimizer; /* ours; its size 0: the caller's own (qcclShardOwned) */
    const uint8_t *undecayed;  /* a byte a tensor: 1: without weight decay; NULL: none is */
    float clip;                /* largest norm of the averaged gradient; 0: any */
    int plain; /* 1: weights themselves travel (allgather: of the policy), not differences */
    qcclComm_t slow_comm;       /* with duo: for the slow reductions */
    const qcclDuoConfig_t *duo; /* NULL: no DUO; else its fast, slow and late */
} qcclShardConfig_t;

/* Every rank calls it; blocks; compares what was given.  counts: elements of each of ntensors
 * tensors. The communicators outlive it. */
QCCL_API qcclResult_t qcclShardCreate(qcclShard_t *shard, qcclComm_t comm, const size_t *counts,
                                      int ntensors, const qcclShardConfig_t *config);
/* Waits for what is in flight; NULL is allowed. */
QCCL_API qcclResult_t qcclShardDestroy(qcclShard_t shard);
/* Where a tensor's weights (of the config's type) and fp32 gradients are, the caller's to read and
 * write between calls (weights: alike on every rank), without gaps.  Either may be NULL. */
QCCL_API qcclResult_t qcclShardTensor(qcclShard_t shard, int tensor, void **weights,
                                      float **gradients);
/* The weights that were filled in become masters (each owner's count) and are gathered in full
 * precision.  Collective; blocks. */
QCCL_API qcclResult_t qcclShardStart(qcclShard_t shard);
/* The tensor's gradient is finished; once all of a bucket are, its reduction starts on stream.
 * Every rank finishes tensors in the same order. */
QCCL_API qcclResult_t qcclShardReduce(qcclShard_t shard, int tensor, void *stream);
/* Ends the step: the reductions, with DUO the commit of the step before, the optimizer at learning
 * rate `rate`, the gather of weights.  stream as in qcclShardReduce, the same one; the weights and
 * gradients are the caller's again when the call returns (NULL), or for each tensor after
 * qcclShardWait.  qcclMismatch on every rank, with replicas untouched, when their versions differ
 * (on a stream it is the stream's error); qcclShardResync repairs that. */
QCCL_API qcclResult_t qcclShardStep(qcclShard_t shard, float rate, void *stream);
/* Returns when the tensor's new weights are there. */
QCCL_API qcclResult_t qcclShardWait(qcclShard_t shard, int tensor);
/* The caller's own optimizer, between qcclShardReduce of all tensors and qcclShardGather, which
 * then replace qcclShardStep: waits for the reduction of a bucket (0 .. *nbuckets - 1).  *count
 * values that this rank owns: *gradient, the average, and *master, to be updated in place; *first:
 * the number of the first, counting all tensors' elements.  With DUO *gradient is the exact one of
 * the step before, NULL in the first step, *fast the newest and *transient where its tentative
 * weights belong; both NULL without. */
typedef struct {
    int nbuckets;
    size_t first, count;
    const float *gradient, *fast;
    float *master, *transient;
} qcclOwned_t;
QCCL_API qcclResult_t qcclShardOwned(qcclShard_t shard, int bucket, qcclOwned_t *owned);
QCCL_API qcclResult_t qcclShardGather(qcclShard_t shard, void *stream);
/* With DUO, commits the last step and gathers the masters in full precision, so that what is
 * evaluated or saved saw exact gradients only; without, does nothing.  Collective; blocks. */
QCCL_API qcclResult_t qcclShardFlush(qcclShard_t shard);
/* Gathers the masters in full precision.  Collective; blocks. */
QCCL_API qcclResult_t qcclShardResync(qcclShard_t shard);
/* This rank's part of the training state: masters, moments, its shards of the weights as all have
 * them, step and version.  Between steps, with DUO after a flush; else qcclInvalidUsage.
 * qcclShardLoad is collective: it gathers the weights; a state of another layout, rank or version
 * than the others' is qcclCorruptMessage or qcclMismatch and changes nothing. */
QCCL_API qcclResult_t qcclShardStateBytes(qcclShard_t shard, size_t *bytes);
QCCL_API qcclResult_t qcclShardSave(qcclShard_t shard, void *state, size_t capacity);
QCCL_API qcclResult_t qcclShardLoad(qcclShard_t shard, const void *state, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
