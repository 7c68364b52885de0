/* Results of calls that were not compressed; see verify.h.  Inputs are made anew, block by block,
 * rank by rank. */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "bench/options.h"
#include "bench/verify.h"

enum { BLOCK = 512, ELEMENT_MAX = 8 };

/* Every reduction of a block at once. */
struct totals {
    double sum[BLOCK], magnitude[BLOCK], product[BLOCK], low[BLOCK], high[BLOCK];
    uint64_t whole_sum[BLOCK], whole_product[BLOCK];
};

static double element_value(const unsigned char *at, qcclDataType_t type)
{
    float single;
    double wide;
    uint64_t word = 0;
    switch (type) {
    case qcclFloat64:
        memcpy(&wide, at, sizeof wide);
        return wide;
    case qcclFloat32:
    case qcclFloat16:
    case qcclBfloat16:
        bench_to_float(at, type, 0, 1, &single);
        return single;
    default: /* generated integers are small and positive */
        memcpy(&word, at, qcclTypeBytes(type));
        return (double)word;
    }
}

static void add_rank(struct totals *t, const unsigned char *values, qcclDataType_t type,
                     size_t count, bool first)
{
    for (size_t i = 0; i < count; i++) {
        double value = element_value(values + i * qcclTypeBytes(type), type);
        uint64_t whole = value >= 0 && value < 0x1p63 ? (uint64_t)value : 0;
        t->sum[i] = first ? value : t->sum[i] + value;
        t->magnitude[i] = first ? fabs(value) : t->magnitude[i] + fabs(value);
        t->product[i] = first ? value : t->product[i] * value;
        t->low[i] = first ? value : fmin(t->low[i], value);
        t->high[i] = first ? value : fmax(t->high[i], value);
        t->whole_sum[i] = first ? whole : t->whole_sum[i] + whole;
        t->whole_product[i] = first ? whole : t->whole_product[i] * whole;
    }
}

static bool is_signed(qcclDataType_t type)
{
    return type == qcclInt8 || type == qcclInt32 || type == qcclInt64;
}

/* The average of integers: their sum, wrapped as the type wraps, divided towards zero. */
static uint64_t whole_average(uint64_t sum, qcclDataType_t type, int nranks)
{
    unsigned unused = 64 - 8 * (unsigned)qcclTypeBytes(type);
    uint64_t low = sum << unused >> unused;
    if (!is_signed(type) || !(low >> (63 - unused)))
        return low / (uint64_t)nranks;
    uint64_t negated = (0 - low) << unused >> unused;
    return 0 - negated / (uint64_t)nranks;
}

/* An integer result has to have the low bytes of the exact one. */
static void check_whole(const struct totals *t, size_t i, qcclDataType_t type, qcclRedOp_t op,
                        int nranks, const unsigned char *at, struct bench_findings *f)
{
    uint64_t exact = op == qcclSum    ? t->whole_sum[i]
                     : op == qcclProd ? t->whole_product[i]
                     : op == qcclAvg  ? whole_average(t->whole_sum[i], type, nranks)
                     : op == qcclMin  ? (uint64_t)t->low[i]
                                      : (uint64_t)t->high[i];
    uint64_t result = 0;
    memcpy(&result, at, qcclTypeBytes(type));
    unsigned bits = 8 * (unsigned)qcclTypeBytes(type);
    if (bits < 64)
        exact &= ((uint64_t)1 << bits) - 1;
    bench_verify_value((double)result, (double)exact, 0, 0, f);
    f->wrong += result != exact && (double)result == (double)exact;
}

/* A sum may round once an addition, in its own type or a wider one; a product of powers of two and
 * an extreme not at all. */
static void check_real(const struct totals *t, size_t i, qcclDataType_t type, qcclRedOp_t op,
                       int nranks, const unsigned char *at, struct bench_findings *f)
{
    double result = element_value(at, type), exact = t->sum[i], bound = 0;
    if (op == qcclProd)
        exact = type == qcclFloat16 && t->product[i] > 65504 ? INFINITY : t->product[i];
    else if (op == qcclMin || op == qcclMax)
        exact = op == qcclMin ? t->low[i] : t->high[i];
    else
        bound = (nranks + 1) * bench_type_rounding(type, t->magnitude[i] * (1 + 0x1p-6));
    if (op == qcclAvg) {
        exact /= nranks;
        bound = bound / nranks + bench_type_rounding(type, fabs(exact));
    }
    bench_verify_value(result, exact, bound, isnan(exact), f);
}

static bool is_real(qcclDataType_t type)
{
    return type == qcclFloat64 || bench_type_compresses(type);
}

static void check_copy(const unsigned char *result, const unsigned char *values, size_t count,
                       qcclDataType_t type, struct bench_findings *f)
{
    size_t size = qcclTypeBytes(type);
    for (size_t i = 0; i < count; i++) {
        f->wrong += memcmp(result + i * size, values + i * size, size) != 0;
        double value = element_value(values + i * size, type);
        double error = element_value(result + i * size, type) - value;
        f->error_energy += isfinite(error) ? error * error : 0;
        f->energy += isfinite(value) ? value * value : 0;
    }
}

void bench_verify_plain(const struct bench_inputs *inputs, qcclDataType_t type, qcclRedOp_t op,
                        int input_of, size_t first, size_t count, const void *result,
                        struct bench_findings *findings)
{
    unsigned char values[BLOCK * ELEMENT_MAX];
    struct totals totals;
    size_t size = qcclTypeBytes(type);
    for (size_t i = 0; i < count; i += BLOCK) {
        size_t run = count - i < BLOCK ? count - i : BLOCK;
        const unsigned char *at = (const unsigned char *)result + i * size;
        if (input_of >= 0) {
            bench_inputs_fill(inputs, input_of, first + i, run, type, qcclSum, values);
            check_copy(at, values, run, type, findings);
            continue;
        }
        for (int r = 0; r < inputs->nranks; r++) {
            bench_inputs_fill(inputs, r, first + i, run, type, op, values);
            add_rank(&totals, values, type, run, r == 0);
        }
        for (size_t j = 0; j < run; j++) {
            if (is_real(type))
                check_real(&totals, j, type, op, inputs->nranks, at + j * size, findings);
            else
                check_whole(&totals, j, type, op, inputs->nranks, at + j * size, findings);
        }
    }
}
