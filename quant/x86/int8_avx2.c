/* int8, AVX2: two planes of words, rows 0-3 and rows 4-7, a byte for each row.
 *
 * No clamp: the largest magnitude of a group, multiplied, stays within 127 * 65536
 * (tests/rounding.c). */
#include "quant/c_kernels.h"
#include "quant/x86/avx2.h"
#include "quant/x86/x86_kernels.h"

enum { TILE_BYTES = 128 };

static void scan(struct encode_block *b)
{
    scan_groups256(b, false);
}

static bool scales(struct encode_block *b)
{
    return int_scales256(b, 127.0f, 65536.0f);
}

/* Four rows in a word. */
INLINE256 __m256i plane(const __m256i *rows)
{
    __m256i even = _mm256_and_si256(pair256(rows[0], rows[2]), _mm256_set1_epi16(0xff));
    return _mm256_or_si256(even, _mm256_slli_epi16(pair256(rows[1], rows[3]), 8));
}

INLINE256 void pack(uint8_t *codes, size_t lane, const __m256i rows[TILE_ROWS])
{
    _mm256_storeu_si256((__m256i *)(void *)(codes + 4 * lane), plane(rows));
    _mm256_storeu_si256((__m256i *)(void *)(codes + TILE_BYTES / 2 + 4 * lane), plane(rows + 4));
}

static void tiles(const struct encode_block *b)
{
    encode_int_tiles256(b, TILE_BYTES, pack);
}

void encode_int8_avx2(const struct encode_args *args)
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

INLINE256 void decode(__m256 rows[TILE_ROWS], const uint8_t *codes, int half,
                      const uint16_t *unit_scales)
{
    const __m256i *from = (const __m256i *)(const void *)(codes + half * (TILE_BYTES / 2));
    const __m256i words[2] = {_mm256_loadu_si256(from), _mm256_loadu_si256(from + 1)};
    decode_ints256(rows, words, 0, 8, unit_scales);
}

void sum_int8_avx2(const struct sum_args *args)
{
    sum256(args, TILE_BYTES, true, decode);
}

void decode_int8_avx2(const struct decode_args *args)
{
    qccl_decode_by_sum(args, sum_int8_avx2);
}

void decode_add_int8_avx2(const struct decode_args *args)
{
    qccl_decode_add_by_sum(args, sum_int8_avx2);
}
