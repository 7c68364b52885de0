/* DUO: the commit is exact, the fast reduction is what its codec makes of it, misuse is refused,
 * and what fails is an error of Fast and Commit. */
#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "tests/harness.h"

enum { RANKS = 3, SHARD = 1500, BUCKETS = 2, COUNT = RANKS * SHARD, STEPS = 4 };

/* What every rank sees of a run, and the second communicators. */
struct run {
    const char *fast, *slow;
    int late;
    bool streams;
    struct team slow_team;
    float gradients[STEPS][RANKS][BUCKETS][COUNT];
    float fast_shards[STEPS][RANKS][BUCKETS][SHARD], exact_shards[STEPS][RANKS][BUCKETS][SHARD];
    bool backward;                     /* the last bucket is reduced first */
    bool abort_slow;                   /* else the fast communicator is */
    uint64_t slow_bytes[STEPS][RANKS]; /* that each step has sent */
    pthread_barrier_t reduced, gate;   /* of the ranks; of the ranks and their streams */
};

static struct run *new_run(const char *fast, const char *slow, bool streams)
{
    struct run *run = calloc(1, sizeof *run);
    cr_assert(run);
    run->fast = fast;
    run->slow = slow;
    run->streams = streams;
    for (int s = 0; s < STEPS; s++)
        for (int r = 0; r < RANKS; r++)
            for (int b = 0; b < BUCKETS; b++)
                input_fill(run->gradients[s][r][b], COUNT, qcclFloat32, INPUT_NORMAL,
                           (uint64_t)(s * BUCKETS + b), r);
    return run;
}

static bool open_teams(struct team *team, struct run *run)
{
    qcclConfig_t config = {.size = sizeof config, .policy = "none", .seed = 11, .timeout = 60};
    bool opened = team_open_config(team, RANKS, &config);
    config.seed = 12;
    return opened && team_open_config(&run->slow_team, RANKS, &config);
}

static qcclResult_t make_duo(struct team *team, int rank, struct run *run, qcclDuo_t *duo)
{
    static const size_t counts[BUCKETS] = {COUNT, COUNT};
    qcclDuoConfig_t config = {.size = sizeof config,
                              .counts = counts,
                              .nbuckets = BUCKETS,
                              .fast = run->fast,
                              .slow = run->slow,
                              .late = run->late};
    return qcclDuoCreate(duo, team->comm[rank], run->slow_team.comm[rank], &config);
}

static qcclResult_t commit(struct run *run, qcclDuo_t duo, int rank, int step)
{
    for (int b = 0; b < BUCKETS; b++) {
        const float *exact;
        RETURN_IF_FAILED(qcclDuoCommit(duo, b, &exact));
        memcpy(run->exact_shards[step][rank][b], exact, sizeof run->exact_shards[0][0][0]);
    }
    return qcclSuccess;
}

static qcclResult_t take_step(struct run *run, qcclDuo_t duo, int rank, int step,
                              qcclStream_t stream)
{
    for (int b = BUCKETS - 1; b >= 0; b--)
        RETURN_IF_FAILED(qcclDuoReduce(duo, b, run->gradients[step][rank][b], stream));
    if (step)
        RETURN_IF_FAILED(commit(run, duo, rank, step - 1));
    for (int b = 0; b < BUCKETS; b++) {
        const float *fast;
        RETURN_IF_FAILED(qcclDuoFast(duo, b, &fast));
        memcpy(run->fast_shards[step][rank][b], fast, sizeof run->fast_shards[0][0][0]);
    }
    return qcclSuccess;
}

static qcclResult_t train(struct team *team, int rank, void *arg)
{
    struct run *run = arg;
    qcclDuo_t duo = NULL;
    qcclStream_t stream = NULL;
    qcclResult_t result = make_duo(team, rank, run, &duo);
    if (result == qcclSuccess && run->streams)
        result = qcclStreamCreate(&stream, 0);
    for (int s = 0; s < STEPS && result == qcclSuccess; s++)
        result = take_step(run, duo, rank, s, stream);
    if (result == qcclSuccess)
        result = commit(run, duo, rank, STEPS - 1);
    qcclDuoDestroy(duo); /* which waits for what the stream still does with it */
    qcclStreamDestroy(stream);
    return result;
}

static struct run *train_all(const char *fast, const char *slow, int late, bool streams)
{
    struct team team;
    struct run *run = new_run(fast, slow, streams);
    run->late = late;
    cr_assert(open_teams(&team, run));
    cr_assert(team_run(&team, train, run), "%s, %s: %s", fast, slow, team_report(&team));
    team_close(&run->slow_team);
    team_close(&team);
    return run;
}

