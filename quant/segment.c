/* The block loops.  A unit is whole groups of every codec in play and whole tiles; a block is whole
 * units and small enough for the first-level cache.  Each block goes through load, transform,
 * kernel and store before the next one is touched; values that need neither conversion nor
 * transform go from user memory to the kernel in one piece.  What is left at the end, less than a
 * unit, goes through the C row. */
#include "quant/segment.h"

#include <math.h>
#include <stdalign.h>
#include <string.h>

#include "base/half.h"
#include "base/memory.h"
#include "base/status.h"
#include "quant/c_kernels.h"
#include "quant/codec.h"
#include "quant/kernels.h"

enum {
    BLOCK_ELEMS = 2048,     /* of the usual block: 8 KiB of fp32 */
    STACK_ELEMS = 2048,     /* of the largest block on the stack: threads may have small ones */
    STREAM_ELEMS = 1 << 18, /* results of at least this size are stored around the caches */
    PARTS_ON_STACK = 64,
};

/* How count elements are cut: blocks of the bulk for the best row, then one tail for the C row. */
struct blocks {
    size_t block, bulk, count;
};

struct piece {
    size_t begin, elems;
    bool tail;
};

static struct blocks blocks_of(const qcclCodec_t *first, const qcclCodec_t *second, size_t count)
{
    size_t unit = qccl_lcm(qccl_lcm(first->group, second->group), TILE_ELEMS);
    size_t block = unit < BLOCK_ELEMS ? BLOCK_ELEMS / unit * unit : unit;
    return (struct blocks){.block = block, .bulk = count / unit * unit, .count = count};
}

/* The piece that begins at `begin`; undivided: the bulk is one piece. */
static struct piece piece_at(const struct blocks *b, size_t begin, bool undivided)
{
    bool tail = begin >= b->bulk;
    size_t rest = (tail ? b->count : b->bulk) - begin;
    size_t elems = tail || undivided || rest < b->block ? rest : b->block;
    return (struct piece){.begin = begin, .elems = elems, .tail = tail};
}

static const struct kernels *row_for(const struct piece *piece, const qcclCodec_t *codec)
{
    return piece->tail ? qccl_kernels_c(codec->format) : qccl_kernels(codec->format);
}

/* Two blocks of temporary values, on the stack where they fit. */
struct scratch {
    float *a, *b, *heap;
    alignas(64) float stack[2 * STACK_ELEMS];
};

static qcclResult_t open_scratch(struct scratch *s, const struct blocks *b)
{
    size_t elems = b->block < b->count ? b->block : b->count;
    s->heap = NULL;
    s->a = s->stack;
    s->b = s->stack + STACK_ELEMS;
    if (elems <= STACK_ELEMS)
        return qcclSuccess;
    s->heap = qccl_alloc(2 * elems, sizeof(float));
    if (!s->heap)
        return qccl_fail(qcclOutOfMemory, "no memory for %zu temporary values", 2 * elems);
    s->a = s->heap;
    s->b = s->heap + elems;
    return qcclSuccess;
}

/* ------------------------------------------------------------------ values and the transform */

static const void *element(const void *values, qcclDataType_t type, size_t i)
{
    return (const char *)values + i * qcclTypeBytes(type);
}

static void *element_to_write(void *values, qcclDataType_t type, size_t i)
{
    return (char *)values + i * qcclTypeBytes(type);
}

static void load(float *out, const void *values, qcclDataType_t type, size_t begin, size_t elems)
{
    const void *in = element(values, type, begin);
    if (type == qcclFloat32)
        memcpy(out, in, elems * sizeof *out);
    else if (type == qcclBfloat16)
        qccl_converters()->load_bf16(out, in, elems);
    else
        qccl_converters()->load_fp16(out, in, elems);
}

static void store(const float *in, void *values, qcclDataType_t type, size_t begin, size_t elems)
{
    void *out = element_to_write(values, type, begin);
    if (type == qcclFloat32)
        memcpy(out, in, elems * sizeof *in);
    else if (type == qcclBfloat16)
        qccl_converters()->store_bf16(out, in, elems);
    else
        qccl_converters()->store_fp16(out, in, elems);
}

