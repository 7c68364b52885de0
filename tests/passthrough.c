/* What is not compressed gives exactly the plain result: every element type and reduction against a
 * scalar reference, and the statistics say why each call was passed through. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "tests/harness.h"

enum { MESSAGE = 2000 };

/* ------------------------------------------------------------------ the reference */

static bool is_signed(qcclDataType_t type)
{
    return type == qcclInt8 || type == qcclInt32 || type == qcclInt64;
}

static int64_t load_integer(const void *at, qcclDataType_t type)
{
    uint64_t u = 0;
    size_t bytes = qcclTypeBytes(type);
    memcpy(&u, at, bytes);
    if (is_signed(type) && bytes < 8 && u >> (8 * bytes - 1))
        u |= ~(uint64_t)0 << (8 * bytes);
    return (int64_t)u;
}

/* Integers wrap as their type does; averages are the wrapped sum divided toward zero. */
static int64_t reduce_integers(const int64_t *x, int n, qcclDataType_t type, qcclRedOp_t op)
{
    bool with_sign = is_signed(type);
    uint64_t total = (uint64_t)x[0];
    for (int r = 1; r < n; r++) {
        uint64_t y = (uint64_t)x[r];
        bool larger = with_sign ? (int64_t)y > (int64_t)total : y > total;
        if (op == qcclProd)
            total *= y;
        else if (op == qcclMax)
            total = larger ? y : total;
        else if (op == qcclMin)
            total = larger ? total : y;
        else
            total += y;
    }
    total = (uint64_t)load_integer(&total, type);
    if (op == qcclAvg)
        total = with_sign ? (uint64_t)((int64_t)total / n) : total / (uint64_t)n;
    return (int64_t)total;
}

static float reduce_floats(const float *x, int n, qcclRedOp_t op)
{
    float total = x[0];
    for (int r = 1; r < n; r++)
        if (op == qcclProd)
            total *= x[r];
        else if (op == qcclSum || op == qcclAvg)
            total += x[r];
        else if (isnan(total) || isnan(x[r]))
            total = NAN;
        else
            total = (op == qcclMax) == (x[r] > total) && x[r] != total ? x[r] : total;
    return op == qcclAvg ? total * (1.0f / (float)n) : total;
}

static double reduce_doubles(const double *x, int n, qcclRedOp_t op)
{
    double total = x[0];
    for (int r = 1; r < n; r++)
        if (op == qcclProd)
            total *= x[r];
        else if (op == qcclSum || op == qcclAvg)
            total += x[r];
        else if (isnan(total) || isnan(x[r]))
            total = (double)NAN;
        else
            total = (op == qcclMax) == (x[r] > total) && x[r] != total ? x[r] : total;
    return op == qcclAvg ? total * (1.0 / n) : total;
}

static float load_float(const void *at, qcclDataType_t type)
{
    float x;
    uint16_t h;
    memcpy(&h, at, 2);
    if (type == qcclBfloat16)
        return qccl_bf16_to_float(h);
    if (type == qcclFloat16)
        return qccl_fp16_to_float(h);
    memcpy(&x, at, 4);
    return x;
}

/* One element of the expected result, from the elements of the ranks. */
static void reduce_element(void *out, const char *const *at, int n, qcclDataType_t type,
                           qcclRedOp_t op)
{
    int64_t integers[RANKS_MAX] = {0};
    float floats[RANKS_MAX] = {0};
    double doubles[RANKS_MAX] = {0};
    for (int r = 0; r < n; r++) {
        if (type == qcclFloat64)
            memcpy(&doubles[r], at[r], 8);
        else if (type == qcclFloat32 || qcclTypeBytes(type) == 2)
            floats[r] = load_float(at[r], type);
        else
            integers[r] = load_integer(at[r], type);
    }
    if (type == qcclFloat64) {
        doubles[0] = reduce_doubles(doubles, n, op);
        memcpy(out, &doubles[0], 8);
    } else if (type == qcclFloat32 || qcclTypeBytes(type) == 2) {
        float x = reduce_floats(floats, n, op);
        uint16_t h = type == qcclFloat16 ? qccl_fp16_nearest(x) : qccl_bf16_nearest(x);
        memcpy(out, type == qcclFloat32 ? (void *)&x : (void *)&h, qcclTypeBytes(type));
    } else {
        integers[0] = reduce_integers(integers, n, type, op);
        memcpy(out, &integers[0], qcclTypeBytes(type));
    }
}

