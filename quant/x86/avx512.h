/* AVX-512 parts of the kernel rows: one vector is one row of a tile, sixteen lanes; eight of them,
 * a whole tile, stay in registers.
 *
 * Functions that take a function or a flag are inlined into each format's unit, where those are
 * constants. */
#ifndef QCCL_QUANT_X86_AVX512_H
#define QCCL_QUANT_X86_AVX512_H

#include "quant/x86/blocks.h"
#include "quant/x86/intrinsics.h"

#define INLINE512 static inline __attribute__((always_inline))

/* ------------------------------------------------------------------ bits */

/* Bits of mask from a, the others from b. */
INLINE512 __m512i select512(uint32_t mask, __m512i a, __m512i b)
{
    return _mm512_ternarylogic_epi32(_mm512_set1_epi32((int)mask), a, b, 0xca);
}

INLINE512 __m512i xor3_512(__m512i a, __m512i b, uint32_t c)
{
    return _mm512_ternarylogic_epi32(a, b, _mm512_set1_epi32((int)c), 0x96);
}

INLINE512 __m512i xor_512(__m512i a, uint32_t b)
{
    return _mm512_xor_si512(a, _mm512_set1_epi32((int)b));
}

INLINE512 __m512i magnitude512(__m512 x)
{
    return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
}

INLINE512 __m512 canonical512(__m512 x)
{
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_mask_mov_ps(x, nan, _mm512_castsi512_ps(_mm512_set1_epi32(QCCL_NAN_BITS)));
}

/* bfloat16 nearest to each value, in the low halves. */
INLINE512 __m512i bf16_nearest512(__m512 x)
{
    __m512i u = _mm512_castps_si512(x);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    u = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_mask_mov_epi32(_mm512_srli_epi32(u, 16), nan, _mm512_set1_epi32(0x7fc0));
}

/* ------------------------------------------------------------------ random numbers */

/* Philox in 64-bit lanes, whose products hold both halves in place.  Counters stand in the low
 * halves; so do the words that come out, with anything above them. */
INLINE512 void philox_lanes512(__m512i words[4], __m512i counter, const struct philox_start *s)
{
    const __m512i m0 = _mm512_set1_epi64(PHILOX_M0), m1 = _mm512_set1_epi64(PHILOX_M1);
    __m512i p0, p1, q0, q1, word0, word2;
    p0 = _mm512_mul_epu32(counter, m0);
    word2 = xor_512(_mm512_srli_epi64(p0, 32), s->word2_round0);
    p1 = _mm512_mul_epu32(word2, m1);
    word0 = xor_512(_mm512_srli_epi64(p1, 32), s->word0_round1);
    word2 = xor_512(p0, s->word2_round1);
    q0 = _mm512_mul_epu32(word0, m0);
    q1 = _mm512_mul_epu32(word2, m1);
    word0 = xor3_512(_mm512_srli_epi64(q1, 32), p1, s->key0[2]);
    word2 = xor_512(_mm512_srli_epi64(q0, 32), s->word2_round2);
    for (int round = 3; round < PHILOX_ROUNDS; round++) {
        p0 = q0;
        p1 = q1;
        q0 = _mm512_mul_epu32(word0, m0);
        q1 = _mm512_mul_epu32(word2, m1);
        word0 = xor3_512(_mm512_srli_epi64(q1, 32), p1, s->key0[round]);
        word2 = xor3_512(_mm512_srli_epi64(q0, 32), p0, s->key1[round]);
    }
    words[0] = word0;
    words[1] = q1;
    words[2] = word2;
    words[3] = q0;
}

/* The words of blocks first to first + 15: even ones in one set of lanes, odd ones in another,
 * merged at the end. */
INLINE512 void philox512(__m512i words[4], uint32_t first, const struct philox_start *start)
{
    const __m512i lanes = _mm512_setr_epi32(0, 0, 2, 0, 4, 0, 6, 0, 8, 0, 10, 0, 12, 0, 14, 0);
    const __m512i merge =
        _mm512_setr_epi32(0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30);
    __m512i even[4], odd[4];
    philox_lanes512(even, _mm512_add_epi32(_mm512_set1_epi32((int)first), lanes), start);
    philox_lanes512(odd, _mm512_add_epi32(_mm512_set1_epi32((int)(first + 1)), lanes), start);
    for (int w = 0; w < 4; w++)
        words[w] = _mm512_permutex2var_epi32(even[w], merge, odd[w]);
}

/* ------------------------------------------------------------------ groups */

