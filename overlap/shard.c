/* Sharded data parallelism: layout, the step, and the caller's own optimizer. */
#include "overlap/shard.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/memory.h"
#include "base/status.h"
#include "overlap/submit.h"

/* A shard of a full bucket is a whole number of the groups that weight differences have. */
enum { SHARD_UNIT = 2048, LAST_UNIT = 128, BUCKET_BYTES = 4 << 20 };

char *qccl_shard_weights(const struct qcclShard *s, const struct shard_bucket *b)
{
    return s->weights + b->first * qcclTypeBytes(s->type);
}

char *qccl_shard_own_weights(const struct qcclShard *s, const struct shard_bucket *b)
{
    return qccl_shard_weights(s, b) +
           (size_t)qccl_rank(s->comm) * b->elems * qcclTypeBytes(s->type);
}

/* ------------------------------------------------------------------ making and freeing */

static void free_bucket(struct shard_bucket *b)
{
    qcclEventDestroy(b->reduced);
    qcclEventDestroy(b->gathered);
    qccl_free(b->master);
    qccl_free(b->m);
    qccl_free(b->v);
    qccl_free(b->transient);
    qccl_free(b->gradient);
}

void qccl_shard_settle(const struct qcclShard *s)
{
    for (int b = 0; s->buckets && b < s->nbuckets; b++)
        if (s->buckets[b].gathered)
            qcclEventSynchronize(s->buckets[b].gathered);
}

static void free_shard(struct qcclShard *s)
{
    for (int b = 0; s->buckets && b < s->nbuckets; b++)
        if (s->buckets[b].reduced) /* what is in flight writes to the buckets */
            qcclEventSynchronize(s->buckets[b].reduced);
    qccl_shard_settle(s);
    qcclDuoDestroy(s->duo);
    for (int b = 0; s->buckets && b < s->nbuckets; b++)
        free_bucket(&s->buckets[b]);
    qccl_free(s->buckets);
    qccl_free(s->duo_counts);
    qccl_free(s->offsets);
    qccl_free(s->finished);
    qccl_free(s->decays);
    qccl_free(s->weights);
    qccl_free(s->gradients);
    qccl_free(s);
}

static qcclResult_t check_config(const size_t *counts, int ntensors, const qcclShardConfig_t *c)
{
    CHECK_ARG(c->size == sizeof *c, "qcclShardCreate: config.size is %zu; set it to %zu", c->size,
              sizeof *c);
    CHECK_ARG(counts && ntensors >= 1, "qcclShardCreate: %d tensors, counts %p", ntensors,
              (const void *)counts);
    CHECK_ARG(!c->datatype || c->datatype == qcclFloat32 || c->datatype == qcclBfloat16 ||
                  c->datatype == qcclFloat16,
              "qcclShardCreate: datatype %d is none of float32, bfloat16, float16",
              (int)c->datatype);
    CHECK_ARG(c->clip >= 0, "qcclShardCreate: clip is %g", (double)c->clip);
    CHECK_ARG(!c->duo || c->slow_comm, "qcclShardCreate: duo without slow_comm");
    size_t total = 0;
    for (int t = 0; t < ntensors; t++) {
        CHECK_ARG(counts[t] <= ((size_t)1 << 40) - total,
                  "qcclShardCreate: more than 2^40 elements up to tensor %d", t);
        total += counts[t];
    }
    CHECK_ARG(total, "qcclShardCreate: all %d tensors are empty", ntensors);
    if (c->optimizer.size) { /* its own check, on nothing */
        float none = 0;
        return qcclOptimizerCommit(&c->optimizer, 0, 1, 1, &none, &none, &none, &none, 0);
    }
    return qcclSuccess;
}

/* How all elements are cut into buckets and shards. */
static void set_geometry(struct qcclShard *s, size_t bucket_bytes)
{
    size_t n = (size_t)qccl_nranks(s->comm);
    size_t wanted = (bucket_bytes ? bucket_bytes : BUCKET_BYTES) / sizeof(float) / n;
    size_t shard = (wanted + SHARD_UNIT - 1) / SHARD_UNIT * SHARD_UNIT;
    shard = shard ? shard : SHARD_UNIT;
    s->bucket_elems = shard * n;
    size_t full = s->elems / s->bucket_elems, rest = s->elems % s->bucket_elems;
    size_t last = (rest + n * LAST_UNIT - 1) / (n * LAST_UNIT) * LAST_UNIT;
    s->nbuckets = (int)(full + (rest != 0));
    s->padded = full * s->bucket_elems + last * n;
}

