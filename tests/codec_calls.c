/* qcclEncode, qcclDecode, qcclDecodeSum, qcclDecodeSumEncode: what they share, bounds from the step
 * size, any address, any count.
 *
 * That the values are the specified ones is golden_values.c's affair, that all kernel rows agree is
 * kernels.c's. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "quant/codec.h"
#include "tests/inputs.h"

static const char *const codecs[] = {
    "none",
    "bf16",
    "bf16:round=stochastic",
    "int8",
    "int8:group=32",
    "int4",
    "int4:hadamard=32",
    "int4:group=2048,hadamard=128",
    "int4:group=96",
    "int2:group=64",
    "int2:round=nearest",
    "sr1",
    "sr1:group=160",
    "sign1",
    "sign1:group=256,hadamard=64",
    "int4:round=nearest",
};
enum { CODECS = sizeof codecs / sizeof *codecs };
static const size_t counts[] = {0, 1, 15, 16, 17, 127, 128, 129, 1000, 2048, 4097, 9000};
enum { COUNTS = sizeof counts / sizeof *counts };

static qcclCodec_t codec_of(const char *text)
{
    qcclCodec_t codec;
    cr_assert_eq(qcclCodecParse(text, &codec), qcclSuccess, "%s", qcclGetLastError());
    return codec;
}

static void *memory_of(size_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 128) / 64 * 64);
    cr_assert(memory);
    return memory;
}

/* A fresh message of count values; the caller frees it. */
static void *encoded(const qcclCodec_t *codec, const qcclPosition_t *position, const void *values,
                     qcclDataType_t type, size_t count, float *residual, size_t *bytes)
{
    cr_assert_eq(qcclEncodedBytes(codec, count, bytes), qcclSuccess);
    void *message = memory_of(*bytes);
    cr_assert_eq(qcclEncode(codec, position, values, type, count, residual, message, *bytes),
                 qcclSuccess, "%s", qcclGetLastError());
    return message;
}

static float *filled(size_t count, enum pattern pattern, uint64_t seed)
{
    float *values = memory_of(count * sizeof *values);
    input_fill(values, count, qcclFloat32, pattern, seed, 0);
    return values;
}

/* ------------------------------------------------------------------ bounds */

/* How far one value of a group may be from its decoded one: a step when rounded stochastically,
 * half when to nearest, and the roundings of the reciprocal, the product and its conversion, of two
 * units of the 16-bit fraction at most. */
static double step_bound(const qcclCodec_t *codec, float max)
{
    int levels = codec->format == qcclFormatInt8 ? 127 : codec->format == qcclFormatInt4 ? 7 : 1;
    float step = qccl_bits_float((uint32_t)qccl_bf16_up(max / (float)levels) << 16);
    return (double)step * ((codec->nearest ? 0.5 : 1.0) + 0x1p-15);
}

static void check_bound(const qcclCodec_t *codec, const char *text, enum pattern pattern)
{
    enum { COUNT = 3000 };
    float *x = filled(COUNT, pattern, 5), *y = memory_of(COUNT * sizeof *y);
    qcclPosition_t position = {.seed = 9};
    size_t bytes;
    void *message = encoded(codec, &position, x, qcclFloat32, COUNT, NULL, &bytes);
    cr_assert_eq(qcclDecode(message, bytes, y, qcclFloat32, COUNT, 0), qcclSuccess);
    for (size_t group = 0; group < COUNT; group += codec->group) {
        size_t end = group + codec->group < COUNT ? group + codec->group : COUNT;
        float max = 0;
        for (size_t i = group; i < end; i++)
            max = fmaxf(max, fabsf(x[i]));
        double bound = max < 0x1p-100f ? (double)max : step_bound(codec, max);
        for (size_t i = group; i < end; i++)
            cr_assert_leq(fabs((double)x[i] - (double)y[i]), bound, "%s, %s: %a became %a at %zu",
                          text, input_name(pattern), (double)x[i], (double)y[i], i);
    }
    free(message);
    free(x);
    free(y);
}

