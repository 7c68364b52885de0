/* A rank that aborts, leaves or stays silent ends the others' calls with an error in time; a
 * damaged message is found; nobody hangs and nothing leaks. */
#include <criterion/criterion.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "collectives/comm.h"
#include "tests/harness.h"

enum { RANKS = 4, COUNT = 3000 };

static void open_team(struct team *team, double timeout)
{
    qcclConfig_t config = QCCL_CONFIG_INITIALIZER;
    config.policy = "int4; min=0";
    config.timeout = timeout;
    cr_assert(team_open_config(team, RANKS, &config), "%s", team->sentence[0]);
}

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static qcclResult_t allreduce(struct team *team, int rank)
{
    float in[COUNT], out[COUNT];
    input_fill(in, COUNT, qcclFloat32, INPUT_NORMAL, 0, rank);
    return qcclAllReduce(in, out, COUNT, qcclFloat32, qcclSum, team->comm[rank], NULL);
}

static qcclResult_t call(struct team *team, int rank, void *arg)
{
    (void)arg;
    return allreduce(team, rank);
}

/* ------------------------------------------------------------------ abort */

static qcclResult_t rank_3_aborts(struct team *team, int rank, void *arg)
{
    (void)arg;
    if (rank != 3)
        return allreduce(team, rank);
    pause_ms(50);
    return qcclCommAbort(team->comm[3]);
}

Test(failure, an_abort_ends_the_calls_of_all_ranks)
{
    struct team team;
    open_team(&team, -1);
    team_run(&team, rank_3_aborts, NULL);
    cr_expect_eq(team.result[3], qcclSuccess);
    for (int r = 0; r < 3; r++)
        cr_expect(team.result[r] == qcclRemoteError, "%s", team_report(&team));
    team_run(&team, call, NULL);
    for (int r = 0; r < RANKS; r++)
        cr_expect_eq(team.result[r], r == 3 ? qcclAborted : qcclRemoteError, "%s",
                     team_report(&team));
    qcclResult_t kept;
    cr_expect_eq(qcclCommGetAsyncError(team.comm[3], &kept), qcclSuccess);
    cr_expect_eq(kept, qcclAborted);
    team_close(&team);
    cr_expect_eq(qccl_memory_live(), 0);
}

static void *abort_later(void *comm)
{
    pause_ms(50);
    qcclCommAbort(comm);
    return NULL;
}

static qcclResult_t rank_2_waits(struct team *team, int rank, void *arg)
{
    pthread_t thread;
    (void)arg;
    if (rank == 3)
        return qcclSuccess; /* never calls */
    if (rank == 2 && pthread_create(&thread, NULL, abort_later, team->comm[2]) != 0)
        return qcclSystemError;
    qcclResult_t result = allreduce(team, rank);
    if (rank == 2)
        pthread_join(thread, NULL);
    return result;
}

Test(failure, an_abort_from_another_thread_ends_a_call_that_waits)
{
    struct team team;
    open_team(&team, -1);
    team_run(&team, rank_2_waits, NULL);
    for (int r = 0; r < 3; r++)
        cr_expect(team.result[r] == qcclRemoteError || team.result[r] == qcclAborted, "%s",
                  team_report(&team));
    team_close(&team);
    cr_expect_eq(qccl_memory_live(), 0);
}

/* ------------------------------------------------------------------ leaving, silence */

static qcclResult_t rank_0_leaves(struct team *team, int rank, void *arg)
{
    (void)arg;
    if (rank)
        return allreduce(team, rank);
    pause_ms(30);
    qcclResult_t result = qcclCommDestroy(team->comm[0]);
    team->comm[0] = NULL;
    return result;
}

Test(failure, a_rank_that_destroys_its_communicator_ends_the_waits_of_the_others)
{
    struct team team;
    open_team(&team, -1);
    cr_assert(team_run(&team, call, NULL), "%s", team_report(&team));
    team_run(&team, rank_0_leaves, NULL);
    cr_expect_eq(team.result[0], qcclSuccess);
    for (int r = 1; r < RANKS; r++) {
        cr_expect_eq(team.result[r], qcclRemoteError, "%s", team_report(&team));
        cr_expect(strstr(team.sentence[r], "rank"), "%s", team.sentence[r]);
    }
    team_close(&team);
    cr_expect_eq(qccl_memory_live(), 0);
}