/* Whether kernels can work on the values where they are. */
static bool is_direct(const void *values, qcclDataType_t type, const qcclCodec_t *codec)
{
    return type == qcclFloat32 && !codec->hadamard && (uintptr_t)values % sizeof(float) == 0;
}

/* Whole blocks of the order, then falling powers of two, each transformed on its own; inverse
 * scales each by 1 / its size. */
static void transform(float *x, size_t elems, size_t order, bool inverse)
{
    if (!order)
        return;
    const struct converters *row = qccl_converters();
    size_t at = elems / order * order;
    row->hadamard(x, at, order);
    if (inverse)
        row->scale(x, 1.0f / (float)order, at);
    for (size_t size = order / 2; at < elems; size /= 2)
        if (size <= elems - at) {
            hadamard_c(x + at, size, size);
            if (inverse)
                scale_c(x + at, 1.0f / (float)size, size);
            at += size;
        }
}

/* A block of a source in the domain, in out; spare is overwritten where the source is a difference.
 */
static void load_source(float *out, float *spare, const struct source *source, size_t order,
                        const struct piece *piece)
{
    load(out, source->values, source->type, piece->begin, piece->elems);
    if (source->minus) {
        load(spare, source->minus, source->minus_type, piece->begin, piece->elems);
        qccl_converters()->subtract(out, spare, piece->elems);
    }
    transform(out, piece->elems, order, false);
}

void qccl_convert(const struct source *source, void *values, qcclDataType_t type, size_t count)
{
    alignas(64) float block[BLOCK_ELEMS], spare[BLOCK_ELEMS];
    for (size_t begin = 0; begin < count; begin += BLOCK_ELEMS) {
        size_t rest = count - begin;
        struct piece piece = {.begin = begin, .elems = rest < BLOCK_ELEMS ? rest : BLOCK_ELEMS};
        load_source(block, spare, source, 0, &piece);
        store(block, values, type, begin, piece.elems);
    }
}

/* ------------------------------------------------------------------ encode */

static void encode_piece(const struct encoding *e, const struct message *m, const struct draw *draw,
                         const struct piece *piece, const float *x)
{
    uint8_t *payload = (uint8_t *)e->message + WIRE_HEADER_BYTES;
    struct encode_args args = {
        .x = x,
        .residual = e->residual ? e->residual + piece->begin : NULL,
        .begin = piece->begin,
        .elems = piece->elems,
        .group = e->codec.group,
        .scales = (uint16_t *)(void *)payload,
        .codes = payload + qccl_wire_scale_bytes(&e->codec, m->count),
        .draw = draw,
    };
    row_for(piece, &e->codec)->encode(&args);
}

/* Zero bytes behind the last scale, so that equal inputs give equal messages. */
static void clear_scale_padding(const struct encoding *e, size_t count)
{
    size_t padded = qccl_wire_scale_bytes(&e->codec, count), group = e->codec.group;
    size_t used = padded ? 2 * (count / group + (count % group != 0)) : 0;
    memset((uint8_t *)e->message + WIRE_HEADER_BYTES + used, 0, padded - used);
}

qcclResult_t qccl_encode_segment(const struct source *source, size_t count,
                                 const struct encoding *e)
{
    struct blocks blocks = blocks_of(&e->codec, &e->codec, count);
    struct draw draw = qccl_draw_at(&e->position, e->codec.nearest);
    struct message shape = {.count = count};
    bool direct = !source->minus && is_direct(source->values, source->type, &e->codec);
    struct scratch scratch;
    RETURN_IF_FAILED(open_scratch(&scratch, &blocks));
    clear_scale_padding(e, count);
    for (size_t begin = 0; begin < count;) {
        struct piece piece = piece_at(&blocks, begin, direct);
        const float *x = scratch.a;
        if (direct)
            x = (const float *)source->values + begin;
        else
            load_source(scratch.a, scratch.b, source, e->codec.hadamard, &piece);
        encode_piece(e, &shape, &draw, &piece, x);
        begin += piece.elems;
    }
    qccl_free(scratch.heap);
    qccl_wire_seal(e->message, &e->codec, &e->position, e->replica, count, e->checked);
    return qcclSuccess;
}