/* The average in rank order, in fp32. */
static float average(const struct run *run, int step, int bucket, size_t i)
{
    float sum = run->gradients[step][0][bucket][i];
    for (int r = 1; r < RANKS; r++)
        sum += run->gradients[step][r][bucket][i];
    return sum * (1.0f / RANKS);
}

Test(duo, the_commit_is_the_fp32_average_in_rank_order_to_the_bit)
{
    static const char *const fast[] = {"int4", "sign1", "local", "int4:hadamard=32 intra=int8"};
    for (int f = 0; f < 8; f++) {
        struct run *run = train_all(fast[f % 4], f % 3 ? "fp32" : NULL, qcclDuoWait, f / 4);
        for (int s = 0; s < STEPS; s++)
            for (int r = 0; r < RANKS; r++)
                for (int b = 0; b < BUCKETS; b++)
                    for (size_t i = 0; i < SHARD; i++)
                        cr_assert_eq(run->exact_shards[s][r][b][i],
                                     average(run, s, b, (size_t)r * SHARD + i),
                                     "%s, step %d, rank %d, value %zu", fast[f % 4], s, r, i);
        free(run);
    }
    cr_expect_eq(qccl_memory_live(), 0);
}

struct scatter {
    struct run *run;
    float out[STEPS][RANKS][BUCKETS][SHARD];
};

/* The same reductions by qcclReduceScatter, in the order of the duo's. */
static qcclResult_t scatter_all(struct team *team, int rank, void *arg)
{
    struct scatter *s = arg;
    for (int step = 0; step < STEPS; step++)
        for (int b = BUCKETS - 1; b >= 0; b--)
            RETURN_IF_FAILED(qcclReduceScatter(s->run->gradients[step][rank][b],
                                               s->out[step][rank][b], SHARD, qcclFloat32, qcclAvg,
                                               team->comm[rank], NULL));
    return qcclSuccess;
}

Test(duo, the_fast_reduction_is_the_reduce_scatter_of_its_codec_to_the_bit)
{
    struct run *run = train_all("sign1", "fp32", qcclDuoWait, true);
    struct scatter *s = calloc(1, sizeof *s);
    struct team team;
    qcclConfig_t config = {
        .size = sizeof config, .policy = "reducescatter: sign1; min=0", .seed = 11, .timeout = 60};
    s->run = run;
    cr_assert(team_open_config(&team, RANKS, &config));
    cr_assert(team_run(&team, scatter_all, s), "%s", team_report(&team));
    team_close(&team);
    cr_expect(memcmp(s->out, run->fast_shards, sizeof s->out) == 0);
    free(s);
    free(run);
}

Test(duo, zero_bits_are_the_owners_own_gradient_and_nothing_sent)
{
    struct run *run = train_all("local", "fp32", qcclDuoWait, false);
    for (int r = 0; r < RANKS; r++)
        cr_expect(memcmp(run->fast_shards[1][r][0], &run->gradients[1][r][0][r * SHARD],
                         sizeof run->fast_shards[0][0][0]) == 0);
    free(run);
}

/* A residual of int4 is at most one int4 step of its group; int8 then has steps a 127th of that.
 * Scales are rounded up to bf16, by less than 2^-7. */
Test(duo, a_residual_completes_the_fast_sum_to_within_its_own_step)
{
    struct run *run = train_all("int4", "residual int8", qcclDuoWait, true);
    double most = 0, fast_error = 0, largest = 0;
    for (int s = 0; s < STEPS; s++)
        for (int r = 0; r < RANKS; r++)
            for (int b = 0; b < BUCKETS; b++)
                for (size_t i = 0; i < SHARD; i++) {
                    float exact = average(run, s, b, (size_t)r * SHARD + i);
                    most = fmax(most, fabs((double)run->exact_shards[s][r][b][i] - (double)exact));
                    fast_error = fmax(fast_error,
                                      fabs((double)run->fast_shards[s][r][b][i] - (double)exact));
                }
    for (int s = 0; s < STEPS; s++)
        for (int r = 0; r < RANKS; r++)
            for (int b = 0; b < BUCKETS; b++)
                for (size_t i = 0; i < COUNT; i++)
                    largest = fmax(largest, fabs((double)run->gradients[s][r][b][i]));
    double up = 1 + 1.0 / 128, int4_step = largest / 7 * up, int8_step = int4_step / 127 * up;
    double rounding = largest * RANKS * 0x1p-22; /* of the fp32 sums */
    cr_expect_leq(most, int8_step * (RANKS - 1) / RANKS + rounding);
    cr_expect_gt(fast_error, 10 * most, "the residual brought nothing");
    free(run);
}

