/* The bound that qccl-perf and qccl-apply check values against: it holds for what the library
 * computes, and it is no wider than steps can explain, so that a value which is off by two steps is
 * noticed. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/verify.h"

enum { COUNT = 4096 + 70, RANKS = 4 };

static const char *const codecs[] = {
    "int8",
    "int4",
    "int4:round=nearest",
    "int2:group=64",
    "int4:hadamard=32",
    "int8:group=256,hadamard=128",
    "int4:group=96,hadamard=32,round=nearest",
    "sr1",
    "bf16",
};
enum { CODECS = sizeof codecs / sizeof *codecs };

/* Values of all sizes, the same on every run; each rank has its own. */
static float value_of(int rank, size_t i)
{
    uint64_t x = 0x9e3779b97f4a7c15u * (i + 1) + 0xd1b54a32d192ed03u * (uint64_t)(rank + 1);
    x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9u;
    x ^= x >> 29;
    return ldexpf((float)((int)(x & 0xffff) - 0x8000), -(int)(x >> 60));
}

static void read_values(const void *context, int rank, size_t first, size_t count, float *out)
{
    (void)context;
    for (size_t i = 0; i < count; i++)
        out[i] = value_of(rank, first + i);
}

static struct bench_scheme scheme_of(qcclColl_t coll, const char *codec, int ranks)
{
    struct bench_scheme scheme = {
        .coll = coll, .type = qcclFloat32, .op = qcclSum, .nranks = ranks};
    cr_assert_eq(qcclCodecParse(codec, &scheme.main), qcclSuccess, "%s", qcclGetLastError());
    scheme.gather = scheme.main;
    return scheme;
}

/* values -> message -> values, as a rank's contribution travels. */
static void send_through(const qcclCodec_t *codec, const float *values, size_t count, float *back)
{
    size_t bytes;
    qcclPosition_t position = {.seed = 11, .rank = 1};
    cr_assert_eq(qcclEncodedBytes(codec, count, &bytes), qcclSuccess);
    void *message = aligned_alloc(64, (bytes + 63) / 64 * 64);
    cr_assert_not_null(message);
    cr_assert_eq(qcclEncode(codec, &position, values, qcclFloat32, count, NULL, message, bytes),
                 qcclSuccess, "%s", qcclGetLastError());
    cr_assert_eq(qcclDecode(message, bytes, back, qcclFloat32, count, 0), qcclSuccess);
    free(message);
}

/* Distance of two neighbouring levels of a value's group, from the values as they are quantized. */
static double step_at(const qcclCodec_t *codec, const float *domain, size_t count, size_t i)
{
    double max = 0;
    size_t begin = i / codec->group * codec->group;
    for (size_t j = begin; j < begin + codec->group && j < count; j++)
        max = fmax(max, fabs(domain[j]));
    switch (codec->format) {
    case qcclFormatInt8:
        return max / 127;
    case qcclFormatInt4:
        return max / 7;
    case qcclFormatSr1:
        return 2 * max;
    case qcclFormatBf16:
        return fabs(domain[i]) * 0x1p-7;
    default:
        return max;
    }
}

static struct bench_findings judge(const struct bench_expectation *e, size_t i, double result)
{
    struct bench_findings found = {.wrong = 0};
    bench_verify_value(result, e->exact[i], e->bound[i], e->is_nan[i], &found);
    return found;
}

Test(bench_bound, a_value_that_travelled_once_lies_inside_and_two_steps_further_outside)
{
    float values[COUNT], back[COUNT], domain[COUNT];
    struct bench_expectation e;
    cr_assert_eq(bench_expectation_make(&e, COUNT), 0);
    read_values(NULL, 0, 0, COUNT, values);
    for (size_t c = 0; c < CODECS; c++) {
        struct bench_scheme scheme = scheme_of(qcclCollAllGather, codecs[c], 1);
        const qcclCodec_t *codec = &scheme.main;
        send_through(codec, values, COUNT, back);
        bench_expect(&e, &scheme, read_values, NULL, 0, 0, COUNT);
        memcpy(domain, values, sizeof domain);
        bench_transform(domain, COUNT, codec->hadamard);
        for (size_t i = 0; i < COUNT; i++) {
            /* Scales are rounded up to 8 bits: the true step is up to 1/128 larger. */
            double step = step_at(codec, domain, COUNT, i) * (1 + 0x1p-7);
            cr_assert_eq(judge(&e, i, back[i]).wrong, 0, "%s: value %zu is %g, exact %g, bound %g",
                         codecs[c], i, back[i], values[i], e.bound[i]);
            cr_assert_eq(judge(&e, i, back[i] + 2 * step).wrong, 1,
                         "%s: two steps of %g above value %zu went unnoticed, bound %g", codecs[c],
                         step, i, e.bound[i]);
            cr_assert_eq(judge(&e, i, back[i] - 2 * step).wrong, 1,
                         "%s: two steps of %g below value %zu went unnoticed, bound %g", codecs[c],
                         step, i, e.bound[i]);
        }
    }
    bench_expectation_free(&e);
}

