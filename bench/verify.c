/* Results against bounds; see verify.h. */
#include "bench/verify.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Elements that are expected at once, rounded up to whole groups. */
enum { BLOCK_ELEMS = 1 << 14 };

double bench_relative_error(const struct bench_findings *f)
{
    return f->error_energy > 0 ? sqrt(f->error_energy / f->energy) : 0;
}

uint64_t bench_hash(const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    uint64_t hash = 0xcbf29ce484222325u ^ count, word;
    for (; count >= sizeof word; count -= sizeof word, at += sizeof word) {
        memcpy(&word, at, sizeof word);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    for (; count; count--)
        hash = (hash ^ *at++) * 0x100000001b3u;
    return hash;
}

void bench_verify_value(double result, double exact, double bound, int is_nan,
                        struct bench_findings *f)
{
    f->nan_values += isnan(result) != 0;
    if (is_nan) {
        f->wrong += !isnan(result);
        return;
    }
    if (!isfinite(exact)) {
        f->wrong += isfinite(result) != 0;
        return;
    }
    double error = fabs(result - exact);
    if (isfinite(bound)) {
        f->wrong += !(error <= bound);
        if (bound > 0 && error / bound > f->closest)
            f->closest = error / bound;
    }
    if (isfinite(error)) {
        f->error_energy += error * error;
        f->energy += exact * exact;
    }
}

/* Remembers the group of values from..to of a block when none so far was worse. */
static void judge_group(const double *result, const double *exact, size_t count, size_t first,
                        struct bench_findings *f)
{
    double error = 0, value = 0;
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(result[i]) || !isfinite(exact[i]))
            return;
        error = fmax(error, fabs(result[i] - exact[i]));
        value = fmax(value, fabs(exact[i]));
    }
    if (error * f->worst_value > f->worst_error * value || (error > 0 && f->worst_error == 0)) {
        f->worst_error = error;
        f->worst_value = value;
        f->worst_first = first;
    }
}

struct verifier {
    const struct bench_subject *subject;
    struct bench_expectation expectation;
    float *floats;   /* of one block */
    double *results; /* of one block; for a delta, what it changed */
};

/* A delta is judged by what it changed.  The sum with the old replica rounds, in fp32 and to the
 * replica's type, and so did the difference that went in. */
static void subtract_base(struct verifier *v, size_t first, size_t count)
{
    const struct bench_subject *s = v->subject;
    struct bench_expectation *e = &v->expectation;
    s->base(s->context, 0, first, count, v->floats);
    for (size_t i = 0; i < count; i++) {
        double whole = fabs(v->floats[i]) + fabs(e->exact[i]) + e->bound[i];
        e->bound[i] +=
            bench_type_rounding(qcclFloat32, whole) + bench_type_rounding(s->scheme->type, whole);
        v->results[i] -= v->floats[i];
    }
}

static void verify_block(struct verifier *v, int owner, size_t first, size_t count,
                         struct bench_findings *f)
{
    const struct bench_subject *s = v->subject;
    struct bench_expectation *e = &v->expectation;
    bench_expect(e, s->scheme, s->reader, s->context, owner, first, count);
    bench_to_float(s->result, s->scheme->type, first - s->begin, count, v->floats);
    for (size_t i = 0; i < count; i++)
        v->results[i] = v->floats[i];
    if (s->base)
        subtract_base(v, first, count);
    for (size_t i = 0; i < count; i++)
        bench_verify_value(v->results[i], e->exact[i], e->bound[i], e->is_nan[i], f);
    size_t group = s->scheme->main.group;
    for (size_t i = 0; i < count; i += group)
        judge_group(v->results + i, e->exact + i, count - i < group ? count - i : group, first + i,
                    f);
}

int bench_verify(const struct bench_subject *subject, int owner, struct bench_findings *findings)
{
    size_t first, elems, unit = bench_scheme_unit(subject->scheme);
    bench_scheme_segment(subject->scheme, subject->count, owner, &first, &elems);
    size_t block = (BLOCK_ELEMS + unit - 1) / unit * unit;
    block = elems < block ? elems : block;
    struct verifier v = {.subject = subject};
    int status = bench_expectation_make(&v.expectation, block);
    v.floats = malloc((block + 1) * sizeof *v.floats);
    v.results = malloc((block + 1) * sizeof *v.results);
    if (!v.floats || !v.results)
        status = 1;
    for (size_t i = 0; i < elems && !status; i += block)
        verify_block(&v, owner, first + i, elems - i < block ? elems - i : block, findings);
    bench_expectation_free(&v.expectation);
    free(v.floats);
    free(v.results);
    return status;
}
