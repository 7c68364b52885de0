/* The block loop of the vector encoders, and decoding as a sum. */
#include "quant/x86/blocks.h"

#include <emmintrin.h>
#include <string.h>

struct philox_start qccl_philox_start(const struct draw *draw)
{
    struct philox_start s;
    for (uint32_t r = 0; r < PHILOX_ROUNDS; r++) {
        s.key0[r] = draw->key[0] + r * PHILOX_W0;
        s.key1[r] = draw->key[1] + r * PHILOX_W1;
    }
    uint64_t product = (uint64_t)draw->counter[1] * PHILOX_M1;
    uint32_t word0 = (uint32_t)(product >> 32) ^ draw->counter[0] ^ s.key0[0];
    uint32_t word1 = (uint32_t)product;
    s.word2_round0 = draw->counter[2] ^ s.key1[0];
    product = (uint64_t)word0 * PHILOX_M0;
    s.word0_round1 = word1 ^ s.key0[1];
    s.word2_round1 = (uint32_t)(product >> 32) ^ s.key1[1];
    s.word2_round2 = (uint32_t)product ^ s.key1[2];
    return s;
}

/* Elements of a block: whole groups, whole tiles. */
static size_t block_elems(size_t group)
{
    size_t unit = group;
    while (unit % TILE_ELEMS)
        unit += group;
    return unit < BLOCK_ELEMS ? BLOCK_ELEMS / unit * unit : unit;
}

/* Each group's value once for each of its units. */
static void spread(float *units, const float *values, size_t groups, size_t group_units)
{
    for (size_t g = 0; g < groups; g++, units += group_units) {
        size_t u = 0;
        for (; u + 4 <= group_units; u += 4)
            _mm_storeu_ps(units + u, _mm_set1_ps(values[g]));
        for (; u < group_units; u++)
            units[u] = values[g];
    }
}

static void encode_by_c(const struct encode_args *args, const struct encoder *encoder,
                        size_t offset, size_t elems)
{
    struct encode_args part = *args;
    part.x += offset;
    part.residual = args->residual ? args->residual + offset : NULL;
    part.begin += offset;
    part.elems = elems;
    encoder->c_row(&part);
}

/* Scans and encodes a block whose place and size are set; false: it is for the C row, nothing is
 * written. */
static bool encode_block(struct encode_block *b, const struct encoder *encoder)
{
    b->groups = b->elems / b->group;
    b->tiles = b->elems / TILE_ELEMS;
    encoder->scan(b);
    /* The vector loop over groups may run past the last one: zero groups there. */
    memset(b->magnitudes + b->groups, 0, (BLOCK_GROUPS - b->groups) * sizeof *b->magnitudes);
    if (!encoder->scales(b))
        return false;
    spread(b->unit_factors, b->factors, b->groups, b->group / UNIT_ELEMS);
    if (b->residual)
        spread(b->unit_values, b->values, b->groups, b->group / UNIT_ELEMS);
    encoder->tiles(b);
    return true;
}

void qccl_encode_blocks(const struct encode_args *args, const struct encoder *encoder)
{
    struct philox_start start = qccl_philox_start(args->draw);
    struct encode_block b; /* not cleared: its arrays are larger than most blocks' codes */
    b.group = args->group;
    b.nearest = args->draw->nearest;
    b.start = &start;
    size_t most = block_elems(args->group);
    for (size_t offset = 0; offset < args->elems; offset += b.elems) {
        size_t at = args->begin + offset, rest = args->elems - offset;
        b.x = args->x + offset;
        b.residual = args->residual ? args->residual + offset : NULL;
        b.elems = rest < most ? rest : most;
        b.codes = args->codes + at / TILE_ELEMS * encoder->tile_bytes;
        b.first_draw = (args->draw->first_tile + (uint32_t)(at / TILE_ELEMS)) * TILE_LANES;
        if (encode_block(&b, encoder))
            memcpy(args->scales + at / b.group, b.scales, b.groups * sizeof *b.scales);
        else
            encode_by_c(args, encoder, offset, b.elems);
    }
}

static void run_sum(const struct decode_args *args, sum_fn *sum, const struct sum_part *parts,
                    int nparts, bool stream)
{
    struct sum_args sum_args = {
        .parts = parts,
        .nparts = nparts,
        .begin = args->begin,
        .elems = args->elems,
        .group = args->group,
        .weight = 1.0f,
        .out = args->out,
        .stream = stream,
    };
    sum(&sum_args);
}

void qccl_decode_by_sum(const struct decode_args *args, sum_fn *sum)
{
    const struct sum_part part = {.scales = args->scales, .codes = args->codes};
    run_sum(args, sum, &part, 1, args->stream);
}

/* What was just read to be added to is in the cache: no streaming. */
void qccl_decode_add_by_sum(const struct decode_args *args, sum_fn *sum)
{
    const struct sum_part parts[2] = {{.exact = args->out},
                                      {.scales = args->scales, .codes = args->codes}};
    run_sum(args, sum, parts, 2, false);
}
