/* sr1 and sign1, AVX-512: each lane packs its eight bits into a byte; the bits of zero groups are
 * cleared in the byte. */
#include "quant/c_kernels.h"
#include "quant/x86/avx512.h"
#include "quant/x86/x86_kernels.h"

enum { TILE_BYTES = 16 };

static void scan(struct encode_block *b)
{
    scan_groups512(b, false);
}

static bool sr1_scales(struct encode_block *b)
{
    return int_scales512(b, 1.0f, 32768.0f);
}

INLINE512 void put_bits(const struct encode_block *b, size_t t, __m512i bits)
{
    unsigned rows = nonzero_rows(b->unit_factors + t * TILE_UNITS);
    __m128i bytes = _mm_and_si128(_mm512_cvtepi32_epi8(bits), _mm_set1_epi8((char)rows));
    _mm_storeu_si128((__m128i *)(void *)(b->codes + t * TILE_BYTES), bytes);
}

INLINE512 void sr1_tiles(const struct encode_block *b, bool nearest, bool feedback)
{
    const struct philox_start start = *b->start;
    const __m512i half = _mm512_set1_epi32(32768), bit = _mm512_set1_epi32(65536);
    for (size_t t = 0; t < b->tiles; t++) {
        __m512i words[4], rows[TILE_ROWS];
        prefetch_tile512(b, t, feedback);
        if (!nearest)
            philox512(words, b->first_draw + (uint32_t)t * TILE_LANES, &start);
        for (int r = 0; r < TILE_ROWS; r++) {
            size_t i = t * TILE_ELEMS + (size_t)r * TILE_LANES,
                   unit = t * TILE_UNITS + (size_t)r / 2;
            __m512 y = fed512(b->x, b->residual, i, feedback);
            __m512i v = _mm512_cvtps_epi32(_mm512_mul_ps(y, _mm512_set1_ps(b->unit_factors[unit])));
            rows[r] = _mm512_add_epi32(_mm512_add_epi32(v, half), random512(words, r, nearest));
            if (feedback) {
                __m512 plus = _mm512_set1_ps(b->unit_values[unit]);
                __m512 minus = _mm512_sub_ps(_mm512_setzero_ps(), plus);
                __mmask16 up = _mm512_test_epi32_mask(rows[r], bit);
                __m512 decoded = _mm512_mask_mov_ps(minus, up, plus);
                _mm512_storeu_ps(b->residual + i, _mm512_sub_ps(y, decoded));
            }
        }
        put_bits(b, t, _mm512_srli_epi32(merge_rows512(rows, 1), 16));
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

void encode_sr1_avx512(const struct encode_args *args)
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
    scan_groups512(b, true);
}

/* scale = nearest(sum / count); the factor, which multiplies nothing here, is the scale. */
static bool sign1_scales(struct encode_block *b)
{
    const __m512 share = _mm512_set1_ps(1.0f / (float)b->group);
    for (size_t g = 0; g < b->groups; g += TILE_LANES) {
        __m512i mean = _mm512_castps_si512(_mm512_mul_ps(_mm512_loadu_ps(b->sums + g), share));
        __m512i odd = _mm512_and_si512(_mm512_srli_epi32(mean, 16), _mm512_set1_epi32(1));
        mean = _mm512_add_epi32(mean, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
        if (!put_scales512(b, g, _mm512_loadu_si512(b->magnitudes + g), mean))
            return false;
        _mm512_storeu_ps(b->factors + g, _mm512_loadu_ps(b->values + g));
    }
    return true;
}

INLINE512 void sign1_tiles(const struct encode_block *b, bool feedback)
{
    for (size_t t = 0; t < b->tiles; t++) {
        __m512i bits = _mm512_setzero_si512();
        prefetch_tile512(b, t, feedback);
        for (int r = 0; r < TILE_ROWS; r++) {
            size_t i = t * TILE_ELEMS + (size_t)r * TILE_LANES;
            __m512 y = fed512(b->x, b->residual, i, feedback);
            __mmask16 up = _mm512_cmp_ps_mask(y, _mm512_setzero_ps(), _CMP_NLT_UQ);
            bits = _mm512_mask_or_epi32(bits, up, bits, _mm512_set1_epi32(1 << r));
            if (feedback) {
                __m512 s = _mm512_set1_ps(b->unit_factors[t * TILE_UNITS + (size_t)r / 2]);
                __m512 lost = _mm512_mask_sub_ps(_mm512_add_ps(y, s), up, y, s);
                _mm512_storeu_ps(b->residual + i, lost);
            }
        }
        put_bits(b, t, bits);
    }
}

static void tiles_sign1(const struct encode_block *b)
{
    if (b->residual)
        sign1_tiles(b, true);
    else
        sign1_tiles(b, false);
}

void encode_sign1_avx512(const struct encode_args *args)
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
INLINE512 void decode(__m512 rows[TILE_ROWS], const uint8_t *codes, const uint16_t *scales)
{
    __m512i words = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)codes));
    __m512i scale = _mm512_setzero_si512(), sign = scale;
    for (unsigned r = 0; r < TILE_ROWS; r++) {
        if (r == 0 || (r % 2 == 0 && scales[r / 2] != scales[r / 2 - 1])) {
            scale = _mm512_set1_epi32((int)scale_bits(scales[r / 2]));
            sign = _mm512_set1_epi32(scale_is_zero(scales[r / 2]) ? 0 : INT32_MIN);
        }
        __m512i bit = _mm512_slli_epi32(words, 31 - r);
        rows[r] = _mm512_castsi512_ps(_mm512_ternarylogic_epi32(bit, sign, scale, 0xa6));
    }
}

void sum_bit1_avx512(const struct sum_args *args)
{
    sum512(args, TILE_BYTES, true, decode);
}

void decode_bit1_avx512(const struct decode_args *args)
{
    qccl_decode_by_sum(args, sum_bit1_avx512);
}

void decode_add_bit1_avx512(const struct decode_args *args)
{
    qccl_decode_add_by_sum(args, sum_bit1_avx512);
}
