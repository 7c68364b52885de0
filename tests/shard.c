/* Sharded training: equal to training with everything everywhere, replicas alike, stale ones found,
 * states that go on where they were saved. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "base/status.h"
#include "tests/harness.h"

enum { TENSORS = 4, STEPS = 5, MOST_RANKS = 5, TOTAL = 3 + 40000 + 0 + 777 };
static const size_t counts[TENSORS] = {3, 40000, 0, 777};
static const uint8_t undecayed[TENSORS] = {1, 0, 0, 0};
static const float rate = 0.01f;

/* How to train, and the weights that every rank ends with. */
struct job {
    const char *policy, *fast; /* fast: of DUO, NULL: none */
    qcclDataType_t type;
    bool plain, streams, own_optimizer, unclipped;
    int save_after; /* save, make everything anew, load; 0: never */
    struct team slow_team;
    float weights[MOST_RANKS][TOTAL]; /* bf16 ones widened */
    float masters[MOST_RANKS][TOTAL];
};

static const qcclOptimizer_t adamw = {.size = sizeof(qcclOptimizer_t),
                                      .kind = qcclAdamW,
                                      .beta1 = 0.9f,
                                      .beta2 = 0.95f,
                                      .epsilon = 1e-8f,
                                      .decay = 0.1f};

static qcclResult_t make_shard(struct team *team, int rank, struct job *job, qcclShard_t *shard)
{
    qcclDuoConfig_t duo = {.size = sizeof duo, .fast = job->fast};
    qcclShardConfig_t config = {.size = sizeof config,
                                .datatype = job->type,
                                .bucket_bytes = 64 << 10,
                                .undecayed = undecayed,
                                .clip = job->own_optimizer || job->unclipped ? 0 : 1,
                                .plain = job->plain};
    if (!job->own_optimizer)
        config.optimizer = adamw;
    if (job->fast) {
        config.duo = &duo;
        config.slow_comm = job->slow_team.comm[rank];
    }
    return qcclShardCreate(shard, team->comm[rank], counts, TENSORS, &config);
}

static qcclResult_t start(qcclShard_t shard, qcclDataType_t type)
{
    for (int t = 0; t < TENSORS; t++) {
        void *weights;
        RETURN_IF_FAILED(qcclShardTensor(shard, t, &weights, NULL));
        input_fill(weights, counts[t], type ? type : qcclFloat32, INPUT_NORMAL, (uint64_t)t, 0);
    }
    return qcclShardStart(shard);
}

static void fill_gradient(float *gradient, int tensor, int step, int rank)
{
    input_fill(gradient, counts[tensor], qcclFloat32, INPUT_NORMAL,
               (uint64_t)(100 + step * TENSORS + tensor), rank);
}

/* Someone else's optimizer: gradient descent. */
static qcclResult_t descend(qcclShard_t shard)
{
    qcclOwned_t owned = {.nbuckets = 1};
    for (int b = 0; b < owned.nbuckets; b++) {
        RETURN_IF_FAILED(qcclShardOwned(shard, b, &owned));
        for (size_t i = 0; i < owned.count; i++) {
            if (owned.gradient)
                owned.master[i] -= rate * owned.gradient[i];
            if (owned.transient)
                owned.transient[i] = owned.master[i] - rate * owned.fast[i];
        }
    }
    return qcclShardGather(shard, NULL);
}

static qcclResult_t take_step(qcclShard_t shard, const struct job *job, int rank, int step,
                              qcclStream_t stream)
{
    for (int t = TENSORS - 1; t >= 0; t--) {
        float *gradient;
        RETURN_IF_FAILED(qcclShardTensor(shard, t, NULL, &gradient));
        fill_gradient(gradient, t, step, rank);
        RETURN_IF_FAILED(qcclShardReduce(shard, t, stream));
    }
    if (job->own_optimizer)
        return descend(shard);
    RETURN_IF_FAILED(qcclShardStep(shard, rate, stream));
    for (int t = 0; t < TENSORS; t++)
        RETURN_IF_FAILED(qcclShardWait(shard, t));
    return qcclSuccess;
}