Test(codec_calls, no_value_moves_by_more_than_its_step)
{
    static const char *const texts[] = {"int8",
                                        "int4",
                                        "int2:group=64",
                                        "int4:group=96",
                                        "int4:round=nearest",
                                        "int8:group=32,round=nearest"};
    static const enum pattern patterns[] = {INPUT_NORMAL, INPUT_SPIKE,    INPUT_NEGATIVE,
                                            INPUT_EQUAL,  INPUT_DENORMAL, INPUT_TINY,
                                            INPUT_BLOCKS, INPUT_LEVELS,   INPUT_WIDE};
    for (size_t t = 0; t < sizeof texts / sizeof *texts; t++)
        for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++) {
            qcclCodec_t codec = codec_of(texts[t]);
            check_bound(&codec, texts[t], patterns[p]);
        }
}

Test(codec_calls, values_on_the_levels_are_exact)
{
    enum { COUNT = 1280 };
    float x[COUNT], y[COUNT];
    qcclPosition_t position = {.seed = 1};
    size_t bytes;
    for (size_t i = 0; i < COUNT; i++)
        x[i] = i % 128 ? (float)((int)(input_hash(1, 0, i) % 15) - 7) : 7.0f;
    static const char *const texts[] = {"int4", "int4:round=nearest"};
    for (int t = 0; t < 2; t++) {
        qcclCodec_t codec = codec_of(texts[t]);
        void *message = encoded(&codec, &position, x, qcclFloat32, COUNT, NULL, &bytes);
        cr_assert_eq(qcclDecode(message, bytes, y, qcclFloat32, COUNT, 0), qcclSuccess);
        cr_expect_eq(memcmp(x, y, sizeof x), 0, "%s", texts[t]);
        free(message);
    }
}

Test(codec_calls, none_keeps_every_bit_and_bf16_rounds_to_nearest_even)
{
    enum { COUNT = 5000 };
    float *x = filled(COUNT, INPUT_WIDE, 3), *y = memory_of(COUNT * sizeof *y);
    qcclPosition_t position = {.seed = 0};
    size_t bytes;
    qcclCodec_t none = codec_of("none"), bf16 = codec_of("bf16");
    void *message = encoded(&none, &position, x, qcclFloat32, COUNT, NULL, &bytes);
    cr_assert_eq(qcclDecode(message, bytes, y, qcclFloat32, COUNT, 0), qcclSuccess);
    cr_expect_eq(memcmp(x, y, COUNT * sizeof *x), 0);
    free(message);
    message = encoded(&bf16, &position, x, qcclFloat32, COUNT, NULL, &bytes);
    cr_assert_eq(qcclDecode(message, bytes, y, qcclFloat32, COUNT, 0), qcclSuccess);
    for (size_t i = 0; i < COUNT; i++)
        cr_assert_eq(qccl_float_bits(y[i]), (uint32_t)qccl_bf16_nearest(x[i]) << 16, "%a became %a",
                     (double)x[i], (double)y[i]);
    free(message);
    free(x);
    free(y);
}

/* ------------------------------------------------------------------ NaN and infinity */

Test(codec_calls, a_nan_or_an_infinity_poisons_its_group_alone_and_arrives_as_the_canonical_nan)
{
    static const uint32_t bad[] = {0x7fc00000, 0x7f800001, 0xffffffff, 0x7f800000, 0xff800000};
    enum { COUNT = 1024, GROUP = 128 };
    for (size_t c = 3; c < CODECS; c++)
        for (size_t b = 0; b < sizeof bad / sizeof *bad; b++) {
            qcclCodec_t codec = codec_of(codecs[c]);
            float *x = filled(COUNT, INPUT_NORMAL, 7), y[COUNT];
            size_t at = 333, bytes, group = codec.group;
            x[at] = qccl_bits_float(bad[b]);
            qcclPosition_t position = {.seed = 2};
            void *message = encoded(&codec, &position, x, qcclFloat32, COUNT, NULL, &bytes);
            cr_assert_eq(qcclDecode(message, bytes, y, qcclFloat32, COUNT, 0), qcclSuccess);
            for (size_t i = 0; i < COUNT; i++) {
                bool same_group = i / group == at / group;
                cr_assert_eq(same_group, isnan(y[i]) != 0, "%s, %08x: element %zu is %a", codecs[c],
                             bad[b], i, (double)y[i]);
                cr_assert(!same_group || qccl_float_bits(y[i]) == 0x7fc00000);
            }
            free(message);
            free(x);
        }
}

