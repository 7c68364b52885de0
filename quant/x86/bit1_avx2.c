/* sr1 and sign1, AVX2: each lane packs its eight bits into a byte; the bits of zero groups are
 * cleared in the byte. */
#include "quant/c_kernels.h"
#include "quant/x86/avx2.h"
#include "quant/x86/x86_kernels.h"

enum { TILE_BYTES = 16 };

static void scan(struct encode_block *b)
{
    scan_groups256(b, false);
}

static bool sr1_scales(struct encode_block *b)
{
    return int_scales256(b, 1.0f, 32768.0f);
}

/* The low bytes of eight words. */
INLINE256 void put_bits(const struct encode_block *b, const struct half256 *half, __m256i bits)
{
    unsigned rows = nonzero_rows(b->unit_factors + half->unit);
    __m128i words = halves256(_mm256_and_si256(bits, _mm256_set1_epi32((int)rows)));
    uint8_t *codes = b->codes + half->unit / TILE_UNITS * TILE_BYTES + half->lane;
    _mm_storel_epi64((__m128i *)(void *)codes, _mm_packus_epi16(words, words));
}

INLINE256 void sr1_half(const struct encode_block *b, const struct half256 *half,
                        const __m256i words[4], bool nearest, bool feedback)
{
    __m256i rows[TILE_ROWS];
    for (int r = 0; r < TILE_ROWS; r++) {
        size_t i = half->first + (size_t)r * TILE_LANES, unit = half->unit + (size_t)r / 2;
        __m256 y = fed256(b->x, b->residual, i, feedback);
        __m256i v = _mm256_cvtps_epi32(_mm256_mul_ps(y, _mm256_set1_ps(b->unit_factors[unit])));
        v = _mm256_add_epi32(v, _mm256_set1_epi32(32768));
        rows[r] = _mm256_add_epi32(v, random256(words, r, nearest));
        if (feedback) {
            __m256 plus = _mm256_set1_ps(b->unit_values[unit]);
            __m256 minus = _mm256_sub_ps(_mm256_setzero_ps(), plus);
            __m256 up = _mm256_castsi256_ps(_mm256_slli_epi32(rows[r], 15));
            _mm256_storeu_ps(b->residual + i, _mm256_sub_ps(y, _mm256_blendv_ps(minus, plus, up)));
        }
    }
    __m256i bits = _mm256_and_si256(merge_rows256(rows, 1), _mm256_set1_epi16(15));
    put_bits(b, half, _mm256_or_si256(bits, _mm256_srli_epi32(bits, 12)));
}

INLINE256 void sr1_tiles(const struct encode_block *b, bool nearest, bool feedback)
{
    const struct philox_start start = *b->start;
    for (size_t t = 0; t < b->tiles; t++) {
        prefetch_tile256(b, t, feedback);
        __m256i words[2][4];
        if (!nearest)
            philox256(words, b->first_draw + (uint32_t)t * TILE_LANES, &start);
        for (size_t lane = 0; lane < TILE_LANES; lane += HALF_LANES) {
            struct half256 half = {
                .first = t * TILE_ELEMS + lane, .unit = t * TILE_UNITS, .lane = lane};
            sr1_half(b, &half, words[lane / HALF_LANES], nearest, feedback);
        }
    }
}

static void tiles_sr1(const struct encode_block *b)
{
    if (b->residual && b->nearest)
        sr1_tiles(b, true, true);
    else if (b->residual)
        sr1_tiles(b, false, true);
    else if (b->nearest)
        sr1_tiles(b, true, false);
    else
        sr1_tiles(b, false, false);
}

void encode_sr1_avx2(const struct encode_args *args)
{
    static const struct encoder encoder = {
        .tile_bytes = TILE_BYTES,
        .scan = scan,
        .scales = sr1_scales,
        .tiles = tiles_sr1,
        .c_row = encode_sr1_c,
    };
    qccl_encode_blocks(args, &encoder);
}

static void scan_sums(struct encode_block *b)
{
    scan_groups256(b, true);
}

