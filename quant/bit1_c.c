/* Plain C rows of the one-bit formats: sr1, stochastic and unbiased, and sign1, the sign with the
 * group's mean magnitude. */
#include <math.h>

#include "quant/c_kernels.h"
#include "quant/group_c.h"

enum { BIT1_TILE_BYTES = TILE_LANES };

static inline void write_bit(uint8_t *codes, size_t i, unsigned bit)
{
    uint8_t *byte = &codes[i / TILE_ELEMS * BIT1_TILE_BYTES + i % TILE_LANES];
    *byte = (uint8_t)(*byte | bit << (i % TILE_ELEMS / TILE_LANES));
}

static float bit1_value(const uint8_t *codes, size_t i, float s)
{
    unsigned byte = codes[i / TILE_ELEMS * BIT1_TILE_BYTES + i % TILE_LANES];
    return byte >> (i % TILE_ELEMS / TILE_LANES) & 1 ? s : -s;
}

static void encode_sr1_group(const struct encode_args *a, size_t at, size_t elems,
                             struct lane_words *words)
{
    const float *x = a->x + (at - a->begin);
    float *residual = a->residual ? a->residual + (at - a->begin) : NULL;
    uint16_t *scale = &a->scales[at / a->group];
    uint32_t max = scan_group(x, residual, elems);
    if (write_special(max, x, residual, elems, scale))
        return;
    *scale = qccl_bf16_up(qccl_bits_float(max));
    float s = scale_value(*scale), inv = 1.0f / s * 32768.0f;
    for (size_t i = 0; i < elems; i++) {
        float y = fed_value(x, residual, i);
        int v = 32768 + (int)lrintf(y * inv);
        int bit = (v + (int)random16(words, a->draw, at + i)) >> 16;
        bit = bit > 1 ? 1 : bit < 0 ? 0 : bit;
        write_bit(a->codes, at + i, (unsigned)bit);
        if (residual)
            residual[i] = lost_value(y, bit ? s : -s);
    }
}

/* Sum of magnitudes in sixteen interleaved lanes, folded by halves: the order every row keeps. */
static float lane_sum(const float *x, const float *residual, size_t elems)
{
    float lanes[TILE_LANES] = {0};
    for (size_t i = 0; i < elems; i++)
        lanes[i % TILE_LANES] += fabsf(fed_value(x, residual, i));
    for (int span = TILE_LANES / 2; span; span /= 2)
        for (int j = 0; j < span; j++)
            lanes[j] += lanes[j + span];
    return lanes[0];
}

static void encode_sign1_group(const struct encode_args *a, size_t at, size_t elems,
                               struct lane_words *words)
{
    (void)words;
    const float *x = a->x + (at - a->begin);
    float *residual = a->residual ? a->residual + (at - a->begin) : NULL;
    uint16_t *scale = &a->scales[at / a->group];
    uint32_t max = scan_group(x, residual, elems);
    if (write_special(max, x, residual, elems, scale))
        return;
    *scale = qccl_bf16_nearest(lane_sum(x, residual, elems) * (1.0f / (float)elems));
    float s = scale_value(*scale);
    for (size_t i = 0; i < elems; i++) {
        float y = fed_value(x, residual, i);
        unsigned bit = !(y < 0.0f);
        write_bit(a->codes, at + i, bit);
        if (residual)
            residual[i] = lost_value(y, bit ? s : -s);
    }
}

void encode_sr1_c(const struct encode_args *args)
{
    encode_groups(args, BIT1_TILE_BYTES, encode_sr1_group);
}

void encode_sign1_c(const struct encode_args *args)
{
    encode_groups(args, BIT1_TILE_BYTES, encode_sign1_group);
}

void decode_bit1_c(const struct decode_args *args)
{
    decode_groups(args, bit1_value);
}

void decode_add_bit1_c(const struct decode_args *args)
{
    decode_add_groups(args, bit1_value);
}

void sum_bit1_c(const struct sum_args *args)
{
    sum_groups(args, bit1_value);
}
