/* Groups and the bucketer: a merged message gives the bits of one call on the tensors laid behind
 * one another, and what must stay apart does. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "tests/harness.h"

enum { RANKS = 3, TENSORS = 4, TOTAL = 1000 + 0 + 37 + 4963, MOST = 2000 };
static const size_t counts[TENSORS] = {1000, 0, 37, 4963};

/* One call on all values, and the same values as tensors; all buffers as bytes of float. */
struct work {
    qcclColl_t collective;
    qcclDataType_t type;
    bool in_place, streamed, bucketer;
    size_t bytes; /* of the bucketer */
    int nested;   /* further starts inside the group */
    float whole_in[RANKS][RANKS * TOTAL], whole_out[RANKS][RANKS * TOTAL];
    float in[RANKS][TENSORS][RANKS * TOTAL], out[RANKS][TENSORS][RANKS * TOTAL];
};

static bool is_delta(const struct work *w)
{
    return w->collective == qcclCollAllGatherDelta;
}

static size_t in_shards(const struct work *w)
{
    return w->collective == qcclCollReduceScatter ? RANKS : 1;
}

static size_t out_shards(const struct work *w)
{
    return w->collective == qcclCollAllGather || is_delta(w) ? RANKS : 1;
}

static size_t in_bytes(const struct work *w)
{
    return is_delta(w) ? sizeof(float) : qcclTypeBytes(w->type);
}

/* Shard s of tensor t lies behind those before it in shard s of the whole. */
static void take_apart(const char *whole, char *tensor, int t, size_t shards, size_t elem_bytes)
{
    size_t first = 0;
    for (int before = 0; before < t; before++)
        first += counts[before];
    for (size_t s = 0; s < shards; s++)
        memcpy(tensor + s * counts[t] * elem_bytes, whole + (s * TOTAL + first) * elem_bytes,
               counts[t] * elem_bytes);
}

static struct work *new_work(qcclColl_t collective, qcclDataType_t type)
{
    struct work *w = calloc(1, sizeof *w);
    cr_assert(w);
    w->collective = collective;
    w->type = type;
    for (int r = 0; r < RANKS; r++) {
        input_fill(w->whole_in[r], in_shards(w) * TOTAL, is_delta(w) ? qcclFloat32 : type,
                   INPUT_NORMAL, 7, r);
        if (is_delta(w))
            input_fill(w->whole_out[r], RANKS * TOTAL, type, INPUT_NORMAL, 8, 0);
        for (int t = 0; t < TENSORS; t++) {
            take_apart((char *)w->whole_in[r], (char *)w->in[r][t], t, in_shards(w), in_bytes(w));
            take_apart((char *)w->whole_out[r], (char *)w->out[r][t], t, out_shards(w),
                       qcclTypeBytes(type));
        }
    }
    return w;
}

static qcclResult_t call_one(const struct work *w, const void *in, void *out, size_t count,
                             qcclComm_t comm, void *stream)
{
    switch (w->collective) {
    case qcclCollAllReduce:
        return qcclAllReduce(in, out, count, w->type, qcclAvg, comm, stream);
    case qcclCollReduceScatter:
        return qcclReduceScatter(in, out, count, w->type, qcclAvg, comm, stream);
    case qcclCollAllGather:
        return qcclAllGather(in, out, count, w->type, comm, stream);
    default:
        return qcclAllGatherDelta(in, out, count, w->type, comm, stream);
    }
}

/* The buffers of a tensor; in place, the input moves into the larger one. */
static void place(struct work *w, int rank, int t, void **in, void **out)
{
    size_t own = (size_t)rank * counts[t] * qcclTypeBytes(w->type);
    *in = w->in[rank][t];
    *out = w->out[rank][t];
    if (!w->in_place)
        return;
    if (w->collective == qcclCollReduceScatter)
        *out = (char *)*in + own;
    else
        *in = memcpy((char *)*out + (w->collective == qcclCollAllGather ? own : 0), *in,
                     counts[t] * qcclTypeBytes(w->type));
}

static qcclResult_t run_whole(struct team *team, int rank, void *arg)
{
    struct work *w = arg;
    return call_one(w, w->whole_in[rank], w->whole_out[rank], TOTAL, team->comm[rank], NULL);
}