static qcclResult_t copy_weights(qcclShard_t shard, qcclDataType_t type, float *to)
{
    void *weights;
    RETURN_IF_FAILED(qcclShardTensor(shard, 0, &weights, NULL));
    for (size_t i = 0; i < TOTAL; i++) {
        uint32_t wide = type == qcclBfloat16 ? (uint32_t)((uint16_t *)weights)[i] << 16 : 0;
        memcpy(&to[i], type == qcclBfloat16 ? (void *)&wide : (void *)((float *)weights + i),
               sizeof *to);
    }
    return qcclSuccess;
}

/* Saves, frees everything of the shard, and goes on with a new one. */
static qcclResult_t save_and_load(struct team *team, int rank, struct job *job, qcclShard_t *shard)
{
    size_t bytes;
    RETURN_IF_FAILED(qcclShardStateBytes(*shard, &bytes));
    void *state = malloc(bytes);
    qcclResult_t result = state ? qcclShardSave(*shard, state, bytes) : qcclOutOfMemory;
    qcclShardDestroy(*shard);
    *shard = NULL;
    if (result == qcclSuccess)
        result = make_shard(team, rank, job, shard);
    if (result == qcclSuccess)
        result = qcclShardLoad(*shard, state, bytes);
    if (result == qcclSuccess) {
        ((char *)state)[bytes - 1] ^= 1;
        bool damaged = rank == 0 && team->nranks == 1;
        if (damaged && qcclShardLoad(*shard, state, bytes) != qcclCorruptMessage)
            result = qccl_fail(qcclInternalError, "a damaged state was loaded");
    }
    free(state);
    return result;
}

static qcclResult_t train(struct team *team, int rank, void *arg)
{
    struct job *job = arg;
    qcclShard_t shard = NULL;
    qcclStream_t stream = NULL;
    qcclResult_t result = make_shard(team, rank, job, &shard);
    if (result == qcclSuccess && job->streams)
        result = qcclStreamCreate(&stream, 0);
    if (result == qcclSuccess)
        result = start(shard, job->type);
    for (int step = 0; step < STEPS && result == qcclSuccess; step++) {
        if (step && step == job->save_after)
            result = save_and_load(team, rank, job, &shard);
        if (result == qcclSuccess)
            result = take_step(shard, job, rank, step, stream);
    }
    if (result == qcclSuccess)
        result = copy_weights(shard, job->type, job->weights[rank]);
    if (result == qcclSuccess && !job->own_optimizer)
        result = job->fast ? qcclShardFlush(shard) : qcclShardResync(shard);
    if (result == qcclSuccess)
        result = copy_weights(shard, job->type, job->masters[rank]);
    qcclStreamDestroy(stream);
    qcclShardDestroy(shard);
    return result;
}

static void run_job(struct job *job, int nranks, const int *nodes)
{
    struct team team;
    qcclConfig_t config = {
        .size = sizeof config, .policy = job->policy, .seed = 4, .nodes = nodes, .timeout = 60};
    cr_assert(team_open_config(&team, nranks, &config), "%s", team_report(&team));
    config.seed = 5;
    cr_assert(team_open_config(&job->slow_team, nranks, &config), "%s", team_report(&team));
    cr_assert(team_run(&team, train, job), "%s, %d ranks: %s", job->policy, nranks,
              team_report(&team));
    for (int r = 1; r < nranks; r++) {
        cr_expect(memcmp(job->weights[r], job->weights[0], sizeof job->weights[0]) == 0,
                  "%s: rank %d's replica differs", job->policy, r);
        cr_expect(memcmp(job->masters[r], job->masters[0], sizeof job->masters[0]) == 0);
    }
    team_close(&job->slow_team);
    team_close(&team);
    cr_expect_eq(qccl_memory_live(), 0);
}

static struct job *new_job(const char *policy)
{
    struct job *job = calloc(1, sizeof *job);
    cr_assert(job);
    job->policy = policy;
    return job;
}

/* ------------------------------------------------------------------ without shards */

