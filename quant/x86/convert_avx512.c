/* The converters, AVX-512.  What is left after whole vectors goes through the C row.
 *
 * A Hadamard transform takes its short spans, 1 to 8, inside rows of sixteen lanes, and its long
 * ones between rows. */
#include "quant/c_kernels.h"
#include "quant/x86/avx512.h"
#include "quant/x86/x86_kernels.h"

static size_t whole(size_t elems)
{
    return elems / TILE_LANES * TILE_LANES;
}

static const __m256i *halves_at(const void *in, size_t i)
{
    return (const __m256i *)(const void *)((const char *)in + 2 * i);
}

static void put_halves(void *out, size_t i, __m256i halves)
{
    _mm256_storeu_si256((__m256i *)(void *)((char *)out + 2 * i), halves);
}

void load_bf16_avx512(float *out, const void *in, size_t elems)
{
    size_t end = whole(elems);
    for (size_t i = 0; i < end; i += TILE_LANES) {
        __m512i words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(halves_at(in, i)));
        __m512 x = _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
        _mm512_storeu_ps(out + i, canonical512(x));
    }
    load_bf16_c(out + end, (const char *)in + 2 * end, elems - end);
}

void load_fp16_avx512(float *out, const void *in, size_t elems)
{
    size_t end = whole(elems);
    for (size_t i = 0; i < end; i += TILE_LANES) {
        __m512 x = _mm512_cvtph_ps(_mm256_loadu_si256(halves_at(in, i)));
        _mm512_storeu_ps(out + i, canonical512(x));
    }
    load_fp16_c(out + end, (const char *)in + 2 * end, elems - end);
}

void store_bf16_avx512(void *out, const float *in, size_t elems)
{
    size_t end = whole(elems);
    for (size_t i = 0; i < end; i += TILE_LANES)
        put_halves(out, i, _mm512_cvtepi32_epi16(bf16_nearest512(_mm512_loadu_ps(in + i))));
    store_bf16_c((char *)out + 2 * end, in + end, elems - end);
}

void store_fp16_avx512(void *out, const float *in, size_t elems)
{
    size_t end = whole(elems);
    for (size_t i = 0; i < end; i += TILE_LANES) {
        __m512 x = canonical512(_mm512_loadu_ps(in + i));
        put_halves(out, i, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
    store_fp16_c((char *)out + 2 * end, in + end, elems - end);
}

void subtract_avx512(float *x, const float *y, size_t elems)
{
    size_t end = whole(elems);
    for (size_t i = 0; i < end; i += TILE_LANES)
        _mm512_storeu_ps(x + i, _mm512_sub_ps(_mm512_loadu_ps(x + i), _mm512_loadu_ps(y + i)));
    subtract_c(x + end, y + end, elems - end);
}

void scale_avx512(float *x, float weight, size_t elems)
{
    size_t end = whole(elems);
    const __m512 factor = _mm512_set1_ps(weight);
    for (size_t i = 0; i < end; i += TILE_LANES)
        _mm512_storeu_ps(x + i, canonical512(_mm512_mul_ps(_mm512_loadu_ps(x + i), factor)));
    scale_c(x + end, weight, elems - end);
}

/* Lanes whose bit `span` is clear: their value plus their partner's; the others: their partner's
 * minus theirs. */
INLINE512 __m512 butterfly(__m512 x, __m512 partner, __mmask16 upper)
{
    return _mm512_mask_sub_ps(_mm512_add_ps(x, partner), upper, partner, x);
}

INLINE512 __m512 short_spans(__m512 x)
{
    x = butterfly(x, _mm512_shuffle_ps(x, x, 0xb1), 0xaaaa);
    x = butterfly(x, _mm512_shuffle_ps(x, x, 0x4e), 0xcccc);
    x = butterfly(x, _mm512_shuffle_f32x4(x, x, 0xb1), 0xf0f0);
    return butterfly(x, _mm512_shuffle_f32x4(x, x, 0x4e), 0xff00);
}

INLINE512 void hadamard_blocks(float *x, size_t elems, int rows)
{
    for (float *block = x; block < x + elems; block += rows * TILE_LANES) {
        __m512 v[TILE_ROWS];
        for (int r = 0; r < rows; r++)
            v[r] = short_spans(_mm512_loadu_ps(block + r * TILE_LANES));
        for (int span = 1; span < rows; span *= 2)
            for (int r = 0; r < rows; r++)
                if (!(r & span)) {
                    __m512 a = v[r], b = v[r + span];
                    v[r] = _mm512_add_ps(a, b);
                    v[r + span] = _mm512_sub_ps(a, b);
                }
        for (int r = 0; r < rows; r++)
            _mm512_storeu_ps(block + r * TILE_LANES, v[r]);
    }
}

void hadamard_avx512(float *x, size_t elems, size_t order)
{
    if (order == 128)
        hadamard_blocks(x, elems, 8);
    else if (order == 64)
        hadamard_blocks(x, elems, 4);
    else
        hadamard_blocks(x, elems, 2);
}
