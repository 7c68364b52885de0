/* The bytes of a message: golden ones, damaged ones, and ones whose header lies under a correct
 * checksum.
 *
 * The golden messages were laid out by tests/golden/message_maker.py from docs/wire-format.md and
 * the oracle's scales and codes. */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "tests/golden.h"

enum { MESSAGE_BYTES = 4096, HEADER_BYTES = 64, VALUES = 1024 };

/* A golden message, its values and its case. */
struct golden_message {
    qcclCodec_t codec;
    qcclPosition_t position;
    size_t count, bytes;
    bool checked;
    const char *decoded; /* in the form of golden_describe */
    float values[VALUES];
    _Alignas(64) unsigned char message[MESSAGE_BYTES];
};

static void read_hex(const char *text, struct golden_message *g)
{
    for (g->bytes = 0; text[2 * g->bytes]; g->bytes++) {
        unsigned byte;
        cr_assert_lt(g->bytes, MESSAGE_BYTES);
        cr_assert_eq(sscanf(text + 2 * g->bytes, "%2x", &byte), 1);
        g->message[g->bytes] = (unsigned char)byte;
    }
}

static void read_message(const struct golden_line *line, struct golden_message *g)
{
    cr_assert_eq(qcclCodecParse(line->column[0], &g->codec), qcclSuccess, "%s", line->column[0]);
    g->count = golden_number(line, 1);
    cr_assert_leq(g->count, VALUES);
    g->position = (qcclPosition_t){.seed = golden_number(line, 2),
                                   .segment = (uint32_t)golden_number(line, 3),
                                   .sequence = (uint32_t)golden_number(line, 4),
                                   .rank = (uint32_t)golden_number(line, 5),
                                   .stage = (uint32_t)golden_number(line, 6),
                                   .first = golden_number(line, 7)};
    g->checked = golden_number(line, 8);
    g->decoded = line->column[11];
    input_fill(g->values, g->count, qcclFloat32, input_named(line->column[9]),
               golden_number(line, 10), 0);
    read_hex(line->column[12], g);
}

typedef void message_fn(struct golden_message *g, const struct golden_line *line);

/* Calls check on every golden message. */
static void each_message(message_fn *check)
{
    struct golden_line line = {0};
    struct golden_message *g = aligned_alloc(64, (sizeof *g + 63) / 64 * 64);
    FILE *file = golden_open("messages.txt");
    int messages = 0;
    cr_assert(g && file, "tests/golden/messages.txt is missing");
    for (; golden_next(file, &line); messages++) {
        read_message(&line, g);
        check(g, &line);
    }
    fclose(file);
    free(g);
    cr_assert_gt(messages, 30);
}

/* Decodes into a buffer of known bytes; says whether it was refused as corrupt and left the buffer
 * alone. */
static bool is_refused(const void *message, size_t bytes, size_t count)
{
    float out[VALUES], before[VALUES];
    memset(before, 0x5a, sizeof before);
    memcpy(out, before, sizeof out);
    return qcclDecode(message, bytes, out, qcclFloat32, count, 0) == qcclCorruptMessage &&
           memcmp(out, before, sizeof out) == 0;
}

/* ------------------------------------------------------------------ golden bytes */

static void encodes_to_golden(struct golden_message *g, const struct golden_line *line)
{
    unsigned char *made = aligned_alloc(64, MESSAGE_BYTES);
    size_t bytes;
    cr_assert(made);
    memset(made, 0xff, MESSAGE_BYTES);
    setenv("QCCL_CHECK", g->checked ? "1" : "0", 1);
    cr_assert_eq(qcclEncodedBytes(&g->codec, g->count, &bytes), qcclSuccess);
    cr_expect_eq(bytes, g->bytes, "line %d: %zu bytes instead of %zu", line->number, bytes,
                 g->bytes);
    cr_assert_eq(
        qcclEncode(&g->codec, &g->position, g->values, qcclFloat32, g->count, NULL, made, g->bytes),
        qcclSuccess, "%s", qcclGetLastError());
    for (size_t i = 0; i < g->bytes; i++)
        cr_assert_eq(made[i], g->message[i], "line %d, %s: byte %zu is %02x instead of %02x",
                     line->number, line->column[0], i, made[i], g->message[i]);
    for (size_t i = g->bytes; i < MESSAGE_BYTES; i++)
        cr_assert_eq(made[i], 0xff, "line %d: byte %zu behind the message was written",
                     line->number, i);
    free(made);
}

Test(wire_format, encoding_gives_the_golden_bytes)
{
    each_message(encodes_to_golden);
}

static void decodes_to_golden(struct golden_message *g, const struct golden_line *line)
{
    char text[GOLDEN_RESULT_BYTES];
    cr_assert_eq(qcclDecode(g->message, g->bytes, g->values, qcclFloat32, g->count, 0), qcclSuccess,
                 "line %d: %s", line->number, qcclGetLastError());
    golden_describe(g->values, g->count * sizeof(float), text);
    cr_expect_str_eq(text, g->decoded, "line %d: %s", line->number, line->column[0]);
}