static size_t elems_left(const struct qcclShard *s, const struct shard_bucket *b)
{
    size_t all = qccl_shard_bucket_elems(s, b), left = s->elems - b->first;
    return left < all ? left : all;
}

static bool make_bucket(struct qcclShard *s, int index, bool duo)
{
    struct shard_bucket *b = &s->buckets[index];
    b->first = (size_t)index * s->bucket_elems;
    size_t end = b->first + s->bucket_elems < s->padded ? b->first + s->bucket_elems : s->padded;
    b->elems = (end - b->first) / (size_t)qccl_nranks(s->comm);
    b->missing = elems_left(s, b);
    b->master = qccl_alloc(b->elems, sizeof(float));
    b->m = qccl_alloc(b->elems, sizeof(float));
    b->v = qccl_alloc(b->elems, sizeof(float));
    b->gradient = duo ? NULL : qccl_alloc(b->elems, sizeof(float));
    b->transient = duo ? qccl_alloc(b->elems, sizeof(float)) : NULL;
    return b->master && b->m && b->v && (b->gradient || b->transient) &&
           qcclEventCreate(&b->reduced) == qcclSuccess &&
           qcclEventCreate(&b->gathered) == qcclSuccess;
}

static bool allocate(struct qcclShard *s, const size_t *counts, const qcclShardConfig_t *config)
{
    size_t n = (size_t)s->ntensors;
    s->offsets = qccl_alloc(n + 1, sizeof *s->offsets);
    s->finished = qccl_alloc(n, sizeof *s->finished);
    s->decays = qccl_alloc(n, sizeof *s->decays);
    if (!s->offsets || !s->finished || !s->decays)
        return false;
    for (size_t t = 0; t < n; t++) {
        s->offsets[t + 1] = s->offsets[t] + counts[t];
        s->decays[t] = !config->undecayed || !config->undecayed[t];
    }
    s->elems = s->offsets[n];
    set_geometry(s, config->bucket_bytes);
    s->weights = qccl_alloc(s->padded, qcclTypeBytes(s->type));
    s->gradients = qccl_alloc(s->padded, sizeof(float));
    s->buckets = qccl_alloc((size_t)s->nbuckets, sizeof *s->buckets);
    bool made = s->weights && s->gradients && s->buckets;
    for (int b = 0; made && b < s->nbuckets; b++)
        made = make_bucket(s, b, config->duo != NULL);
    if (!made || !config->duo)
        return made;
    s->duo_counts = qccl_alloc((size_t)s->nbuckets, sizeof *s->duo_counts);
    for (int b = 0; s->duo_counts && b < s->nbuckets; b++)
        s->duo_counts[b] = qccl_shard_bucket_elems(s, &s->buckets[b]);
    return s->duo_counts != NULL;
}

static qcclResult_t make_duo(struct qcclShard *s, const qcclShardConfig_t *config)
{
    qcclDuoConfig_t duo = *config->duo;
    duo.counts = s->duo_counts;
    duo.nbuckets = s->nbuckets;
    return qcclDuoCreate(&s->duo, s->comm, config->slow_comm, &duo);
}

/* Everything that can fail on one rank alone. */
static qcclResult_t make_shard(struct qcclShard **made, qcclComm_t comm, const size_t *counts,
                               int ntensors, const qcclShardConfig_t *config)
{
    struct policy exact;
    RETURN_IF_FAILED(check_config(counts, ntensors, config));
    RETURN_IF_FAILED(qccl_policy_parse("allgather: none; min=0", &exact));
    struct qcclShard *s = qccl_alloc(1, sizeof *s);
    if (!s)
        return qccl_fail(qcclOutOfMemory, "no memory for a shard");
    s->comm = comm;
    s->type = config->datatype ? config->datatype : qcclFloat32;
    s->optimizer = config->optimizer;
    s->clip = config->clip;
    s->plain = config->plain;
    s->ntensors = ntensors;
    qcclResult_t result = qcclSuccess;
    if (!allocate(s, counts, config))
        result = qccl_fail(qcclOutOfMemory, "no memory for the shards of %zu weights", s->elems);
    if (result == qcclSuccess)
        result = qccl_comm_add_policy(comm, &exact, &s->exact_policy);
    if (result == qcclSuccess)
        *made = s;
    else
        free_shard(s);
    return result;
}