/* Gradient descent on the averages in rank order, without any library. */
static void descend_everywhere(float *weights, int nranks, bool one_step_less)
{
    static float gradient[MOST_RANKS][TOTAL];
    for (int t = 0, at = 0; t < TENSORS; at += (int)counts[t], t++)
        input_fill(weights + at, counts[t], qcclFloat32, INPUT_NORMAL, (uint64_t)t, 0);
    for (int step = 0; step < STEPS - one_step_less; step++) {
        for (int r = 0; r < nranks; r++)
            for (int t = 0, at = 0; t < TENSORS; at += (int)counts[t], t++)
                fill_gradient(gradient[r] + at, t, step, r);
        for (size_t i = 0; i < TOTAL; i++) {
            float sum = gradient[0][i];
            for (int r = 1; r < nranks; r++)
                sum += gradient[r][i];
            volatile float change = rate * (sum * (1.0f / (float)nranks));
            weights[i] -= change;
        }
    }
}

Test(shard, uncompressed_with_ones_own_optimizer_it_is_plain_training)
{
    static float expected[TOTAL];
    for (int nranks = 1; nranks <= MOST_RANKS; nranks++) {
        struct job *job = new_job("none");
        job->own_optimizer = true;
        run_job(job, nranks, NULL);
        descend_everywhere(expected, nranks, false);
        if (nranks <= 2) /* beyond, an uncompressed call may add in another order */
            cr_expect(memcmp(job->weights[0], expected, sizeof expected) == 0, "%d ranks", nranks);
        for (size_t i = 0; i < TOTAL; i++)
            cr_assert_float_eq(job->weights[0][i], expected[i],
                               STEPS * MOST_RANKS * fabsf(expected[i]) * 0x1p-23f + 0x1p-23f);
        free(job);
    }
}

Test(shard, compressed_streamed_and_duo_training_keeps_replicas_alike)
{
    static const int nodes[] = {0, 0, 1, 1, 1};
    for (int k = 0; k < 16; k++) {
        struct job *job = new_job(k % 2 ? QCCL_SDP4BIT_POLICY
                                        : "reducescatter: int8; allgather: int4; delta: int4");
        job->streams = k & 2;
        job->plain = k & 4;
        job->fast = k & 8 ? (k & 1 ? "sign1" : "local") : NULL;
        job->type = k % 3 ? qcclFloat32 : qcclBfloat16;
        run_job(job, 2 + k % 4, nodes);
        free(job);
    }
}

Test(shard, streams_change_no_bit)
{
    struct job *a = new_job(QCCL_SDP4BIT_POLICY), *b = new_job(QCCL_SDP4BIT_POLICY);
    a->fast = b->fast = "int4";
    b->streams = true;
    run_job(a, 3, NULL);
    run_job(b, 3, NULL);
    cr_expect(memcmp(a->weights, b->weights, sizeof a->weights) == 0);
    cr_expect(memcmp(a->masters, b->masters, sizeof a->masters) == 0);
    free(a);
    free(b);
}

static qcclResult_t sleep_a_while(void *unused)
{
    (void)unused;
    struct timespec delay = {.tv_nsec = 100000000};
    return nanosleep(&delay, NULL) ? qcclSystemError : qcclSuccess;
}

/* The step's gathers still stand behind a sleep in the stream when the flush begins. */
static qcclResult_t flush_at_once(struct team *team, int rank, void *arg)
{
    struct job *job = arg;
    qcclShard_t shard;
    qcclStream_t stream;
    float *gradient;
    RETURN_IF_FAILED(make_shard(team, rank, job, &shard));
    RETURN_IF_FAILED(qcclStreamCreate(&stream, 0));
    RETURN_IF_FAILED(start(shard, qcclFloat32));
    for (int t = 0; t < TENSORS; t++) {
        RETURN_IF_FAILED(qcclShardTensor(shard, t, NULL, &gradient));
        fill_gradient(gradient, t, 0, rank);
        RETURN_IF_FAILED(qcclShardReduce(shard, t, stream));
    }
    RETURN_IF_FAILED(qcclStreamLaunch(stream, sleep_a_while, NULL));
    RETURN_IF_FAILED(qcclShardStep(shard, rate, stream));
    RETURN_IF_FAILED(qcclShardFlush(shard));
    RETURN_IF_FAILED(copy_weights(shard, qcclFloat32, job->weights[rank]));
    RETURN_IF_FAILED(qcclShardResync(shard));
    RETURN_IF_FAILED(copy_weights(shard, qcclFloat32, job->masters[rank]));
    RETURN_IF_FAILED(qcclStreamDestroy(stream));
    return qcclShardDestroy(shard);
}

