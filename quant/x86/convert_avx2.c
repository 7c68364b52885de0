/* The converters, AVX2 and F16C.  What is left after whole vectors goes through the C row.
 *
 * A Hadamard transform takes its short spans, 1 to 8, inside rows of sixteen lanes, then its long
 * ones between rows, eight lanes at a time. */
#include "quant/c_kernels.h"
#include "quant/x86/avx2.h"
#include "quant/x86/x86_kernels.h"

static size_t whole(size_t elems)
{
    return elems / HALF_LANES * HALF_LANES;
}

static const __m128i *halves_at(const void *in, size_t i)
{
    return (const __m128i *)(const void *)((const char *)in + 2 * i);
}

static void put_halves(void *out, size_t i, __m128i halves)
{
    _mm_storeu_si128((__m128i *)(void *)((char *)out + 2 * i), halves);
}

void load_bf16_avx2(float *out, const void *in, size_t elems)
{
    size_t end = whole(elems);
    for (size_t i = 0; i < end; i += HALF_LANES) {
        __m256i words = _mm256_cvtepu16_epi32(_mm_loadu_si128(halves_at(in, i)));
        __m256 x = _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
        _mm256_storeu_ps(out + i, canonical256(x));
    }
    load_bf16_c(out + end, (const char *)in + 2 * end, elems - end);
}

void load_fp16_avx2(float *out, const void *in, size_t elems)
{
    size_t end = whole(elems);
    for (size_t i = 0; i < end; i += HALF_LANES) {
        __m256 x = _mm256_cvtph_ps(_mm_loadu_si128(halves_at(in, i)));
        _mm256_storeu_ps(out + i, canonical256(x));
    }
    load_fp16_c(out + end, (const char *)in + 2 * end, elems - end);
}

void store_bf16_avx2(void *out, const float *in, size_t elems)
{
    size_t end = whole(elems);
    for (size_t i = 0; i < end; i += HALF_LANES)
        put_halves(out, i, halves256(bf16_nearest256(_mm256_loadu_ps(in + i))));
    store_bf16_c((char *)out + 2 * end, in + end, elems - end);
}

void store_fp16_avx2(void *out, const float *in, size_t elems)
{
    size_t end = whole(elems);
    for (size_t i = 0; i < end; i += HALF_LANES) {
        __m256 x = canonical256(_mm256_loadu_ps(in + i));
        put_halves(out, i, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
    }
    store_fp16_c((char *)out + 2 * end, in + end, elems - end);
}

void subtract_avx2(float *x, const float *y, size_t elems)
{
    size_t end = whole(elems);
    for (size_t i = 0; i < end; i += HALF_LANES)
        _mm256_storeu_ps(x + i, _mm256_sub_ps(_mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i)));
    subtract_c(x + end, y + end, elems - end);
}

void scale_avx2(float *x, float weight, size_t elems)
{
    size_t end = whole(elems);
    const __m256 factor = _mm256_set1_ps(weight);
    for (size_t i = 0; i < end; i += HALF_LANES)
        _mm256_storeu_ps(x + i, canonical256(_mm256_mul_ps(_mm256_loadu_ps(x + i), factor)));
    scale_c(x + end, weight, elems - end);
}

/* Spans 1, 2 and 4: lanes whose bit is clear get their value plus their partner's, the others their
 * partner's minus theirs. */
INLINE256 __m256 short_spans(__m256 x)
{
    __m256 partner = _mm256_permute_ps(x, 0xb1);
    x = _mm256_blend_ps(_mm256_add_ps(x, partner), _mm256_sub_ps(partner, x), 0xaa);
    partner = _mm256_permute_ps(x, 0x4e);
    x = _mm256_blend_ps(_mm256_add_ps(x, partner), _mm256_sub_ps(partner, x), 0xcc);
    partner = _mm256_permute2f128_ps(x, x, 0x01);
    return _mm256_blend_ps(_mm256_add_ps(x, partner), _mm256_sub_ps(partner, x), 0xf0);
}

INLINE256 void transform_row(float *x)
{
    __m256 a = short_spans(_mm256_loadu_ps(x)), b = short_spans(_mm256_loadu_ps(x + HALF_LANES));
    _mm256_storeu_ps(x, _mm256_add_ps(a, b));
    _mm256_storeu_ps(x + HALF_LANES, _mm256_sub_ps(a, b));
}

/* Spans of 16 and more, of eight lanes. */
INLINE256 void transform_column(float *x, int rows)
{
    __m256 v[TILE_ROWS];
    for (int r = 0; r < rows; r++)
        v[r] = _mm256_loadu_ps(x + r * TILE_LANES);
    for (int span = 1; span < rows; span *= 2)
        for (int r = 0; r < rows; r++)
            if (!(r & span)) {
                __m256 a = v[r], b = v[r + span];
                v[r] = _mm256_add_ps(a, b);
                v[r + span] = _mm256_sub_ps(a, b);
            }
    for (int r = 0; r < rows; r++)
        _mm256_storeu_ps(x + r * TILE_LANES, v[r]);
}

INLINE256 void hadamard_blocks(float *x, size_t elems, int rows)
{
    for (float *block = x; block < x + elems; block += rows * TILE_LANES) {
        for (int r = 0; r < rows; r++)
            transform_row(block + r * TILE_LANES);
        transform_column(block, rows);
        transform_column(block + HALF_LANES, rows);
    }
}

void hadamard_avx2(float *x, size_t elems, size_t order)
{
    if (order == 128)
        hadamard_blocks(x, elems, 8);
    else if (order == 64)
        hadamard_blocks(x, elems, 4);
    else
        hadamard_blocks(x, elems, 2);
}
