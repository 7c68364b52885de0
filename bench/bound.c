/* Bounds from step sizes; see bound.h. */
#include "bench/bound.h"

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "bench/half.h"

/* Half a unit in the last place of fp32, relative. */
static const double rounding = 0x1p-24;

enum { MAGNITUDE, ADDED, NODE_SUM, NODE_BOUND, NODE_MAGNITUDE };

int bench_expectation_make(struct bench_expectation *e, size_t capacity)
{
    *e = (struct bench_expectation){.count = 0};
    e->exact = calloc(capacity + 1, sizeof *e->exact);
    e->bound = calloc(capacity + 1, sizeof *e->bound);
    e->is_nan = calloc(capacity + 1, sizeof *e->is_nan);
    e->values = calloc(capacity + 1, sizeof *e->values);
    int bad = !e->exact || !e->bound || !e->is_nan || !e->values;
    for (size_t i = 0; i < sizeof e->scratch / sizeof *e->scratch; i++) {
        e->scratch[i] = calloc(capacity + 1, sizeof *e->scratch[i]);
        bad |= !e->scratch[i];
    }
    if (bad)
        bench_expectation_free(e);
    return bad;
}

void bench_expectation_free(struct bench_expectation *e)
{
    free(e->exact);
    free(e->bound);
    free(e->is_nan);
    free(e->values);
    for (size_t i = 0; i < sizeof e->scratch / sizeof *e->scratch; i++)
        free(e->scratch[i]);
    *e = (struct bench_expectation){.count = 0};
}

/* ------------------------------------------------------------------ one hop */

static float bf16_up(float x)
{
    uint32_t word;
    memcpy(&word, &x, sizeof word);
    word = (word + 0xffff) & 0xffff0000u;
    memcpy(&x, &word, sizeof x);
    return x;
}

/* The most a value of a group may change, for a value of magnitude a.  max and mean are the
 * group's. */
static double group_step(const qcclCodec_t *codec, double max, double mean, double a)
{
    static const int tops[qcclNumFormats] = {
        [qcclFormatInt8] = 127, [qcclFormatInt4] = 7, [qcclFormatInt2] = 1};
    int top = tops[codec->format];
    if (max < 0x1p-100)
        return a; /* the group becomes zero */
    if (codec->format == qcclFormatSr1)
        return a + bf16_up((float)max);
    if (codec->format == qcclFormatSign1)
        return a + bench_from_bf16(bench_to_bf16((float)(mean * (1 + 0x1p-7))));
    /* v rounds to 2^-16 steps, and 1 / s and its product with x to fp32, which x / s <= top
     * enlarges. */
    double in_steps = codec->nearest ? 0.5 + 0x1p-17 : 1.0;
    double step = bf16_up((float)max / (float)top) * (in_steps + (top + 1) * 4 * rounding);
    return fmax(step,
                fmin(a, 0x1p-100)); /* max is a bound: the group may be one that becomes zero */
}

static void add_group_steps(const qcclCodec_t *codec, const double *magnitude, size_t count,
                            double *bound, unsigned char *is_nan)
{
    double max = 0, sum = 0;
    bool finite = true;
    for (size_t i = 0; i < count; i++) {
        finite = finite && magnitude[i] <= FLT_MAX;
        max = magnitude[i] > max ? magnitude[i] : max;
        sum += magnitude[i];
    }
    for (size_t i = 0; i < count; i++) {
        if (finite)
            bound[i] += group_step(codec, max, sum / (double)count, magnitude[i]);
        else
            is_nan[i] = 1;
    }
}

void bench_add_steps(const qcclCodec_t *codec, const double *magnitude, size_t count, double *bound,
                     unsigned char *is_nan)
{
    if (codec->format == qcclFormatNone)
        return;
    if (codec->format == qcclFormatBf16) {
        for (size_t i = 0; i < count; i++)
            bound[i] += magnitude[i] * (codec->nearest ? 0x1p-8 : 0x1p-7) + 0x1p-133;
        return;
    }
    for (size_t i = 0; i < count; i += codec->group) {
        size_t size = count - i < codec->group ? count - i : codec->group;
        add_group_steps(codec, magnitude + i, size, bound + i, is_nan + i);
    }
}

double bench_type_rounding(qcclDataType_t type, double magnitude)
{
    switch (type) {
    case qcclFloat16:
        return magnitude > 65504 ? INFINITY : magnitude * 0x1p-11 + 0x1p-25;
    case qcclBfloat16:
        return magnitude * 0x1p-8 + 0x1p-134;
    case qcclFloat64:
        return magnitude * 0x1p-53;
    default:
        return magnitude * rounding;
    }
}

/* ------------------------------------------------------------------ transforms */

