/* DUO (Double Update Overlap, NeurIPS 2025): every bucket is reduced twice.
 *
 *   caller's stream   keep g, reduce fast -> fast shard --event--+
 *   slow stream                                                  +-> reduce slow -> exact shard
 *                                                                    --event--> commit
 *
 * A bucket has two places for kept gradients and exact shards, so a reduction can start while the
 * one before still waits for its commit.  The slow stream has a low priority: between chunks it
 * lets other collectives go first. */
#include "overlap/duo.h"

#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/trace.h"
#include "overlap/stream.h"
#include "overlap/submit.h"

enum { PLACES = 2, SLOW_PRIORITY = 4 };

/* One reduction of a bucket on its way. */
struct reduction_job {
    struct qcclDuo *duo;
    struct bucket *bucket;
    const float *gradient;
    int place;
    struct call slow;
    struct call agree; /* with qcclDuoDrop, behind the step's last reduction: of late */
    bool agrees;
    uint64_t late;
};

struct bucket {
    size_t count, shard_elems;
    float *kept[PLACES];  /* the gradient, or what its fast reduction lost */
    float *exact[PLACES]; /* shards */
    float *fast;          /* shard */
    uint64_t slow_ns[PLACES];
    uint64_t reduced, committed;
    qcclEvent_t fast_done, slow_done[PLACES];
    struct reduction_job jobs[PLACES];
};

