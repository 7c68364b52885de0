/* Plain C rows of the formats without groups: bf16, each value rounded on its own, and none, the
 * fp32 values as they are.
 *
 * bf16 rounds to nearest even, or stochastically: the 16 bits that are dropped plus a random number
 * carry into what stays, so the mean is exact; a finite value never becomes infinite that way. */
#include "quant/c_kernels.h"
#include "quant/group_c.h"

static uint16_t bf16_stochastic(float y, uint32_t random)
{
    uint32_t u = qccl_float_bits(y), magnitude = u & 0x7fffffffu;
    if (magnitude >= 0x7f800000u)
        return qccl_bf16_nearest(y);
    uint32_t rounded = (magnitude + random) >> 16;
    rounded = rounded > 0x7f7f ? 0x7f7f : rounded;
    return (uint16_t)(u >> 16 & 0x8000u) | (uint16_t)rounded;
}

void encode_bf16_c(const struct encode_args *a)
{
    struct lane_words words = {.tile = SIZE_MAX};
    clear_codes(a, 2 * TILE_ELEMS);
    for (size_t i = 0; i < a->elems; i++) {
        float y = fed_value(a->x, a->residual, i);
        uint16_t h = a->draw->nearest ? qccl_bf16_nearest(y)
                                      : bf16_stochastic(y, random16(&words, a->draw, a->begin + i));
        a->codes[2 * (a->begin + i)] = (uint8_t)h;
        a->codes[2 * (a->begin + i) + 1] = (uint8_t)(h >> 8);
        if (a->residual)
            a->residual[i] = lost_value(y, qccl_bf16_to_float(h));
    }
}

static inline float bf16_at(const uint8_t *codes, size_t i)
{
    return qccl_bf16_to_float((uint16_t)(codes[2 * i] | codes[2 * i + 1] << 8));
}

void decode_bf16_c(const struct decode_args *a)
{
    load_bf16_c(a->out, a->codes + 2 * a->begin, a->elems);
}

void decode_add_bf16_c(const struct decode_args *a)
{
    for (size_t i = 0; i < a->elems; i++)
        a->out[i] = qccl_canonical(a->out[i] + bf16_at(a->codes, a->begin + i));
}

static inline float none_at(const uint8_t *codes, size_t i)
{
    const uint8_t *b = codes + 4 * i;
    return qccl_bits_float((uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 |
                           (uint32_t)b[3] << 24);
}

/* Sums one element of every part, in order. */
typedef float element_fn(const uint8_t *codes, size_t i);

static inline void sum_elements(const struct sum_args *a, element_fn *element)
{
    for (size_t i = 0; i < a->elems; i++) {
        float total = 0.0f;
        for (int p = 0; p < a->nparts; p++) {
            const struct sum_part *part = &a->parts[p];
            float term = part->exact ? part->exact[i] : element(part->codes, a->begin + i);
            total = p ? total + term : term;
        }
        a->out[i] = qccl_canonical(total * a->weight);
    }
}

void sum_bf16_c(const struct sum_args *args)
{
    sum_elements(args, bf16_at);
}

void encode_none_c(const struct encode_args *a)
{
    clear_codes(a, sizeof(float) * TILE_ELEMS);
    for (size_t i = 0; i < a->elems; i++) {
        uint32_t u = qccl_float_bits(qccl_canonical(fed_value(a->x, a->residual, i)));
        uint8_t *b = a->codes + 4 * (a->begin + i);
        for (int k = 0; k < 4; k++)
            b[k] = (uint8_t)(u >> (8 * k));
        if (a->residual)
            a->residual[i] = 0.0f;
    }
}

void decode_none_c(const struct decode_args *a)
{
    for (size_t i = 0; i < a->elems; i++)
        a->out[i] = none_at(a->codes, a->begin + i);
}

void decode_add_none_c(const struct decode_args *a)
{
    for (size_t i = 0; i < a->elems; i++)
        a->out[i] = qccl_canonical(a->out[i] + none_at(a->codes, a->begin + i));
}

void sum_none_c(const struct sum_args *args)
{
    sum_elements(args, none_at);
}
