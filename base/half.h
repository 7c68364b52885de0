/* bfloat16 and IEEE half precision in plain C: exact widening, rounding to nearest even.
 *
 * A NaN always becomes the canonical quiet NaN of the target type. */
#ifndef QCCL_BASE_HALF_H
#define QCCL_BASE_HALF_H

#include <stdint.h>
#include <string.h>

#define QCCL_NAN_BITS 0x7fc00000u

static inline uint32_t qccl_float_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float qccl_bits_float(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static inline float qccl_canonical(float x)
{
    return x != x ? qccl_bits_float(QCCL_NAN_BITS) : x;
}

static inline float qccl_bf16_to_float(uint16_t h)
{
    return qccl_canonical(qccl_bits_float((uint32_t)h << 16));
}

/* Nearest even; overflows to infinity. */
static inline uint16_t qccl_bf16_nearest(float x)
{
    uint32_t u = qccl_float_bits(x);
    if (x != x)
        return 0x7fc0;
    return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

/* The smallest bfloat16 that is not below x >= 0. */
static inline uint16_t qccl_bf16_up(float x)
{
    return (uint16_t)((qccl_float_bits(x) + 0xffff) >> 16);
}

static inline float qccl_fp16_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7fff;
    if (rest > 0x7c00)
        return qccl_bits_float(QCCL_NAN_BITS);
    if (rest == 0x7c00)
        return qccl_bits_float(sign | 0x7f800000);
    /* The exponent is rebased by a product that is exact, subnormals included. */
    float magnitude = qccl_bits_float(rest << 13) * 0x1p112f;
    return qccl_bits_float(sign | qccl_float_bits(magnitude));
}

static inline uint16_t qccl_fp16_nearest(float x)
{
    uint32_t u = qccl_float_bits(x), sign = (u >> 16) & 0x8000, rest = u & 0x7fffffff;
    if (x != x)
        return 0x7e00;
    if (rest >= 0x477ff000) /* rounds to 65536 or more */
        return (uint16_t)(sign | 0x7c00);
    if (rest <
        0x38800000) { /* subnormal: adding 0.5 puts the last half bit at the end of the word */
        float shifted = qccl_bits_float(rest) + 0.5f;
        return (uint16_t)(sign | (qccl_float_bits(shifted) - 0x3f000000));
    }
    rest += 0xfff + ((rest >> 13) & 1);
    return (uint16_t)(sign | ((rest - 0x38000000) >> 13));
}

#endif
