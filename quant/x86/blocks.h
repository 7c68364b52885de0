/* What the AVX2 and the AVX-512 rows share and that needs no intrinsics of either.
 *
 * Encoding goes block by block, small enough for the first-level cache: 1. scan: the largest
 * magnitude of each group; 2. scales: those of all groups in one vector loop; 3. tiles: 128 values
 * at a time, with the scale of each unit of 32 values at hand, so that a group may be any multiple
 * of 32.  A block that holds a NaN or an infinity goes through the C row: that run is lost anyway.
 *
 * Decoding and decoding with addition are sums of one and of two parts: both wait for memory, not
 * for the product with 1. */
#ifndef QCCL_QUANT_X86_BLOCKS_H
#define QCCL_QUANT_X86_BLOCKS_H

#include <xmmintrin.h>

#include "base/half.h"
#include "quant/kernels.h"

enum {
    UNIT_ELEMS = 32, /* every group is whole units */
    TILE_UNITS = TILE_ELEMS / UNIT_ELEMS,
    BLOCK_ELEMS = 2048, /* of most blocks; others are the least multiple of group and tile */
    BLOCK_GROUPS = BLOCK_ELEMS / UNIT_ELEMS,
    BLOCK_UNITS = 1024, /* of the largest block, that of groups of 8160 */
    SCAN_PREFETCH = 64, /* elements for each line that is prefetched while scanning */
};

/* A group whose largest magnitude has fewer bits than this is zero: 2^-100. */
#define TINY_BITS 0x0d800000u
#define INFINITY_BITS 0x7f800000u
/* With feedback, groups whose scale is at least 2^119 go through the C row too: twice the largest
 * level times that may overflow, and what is lost is then not kept. */
#define OVERFLOW_BITS 0x7b000000u

/* The counters of a message differ in word 0 alone, so parts of the first three rounds of Philox
 * are the same for all:
 *
 *   round 0: words 0 and 1 are constant
 *            word 2 = high(block * M0) ^ word2_round0    word 3 = low(block * M0)
 *   round 1: word 0 = high(word 2 * M1) ^ word0_round1   word 1 = low(word 2 * M1)
 *            word 2 = word 3 ^ word2_round1              word 3 is constant
 *   round 2: word 2 = high(word 0 * M0) ^ word2_round2, the rest as in every round */
struct philox_start {
    uint32_t word2_round0, word0_round1, word2_round1, word2_round2;
    uint32_t key0[PHILOX_ROUNDS], key1[PHILOX_ROUNDS];
};

struct philox_start qccl_philox_start(const struct draw *draw);

/* Consecutive whole groups that are whole tiles too. */
struct encode_block {
    const float *x;
    float *residual; /* NULL: no feedback */
    size_t elems, group, groups, tiles;
    uint8_t *codes;
    bool nearest;
    uint32_t first_draw; /* the Philox block of lane 0 of the first tile */
    const struct philox_start *start;
    /* By group; scan writes magnitudes (as bits) and sums, scales the rest. */
    uint32_t magnitudes[BLOCK_GROUPS];
    float sums[BLOCK_GROUPS];
    uint16_t scales[BLOCK_GROUPS];
    float values[BLOCK_GROUPS];  /* the scales in fp32 */
    float factors[BLOCK_GROUPS]; /* what values are multiplied by: 0 in a zero group */
    /* By unit. */
    float unit_values[BLOCK_UNITS];
    float unit_factors[BLOCK_UNITS];
};

struct encoder {
    size_t tile_bytes;
    void (*scan)(struct encode_block *block);
    bool (*scales)(struct encode_block *block); /* false: the block is for the C row */
    void (*tiles)(const struct encode_block *block);
    void (*c_row)(const struct encode_args *args);
};

void qccl_encode_blocks(const struct encode_args *args, const struct encoder *encoder);

typedef void sum_fn(const struct sum_args *args);
void qccl_decode_by_sum(const struct decode_args *args, sum_fn *sum);
void qccl_decode_add_by_sum(const struct decode_args *args, sum_fn *sum);

/* The groups of a tile's units, tile after tile. */
struct unit_cursor {
    size_t group, left, group_units;
};

static inline struct unit_cursor unit_cursor_at(size_t begin, size_t group)
{
    return (struct unit_cursor){
        .group = begin / group, .left = group / UNIT_ELEMS, .group_units = group / UNIT_ELEMS};
}

static inline void next_tile(struct unit_cursor *cursor, size_t groups[TILE_UNITS])
{
    for (int u = 0; u < TILE_UNITS; u++) {
        groups[u] = cursor->group;
        if (--cursor->left == 0) {
            cursor->left = cursor->group_units;
            cursor->group++;
        }
    }
}

static inline bool scale_is_zero(uint16_t scale)
{
    return (scale & 0x7fff) == 0;
}

/* A scale as the bits of an fp32 value: NaN where it is infinite, +0 where it is -0. */
static inline uint32_t scale_bits(uint16_t scale)
{
    if ((scale & 0x7f80) == 0x7f80)
        return QCCL_NAN_BITS;
    return scale_is_zero(scale) ? 0 : (uint32_t)scale << 16;
}

/* The rows of a tile, one bit each, whose units' values are not zero. */
static inline unsigned nonzero_rows(const float *units)
{
    static const uint8_t rows[16] = {0x00, 0x03, 0x0c, 0x0f, 0x30, 0x33, 0x3c, 0x3f,
                                     0xc0, 0xc3, 0xcc, 0xcf, 0xf0, 0xf3, 0xfc, 0xff};
    return rows[_mm_movemask_ps(_mm_cmpneq_ps(_mm_loadu_ps(units), _mm_setzero_ps()))];
}

/* How a result is stored: streaming needs alignment, and 16 bytes is what malloc gives. */
enum store { STORE_CACHED, STORE_STREAM_16, STORE_STREAM_32 };

static inline enum store store_kind(const float *out, bool stream)
{
    if (!stream || (uintptr_t)out % 16)
        return STORE_CACHED;
    return (uintptr_t)out % 32 ? STORE_STREAM_16 : STORE_STREAM_32;
}

#endif