/* ------------------------------------------------------------------ types and addresses */

static void check_type(const char *text, qcclDataType_t type, size_t count)
{
    qcclCodec_t codec = codec_of(text);
    size_t width = qcclTypeBytes(type), bytes, again;
    qcclPosition_t position = {.seed = 11, .segment = 3};
    float *wide = memory_of(count * sizeof *wide), *decoded = memory_of(count * sizeof *decoded);
    char *typed = memory_of(count * width), *odd = memory_of(count * width + 8),
         *out = memory_of(count * width);
    input_fill(typed, count, type, INPUT_SPECIAL, 4, 0);
    for (size_t i = 0; i < count; i++) {
        uint16_t h;
        memcpy(&h, typed + i * width, 2);
        if (type == qcclFloat32)
            memcpy(&wide[i], typed + 4 * i, 4);
        else
            wide[i] = type == qcclFloat16 ? qccl_fp16_to_float(h) : qccl_bf16_to_float(h);
    }
    void *expected = encoded(&codec, &position, wide, qcclFloat32, count, NULL, &bytes);
    cr_assert_eq(qcclDecode(expected, bytes, decoded, qcclFloat32, count, 0), qcclSuccess);
    for (size_t off = 0; off < 4; off++) {
        memcpy(odd + off, typed, count * width);
        void *message = encoded(&codec, &position, odd + off, type, count, NULL, &again);
        cr_assert(again == bytes && memcmp(message, expected, bytes) == 0,
                  "%s, type %d, %zu values, address + %zu", text, (int)type, count, off);
        cr_assert_eq(qcclDecode(message, bytes, odd + off, type, count, 0), qcclSuccess);
        for (size_t i = 0; i < count; i++) {
            uint16_t h =
                type == qcclFloat16 ? qccl_fp16_nearest(decoded[i]) : qccl_bf16_nearest(decoded[i]);
            memcpy(out + i * width, type == qcclFloat32 ? (void *)&decoded[i] : (void *)&h, width);
        }
        cr_assert_eq(memcmp(out, odd + off, count * width), 0,
                     "%s, type %d, %zu values, address + %zu", text, (int)type, count, off);
        free(message);
    }
    free(expected);
    free(wide);
    free(decoded);
    free(typed);
    free(odd);
    free(out);
}

Test(codec_calls, every_type_and_address_gives_the_message_of_the_exactly_widened_values)
{
    static const qcclDataType_t types[] = {qcclFloat32, qcclBfloat16, qcclFloat16};
    for (size_t c = 0; c < CODECS; c++)
        for (size_t n = 0; n < COUNTS; n++)
            for (size_t t = 0; t < 3; t++)
                check_type(codecs[c], types[t], counts[n]);
}

/* ------------------------------------------------------------------ chunks */

