/* Checks a collective's result against what it should be: every value against its bound, all of
 * them together as one relative error.
 *
 * The whole of a collective's values is numbered once: all of an allreduce, the shards one after
 * another otherwise.  A rank checks the segment it owns; that all ranks have the same bits is
 * checked by comparing hashes. */
#ifndef BENCH_VERIFY_H
#define BENCH_VERIFY_H

#include <stdint.h>

#include "bench/bound.h"
#include "bench/input.h"

struct bench_subject {
    const struct bench_scheme *scheme;
    bench_reader *reader; /* what went in; for a delta, master - replica */
    bench_reader *base;   /* delta: the replica before the call; else NULL */
    const void *context;
    size_t count;       /* of the whole */
    const void *result; /* of the scheme's type; result[0] is element `begin` of the whole */
    size_t begin;
};

struct bench_findings {
    uint64_t wrong;      /* values outside their bound */
    uint64_t nan_values; /* NaN in the result */
    double error_energy; /* sum of (result - exact)^2 where both are finite */
    double energy;       /* sum of exact^2 there; of the difference for a delta */
    double closest;      /* the largest share of its bound that an error took */
    /* The group where the largest error is largest beside the group's largest value: both, and the
     * group's first element in the whole. */
    double worst_error, worst_value;
    uint64_t worst_first;
};

/* Adds what the segment of an owner shows to the findings.  Returns 1 when there is no memory, else
 * 0. */
int bench_verify(const struct bench_subject *subject, int owner, struct bench_findings *findings);

/* Checks one value and counts it. */
void bench_verify_value(double result, double exact, double bound, int is_nan,
                        struct bench_findings *findings);

/* The same for a call that was not compressed, on inputs made by bench_inputs_fill: elements first
 * .. first + count - 1 of the whole.  Integers, products, extremes and copies have to be exact,
 * sums may round as the type does. input_of >= 0: they are copies of that rank's input. */
void bench_verify_plain(const struct bench_inputs *inputs, qcclDataType_t type, qcclRedOp_t op,
                        int input_of, size_t first, size_t count, const void *result,
                        struct bench_findings *findings);

/* sqrt(error energy / energy); 0 without an error. */
double bench_relative_error(const struct bench_findings *findings);

/* A hash of bytes: equal for equal bytes. */
uint64_t bench_hash(const void *bytes, size_t count);

#endif