Test(wire_format, golden_bytes_decode_to_the_golden_values)
{
    each_message(decodes_to_golden);
}

/* ------------------------------------------------------------------ damage */

static void header_damage_is_found(struct golden_message *g, const struct golden_line *line)
{
    for (size_t bit = 0; bit < 8 * HEADER_BYTES; bit++) {
        unsigned char mask = (unsigned char)(1u << bit % 8);
        g->message[bit / 8] ^= mask;
        cr_assert(is_refused(g->message, g->bytes, g->count), "line %d: bit %zu of the header",
                  line->number, bit);
        cr_assert_gt(strlen(qcclGetLastError()), 10);
        g->message[bit / 8] ^= mask;
    }
}

Test(wire_format, every_flipped_bit_of_a_header_is_found_and_nothing_is_written)
{
    each_message(header_damage_is_found);
}

static void payload_damage_is_found(struct golden_message *g, const struct golden_line *line)
{
    for (size_t at = HEADER_BYTES; g->checked && at < g->bytes; at++) {
        g->message[at] ^= 4;
        cr_assert(is_refused(g->message, g->bytes, g->count), "line %d: byte %zu", line->number,
                  at);
        cr_assert(strstr(qcclGetLastError(), "checksum"), "%s", qcclGetLastError());
        g->message[at] ^= 4;
    }
}

Test(wire_format, a_payload_with_a_sum_shows_every_changed_byte)
{
    each_message(payload_damage_is_found);
}

static void any_payload_decodes(struct golden_message *g, const struct golden_line *line)
{
    for (size_t at = HEADER_BYTES; at < g->bytes; at++)
        g->message[at] = (unsigned char)input_hash(line->number, 0, at);
    g->message[7] &= 1;
    memset(g->message + 48, 0, 8);
    uint64_t sum = XXH3_64bits(g->message, 56);
    memcpy(g->message + 56, &sum, sizeof sum);
    cr_assert_eq(qcclDecode(g->message, g->bytes, g->values, qcclFloat32, g->count, 0), qcclSuccess,
                 "line %d: %s", line->number, qcclGetLastError());
}

Test(wire_format, whatever_stands_in_an_unchecked_payload_has_a_value)
{
    each_message(any_payload_decodes);
}

static void other_sizes_are_refused(struct golden_message *g, const struct golden_line *line)
{
    for (size_t bytes = 0; bytes < g->bytes + 70; bytes++)
        cr_assert(bytes == g->bytes || is_refused(g->message, bytes, g->count),
                  "line %d: %zu bytes instead of %zu", line->number, bytes, g->bytes);
    cr_assert(is_refused(g->message, g->bytes, g->count + 1));
    cr_assert(strstr(qcclGetLastError(), "values instead of"), "%s", qcclGetLastError());
}

Test(wire_format, another_number_of_bytes_or_values_is_refused)
{
    each_message(other_sizes_are_refused);
}

/* ------------------------------------------------------------------ lies under a correct checksum
 */

struct lie {
    const char *what;
    size_t at, bytes;
    uint64_t value;
    const char *sentence;
};

/* Of an int4 message of 300 values, group 128. */
static const struct lie lies[] = {
    {.what = "version 0",
     .at = 4,
     .bytes = 1,
     .value = 0,
     .sentence = "version 0, this library reads 1"},
    {.what = "version 2",
     .at = 4,
     .bytes = 1,
     .value = 2,
     .sentence = "version 2, this library reads 1"},
    {.what = "an unknown format", .at = 5, .bytes = 1, .value = 7, .sentence = "format 7"},
    {.what = "another format", .at = 5, .bytes = 1, .value = 2, .sentence = "bytes"},
    {.what = "format 255", .at = 5, .bytes = 1, .value = 255, .sentence = "format 255"},
    {.what = "an unknown order", .at = 6, .bytes = 1, .value = 1, .sentence = "hadamard"},
    {.what = "an order of 16", .at = 6, .bytes = 1, .value = 4, .sentence = "hadamard"},
    {.what = "a huge order", .at = 6, .bytes = 1, .value = 200, .sentence = "hadamard"},
    {.what = "unknown flags", .at = 7, .bytes = 1, .value = 4, .sentence = "flags 0x04"},
    {.what = "group 0", .at = 12, .bytes = 2, .value = 0, .sentence = "group=0"},
    {.what = "group 100", .at = 12, .bytes = 2, .value = 100, .sentence = "group=100"},
    {.what = "group 8224", .at = 12, .bytes = 2, .value = 8224, .sentence = "group=8224"},
    {.what = "a count beyond the bytes",
     .at = 16,
     .bytes = 8,
     .value = 512,
     .sentence = "bytes instead of"},
    {.what = "a count near 2^64", .at = 16, .bytes = 8, .value = UINT64_MAX, .sentence = "count"},
    {.what = "a count of 2^62",
     .at = 16,
     .bytes = 8,
     .value = (uint64_t)1 << 62,
     .sentence = "count"},
};

