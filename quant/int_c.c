/* Plain C rows of the stochastic integer formats int8, int4 and int2 (docs/numerics.md, Rounding
 * without bias).
 *
 * One group at a time: 1. the largest magnitude; 2. the scale; 3. each value to fixed point with 16
 * fractional bits, plus its random number, shifted down; 4. the code or-ed into its place. */
#include <math.h>

#include "quant/c_kernels.h"
#include "quant/group_c.h"

/* Where the code of element i stands: byte within the message's codes, and bit within the byte. */
static inline size_t code_byte(int bits, size_t i, unsigned *shift)
{
    size_t tile = i / TILE_ELEMS, row = i % TILE_ELEMS / TILE_LANES, lane = i % TILE_LANES;
    size_t tile_bytes = (size_t)bits * TILE_LANES, bit = row * (size_t)bits;
    *shift = (unsigned)(bit % 8);
    if (bits == 8) /* two planes of 32-bit words */
        return tile * tile_bytes + row / 4 * 64 + lane * 4 + row % 4;
    return tile * tile_bytes + lane * (size_t)bits + bit / 8;
}

static inline float int_value(int bits, const uint8_t *codes, size_t i, float s)
{
    unsigned shift;
    size_t byte = code_byte(bits, i, &shift);
    int sign = 1 << (bits - 1), raw = codes[byte] >> shift & (2 * sign - 1);
    return (float)((raw ^ sign) - sign) * s;
}

static inline void encode_int_group(int bits, const struct encode_args *a, size_t at, size_t elems,
                                    struct lane_words *words)
{
    const float *x = a->x + (at - a->begin);
    float *residual = a->residual ? a->residual + (at - a->begin) : NULL;
    uint16_t *scale = &a->scales[at / a->group];
    uint32_t max = scan_group(x, residual, elems);
    if (write_special(max, x, residual, elems, scale))
        return;
    int top = (1 << (bits - 1)) - 1;
    *scale = qccl_bf16_up(qccl_bits_float(max) / (float)top);
    float s = scale_value(*scale), inv = 1.0f / s * 65536.0f;
    for (size_t i = 0; i < elems; i++) {
        unsigned shift;
        size_t byte = code_byte(bits, at + i, &shift);
        float y = fed_value(x, residual, i);
        int q = ((int)lrintf(y * inv) + (int)random16(words, a->draw, at + i)) >> 16;
        q = q > top ? top : q < -top ? -top : q;
        unsigned code = (unsigned)q & (2u * (unsigned)top + 1);
        a->codes[byte] = (uint8_t)(a->codes[byte] | code << shift);
        if (residual)
            residual[i] = lost_value(y, (float)q * s);
    }
}

static void encode_int8_group(const struct encode_args *a, size_t at, size_t elems,
                              struct lane_words *words)
{
    encode_int_group(8, a, at, elems, words);
}

static float int8_value(const uint8_t *codes, size_t i, float s)
{
    return int_value(8, codes, i, s);
}

void encode_int8_c(const struct encode_args *args)
{
    encode_groups(args, 8 * TILE_LANES, encode_int8_group);
}

void decode_int8_c(const struct decode_args *args)
{
    decode_groups(args, int8_value);
}

void decode_add_int8_c(const struct decode_args *args)
{
    decode_add_groups(args, int8_value);
}

void sum_int8_c(const struct sum_args *args)
{
    sum_groups(args, int8_value);
}

static void encode_int4_group(const struct encode_args *a, size_t at, size_t elems,
                              struct lane_words *words)
{
    encode_int_group(4, a, at, elems, words);
}

static float int4_value(const uint8_t *codes, size_t i, float s)
{
    return int_value(4, codes, i, s);
}

void encode_int4_c(const struct encode_args *args)
{
    encode_groups(args, 4 * TILE_LANES, encode_int4_group);
}

void decode_int4_c(const struct decode_args *args)
{
    decode_groups(args, int4_value);
}

void decode_add_int4_c(const struct decode_args *args)
{
    decode_add_groups(args, int4_value);
}

void sum_int4_c(const struct sum_args *args)
{
    sum_groups(args, int4_value);
}

static void encode_int2_group(const struct encode_args *a, size_t at, size_t elems,
                              struct lane_words *words)
{
    encode_int_group(2, a, at, elems, words);
}

static float int2_value(const uint8_t *codes, size_t i, float s)
{
    return int_value(2, codes, i, s);
}

void encode_int2_c(const struct encode_args *args)
{
    encode_groups(args, 2 * TILE_LANES, encode_int2_group);
}

void decode_int2_c(const struct decode_args *args)
{
    decode_groups(args, int2_value);
}

void decode_add_int2_c(const struct decode_args *args)
{
    decode_add_groups(args, int2_value);
}

void sum_int2_c(const struct sum_args *args)
{
    sum_groups(args, int2_value);
}