/* The blocks of a transform: whole orders, then falling powers of two.  Returns the size of the one
 * at `at`. */
static size_t block_at(size_t at, size_t count, size_t order)
{
    size_t size = order;
    while (size > count - at)
        size /= 2;
    return size;
}

static void butterflies(float *x, size_t size)
{
    for (size_t span = 1; span < size; span *= 2)
        for (size_t i = 0; i < size; i += 2 * span)
            for (size_t j = i; j < i + span; j++) {
                float a = x[j], b = x[j + span];
                x[j] = a + b;
                x[j + span] = a - b;
            }
}

static void wide_butterflies(double *x, size_t size)
{
    for (size_t span = 1; span < size; span *= 2)
        for (size_t i = 0; i < size; i += 2 * span)
            for (size_t j = i; j < i + span; j++) {
                double a = x[j], b = x[j + span];
                x[j] = a + b;
                x[j + span] = a - b;
            }
}

/* In fp32, so that group maxima are those the library sees. */
void bench_transform(float *x, size_t count, size_t order)
{
    for (size_t at = 0; order && at < count; at += block_at(at, count, order))
        butterflies(x + at, block_at(at, count, order));
}

static void transform_wide(double *x, size_t count, size_t order)
{
    for (size_t at = 0; order && at < count; at += block_at(at, count, order))
        wide_butterflies(x + at, block_at(at, count, order));
}

/* Replaces each value by its block's sum (weight 0) or mean (weight 1). */
static void spread(double *values, size_t count, size_t order, bool mean)
{
    for (size_t at = 0; order && at < count;) {
        size_t size = block_at(at, count, order);
        double sum = 0;
        for (size_t i = at; i < at + size; i++)
            sum += values[i];
        for (size_t i = at; i < at + size; i++)
            values[i] = mean ? sum / (double)size : sum;
        at += size;
    }
}

static double levels_of(size_t order)
{
    return order ? log2((double)order) : 0;
}

/* ------------------------------------------------------------------ sums */

struct work {
    struct bench_expectation *e;
    const struct bench_scheme *scheme;
    bench_reader *reader;
    const void *context;
    int owner;
    size_t first, count;
};

/* Adds rank's values to the exact sum, and to the sum and magnitude of its node in the transform
 * domain.  A part that travels by `codec` (NULL: stays exact) adds its steps to `bound`. */
static void take_part(const struct work *w, int rank, const qcclCodec_t *codec, double *bound)
{
    struct bench_expectation *e = w->e;
    size_t n = w->count, order = w->scheme->main.hadamard;
    double *sum = e->scratch[NODE_SUM], *magnitude = e->scratch[NODE_MAGNITUDE];
    w->reader(w->context, rank, w->first, n, e->values);
    for (size_t i = 0; i < n; i++) {
        e->exact[i] += e->values[i];
        e->scratch[ADDED][i] += fabs(e->values[i]);
    }
    bench_transform(e->values, n, order);
    for (size_t i = 0; i < n; i++) {
        sum[i] += e->values[i];
        magnitude[i] = fabs(e->values[i]);
    }
    if (codec)
        bench_add_steps(codec, magnitude, n, bound, e->is_nan);
}

/* A node's sum travels: adds its steps, whose size the exact sum and the errors so far bound. */
static void send_node_sum(const struct work *w)
{
    struct bench_expectation *e = w->e;
    double *bound = e->scratch[NODE_BOUND], *magnitude = e->scratch[NODE_MAGNITUDE];
    for (size_t i = 0; i < w->count; i++)
        magnitude[i] =
            (fabs(e->scratch[NODE_SUM][i]) + bound[i]) * (1 + 4 * rounding * w->scheme->nranks);
    bench_add_steps(&w->scheme->main, magnitude, w->count, bound, e->is_nan);
}

static void clear(double *values, size_t count)
{
    memset(values, 0, count * sizeof *values);
}

static void sum_node(const struct work *w, int node)
{
    const struct bench_scheme *scheme = w->scheme;
    struct bench_expectation *e = w->e;
    int head = bench_scheme_head(scheme, node, w->owner);
    clear(e->scratch[NODE_SUM], w->count);
    clear(e->scratch[NODE_BOUND], w->count);
    for (int r = 0; r < scheme->nranks; r++)
        if (bench_scheme_node(scheme, r) == node)
            take_part(w, r, r == head ? NULL : &scheme->intra, e->scratch[NODE_BOUND]);
    if (head != w->owner)
        send_node_sum(w);
    for (size_t i = 0; i < w->count; i++)
        e->bound[i] += e->scratch[NODE_BOUND][i];
}