struct qcclDuo {
    struct qcclComm *fast_comm, *slow_comm;
    struct duo_scheme scheme;
    int fast_policy, slow_policy, dropped_policy;
    struct bucket *buckets;
    int nbuckets;
    float *scratch;           /* a shard of the largest bucket, for residuals */
    qcclStream_t slow_stream; /* NULL: everything runs in the caller's thread */
    uint64_t reduced;         /* reductions of all buckets: nbuckets are a step */
    atomic_int late;          /* a commit had to wait */
    bool dropping;            /* of the slow stream: its reductions travel as bf16 */
    uint64_t exposed_ns, logged_ns;
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ------------------------------------------------------------------ life */

static void free_bucket(struct bucket *b)
{
    for (int place = 0; place < PLACES; place++) {
        qcclEventDestroy(b->slow_done[place]);
        qccl_free(b->kept[place]);
        qccl_free(b->exact[place]);
    }
    qcclEventDestroy(b->fast_done);
    qccl_free(b->fast);
}

static void free_duo(struct qcclDuo *duo)
{
    qcclStreamDestroy(duo->slow_stream);
    for (int b = 0; duo->buckets && b < duo->nbuckets; b++) {
        if (duo->buckets[b].fast_done) /* the caller's stream may still write to the bucket */
            qcclEventSynchronize(duo->buckets[b].fast_done);
        free_bucket(&duo->buckets[b]);
    }
    qccl_free(duo->buckets);
    qccl_free(duo->scratch);
    qccl_free(duo);
}

static qcclResult_t make_bucket(struct bucket *b, size_t count, int nranks)
{
    b->count = count;
    b->shard_elems = count / (size_t)nranks;
    b->fast = qccl_alloc(b->shard_elems, sizeof *b->fast);
    bool made = b->fast && qcclEventCreate(&b->fast_done) == qcclSuccess;
    for (int place = 0; made && place < PLACES; place++) {
        b->kept[place] = qccl_alloc(count, sizeof(float));
        b->exact[place] = qccl_alloc(b->shard_elems, sizeof(float));
        made = b->kept[place] && b->exact[place] &&
               qcclEventCreate(&b->slow_done[place]) == qcclSuccess;
    }
    return made ? qcclSuccess
                : qccl_fail(qcclOutOfMemory, "no memory for a duo's bucket of %zu values", count);
}

static qcclResult_t make_buckets(struct qcclDuo *duo, const qcclDuoConfig_t *config, int nranks)
{
    size_t largest = 0;
    duo->buckets = qccl_alloc((size_t)config->nbuckets, sizeof *duo->buckets);
    if (!duo->buckets)
        return qccl_fail(qcclOutOfMemory, "no memory for %d buckets", config->nbuckets);
    duo->nbuckets = config->nbuckets;
    for (int b = 0; b < config->nbuckets; b++) {
        RETURN_IF_FAILED(make_bucket(&duo->buckets[b], config->counts[b], nranks));
        size_t elems = duo->buckets[b].shard_elems;
        largest = elems > largest ? elems : largest;
    }
    if (!duo->scheme.residual)
        return qcclSuccess;
    duo->scratch = qccl_alloc(largest, sizeof *duo->scratch);
    return duo->scratch ? qcclSuccess
                        : qccl_fail(qcclOutOfMemory, "no memory for %zu residuals", largest);
}

static qcclResult_t register_policies(struct qcclDuo *duo)
{
    const struct duo_scheme *s = &duo->scheme;
    if (!s->local)
        RETURN_IF_FAILED(qccl_comm_add_policy(duo->fast_comm, &s->fast, &duo->fast_policy));
    RETURN_IF_FAILED(qccl_comm_add_policy(duo->slow_comm, &s->slow, &duo->slow_policy));
    if (s->drop)
        RETURN_IF_FAILED(qccl_comm_add_policy(duo->slow_comm, &s->dropped, &duo->dropped_policy));
    return qcclSuccess;
}

/* Everything that can fail on one rank alone. */
static qcclResult_t make_duo(struct qcclDuo **made, qcclComm_t fast_comm, qcclComm_t slow_comm,
                             const qcclDuoConfig_t *config)
{
    struct duo_scheme scheme;
    CHECK_ARG(fast_comm != slow_comm, "qcclDuoCreate: fast_comm and slow_comm are the same");
    CHECK_ARG(qccl_rank(fast_comm) == qccl_rank(slow_comm) &&
                  qccl_nranks(fast_comm) == qccl_nranks(slow_comm),
              "qcclDuoCreate: rank %d of %d in fast_comm is rank %d of %d in slow_comm",
              qccl_rank(fast_comm), qccl_nranks(fast_comm), qccl_rank(slow_comm),
              qccl_nranks(slow_comm));
    RETURN_IF_FAILED(qccl_duo_read(config, qccl_nranks(fast_comm), &scheme));
    /* Equal seeds would round a residual by the numbers that made it, which is a bias. */
    CHECK_ARG(!scheme.residual || fast_comm->seed != slow_comm->seed,
              "duo: slow=\"%.100s\" needs communicators of different seeds, both have %llu",
              config->slow, (unsigned long long)fast_comm->seed);
    struct qcclDuo *duo = qccl_alloc(1, sizeof *duo);
    if (!duo)
        return qccl_fail(qcclOutOfMemory, "no memory for a duo");
    duo->fast_comm = fast_comm;
    duo->slow_comm = slow_comm;
    duo->scheme = scheme;
    qcclResult_t result = make_buckets(duo, config, qccl_nranks(fast_comm));
    if (result == qcclSuccess)
        result = register_policies(duo);
    if (result == qcclSuccess && qccl_may_use_threads(slow_comm))
        result = qcclStreamCreate(&duo->slow_stream, SLOW_PRIORITY);
    if (result == qcclSuccess)
        *made = duo;
    else
        free_duo(duo);
    return result;
}

/* Ranks compare what they were told; one that failed takes part, so that the others learn of it. */
static qcclResult_t compare(qcclComm_t comm, const qcclDuoConfig_t *config, qcclResult_t own)
{
    struct record record = {""};
    char sentence[600];
    snprintf(sentence, sizeof sentence, "%s", qccl_last_error());
    if (own == qcclSuccess)
        qccl_duo_describe(config, &record);
    else
        snprintf(record.text, sizeof record.text, "duo=wrong on this rank: %s", sentence);
    qccl_comm_enter(comm);
    qcclResult_t agreed = qccl_agree(comm, "duo configurations", &record);
    qccl_comm_end_turn(comm);
    return own == qcclSuccess ? agreed : qccl_fail(own, "%s", sentence);
}

qcclResult_t qcclDuoCreate(qcclDuo_t *duo, qcclComm_t fast_comm, qcclComm_t slow_comm,
                           const qcclDuoConfig_t *config)
{
    CHECK_ARG(duo && config, "qcclDuoCreate: %s is NULL", duo ? "config" : "duo");
    RETURN_IF_FAILED(qccl_comm_usable(fast_comm, "qcclDuoCreate"));
    RETURN_IF_FAILED(qccl_comm_usable(slow_comm, "qcclDuoCreate"));
    struct qcclDuo *made = NULL;
    qcclResult_t own = make_duo(&made, fast_comm, slow_comm, config);
    qcclResult_t result = compare(fast_comm, config, own);
    if (result == qcclSuccess)
        *duo = made;
    else if (made)
        free_duo(made);
    return result;
}

qcclResult_t qcclDuoDestroy(qcclDuo_t duo)
{
    if (duo)
        free_duo(duo);
    return qcclSuccess;
}

/* ------------------------------------------------------------------ the slow reduction */

/* Whether any rank's commits had to wait: decides how the reductions after this one travel. */
static qcclResult_t agree_on_late(struct reduction_job *job)
{
    struct qcclDuo *duo = job->duo;
    job->late = (uint64_t)atomic_exchange(&duo->late, 0);
    RETURN_IF_FAILED(qccl_call_run(&job->agree));
    bool late = job->late != 0;
    if (late != duo->dropping)
        qccl_log(QCCL_LOG_INFO, qccl_rank(duo->slow_comm),
                 "duo: slow reductions travel as %s from now on", late ? "bf16" : "fp32");
    duo->dropping = late;
    return qcclSuccess;
}

/* What a fast reduction that failed has lost is not known: then the slow one fails too, on every
 * rank, rather than to complete a sum that is wrong. */
static void need_fast(const struct reduction_job *job)
{
    struct qcclDuo *duo = job->duo;
    qcclResult_t result = qccl_comm_usable(duo->fast_comm, "qcclDuoReduce, slow");
    if (result == qcclSuccess)
        return;
    qccl_comm_await_turn(duo->slow_comm, job->slow.turn);
    qccl_comm_break(duo->slow_comm, result);
}

static qcclResult_t reduce_slow(void *argument)
{
    struct reduction_job *job = argument;
    struct qcclDuo *duo = job->duo;
    struct bucket *b = job->bucket;
    uint64_t begin = now_ns();
    if (duo->dropping)
        job->slow.key.policy = duo->dropped_policy;
    if (duo->scheme.residual)
        need_fast(job);
    qcclResult_t result = qccl_call_run(&job->slow);
    float *exact = b->exact[job->place];
    for (size_t i = 0; result == qcclSuccess && duo->scheme.residual && i < b->shard_elems; i++)
        exact[i] += duo->scratch[i];
    b->slow_ns[job->place] = now_ns() - begin;
    if (!job->agrees)
        return result;
    qcclResult_t agreed = agree_on_late(job); /* also after an error: it has a turn */
    return result == qcclSuccess ? agreed : result;
}

/* The turns of a slow reduction and of what follows it. */
static void take_turns(struct reduction_job *job)
{
    struct qcclDuo *duo = job->duo;
    const struct plan_key key = {
        .collective = qcclCollAllReduce, .count = 1, .type = qcclUint64, .op = qcclMax};
    qccl_call_take_turn(&job->slow);
    duo->reduced++;
    job->agrees = duo->scheme.drop && duo->reduced % (uint64_t)duo->nbuckets == 0;
    if (!job->agrees)
        return;
    job->agree = qccl_call("qcclDuoReduce, lateness", duo->slow_comm, &key, &job->late, &job->late);
    job->agree.execute = job->slow.execute;
    qccl_call_take_turn(&job->agree);
}

static qcclResult_t start_slow(struct reduction_job *job)
{
    struct qcclDuo *duo = job->duo;
    struct bucket *b = job->bucket;
    struct plan_key key = {.collective = qcclCollReduceScatter,
                           .count = b->shard_elems,
                           .type = qcclFloat32,
                           .op = qcclAvg,
                           .policy = duo->slow_policy};
    float *to = duo->scheme.residual ? duo->scratch : b->exact[job->place];
    job->slow = qccl_call("qcclDuoReduce, slow", duo->slow_comm, &key, b->kept[job->place], to);
    job->slow.mark = "slow";
    job->slow.execute = qccl_executor(duo->slow_comm);
    if (duo->slow_stream) {
        job->slow.priority = SLOW_PRIORITY;
        job->slow.overlapped = true;
        RETURN_IF_FAILED(qcclStreamWaitEvent(duo->slow_stream, b->fast_done));
    }
    take_turns(job);
    if (!duo->slow_stream) {
        qcclEventSynchronize(b->fast_done);
        return reduce_slow(job);
    }
    qcclResult_t result = qccl_stream_put(duo->slow_stream, reduce_slow, job);
    if (result == qcclSuccess)
        return qcclEventRecord(b->slow_done[job->place], duo->slow_stream);
    qccl_comm_lose(duo->slow_comm, result);
    reduce_slow(job); /* which ends its turns */
    return result;
}

/* ------------------------------------------------------------------ the fast reduction */

/* On the caller's stream: what the slow reduction needs of the gradient. */
static qcclResult_t keep(void *argument)
{
    const struct reduction_job *job = argument;
    struct bucket *b = job->bucket;
    size_t own = (size_t)qccl_rank(job->duo->fast_comm) * b->shard_elems;
    if (job->duo->scheme.local)
        memcpy(b->fast, job->gradient + own, b->shard_elems * sizeof(float));
    if (job->duo->scheme.residual) /* of this rank's own part nothing is lost */
        memset(b->kept[job->place], 0, b->count * sizeof(float));
    else
        memcpy(b->kept[job->place], job->gradient, b->count * sizeof(float));
    return qcclSuccess;
}

/* On the caller's stream, behind the fast reduction: the sum that residuals complete. */
static qcclResult_t keep_fast(void *argument)
{
    const struct reduction_job *job = argument;
    struct bucket *b = job->bucket;
    memcpy(b->exact[job->place], b->fast, b->shard_elems * sizeof(float));
    return qcclSuccess;
}

static qcclResult_t run_on(qcclStream_t stream, qcclResult_t (*run)(void *),
                           struct reduction_job *job)
{
    return stream ? qccl_stream_put(stream, run, job) : run(job);
}

static qcclResult_t put_fast(struct reduction_job *job, qcclStream_t stream)
{
    struct qcclDuo *duo = job->duo;
    struct bucket *b = job->bucket;
    RETURN_IF_FAILED(run_on(stream, keep, job));
    if (!duo->scheme.local) {
        struct plan_key key = {.collective = qcclCollReduceScatter,
                               .count = b->shard_elems,
                               .type = qcclFloat32,
                               .op = qcclAvg,
                               .policy = duo->fast_policy};
        struct call call =
            qccl_call("qcclDuoReduce, fast", duo->fast_comm, &key, job->gradient, b->fast);
        call.mark = "fast";
        call.lost = duo->scheme.residual ? b->kept[job->place] : NULL;
        RETURN_IF_FAILED(qccl_submit(&call, stream));
    }
    return duo->scheme.residual ? run_on(stream, keep_fast, job) : qcclSuccess;
}

/* The event also after an error: what is on the stream already works on the bucket. */
static qcclResult_t start_fast(struct reduction_job *job, qcclStream_t stream)
{
    qcclResult_t result = put_fast(job, stream);
    qcclResult_t recorded = qcclEventRecord(job->bucket->fast_done, stream);
    return result == qcclSuccess ? recorded : result;
}

static qcclResult_t check_bucket(const struct qcclDuo *duo, int bucket, const char *name)
{
    CHECK_ARG(duo, "%s: the duo is NULL", name);
    CHECK_ARG(bucket >= 0 && bucket < duo->nbuckets, "%s: bucket %d is not in 0..%d", name, bucket,
              duo->nbuckets - 1);
    return qcclSuccess;
}

qcclResult_t qcclDuoReduce(qcclDuo_t duo, int bucket, const float *gradient, void *stream)
{
    RETURN_IF_FAILED(check_bucket(duo, bucket, "qcclDuoReduce"));
    struct bucket *b = &duo->buckets[bucket];
    CHECK_ARG(gradient, "qcclDuoReduce: gradient is NULL for %zu values", b->count);
    RETURN_IF_FAILED(qccl_comm_usable(duo->fast_comm, "qcclDuoReduce"));
    RETURN_IF_FAILED(qccl_comm_usable(duo->slow_comm, "qcclDuoReduce"));
    if (b->reduced - b->committed == PLACES)
        return qccl_fail(qcclInvalidUsage,
                         "qcclDuoReduce: %d reductions of bucket %d wait for qcclDuoCommit", PLACES,
                         bucket);
    int place = (int)(b->reduced % PLACES);
    struct reduction_job *job = &b->jobs[place];
    *job = (struct reduction_job){.duo = duo, .bucket = b, .gradient = gradient, .place = place};
    qcclResult_t result = start_fast(job, stream);
    if (result == qcclSuccess)
        result = start_slow(job);
    if (result == qcclSuccess) {
        b->reduced++;
        return qcclSuccess;
    }
    /* Half a reduction: the ranks are no longer together, and other threads may be at work. */
    qccl_comm_lose(duo->fast_comm, result);
    return qccl_comm_lose(duo->slow_comm, result);
}

qcclResult_t qcclDuoFast(qcclDuo_t duo, int bucket, const float **shard)
{
    RETURN_IF_FAILED(check_bucket(duo, bucket, "qcclDuoFast"));
    CHECK_ARG(shard, "qcclDuoFast: shard is NULL");
    struct bucket *b = &duo->buckets[bucket];
    if (!b->reduced)
        return qccl_fail(qcclInvalidUsage, "qcclDuoFast: bucket %d was never reduced", bucket);
    RETURN_IF_FAILED(qcclEventSynchronize(b->fast_done));
    RETURN_IF_FAILED(qccl_comm_usable(duo->fast_comm, "qcclDuoFast"));
    *shard = b->fast;
    return qcclSuccess;
}

/* ------------------------------------------------------------------ commits */

/* Says how much of the slow reductions stuck out, the first time and whenever it has doubled. */
static void count_exposed(struct qcclDuo *duo, uint64_t slow_ns, uint64_t exposed_ns, bool waited)
{
    qccl_comm_add_slow(duo->slow_comm, slow_ns, exposed_ns);
    duo->exposed_ns += exposed_ns;
    if (waited)
        atomic_store(&duo->late, 1);
    if (!waited || duo->exposed_ns < 2 * duo->logged_ns)
        return;
    duo->logged_ns = duo->exposed_ns;
    qccl_log(QCCL_LOG_INFO, qccl_rank(duo->slow_comm),
             "duo: %.3f ms of slow reductions were not hidden so far: %s",
             (double)duo->exposed_ns / 1e6,
             duo->slow_stream ? "the compute is too short" : "no other thread may run them");
}

qcclResult_t qcclDuoCommit(qcclDuo_t duo, int bucket, const float **shard)
{
    RETURN_IF_FAILED(check_bucket(duo, bucket, "qcclDuoCommit"));
    CHECK_ARG(shard, "qcclDuoCommit: shard is NULL");
    struct bucket *b = &duo->buckets[bucket];
    if (b->reduced == b->committed)
        return qccl_fail(qcclInvalidUsage, "qcclDuoCommit: no reduction of bucket %d waits for it",
                         bucket);
    int place = (int)(b->committed % PLACES);
    uint64_t begin = now_ns();
    bool waits = qcclEventQuery(b->slow_done[place]) == qcclInProgress;
    RETURN_IF_FAILED(qcclEventSynchronize(b->slow_done[place]));
    qccl_trace_span(qccl_rank(duo->slow_comm), "commit", begin, now_ns());
    RETURN_IF_FAILED(qccl_comm_usable(duo->slow_comm, "qcclDuoCommit"));
    uint64_t waited = waits ? now_ns() - begin : 0;
    if (!duo->slow_stream) /* qcclDuoReduce has waited */
        waited = b->slow_ns[place];
    count_exposed(duo, b->slow_ns[place], waited, waits || !duo->slow_stream);
    b->committed++;
    *shard = b->exact[place];
    return qcclSuccess;
}