/* ------------------------------------------------------------------ decode */

static struct decode_args decode_args_of(const struct message *m, const struct piece *piece,
                                         float *out)
{
    return (struct decode_args){
        .scales = m->scales,
        .codes = m->codes,
        .begin = piece->begin,
        .elems = piece->elems,
        .group = m->codec.group,
        .out = out,
    };
}

static void decode_direct(const struct message *m, const struct blocks *blocks, float *values,
                          bool add)
{
    for (size_t begin = 0; begin < m->count;) {
        struct piece piece = piece_at(blocks, begin, true);
        const struct kernels *row = row_for(&piece, &m->codec);
        struct decode_args args = decode_args_of(m, &piece, values + begin);
        args.stream = m->count >= STREAM_ELEMS;
        (add ? row->decode_add : row->decode)(&args);
        begin += piece.elems;
    }
}

/* Decodes a block to x as values, adding to those that are there where asked. */
static void decode_piece(const struct message *m, const struct piece *piece, struct scratch *s,
                         const void *values, qcclDataType_t type, bool add)
{
    const struct kernels *row = row_for(piece, &m->codec);
    struct decode_args args = decode_args_of(m, piece, s->a);
    if (add && !m->codec.hadamard) {
        load(s->a, values, type, piece->begin, piece->elems);
        row->decode_add(&args);
        return;
    }
    row->decode(&args);
    transform(s->a, piece->elems, m->codec.hadamard, true);
    if (!add)
        return;
    load(s->b, values, type, piece->begin, piece->elems);
    for (size_t i = 0; i < piece->elems; i++)
        s->a[i] = qccl_canonical(s->b[i] + s->a[i]);
}

qcclResult_t qccl_decode_segment(const struct message *m, void *values, qcclDataType_t type,
                                 bool add)
{
    struct blocks blocks = blocks_of(&m->codec, &m->codec, m->count);
    if (is_direct(values, type, &m->codec)) {
        decode_direct(m, &blocks, values, add);
        return qcclSuccess;
    }
    struct scratch scratch;
    RETURN_IF_FAILED(open_scratch(&scratch, &blocks));
    for (size_t begin = 0; begin < m->count;) {
        struct piece piece = piece_at(&blocks, begin, false);
        decode_piece(m, &piece, &scratch, values, type, add);
        store(scratch.a, values, type, begin, piece.elems);
        begin += piece.elems;
    }
    qccl_free(scratch.heap);
    return qcclSuccess;
}

qcclResult_t qccl_sample_error(const struct source *source, const struct message *message,
                               double *energy, double *error)
{
    struct message head = *message;
    struct blocks blocks = blocks_of(&head.codec, &head.codec, head.count);
    struct scratch scratch;
    RETURN_IF_FAILED(open_scratch(&scratch, &blocks));
    if (head.count > blocks.block)
        head.count = blocks.block;
    struct piece piece = {.elems = head.count};
    load_source(scratch.b, scratch.a, source, 0, &piece);
    qcclResult_t result = qccl_decode_segment(&head, scratch.a, qcclFloat32, false);
    for (size_t i = 0; result == qcclSuccess && i < head.count; i++) {
        double x = scratch.b[i], lost = x - scratch.a[i];
        if (!isfinite(lost)) /* one overflow must not spoil what is sampled later */
            continue;
        *energy += x * x;
        *error += lost * lost;
    }
    qccl_free(scratch.heap);
    return result;
}

/* ------------------------------------------------------------------ reduce */

/* Where the exact part of a block is: in place, or loaded into `loaded`. */
static const float *exact_of(const struct part *part, const qcclCodec_t *codec,
                             const struct piece *piece, float *loaded)
{
    if (part->domain)
        return part->domain + piece->begin;
    const struct source *source = &part->values;
    if (is_direct(source->values, source->type, codec))
        return (const float *)source->values + piece->begin;
    load(loaded, source->values, source->type, piece->begin, piece->elems);
    transform(loaded, piece->elems, codec->hadamard, false);
    return loaded;
}

