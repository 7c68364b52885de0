/* 16-bit floats to fp32 and back, round to nearest even.
 *
 * Written apart from the library's own conversions, so that checking a result does not use what it
 * checks.  fp16 goes through exact powers of two instead of shifting bits. */
#ifndef BENCH_HALF_H
#define BENCH_HALF_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float bench_from_bf16(uint16_t half)
{
    uint32_t word = (uint32_t)half << 16;
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}

static inline uint16_t bench_to_bf16(float value)
{
    uint32_t word;
    memcpy(&word, &value, sizeof word);
    if (isnan(value))
        return 0x7fc0;
    return (uint16_t)((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

static inline float bench_from_fp16(uint16_t half)
{
    int exponent = half >> 10 & 31, fraction = half & 1023;
    float sign = half >> 15 ? -1.0f : 1.0f;
    if (exponent == 31)
        return fraction ? NAN : sign * INFINITY;
    return exponent ? sign * ldexpf((float)(1024 + fraction), exponent - 25)
                    : sign * ldexpf((float)fraction, -24);
}

static inline uint16_t bench_to_fp16(float value)
{
    if (isnan(value))
        return 0x7e00;
    unsigned sign = signbit(value) ? 0x8000u : 0;
    float magnitude = fabsf(value);
    if (magnitude >= 65520.0f)
        return (uint16_t)(sign | 0x7c00);
    if (magnitude < 0x1p-14f)
        return (uint16_t)(sign | (unsigned)lrintf(magnitude * 0x1p24f));
    int exponent;
    float fraction = frexpf(magnitude, &exponent);           /* in [0.5, 1) */
    unsigned rounded = (unsigned)lrintf(fraction * 2048.0f); /* 1024 .. 2048 */
    return (uint16_t)(sign | ((unsigned)(exponent + 13) * 1024u + rounded));
}

#endif
