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

void sum_bf16_c(const struct sum_args *a)
{
    for (size_t i = 0; i < a->elems; i++) {
        float total = 0.0f;
        for (int p = 0; p < a->nparts; p++) {
            const struct sum_part *part = &a->parts[p];
            float term = part->exact ? part->exact[i] : bf16_at(part->codes, a->begin + i);
            total = p ? total + term : term;
        }
        a->out[i] = qccl_canonical(total * a->weight);
    }
}

/* ------------------------------------------------------------------ none */

/* Between a float's bits and their little-endian order in memory. */
static inline uint32_t little_endian(uint32_t u)
{
    return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? u : __builtin_bswap32(u);
}

static inline float none_at(const uint8_t *codes, size_t i)
{
    uint32_t u;
    memcpy(&u, codes + 4 * i, sizeof u);
    return qccl_bits_float(little_endian(u));
}

static inline void put_none(uint8_t *codes, size_t i, float value)
{
    uint32_t u = little_endian(qccl_float_bits(value));
    memcpy(codes + 4 * i, &u, sizeof u);
}

void encode_none_c(const struct encode_args *a)
{
    uint8_t *codes = a->codes + sizeof(float) * a->begin;
    size_t end = a->begin + a->elems, rest = (TILE_ELEMS - end % TILE_ELEMS) % TILE_ELEMS;
    for (size_t i = 0; !a->residual && i < a->elems; i++)
        put_none(codes, i, qccl_canonical(a->x[i]));
    for (size_t i = 0; a->residual && i < a->elems; i++) {
        put_none(codes, i, qccl_canonical(a->x[i] + a->residual[i]));
        a->residual[i] = 0.0f;
    }
    memset(codes + sizeof(float) * a->elems, 0, sizeof(float) * rest);
}

void decode_none_c(const struct decode_args *a)
{
    const uint8_t *codes = a->codes + sizeof(float) * a->begin;
    for (size_t i = 0; i < a->elems; i++)
        a->out[i] = none_at(codes, i);
}

void decode_add_none_c(const struct decode_args *a)
{
    const uint8_t *codes = a->codes + sizeof(float) * a->begin;
    for (size_t i = 0; i < a->elems; i++)
        a->out[i] = qccl_canonical(a->out[i] + none_at(codes, i));
}

/* total = or += part p's elements [at, at + elems). */
static void add_none(const struct sum_args *a, int p, size_t at, float *total, size_t elems)
{
    const struct sum_part *part = &a->parts[p];
    const uint8_t *codes = part->exact ? NULL : part->codes + sizeof(float) * (a->begin + at);
    for (size_t i = 0; codes && i < elems; i++)
        total[i] = p ? total[i] + none_at(codes, i) : none_at(codes, i);
    for (size_t i = 0; !codes && i < elems; i++)
        total[i] = p ? total[i] + part->exact[at + i] : part->exact[at + i];
}

/* A tile at a time and aside, since an exact part may be the very memory that the result goes to.
 */
void sum_none_c(const struct sum_args *a)
{
    float total[TILE_ELEMS];
    for (size_t at = 0; at < a->elems; at += TILE_ELEMS) {
        size_t elems = a->elems - at < TILE_ELEMS ? a->elems - at : TILE_ELEMS;
        for (int p = 0; p < a->nparts; p++)
            add_none(a, p, at, total, elems);
        for (size_t i = 0; i < elems; i++)
            a->out[at + i] = qccl_canonical(total[i] * a->weight);
    }
}
