/* Inputs for the kernel tests, from one seed; what special means to a kernel is listed here once.
 *
 * A kind makes values: ordinary ones, zeros of both signs, denormal and huge values, NaN,
 * infinities, and values on the edge of a level. */
#ifndef QCCL_TESTS_KERNEL_INPUTS_H
#define QCCL_TESTS_KERNEL_INPUTS_H

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/half.h"

enum { SLACK = 64 };

#define COUNT(array) (sizeof(array) / sizeof *(array))

static uint64_t state; /* the seed, for each test to set */

/* splitmix64 */
static inline uint64_t next(void)
{
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static inline float uniform(void)
{
    return (float)(int32_t)next() * 0x1p-31f;
}

static inline float bell(size_t i)
{
    (void)i;
    return uniform() + uniform() + uniform() + uniform();
}

static inline float any_bits(size_t i)
{
    (void)i;
    return qccl_bits_float((uint32_t)next());
}

/* Up to the largest of all, and around 2^119, where what is lost of a value may overflow. */
static inline float huge(size_t i)
{
    float most = i / 1024 % 2 ? FLT_MAX : 0x1p121f;
    return uniform() < 0.9f ? uniform() * most : copysignf(most, uniform());
}

/* Around 2^-100, where groups become zero: spread over it, and with that or the value below it as
 * the largest. */
static inline float tiny(size_t i)
{
    float edge = i / 512 % 2 ? 0x1p-100f : nextafterf(0x1p-100f, 0.0f);
    if (i / 1024 % 2)
        return uniform() * (i / 512 % 2 ? 0x1p-99f : 0x1p-101f);
    return i % 8 ? uniform() * edge : copysignf(edge, uniform());
}

static inline float denormal(size_t i)
{
    (void)i;
    return qccl_bits_float((uint32_t)next() & 0x807fffffu);
}

static inline float mostly_zero(size_t i)
{
    return i / 96 % 3 == 0 ? uniform() : copysignf(0.0f, uniform());
}

static inline float rare_nan(size_t i)
{
    (void)i;
    return next() % 4096 == 0 ? qccl_bits_float(0xffc12345u) : bell(i);
}

static inline float rare_infinity(size_t i)
{
    return next() % 4096 == 0 ? copysignf(INFINITY, uniform()) : bell(i);
}

/* Multiples of a half level of the 4-bit format, extremes at the ends of the range. */
static inline float level_edges(size_t i)
{
    return i % 7 == 0 ? copysignf(7.0f, uniform()) : (float)((int)(next() % 29) - 14) * 0.5f;
}

/* Magnitudes of one group within an ulp of each other, on every mantissa: the largest code is at
 * stake everywhere. */
static inline float near_top(size_t i)
{
    float top = qccl_bits_float(0x3f800000u + (uint32_t)(i / 32 * 0x01234u % 0x00800000u));
    return copysignf(next() % 2 ? top : nextafterf(top, 0.0f), uniform());
}

static const struct kind {
    const char *name;
    float (*value)(size_t i);
} kinds[] = {
    {.name = "bell", .value = bell},
    {.name = "any bits", .value = any_bits},
    {.name = "huge", .value = huge},
    {.name = "tiny", .value = tiny},
    {.name = "denormal", .value = denormal},
    {.name = "mostly zero", .value = mostly_zero},
    {.name = "rare NaN", .value = rare_nan},
    {.name = "rare infinity", .value = rare_infinity},
    {.name = "level edges", .value = level_edges},
    {.name = "near the top", .value = near_top},
};

static inline void fill(float *x, size_t elems, const struct kind *kind)
{
    for (size_t i = 0; i < elems; i++)
        x[i] = kind->value(i);
}

static inline void fill_bytes(void *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        ((uint8_t *)bytes)[i] = (uint8_t)(next() >> 24);
}

static inline void *allocate(size_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    cr_assert_not_null(memory);
    return memory;
}

static inline void *copy_of(const void *from, size_t bytes)
{
    return memcpy(allocate(bytes), from, bytes);
}

static inline bool runs(enum qccl_cpu cpu)
{
    return cpu <= qccl_cpu_detected();
}

/* Where two buffers first differ; bytes when they do not. */
static inline size_t first_difference(const void *got, const void *want, size_t bytes)
{
    const uint8_t *a = got, *b = want;
    size_t i = 0;
    while (i < bytes && a[i] == b[i])
        i++;
    return i;
}

#endif