Test(codec_calls, a_segment_in_chunks_decodes_to_the_bits_of_the_whole)
{
    enum { COUNT = 24576 + 777, CHUNK = 6144 };
    for (size_t c = 0; c < CODECS; c++) {
        qcclCodec_t codec = codec_of(codecs[c]);
        float *x = filled(COUNT, INPUT_SPECIAL, 6), *whole = memory_of(COUNT * sizeof *whole),
              *pieces = memory_of(COUNT * sizeof *pieces);
        qcclPosition_t position = {.seed = 3, .segment = 1, .sequence = 2, .rank = 4, .stage = 1};
        size_t bytes, chunk = qccl_lcm(CHUNK, codec.group);
        void *message = encoded(&codec, &position, x, qcclFloat32, COUNT, NULL, &bytes);
        cr_assert_eq(qcclDecode(message, bytes, whole, qcclFloat32, COUNT, 0), qcclSuccess);
        free(message);
        for (; position.first < COUNT; position.first += chunk) {
            size_t at = position.first, n = COUNT - at < chunk ? COUNT - at : chunk;
            message = encoded(&codec, &position, x + at, qcclFloat32, n, NULL, &bytes);
            cr_assert_eq(qcclDecode(message, bytes, pieces + at, qcclFloat32, n, 0), qcclSuccess);
            free(message);
        }
        cr_expect_eq(memcmp(whole, pieces, COUNT * sizeof *whole), 0, "%s", codecs[c]);
        free(x);
        free(whole);
        free(pieces);
    }
}

/* ------------------------------------------------------------------ sums */

enum { PARTS = 5 };

struct parts {
    void *message[PARTS];
    size_t bytes[PARTS];
    float *decoded[PARTS]; /* in the values' domain */
};

static void open_parts(struct parts *parts, const qcclCodec_t *codec, size_t count)
{
    for (int p = 0; p < PARTS; p++) {
        float *x = filled(count, p == 3 ? INPUT_SPECIAL : INPUT_NORMAL, 20 + (uint64_t)p);
        qcclPosition_t position = {.seed = 8, .rank = (uint32_t)p};
        parts->message[p] =
            encoded(codec, &position, x, qcclFloat32, count, NULL, &parts->bytes[p]);
        cr_assert_eq(qcclDecode(parts->message[p], parts->bytes[p], x, qcclFloat32, count, 0),
                     qcclSuccess);
        parts->decoded[p] = x;
    }
}

static void close_parts(struct parts *parts)
{
    for (int p = 0; p < PARTS; p++) {
        free(parts->message[p]);
        free(parts->decoded[p]);
    }
}

static float sum_in_order(const struct parts *parts, size_t i, float weight)
{
    float total = parts->decoded[0][i];
    for (int p = 1; p < PARTS; p++)
        total += parts->decoded[p][i];
    return qccl_canonical(total * weight);
}

static void check_sum(const char *text, size_t count, float weight)
{
    qcclCodec_t codec = codec_of(text);
    struct parts parts;
    float *sum = memory_of(count * sizeof *sum);
    open_parts(&parts, &codec, count);
    cr_assert_eq(qcclDecodeSum((const void *const *)parts.message, parts.bytes, PARTS, weight, sum,
                               qcclFloat32, count),
                 qcclSuccess, "%s", qcclGetLastError());
    for (size_t i = 0; i < count && !codec.hadamard; i++) {
        float expected = sum_in_order(&parts, i, weight);
        cr_assert_eq(qccl_float_bits(sum[i]), qccl_float_bits(expected),
                     "%s, %zu of %zu: %a instead of %a", text, i, count, (double)sum[i],
                     (double)expected);
    }
    qcclPosition_t position = {.seed = 4, .stage = 1};
    size_t bytes;
    void *expected = encoded(&codec, &position, sum, qcclFloat32, count, NULL, &bytes),
         *fused = memory_of(bytes);
    cr_assert_eq(qcclDecodeSumEncode((const void *const *)parts.message, parts.bytes, PARTS, weight,
                                     &codec, &position, count, fused, bytes),
                 qcclSuccess, "%s", qcclGetLastError());
    cr_assert(codec.hadamard || memcmp(fused, expected, bytes) == 0,
              "%s, %zu values: fused differs", text, count);
    cr_assert_eq(qcclDecode(fused, bytes, sum, qcclFloat32, count, 0), qcclSuccess, "%s",
                 qcclGetLastError());
    free(expected);
    free(fused);
    free(sum);
    close_parts(&parts);
}