static void seal(unsigned char *message)
{
    uint64_t sum = XXH3_64bits(message, 56);
    for (int i = 0; i < 8; i++)
        message[56 + i] = (unsigned char)(sum >> (8 * i));
}

static size_t make_message(const char *text, size_t count, unsigned char *message)
{
    qcclCodec_t codec;
    qcclPosition_t position = {.seed = 1};
    float values[VALUES];
    size_t bytes;
    input_fill(values, count, qcclFloat32, INPUT_NORMAL, 3, 0);
    cr_assert_eq(qcclCodecParse(text, &codec), qcclSuccess);
    cr_assert_eq(qcclEncodedBytes(&codec, count, &bytes), qcclSuccess);
    cr_assert_leq(bytes, MESSAGE_BYTES);
    cr_assert_eq(qcclEncode(&codec, &position, values, qcclFloat32, count, NULL, message, bytes),
                 qcclSuccess);
    return bytes;
}

Test(wire_format, a_header_that_lies_under_a_correct_sum_is_refused_with_a_reason)
{
    _Alignas(64) unsigned char message[MESSAGE_BYTES], damaged[MESSAGE_BYTES];
    size_t bytes = make_message("int4", 300, message);
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        memcpy(damaged, message, bytes);
        for (size_t b = 0; b < lies[i].bytes; b++)
            damaged[lies[i].at + b] = (unsigned char)(lies[i].value >> (8 * b));
        seal(damaged);
        cr_expect(is_refused(damaged, bytes, 300), "%s", lies[i].what);
        cr_expect(strstr(qcclGetLastError(), lies[i].sentence), "%s: \"%s\" is not in: %s",
                  lies[i].what, lies[i].sentence, qcclGetLastError());
    }
}

Test(wire_format, rounding_bits_and_groups_that_a_format_cannot_have_are_refused)
{
    _Alignas(64) unsigned char message[MESSAGE_BYTES];
    size_t bytes = make_message("sign1", 200, message);
    message[7] = 1; /* sign1 does not round */
    seal(message);
    cr_expect(is_refused(message, bytes, 200));
    bytes = make_message("none", 200, message);
    message[12] = 64; /* none has no groups */
    seal(message);
    cr_expect(is_refused(message, bytes, 200));
    bytes = make_message("int4:group=96", 200, message);
    message[6] = 7; /* 128 does not divide 96 */
    seal(message);
    cr_expect(is_refused(message, bytes, 200));
}

/* ------------------------------------------------------------------ layout */

Test(wire_format, the_size_is_header_plus_padded_scales_plus_whole_tiles)
{
    static const struct {
        const char *text;
        size_t tile_bytes, group;
    } formats[] = {{.text = "none", .tile_bytes = 512},
                   {.text = "bf16", .tile_bytes = 256},
                   {.text = "int8:group=32", .tile_bytes = 128, .group = 32},
                   {.text = "int4", .tile_bytes = 64, .group = 128},
                   {.text = "int2:group=96", .tile_bytes = 32, .group = 96},
                   {.text = "sr1:group=8192", .tile_bytes = 16, .group = 8192},
                   {.text = "sign1:group=2048", .tile_bytes = 16, .group = 2048}};
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
        for (size_t count = 0; count < 20000; count = count < 300 ? count + 1 : count * 3 / 2) {
            qcclCodec_t codec;
            size_t bytes, group = formats[f].group;
            cr_assert_eq(qcclCodecParse(formats[f].text, &codec), qcclSuccess);
            cr_assert_eq(qcclEncodedBytes(&codec, count, &bytes), qcclSuccess);
            size_t scales = group ? ((count + group - 1) / group * 2 + 63) / 64 * 64 : 0;
            cr_assert_eq(bytes, 64 + scales + (count + 127) / 128 * formats[f].tile_bytes,
                         "%s of %zu values: %zu bytes", formats[f].text, count, bytes);
        }
}

Test(wire_format, four_bits_in_groups_of_128_cost_four_and_an_eighth_bits_a_value)
{
    qcclCodec_t codec;
    size_t bytes, count = (size_t)1 << 20;
    cr_assert_eq(qcclCodecParse("int4:group=128", &codec), qcclSuccess);
    cr_assert_eq(qcclEncodedBytes(&codec, count, &bytes), qcclSuccess);
    cr_expect_eq(bytes, 64 + count / 2 + count / 128 * 2);
}

Test(wire_format, sizes_do_not_overflow_and_what_is_too_large_is_refused)
{
    qcclCodec_t codec;
    size_t bytes = 7;
    cr_assert_eq(qcclCodecParse("none", &codec), qcclSuccess);
    cr_expect_eq(qcclEncodedBytes(&codec, (size_t)1 << 48, &bytes), qcclSuccess);
    cr_expect_eq(bytes, 64 + ((size_t)4 << 48));
    bytes = 7;
    cr_expect_eq(qcclEncodedBytes(&codec, ((size_t)1 << 48) + 1, &bytes), qcclInvalidArgument);
    cr_expect_eq(qcclEncodedBytes(&codec, SIZE_MAX, &bytes), qcclInvalidArgument);
    cr_expect_eq(bytes, 7);
}