static qcclResult_t add_all(struct work *w, int rank, qcclComm_t comm, qcclStream_t stream)
{
    qcclBucketer_t bucketer = NULL;
    void *in, *out;
    qcclResult_t result = qcclBucketerCreate(&bucketer, comm, w->bytes, w->type, qcclAvg, stream);
    for (int t = 0; t < TENSORS && result == qcclSuccess; t++) {
        place(w, rank, t, &in, &out);
        result = qcclBucketerAdd(bucketer, in, out, counts[t]);
    }
    qcclResult_t left = qcclBucketerDestroy(bucketer);
    return result == qcclSuccess ? left : result;
}

static qcclResult_t group_all(struct work *w, int rank, qcclComm_t comm, qcclStream_t stream)
{
    qcclResult_t result = qcclGroupStart();
    void *in, *out;
    for (int t = 0; t < TENSORS; t++) {
        for (int n = 0; n < w->nested; n++)
            qcclGroupStart();
        place(w, rank, t, &in, &out);
        qcclResult_t called = call_one(w, in, out, counts[t], comm, stream);
        result = result == qcclSuccess ? called : result;
        for (int n = 0; n < w->nested; n++)
            qcclGroupEnd();
    }
    qcclResult_t ended = qcclGroupEnd();
    return result == qcclSuccess ? ended : result;
}

static qcclResult_t run_tensors(struct team *team, int rank, void *arg)
{
    struct work *w = arg;
    qcclStream_t stream = NULL;
    qcclResult_t result = w->streamed ? qcclStreamCreate(&stream, 0) : qcclSuccess;
    if (result == qcclSuccess)
        result = (w->bucketer ? add_all : group_all)(w, rank, team->comm[rank], stream);
    if (result != qcclSuccess) /* as a program would: no stream, no bucketer, no call */
        qcclCommAbort(team->comm[rank]);
    qcclResult_t left = qcclStreamDestroy(stream);
    return result == qcclSuccess ? left : result;
}

/* The first tensor whose result is not its part of the whole's, on any rank; or -1. */
static int differing(struct work *w)
{
    static char expected[RANKS * TOTAL * sizeof(float)];
    for (int r = 0; r < RANKS; r++)
        for (int t = 0; t < TENSORS; t++) {
            void *out = w->out[r][t];
            if (w->in_place && w->collective == qcclCollReduceScatter)
                out = (char *)w->in[r][t] + (size_t)r * counts[t] * qcclTypeBytes(w->type);
            take_apart((char *)w->whole_out[r], expected, t, out_shards(w), qcclTypeBytes(w->type));
            if (memcmp(out, expected, out_shards(w) * counts[t] * qcclTypeBytes(w->type)) != 0)
                return t;
        }
    return -1;
}

static qcclStats_t stats_of(qcclComm_t comm)
{
    qcclStats_t stats = {.size = sizeof stats};
    qcclCommGetStats(comm, &stats);
    return stats;
}

/* The same work as one call and as tensors, on teams of their own: bits and statistics. */
static void expect_one_message(struct work *w, const char *policy)
{
    struct team team;
    cr_assert(team_open(&team, RANKS, policy), "%s", team.sentence[0]);
    cr_expect(team_run(&team, run_whole, w), "%s", team_report(&team));
    qcclStats_t whole = stats_of(team.comm[1]);
    team_close(&team);
    cr_assert(team_open(&team, RANKS, policy));
    cr_expect(team_run(&team, run_tensors, w), "%s", team_report(&team));
    qcclStats_t merged = stats_of(team.comm[1]);
    team_close(&team);
    cr_expect_eq(differing(w), -1, "%s: collective %d, tensor %d", policy, (int)w->collective,
                 differing(w));
    cr_expect_eq(merged.calls, whole.calls);
    cr_expect_eq(merged.passed_small, whole.passed_small);
    cr_expect_eq(merged.wire_bytes, whole.wire_bytes);
    free(w);
    cr_expect_eq(qccl_memory_live(), 0);
}

/* ------------------------------------------------------------------ merged messages */

Test(groups, every_collective_gives_the_bits_of_one_call_on_tensors_behind_one_another)
{
    static const qcclDataType_t types[] = {qcclFloat32, qcclBfloat16};
    for (int collective = 0; collective < qcclNumColls; collective++)
        for (size_t type = 0; type < 2; type++)
            for (int streamed = 0; streamed < 2; streamed++) {
                struct work *w = new_work((qcclColl_t)collective, types[type]);
                w->streamed = streamed;
                expect_one_message(w, "int4; min=0");
            }
}

