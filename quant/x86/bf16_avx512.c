/* bf16, AVX-512: the top halves of values, rounded to nearest even or stochastically; no groups, no
 * scales. */
#include "quant/x86/avx512.h"
#include "quant/x86/x86_kernels.h"

enum { TILE_BYTES = 2 * TILE_ELEMS };

/* The dropped bits plus a random number carry into what stays; no finite value becomes infinite. */
INLINE512 __m512i stochastic(__m512 y, __m512i random)
{
    __m512i u = _mm512_castps_si512(y), magnitude = magnitude512(y);
    __m512i up = _mm512_srli_epi32(_mm512_add_epi32(magnitude, random), 16);
    up = _mm512_min_epu32(up, _mm512_set1_epi32(0x7f7f));
    up = select512(0x8000, _mm512_srli_epi32(u, 16), up);
    __mmask16 special = _mm512_cmpge_epu32_mask(magnitude, _mm512_set1_epi32(INFINITY_BITS));
    return _mm512_mask_mov_epi32(up, special, bf16_nearest512(y));
}

INLINE512 void keep_lost(float *residual, __m512 y, __m512i halves)
{
    const __m512i exponent = _mm512_set1_epi32(0x7f80);
    __mmask16 finite = _mm512_cmpgt_epi32_mask(exponent, _mm512_and_si512(halves, exponent));
    __m512 decoded = _mm512_castsi512_ps(_mm512_slli_epi32(halves, 16));
    _mm512_storeu_ps(residual, _mm512_maskz_mov_ps(finite, _mm512_sub_ps(y, decoded)));
}

INLINE512 void encode(const struct encode_args *a, bool nearest, bool feedback)
{
    const struct philox_start start = qccl_philox_start(a->draw);
    uint32_t draw = (a->draw->first_tile + (uint32_t)(a->begin / TILE_ELEMS)) * TILE_LANES;
    uint8_t *codes = a->codes + 2 * a->begin;
    for (size_t i = 0; i < a->elems; draw += TILE_LANES) {
        __m512i words[4];
        if (!nearest)
            philox512(words, draw, &start);
        for (int r = 0; r < TILE_ROWS; r++, i += TILE_LANES) {
            _mm_prefetch((const char *)(a->x + i + BLOCK_ELEMS), _MM_HINT_T0);
            __m512 y = fed512(a->x, a->residual, i, feedback);
            __m512i h = nearest ? bf16_nearest512(y) : stochastic(y, random512(words, r, false));
            _mm256_storeu_si256((__m256i *)(void *)(codes + 2 * i), _mm512_cvtepi32_epi16(h));
            if (feedback)
                keep_lost(a->residual + i, y, h);
        }
    }
}

void encode_bf16_avx512(const struct encode_args *args)
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

INLINE512 void decode(__m512 rows[TILE_ROWS], const uint8_t *codes, const uint16_t *scales)
{
    (void)scales;
    const __m256i *halves = (const __m256i *)(const void *)codes;
    for (int r = 0; r < TILE_ROWS; r++) {
        __m512i words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(halves + r));
        rows[r] = _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
    }
}

void sum_bf16_avx512(const struct sum_args *args)
{
    sum512(args, TILE_BYTES, false, decode);
}

void decode_bf16_avx512(const struct decode_args *args)
{
    qccl_decode_by_sum(args, sum_bf16_avx512);
}

void decode_add_bf16_avx512(const struct decode_args *args)
{
    qccl_decode_add_by_sum(args, sum_bf16_avx512);
}
