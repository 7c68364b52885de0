/* int2, AVX2: each lane packs its eight codes into a half-word. */
#include "quant/c_kernels.h"
#include "quant/x86/avx2.h"
#include "quant/x86/x86_kernels.h"

enum { TILE_BYTES = 32 };

static void scan(struct encode_block *b)
{
    scan_groups256(b, false);
}

static bool scales(struct encode_block *b)
{
    return int_scales256(b, 1.0f, 65536.0f);
}

INLINE256 void pack(uint8_t *codes, size_t lane, const __m256i rows[TILE_ROWS])
{
    __m256i bytes = _mm256_and_si256(merge_rows256(rows, 2), _mm256_set1_epi16(0xff));
    __m128i halves =
        _mm_packus_epi16(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
    _mm_storeu_si128((__m128i *)(void *)(codes + 2 * lane), halves);
}

static void tiles(const struct encode_block *b)
{
    encode_int_tiles256(b, TILE_BYTES, pack);
}

void encode_int2_avx2(const struct encode_args *args)
{
    static const struct encoder encoder = {
        .tile_bytes = TILE_BYTES,
        .scan = scan,
        .scales = scales,
        .tiles = tiles,
        .c_row = encode_int2_c,
    };
    qccl_encode_blocks(args, &encoder);
}

INLINE256 void decode(__m256 rows[TILE_ROWS], const uint8_t *codes, int half,
                      const uint16_t *unit_scales)
{
    const __m128i *from = (const __m128i *)(const void *)codes;
    const __m256i words[2] = {_mm256_cvtepu16_epi32(_mm_loadu_si128(from)),
                              _mm256_cvtepu16_epi32(_mm_loadu_si128(from + 1))};
    decode_ints256(rows, words, half * 8, 2, unit_scales);
}

void sum_int2_avx2(const struct sum_args *args)
{
    sum256(args, TILE_BYTES, true, decode);
}

void decode_int2_avx2(const struct decode_args *args)
{
    qccl_decode_by_sum(args, sum_int2_avx2);
}

void decode_add_int2_avx2(const struct decode_args *args)
{
    qccl_decode_add_by_sum(args, sum_int2_avx2);
}
