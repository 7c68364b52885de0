/* Every kernel row of every table computes the bits of the C row: encode, decode, decode_add and
 * sum.
 *
 * Buffers are filled alike for both rows and compared whole, so that a byte written outside the
 * range fails as well.  The C row clamps and the vector rows do not: their equality also checks the
 * proof in tests/rounding.c. */
#include "quant/kernels.h"
#include "quant/c_kernels.h"
#include "quant/codec.h"
#include "quant/wire.h"
#include "tests/kernel_inputs.h"

static const size_t groups[] = {32, 64, 96, 128, 160, 256, 2048, 8160, 8192};
static const qcclFormat_t formats[] = {qcclFormatBf16, qcclFormatInt8, qcclFormatInt4,
                                       qcclFormatInt2, qcclFormatSr1,  qcclFormatSign1};

/* Scales as messages have them, and one in eight of any bits. */
static void fill_scales(uint16_t *scales, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t r = next();
        scales[i] = (uint16_t)(r % 8 == 0 ? r >> 20 : 0x3c00 + (r >> 20) % 0x800);
        if (r % 32 < 2)
            scales[i] = r % 32 ? 0x8000 : 0;
    }
}

/* ------------------------------------------------------------------ shapes */

/* Where a range lies in its message and in memory. */
struct shape {
    qcclFormat_t format;
    size_t group, begin, elems, offset;
};

/* Ranges of a group: from the start and from within, less than a block and several, at addresses of
 * 4 to 64 bytes. */
static struct shape shape_of(qcclFormat_t format, size_t group, int variant)
{
    static const size_t offsets[] = {0, 1, 4, 3, 8, 6};
    size_t unit = qccl_lcm(group, TILE_ELEMS), most = unit < 4096 ? 4608 / unit : 1;
    return (struct shape){
        .format = format,
        .group = group,
        .begin = variant % 2 ? unit * (size_t)(1 + variant) : 0,
        .elems = variant < 2 ? unit : most * unit,
        .offset = offsets[variant],
    };
}

enum { VARIANTS = 6 };

static size_t scale_count(const struct shape *s)
{
    return (s->begin + s->elems) / s->group + SLACK;
}

static size_t code_bytes(const struct shape *s)
{
    return (s->begin + s->elems) / TILE_ELEMS * qccl_tile_bytes(s->format) + SLACK;
}

static size_t value_count(const struct shape *s)
{
    return s->elems + s->offset + SLACK;
}

/* Calls check for each vector row that runs here, for each shape; skips the test where there is
 * none. */
static void for_each_row(void (*check)(const struct kernels *row, const struct shape *shape))
{
    int rows = 0;
    for (size_t f = 0; f < COUNT(formats); f++)
        for (const struct kernels *row = qccl_kernel_rows(formats[f]); row[1].name; row++) {
            if (!runs(row->cpu))
                continue;
            rows++;
            for (size_t g = 0; g < COUNT(groups); g++)
                for (int variant = 0; variant < VARIANTS; variant++) {
                    struct shape shape = shape_of(formats[f], groups[g], variant);
                    check(row, &shape);
                }
        }
    if (!rows)
        cr_skip_test("no vector row runs on this processor");
}

/* Fails with what is needed to repeat. */
static void expect_equal(const void *got, const void *want, size_t bytes, const char *what,
                         const char *row, const struct shape *s, uint64_t seed)
{
    size_t i = first_difference(got, want, bytes);
    cr_assert(
        i == bytes,
        "%s of %s differs at byte %zu: group %zu, begin %zu, elems %zu, offset %zu, seed %llu",
        what, row, i, s->group, s->begin, s->elems, s->offset, (unsigned long long)seed);
}

Test(kernels, every_table_is_complete_and_ends_with_the_c_row)
{
    for (int f = 0; f < qcclNumFormats; f++) {
        const struct kernels *row = qccl_kernel_rows((qcclFormat_t)f);
        for (; row->name; row++) {
            cr_assert(row->encode && row->decode && row->decode_add && row->sum, "%s", row->name);
            cr_assert(row[1].name || row == qccl_kernels_c((qcclFormat_t)f), "%s", row->name);
        }
    }
    for (const struct converters *row = qccl_converter_rows(); row->name; row++)
        cr_assert(row->load_bf16 && row->load_fp16 && row->store_bf16 && row->store_fp16 &&
                      row->subtract && row->hadamard && row->scale,
                  "%s", row->name);
}