static void describe(const struct qcclShard *s, const qcclShardConfig_t *c, struct record *record)
{
    const qcclOptimizer_t *o = &c->optimizer;
    size_t n = (size_t)s->ntensors;
    snprintf(record->text, sizeof record->text,
             "tensors=%d\nelements=%zu\noffsets=hash %016llx\nundecayed=hash %016llx\n"
             "datatype=%d\nbucket=%zu\noptimizer=%d %.9g %.9g %.9g %.9g "
             "%.9g\nclip=%.9g\nplain=%d\nduo=%d",
             s->ntensors, s->elems,
             (unsigned long long)XXH3_64bits(s->offsets, (n + 1) * sizeof *s->offsets),
             (unsigned long long)XXH3_64bits(s->decays, n * sizeof *s->decays), (int)s->type,
             s->bucket_elems, o->size ? (int)o->kind : -1, (double)o->momentum, (double)o->beta1,
             (double)o->beta2, (double)o->epsilon, (double)o->decay, (double)c->clip, s->plain,
             c->duo != NULL);
}

qcclResult_t qcclShardCreate(qcclShard_t *shard, qcclComm_t comm, const size_t *counts,
                             int ntensors, const qcclShardConfig_t *config)
{
    CHECK_ARG(shard && config, "qcclShardCreate: %s is NULL", shard ? "config" : "shard");
    RETURN_IF_FAILED(qccl_comm_usable(comm, "qcclShardCreate"));
    struct qcclShard *made = NULL;
    struct record record = {""};
    qcclResult_t own = make_shard(&made, comm, counts, ntensors, config);
    char sentence[600];
    snprintf(sentence, sizeof sentence, "%s", qccl_last_error());
    if (own == qcclSuccess)
        describe(made, config, &record);
    else
        snprintf(record.text, sizeof record.text, "shard=wrong on this rank: %s", sentence);
    qccl_comm_enter(comm);
    qcclResult_t result = qccl_agree(comm, "shards", &record);
    qccl_comm_end_turn(comm);
    if (own != qcclSuccess)
        return qccl_fail(own, "%s", sentence);
    if (result == qcclSuccess && config->duo)
        result = make_duo(made, config);
    if (result == qcclSuccess)
        *shard = made;
    else
        free_shard(made);
    return result;
}

qcclResult_t qcclShardDestroy(qcclShard_t shard)
{
    if (shard)
        free_shard(shard);
    return qcclSuccess;
}

qcclResult_t qcclShardTensor(qcclShard_t shard, int tensor, void **weights, float **gradients)
{
    CHECK_ARG(shard, "qcclShardTensor: the shard is NULL");
    CHECK_ARG(tensor >= 0 && tensor < shard->ntensors, "qcclShardTensor: tensor %d is not in 0..%d",
              tensor, shard->ntensors - 1);
    size_t at = shard->offsets[tensor];
    if (weights)
        *weights = shard->weights + at * qcclTypeBytes(shard->type);
    if (gradients)
        *gradients = shard->gradients + at;
    return qcclSuccess;
}

/* ------------------------------------------------------------------ gradients */

static qcclResult_t start_reduction(struct qcclShard *s, int index, void *stream)
{
    struct shard_bucket *b = &s->buckets[index];
    const float *gradient = s->gradients + b->first;
    if (s->duo)
        return qcclDuoReduce(s->duo, index, gradient, stream);
    struct plan_key key = {
        .collective = qcclCollReduceScatter, .count = b->elems, .type = qcclFloat32, .op = qcclAvg};
    RETURN_IF_FAILED(qccl_enter("qcclShardReduce", &key, gradient, b->gradient, s->comm, stream));
    return qcclEventRecord(b->reduced, stream);
}

static size_t overlap(size_t a, size_t a_end, size_t b, size_t b_end)
{
    size_t from = a > b ? a : b, to = a_end < b_end ? a_end : b_end;
    return to > from ? to - from : 0;
}