Test(shard, a_flush_waits_for_the_gathers_in_flight)
{
    struct job *job = new_job(QCCL_SDP4BIT_POLICY);
    struct team team;
    job->fast = "int4";
    job->unclipped = true; /* clipping would wait for them */
    cr_assert(team_open(&team, 2, job->policy));
    cr_assert(team_open(&job->slow_team, 2, "none"));
    cr_assert(team_run(&team, flush_at_once, job), "%s", team_report(&team));
    for (int r = 0; r < 2; r++)
        cr_expect(memcmp(job->weights[r], job->masters[0], sizeof job->weights[0]) == 0,
                  "rank %d's weights are not the masters", r);
    team_close(&job->slow_team);
    team_close(&team);
    free(job);
}

/* DUO's masters see exact gradients only; and the gradients here do not depend on weights. */
Test(shard, with_duo_the_masters_are_those_of_exact_training)
{
    struct job *exact = new_job("reducescatter: none; min=0"), *duo = new_job("none");
    duo->fast = "sign1";
    run_job(exact, 2, NULL);
    run_job(duo, 2, NULL);
    cr_expect(memcmp(exact->masters[0], duo->masters[0], sizeof exact->masters[0]) == 0);
    cr_expect(memcmp(duo->weights[0], duo->masters[0], sizeof duo->weights[0]) != 0,
              "the tentative weights are not the committed ones");
    free(exact);
    free(duo);
}

Test(shard, ones_own_optimizer_with_duo_commits_exact_gradients)
{
    static float expected[TOTAL];
    struct job *job = new_job("none");
    job->own_optimizer = true;
    job->fast = "local";
    run_job(job, 1,
            NULL); /* local is exact there: transient weights are one step ahead of masters */
    descend_everywhere(expected, 1, false);
    cr_expect(memcmp(job->weights[0], expected, sizeof expected) == 0);
    free(job);
}

/* ------------------------------------------------------------------ states */

Test(shard, a_saved_state_goes_on_bit_for_bit)
{
    for (int nranks = 1; nranks <= 3; nranks += 2) {
        struct job *whole = new_job(QCCL_SDP4BIT_POLICY), *halved = new_job(QCCL_SDP4BIT_POLICY);
        halved->save_after = 2;
        run_job(whole, nranks, NULL);
        run_job(halved, nranks, NULL);
        cr_expect(memcmp(whole->weights, halved->weights, sizeof whole->weights) == 0);
        cr_expect(memcmp(whole->masters, halved->masters, sizeof whole->masters) == 0);
        free(whole);
        free(halved);
    }
}

struct stale {
    struct job *job;
    bool untouched[MOST_RANKS];
    float before[MOST_RANKS][TOTAL], after[MOST_RANKS][TOTAL];
};

/* Rank 1 goes back to the state it had a step ago, behind the others' backs. */
static qcclResult_t fall_behind(struct team *team, int rank, void *arg)
{
    struct stale *s = arg;
    qcclShard_t shard, old = NULL;
    RETURN_IF_FAILED(make_shard(team, rank, s->job, &shard));
    RETURN_IF_FAILED(start(shard, qcclFloat32));
    RETURN_IF_FAILED(make_shard(team, rank, s->job, &old));
    RETURN_IF_FAILED(start(old, qcclFloat32));
    RETURN_IF_FAILED(take_step(shard, s->job, rank, 0, NULL));
    qcclShard_t used = rank == 1 ? old : shard;
    RETURN_IF_FAILED(copy_weights(used, qcclFloat32, s->before[rank]));
    qcclResult_t stale = take_step(used, s->job, rank, 1, NULL);
    RETURN_IF_FAILED(copy_weights(used, qcclFloat32, s->after[rank]));
    s->untouched[rank] = stale == qcclMismatch && strstr(qcclGetLastError(), "version") &&
                         memcmp(s->before[rank], s->after[rank], sizeof s->before[0]) == 0;
    RETURN_IF_FAILED(qcclShardResync(used));
    RETURN_IF_FAILED(take_step(used, s->job, rank, 2, NULL));
    RETURN_IF_FAILED(copy_weights(used, qcclFloat32, s->after[rank]));
    qcclShardDestroy(shard);
    return qcclShardDestroy(old);
}

