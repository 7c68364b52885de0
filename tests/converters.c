/* Every row of the converters computes the bits of the C row: half floats both ways, at all of
 * their values and rounding boundaries, subtraction, scaling, and the Hadamard transform. */
#include "quant/kernels.h"
#include "tests/kernel_inputs.h"

static void expect_equal(const void *got, const void *want, size_t bytes, const char *what,
                         const char *row, uint64_t seed)
{
    size_t i = first_difference(got, want, bytes);
    cr_assert(i == bytes, "%s of %s differs at byte %zu, seed %llu", what, row, i,
              (unsigned long long)seed);
}

static void for_each_converter(void (*check)(const struct converters *row,
                                             const struct converters *c_row))
{
    int rows = 0;
    const struct converters *c_row = qccl_converter_rows();
    while (c_row[1].name)
        c_row++;
    for (const struct converters *row = qccl_converter_rows(); row < c_row; row++)
        if (runs(row->cpu)) {
            rows++;
            check(row, c_row);
        }
    if (!rows)
        cr_skip_test("no vector row runs on this processor");
}

/* All 65536 halves, from an odd address, in pieces with every length of tail. */
static void check_loads(const struct converters *row, const struct converters *c_row)
{
    enum { HALVES = 65536 };
    char *halves = allocate(2 * HALVES + 1);
    float *got = allocate(HALVES * sizeof(float)), *want = allocate(HALVES * sizeof(float));
    for (uint32_t i = 0; i < HALVES; i++)
        memcpy(halves + 1 + 2 * i, &(uint16_t){(uint16_t)i}, 2);
    for (size_t at = 0, piece = 1; at < HALVES; at += piece, piece = piece % 97 + 1) {
        size_t elems = HALVES - at < piece ? HALVES - at : piece;
        row->load_bf16(got + at, halves + 1 + 2 * at, elems);
    }
    c_row->load_bf16(want, halves + 1, HALVES);
    expect_equal(got, want, HALVES * sizeof(float), "load_bf16", row->name, 0);
    row->load_fp16(got, halves + 1, HALVES - 5);
    row->load_fp16(got + HALVES - 5, halves + 1 + 2 * (HALVES - 5), 5);
    c_row->load_fp16(want, halves + 1, HALVES);
    expect_equal(got, want, HALVES * sizeof(float), "load_fp16", row->name, 0);
    free(halves);
    free(got);
    free(want);
}

Test(converters, every_converter_row_loads_all_halves_as_the_c_row_does)
{
    for_each_converter(check_loads);
}

static void check_stores_of(const struct converters *row, const struct converters *c_row,
                            const float *x, size_t elems)
{
    size_t bytes = 2 * elems + SLACK;
    char *got = allocate(bytes), *want = allocate(bytes);
    memset(got, 0xaa, bytes);
    memset(want, 0xaa, bytes);
    row->store_bf16(got + 1, x, elems);
    c_row->store_bf16(want + 1, x, elems);
    expect_equal(got, want, bytes, "store_bf16", row->name, 0);
    row->store_fp16(got + 1, x, elems);
    c_row->store_fp16(want + 1, x, elems);
    expect_equal(got, want, bytes, "store_fp16", row->name, 0);
    free(got);
    free(want);
}

/* Every bf16 and every normal fp16 boundary: each top 19 bits with low bits at, next to and between
 * the rounding points; then the boundaries of subnormal fp16, in steps of 2^-25. */
static void check_stores(const struct converters *row, const struct converters *c_row)
{
    static const uint32_t low[] = {0, 1, 0xfff, 0x1000, 0x1001, 0x1fff};
    enum { TOPS = 4096, ELEMS = TOPS * 6 };
    float *x = allocate(ELEMS * sizeof(float));
    for (uint32_t top = 0; top < 1u << 19; top += TOPS) {
        for (uint32_t i = 0; i < ELEMS; i++)
            x[i] = qccl_bits_float((top + i / 6) << 13 | low[i % 6]);
        check_stores_of(row, c_row, x, ELEMS);
    }
    for (int i = 0; i < 4096; i++) {
        float boundary = ldexpf((float)(i - 2048), -25);
        x[3 * i] = boundary;
        x[3 * i + 1] = nextafterf(boundary, 1.0f);
        x[3 * i + 2] = nextafterf(boundary, -1.0f);
    }
    check_stores_of(row, c_row, x, 3 * 4096 - 1);
    free(x);
}

Test(converters, every_converter_row_rounds_at_all_boundaries_as_the_c_row_does)
{
    for_each_converter(check_stores);
}

/* Between transforms a NaN may have any sign and payload: scale and encode make it canonical. */
static void unify_nans(float *x, size_t elems)
{
    for (size_t i = 0; i < elems; i++)
        x[i] = qccl_canonical(x[i]);
}

static void check_arithmetic(const struct converters *row, const struct converters *c_row)
{
    enum { ELEMS = 3 * 128 * 16, BYTES = ELEMS * sizeof(float) };
    for (size_t k = 0; k < COUNT(kinds); k++)
        for (size_t order = 32; order <= 128; order *= 2) {
            uint64_t seed = state;
            float *got = allocate(BYTES), *other = allocate(BYTES);
            fill(got, ELEMS, &kinds[k]);
            fill(other, ELEMS, &kinds[next() % COUNT(kinds)]);
            float *want = copy_of(got, BYTES);
            size_t offset = order / 32, elems = ELEMS - 128;
            row->hadamard(got + offset, elems, order);
            c_row->hadamard(want + offset, elems, order);
            unify_nans(got, ELEMS);
            unify_nans(want, ELEMS);
            expect_equal(got, want, BYTES, "hadamard", row->name, seed);
            row->subtract(got + offset, other, elems - order / 16);
            c_row->subtract(want + offset, other, elems - order / 16);
            unify_nans(got, ELEMS);
            unify_nans(want, ELEMS);
            expect_equal(got, want, BYTES, "subtract", row->name, seed);
            row->scale(got + offset, 1.0f / 3.0f, elems - order / 16);
            c_row->scale(want + offset, 1.0f / 3.0f, elems - order / 16);
            expect_equal(got, want, BYTES, "scale", row->name, seed);
            free(got);
            free(want);
            free(other);
        }
}

Test(converters, every_converter_row_transforms_subtracts_and_scales_as_the_c_row_does)
{
    state = 5;
    for_each_converter(check_arithmetic);
}