qcclResult_t qcclShardReduce(qcclShard_t shard, int tensor, void *stream)
{
    CHECK_ARG(shard, "qcclShardReduce: the shard is NULL");
    CHECK_ARG(tensor >= 0 && tensor < shard->ntensors, "qcclShardReduce: tensor %d is not in 0..%d",
              tensor, shard->ntensors - 1);
    if (!shard->started || shard->finished[tensor])
        return qccl_fail(qcclInvalidUsage, "qcclShardReduce: %s %d",
                         shard->started ? "this step has already finished tensor"
                                        : "qcclShardStart was not called; tensor",
                         tensor);
    shard->finished[tensor] = true;
    size_t begin = shard->offsets[tensor], end = shard->offsets[tensor + 1];
    for (size_t i = begin / shard->bucket_elems; begin < end && i < (size_t)shard->nbuckets; i++) {
        struct shard_bucket *b = &shard->buckets[i];
        size_t part = overlap(begin, end, b->first, b->first + qccl_shard_bucket_elems(shard, b));
        if (!part)
            break;
        b->missing -= part;
        if (!b->missing)
            RETURN_IF_FAILED(start_reduction(shard, (int)i, stream));
    }
    return qcclSuccess;
}

static qcclResult_t all_finished(const struct qcclShard *s, const char *name)
{
    for (int t = 0; t < s->ntensors; t++)
        if (!s->finished[t])
            return qccl_fail(qcclInvalidUsage, "%s: the gradient of tensor %d is not finished",
                             name, t);
    return qcclSuccess;
}

/* Waits for what the next evaluation needs: the average, with DUO the fast one. */
static qcclResult_t new_gradient(struct qcclShard *s, int index, const float **gradient)
{
    struct shard_bucket *b = &s->buckets[index];
    if (s->duo)
        return qcclDuoFast(s->duo, index, gradient);
    RETURN_IF_FAILED(qcclEventSynchronize(b->reduced));
    RETURN_IF_FAILED(qccl_comm_usable(s->comm, "qcclShardStep"));
    *gradient = b->gradient;
    return qcclSuccess;
}

typedef qcclResult_t gradient_fn(struct qcclShard *s, int index, const float **gradient);

static qcclResult_t old_gradient(struct qcclShard *s, int index, const float **gradient)
{
    return qcclDuoCommit(s->duo, index, gradient);
}

/* This rank's weights in a bucket, without what fills its shard up: rounding after a Hadamard
 * transform leaves noise there. */
static size_t owned_elems(const struct qcclShard *s, const struct shard_bucket *b)
{
    size_t first = b->first + (size_t)qccl_rank(s->comm) * b->elems;
    return overlap(first, first + b->elems, 0, s->elems);
}

/* The factor that brings the norm over all ranks down to clip. */
static qcclResult_t clip_scale(struct qcclShard *s, const float *const *gradients, float *scale)
{
    double square = 0;
    *scale = 1;
    if (s->clip <= 0)
        return qcclSuccess;
    for (int b = 0; b < s->nbuckets; b++) {
        size_t n = owned_elems(s, &s->buckets[b]);
        for (size_t i = 0; i < n; i++)
            square += (double)gradients[b][i] * (double)gradients[b][i];
    }
    const struct plan_key key = {
        .collective = qcclCollAllReduce, .count = 1, .type = qcclFloat64, .op = qcclSum};
    RETURN_IF_FAILED(qccl_enter("qcclShardStep, norm", &key, &square, &square, s->comm, NULL));
    double norm = sqrt(square);
    if (norm > (double)s->clip)
        *scale = (float)((double)s->clip / norm);
    return qcclSuccess;
}

/* ------------------------------------------------------------------ the optimizer */

/* One evaluation of this rank's part of a bucket, tensor by tensor, since decay differs. */
static qcclResult_t evaluate_bucket(struct qcclShard *s, struct shard_bucket *b, bool tentative,
                                    float rate, uint64_t step, float scale, const float *g)
{
    size_t own = b->first + (size_t)qccl_rank(s->comm) * b->elems, own_end = own + b->elems;
    for (int t = 0; t < s->ntensors; t++) {
        size_t begin = s->offsets[t], n = overlap(begin, s->offsets[t + 1], own, own_end);
        size_t at = begin > own ? begin - own : 0;
        qcclOptimizer_t o = s->optimizer;
        if (!n)
            continue;
        o.decay = s->decays[t] ? o.decay : 0;
        RETURN_IF_FAILED(tentative ? qcclOptimizerTentative(&o, rate, step, scale, b->master + at,
                                                            b->m + at, b->v + at, g + at,
                                                            b->transient + at, n)
                                   : qcclOptimizerCommit(&o, rate, step, scale, b->master + at,
                                                         b->m + at, b->v + at, g + at, n));
    }
    return qcclSuccess;
}