Test(groups, tensors_in_place_give_the_same_bits)
{
    static const qcclColl_t collectives[] = {qcclCollAllReduce, qcclCollReduceScatter,
                                             qcclCollAllGather};
    for (int c = 0; c < 3; c++) {
        struct work *w = new_work(collectives[c], qcclFloat32);
        w->in_place = true;
        expect_one_message(w, "int8; min=0");
    }
}

Test(groups, the_least_size_of_the_policy_is_compared_with_the_whole)
{
    struct work *compressed = new_work(qcclCollAllReduce, qcclFloat32);
    expect_one_message(compressed, "int4; min=22KiB"); /* the largest tensor has 19.4 KiB */
    struct work *passed = new_work(qcclCollAllReduce, qcclFloat32);
    expect_one_message(passed, "int4; min=24KiB");
}

Test(groups, nested_groups_start_at_the_outermost_end)
{
    struct work *w = new_work(qcclCollAllReduce, qcclFloat32);
    w->nested = 2;
    expect_one_message(w, "int4; min=0");
}

Test(groups, error_feedback_belongs_to_the_merged_message)
{
    struct work *w = new_work(qcclCollAllReduce, qcclFloat32);
    expect_one_message(w, "int4:feedback=on; min=0");
}

/* ------------------------------------------------------------------ what stays apart */

enum { LARGE = QCCL_GROUP_BYTES / sizeof(float) };

struct apart {
    size_t counts[3];
    qcclDataType_t type;
    qcclRedOp_t ops[3];
    uint64_t tensors[3];
    float *buffer[RANKS];
};

static qcclResult_t group_three(struct team *team, int rank, void *arg)
{
    struct apart *a = arg;
    float *at = a->buffer[rank];
    qcclGroupStart();
    for (int i = 0; i < 3; i++) {
        qcclCommSetTensor(team->comm[rank], a->tensors[i]);
        qcclAllReduce(at, at, a->counts[i], a->type, a->ops[i], team->comm[rank], NULL);
        at += a->counts[i];
    }
    return qcclGroupEnd();
}

static qcclStats_t stats_of_three(struct apart *a, const char *policy)
{
    struct team team;
    for (int r = 0; r < RANKS; r++)
        a->buffer[r] = calloc(a->counts[0] + a->counts[1] + a->counts[2] + 1, sizeof(float));
    cr_assert(team_open(&team, RANKS, policy));
    cr_expect(team_run(&team, group_three, a), "%s", team_report(&team));
    qcclStats_t stats = stats_of(team.comm[0]);
    team_close(&team);
    for (int r = 0; r < RANKS; r++)
        free(a->buffer[r]);
    return stats;
}

Test(groups, messages_do_not_grow_beyond_the_limit_and_large_calls_stay_alone)
{
    struct apart grow = {.counts = {LARGE / 2, LARGE / 2, 1}, .type = qcclFloat32};
    cr_expect_eq(stats_of_three(&grow, "int8; min=0").calls, 2);
    struct apart alone = {.counts = {1, LARGE, 1}, .type = qcclFloat32};
    cr_expect_eq(stats_of_three(&alone, "int8; min=0").calls, 3);
    struct apart empty = {.counts = {0, LARGE, 0}, .type = qcclFloat32};
    qcclStats_t stats = stats_of_three(&empty, "int8; min=0");
    cr_expect(stats.calls == 1 && stats.passed_small == 2);
}

Test(groups, calls_that_differ_or_that_nobody_compresses_are_not_merged)
{
    struct apart ops = {
        .counts = {9, 9, 9}, .type = qcclFloat32, .ops = {qcclSum, qcclAvg, qcclSum}};
    cr_expect_eq(stats_of_three(&ops, "int8; min=0").calls, 3);
    struct apart tensors = {.counts = {9, 9, 9}, .type = qcclFloat32, .tensors = {1, 1, 2}};
    cr_expect_eq(stats_of_three(&tensors, "int8; min=0").calls, 2);
    struct apart integers = {.counts = {9, 9, 9}, .type = qcclInt32};
    cr_expect_eq(stats_of_three(&integers, "int8; min=0").passed_type, 3);
    struct apart none = {.counts = {9, 9, 9}, .type = qcclFloat32};
    cr_expect_eq(stats_of_three(&none, "none").passed_policy, 3);
}