/* The slow reductions of the others cannot end before rank 1 has started its own, and they commit
 * at once: they are late in every step.  No fast reduction holds them up. */
static qcclResult_t train_late(struct team *team, int rank, void *arg)
{
    struct run *run = arg;
    qcclDuo_t duo = NULL;
    qcclStats_t stats = {.size = sizeof stats};
    uint64_t before = 0;
    RETURN_IF_FAILED(make_duo(team, rank, run, &duo));
    for (int s = 0; s < STEPS; s++) {
        if (rank == 1)
            usleep(50000);
        for (int i = 0; i < BUCKETS; i++) {
            int b = run->backward ? BUCKETS - 1 - i : i;
            RETURN_IF_FAILED(qcclDuoReduce(duo, b, run->gradients[s][rank][b], NULL));
        }
        RETURN_IF_FAILED(commit(run, duo, rank, s));
        RETURN_IF_FAILED(qcclCommGetStats(run->slow_team.comm[rank], &stats));
        run->slow_bytes[s][rank] = stats.wire_bytes - before;
        before = stats.wire_bytes;
    }
    return qcclDuoDestroy(duo);
}

/* What a rank sends in a step: every bucket's shard to every other rank. */
static uint64_t bytes_of_a_step(const char *codec_text)
{
    qcclCodec_t codec;
    size_t bytes;
    cr_assert_eq(qcclCodecParse(codec_text, &codec), qcclSuccess);
    cr_assert_eq(qcclEncodedBytes(&codec, SHARD, &bytes), qcclSuccess);
    return BUCKETS * (RANKS - 1) * bytes;
}

/* Lateness of step 0 is seen behind the reductions of step 0 or 1, so step 1 or 2 is bf16. */
static void expect_steps_of_bf16(const struct run *run)
{
    uint64_t exact = bytes_of_a_step("none"), dropped = bytes_of_a_step("bf16");
    for (int s = 0; s < STEPS; s++)
        for (int r = 0; r < RANKS; r++) {
            uint64_t bytes = run->slow_bytes[s][r];
            cr_expect(bytes == exact || bytes == dropped, "step %d of rank %d sends %lu bytes", s,
                      r, (unsigned long)bytes);
            cr_expect_eq(bytes, run->slow_bytes[s][0], "rank %d differs from rank 0", r);
        }
    cr_expect_eq(run->slow_bytes[0][0], exact);
    cr_expect(run->slow_bytes[1][0] == dropped || run->slow_bytes[2][0] == dropped);
}

Test(duo, with_drop_late_commits_make_a_whole_later_step_bf16_on_every_rank)
{
    for (int backward = 0; backward < 2; backward++) {
        struct team team;
        struct run *run = new_run("local", "fp32", false);
        run->late = qcclDuoDrop;
        run->backward = backward;
        cr_assert(open_teams(&team, run));
        cr_assert(team_run(&team, train_late, run), "%s", team_report(&team));
        qcclStats_t stats = {.size = sizeof stats};
        cr_assert_eq(qcclCommGetStats(run->slow_team.comm[0], &stats), qcclSuccess);
        cr_expect_eq(stats.slow_calls, STEPS * BUCKETS);
        cr_expect_gt(stats.slow_exposed_ns, 0);
        expect_steps_of_bf16(run);
        team_close(&run->slow_team);
        team_close(&team);
        free(run);
    }
    cr_expect_eq(qccl_memory_live(), 0);
}

static qcclResult_t misuse(struct team *team, int rank, void *arg)
{
    struct run *run = arg;
    const float *shard;
    qcclDuo_t duo;
    RETURN_IF_FAILED(make_duo(team, rank, run, &duo));
    const float *g = run->gradients[0][rank][0];
    bool right = qcclDuoFast(duo, 0, &shard) == qcclInvalidUsage &&
                 qcclDuoCommit(duo, 0, &shard) == qcclInvalidUsage &&
                 qcclDuoReduce(duo, BUCKETS, g, NULL) == qcclInvalidArgument &&
                 qcclDuoReduce(duo, 0, NULL, NULL) == qcclInvalidArgument;
    RETURN_IF_FAILED(qcclDuoReduce(duo, 0, g, NULL));
    RETURN_IF_FAILED(qcclDuoReduce(duo, 0, g, NULL));
    right = right && qcclDuoReduce(duo, 0, g, NULL) == qcclInvalidUsage &&
            strstr(qcclGetLastError(), "qcclDuoCommit");
    RETURN_IF_FAILED(qcclDuoCommit(duo, 0, &shard));
    RETURN_IF_FAILED(qcclDuoReduce(duo, 0, g, NULL));
    RETURN_IF_FAILED(qcclDuoDestroy(duo)); /* with reductions in flight */
    return right ? qcclSuccess : qccl_fail(qcclInternalError, "misuse was let through");
}