Test(codec_calls, a_sum_of_messages_adds_decoded_values_in_order_and_weights_them_once)
{
    for (size_t c = 0; c < CODECS; c++)
        for (size_t n = 0; n < COUNTS; n++) {
            check_sum(codecs[c], counts[n], 1.0f);
            check_sum(codecs[c], counts[n], 0.2f);
        }
}

Test(codec_calls, decode_and_add_is_one_fp32_addition_a_value)
{
    for (size_t c = 0; c < CODECS; c++)
        for (size_t n = 0; n < COUNTS; n++) {
            qcclCodec_t codec = codec_of(codecs[c]);
            size_t count = counts[n], bytes;
            float *x = filled(count, INPUT_SPECIAL, 3), *y = filled(count, INPUT_NORMAL, 4),
                  *z = filled(count, INPUT_NORMAL, 4);
            qcclPosition_t position = {.seed = 6};
            void *message = encoded(&codec, &position, x, qcclFloat32, count, NULL, &bytes);
            cr_assert_eq(qcclDecode(message, bytes, x, qcclFloat32, count, 0), qcclSuccess);
            cr_assert_eq(qcclDecode(message, bytes, y, qcclFloat32, count, 1), qcclSuccess);
            for (size_t i = 0; i < count; i++)
                cr_assert_eq(qccl_float_bits(y[i]), qccl_float_bits(qccl_canonical(z[i] + x[i])),
                             "%s, %zu values, element %zu", codecs[c], count, i);
            free(message);
            free(x);
            free(y);
            free(z);
        }
}

/* ------------------------------------------------------------------ arguments */

struct codec_arguments {
    qcclCodec_t codec;
    qcclPosition_t position;
    float values[256];
    _Alignas(64) unsigned char message[1024];
    size_t bytes;
};

static struct codec_arguments fine_arguments(void)
{
    struct codec_arguments a = {.codec = {.format = qcclFormatInt4, .group = 128}};
    cr_assert_eq(qcclEncodedBytes(&a.codec, 256, &a.bytes), qcclSuccess);
    cr_assert_leq(a.bytes, sizeof a.message);
    return a;
}

static qcclResult_t encode_with(struct codec_arguments *a)
{
    return qcclEncode(&a->codec, &a->position, a->values, qcclFloat32, 256, NULL, a->message,
                      a->bytes);
}

Test(codec_calls, wrong_arguments_are_refused_with_their_numbers)
{
    struct codec_arguments a = fine_arguments();
    cr_expect_eq(encode_with(&a), qcclSuccess);
    a.position.rank = 1u << 24;
    cr_expect_eq(encode_with(&a), qcclInvalidArgument);
    cr_expect(strstr(qcclGetLastError(), "rank 16777216"), "%s", qcclGetLastError());
    a = fine_arguments();
    a.position.stage = 128;
    cr_expect_eq(encode_with(&a), qcclInvalidArgument);
    a = fine_arguments();
    a.position.first = 64;
    cr_expect_eq(encode_with(&a), qcclInvalidArgument);
    cr_expect(strstr(qcclGetLastError(), "first=64"), "%s", qcclGetLastError());
    a = fine_arguments();
    a.codec.group = 100;
    cr_expect_eq(encode_with(&a), qcclInvalidArgument);
    a = fine_arguments();
    a.bytes--;
    cr_expect_eq(encode_with(&a), qcclInvalidArgument);
    cr_expect(strstr(qcclGetLastError(), "capacity is"), "%s", qcclGetLastError());
    a = fine_arguments();
    cr_expect_eq(
        qcclEncode(&a.codec, &a.position, a.values, qcclInt32, 256, NULL, a.message, a.bytes),
        qcclInvalidArgument);
    cr_expect_eq(
        qcclEncode(&a.codec, &a.position, NULL, qcclFloat32, 256, NULL, a.message, a.bytes),
        qcclInvalidArgument);
    cr_expect_eq(
        qcclEncode(&a.codec, &a.position, a.values, qcclFloat32, 256, NULL, a.message + 4, 512),
        qcclInvalidArgument);
    cr_expect_eq(
        qcclEncode(NULL, &a.position, a.values, qcclFloat32, 256, NULL, a.message, a.bytes),
        qcclInvalidArgument);
    cr_expect_eq(qcclEncode(&a.codec, NULL, a.values, qcclFloat32, 256, NULL, a.message, a.bytes),
                 qcclInvalidArgument);
    cr_expect_eq(qcclDecode(NULL, a.bytes, a.values, qcclFloat32, 256, 0), qcclInvalidArgument);
    cr_expect_eq(qcclDecode(a.message + 4, a.bytes, a.values, qcclFloat32, 256, 0),
                 qcclInvalidArgument);
}

