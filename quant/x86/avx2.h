/* AVX2 parts of the kernel rows: one vector is half a row of a tile.
 *
 * Encoders work on the eight rows of lanes 0-7, then of lanes 8-15: the codes of a lane meet in one
 * word.  Sums work on rows 0-3, then 4-7, so that results leave in whole cache lines and eight
 * totals stay in registers over all parts.
 *
 * Functions that take a function or a flag are inlined into each format's unit, where those are
 * constants. */
#ifndef QCCL_QUANT_X86_AVX2_H
#define QCCL_QUANT_X86_AVX2_H

#include <immintrin.h>

#include "quant/x86/blocks.h"

#define INLINE256 static inline __attribute__((always_inline))

enum {
    SETS = 4,
    HALF_LANES = TILE_LANES / 2,
    HALF_ROWS = TILE_ROWS / 2,
    HALF_TILE = TILE_ELEMS / 2
};

/* ------------------------------------------------------------------ bits */

INLINE256 __m256i xor256(__m256i a, uint32_t b)
{
    return _mm256_xor_si256(a, _mm256_set1_epi32((int)b));
}

INLINE256 __m256i magnitude256(__m256 x)
{
    return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff));
}

INLINE256 __m256 canonical256(__m256 x)
{
    __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(QCCL_NAN_BITS));
    return _mm256_blendv_ps(x, nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

/* bfloat16 nearest to each value, in the low halves. */
INLINE256 __m256i bf16_nearest256(__m256 x)
{
    __m256i u = _mm256_castps_si256(x);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    u = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(0x7fc0), nan);
}