/* Whether an earlier rank stands for the same node. */
static bool node_is_done(const struct bench_scheme *scheme, int rank)
{
    for (int r = 0; r < rank; r++)
        if (bench_scheme_node(scheme, r) == bench_scheme_node(scheme, rank))
            return true;
    return false;
}

/* The parts as they reach the owner: exact sum in the value domain, bound in the transform
 * domain. */
static void sum_parts(const struct work *w)
{
    const struct bench_scheme *scheme = w->scheme;
    struct bench_expectation *e = w->e;
    clear(e->scratch[NODE_SUM], w->count);
    for (int r = 0; r < scheme->nranks; r++) {
        if (!scheme->two_level)
            take_part(w, r, r == w->owner ? NULL : &scheme->main, e->bound);
        else if (!node_is_done(scheme, r))
            sum_node(w, bench_scheme_node(scheme, r));
    }
}

/* What additions, the average's product and the transforms round: every intermediate value is at
 * most the sum of all magnitudes, over a block where there is a transform, plus the bound. */
static void add_arithmetic(const struct work *w, size_t order)
{
    struct bench_expectation *e = w->e;
    double *added = e->scratch[MAGNITUDE];
    double operations = w->scheme->nranks + 2 + 2 * levels_of(order);
    memcpy(added, e->scratch[ADDED], w->count * sizeof *added);
    spread(added, w->count, order, false);
    for (size_t i = 0; i < w->count; i++)
        e->bound[i] += 2 * rounding * operations * (added[i] + e->bound[i]);
}

static void average(const struct work *w)
{
    double weight = 1.0 / w->scheme->nranks;
    for (size_t i = 0; i < w->count; i++) {
        w->e->exact[i] *= weight;
        w->e->bound[i] *= weight;
        w->e->scratch[ADDED][i] *= weight;
    }
}

/* ------------------------------------------------------------------ gathers */

/* The values in e->exact travel by a codec; the bound is in that codec's transform domain, before
 * and after. */
static void gather(const struct work *w, const qcclCodec_t *codec)
{
    struct bench_expectation *e = w->e;
    double *magnitude = e->scratch[MAGNITUDE];
    memcpy(magnitude, e->exact, w->count * sizeof *magnitude);
    transform_wide(magnitude, w->count, codec->hadamard);
    for (size_t i = 0; i < w->count; i++)
        magnitude[i] = e->is_nan[i] ? INFINITY : fabs(magnitude[i]) + e->bound[i];
    bench_add_steps(codec, magnitude, w->count, e->bound, e->is_nan);
}

static void expect_sum(const struct work *w)
{
    const struct bench_scheme *scheme = w->scheme;
    struct bench_expectation *e = w->e;
    sum_parts(w);
    add_arithmetic(w, scheme->main.hadamard);
    if (scheme->op == qcclAvg)
        average(w);
    size_t order = scheme->main.hadamard;
    if (scheme->coll == qcclCollAllReduce) {
        const qcclCodec_t *codec = &scheme->gather;
        if (codec->hadamard != order) {
            spread(e->bound, w->count, order, true);
            spread(e->bound, w->count, codec->hadamard, false);
        }
        add_arithmetic(w, codec->hadamard);
        gather(w, codec);
        order = codec->hadamard;
    }
    spread(e->bound, w->count, order, true);
}

static void expect_copy(const struct work *w)
{
    struct bench_expectation *e = w->e;
    const qcclCodec_t *codec = &w->scheme->main;
    take_part(w, w->owner, NULL, NULL);
    add_arithmetic(w, codec->hadamard);
    gather(w, codec);
    spread(e->bound, w->count, codec->hadamard, true);
}

void bench_expect(struct bench_expectation *e, const struct bench_scheme *scheme,
                  bench_reader *reader, const void *context, int owner, size_t first, size_t count)
{
    struct work w = {.e = e,
                     .scheme = scheme,
                     .reader = reader,
                     .context = context,
                     .owner = owner,
                     .first = first,
                     .count = count};
    e->count = count;
    clear(e->exact, count);
    clear(e->bound, count);
    clear(e->scratch[ADDED], count);
    clear(e->scratch[NODE_SUM], count);
    memset(e->is_nan, 0, count);
    bool sums = scheme->coll == qcclCollAllReduce || scheme->coll == qcclCollReduceScatter;
    if (sums)
        expect_sum(&w);
    else
        expect_copy(&w);
    /* Summed in the type itself, every addition rounds. */
    double roundings = scheme->plain && sums ? scheme->nranks + 1 : 0;
    for (size_t i = 0; i < count; i++)
        e->bound[i] += bench_type_rounding(scheme->type, fabs(e->exact[i]) + e->bound[i]) +
                       roundings * bench_type_rounding(scheme->type, e->scratch[ADDED][i]);
}