Test(duo, misuse_is_refused_and_destroying_waits)
{
    struct team team;
    struct run *run = new_run("int4", "fp32", false);
    cr_assert(open_teams(&team, run));
    cr_expect(team_run(&team, misuse, run), "%s", team_report(&team));
    team_close(&run->slow_team);
    team_close(&team);
    free(run);
    cr_expect_eq(qccl_memory_live(), 0);
}

static void expect_refused(const char *fast, const char *slow, int late, const char *says)
{
    struct team team;
    struct run *run = new_run(fast, slow, false);
    run->late = late;
    cr_assert(open_teams(&team, run));
    team_run(&team, train, run);
    cr_expect(team_all(&team, qcclInvalidArgument) && team_all_say(&team, says), "%s, %s: %s", fast,
              slow, team_report(&team));
    team_close(&run->slow_team);
    team_close(&team);
    free(run);
}

Test(duo, configurations_that_cannot_be_are_refused_with_the_reason)
{
    expect_refused("int5", "fp32", qcclDuoWait, "int5");
    expect_refused("sign1:feedback=on", "fp32", qcclDuoWait, "feedback");
    expect_refused("int4", "int8", qcclDuoWait, "residual int8");
    expect_refused("local", "residual int8", qcclDuoWait, "local");
    expect_refused("int4:hadamard=32", "residual int8", qcclDuoWait, "hadamard");
    expect_refused("int4", "bf16", qcclDuoDrop, "qcclDuoDrop");
}

static qcclResult_t rank_2_says_otherwise(struct team *team, int rank, void *arg)
{
    struct run run = *(struct run *)arg;
    qcclDuo_t duo = NULL;
    run.fast = rank == 2 ? "int8" : "int4";
    return make_duo(team, rank, &run, &duo);
}

Test(duo, ranks_that_disagree_all_learn_of_it)
{
    struct team team;
    struct run *run = new_run("int4", "fp32", false);
    cr_assert(open_teams(&team, run));
    team_run(&team, rank_2_says_otherwise, run);
    cr_expect(team_all(&team, qcclMismatch) && team_all_say(&team, "int8"), "%s",
              team_report(&team));
    team_close(&run->slow_team);
    team_close(&team);
    free(run);
    cr_expect_eq(qccl_memory_live(), 0);
}

static qcclResult_t with_wrong_communicators(struct team *team, int rank, void *arg)
{
    static const int other[RANKS] = {0, 2, 1};
    static const size_t counts[] = {COUNT};
    struct run *run = arg;
    qcclDuoConfig_t config = {.size = sizeof config, .counts = counts, .nbuckets = 1};
    qcclDuo_t duo = NULL;
    if (qcclDuoCreate(&duo, team->comm[rank], team->comm[rank], &config) != qcclInvalidArgument)
        return qccl_fail(qcclInternalError, "one communicator for both was let through");
    return qcclDuoCreate(&duo, team->comm[rank], run->slow_team.comm[other[rank]], &config);
}

Test(duo, communicators_in_another_order_are_refused_on_every_rank)
{
    struct team team;
    struct run *run = new_run("int4", "fp32", false);
    cr_assert(open_teams(&team, run));
    team_run(&team, with_wrong_communicators, run);
    cr_expect(team.result[0] == qcclMismatch && team.result[1] == qcclInvalidArgument &&
                  team.result[2] == qcclInvalidArgument && team_all_say(&team, "slow_comm"),
              "%s", team_report(&team));
    team_close(&run->slow_team);
    team_close(&team);
    free(run);
    cr_expect_eq(qccl_memory_live(), 0);
}

/* ------------------------------------------------------------------ failures */

static qcclResult_t wait_at_gate(void *arg)
{
    pthread_barrier_wait(arg);
    return qcclSuccess;
}

/* Rank 0 aborts a communicator between the start of the reductions and
 * their run.  Returns what Commit does. */
