/* The number type of the model and the few operations on it that depend on the type.
 *
 * Training runs in fp32.  The gradient check compiles the same files once more with GPT_DOUBLE,
 * since finite differences of an fp32 loss are mostly rounding error.  This is the one place that
 * chooses. gpt_expf exists because a loop that calls libm's expf is not vectorised; it is there
 * in both. */
#ifndef BENCH_GPT_REAL_H
#define BENCH_GPT_REAL_H

#include <cblas.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Keeps the argument of gpt_expf in range.  A loop of its own: gcc turns a clamp inside the other
 * one into branches and then does not vectorise.  NaN stays NaN. */
static inline float gpt_exp_clamp(float x)
{
    x = x < -87.0f ? -87.0f : x;
    return x > 88.0f ? 88.0f : x;
}

/* e^x in fp32 for |x| <= 88, without a branch or a call.  x = k ln 2 + r with |r| <= ln 2 / 2,
 * where k comes from adding 1.5 * 2^23, which leaves the integer in the low bits; e^r is its
 * Taylor polynomial of degree 7. */
static inline float gpt_expf(float x)
{
    const float to_integer = 12582912.0f, log2_e = 1.44269504f;
    const float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
    float shifted = x * log2_e + to_integer;
    float k = shifted - to_integer;
    float r = (x - k * ln2_high) - k * ln2_low;
    float tail = 1.0f / 5040.0f;
    tail = tail * r + 1.0f / 720.0f;
    tail = tail * r + 1.0f / 120.0f;
    tail = tail * r + 1.0f / 24.0f;
    tail = tail * r + 1.0f / 6.0f;
    tail = tail * r + 1.0f / 2.0f;
    float exp_r = (tail * r) * r + r + 1.0f;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits << 23) + 0x3f800000u;
    float two_to_k;
    memcpy(&two_to_k, &bits, sizeof two_to_k);
    return exp_r * two_to_k;
}

/* Replaces fp32 values by their exponentials; outside [-87, 88] by that of the nearer end. */
static inline void gpt_expf_values(float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] = gpt_exp_clamp(values[i]);
    for (size_t i = 0; i < count; i++)
        values[i] = gpt_expf(values[i]);
}

static inline void gpt_exp_doubles(double *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] = exp(values[i]);
}

#ifdef GPT_DOUBLE
typedef double real;
#define gpt_exp_values gpt_exp_doubles
#define gpt_log log
#define gpt_sqrt sqrt
#define gpt_blas_gemm cblas_dgemm
#else
typedef float real;
#define gpt_exp_values gpt_expf_values
#define gpt_log logf
#define gpt_sqrt sqrtf
#define gpt_blas_gemm cblas_sgemm
#endif

#endif