Test(bench_bound, a_sum_is_allowed_one_step_for_each_part_that_travelled)
{
    struct bench_expectation sum;
    float values[COUNT], domain[COUNT];
    cr_assert_eq(bench_expectation_make(&sum, COUNT), 0);
    for (size_t c = 0; c < CODECS; c++) {
        struct bench_scheme scheme = scheme_of(qcclCollReduceScatter, codecs[c], RANKS);
        const qcclCodec_t *codec = &scheme.main;
        double steps[COUNT] = {0}, magnitude[COUNT];
        unsigned char is_nan[COUNT] = {0};
        for (int r = 1; r < RANKS; r++) { /* rank 0 owns the segment: its part does not travel */
            read_values(NULL, r, 0, COUNT, values);
            memcpy(domain, values, sizeof domain);
            bench_transform(domain, COUNT, codec->hadamard);
            for (size_t i = 0; i < COUNT; i++)
                magnitude[i] = fabs(domain[i]);
            bench_add_steps(codec, magnitude, COUNT, steps, is_nan);
        }
        bench_expect(&sum, &scheme, read_values, NULL, 0, 0, COUNT);
        for (size_t i = 0; i < COUNT && !codec->hadamard; i++) {
            double largest = 0;
            for (int r = 0; r < RANKS; r++)
                largest += fabs(value_of(r, i));
            cr_assert_geq(sum.bound[i], steps[i]);
            /* What is above the steps is fp32's: RANKS roundings and a few of the bound's own. */
            cr_assert_leq(sum.bound[i] - steps[i], 4 * (RANKS + 3) * 0x1p-24 * (largest + steps[i]),
                          "%s: value %zu", codecs[c], i);
        }
    }
    bench_expectation_free(&sum);
}

Test(bench_bound, a_group_of_an_allreduce_that_is_off_by_two_gathered_steps_is_noticed)
{
    struct bench_expectation e;
    float exact[COUNT], back[COUNT];
    cr_assert_eq(bench_expectation_make(&e, COUNT), 0);
    struct bench_scheme scheme = scheme_of(qcclCollAllReduce, "int4", 2);
    bench_expect(&e, &scheme, read_values, NULL, 0, 0, COUNT);
    float part[COUNT], travelled[COUNT];
    read_values(NULL, 0, 0, COUNT, exact);
    read_values(NULL, 1, 0, COUNT, part);
    send_through(&scheme.main, part, COUNT, travelled);
    for (size_t i = 0; i < COUNT; i++)
        exact[i] += travelled[i];
    send_through(&scheme.gather, exact, COUNT, back);
    for (size_t begin = 0; begin < COUNT; begin += scheme.main.group) {
        uint64_t wrong = 0, right = 0;
        for (size_t i = begin; i < begin + scheme.main.group && i < COUNT; i++) {
            right += judge(&e, i, back[i]).wrong;
            wrong += judge(&e, i, back[i] + 2 * step_at(&scheme.gather, exact, COUNT, i)).wrong;
        }
        cr_assert_eq(right, 0, "group at %zu", begin);
        cr_assert_gt(wrong, 0, "group at %zu", begin);
    }
    bench_expectation_free(&e);
}

Test(bench_bound, a_group_with_nan_or_infinity_has_to_be_nan)
{
    static const float special[] = {NAN, INFINITY, -INFINITY};
    qcclCodec_t codec;
    cr_assert_eq(qcclCodecParse("int4:group=32", &codec), qcclSuccess);
    for (size_t s = 0; s < 3; s++) {
        double magnitude[96], bound[96] = {0};
        unsigned char is_nan[96] = {0};
        struct bench_findings found = {.wrong = 0};
        for (size_t i = 0; i < 96; i++)
            magnitude[i] = i == 40 ? fabs(special[s]) : 1.0;
        bench_add_steps(&codec, magnitude, 96, bound, is_nan);
        for (size_t i = 0; i < 96; i++)
            cr_assert_eq(is_nan[i], i / 32 == 1, "element %zu", i);
        bench_verify_value(0.0, 1.0, 1.0, 1, &found);
        cr_assert_eq(found.wrong, 1, "a number in a poisoned group went unnoticed");
        bench_verify_value(NAN, 1.0, 1.0, 1, &found);
        cr_assert_eq(found.wrong, 1, "NaN in a poisoned group was called wrong");
        bench_verify_value(NAN, 1.0, 1.0, 0, &found);
        cr_assert_eq(found.wrong, 2, "NaN in a sound group went unnoticed");
    }
}

Test(bench_bound, a_plain_sum_may_round_and_a_plain_extreme_may_not)
{
    struct bench_inputs inputs;
    cr_assert_eq(bench_inputs_open(&inputs, 3, 7, NULL, 0), 0);
    float part[3][64], sum[64], high[64];
    for (int r = 0; r < 3; r++)
        bench_inputs_fill(&inputs, r, 100, 64, qcclFloat32, qcclSum, part[r]);
    for (int i = 0; i < 64; i++) {
        sum[i] = part[0][i] + part[1][i] + part[2][i];
        high[i] = fmaxf(part[0][i], fmaxf(part[1][i], part[2][i]));
    }
    struct bench_findings found = {.wrong = 0};
    bench_verify_plain(&inputs, qcclFloat32, qcclSum, -1, 100, 64, sum, &found);
    bench_verify_plain(&inputs, qcclFloat32, qcclMax, -1, 100, 64, high, &found);
    bench_verify_plain(&inputs, qcclFloat32, qcclSum, 2, 100, 64, part[2], &found);
    cr_assert_eq(found.wrong, 0);
    high[5] = nextafterf(high[5], 100.0f);
    sum[9] += 0x1p-18f * (fabsf(part[0][9]) + fabsf(part[1][9]) + fabsf(part[2][9]));
    bench_verify_plain(&inputs, qcclFloat32, qcclMax, -1, 100, 64, high, &found);
    cr_assert_eq(found.wrong, 1, "a maximum that is off by one place went unnoticed");
    bench_verify_plain(&inputs, qcclFloat32, qcclSum, -1, 100, 64, sum, &found);
    cr_assert_eq(found.wrong, 2, "a sum that is off by 64 places went unnoticed");
    bench_inputs_free(&inputs);
}
