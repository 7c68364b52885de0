/* int2, AVX-512: each lane packs its eight codes into a half-word. */
#include "quant/c_kernels.h"
#include "quant/x86/avx512.h"
#include "quant/x86/x86_kernels.h"

enum { TILE_BYTES = 32 };

static void scan(struct encode_block *b)
{
    scan_groups512(b, false);
}

static bool scales(struct encode_block *b)
{
    return int_scales512(b, 1.0f, 65536.0f);
}

INLINE512 void pack(uint8_t *codes, const __m512i rows[TILE_ROWS])
{
    __m512i words = _mm512_srli_epi32(merge_rows512(rows, 2), 16);
    _mm256_storeu_si256((__m256i *)(void *)codes, _mm512_cvtepi32_epi16(words));
}

static void tiles(const struct encode_block *b)
{
    encode_int_tiles512(b, TILE_BYTES, pack);
}

void encode_int2_avx512(const struct encode_args *args)
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

INLINE512 void decode(__m512 rows[TILE_ROWS], const uint8_t *codes, const uint16_t *unit_scales)
{
    const __m512 levels = _mm512_setr_ps(0, 1, -2, -1, 0, 1, -2, -1, 0, 1, -2, -1, 0, 1, -2, -1);
    __m256i halves = _mm256_loadu_si256((const __m256i *)(const void *)codes);
    decode_levels512(rows, _mm512_cvtepu16_epi32(halves), 2, levels, unit_scales);
}

void sum_int2_avx512(const struct sum_args *args)
{
    sum512(args, TILE_BYTES, true, decode);
}

void decode_int2_avx512(const struct decode_args *args)
{
    qccl_decode_by_sum(args, sum_int2_avx512);
}

void decode_add_int2_avx512(const struct decode_args *args)
{
    qccl_decode_add_by_sum(args, sum_int2_avx512);
}