Test(codec_calls, a_sum_needs_messages_of_one_codec_and_count)
{
    struct codec_arguments a = fine_arguments(), b = fine_arguments();
    const void *messages[2] = {a.message, b.message};
    size_t bytes[2] = {a.bytes, b.bytes};
    float out[256];
    cr_assert_eq(encode_with(&a), qcclSuccess);
    cr_assert_eq(encode_with(&b), qcclSuccess);
    cr_expect_eq(qcclDecodeSum(messages, bytes, 2, 1.0f, out, qcclFloat32, 256), qcclSuccess);
    cr_expect_eq(qcclDecodeSum(messages, bytes, 0, 1.0f, out, qcclFloat32, 256),
                 qcclInvalidArgument);
    cr_expect_eq(qcclDecodeSum(messages, bytes, 2, 1.0f, out, qcclFloat32, 255),
                 qcclCorruptMessage);
    b.codec.group = 64;
    cr_assert_eq(qcclEncodedBytes(&b.codec, 256, &b.bytes), qcclSuccess);
    bytes[1] = b.bytes;
    cr_assert_eq(encode_with(&b), qcclSuccess);
    cr_expect_eq(qcclDecodeSum(messages, bytes, 2, 1.0f, out, qcclFloat32, 256),
                 qcclInvalidArgument);
    cr_expect(strstr(qcclGetLastError(), "message 1"), "%s", qcclGetLastError());
    b.message[70] ^= 1;
    b.message[20] ^= 1;
    cr_expect_eq(qcclDecodeSum(messages, bytes, 2, 1.0f, out, qcclFloat32, 256),
                 qcclCorruptMessage);
}

Test(codec_calls, a_result_code_has_a_sentence_and_the_version_is_the_headers)
{
    int version = 0;
    cr_expect_eq(qcclGetVersion(&version), qcclSuccess);
    cr_expect_eq(version, QCCL_VERSION);
    cr_expect_eq(qcclGetVersion(NULL), qcclInvalidArgument);
    for (int code = 0; code < 64; code++)
        cr_expect_gt(strlen(qcclGetErrorString((qcclResult_t)code)), 5);
    cr_expect_str_eq(qcclGetErrorString(qcclMismatch),
                     "ranks disagree about a call or a configuration");
    cr_expect_eq(qcclTypeBytes(qcclFloat64), 8);
    cr_expect_eq(qcclTypeBytes(qcclBfloat16), 2);
    cr_expect_eq(qcclTypeBytes((qcclDataType_t)10), 0);
    cr_expect_eq(qcclTypeBytes((qcclDataType_t)-1), 0);
}

Test(codec_calls, the_rows_of_this_processor_are_named_best_first_and_the_choice_can_be_capped)
{
    int rows = 0;
    while (qcclCpuName(rows))
        rows++;
    cr_assert_geq(rows, 1);
    cr_expect_str_eq(qcclCpuName(rows - 1), "c");
    cr_expect_null(qcclCpuName(-1));
    cr_expect_eq(qcclSetCpu("c"), qcclSuccess);
    cr_expect_eq(qcclSetCpu("sse"), qcclInvalidArgument);
    cr_expect(strstr(qcclGetLastError(), "c, avx2, avx512"), "%s", qcclGetLastError());
    cr_expect_eq(qcclSetCpu(NULL), qcclSuccess);
}
