/* What the plain C rows share: random bits of a tile, the scan of a group, special scales, and the
 * loops over groups.
 *
 * The loops take the format as inline functions, so that each row is compiled for its own format.
 */
#ifndef QCCL_QUANT_GROUP_C_H
#define QCCL_QUANT_GROUP_C_H

#include <string.h>

#include "base/half.h"
#include "quant/kernels.h"

/* Below this the group is zero, exactly. */
#define GROUP_TINY 0x1p-100f

/* The random words of the tile that was drawn last. */
struct lane_words {
    size_t tile;
    uint32_t words[TILE_LANES][4];
};

/* The 16 random bits of element i of a message. */
static inline uint32_t random16(struct lane_words *cache, const struct draw *draw, size_t i)
{
    if (draw->nearest)
        return 32768;
    size_t tile = i / TILE_ELEMS, row = i % TILE_ELEMS / TILE_LANES;
    if (cache->tile != tile) {
        for (uint32_t lane = 0; lane < TILE_LANES; lane++) {
            uint32_t block = (draw->first_tile + (uint32_t)tile) * TILE_LANES + lane;
            uint32_t counter[4] = {block, draw->counter[0], draw->counter[1], draw->counter[2]};
            philox4x32_7(counter, draw->key, cache->words[lane]);
        }
        cache->tile = tile;
    }
    return cache->words[i % TILE_LANES][row / 2] >> (16 * (row % 2)) & 0xffff;
}

/* The value to encode: with error feedback, what was lost before is added. */
static inline float fed_value(const float *x, const float *residual, size_t i)
{
    return residual ? x[i] + residual[i] : x[i];
}

/* What is left of y once `decoded` was sent: nothing where that is NaN or infinite, so that a
 * poisoned or overflown group does not poison later calls. */
static inline float lost_value(float y, float decoded)
{
    float lost = y - decoded;
    return (qccl_float_bits(lost) & 0x7f800000u) == 0x7f800000u ? 0.0f : lost;
}

/* Largest magnitude of a group as bits: unsigned order puts infinities and NaN above every finite
 * value. */
static inline uint32_t scan_group(const float *x, const float *residual, size_t elems)
{
    uint32_t max = 0;
    for (size_t i = 0; i < elems; i++) {
        uint32_t magnitude = qccl_float_bits(fed_value(x, residual, i)) & 0x7fffffffu;
        max = magnitude > max ? magnitude : max;
    }
    return max;
}

/* Whether a group of this largest magnitude is zero or poisoned; then writes its scale and its
 * residual. */
static inline bool write_special(uint32_t max, const float *x, float *residual, size_t elems,
                                 uint16_t *scale)
{
    bool poisoned = max >= 0x7f800000u, zero = qccl_bits_float(max) < GROUP_TINY;
    if (!poisoned && !zero)
        return false;
    *scale = poisoned ? 0x7fc0 : 0;
    for (size_t i = 0; residual && i < elems; i++)
        residual[i] =
            lost_value(x[i] + residual[i], poisoned ? qccl_bits_float(QCCL_NAN_BITS) : 0.0f);
    return true;
}

static inline float scale_value(uint16_t scale)
{
    return qccl_bits_float((uint32_t)scale << 16);
}

/* A scale that makes its group +0 or NaN whatever the codes are. */
static inline bool is_special_scale(uint16_t scale)
{
    return (scale & 0x7f80) == 0x7f80 || (scale & 0x7fff) == 0;
}

static inline float special_value(uint16_t scale)
{
    return (scale & 0x7fff) == 0 ? 0.0f : qccl_bits_float(QCCL_NAN_BITS);
}

/* Clears the codes of every tile that begins in the range, so that codes can be or-ed in. */
static inline void clear_codes(const struct encode_args *a, size_t tile_bytes)
{
    size_t first = (a->begin + TILE_ELEMS - 1) / TILE_ELEMS;
    size_t end = (a->begin + a->elems + TILE_ELEMS - 1) / TILE_ELEMS;
    if (end > first)
        memset(a->codes + first * tile_bytes, 0, (end - first) * tile_bytes);
}

typedef void encode_group_fn(const struct encode_args *a, size_t at, size_t elems,
                             struct lane_words *words);

static inline void encode_groups(const struct encode_args *a, size_t tile_bytes,
                                 encode_group_fn *encode_group)
{
    struct lane_words words = {.tile = SIZE_MAX};
    size_t end = a->begin + a->elems;
    clear_codes(a, tile_bytes);
    for (size_t at = a->begin; at < end; at += a->group)
        encode_group(a, at, end - at < a->group ? end - at : a->group, &words);
}

/* The decoded value of element i, whose group's scale is s. */
typedef float value_fn(const uint8_t *codes, size_t i, float s);

/* Decodes elements [at, at + elems) of one group. */
static inline void decode_group(const uint16_t *scales, const uint8_t *codes, size_t group,
                                size_t at, size_t elems, float *out, value_fn *value)
{
    uint16_t scale = scales[at / group];
    if (is_special_scale(scale)) {
        for (size_t i = 0; i < elems; i++)
            out[i] = special_value(scale);
        return;
    }
    float s = scale_value(scale);
    for (size_t i = 0; i < elems; i++)
        out[i] = value(codes, at + i, s);
}

/* The end of the piece that begins at `at`: within its group, within the range, of one tile's size
 * at most. */
static inline size_t piece_end(size_t at, size_t end, size_t group)
{
    size_t stop = (at / group + 1) * group;
    stop = stop < at + TILE_ELEMS ? stop : at + TILE_ELEMS;
    return stop < end ? stop : end;
}

static inline void decode_groups(const struct decode_args *a, value_fn *value)
{
    size_t end = a->begin + a->elems, stop;
    for (size_t at = a->begin; at < end; at = stop) {
        stop = piece_end(at, end, a->group);
        decode_group(a->scales, a->codes, a->group, at, stop - at, a->out + (at - a->begin), value);
    }
}

static inline void decode_add_groups(const struct decode_args *a, value_fn *value)
{
    size_t end = a->begin + a->elems, stop;
    for (size_t at = a->begin; at < end; at = stop) {
        float term[TILE_ELEMS], *out = a->out + (at - a->begin);
        stop = piece_end(at, end, a->group);
        decode_group(a->scales, a->codes, a->group, at, stop - at, term, value);
        for (size_t i = 0; i < stop - at; i++)
            out[i] = qccl_canonical(out[i] + term[i]);
    }
}

/* The sum is gathered aside, since an exact part may be the very memory that the result goes to. */
static inline void sum_groups(const struct sum_args *a, value_fn *value)
{
    size_t end = a->begin + a->elems, stop;
    for (size_t at = a->begin; at < end; at = stop) {
        float total[TILE_ELEMS], term[TILE_ELEMS];
        stop = piece_end(at, end, a->group);
        size_t elems = stop - at, offset = at - a->begin;
        for (int p = 0; p < a->nparts; p++) {
            const struct sum_part *part = &a->parts[p];
            if (part->exact)
                memcpy(term, part->exact + offset, elems * sizeof *term);
            else
                decode_group(part->scales, part->codes, a->group, at, elems, term, value);
            for (size_t i = 0; i < elems; i++)
                total[i] = p ? total[i] + term[i] : term[i];
        }
        for (size_t i = 0; i < elems; i++)
            a->out[offset + i] = qccl_canonical(total[i] * a->weight);
    }
}

#endif