/* The low halves of eight words whose high halves are 0. */
INLINE256 __m128i halves256(__m256i words)
{
    return _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

/* ------------------------------------------------------------------ random numbers */

/* The state of Philox between rounds, in four sets of 64-bit lanes: even and odd blocks of lanes
 * 0-7 and of 8-15.  Products hold both halves in place.  Words stand in low halves, with anything
 * above them; low0 and low1 are words 3 and 1. */
struct philox256 {
    __m256i word0[SETS], word2[SETS], low0[SETS], low1[SETS];
};

INLINE256 void philox_round256(struct philox256 *p, uint32_t key0, uint32_t key1)
{
    const __m256i m0 = _mm256_set1_epi64x(PHILOX_M0), m1 = _mm256_set1_epi64x(PHILOX_M1);
    for (int i = 0; i < SETS; i++) {
        __m256i product0 = _mm256_mul_epu32(p->word0[i], m0);
        __m256i product1 = _mm256_mul_epu32(p->word2[i], m1);
        __m256i mixed0 = xor256(p->low1[i], key0), mixed1 = xor256(p->low0[i], key1);
        p->word0[i] = _mm256_xor_si256(_mm256_srli_epi64(product1, 32), mixed0);
        p->word2[i] = _mm256_xor_si256(_mm256_srli_epi64(product0, 32), mixed1);
        p->low0[i] = product0;
        p->low1[i] = product1;
    }
}

/* The first three rounds, whose constant parts are in start. */
INLINE256 void philox_first256(struct philox256 *p, const __m256i counter[SETS],
                               const struct philox_start *s)
{
    const __m256i m0 = _mm256_set1_epi64x(PHILOX_M0), m1 = _mm256_set1_epi64x(PHILOX_M1);
    for (int i = 0; i < SETS; i++) {
        __m256i product0 = _mm256_mul_epu32(counter[i], m0);
        __m256i word2 = xor256(_mm256_srli_epi64(product0, 32), s->word2_round0);
        __m256i product1 = _mm256_mul_epu32(word2, m1);
        p->word0[i] = xor256(_mm256_srli_epi64(product1, 32), s->word0_round1);
        p->word2[i] = xor256(product0, s->word2_round1);
        p->low1[i] = product1;
    }
    for (int i = 0; i < SETS; i++) {
        __m256i product0 = _mm256_mul_epu32(p->word0[i], m0);
        __m256i product1 = _mm256_mul_epu32(p->word2[i], m1);
        __m256i mixed0 = xor256(p->low1[i], s->key0[2]);
        p->word0[i] = _mm256_xor_si256(_mm256_srli_epi64(product1, 32), mixed0);
        p->word2[i] = xor256(_mm256_srli_epi64(product0, 32), s->word2_round2);
        p->low0[i] = product0;
        p->low1[i] = product1;
    }
}

/* The words of the sixteen blocks of a tile, lanes 0-7 and 8-15: four chains of products at once,
 * which one alone would leave waiting. */
INLINE256 void philox256(__m256i words[2][4], uint32_t first, const struct philox_start *start)
{
    const __m256i lanes = _mm256_setr_epi32(0, 0, 2, 0, 4, 0, 6, 0);
    struct philox256 p;
    __m256i counter[SETS];
    for (uint32_t i = 0; i < SETS; i++)
        counter[i] =
            _mm256_add_epi32(_mm256_set1_epi32((int)(first + i / 2 * HALF_LANES + i % 2)), lanes);
    philox_first256(&p, counter, start);
    for (int round = 3; round < PHILOX_ROUNDS; round++)
        philox_round256(&p, start->key0[round], start->key1[round]);
    const __m256i *all[4] = {p.word0, p.low1, p.word2, p.low0};
    for (int half = 0; half < 2; half++)
        for (int w = 0; w < 4; w++)
            words[half][w] = _mm256_blend_epi32(all[w][2 * half],
                                                _mm256_slli_epi64(all[w][2 * half + 1], 32), 0xaa);
}

/* ------------------------------------------------------------------ groups */

INLINE256 uint32_t reduce_max256(__m256i x)
{
    __m128i z = _mm_max_epu32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    z = _mm_max_epu32(z, _mm_shuffle_epi32(z, 0x4e));
    z = _mm_max_epu32(z, _mm_shuffle_epi32(z, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(z);
}

/* Lanes j and j + 8, then j + 4, j + 2, j + 1. */
INLINE256 float reduce_add256(__m256 low, __m256 high)
{
    __m256 y = _mm256_add_ps(low, high);
    __m128 z = _mm_add_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
    z = _mm_add_ps(z, _mm_movehl_ps(z, z));
    z = _mm_add_ss(z, _mm_shuffle_ps(z, z, 1));
    return _mm_cvtss_f32(z);
}

INLINE256 __m256 fed256(const float *x, const float *residual, size_t i, bool feedback)
{
    __m256 value = _mm256_loadu_ps(x + i);
    return feedback ? _mm256_add_ps(value, _mm256_loadu_ps(residual + i)) : value;
}

/* Sources of the next block on their way while this one is worked on: of every four lines one while
 * it is scanned and three while it is encoded, so that memory is never idle. */
INLINE256 void prefetch256(const struct encode_block *b, size_t i, bool feedback)
{
    _mm_prefetch((const char *)(b->x + b->elems + i), _MM_HINT_T0);
    if (feedback)
        _mm_prefetch((const char *)(b->residual + b->elems + i), _MM_HINT_T0);
}

INLINE256 void prefetch_tile256(const struct encode_block *b, size_t t, bool feedback)
{
    for (size_t line = 0; line < TILE_ELEMS; line += TILE_LANES)
        if (line % SCAN_PREFETCH)
            prefetch256(b, t * TILE_ELEMS + line, feedback);
}

INLINE256 void scan256(struct encode_block *b, bool feedback, bool sums)
{
    for (size_t g = 0; g < b->groups; g++) {
        __m256i max0 = _mm256_setzero_si256(), max1 = max0;
        __m256 sum0 = _mm256_setzero_ps(), sum1 = sum0;
        for (size_t i = g * b->group; i < (g + 1) * b->group; i += TILE_LANES) {
            if (i % SCAN_PREFETCH == 0)
                prefetch256(b, i, feedback);
            __m256i x0 = magnitude256(fed256(b->x, b->residual, i, feedback));
            __m256i x1 = magnitude256(fed256(b->x, b->residual, i + HALF_LANES, feedback));
            max0 = _mm256_max_epu32(max0, x0);
            max1 = _mm256_max_epu32(max1, x1);
            if (sums) {
                sum0 = _mm256_add_ps(sum0, _mm256_castsi256_ps(x0));
                sum1 = _mm256_add_ps(sum1, _mm256_castsi256_ps(x1));
            }
        }
        b->magnitudes[g] = reduce_max256(_mm256_max_epu32(max0, max1));
        if (sums)
            b->sums[g] = reduce_add256(sum0, sum1);
    }
}

INLINE256 void scan_groups256(struct encode_block *b, bool sums)
{
    if (b->residual)
        scan256(b, true, sums);
    else
        scan256(b, false, sums);
}

/* Writes eight scales, given as the bits of fp32 values; false when a group is for the C row. */
INLINE256 bool put_scales256(struct encode_block *b, size_t g, __m256i max, __m256i scale)
{
    const __m256i finite = _mm256_set1_epi32(INFINITY_BITS - 1);
    const __m256i limit = b->residual ? _mm256_set1_epi32(OVERFLOW_BITS - 1) : finite;
    scale = _mm256_and_si256(scale, _mm256_set1_epi32((int)0xffff0000u));
    scale = _mm256_and_si256(scale, _mm256_cmpgt_epi32(max, _mm256_set1_epi32(TINY_BITS - 1)));
    __m256i special =
        _mm256_or_si256(_mm256_cmpgt_epi32(max, finite), _mm256_cmpgt_epi32(scale, limit));
    _mm256_storeu_ps(b->values + g, _mm256_castsi256_ps(scale));
    _mm_storeu_si128((__m128i *)(void *)(b->scales + g), halves256(_mm256_srli_epi32(scale, 16)));
    return _mm256_testz_si256(special, special);
}

/* scale = up(max / top), factor = 1 / scale * one. */
INLINE256 bool int_scales256(struct encode_block *b, float top, float one)
{
    for (size_t g = 0; g < b->groups; g += 8) {
        __m256i max = _mm256_loadu_si256((const __m256i *)(const void *)(b->magnitudes + g));
        __m256 quotient = _mm256_div_ps(_mm256_castsi256_ps(max), _mm256_set1_ps(top));
        __m256i up = _mm256_add_epi32(_mm256_castps_si256(quotient), _mm256_set1_epi32(0xffff));
        if (!put_scales256(b, g, max, up))
            return false;
        __m256 value = _mm256_loadu_ps(b->values + g);
        __m256 factor =
            _mm256_mul_ps(_mm256_div_ps(_mm256_set1_ps(1.0f), value), _mm256_set1_ps(one));
        __m256 some = _mm256_cmp_ps(value, _mm256_setzero_ps(), _CMP_NEQ_UQ);
        _mm256_storeu_ps(b->factors + g, _mm256_and_ps(some, factor));
    }
    return true;
}

/* ------------------------------------------------------------------ encoding */

/* The random number of row r: a half of the words that its lanes drew. */
INLINE256 __m256i random256(const __m256i words[4], int r, bool nearest)
{
    if (nearest)
        return _mm256_set1_epi32(32768);
    return r % 2 ? _mm256_srli_epi32(words[r / 2], 16)
                 : _mm256_and_si256(words[r / 2], _mm256_set1_epi32(0xffff));
}

/* Half a tile: where its values begin, its rows' first unit, its place in the tile. */
struct half256 {
    size_t first, unit, lane;
};

/* From eight rows, the codes in bits 16 and up, to the codes of the half tile that begins at
 * `lane`. */
typedef void pack256_fn(uint8_t *codes, size_t lane, const __m256i rows[TILE_ROWS]);

INLINE256 void int_half256(const struct encode_block *b, const struct half256 *half,
                           const __m256i words[4], bool nearest, bool feedback,
                           __m256i rows[TILE_ROWS])
{
    for (int r = 0; r < TILE_ROWS; r++) {
        size_t i = half->first + (size_t)r * TILE_LANES, unit = half->unit + (size_t)r / 2;
        __m256 y = fed256(b->x, b->residual, i, feedback);
        __m256i v = _mm256_cvtps_epi32(_mm256_mul_ps(y, _mm256_set1_ps(b->unit_factors[unit])));
        rows[r] = _mm256_add_epi32(v, random256(words, r, nearest));
        if (feedback) {
            __m256 q = _mm256_cvtepi32_ps(_mm256_srai_epi32(rows[r], 16));
            __m256 decoded = _mm256_mul_ps(q, _mm256_set1_ps(b->unit_values[unit]));
            _mm256_storeu_ps(b->residual + i, _mm256_sub_ps(y, decoded));
        }
    }
}

INLINE256 void int_tiles256(const struct encode_block *b, bool nearest, bool feedback,
                            size_t tile_bytes, pack256_fn *pack)
{
    const struct philox_start start = *b->start;
    for (size_t t = 0; t < b->tiles; t++) {
        prefetch_tile256(b, t, feedback);
        __m256i words[2][4];
        if (!nearest)
            philox256(words, b->first_draw + (uint32_t)t * TILE_LANES, &start);
        for (size_t lane = 0; lane < TILE_LANES; lane += HALF_LANES) {
            __m256i rows[TILE_ROWS];
            struct half256 half = {
                .first = t * TILE_ELEMS + lane, .unit = t * TILE_UNITS, .lane = lane};
            int_half256(b, &half, words[lane / HALF_LANES], nearest, feedback, rows);
            pack(b->codes + t * tile_bytes, lane, rows);
        }
    }
}

INLINE256 void encode_int_tiles256(const struct encode_block *b, size_t tile_bytes,
                                   pack256_fn *pack)
{
    if (b->residual && b->nearest)
        int_tiles256(b, true, true, tile_bytes, pack);
    else if (b->residual)
        int_tiles256(b, false, true, tile_bytes, pack);
    else if (b->nearest)
        int_tiles256(b, true, false, tile_bytes, pack);
    else
        int_tiles256(b, false, false, tile_bytes, pack);
}

/* The codes of row low in the low halves, of row high in the high ones, at bit 0 and up. */
INLINE256 __m256i pair256(__m256i low, __m256i high)
{
    return _mm256_blend_epi16(_mm256_srli_epi32(low, 16), high, 0xaa);
}

/* Eight rows of codes of 1, 2 or 4 bits: rows 0-3 in the low 4 * bits bits of the low half, rows
 * 4-7 in those of the high one, anything above. */
INLINE256 __m256i merge_rows256(const __m256i v[TILE_ROWS], int bits)
{
    const __m256i mask = _mm256_set1_epi16((short)((1 << bits) - 1));
    __m256i merged = pair256(v[3], v[7]);
    for (int r = 2; r >= 0; r--)
        merged = _mm256_or_si256(_mm256_slli_epi16(merged, bits),
                                 _mm256_and_si256(pair256(v[r], v[r + 4]), mask));
    return merged;
}

/* ------------------------------------------------------------------ sums */

INLINE256 void store_half256(float *out, const __m256 rows[TILE_ROWS], enum store kind)
{
    for (int i = 0; i < TILE_ROWS; i++, out += HALF_LANES) {
        if (kind == STORE_CACHED) {
            _mm256_storeu_ps(out, rows[i]);
        } else if (kind == STORE_STREAM_32) {
            _mm256_stream_ps(out, rows[i]);
        } else {
            _mm_stream_ps(out, _mm256_castps256_ps128(rows[i]));
            _mm_stream_ps(out + 4, _mm256_extractf128_ps(rows[i], 1));
        }
    }
}

/* Decodes rows 4 * half to 4 * half + 3 of a tile, each as two vectors; scales are those of the
 * half's units, zero in a format without. */
typedef void decode256_fn(__m256 rows[TILE_ROWS], const uint8_t *codes, int half,
                          const uint16_t *scales);

/* Two's complement codes of `bits` bits, from bit `first` up one row above the other. */
INLINE256 void decode_ints256(__m256 rows[TILE_ROWS], const __m256i words[2], int first, int bits,
                              const uint16_t *scales)
{
    __m256i some[2];
    __m256 scale;
    for (int i = 0; i < TILE_ROWS; i++) {
        if (i == 0 || (i == HALF_ROWS && scales[1] != scales[0])) {
            uint16_t value = scales[i / HALF_ROWS];
            __m256i mask = _mm256_set1_epi32(scale_is_zero(value) ? 0 : -1);
            scale = _mm256_castsi256_ps(_mm256_set1_epi32((int)scale_bits(value)));
            some[0] = _mm256_and_si256(words[0], mask);
            some[1] = _mm256_and_si256(words[1], mask);
        }
        /* The code to the top, then down with its sign. */
        __m256i top = _mm256_slli_epi32(some[i % 2], 32 - bits - first - i / 2 * bits);
        rows[i] = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_srai_epi32(top, 32 - bits)), scale);
    }
}

struct tile256 {
    size_t index;  /* of the message */
    size_t offset; /* of its first element from the range's */
    size_t bytes;  /* of its codes */
    size_t groups[TILE_UNITS];
};

INLINE256 void part_half256(__m256 rows[TILE_ROWS], const struct sum_part *part,
                            const struct tile256 *tile, int half, bool scaled, decode256_fn *decode)
{
    if (part->exact) {
        const float *x = part->exact + tile->offset + half * HALF_TILE;
        for (int i = 0; i < TILE_ROWS; i++) {
            if (i % 2 == 0)
                _mm_prefetch((const char *)(x + BLOCK_ELEMS + i * HALF_LANES), _MM_HINT_T0);
            rows[i] = _mm256_loadu_ps(x + i * HALF_LANES);
        }
        return;
    }
    uint16_t scales[2] = {0};
    for (int u = 0; scaled && u < 2; u++)
        scales[u] = part->scales[tile->groups[2 * half + u]];
    decode(rows, part->codes + tile->index * tile->bytes, half, scales);
}

INLINE256 void sum_half256(const struct sum_args *a, const struct tile256 *tile, int half,
                           bool scaled, decode256_fn *decode, enum store kind)
{
    const __m256 weight = _mm256_set1_ps(a->weight);
    __m256 total[TILE_ROWS];
    part_half256(total, &a->parts[0], tile, half, scaled, decode);
    for (int p = 1; p < a->nparts; p++) {
        __m256 term[TILE_ROWS];
        part_half256(term, &a->parts[p], tile, half, scaled, decode);
        for (int i = 0; i < TILE_ROWS; i++)
            total[i] = _mm256_add_ps(total[i], term[i]);
    }
    for (int i = 0; i < TILE_ROWS; i++)
        total[i] = canonical256(_mm256_mul_ps(total[i], weight));
    store_half256(a->out + tile->offset + half * HALF_TILE, total, kind);
}

INLINE256 void sum256(const struct sum_args *a, size_t tile_bytes, bool scaled,
                      decode256_fn *decode)
{
    enum store kind = store_kind(a->out, a->stream);
    struct unit_cursor cursor = unit_cursor_at(a->begin, scaled ? a->group : UNIT_ELEMS);
    struct tile256 tile = {.index = a->begin / TILE_ELEMS, .bytes = tile_bytes};
    for (; tile.offset < a->elems; tile.offset += TILE_ELEMS, tile.index++) {
        next_tile(&cursor, tile.groups);
        sum_half256(a, &tile, 0, scaled, decode, kind);
        sum_half256(a, &tile, 1, scaled, decode, kind);
    }
    if (kind != STORE_CACHED)
        _mm_sfence();
}

#endif