static qcclResult_t abort_one(struct team *team, int rank, void *arg)
{
    struct run *run = arg;
    struct team *aborted = run->abort_slow ? &run->slow_team : team;
    qcclDuo_t duo = NULL;
    qcclStream_t stream = NULL;
    const float *fast, *exact;
    RETURN_IF_FAILED(make_duo(team, rank, run, &duo));
    RETURN_IF_FAILED(qcclStreamCreate(&stream, 0));
    RETURN_IF_FAILED(qcclStreamLaunch(stream, wait_at_gate, &run->gate));
    RETURN_IF_FAILED(qcclDuoReduce(duo, 0, run->gradients[0][rank][0], stream));
    pthread_barrier_wait(&run->reduced);
    if (rank == 0)
        qcclCommAbort(aborted->comm[0]);
    pthread_barrier_wait(&run->gate);
    bool fast_fails = qcclDuoFast(duo, 0, &fast) != qcclSuccess;
    qcclResult_t result = qcclDuoCommit(duo, 0, &exact);
    if (result == qcclSuccess)
        memcpy(run->exact_shards[0][rank][0], exact, sizeof run->exact_shards[0][0][0]);
    if (fast_fails == run->abort_slow)
        result = qccl_fail(qcclInternalError, "the fast reduction %s",
                           fast_fails ? "failed" : "did not fail");
    qcclStreamDestroy(stream);
    qcclDuoDestroy(duo);
    return result;
}

static struct run *run_abort(const char *slow, bool of_slow, struct team *team)
{
    struct run *run = new_run("int4", slow, true);
    run->abort_slow = of_slow;
    pthread_barrier_init(&run->reduced, NULL, RANKS);
    pthread_barrier_init(&run->gate, NULL, 2 * RANKS);
    cr_assert(open_teams(team, run));
    team_run(team, abort_one, run);
    pthread_barrier_destroy(&run->reduced);
    pthread_barrier_destroy(&run->gate);
    team_close(&run->slow_team);
    team_close(team);
    cr_expect_eq(qccl_memory_live(), 0);
    return run;
}

static bool aborted_or_remote(const struct team *team)
{
    for (int r = 0; r < RANKS; r++)
        if (team->result[r] != (r ? qcclRemoteError : qcclAborted))
            return false;
    return true;
}

Test(duo, a_residual_of_a_fast_reduction_that_failed_is_never_committed)
{
    struct team team;
    free(run_abort("residual int8", false, &team));
    cr_expect(aborted_or_remote(&team), "%s", team_report(&team));
}

Test(duo, an_exact_reduction_outlives_the_fast_one)
{
    struct team team;
    struct run *run = run_abort("fp32", false, &team);
    cr_expect(team_all(&team, qcclSuccess), "%s", team_report(&team));
    for (int r = 0; r < RANKS; r++)
        for (size_t i = 0; i < SHARD; i++)
            cr_assert_eq(run->exact_shards[0][r][0][i], average(run, 0, 0, (size_t)r * SHARD + i));
    free(run);
}

Test(duo, an_aborted_slow_reduction_is_an_error_of_the_commit)
{
    struct team team;
    free(run_abort("fp32", true, &team));
    cr_expect(aborted_or_remote(&team), "%s", team_report(&team));
}

/* A rank that fails ends both communicators, as a program would, so that no other waits for it. */
static qcclResult_t train_or_abort(struct team *team, int rank, void *arg)
{
    struct run *run = arg;
    qcclResult_t result = train(team, rank, run);
    if (result == qcclSuccess)
        return qcclSuccess;
    char sentence[SENTENCE_BYTES];
    snprintf(sentence, sizeof sentence, "%s", qcclGetLastError());
    qcclCommAbort(team->comm[rank]);
    qcclCommAbort(run->slow_team.comm[rank]);
    return qccl_fail(result, "%s", sentence);
}

/* Trains with the n-th allocation failing; true when none failed. */
static bool train_with_failure(struct run *run, long n)
{
    struct team team;
    cr_assert(open_teams(&team, run));
    qccl_memory_fail_after(n);
    bool succeeded = team_run(&team, train_or_abort, run);
    qccl_memory_fail_after(0);
    for (int r = 0; r < RANKS; r++)
        cr_expect(team.result[r] == qcclSuccess || team.result[r] == qcclOutOfMemory ||
                      team.result[r] == qcclMismatch || team.result[r] == qcclRemoteError ||
                      team.result[r] == qcclAborted,
                  "allocation %ld: %s", n, team_report(&team));
    team_close(&run->slow_team);
    team_close(&team);
    cr_assert_eq(qccl_memory_live(), 0, "allocation %ld leaks", n);
    return succeeded;
}

Test(duo, any_allocation_that_fails_is_an_error_without_a_leak_or_a_hang)
{
    for (int streams = 0; streams < 2; streams++) {
        struct run *run = new_run("int4", "residual int8", streams);
        long n = 1;
        while (n < 5000 && !train_with_failure(run, n))
            n++;
        cr_expect_geq(n, 2 * RANKS * BUCKETS, "%ld allocations", n);
        cr_expect_lt(n, 5000);
        free(run);
    }
}
