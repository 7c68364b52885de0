/* int8, AVX-512: two planes of words, rows 0-3 and rows 4-7, a byte for each row.
 *
 * No clamp: the largest magnitude of a group, multiplied, stays within 127 * 65536
 * (tests/rounding.c). */
#include "quant/c_kernels.h"
#include "quant/x86/avx512.h"
#include "quant/x86/x86_kernels.h"

enum { TILE_BYTES = 128 };

static void scan(struct encode_block *b)
{
    scan_groups512(b, false);
}

static bool scales(struct encode_block *b)
{
    return int_scales512(b, 127.0f, 65536.0f);
}

/* Four rows in a word. */
INLINE512 __m512i plane(const __m512i *rows)
{
    __m512i low = _mm512_srli_epi32(merge512(rows[0], rows[1], 8), 16);
    return select512(0xffff, low, merge512(rows[2], rows[3], 8));
}

INLINE512 void pack(uint8_t *codes, const __m512i rows[TILE_ROWS])
{
    _mm512_storeu_si512(codes, plane(rows));
    _mm512_storeu_si512(codes + TILE_BYTES / 2, plane(rows + 4));
}

static void tiles(const struct encode_block *b)
{
    encode_int_tiles512(b, TILE_BYTES, pack);
}

void encode_int8_avx512(const struct encode_args *args)
{
    static const struct encoder encoder = {
        .tile_bytes = TILE_BYTES,
        .scan = scan,
        .scales = scales,
        .tiles = tiles,
        .c_row = encode_int8_c,
    };
    qccl_encode_blocks(args, &encoder);
}

INLINE512 void decode(__m512 rows[TILE_ROWS], const uint8_t *codes, const uint16_t *unit_scales)
{
    __m512i some = _mm512_setzero_si512(), word = some;
    __m512 scale = _mm512_setzero_ps();
    for (int r = 0; r < TILE_ROWS; r++) {
        if (r == 0 || (r % 2 == 0 && unit_scales[r / 2] != unit_scales[r / 2 - 1])) {
            scale = _mm512_castsi512_ps(_mm512_set1_epi32((int)scale_bits(unit_scales[r / 2])));
            some = _mm512_set1_epi32(scale_is_zero(unit_scales[r / 2]) ? 0 : -1);
        }
        if (r % 4 == 0)
            word = _mm512_loadu_si512(codes + r / 4 * 64);
        /* The row's byte to the top, then down with its sign. */
        __m512i top = _mm512_slli_epi32(_mm512_and_si512(word, some), 24 - r % 4 * 8);
        rows[r] = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_srai_epi32(top, 24)), scale);
    }
}

void sum_int8_avx512(const struct sum_args *args)
{
    sum512(args, TILE_BYTES, true, decode);
}

void decode_int8_avx512(const struct decode_args *args)
{
    qccl_decode_by_sum(args, sum_int8_avx512);
}

void decode_add_int8_avx512(const struct decode_args *args)
{
    qccl_decode_add_by_sum(args, sum_int8_avx512);
}