/* scale = nearest(sum / count); the factor, which multiplies nothing here, is the scale. */
static bool sign1_scales(struct encode_block *b)
{
    const __m256 share = _mm256_set1_ps(1.0f / (float)b->group);
    for (size_t g = 0; g < b->groups; g += HALF_LANES) {
        __m256i max = _mm256_loadu_si256((const __m256i *)(const void *)(b->magnitudes + g));
        __m256i mean = _mm256_castps_si256(_mm256_mul_ps(_mm256_loadu_ps(b->sums + g), share));
        __m256i odd = _mm256_and_si256(_mm256_srli_epi32(mean, 16), _mm256_set1_epi32(1));
        mean = _mm256_add_epi32(mean, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
        if (!put_scales256(b, g, max, mean))
            return false;
        _mm256_storeu_ps(b->factors + g, _mm256_loadu_ps(b->values + g));
    }
    return true;
}

INLINE256 void sign1_half(const struct encode_block *b, const struct half256 *half, bool feedback)
{
    __m256i bits = _mm256_setzero_si256();
    for (int r = 0; r < TILE_ROWS; r++) {
        size_t i = half->first + (size_t)r * TILE_LANES;
        __m256 y = fed256(b->x, b->residual, i, feedback);
        __m256 up = _mm256_cmp_ps(y, _mm256_setzero_ps(), _CMP_NLT_UQ);
        bits = _mm256_or_si256(
            bits, _mm256_and_si256(_mm256_castps_si256(up), _mm256_set1_epi32(1 << r)));
        if (feedback) {
            __m256 s = _mm256_set1_ps(b->unit_factors[half->unit + (size_t)r / 2]);
            __m256 turned = _mm256_xor_ps(s, _mm256_andnot_ps(up, _mm256_set1_ps(-0.0f)));
            _mm256_storeu_ps(b->residual + i, _mm256_sub_ps(y, turned));
        }
    }
    put_bits(b, half, bits);
}

INLINE256 void sign1_tiles(const struct encode_block *b, bool feedback)
{
    for (size_t t = 0; t < b->tiles; t++) {
        prefetch_tile256(b, t, feedback);
        for (size_t lane = 0; lane < TILE_LANES; lane += HALF_LANES) {
            struct half256 half = {
                .first = t * TILE_ELEMS + lane, .unit = t * TILE_UNITS, .lane = lane};
            sign1_half(b, &half, feedback);
        }
    }
}

static void tiles_sign1(const struct encode_block *b)
{
    if (b->residual)
        sign1_tiles(b, true);
    else
        sign1_tiles(b, false);
}

void encode_sign1_avx2(const struct encode_args *args)
{
    static const struct encoder encoder = {
        .tile_bytes = TILE_BYTES,
        .scan = scan_sums,
        .scales = sign1_scales,
        .tiles = tiles_sign1,
        .c_row = encode_sign1_c,
    };
    qccl_encode_blocks(args, &encoder);
}

/* The scale with its sign turned where the bit is 0; a zero scale stays +0. */
INLINE256 void decode(__m256 rows[TILE_ROWS], const uint8_t *codes, int half,
                      const uint16_t *scales)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)codes);
    const __m256i words[2] = {_mm256_cvtepu8_epi32(bytes),
                              _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
    __m256i scale = _mm256_setzero_si256(), sign = scale;
    for (int i = 0; i < TILE_ROWS; i++) {
        if (i == 0 || (i == HALF_ROWS && scales[1] != scales[0])) {
            uint16_t value = scales[i / HALF_ROWS];
            scale = _mm256_set1_epi32((int)scale_bits(value));
            sign = _mm256_set1_epi32(scale_is_zero(value) ? 0 : INT32_MIN);
        }
        __m256i bit = _mm256_slli_epi32(words[i % 2], 31 - half * HALF_ROWS - i / 2);
        __m256i turned = _mm256_xor_si256(scale, _mm256_andnot_si256(bit, sign));
        rows[i] = _mm256_castsi256_ps(turned);
    }
}

void sum_bit1_avx2(const struct sum_args *args)
{
    sum256(args, TILE_BYTES, true, decode);
}

void decode_bit1_avx2(const struct decode_args *args)
{
    qccl_decode_by_sum(args, sum_bit1_avx2);
}

void decode_add_bit1_avx2(const struct decode_args *args)
{
    qccl_decode_add_by_sum(args, sum_bit1_avx2);
}
