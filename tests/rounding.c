/* Stochastic rounding: no clamp is needed, the mean is exact, and random numbers of different
 * places are independent.
 *
 * Statistical tests use fixed seeds and exact tail bounds (Bernstein, Hoeffding), not normal
 * approximations: if the claim is true, a seed fails one of them with a probability of at most
 * ALARM. */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "base/half.h"
#include "qccl/qccl.h"
#include "quant/philox.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define ALARM 1e-9

/* ------------------------------------------------------------------ Philox */

Test(rounding, philox_gives_the_known_answers_of_random123)
{
    static const struct {
        uint32_t counter[4], key[2], words[4];
    } known[] = {
        {.counter = {0, 0, 0, 0},
         .key = {0, 0},
         .words = {0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48}},
        {.counter = {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         .key = {0xffffffff, 0xffffffff},
         .words = {0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662}},
        {.counter = {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         .key = {0xa4093822, 0x299f31d0},
         .words = {0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a}},
    };
    for (size_t i = 0; i < COUNT(known); i++) {
        uint32_t words[4];
        philox4x32_7(known[i].counter, known[i].key, words);
        for (int w = 0; w < 4; w++)
            cr_assert_eq(words[w], known[i].words[w], "vector %zu, word %d: %08x", i, w, words[w]);
    }
}

/* ------------------------------------------------------------------ no clamp */

/* A format's steps: fixed point values reach from -top * one to top * one; what is added before the
 * shift. */
static const struct steps {
    qcclFormat_t format;
    const char *codec;
    int top, one, offset;
} steps[] = {
    {.format = qcclFormatInt8, .codec = "int8", .top = 127, .one = 65536, .offset = 0},
    {.format = qcclFormatInt4, .codec = "int4", .top = 7, .one = 65536, .offset = 0},
    {.format = qcclFormatInt2, .codec = "int2", .top = 1, .one = 65536, .offset = 0},
    {.format = qcclFormatSr1, .codec = "sr1", .top = 1, .one = 32768, .offset = 32768},
};

/* docs/numerics.md, steps 2 and 3. */
static float scale_of(const struct steps *s, float max)
{
    return qccl_bits_float((uint32_t)qccl_bf16_up(max / (float)s->top) << 16);
}

static int fixed_point(const struct steps *s, float x, float scale)
{
    return (int)lrintf(x * (1.0f / scale * (float)s->one));
}

/* The largest finite value whose scale is `scale`, 0 if there is none: scales rise with values, so
 * bisection finds it. */
static float largest_with(const struct steps *s, float scale)
{
    uint32_t low = 0, high = qccl_float_bits(FLT_MAX);
    while (low < high) {
        uint32_t middle = high - (high - low) / 2;
        if (scale_of(s, qccl_bits_float(middle)) <= scale)
            low = middle;
        else
            high = middle - 1;
    }
    float x = qccl_bits_float(low);
    return scale_of(s, x) == scale ? x : 0.0f;
}

/* Products and their rounding rise with x, so the largest x of each scale decides for all x of that
 * scale. */
Test(rounding, no_value_of_any_scale_leaves_the_levels_so_no_clamp_is_needed)
{
    for (size_t f = 0; f < COUNT(steps); f++) {
        const struct steps *s = &steps[f];
        int scales = 0, most = s->top * s->one;
        for (uint32_t bits = 1; bits <= 0x7f80; bits++) {
            float scale = qccl_bits_float(bits << 16), max = largest_with(s, scale);
            if (max < 0x1p-100f)
                continue;
            scales++;
            int v = fixed_point(s, max, scale), low = fixed_point(s, -max, scale);
            cr_assert(v <= most && low >= -most, "%s: scale %04x, largest %a: %d of %d", s->codec,
                      bits, (double)max, v, most);
            int lowest = s->offset ? 0 : -s->top;
            cr_assert((s->offset + v + 65535) >> 16 <= s->top, "%s: %04x", s->codec, bits);
            cr_assert((s->offset + low) >> 16 >= lowest, "%s: %04x", s->codec, bits);
        }
        /* Magnitudes from 2^-100 to 2^128 span 228 binades, and so do their scales, of 128
         * mantissas each. */
        cr_assert_gt(scales, 128 * 227, "%s: %d scales", s->codec, scales);
    }
}

/* ------------------------------------------------------------------ exact mean */

Test(rounding, the_mean_over_all_random_numbers_is_the_value_exactly)
{
    static const int near[] = {0, 1, 2, 3, 4095, 32767, 32768, 32769, 65533, 65534, 65535};
    for (int level = -128; level < 128; level++)
        for (size_t i = 0; i < COUNT(near); i++) {
            int v = level * 65536 + near[i];
            int64_t sum = 0;
            for (int k = 0; k < 65536; k++)
                sum += (v + k) >> 16;
            cr_assert_eq(sum, v, "v = %d: %lld", v, (long long)sum);
        }
}

static qcclCodec_t parse(const char *text)
{
    qcclCodec_t codec;
    cr_assert_eq(qcclCodecParse(text, &codec), qcclSuccess, "%s", qcclGetLastError());
    return codec;
}

/* Encodes and decodes count values at a position. */
static void through(const char *text, const qcclPosition_t *at, const float *x, float *out,
                    size_t count)
{
    qcclCodec_t codec = parse(text);
    size_t bytes;
    cr_assert_eq(qcclEncodedBytes(&codec, count, &bytes), qcclSuccess);
    void *message = aligned_alloc(64, (bytes + 63) / 64 * 64);
    cr_assert_not_null(message);
    cr_assert_eq(qcclEncode(&codec, at, x, qcclFloat32, count, NULL, message, bytes), qcclSuccess,
                 "%s", qcclGetLastError());
    cr_assert_eq(qcclDecode(message, bytes, out, qcclFloat32, count, 0), qcclSuccess, "%s",
                 qcclGetLastError());
    free(message);
}

/* What a sum of `trials` independent terms within 1 of each other may differ from its mean, whose
 * variance each is `variance`: Bernstein, P(|S| >= t) <= 2 exp(-t^2 / (2 (trials * variance + t /
 * 3))). */
static double bernstein(double trials, double variance, double tests)
{
    double l = log(2 * tests / ALARM);
    return l / 3 + sqrt(l * l / 9 + 2 * trials * variance * l);
}

enum { VALUES = 256, TRIALS = 2000 };

/* The steps between levels that x lies in: the lower level is lower, the next lower + width, at a
 * share of the way. */
struct between {
    double lower, width, share;
};

static struct between between_ints(const struct steps *s, float x, float scale)
{
    int v = fixed_point(s, x, scale) + s->offset, down = v >> 16;
    double share = (v - down * 65536) / 65536.0;
    if (s->offset) /* one bit: minus or plus the scale */
        return (struct between){
            .lower = (2 * down - 1) * (double)scale, .width = 2 * (double)scale, .share = share};
    return (struct between){.lower = down * (double)scale, .width = scale, .share = share};
}

static struct between between_bf16(float x)
{
    uint32_t u = qccl_float_bits(x);
    double toward_zero = qccl_bits_float(u & 0xffff0000u);
    double away = qccl_bits_float((u & 0xffff0000u) + 0x10000u);
    return (struct between){
        .lower = toward_zero, .width = away - toward_zero, .share = (u & 0xffff) / 65536.0};
}

static void ramp(float *x)
{
    for (int i = 0; i < VALUES; i++)
        x[i] = ((i * 37) % VALUES - VALUES / 2) * 0.0123f;
    for (int g = 0; g < VALUES;
         g += 128) /* the largest of each group, from which all scales follow */
        x[g + 5] = 3.1415926f;
}

static void check_mean(const char *codec, const struct between *between, const float *x)
{
    double ups[VALUES] = {0};
    float out[VALUES];
    for (uint64_t seed = 0; seed < TRIALS; seed++) {
        qcclPosition_t at = {.seed = seed * 0x9e3779b97f4a7c15u, .segment = 3, .rank = 1};
        through(codec, &at, x, out, VALUES);
        for (int i = 0; i < VALUES; i++) {
            double up = (out[i] - between[i].lower) / between[i].width;
            cr_assert(up == 0 || up == 1, "%s: value %d of seed %llu is on no level next to it: %a",
                      codec, i, (unsigned long long)seed, (double)out[i]);
            ups[i] += up;
        }
    }
    for (int i = 0; i < VALUES; i++) {
        double share = between[i].share, lost = ups[i] - TRIALS * share;
        double bound = bernstein(TRIALS, share * (1 - share), VALUES * (double)(COUNT(steps) + 1));
        cr_assert(fabs(lost) <= bound, "%s: value %d went up %g times of %d, expected %g +- %g",
                  codec, i, ups[i], TRIALS, TRIALS * share, bound);
    }
}

Test(rounding, the_mean_over_seeds_is_the_value)
{
    float x[VALUES];
    struct between between[VALUES];
    ramp(x);
    for (size_t f = 0; f < COUNT(steps); f++) {
        float scale = scale_of(&steps[f], 3.1415926f);
        for (int i = 0; i < VALUES; i++)
            between[i] = between_ints(&steps[f], x[i], scale);
        check_mean(steps[f].codec, between, x);
    }
    for (int i = 0; i < VALUES; i++)
        between[i] = between_bf16(x[i]);
    check_mean("bf16:round=stochastic", between, x);
}

/* ------------------------------------------------------------------ independence */

enum { COINS = 1 << 18 };

/* The first bit of every element's random number: int4 with groups whose scale is 1, and a value
 * halfway between two levels.  The first element of a group is its largest and has no coin. */
static void coins(const qcclPosition_t *at, uint8_t *coin)
{
    float *x = malloc(COINS * sizeof *x), *out = malloc(COINS * sizeof *out);
    cr_assert(x && out);
    for (int i = 0; i < COINS; i++)
        x[i] = i % 128 ? 0.5f : 7.0f;
    through("int4", at, x, out, COINS);
    for (int i = 0; i < COINS; i++) {
        cr_assert(i % 128 == 0 ? out[i] == 7.0f : out[i] == 0.0f || out[i] == 1.0f);
        coin[i] = out[i] == 1.0f;
    }
    free(x);
    free(out);
}

enum { COMPARISONS = 16 };

/* Equal coins are half of all, within Hoeffding's bound: P(|S - n / 2| >= t) <= 2 exp(-2 t^2 / n).
 */
static void expect_independent(const uint8_t *a, const uint8_t *b, int distance, const char *what)
{
    double equal = 0, pairs = 0;
    for (int i = 0; i + distance < COINS; i++)
        if (i % 128 && (i + distance) % 128) {
            equal += a[i] == b[i + distance];
            pairs++;
        }
    double bound = sqrt(pairs / 2 * log(2 * COMPARISONS / ALARM));
    cr_assert(fabs(equal - pairs / 2) <= bound, "%s: %g of %g pairs are equal, bound %g", what,
              equal, pairs, bound);
}

Test(rounding, random_numbers_of_neighbours_rows_and_tiles_are_independent)
{
    static const struct {
        int distance;
        const char *what;
    } pairs[] = {
        {.distance = 1, .what = "neighbours"},    {.distance = 2, .what = "even and odd lanes"},
        {.distance = 8, .what = "half a row"},    {.distance = 16, .what = "rows"},
        {.distance = 32, .what = "words"},        {.distance = 64, .what = "half a tile"},
        {.distance = 128, .what = "tiles"},       {.distance = 2048, .what = "blocks"},
        {.distance = 65536, .what = "far tiles"},
    };
    uint8_t *coin = malloc(COINS);
    cr_assert_not_null(coin);
    qcclPosition_t at = {.seed = 42, .segment = 1, .sequence = 7, .rank = 2};
    coins(&at, coin);
    for (size_t i = 0; i < COUNT(pairs); i++)
        expect_independent(coin, coin, pairs[i].distance, pairs[i].what);
    free(coin);
}

Test(rounding, random_numbers_of_ranks_segments_sequences_stages_and_seeds_are_independent)
{
    static const qcclPosition_t base = {.seed = 42, .segment = 1, .sequence = 7, .rank = 2};
    static const struct {
        qcclPosition_t at;
        const char *what;
    } others[] = {
        {.at = {.seed = 43, .segment = 1, .sequence = 7, .rank = 2}, .what = "seeds"},
        {.at = {.seed = 42 + (1ull << 32), .segment = 1, .sequence = 7, .rank = 2},
         .what = "high words of seeds"},
        {.at = {.seed = 42, .segment = 2, .sequence = 7, .rank = 2}, .what = "segments"},
        {.at = {.seed = 42, .segment = 1, .sequence = 8, .rank = 2}, .what = "sequences"},
        {.at = {.seed = 42, .segment = 1, .sequence = 7, .rank = 3}, .what = "ranks"},
        {.at = {.seed = 42, .segment = 1, .sequence = 7, .rank = 2, .stage = 1}, .what = "stages"},
        {.at = {.seed = 42, .segment = 1, .sequence = 7, .rank = 2, .first = 128},
         .what = "places"},
    };
    uint8_t *first = malloc(COINS), *second = malloc(COINS);
    cr_assert(first && second);
    coins(&base, first);
    for (size_t i = 0; i < COUNT(others); i++) {
        coins(&others[i].at, second);
        expect_independent(first, second, 0, others[i].what);
    }
    free(first);
    free(second);
}

/* A message that begins later in its segment draws what the whole segment draws there. */
Test(rounding, random_numbers_depend_on_the_position_in_the_segment_alone)
{
    uint8_t *whole = malloc(COINS), *later = malloc(COINS);
    cr_assert(whole && later);
    qcclPosition_t at = {.seed = 42, .segment = 1, .sequence = 7, .rank = 2};
    coins(&at, whole);
    at.first = 4096;
    coins(&at, later);
    for (int i = 0; i + 4096 < COINS; i++)
        cr_assert_eq(later[i], whole[i + 4096], "element %d", i);
    free(whole);
    free(later);
}
