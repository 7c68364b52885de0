/* int4, AVX-512: each lane packs its eight codes into one word; decoding a row is one shift and one
 * permutation of a table of levels that was multiplied by the scale. */
#include "quant/c_kernels.h"
#include "quant/x86/avx512.h"
#include "quant/x86/x86_kernels.h"

enum { TILE_BYTES = 64 };

static void scan(struct encode_block *b)
{
    scan_groups512(b, false);
}

static bool scales(struct encode_block *b)
{
    return int_scales512(b, 7.0f, 65536.0f);
}

INLINE512 void pack(uint8_t *codes, const __m512i rows[TILE_ROWS])
{
    _mm512_storeu_si512(codes, merge_rows512(rows, 4));
}

static void tiles(const struct encode_block *b)
{
    encode_int_tiles512(b, TILE_BYTES, pack);
}

void encode_int4_avx512(const struct encode_args *args)
{
    static const struct encoder encoder = {
        .tile_bytes = TILE_BYTES,
        .scan = scan,
        .scales = scales,
        .tiles = tiles,
        .c_row = encode_int4_c,
    };
    qccl_encode_blocks(args, &encoder);
}

INLINE512 void decode(__m512 rows[TILE_ROWS], const uint8_t *codes, const uint16_t *unit_scales)
{
    const __m512 levels = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
    decode_levels512(rows, _mm512_loadu_si512(codes), 4, levels, unit_scales);
}

void sum_int4_avx512(const struct sum_args *args)
{
    sum512(args, TILE_BYTES, true, decode);
}

void decode_int4_avx512(const struct decode_args *args)
{
    qccl_decode_by_sum(args, sum_int4_avx512);
}

void decode_add_int4_avx512(const struct decode_args *args)
{
    qccl_decode_add_by_sum(args, sum_int4_avx512);
}