static qcclResult_t evaluate(struct qcclShard *s, gradient_fn *gradient_of, bool tentative,
                             float rate, uint64_t step)
{
    float scale;
    const float **gradients = qccl_alloc((size_t)s->nbuckets, sizeof *gradients);
    if (!gradients)
        return qccl_comm_lose(
            s->comm, qccl_fail(qcclOutOfMemory, "no memory to list %d buckets", s->nbuckets));
    qcclResult_t result = qcclSuccess;
    for (int b = 0; result == qcclSuccess && b < s->nbuckets; b++)
        result = gradient_of(s, b, &gradients[b]);
    if (result == qcclSuccess)
        result = clip_scale(s, gradients, &scale);
    for (int b = 0; result == qcclSuccess && b < s->nbuckets; b++)
        result = evaluate_bucket(s, &s->buckets[b], tentative, rate, step, scale, gradients[b]);
    qccl_free(gradients);
    return result;
}

/* Commits the step before, whose exact gradients are there or awaited. */
static qcclResult_t commit_pending(struct qcclShard *s)
{
    if (!s->pending)
        return qcclSuccess;
    RETURN_IF_FAILED(evaluate(s, old_gradient, false, s->last_rate, s->step));
    s->pending = false;
    return qcclSuccess;
}

/* ------------------------------------------------------------------ weights */

static void convert_own(struct qcclShard *s, const struct shard_bucket *b, const float *from)
{
    struct source source = {.values = from, .type = qcclFloat32};
    qccl_convert(&source, qccl_shard_own_weights(s, b), s->type, b->elems);
}

/* New weights of one bucket to all: differences, or the weights themselves. */
static qcclResult_t gather_bucket(struct qcclShard *s, struct shard_bucket *b, void *stream)
{
    const float *from = s->duo ? b->transient : b->master;
    struct plan_key key = {.collective = s->plain ? qcclCollAllGather : qcclCollAllGatherDelta,
                           .count = b->elems,
                           .type = s->type};
    if (s->plain)
        convert_own(s, b, from);
    const void *send = s->plain ? (const void *)qccl_shard_own_weights(s, b) : from;
    struct call call =
        qccl_call("qcclShardStep, gather", s->comm, &key, send, qccl_shard_weights(s, b));
    call.replica = s->plain ? 0 : s->version;
    RETURN_IF_FAILED(qccl_call_check(&call));
    RETURN_IF_FAILED(qccl_submit(&call, stream));
    return qcclEventRecord(b->gathered, stream);
}

static qcclResult_t gather(struct qcclShard *s, void *stream)
{
    for (int t = 0; t < s->ntensors; t++)
        s->finished[t] = false;
    for (int b = 0; b < s->nbuckets; b++)
        s->buckets[b].missing = elems_left(s, &s->buckets[b]);
    s->owned = 0;
    s->pending = s->duo != NULL;
    for (int b = 0; b < s->nbuckets; b++)
        RETURN_IF_FAILED(gather_bucket(s, &s->buckets[b], stream));
    s->version++;
    return qcclSuccess;
}

uint32_t qccl_shard_sequence(struct qcclShard *s, const uint32_t *next)
{
    qccl_comm_enter(s->comm);
    uint32_t sequence = s->comm->sequence;
    if (next)
        s->comm->sequence = *next;
    qccl_comm_end_turn(s->comm);
    return sequence;
}

qcclResult_t qccl_shard_gather_exact(struct qcclShard *s)
{
    uint32_t sequence = qccl_shard_sequence(s, NULL);
    for (int i = 0; i < s->nbuckets; i++) {
        struct shard_bucket *b = &s->buckets[i];
        struct plan_key key = {.collective = qcclCollAllGather,
                               .count = b->elems,
                               .type = s->type,
                               .policy = s->exact_policy};
        struct call call = qccl_call("gather of weights", s->comm, &key,
                                     qccl_shard_own_weights(s, b), qccl_shard_weights(s, b));
        RETURN_IF_FAILED(qccl_call_check(&call));
        RETURN_IF_FAILED(qccl_submit(&call, NULL));
    }
    qccl_shard_sequence(s, &sequence);
    return qcclSuccess;
}

qcclResult_t qccl_shard_gather_masters(struct qcclShard *s)
{
    qccl_shard_settle(s);
    for (int b = 0; b < s->nbuckets; b++)
        convert_own(s, &s->buckets[b], s->buckets[b].master);
    return qccl_shard_gather_exact(s);
}

/* ------------------------------------------------------------------ the step */