static qcclResult_t rank_1_is_silent(struct team *team, int rank, void *arg)
{
    double *seconds = arg, start = now();
    qcclResult_t result = rank == 1 ? qcclSuccess : allreduce(team, rank);
    seconds[rank] = now() - start;
    return result;
}

Test(failure, a_silent_rank_is_an_error_after_the_timeout_and_not_before)
{
    struct team team;
    double seconds[RANKS];
    open_team(&team, 0.3);
    team_run(&team, rank_1_is_silent, seconds);
    int timed_out = 0; /* the others heard of it from the one that gave up first */
    for (int r = 0; r < RANKS; r++) {
        if (r == 1)
            continue;
        bool own = strstr(team.sentence[r], "did not answer") != NULL;
        timed_out += own;
        cr_expect_eq(team.result[r], qcclRemoteError, "%s", team_report(&team));
        cr_expect(own ? seconds[r] >= 0.3 : strstr(team.sentence[r], "gave up") != NULL,
                  "after %g s: %s", seconds[r], team_report(&team));
    }
    cr_expect_geq(timed_out, 1, "%s", team_report(&team));
    team_close(&team);
}

static qcclResult_t rank_1_is_late(struct team *team, int rank, void *arg)
{
    (void)arg;
    if (rank == 1)
        pause_ms(400);
    return allreduce(team, rank);
}

Test(failure, a_late_rank_is_waited_for)
{
    struct team team;
    open_team(&team, 30);
    cr_expect(team_run(&team, rank_1_is_late, NULL), "%s", team_report(&team));
    team_close(&team);
    open_team(&team, -1);
    cr_expect(team_run(&team, rank_1_is_late, NULL), "%s", team_report(&team));
    team_close(&team);
}

/* ------------------------------------------------------------------ arguments */

Test(failure, wrong_arguments_of_a_collective_are_refused_before_anything_is_sent)
{
    struct team team;
    float in[8] = {0}, out[32] = {0};
    open_team(&team, 5);
    qcclComm_t c = team.comm[0];
    cr_expect_eq(qcclAllReduce(in, out, 8, qcclFloat32, qcclSum, NULL, NULL), qcclInvalidArgument);
    cr_expect_eq(qcclAllReduce(NULL, out, 8, qcclFloat32, qcclSum, c, NULL), qcclInvalidArgument);
    cr_expect_eq(qcclAllReduce(in, NULL, 8, qcclFloat32, qcclSum, c, NULL), qcclInvalidArgument);
    cr_expect_eq(qcclAllReduce(in, out, 8, (qcclDataType_t)10, qcclSum, c, NULL),
                 qcclInvalidArgument);
    cr_expect_eq(qcclAllReduce(in, out, 8, (qcclDataType_t)-1, qcclSum, c, NULL),
                 qcclInvalidArgument);
    cr_expect_eq(qcclAllReduce(in, out, 8, qcclFloat32, (qcclRedOp_t)5, c, NULL),
                 qcclInvalidArgument);
    cr_expect_eq(qcclAllReduce(in, out, 8, qcclFloat32, (qcclRedOp_t)-1, c, NULL),
                 qcclInvalidArgument);
    cr_expect_eq(qcclAllReduce(in, out, SIZE_MAX, qcclFloat32, qcclSum, c, NULL),
                 qcclInvalidArgument);
    cr_expect_eq(qcclReduceScatter(in, out, ((size_t)1 << 46) + 1, qcclFloat32, qcclSum, c, NULL),
                 qcclInvalidArgument);
    cr_expect_eq(qcclAllGather(in, NULL, 8, qcclFloat32, c, NULL), qcclInvalidArgument);
    cr_expect_eq(qcclAllGatherDelta(in, out, 8, qcclFloat64, c, NULL), qcclInvalidArgument);
    cr_expect(strstr(qcclGetLastError(), "float64"), "%s", qcclGetLastError());
    cr_expect(team_run(&team, call, NULL), "%s", team_report(&team));
    team_close(&team);
}

