/* How far a compressed result may lie from the exact one, derived from the data and the codecs'
 * steps.
 *
 * Nothing here uses the library's own encoding.  For a block of one segment the steps of every
 * group that travels are computed from the ranks' values as the specification of the codecs says,
 * and add up: one step for a value rounded stochastically, half a step for nearest, |x| + s for the
 * 1-bit codecs; then the step of the gathered sum, whose group's maximum is bounded by the exact
 * sum's plus the errors so far; then what fp32 additions, transforms and the type of the result may
 * round.  The bound holds for every element, so a single value outside it is a fault.
 *
 * Bounds through a Hadamard transform of order H, unnormalised: where a value of the transform
 * domain is off by at most b_j, the inverse, (1/H) * sum of +-e_j, is off by at most the mean of
 * the b_j: with one step s in the block, by s. Into the transform domain errors add: by at most the
 * sum. */
#ifndef BENCH_BOUND_H
#define BENCH_BOUND_H

#include <stddef.h>

#include "bench/scheme.h"

/* Reads what the collective was given: values first .. first + count - 1 of rank's input, counted
 * in the whole. */
typedef void bench_reader(const void *context, int rank, size_t first, size_t count, float *out);

/* A block of the result: elements first .. first + count - 1 of the whole. */
struct bench_expectation {
    size_t count;
    double *exact;         /* the fp64 result */
    double *bound;         /* |result - exact| <= bound; infinite where nothing can be said */
    unsigned char *is_nan; /* 1 where a NaN or an infinity has poisoned the group */
    double *scratch[5];    /* magnitudes and intermediate bounds, for bound.c */
    float *values;
};

/* Memory for blocks of up to capacity elements.  0, or 1 when there is none. */
int bench_expectation_make(struct bench_expectation *expectation, size_t capacity);
void bench_expectation_free(struct bench_expectation *expectation);

/* Fills the expectation for count elements that begin at element `first` of the whole, in the
 * segment of `owner`, at a multiple of bench_scheme_unit within it.  For qcclCollAllGatherDelta the
 * reader gives master - replica. */
void bench_expect(struct bench_expectation *expectation, const struct bench_scheme *scheme,
                  bench_reader *reader, const void *context, int owner, size_t first, size_t count);

/* Adds to bound[i] the most that encoding and decoding may change a value of magnitude at most
 * magnitude[i] (in the codec's transform domain).  Groups begin at element 0.  Marks groups with a
 * magnitude that is not finite as NaN. */
void bench_add_steps(const qcclCodec_t *codec, const double *magnitude, size_t count, double *bound,
                     unsigned char *is_nan);

/* The unnormalised Walsh-Hadamard transform of the specification, in fp32: each `order` values,
 * then falling powers of two.  Order 0 is none. */
void bench_transform(float *values, size_t count, size_t order);

/* The most that rounding a result of this magnitude to the type may change it. */
double bench_type_rounding(qcclDataType_t type, double magnitude);

#endif
