/* Reductions over short vectors.
 *
 * Each keeps 8 interleaved partial results, so that it vectorises without leave to reorder, and
 * folds them in one fixed order, so that a run repeats bit for bit. */
#ifndef BENCH_GPT_VECTOR_H
#define BENCH_GPT_VECTOR_H

#include <stddef.h>

#include "bench/gpt/real.h"

real gpt_sum(const real *values, size_t count);

real gpt_dot(const real *a, const real *b, size_t count);

/* Replaces the values by their softmax.  Returns the logarithm of the sum of their exponentials. */
real gpt_softmax(real *values, size_t count);

#endif