/* Equal bits, or NaN both. */
static bool same_element(const void *a, const void *b, qcclDataType_t type)
{
    double x, y;
    if (memcmp(a, b, qcclTypeBytes(type)) == 0)
        return true;
    if (type == qcclFloat64) {
        memcpy(&x, a, 8);
        memcpy(&y, b, 8);
        return isnan(x) && isnan(y);
    }
    if (type != qcclFloat32 && qcclTypeBytes(type) != 2)
        return false;
    return isnan(load_float(a, type)) && isnan(load_float(b, type));
}

/* What a collective should give, all shards one after another. */
static void check_reduction(const struct call *call, int nranks, const char *result)
{
    size_t bytes = qcclTypeBytes(call->type), n = call->count;
    if (call->collective == qcclCollReduceScatter)
        n *= (size_t)nranks;
    for (size_t i = 0; i < n; i++) {
        char memory[RANKS_MAX][8], expected[8];
        const char *at[RANKS_MAX];
        for (int r = 0; r < nranks; r++) {
            input_store(memory[r], call->type, call->pattern, call->input_seed, r, i);
            at[r] = memory[r];
        }
        reduce_element(expected, at, nranks, call->type, call->op);
        cr_assert(same_element(expected, result + i * bytes, call->type),
                  "collective %d, type %d, op %d, %d ranks, element %zu of %zu",
                  (int)call->collective, (int)call->type, (int)call->op, nranks, i, n);
    }
}

static void *expect_result(struct team *team, const struct call *call, size_t *bytes)
{
    char message[MESSAGE];
    void *result = team_call(team, call, 0, bytes, message, sizeof message);
    cr_assert(result, "collective %d of %zu, type %d, op %d: %s", (int)call->collective,
              call->count, (int)call->type, (int)call->op, message);
    return result;
}

/* ------------------------------------------------------------------ every type and reduction */

static void check_reductions(int nranks, size_t count)
{
    struct team team;
    cr_assert(team_open(&team, nranks, "none"));
    for (int c = 0; c < 2; c++)
        for (int type = 0; type < qcclNumTypes; type++)
            for (int op = 0; op < qcclNumOps; op++) {
                size_t bytes;
                struct call call = {.collective = (qcclColl_t)c,
                                    .count = count,
                                    .type = (qcclDataType_t)type,
                                    .op = (qcclRedOp_t)op,
                                    .pattern = op == qcclProd ? INPUT_LEVELS : INPUT_SPECIAL,
                                    .input_seed = 5,
                                    .in_place = type % 2,
                                    .misaligned = (size_t)op % 4};
                char *result = expect_result(&team, &call, &bytes);
                check_reduction(&call, nranks, result);
                free(result);
            }
    team_close(&team);
}

Test(passthrough, every_type_and_reduction_equals_the_scalar_reference)
{
    static const size_t counts[] = {0, 1, 2, 5, 513, 3000};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        check_reductions(1, counts[i]);
        check_reductions(2, counts[i]);
        check_reductions(3, counts[i]);
        check_reductions(5, counts[i]);
    }
}

Test(passthrough, messages_of_several_chunks_equal_the_scalar_reference)
{
    struct team team;
    cr_assert(team_open(&team, 3, "none"));
    for (int c = 0; c < 2; c++) {
        size_t bytes;
        struct call call = {
            .collective = (qcclColl_t)c, .count = 1100001, .type = qcclFloat32, .in_place = c == 0};
        char *result = expect_result(&team, &call, &bytes);
        check_reduction(&call, 3, result);
        free(result);
    }
    team_close(&team);
}

Test(passthrough, an_allgather_of_any_type_moves_bytes)
{
    struct team team;
    cr_assert(team_open(&team, 5, "none"));
    for (int type = 0; type < qcclNumTypes; type++)
        for (size_t count = 0; count < 700; count += 233) {
            size_t bytes, width = qcclTypeBytes((qcclDataType_t)type);
            struct call call = {.collective = qcclCollAllGather,
                                .count = count,
                                .type = (qcclDataType_t)type,
                                .pattern = INPUT_SPECIAL,
                                .in_place = type % 2};
            char *result = expect_result(&team, &call, &bytes), *shard = malloc(count * width + 1);
            for (int r = 0; r < 5; r++) {
                input_fill(shard, count, call.type, call.pattern, 0, r);
                cr_assert_eq(memcmp(shard, result + (size_t)r * count * width, count * width), 0,
                             "type %d, rank %d", type, r);
            }
            free(shard);
            free(result);
        }
    team_close(&team);
}