Test(shard, a_stale_replica_is_found_by_every_rank_and_a_resync_repairs_it)
{
    struct stale *s = calloc(1, sizeof *s);
    struct team team;
    s->job = new_job("delta: int4:group=2048; min=0");
    cr_assert(team_open(&team, 3, s->job->policy));
    cr_assert(team_run(&team, fall_behind, s), "%s", team_report(&team));
    for (int r = 0; r < 3; r++) {
        cr_expect(s->untouched[r], "rank %d", r);
        cr_expect(memcmp(s->after[r], s->after[0], sizeof s->after[0]) == 0, "rank %d", r);
    }
    team_close(&team);
    free(s->job);
    free(s);
    cr_expect_eq(qccl_memory_live(), 0);
}

/* ------------------------------------------------------------------ misuse */

static qcclResult_t misuse(struct team *team, int rank, void *arg)
{
    struct job *job = arg;
    qcclShard_t shard = NULL;
    qcclOwned_t owned;
    size_t bytes;
    RETURN_IF_FAILED(make_shard(team, rank, job, &shard));
    bool right = qcclShardReduce(shard, 0, NULL) == qcclInvalidUsage &&
                 qcclShardTensor(shard, TENSORS, NULL, NULL) == qcclInvalidArgument;
    RETURN_IF_FAILED(start(shard, qcclFloat32));
    RETURN_IF_FAILED(qcclShardReduce(shard, 0, NULL));
    right = right && qcclShardReduce(shard, 0, NULL) == qcclInvalidUsage &&
            qcclShardStep(shard, 1, NULL) == qcclInvalidUsage &&
            strstr(qcclGetLastError(), "tensor 1") &&
            qcclShardOwned(shard, 0, &owned) == qcclInvalidUsage &&
            qcclShardGather(shard, NULL) == qcclInvalidUsage;
    RETURN_IF_FAILED(qcclShardStateBytes(shard, &bytes));
    right = right && qcclShardSave(shard, &bytes, bytes - 1) == qcclInvalidArgument;
    RETURN_IF_FAILED(qcclShardDestroy(shard));
    return right ? qcclSuccess : qccl_fail(qcclInternalError, "misuse was let through");
}

static qcclResult_t rank_1_has_another_type(struct team *team, int rank, void *arg)
{
    struct job job = *(struct job *)arg;
    qcclShard_t shard = NULL;
    job.type = rank == 1 ? qcclBfloat16 : qcclFloat32;
    return make_shard(team, rank, &job, &shard);
}

static qcclResult_t fail_one(struct team *team, int rank, void *arg)
{
    qcclShard_t shard = NULL;
    qcclResult_t result = make_shard(team, rank, arg, &shard);
    qcclShardDestroy(shard);
    return result;
}

Test(shard, misuse_disagreement_and_short_memory_are_errors)
{
    struct team team;
    struct job *job = new_job("none");
    cr_assert(team_open(&team, 2, "none"));
    cr_expect(team_run(&team, misuse, job), "%s", team_report(&team));
    team_run(&team, rank_1_has_another_type, job);
    cr_expect(team_all(&team, qcclMismatch) && team_all_say(&team, "datatype"), "%s",
              team_report(&team));
    team_close(&team);
    cr_assert(team_open(&team, 1, "none"));
    for (long n = 1; n < 40; n++) {
        qccl_memory_fail_after(n);
        team_run(&team, fail_one, job);
        qccl_memory_fail_after(0);
        cr_expect(team.result[0] == qcclSuccess || team.result[0] == qcclOutOfMemory, "%ld: %s", n,
                  team_report(&team));
    }
    team_close(&team);
    free(job);
    cr_expect_eq(qccl_memory_live(), 0);
}