/* ------------------------------------------------------------------ errors */

Test(groups, an_end_without_a_start_is_refused)
{
    cr_expect_eq(qcclGroupEnd(), qcclInvalidUsage);
    cr_expect_eq(qcclGroupStart(), qcclSuccess);
    cr_expect_eq(qcclGroupEnd(), qcclSuccess, "an empty group");
    cr_expect_eq(qcclGroupEnd(), qcclInvalidUsage);
}

static qcclResult_t refuse_one(struct team *team, int rank, void *arg)
{
    float(*values)[2] = arg;
    qcclComm_t comm = team->comm[rank];
    qcclGroupStart();
    qcclResult_t good =
        qcclAllReduce(&values[rank][0], &values[rank][0], 1, qcclFloat32, qcclSum, comm, NULL);
    qcclResult_t wrong = qcclAllReduce(NULL, values[rank], 1, qcclFloat32, qcclSum, comm, NULL);
    qcclResult_t later =
        qcclAllReduce(&values[rank][1], &values[rank][1], 1, qcclFloat32, qcclSum, comm, NULL);
    qcclResult_t ended = qcclGroupEnd();
    bool right = good == qcclSuccess && wrong == qcclInvalidArgument && later == qcclSuccess;
    return right ? ended : qcclInternalError;
}

Test(groups, the_end_returns_the_error_of_a_refused_call_and_the_others_run)
{
    struct team team;
    float values[RANKS][2] = {{1, 10}, {2, 20}, {4, 40}};
    cr_assert(team_open(&team, RANKS, "int4"));
    team_run(&team, refuse_one, values);
    cr_expect(team_all(&team, qcclInvalidArgument), "%s", team_report(&team));
    cr_expect(team_all_say(&team, "sendbuff is NULL"), "%s", team_report(&team));
    for (int r = 0; r < RANKS; r++)
        cr_expect(values[r][0] == 7 && values[r][1] == 70);
    team_close(&team);
    cr_expect_eq(qccl_memory_live(), 0);
}

/* Equal sums of counts: what differs is the composition, or whether there is a group at all. */
static qcclResult_t group_differently(struct team *team, int rank, void *arg)
{
    static float buffer[RANKS][100];
    int odd = *(int *)arg;
    float *b = buffer[rank];
    size_t first = rank == odd ? 30 : 40;
    qcclGroupStart();
    qcclAllReduce(b, b, first, qcclFloat32, qcclSum, team->comm[rank], NULL);
    qcclAllReduce(b + first, b + first, 100 - first, qcclFloat32, qcclSum, team->comm[rank], NULL);
    return qcclGroupEnd();
}

static qcclResult_t split_on_one(struct team *team, int rank, void *arg)
{
    static float buffer[RANKS][100];
    float *b = buffer[rank];
    qcclGroupStart();
    qcclAllReduce(b, b, 40, qcclFloat32, qcclSum, team->comm[rank], NULL);
    if (rank == *(int *)arg)
        qcclCommSetTensor(team->comm[rank], 1); /* two messages here, one there */
    qcclAllReduce(b + 40, b + 40, 60, qcclFloat32, qcclSum, team->comm[rank], NULL);
    return qcclGroupEnd();
}

Test(groups, ranks_that_group_differently_are_found_by_the_check_and_none_waits)
{
    setenv("QCCL_CHECK", "1", 1);
    for (int odd = 0; odd < RANKS; odd++) {
        struct team team;
        cr_assert(team_open(&team, RANKS, "int4; min=0"));
        team_run(&team, group_differently, &odd);
        cr_expect(team_all(&team, qcclMismatch), "%s", team_report(&team));
        cr_expect(team_all_say(&team, "tensors=2"), "%s", team_report(&team));
        team_close(&team);
        cr_assert(team_open(&team, RANKS, "int4; min=0"));
        team_run(&team, split_on_one, &odd);
        cr_expect(team_all(&team, qcclMismatch), "%s", team_report(&team));
        cr_expect(team_all_say(&team, "count=100"), "%s", team_report(&team));
        team_close(&team);
    }
    unsetenv("QCCL_CHECK");
}