Test(passthrough, an_uncompressed_delta_leaves_the_masters_rounded_once_to_the_replicas_type)
{
    static const qcclDataType_t types[] = {qcclFloat32, qcclBfloat16, qcclFloat16};
    for (int nranks = 1; nranks < 5; nranks += 3)
        for (int t = 0; t < 3; t++) {
            struct team team;
            size_t bytes, width = qcclTypeBytes(types[t]), count = 321;
            struct call call = {.collective = qcclCollAllGatherDelta,
                                .count = count,
                                .type = types[t],
                                .pattern = INPUT_WIDE};
            cr_assert(team_open(&team, nranks, "delta: none"));
            char *result = expect_result(&team, &call, &bytes), *shard = malloc(count * width);
            for (int r = 0; r < nranks; r++) {
                input_fill(shard, count, types[t], INPUT_WIDE, 0, r + 1);
                cr_expect_eq(memcmp(shard, result + (size_t)r * count * width, count * width), 0,
                             "type %d, rank %d", t, r);
            }
            free(shard);
            free(result);
            team_close(&team);
        }
}

/* ------------------------------------------------------------------ why */

static qcclStats_t stats_of(const struct team *team, int rank)
{
    qcclStats_t stats = {.size = sizeof stats};
    cr_assert_eq(qcclCommGetStats(team->comm[rank], &stats), qcclSuccess);
    return stats;
}

static void pass(struct team *team, size_t count, qcclDataType_t type, qcclRedOp_t op,
                 qcclColl_t collective)
{
    size_t bytes;
    struct call call = {.collective = collective, .count = count, .type = type, .op = op};
    free(expect_result(team, &call, &bytes));
}

Test(passthrough, the_statistics_count_every_reason)
{
    struct team team;
    cr_assert(team_open(&team, 2, "allreduce: int4; allgather: int4; min=1000"));
    pass(&team, 500, qcclInt32, qcclSum, qcclCollAllReduce);
    pass(&team, 500, qcclFloat64, qcclSum, qcclCollAllReduce);
    pass(&team, 500, qcclFloat32, qcclMax, qcclCollAllReduce);
    pass(&team, 249, qcclFloat32, qcclSum, qcclCollAllReduce);
    pass(&team, 0, qcclFloat32, qcclSum, qcclCollAllReduce);
    pass(&team, 500, qcclFloat32, qcclSum, qcclCollReduceScatter);
    pass(&team, 250, qcclFloat32, qcclSum, qcclCollAllReduce);
    pass(&team, 125, qcclFloat32, qcclSum, qcclCollAllGather);
    pass(&team, 250, qcclBfloat16, qcclAvg, qcclCollAllGather);
    for (int r = 0; r < 2; r++) {
        qcclStats_t s = stats_of(&team, r);
        cr_expect_eq(s.calls, 3);
        cr_expect_eq(s.passed, 6);
        cr_expect_eq(s.passed_type, 2);
        cr_expect_eq(s.passed_op, 1);
        cr_expect_eq(s.passed_small, 2);
        cr_expect_eq(s.passed_policy, 1);
        cr_expect_eq(s.passed_single, 0);
    }
    team_close(&team);
    cr_assert(team_open(&team, 1, "int4; min=0"));
    pass(&team, 500, qcclFloat32, qcclSum, qcclCollAllReduce);
    cr_expect_eq(stats_of(&team, 0).passed_single, 1);
    team_close(&team);
}

Test(passthrough, a_small_message_gives_the_exact_sum_and_does_not_count_as_compressed)
{
    struct team team;
    size_t bytes;
    cr_assert(team_open(&team, 4, NULL)); /* the default policy passes less than 64 KiB */
    struct call call = {.count = 16383, .type = qcclFloat32};
    char *result = expect_result(&team, &call, &bytes);
    check_reduction(&call, 4, result);
    free(result);
    uint32_t sequence = 9;
    qcclCommGetSequence(team.comm[0], &sequence);
    cr_expect_eq(sequence, 0);
    cr_expect_eq(stats_of(&team, 1).passed_small, 1);
    call.count = 16384;
    free(expect_result(&team, &call, &bytes));
    qcclCommGetSequence(team.comm[0], &sequence);
    cr_expect_eq(sequence, 1);
    cr_expect_eq(stats_of(&team, 1).calls, 1);
    team_close(&team);
}

Test(passthrough, one_rank_gets_its_input_unchanged)
{
    struct team team;
    size_t bytes;
    cr_assert(team_open(&team, 1, "int2; min=0"));
    for (int c = 0; c < 3; c++) {
        struct call call = {.collective = (qcclColl_t)c,
                            .count = 777,
                            .type = qcclFloat32,
                            .pattern = INPUT_SPECIAL};
        float input[777], *result = expect_result(&team, &call, &bytes);
        input_fill(input, 777, qcclFloat32, INPUT_SPECIAL, 0, 0);
        cr_expect_eq(memcmp(result, input, sizeof input), 0, "collective %d", c);
        free(result);
    }
    team_close(&team);
}
