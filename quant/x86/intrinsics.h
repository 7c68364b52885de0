/* The AVX-512 intrinsics: the compiler's own, or with QCCL_EMULATED_AVX512 those of SIMDe, which
 * compile to AVX2.
 *
 * Emulated rows compute the same bits and exist for machines without AVX-512, where they are
 * tested.  What SIMDe 0.7.4 lacks is added here from halves of 256 bits; the rows themselves know
 * nothing of it. */
#ifndef QCCL_QUANT_X86_INTRINSICS_H
#define QCCL_QUANT_X86_INTRINSICS_H

#ifndef QCCL_EMULATED_AVX512

#include <immintrin.h>

#else

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>

static inline __m256i emulated_half(__m512i x, int high)
{
    return high ? _mm512_extracti64x4_epi64(x, 1) : _mm512_castsi512_si256(x);
}

static inline __m256 emulated_half_ps(__m512 x, int high)
{
    return _mm256_castsi256_ps(emulated_half(_mm512_castps_si512(x), high));
}

static inline __m512i emulated_join(__m256i low, __m256i high)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

static inline __m512 emulated_join_ps(__m256 low, __m256 high)
{
    return _mm512_castsi512_ps(emulated_join(_mm256_castps_si256(low), _mm256_castps_si256(high)));
}

static inline __m512i emulated_cvtps_epi32(__m512 x)
{
    return emulated_join(_mm256_cvtps_epi32(emulated_half_ps(x, 0)),
                         _mm256_cvtps_epi32(emulated_half_ps(x, 1)));
}

static inline __m512 emulated_cvtepi32_ps(__m512i x)
{
    return emulated_join_ps(_mm256_cvtepi32_ps(emulated_half(x, 0)),
                            _mm256_cvtepi32_ps(emulated_half(x, 1)));
}

static inline __m512i emulated_srai_epi32(__m512i x, int count)
{
    return emulated_join(_mm256_srai_epi32(emulated_half(x, 0), count),
                         _mm256_srai_epi32(emulated_half(x, 1), count));
}

/* The low halves of the sixteen words. */
static inline __m256i emulated_cvtepi32_epi16(__m512i x)
{
    __m256i mask = _mm256_set1_epi32(0xffff);
    __m256i packed = _mm256_packus_epi32(_mm256_and_si256(emulated_half(x, 0), mask),
                                         _mm256_and_si256(emulated_half(x, 1), mask));
    return _mm256_permute4x64_epi64(packed, 0xd8);
}

static inline __m128i emulated_cvtepi32_epi8(__m512i x)
{
    __m256i words = _mm256_and_si256(emulated_cvtepi32_epi16(x), _mm256_set1_epi16(0xff));
    return _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

static inline __m512i emulated_cvtepu16_epi32(__m256i x)
{
    return emulated_join(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(x)),
                         _mm256_cvtepu16_epi32(_mm256_extracti128_si256(x, 1)));
}

static inline __m512i emulated_cvtepu8_epi32(__m128i x)
{
    return emulated_join(_mm256_cvtepu8_epi32(x), _mm256_cvtepu8_epi32(_mm_srli_si128(x, 8)));
}

static inline __m512 emulated_cvtph_ps(__m256i x)
{
    return emulated_join_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(x)),
                            _mm256_cvtph_ps(_mm256_extracti128_si256(x, 1)));
}

static inline __m256i emulated_cvtps_ph(__m512 x)
{
    __m128i low = _mm256_cvtps_ph(emulated_half_ps(x, 0), _MM_FROUND_TO_NEAREST_INT);
    __m128i high = _mm256_cvtps_ph(emulated_half_ps(x, 1), _MM_FROUND_TO_NEAREST_INT);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

/* SIMDe has it, without the plain name. */
#undef _mm512_shuffle_f32x4
#define _mm512_shuffle_f32x4(a, b, order) simde_mm512_shuffle_f32x4(a, b, order)

#undef _mm512_cvtps_epi32
#undef _mm512_cvtepi32_ps
#undef _mm512_srai_epi32
#undef _mm512_cvtepi32_epi16
#undef _mm512_cvtepi32_epi8
#undef _mm512_cvtepu16_epi32
#undef _mm512_cvtepu8_epi32
#undef _mm512_cvtph_ps
#undef _mm512_cvtps_ph
#define _mm512_cvtps_epi32(x) emulated_cvtps_epi32(x)
#define _mm512_cvtepi32_ps(x) emulated_cvtepi32_ps(x)
#define _mm512_srai_epi32(x, count) emulated_srai_epi32(x, count)
#define _mm512_cvtepi32_epi16(x) emulated_cvtepi32_epi16(x)
#define _mm512_cvtepi32_epi8(x) emulated_cvtepi32_epi8(x)
#define _mm512_cvtepu16_epi32(x) emulated_cvtepu16_epi32(x)
#define _mm512_cvtepu8_epi32(x) emulated_cvtepu8_epi32(x)
#define _mm512_cvtph_ps(x) emulated_cvtph_ps(x)
#define _mm512_cvtps_ph(x, rounding) emulated_cvtps_ph(x)

#endif
#endif