/* ------------------------------------------------------------------ encode */

struct encoded {
    float *residual;
    uint16_t *scales;
    uint8_t *codes;
};

static struct encoded encode(const struct kernels *row, const struct shape *s, const float *x,
                             const float *residual, const struct draw *draw)
{
    struct encoded e = {
        .residual = residual ? copy_of(residual, value_count(s) * sizeof(float)) : NULL,
        .scales = allocate(scale_count(s) * sizeof(uint16_t)),
        .codes = allocate(code_bytes(s)),
    };
    memset(e.scales, 0xaa, scale_count(s) * sizeof(uint16_t));
    memset(e.codes, 0xaa, code_bytes(s));
    struct encode_args args = {
        .x = x + s->offset,
        .residual = residual ? e.residual + s->offset : NULL,
        .begin = s->begin,
        .elems = s->elems,
        .group = s->group,
        .scales = e.scales,
        .codes = e.codes,
        .draw = draw,
    };
    row->encode(&args);
    return e;
}

static void free_encoded(struct encoded *e)
{
    free(e->residual);
    free(e->scales);
    free(e->codes);
}

static void check_encode_of(const struct kernels *row, const struct shape *s,
                            const struct kind *kind, const struct kind *lost, bool nearest)
{
    uint64_t seed = state;
    size_t bytes = value_count(s) * sizeof(float);
    float *x = allocate(bytes), *residual = lost ? allocate(bytes) : NULL;
    fill(x, value_count(s), kind);
    if (residual)
        fill(residual, value_count(s), lost);
    struct draw draw = {.first_tile = next() % 2 ? 0xfffffffdu : 5, .nearest = nearest};
    fill_bytes(draw.key, sizeof draw.key);
    fill_bytes(draw.counter, sizeof draw.counter);
    struct encoded got = encode(row, s, x, residual, &draw);
    struct encoded want = encode(qccl_kernels_c(s->format), s, x, residual, &draw);
    expect_equal(got.scales, want.scales, scale_count(s) * sizeof(uint16_t), kind->name, row->name,
                 s, seed);
    expect_equal(got.codes, want.codes, code_bytes(s), kind->name, row->name, s, seed);
    if (residual)
        expect_equal(got.residual, want.residual, bytes, "residual", row->name, s, seed);
    free_encoded(&got);
    free_encoded(&want);
    free(x);
    free(residual);
}

static void check_encode(const struct kernels *row, const struct shape *s)
{
    for (size_t k = 0; k < COUNT(kinds); k++)
        for (int nearest = 0; nearest < 2; nearest++) {
            check_encode_of(row, s, &kinds[k], NULL, nearest);
            check_encode_of(row, s, &kinds[k], &kinds[next() % COUNT(kinds)], nearest);
        }
}

Test(kernels, every_row_encodes_the_bytes_and_the_residual_of_the_c_row)
{
    state = 1;
    for_each_row(check_encode);
}

/* ------------------------------------------------------------------ decode */

struct coded {
    uint16_t *scales;
    uint8_t *codes;
};

static struct coded random_codes(const struct shape *s)
{
    struct coded c = {.scales = allocate(scale_count(s) * sizeof(uint16_t)),
                      .codes = allocate(code_bytes(s))};
    fill_scales(c.scales, scale_count(s));
    fill_bytes(c.codes, code_bytes(s));
    return c;
}

static void free_coded(struct coded *c)
{
    free(c->scales);
    free(c->codes);
}

static float *decode(const struct kernels *row, const struct shape *s, const struct coded *c,
                     const float *before, bool add, bool stream)
{
    float *out = copy_of(before, value_count(s) * sizeof(float));
    struct decode_args args = {
        .scales = c->scales,
        .codes = c->codes,
        .begin = s->begin,
        .elems = s->elems,
        .group = s->group,
        .out = out + s->offset,
        .stream = stream,
    };
    (add ? row->decode_add : row->decode)(&args);
    return out;
}

static void check_decode(const struct kernels *row, const struct shape *s)
{
    for (size_t k = 0; k < COUNT(kinds); k++)
        for (int mode = 0; mode < 4; mode++) {
            uint64_t seed = state;
            bool add = mode % 2, stream = mode / 2;
            float *before = allocate(value_count(s) * sizeof(float));
            fill(before, value_count(s), &kinds[k]);
            struct coded c = random_codes(s);
            float *got = decode(row, s, &c, before, add, stream);
            float *want = decode(qccl_kernels_c(s->format), s, &c, before, add, stream);
            expect_equal(got, want, value_count(s) * sizeof(float), add ? "decode_add" : "decode",
                         row->name, s, seed);
            free(before);
            free(got);
            free(want);
            free_coded(&c);
        }
}