/* Ranks run a group with the n-th allocation failing; true when none failed. */
static bool run_with_failure(struct work *w, long n)
{
    struct team team;
    cr_assert(team_open(&team, RANKS, "int4; min=0"));
    qccl_memory_fail_after(n);
    bool succeeded = team_run(&team, run_tensors, w);
    qccl_memory_fail_after(0);
    int hit = 0;
    for (int r = 0; r < RANKS; r++)
        hit += team.result[r] == qcclOutOfMemory;
    cr_expect(succeeded || hit == 1, "allocation %ld: %s", n, team_report(&team));
    team_close(&team);
    cr_assert_eq(qccl_memory_live(), 0, "allocation %ld leaks", n);
    return succeeded;
}

Test(groups, a_failed_allocation_is_an_error_without_a_leak_or_a_hang)
{
    for (int way = 0; way < 4; way++) {
        struct work *w = new_work(qcclCollAllReduce, qcclFloat32);
        w->streamed = way & 1;
        w->bucketer = way & 2;
        w->bytes = 4000;
        long n = 1;
        while (n < MOST && !run_with_failure(w, n))
            n++;
        cr_expect(n > 10 && n < MOST, "way %d: %ld allocations", way, n);
        free(w);
    }
}

/* ------------------------------------------------------------------ several communicators */

Test(groups, one_thread_serves_all_ranks_in_one_group)
{
    struct work *w = new_work(qcclCollAllReduce, qcclFloat32);
    struct team team;
    cr_assert(team_open(&team, RANKS, "int4; min=0"));
    cr_expect(team_run(&team, run_whole, w), "%s", team_report(&team));
    team_close(&team);
    cr_assert(team_open(&team, RANKS, "int4; min=0"));
    qcclGroupStart();
    for (int t = 0; t < TENSORS; t++)
        for (int r = 0; r < RANKS; r++)
            call_one(w, w->in[r][t], w->out[r][t], counts[t], team.comm[r], NULL);
    cr_expect_eq(qcclGroupEnd(), qcclSuccess, "%s", qcclGetLastError());
    cr_expect_eq(differing(w), -1);
    cr_expect_eq(stats_of(team.comm[2]).calls, 1);
    team_close(&team);
    free(w);
    cr_expect_eq(qccl_memory_live(), 0);
}

Test(groups, the_cause_is_returned_where_one_thread_serves_the_rank_that_failed_and_others)
{
    struct work *w = new_work(qcclCollAllReduce, qcclFloat32);
    struct team team;
    cr_assert(team_open(&team, RANKS, "int4; min=0"));
    qcclCommAbort(team.comm[1]);
    qcclGroupStart();
    for (int r = 0; r < RANKS; r++)
        call_one(w, w->in[r][0], w->out[r][0], counts[0], team.comm[r], NULL);
    cr_expect_eq(qcclGroupEnd(), qcclAborted, "%s", qcclGetLastError());
    team_close(&team);
    free(w);
}

/* ------------------------------------------------------------------ the bucketer */

Test(groups, a_bucketer_reduces_what_has_come_as_one_message)
{
    for (int streamed = 0; streamed < 2; streamed++) {
        struct work *w = new_work(qcclCollAllReduce, qcclFloat32);
        w->streamed = streamed;
        w->bucketer = true;
        w->bytes = 1 << 20;
        expect_one_message(w, "int4; min=0");
        struct work *in_place = new_work(qcclCollAllReduce, qcclBfloat16);
        in_place->in_place = in_place->bucketer = true;
        in_place->streamed = streamed;
        in_place->bytes = TOTAL * 2; /* full with the last tensor */
        expect_one_message(in_place, "int4; min=12000");
    }
}

/* Calls after each of: three tensors of 1000 bytes into buckets of 2000, a flush, another one. */
static qcclResult_t watch_bucketer(struct team *team, int rank, void *arg)
{
    static const uint64_t expected[] = {0, 1, 1, 2, 2, 2, 3};
    float(*values)[250] = arg;
    qcclComm_t comm = team->comm[rank];
    qcclBucketer_t b = NULL;
    uint64_t calls[7];
    qcclResult_t result = qcclBucketerCreate(&b, comm, 2000, qcclFloat32, qcclAvg, NULL);
    for (int i = 0; i < 7 && result == qcclSuccess; i++) {
        float *v = values[rank * 7 + i];
        if (i == 3 || i == 4)
            result = qcclBucketerFlush(b); /* the second finds nothing */
        else if (i == 6)
            result = qcclBucketerDestroy(b);
        else
            result = qcclBucketerAdd(b, v, v, 250);
        calls[i] = stats_of(comm).calls;
    }
    return result != qcclSuccess || memcmp(calls, expected, sizeof calls) == 0 ? result
                                                                               : qcclInternalError;
}