INLINE512 uint32_t reduce_max512(__m512i x)
{
    __m256i y = _mm256_max_epu32(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
    __m128i z = _mm_max_epu32(_mm256_castsi256_si128(y), _mm256_extracti128_si256(y, 1));
    z = _mm_max_epu32(z, _mm_shuffle_epi32(z, 0x4e));
    z = _mm_max_epu32(z, _mm_shuffle_epi32(z, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(z);
}

/* Lanes j and j + 8, then j + 4, j + 2, j + 1. */
INLINE512 float reduce_add512(__m512 x)
{
    __m256i high = _mm512_extracti64x4_epi64(_mm512_castps_si512(x), 1);
    __m256 y = _mm256_add_ps(_mm512_castps512_ps256(x), _mm256_castsi256_ps(high));
    __m128 z = _mm_add_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
    z = _mm_add_ps(z, _mm_movehl_ps(z, z));
    z = _mm_add_ss(z, _mm_shuffle_ps(z, z, 1));
    return _mm_cvtss_f32(z);
}

INLINE512 __m512 fed512(const float *x, const float *residual, size_t i, bool feedback)
{
    __m512 value = _mm512_loadu_ps(x + i);
    return feedback ? _mm512_add_ps(value, _mm512_loadu_ps(residual + i)) : value;
}

/* Sources of the next block on their way while this one is worked on: of every four lines one while
 * it is scanned and three while it is encoded, so that memory is never idle. */
INLINE512 void prefetch512(const struct encode_block *b, size_t i, bool feedback)
{
    _mm_prefetch((const char *)(b->x + b->elems + i), _MM_HINT_T0);
    if (feedback)
        _mm_prefetch((const char *)(b->residual + b->elems + i), _MM_HINT_T0);
}

INLINE512 void prefetch_tile512(const struct encode_block *b, size_t t, bool feedback)
{
    for (size_t line = 0; line < TILE_ELEMS; line += TILE_LANES)
        if (line % SCAN_PREFETCH)
            prefetch512(b, t * TILE_ELEMS + line, feedback);
}

INLINE512 void scan512(struct encode_block *b, bool feedback, bool sums)
{
    for (size_t g = 0; g < b->groups; g++) {
        __m512i max0 = _mm512_setzero_si512(), max1 = max0;
        __m512 sum = _mm512_setzero_ps();
        for (size_t i = g * b->group; i < (g + 1) * b->group; i += UNIT_ELEMS) {
            if (i % SCAN_PREFETCH == 0)
                prefetch512(b, i, feedback);
            __m512i x0 = magnitude512(fed512(b->x, b->residual, i, feedback));
            __m512i x1 = magnitude512(fed512(b->x, b->residual, i + TILE_LANES, feedback));
            max0 = _mm512_max_epu32(max0, x0);
            max1 = _mm512_max_epu32(max1, x1);
            if (sums)
                sum = _mm512_add_ps(_mm512_add_ps(sum, _mm512_castsi512_ps(x0)),
                                    _mm512_castsi512_ps(x1));
        }
        b->magnitudes[g] = reduce_max512(_mm512_max_epu32(max0, max1));
        if (sums)
            b->sums[g] = reduce_add512(sum);
    }
}

INLINE512 void scan_groups512(struct encode_block *b, bool sums)
{
    if (b->residual)
        scan512(b, true, sums);
    else
        scan512(b, false, sums);
}

/* Writes sixteen scales, given as the bits of fp32 values; false when a group is for the C row. */
INLINE512 bool put_scales512(struct encode_block *b, size_t g, __m512i max, __m512i scale)
{
    const __m512i infinity = _mm512_set1_epi32(INFINITY_BITS);
    const __m512i limit = b->residual ? _mm512_set1_epi32(OVERFLOW_BITS) : infinity;
    scale = _mm512_and_si512(scale, _mm512_set1_epi32((int)0xffff0000u));
    scale =
        _mm512_maskz_mov_epi32(_mm512_cmpge_epu32_mask(max, _mm512_set1_epi32(TINY_BITS)), scale);
    __mmask16 special =
        _mm512_cmpge_epu32_mask(max, infinity) | _mm512_cmpge_epu32_mask(scale, limit);
    _mm512_storeu_ps(b->values + g, _mm512_castsi512_ps(scale));
    _mm256_storeu_si256((__m256i *)(void *)(b->scales + g),
                        _mm512_cvtepi32_epi16(_mm512_srli_epi32(scale, 16)));
    return !special;
}

/* scale = up(max / top), factor = 1 / scale * one. */
INLINE512 bool int_scales512(struct encode_block *b, float top, float one)
{
    for (size_t g = 0; g < b->groups; g += TILE_LANES) {
        __m512i max = _mm512_loadu_si512(b->magnitudes + g);
        __m512 quotient = _mm512_div_ps(_mm512_castsi512_ps(max), _mm512_set1_ps(top));
        __m512i up = _mm512_add_epi32(_mm512_castps_si512(quotient), _mm512_set1_epi32(0xffff));
        if (!put_scales512(b, g, max, up))
            return false;
        __m512 value = _mm512_loadu_ps(b->values + g);
        __m512 factor =
            _mm512_mul_ps(_mm512_div_ps(_mm512_set1_ps(1.0f), value), _mm512_set1_ps(one));
        __mmask16 some = _mm512_cmp_ps_mask(value, _mm512_setzero_ps(), _CMP_NEQ_UQ);
        _mm512_storeu_ps(b->factors + g, _mm512_maskz_mov_ps(some, factor));
    }
    return true;
}

/* ------------------------------------------------------------------ encoding integers */

/* The random number of row r: a half of the words that its lanes drew. */
INLINE512 __m512i random512(const __m512i words[4], int r, bool nearest)
{
    if (nearest)
        return _mm512_set1_epi32(32768);
    return r % 2 ? _mm512_srli_epi32(words[r / 2], 16)
                 : _mm512_and_si512(words[r / 2], _mm512_set1_epi32(0xffff));
}

/* From eight rows, the codes in bits 16 and up, to the codes of a tile. */
typedef void pack512_fn(uint8_t *codes, const __m512i rows[TILE_ROWS]);

INLINE512 void int_tile512(const struct encode_block *b, size_t t, bool nearest, bool feedback,
                           const struct philox_start *start, __m512i rows[TILE_ROWS])
{
    __m512i words[4];
    if (!nearest)
        philox512(words, b->first_draw + (uint32_t)t * TILE_LANES, start);
    for (int r = 0; r < TILE_ROWS; r++) {
        size_t i = t * TILE_ELEMS + (size_t)r * TILE_LANES, unit = t * TILE_UNITS + (size_t)r / 2;
        __m512 y = fed512(b->x, b->residual, i, feedback);
        __m512i v = _mm512_cvtps_epi32(_mm512_mul_ps(y, _mm512_set1_ps(b->unit_factors[unit])));
        rows[r] = _mm512_add_epi32(v, random512(words, r, nearest));
        if (feedback) {
            __m512 q = _mm512_cvtepi32_ps(_mm512_srai_epi32(rows[r], 16));
            __m512 decoded = _mm512_mul_ps(q, _mm512_set1_ps(b->unit_values[unit]));
            _mm512_storeu_ps(b->residual + i, _mm512_sub_ps(y, decoded));
        }
    }
}

INLINE512 void int_tiles512(const struct encode_block *b, bool nearest, bool feedback,
                            size_t tile_bytes, pack512_fn *pack)
{
    const struct philox_start start = *b->start;
    for (size_t t = 0; t < b->tiles; t++) {
        __m512i rows[TILE_ROWS];
        prefetch_tile512(b, t, feedback);
        int_tile512(b, t, nearest, feedback, &start, rows);
        pack(b->codes + t * tile_bytes, rows);
    }
}

INLINE512 void encode_int_tiles512(const struct encode_block *b, size_t tile_bytes,
                                   pack512_fn *pack)
{
    if (b->residual && b->nearest)
        int_tiles512(b, true, true, tile_bytes, pack);
    else if (b->residual)
        int_tiles512(b, false, true, tile_bytes, pack);
    else if (b->nearest)
        int_tiles512(b, true, false, tile_bytes, pack);
    else
        int_tiles512(b, false, false, tile_bytes, pack);
}

/* Codes of `bits` bits at bit 16 and up: those of low, and above them those of high. */
INLINE512 __m512i merge512(__m512i low, __m512i high, unsigned bits)
{
    return select512((1u << (16 + bits)) - 1, low, _mm512_slli_epi32(high, bits));
}

/* Eight rows of codes of 1, 2 or 4 bits: at bit 16 and up when bits is 1 or 2; as whole words when
 * it is 4. */
INLINE512 __m512i merge_rows512(const __m512i v[TILE_ROWS], unsigned bits)
{
    __m512i low = merge512(merge512(v[0], v[1], bits), merge512(v[2], v[3], bits), 2 * bits);
    __m512i high = merge512(merge512(v[4], v[5], bits), merge512(v[6], v[7], bits), 2 * bits);
    if (bits == 4)
        return select512(0xffff, _mm512_srli_epi32(low, 16), high);
    return merge512(low, high, 4 * bits);
}

/* ------------------------------------------------------------------ sums */

INLINE512 void store_tile512(float *out, const __m512 rows[TILE_ROWS], enum store kind)
{
    for (int r = 0; r < TILE_ROWS; r++, out += TILE_LANES) {
        if (kind == STORE_CACHED) {
            _mm512_storeu_ps(out, rows[r]);
            continue;
        }
        __m256 low = _mm512_castps512_ps256(rows[r]);
        __m256 high =
            _mm256_castsi256_ps(_mm512_extracti64x4_epi64(_mm512_castps_si512(rows[r]), 1));
        if (kind == STORE_STREAM_32) {
            _mm256_stream_ps(out, low);
            _mm256_stream_ps(out + 8, high);
        } else {
            _mm_stream_ps(out, _mm256_castps256_ps128(low));
            _mm_stream_ps(out + 4, _mm256_extractf128_ps(low, 1));
            _mm_stream_ps(out + 8, _mm256_castps256_ps128(high));
            _mm_stream_ps(out + 12, _mm256_extractf128_ps(high, 1));
        }
    }
}

/* Decodes a tile; scales are those of its units, zero in a format without. */
typedef void decode512_fn(__m512 rows[TILE_ROWS], const uint8_t *codes, const uint16_t *scales);

struct tile512 {
    size_t index;  /* of the message */
    size_t offset; /* of its first element from the range's */
    size_t bytes;  /* of its codes */
    size_t groups[TILE_UNITS];
};

INLINE512 void part_tile512(__m512 rows[TILE_ROWS], const struct sum_part *part,
                            const struct tile512 *tile, bool scaled, decode512_fn *decode)
{
    if (part->exact) {
        const float *x = part->exact + tile->offset;
        for (int r = 0; r < TILE_ROWS; r++) {
            _mm_prefetch((const char *)(x + BLOCK_ELEMS + r * TILE_LANES), _MM_HINT_T0);
            rows[r] = _mm512_loadu_ps(x + r * TILE_LANES);
        }
        return;
    }
    uint16_t scales[TILE_UNITS] = {0};
    for (int u = 0; scaled && u < TILE_UNITS; u++)
        scales[u] = part->scales[tile->groups[u]];
    decode(rows, part->codes + tile->index * tile->bytes, scales);
}

INLINE512 void sum512(const struct sum_args *a, size_t tile_bytes, bool scaled,
                      decode512_fn *decode)
{
    enum store kind = store_kind(a->out, a->stream);
    struct unit_cursor cursor = unit_cursor_at(a->begin, scaled ? a->group : UNIT_ELEMS);
    struct tile512 tile = {.index = a->begin / TILE_ELEMS, .bytes = tile_bytes};
    const __m512 weight = _mm512_set1_ps(a->weight);
    for (; tile.offset < a->elems; tile.offset += TILE_ELEMS, tile.index++) {
        __m512 total[TILE_ROWS], term[TILE_ROWS];
        next_tile(&cursor, tile.groups);
        part_tile512(total, &a->parts[0], &tile, scaled, decode);
        for (int p = 1; p < a->nparts; p++) {
            part_tile512(term, &a->parts[p], &tile, scaled, decode);
            for (int r = 0; r < TILE_ROWS; r++)
                total[r] = _mm512_add_ps(total[r], term[r]);
        }
        for (int r = 0; r < TILE_ROWS; r++)
            total[r] = canonical512(_mm512_mul_ps(total[r], weight));
        store_tile512(a->out + tile.offset, total, kind);
    }
    if (kind != STORE_CACHED)
        _mm_sfence();
}

/* levels[code] * scale: NaN or zero throughout where the scale says so. */
INLINE512 __m512 level_table512(__m512 levels, uint16_t scale)
{
    __m512 s = _mm512_castsi512_ps(_mm512_set1_epi32((int)scale_bits(scale)));
    return _mm512_maskz_mul_ps(scale_is_zero(scale) ? 0 : 0xffff, levels, s);
}

/* Codes of 2 or 4 bits through a table of sixteen levels: the permutation looks at four bits of an
 * index. */
INLINE512 void decode_levels512(__m512 rows[TILE_ROWS], __m512i words, unsigned bits, __m512 levels,
                                const uint16_t *scales)
{
    __m512 table = level_table512(levels, scales[0]);
    for (unsigned r = 0; r < TILE_ROWS; r++) {
        if (r && r % 2 == 0 && scales[r / 2] != scales[r / 2 - 1])
            table = level_table512(levels, scales[r / 2]);
        rows[r] = _mm512_permutexvar_ps(_mm512_srli_epi32(words, r * bits), table);
    }
}

#endif
