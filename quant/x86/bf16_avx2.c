/* bf16, AVX2: the top halves of values, rounded to nearest even or stochastically; no groups, no
 * scales. */
#include "quant/x86/avx2.h"
#include "quant/x86/x86_kernels.h"

enum { TILE_BYTES = 2 * TILE_ELEMS };

/* The dropped bits plus a random number carry into what stays; no finite value becomes infinite. */
INLINE256 __m256i stochastic(__m256 y, __m256i random)
{
    __m256i u = _mm256_castps_si256(y), magnitude = magnitude256(y);
    __m256i up = _mm256_srli_epi32(_mm256_add_epi32(magnitude, random), 16);
    up = _mm256_min_epu32(up, _mm256_set1_epi32(0x7f7f));
    up = _mm256_or_si256(up, _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(0x8000)));
    __m256i special = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(INFINITY_BITS - 1));
    return _mm256_blendv_epi8(up, bf16_nearest256(y), special);
}

INLINE256 void keep_lost(float *residual, __m256 y, __m256i halves)
{
    const __m256i exponent = _mm256_set1_epi32(0x7f80);
    __m256i finite = _mm256_cmpgt_epi32(exponent, _mm256_and_si256(halves, exponent));
    __m256 decoded = _mm256_castsi256_ps(_mm256_slli_epi32(halves, 16));
    __m256 lost = _mm256_sub_ps(y, decoded);
    _mm256_storeu_ps(residual, _mm256_and_ps(lost, _mm256_castsi256_ps(finite)));
}

/* One half of the rows of a tile, whose values begin at i. */
INLINE256 void encode_half(const struct encode_args *a, size_t i, const __m256i words[4],
                           bool nearest, bool feedback)
{
    for (int r = 0; r < TILE_ROWS; r++, i += TILE_LANES) {
        __m256 y = fed256(a->x, a->residual, i, feedback);
        __m256i h = nearest ? bf16_nearest256(y) : stochastic(y, random256(words, r, false));
        _mm_storeu_si128((__m128i *)(void *)(a->codes + 2 * (a->begin + i)), halves256(h));
        if (feedback)
            keep_lost(a->residual + i, y, h);
    }
}

INLINE256 void encode(const struct encode_args *a, bool nearest, bool feedback)
{
    const struct philox_start start = qccl_philox_start(a->draw);
    uint32_t draw = (a->draw->first_tile + (uint32_t)(a->begin / TILE_ELEMS)) * TILE_LANES;
    for (size_t i = 0; i < a->elems; i += TILE_ELEMS) {
        for (size_t line = 0; line < TILE_ELEMS; line += TILE_LANES)
            _mm_prefetch((const char *)(a->x + i + line + BLOCK_ELEMS), _MM_HINT_T0);
        __m256i words[2][4];
        if (!nearest)
            philox256(words, draw, &start);
        encode_half(a, i, words[0], nearest, feedback);
        encode_half(a, i + HALF_LANES, words[1], nearest, feedback);
        draw += TILE_LANES;
    }
}

void encode_bf16_avx2(const struct encode_args *args)
{
    if (args->residual && args->draw->nearest)
        encode(args, true, true);
    else if (args->residual)
        encode(args, false, true);
    else if (args->draw->nearest)
        encode(args, true, false);
    else
        encode(args, false, false);
}

INLINE256 void decode(__m256 rows[TILE_ROWS], const uint8_t *codes, int half,
                      const uint16_t *scales)
{
    (void)scales;
    const __m128i *halves = (const __m128i *)(const void *)codes + half * TILE_ROWS;
    for (int i = 0; i < TILE_ROWS; i++) {
        __m256i words = _mm256_cvtepu16_epi32(_mm_loadu_si128(halves + i));
        rows[i] = _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
    }
}

void sum_bf16_avx2(const struct sum_args *args)
{
    sum256(args, TILE_BYTES, false, decode);
}

void decode_bf16_avx2(const struct decode_args *args)
{
    qccl_decode_by_sum(args, sum_bf16_avx2);
}

void decode_add_bf16_avx2(const struct decode_args *args)
{
    qccl_decode_add_by_sum(args, sum_bf16_avx2);
}