Test(kernels, every_row_decodes_any_scales_and_codes_as_the_c_row_does)
{
    state = 2;
    for_each_row(check_decode);
}

/* ------------------------------------------------------------------ sum */

enum { PARTS_MAX = 9 };

static float *sum(const struct kernels *row, const struct shape *s, const struct sum_part *parts,
                  int nparts, float weight, bool stream)
{
    float *out = allocate(value_count(s) * sizeof(float));
    memset(out, 0xaa, value_count(s) * sizeof(float));
    struct sum_args args = {
        .parts = parts,
        .nparts = nparts,
        .begin = s->begin,
        .elems = s->elems,
        .group = s->group,
        .weight = weight,
        .out = out + s->offset,
        .stream = stream,
    };
    row->sum(&args);
    return out;
}

/* A sum with its exact part at a position; -1: there is none. */
static void check_sum_of(const struct kernels *row, const struct shape *s, int nparts, int exact)
{
    uint64_t seed = state;
    struct coded coded[PARTS_MAX];
    struct sum_part parts[PARTS_MAX] = {{0}};
    float *values = allocate(value_count(s) * sizeof(float));
    fill(values, value_count(s), &kinds[next() % COUNT(kinds)]);
    for (int p = 0; p < nparts; p++) {
        coded[p] = random_codes(s);
        parts[p].scales = coded[p].scales;
        parts[p].codes = coded[p].codes;
        if (p == exact)
            parts[p] = (struct sum_part){.exact = values + (p + s->offset) % 8};
    }
    float weight = next() % 2 ? 1.0f : 1.0f / (float)nparts;
    bool stream = next() % 2;
    float *got = sum(row, s, parts, nparts, weight, stream);
    float *want = sum(qccl_kernels_c(s->format), s, parts, nparts, weight, stream);
    expect_equal(got, want, value_count(s) * sizeof(float), "sum", row->name, s, seed);
    free(got);
    free(want);
    free(values);
    for (int p = 0; p < nparts; p++)
        free_coded(&coded[p]);
}

static void check_sum(const struct kernels *row, const struct shape *s)
{
    static const int counts[] = {1, 2, 3, 4, 7, PARTS_MAX};
    for (size_t c = 0; c < COUNT(counts); c++) {
        if (s->elems > 2048) { /* the exact part anywhere, not everywhere: time */
            check_sum_of(row, s, counts[c], (int)(next() % (uint64_t)counts[c]));
            check_sum_of(row, s, counts[c], -1);
            continue;
        }
        for (int exact = -1; exact < counts[c]; exact++)
            check_sum_of(row, s, counts[c], exact);
    }
}

Test(kernels, every_row_sums_any_number_of_parts_as_the_c_row_does)
{
    state = 3;
    for_each_row(check_sum);
}

/* The sum may go to the memory of its exact part. */
static void check_sum_in_place(const struct kernels *row, const struct shape *s)
{
    uint64_t seed = state;
    struct coded c = random_codes(s);
    float *values[2];
    values[0] = allocate(value_count(s) * sizeof(float));
    fill(values[0], value_count(s), &kinds[0]);
    values[1] = copy_of(values[0], value_count(s) * sizeof(float));
    for (int i = 0; i < 2; i++) {
        struct sum_part parts[2] = {{.scales = c.scales, .codes = c.codes},
                                    {.exact = values[i] + s->offset}};
        struct sum_args args = {
            .parts = parts,
            .nparts = 2,
            .begin = s->begin,
            .elems = s->elems,
            .group = s->group,
            .weight = 0.5f,
            .out = values[i] + s->offset,
            .stream = true,
        };
        (i ? row : qccl_kernels_c(s->format))->sum(&args);
    }
    expect_equal(values[1], values[0], value_count(s) * sizeof(float), "sum in place", row->name, s,
                 seed);
    free(values[0]);
    free(values[1]);
    free_coded(&c);
}

Test(kernels, a_sum_may_replace_its_exact_part)
{
    state = 4;
    for_each_row(check_sum_in_place);
}