Test(failure, getters_and_setters_refuse_null_and_destroying_nothing_is_fine)
{
    struct team team;
    int n;
    uint64_t u;
    uint32_t w;
    size_t z;
    qcclResult_t e;
    qcclStats_t stats = {.size = sizeof stats};
    open_team(&team, 5);
    qcclComm_t c = team.comm[2];
    cr_expect(qcclCommCount(c, &n) == qcclSuccess && n == RANKS);
    cr_expect(qcclCommUserRank(c, &n) == qcclSuccess && n == 2);
    cr_expect_eq(qcclCommCount(NULL, &n), qcclInvalidArgument);
    cr_expect_eq(qcclCommCount(c, NULL), qcclInvalidArgument);
    cr_expect_eq(qcclCommUserRank(NULL, &n), qcclInvalidArgument);
    cr_expect_eq(qcclCommUserRank(c, NULL), qcclInvalidArgument);
    cr_expect_eq(qcclCommGetAsyncError(NULL, &e), qcclInvalidArgument);
    cr_expect_eq(qcclCommGetAsyncError(c, NULL), qcclInvalidArgument);
    cr_expect_eq(qcclCommGetSeed(NULL, &u), qcclInvalidArgument);
    cr_expect_eq(qcclCommGetSeed(c, NULL), qcclInvalidArgument);
    cr_expect_eq(qcclCommGetSequence(NULL, &w), qcclInvalidArgument);
    cr_expect_eq(qcclCommGetSequence(c, NULL), qcclInvalidArgument);
    cr_expect_eq(qcclCommGetPolicy(NULL, (char[8]){0}, 8), qcclInvalidArgument);
    cr_expect_eq(qcclCommGetPolicy(c, NULL, 8), qcclInvalidArgument);
    cr_expect_eq(qcclCommSetPolicy(NULL, "int4"), qcclInvalidArgument);
    cr_expect_eq(qcclCommSetPolicy(c, NULL), qcclInvalidArgument);
    cr_expect_eq(qcclCommSetSeed(NULL, 1), qcclInvalidArgument);
    cr_expect_eq(qcclCommSetSequence(NULL, 1), qcclInvalidArgument);
    cr_expect_eq(qcclCommSetTensor(NULL, 1), qcclInvalidArgument);
    cr_expect_eq(qcclCommGetStats(NULL, &stats), qcclInvalidArgument);
    cr_expect_eq(qcclCommGetStats(c, NULL), qcclInvalidArgument);
    stats.size = 4;
    cr_expect_eq(qcclCommGetStats(c, &stats), qcclInvalidArgument);
    cr_expect_eq(qcclFeedbackReset(NULL), qcclInvalidArgument);
    cr_expect_eq(qcclFeedbackBytes(NULL, &z), qcclInvalidArgument);
    cr_expect_eq(qcclFeedbackBytes(c, NULL), qcclInvalidArgument);
    cr_expect_eq(qcclCommAbort(NULL), qcclInvalidArgument);
    cr_expect_eq(qcclCommDestroy(NULL), qcclSuccess);
    team_close(&team);
}

/* ------------------------------------------------------------------ many at once */

static qcclResult_t some_abort(struct team *team, int rank, void *arg)
{
    uint64_t h = input_hash(*(uint64_t *)arg, rank, 0);
    for (int i = 0; i < 4; i++) {
        if ((h >> (8 * i)) % 8 == 0)
            return qcclCommAbort(team->comm[rank]);
        qcclResult_t result = allreduce(team, rank);
        if (result != qcclSuccess)
            return result;
    }
    return qcclSuccess;
}

Test(failure, aborts_at_any_moment_end_every_rank_without_a_leak)
{
    int aborted = 0;
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct team team;
        open_team(&team, -1);
        team_run(&team, some_abort, &seed);
        for (int r = 0; r < RANKS; r++) {
            cr_expect(team.result[r] == qcclSuccess || team.result[r] == qcclRemoteError ||
                          team.result[r] == qcclAborted,
                      "seed %d: %s", (int)seed, team_report(&team));
            aborted += team.result[r] == qcclRemoteError;
        }
        team_close(&team);
        cr_assert_eq(qccl_memory_live(), 0, "seed %d leaks", (int)seed);
    }
    cr_expect_gt(aborted, 30);
}