/* The weighted sum of a block into out, in the domain. */
static void sum_piece(const struct reduction *r, const struct piece *piece, struct sum_part *parts,
                      float *loaded, float *out, bool stream)
{
    for (int p = 0; p < r->nparts; p++) {
        const struct part *part = &r->parts[p];
        parts[p] = (struct sum_part){0};
        if (part->message) {
            parts[p].scales = part->message->scales;
            parts[p].codes = part->message->codes;
        } else {
            parts[p].exact = exact_of(part, &r->codec, piece, loaded);
        }
    }
    struct sum_args args = {
        .parts = parts,
        .nparts = r->nparts,
        .begin = piece->begin,
        .elems = piece->elems,
        .group = r->codec.group,
        .weight = r->weight,
        .out = out,
        .stream = stream,
    };
    row_for(piece, &r->codec)->sum(&args);
}

/* Takes a summed block on: to a message, in its codec's domain, or to values. */
static void finish_piece(const struct reduction *r, const struct draw *draw,
                         const struct piece *piece, float *x)
{
    if (!r->encoding) {
        transform(x, piece->elems, r->codec.hadamard, true);
        store(x, r->values, r->type, piece->begin, piece->elems);
        return;
    }
    if (r->codec.hadamard != r->encoding->codec.hadamard) {
        transform(x, piece->elems, r->codec.hadamard, true);
        transform(x, piece->elems, r->encoding->codec.hadamard, false);
    }
    struct message shape = {.count = r->count};
    encode_piece(r->encoding, &shape, draw, piece, x);
}

/* Where the sum can go without a temporary block, and whether all parts can be used where they are.
 */
static float *direct_target(const struct reduction *r)
{
    if (r->domain)
        return r->domain;
    return !r->encoding && is_direct(r->values, r->type, &r->codec) ? r->values : NULL;
}

static bool parts_are_direct(const struct reduction *r)
{
    for (int p = 0; p < r->nparts; p++) {
        const struct part *part = &r->parts[p];
        if (!part->message && !part->domain &&
            !is_direct(part->values.values, part->values.type, &r->codec))
            return false;
    }
    return true;
}

static void reduce_pieces(const struct reduction *r, const struct blocks *blocks,
                          struct scratch *scratch, struct sum_part *parts)
{
    float *target = direct_target(r);
    bool undivided = target && parts_are_direct(r);
    struct draw draw = {0};
    if (r->encoding)
        draw = qccl_draw_at(&r->encoding->position, r->encoding->codec.nearest);
    for (size_t begin = 0; begin < r->count;) {
        struct piece piece = piece_at(blocks, begin, undivided);
        float *out = target ? target + begin : scratch->a;
        sum_piece(r, &piece, parts, scratch->b, out, target && r->count >= STREAM_ELEMS);
        if (!target)
            finish_piece(r, &draw, &piece, out);
        begin += piece.elems;
    }
}

qcclResult_t qccl_reduce_segment(const struct reduction *r)
{
    const struct encoding *e = r->encoding;
    struct blocks blocks = blocks_of(&r->codec, e ? &e->codec : &r->codec, r->count);
    struct sum_part on_stack[PARTS_ON_STACK], *parts = on_stack, *heap = NULL;
    struct scratch scratch;
    RETURN_IF_FAILED(open_scratch(&scratch, &blocks));
    if (r->nparts > PARTS_ON_STACK)
        parts = heap = qccl_alloc((size_t)r->nparts, sizeof *heap);
    if (!parts) {
        qccl_free(scratch.heap);
        return qccl_fail(qcclOutOfMemory, "no memory to list %d parts of a sum", r->nparts);
    }
    if (e)
        clear_scale_padding(e, r->count);
    reduce_pieces(r, &blocks, &scratch, parts);
    if (e)
        qccl_wire_seal(e->message, &e->codec, &e->position, e->replica, r->count, e->checked);
    qccl_free(heap);
    qccl_free(scratch.heap);
    return qcclSuccess;
}