Test(groups, a_bucketer_starts_when_it_is_full_at_a_flush_and_when_it_is_destroyed)
{
    static float values[RANKS * 7][250];
    struct team team;
    cr_assert(team_open(&team, RANKS, "int4; min=0"));
    for (int i = 0; i < RANKS * 7; i++)
        for (int j = 0; j < 250; j++)
            values[i][j] = 7;
    cr_expect(team_run(&team, watch_bucketer, values), "%s", team_report(&team));
    cr_expect_eq(values[0][0], 7);
    team_close(&team);
    cr_expect_eq(qccl_memory_live(), 0);
}

/* The residuals that two passes leave, of up to three buckets of one size. */
static qcclResult_t pass_twice(struct team *team, int rank, void *buckets)
{
    static float values[RANKS][3][250];
    qcclBucketer_t b = NULL;
    qcclResult_t result =
        qcclBucketerCreate(&b, team->comm[rank], 1000, qcclFloat32, qcclAvg, NULL);
    for (int pass = 0; pass < 2 && result == qcclSuccess; pass++) {
        for (int i = 0; i < *(const int *)buckets && result == qcclSuccess; i++)
            result = qcclBucketerAdd(b, values[rank][i], values[rank][i], 250);
        qcclBucketerFlush(b);
    }
    qcclBucketerDestroy(b);
    return result;
}

Test(groups, buckets_of_one_size_have_residuals_of_their_own)
{
    uint64_t bytes[4] = {0};
    for (int buckets = 1; buckets <= 3; buckets += 2) {
        struct team team;
        cr_assert(team_open(&team, RANKS, "int4:feedback=on; min=0"));
        cr_expect(team_run(&team, pass_twice, &buckets), "%s", team_report(&team));
        bytes[buckets] = stats_of(team.comm[0]).feedback_bytes;
        team_close(&team);
    }
    cr_expect_gt(bytes[1], 0);
    cr_expect_eq(bytes[3], 3 * bytes[1]);
}

Test(groups, a_bucketer_refuses_wrong_arguments)
{
    struct team team;
    qcclBucketer_t b = NULL;
    float value = 1;
    cr_assert(team_open(&team, 1, "int4"));
    qcclComm_t comm = team.comm[0];
    cr_expect_eq(qcclBucketerCreate(NULL, comm, 1, qcclFloat32, qcclSum, NULL),
                 qcclInvalidArgument);
    cr_expect_eq(qcclBucketerCreate(&b, NULL, 1, qcclFloat32, qcclSum, NULL), qcclInvalidArgument);
    cr_expect_eq(qcclBucketerCreate(&b, comm, 1, (qcclDataType_t)99, qcclSum, NULL),
                 qcclInvalidArgument);
    cr_expect_eq(qcclBucketerCreate(&b, comm, 1, qcclFloat32, (qcclRedOp_t)99, NULL),
                 qcclInvalidArgument);
    cr_expect_eq(qcclBucketerAdd(NULL, &value, &value, 1), qcclInvalidArgument);
    cr_expect_eq(qcclBucketerFlush(NULL), qcclInvalidArgument);
    cr_expect_eq(qcclBucketerDestroy(NULL), qcclSuccess);
    cr_assert_eq(qcclBucketerCreate(&b, comm, 4, qcclFloat32, qcclSum, NULL), qcclSuccess);
    cr_expect_eq(qcclBucketerAdd(b, NULL, &value, 1), qcclInvalidArgument);
    cr_expect_eq(qcclBucketerAdd(b, &value, &value, 1), qcclSuccess);
    cr_expect_eq(value, 1);
    cr_expect_eq(qcclBucketerDestroy(b), qcclSuccess);
    team_close(&team);
    cr_expect_eq(qccl_memory_live(), 0);
}