qcclResult_t qcclShardStep(qcclShard_t shard, float rate, void *stream)
{
    CHECK_ARG(shard, "qcclShardStep: the shard is NULL");
    if (!shard->optimizer.size || shard->owned)
        return qccl_fail(qcclInvalidUsage,
                         "qcclShardStep: this step's optimizer is the caller's; use "
                         "qcclShardOwned and qcclShardGather");
    RETURN_IF_FAILED(all_finished(shard, "qcclShardStep"));
    qccl_shard_settle(shard);
    RETURN_IF_FAILED(commit_pending(shard));
    RETURN_IF_FAILED(evaluate(shard, new_gradient, shard->duo != NULL, rate, shard->step + 1));
    shard->step++;
    shard->last_rate = rate;
    return gather(shard, stream);
}

qcclResult_t qcclShardWait(qcclShard_t shard, int tensor)
{
    CHECK_ARG(shard, "qcclShardWait: the shard is NULL");
    CHECK_ARG(tensor >= 0 && tensor < shard->ntensors, "qcclShardWait: tensor %d is not in 0..%d",
              tensor, shard->ntensors - 1);
    size_t begin = shard->offsets[tensor], end = shard->offsets[tensor + 1];
    for (size_t i = begin / shard->bucket_elems; i * shard->bucket_elems < end; i++)
        RETURN_IF_FAILED(qcclEventSynchronize(shard->buckets[i].gathered));
    return qccl_comm_usable(shard->comm, "qcclShardWait");
}

qcclResult_t qcclShardOwned(qcclShard_t shard, int bucket, qcclOwned_t *owned)
{
    CHECK_ARG(shard && owned, "qcclShardOwned: %s is NULL", shard ? "owned" : "shard");
    CHECK_ARG(bucket >= 0 && bucket < shard->nbuckets, "qcclShardOwned: bucket %d is not in 0..%d",
              bucket, shard->nbuckets - 1);
    RETURN_IF_FAILED(all_finished(shard, "qcclShardOwned"));
    if (bucket != shard->owned)
        return qccl_fail(qcclInvalidUsage, "qcclShardOwned: bucket %d, after %d of this step",
                         bucket, shard->owned);
    const float *fresh, *exact = NULL;
    if (shard->pending)
        RETURN_IF_FAILED(old_gradient(shard, bucket, &exact));
    RETURN_IF_FAILED(new_gradient(shard, bucket, &fresh));
    struct shard_bucket *b = &shard->buckets[bucket];
    size_t first = b->first + (size_t)qccl_rank(shard->comm) * b->elems;
    *owned = (qcclOwned_t){
        .nbuckets = shard->nbuckets,
        .first = first,
        .count = owned_elems(shard, b),
        .gradient = shard->duo ? exact : fresh,
        .fast = shard->duo ? fresh : NULL,
        .master = b->master,
        .transient = b->transient,
    };
    shard->owned++;
    return qcclSuccess;
}

qcclResult_t qcclShardGather(qcclShard_t shard, void *stream)
{
    CHECK_ARG(shard, "qcclShardGather: the shard is NULL");
    if (shard->owned != shard->nbuckets)
        return qccl_fail(qcclInvalidUsage,
                         "qcclShardGather after qcclShardOwned of %d buckets "
                         "of %d",
                         shard->owned, shard->nbuckets);
    shard->step++;
    return gather(shard, stream);
}

/* ------------------------------------------------------------------ start and flush */

qcclResult_t qcclShardStart(qcclShard_t shard)
{
    CHECK_ARG(shard, "qcclShardStart: the shard is NULL");
    RETURN_IF_FAILED(qccl_comm_usable(shard->comm, "qcclShardStart"));
    qccl_shard_settle(shard);
    for (int i = 0; i < shard->nbuckets; i++) {
        struct shard_bucket *b = &shard->buckets[i];
        struct source own = {.values = qccl_shard_own_weights(shard, b), .type = shard->type};
        qccl_convert(&own, b->master, qcclFloat32, b->elems);
    }
    RETURN_IF_FAILED(qccl_shard_gather_exact(shard));
    shard->started = true;
    return qcclSuccess;
}

qcclResult_t qcclShardFlush(qcclShard_t shard)
{
    CHECK_ARG(shard, "qcclShardFlush: the shard is NULL");
    if (!shard->duo)
        return qcclSuccess;
    if (shard->pending && !shard->optimizer.size)
        return qccl_fail(qcclInvalidUsage,
                         "qcclShardFlush: the caller's own optimizer commits its last step");
    RETURN_IF_FAILED(commit_pending(shard));
    return qccl_shard_gather_masters(shard);
}
