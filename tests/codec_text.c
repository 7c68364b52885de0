/* Codecs as text: what is accepted prints back the same, and every refusal names the position and
 * what was expected there. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#include "qccl/qccl.h"

struct good {
    const char *text, *canonical;
};

static const struct good good[] = {
    {.text = "none", .canonical = "none"},
    {.text = "bf16", .canonical = "bf16"},
    {.text = "bf16:round=nearest", .canonical = "bf16"},
    {.text = "bf16:round=stochastic", .canonical = "bf16:round=stochastic"},
    {.text = "bf16:feedback=on", .canonical = "bf16:feedback=on"},
    {.text = "int8", .canonical = "int8:group=128"},
    {.text = "int8:group=64", .canonical = "int8:group=64"},
    {.text = "int4", .canonical = "int4:group=128"},
    {.text = "int4:group=32", .canonical = "int4:group=32"},
    {.text = "int4:group=8192", .canonical = "int4:group=8192"},
    {.text = "int4:group=96", .canonical = "int4:group=96"},
    {.text = "int4:hadamard=32", .canonical = "int4:group=128,hadamard=32"},
    {.text = "int4:hadamard=128,group=256", .canonical = "int4:group=256,hadamard=128"},
    {.text = "int4:group=32,hadamard=32", .canonical = "int4:group=32,hadamard=32"},
    {.text = "int4:hadamard=64,group=64", .canonical = "int4:group=64,hadamard=64"},
    {.text = "int4:round=nearest", .canonical = "int4:group=128,round=nearest"},
    {.text = "int4:round=stochastic", .canonical = "int4:group=128"},
    {.text = "int2:feedback=on,round=nearest,hadamard=64,group=2048",
     .canonical = "int2:group=2048,hadamard=64,round=nearest,feedback=on"},
    {.text = "sr1:feedback=off", .canonical = "sr1:group=128"},
    {.text = "sign1:feedback=on", .canonical = "sign1:group=128,feedback=on"},
};

struct bad {
    const char *text;
    int position;         /* that the error names, from 1 */
    const char *expected; /* part of what the error says was expected */
};

static const struct bad bad[] = {
    {.text = "", .position = 1, .expected = "a codec"},
    {.text = "int5", .position = 1, .expected = "int4"},
    {.text = "INT4", .position = 1, .expected = "int4"},
    {.text = "int44", .position = 1, .expected = "a codec"},
    {.text = " int4", .position = 1, .expected = "a codec"},
    {.text = "int4 ", .position = 5, .expected = "the end"},
    {.text = "int4,group=64", .position = 5, .expected = "the end"},
    {.text = "int4:", .position = 6, .expected = "an option of int4"},
    {.text = "int4:group", .position = 11, .expected = "= after group"},
    {.text = "int4:group:64", .position = 11, .expected = "= after group"},
    {.text = "int4:group=", .position = 12, .expected = "a group size"},
    {.text = "int4:group=0", .position = 12, .expected = "out of range"},
    {.text = "int4:group=16", .position = 12, .expected = "no multiple of 32"},
    {.text = "int4:group=100", .position = 12, .expected = "int4: group=100 is no multiple of 32"},
    {.text = "int4:group=8224", .position = 12, .expected = "out of range"},
    {.text = "int4:group=-32", .position = 12, .expected = "a multiple of 32 from 32 to 8192"},
    {.text = "int4:group=32x", .position = 12, .expected = "a group size"},
    {.text = "int4:group=0x20", .position = 12, .expected = "a group size"},
    {.text = "int4:group=4294967328", .position = 12, .expected = "a group size"},
    {.text = "int4:group=32,group=32", .position = 15, .expected = "each option once"},
    {.text = "int4:group=32,", .position = 15, .expected = "an option of int4"},
    {.text = "int4:group=32;", .position = 14, .expected = "the end"},
    {.text = "int4:hadamard=16", .position = 15, .expected = "32, 64 or 128"},
    {.text = "int4:hadamard=256", .position = 15, .expected = "32, 64 or 128"},
    {.text = "int4:hadamard=0", .position = 15, .expected = "32, 64 or 128"},
    {.text = "int4:group=32,hadamard=64", .position = 1, .expected = "hadamard=64 divides"},
    {.text = "int4:group=96,hadamard=128", .position = 1, .expected = "group=96"},
    {.text = "int4:round=up", .position = 12, .expected = "stochastic or nearest"},
    {.text = "int4:feedback=yes", .position = 15, .expected = "off or on"},
    {.text = "int4:colour=red", .position = 6, .expected = "hadamard="},
    {.text = "none:group=64", .position = 6, .expected = "it has none"},
    {.text = "none:feedback=on", .position = 6, .expected = "it has none"},
    {.text = "bf16:group=64", .position = 6, .expected = "round="},
    {.text = "bf16:hadamard=32", .position = 6, .expected = "round="},
    {.text = "sign1:round=nearest", .position = 7, .expected = "feedback="},
};

Test(codec_text, what_parses_prints_back_in_canonical_form)
{
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        qcclCodec_t codec, again;
        char text[QCCL_CODEC_MAX];
        cr_assert_eq(qcclCodecParse(good[i].text, &codec), qcclSuccess, "%s: %s", good[i].text,
                     qcclGetLastError());
        cr_assert_eq(qcclCodecPrint(&codec, text, sizeof text), qcclSuccess);
        cr_expect_str_eq(text, good[i].canonical);
        cr_assert_eq(qcclCodecParse(text, &again), qcclSuccess);
        cr_expect_eq(memcmp(&codec, &again, sizeof codec), 0, "%s changed on its way",
                     good[i].text);
    }
}

Test(codec_text, every_error_names_the_position_and_what_was_expected)
{
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        qcclCodec_t codec, before;
        memset(&codec, 0x5a, sizeof codec);
        before = codec;
        cr_expect_eq(qcclCodecParse(bad[i].text, &codec), qcclInvalidArgument, "%s", bad[i].text);
        char position[32];
        snprintf(position, sizeof position, "position %d:", bad[i].position);
        cr_expect(strstr(qcclGetLastError(), position), "\"%s\" should fail at %s but says: %s",
                  bad[i].text, position, qcclGetLastError());
        cr_expect(strstr(qcclGetLastError(), bad[i].expected),
                  "\"%s\" should name \"%s\" but says: %s", bad[i].text, bad[i].expected,
                  qcclGetLastError());
        cr_expect_eq(memcmp(&codec, &before, sizeof codec), 0, "%s: the codec was written",
                     bad[i].text);
    }
}

Test(codec_text, every_combination_of_options_survives_print_and_parse)
{
    int tried = 0;
    for (int format = 0; format < qcclNumFormats; format++)
        for (int nearest = 0; nearest < 2; nearest++)
            for (int feedback = 0; feedback < 2; feedback++)
                for (int group = 32; group <= 8192; group += 32)
                    for (int order = 0; order <= 128; order = order ? 2 * order : 32) {
                        qcclCodec_t codec = {.format = (uint8_t)format,
                                             .nearest = (uint8_t)nearest,
                                             .feedback = (uint8_t)feedback,
                                             .hadamard = (uint16_t)order,
                                             .group = (uint16_t)group},
                                    again;
                        char text[QCCL_CODEC_MAX];
                        if (format <= qcclFormatBf16 && order)
                            continue; /* the first hop's own affair: no text has it */
                        if (qcclCodecPrint(&codec, text, sizeof text) != qcclSuccess)
                            continue;
                        tried++;
                        cr_assert_eq(qcclCodecParse(text, &again), qcclSuccess, "%s: %s", text,
                                     qcclGetLastError());
                        cr_assert_eq(memcmp(&codec, &again, sizeof codec), 0, "%s", text);
                    }
    cr_assert_gt(tried, 1000);
}

Test(codec_text, a_codec_made_by_hand_is_checked_like_a_parsed_one)
{
    static const qcclCodec_t wrong[] = {
        {.format = qcclNumFormats, .group = 128},
        {.format = qcclFormatInt4, .group = 0},
        {.format = qcclFormatInt4, .group = 100},
        {.format = qcclFormatInt4, .group = 8224},
        {.format = qcclFormatInt4, .group = 128, .hadamard = 16},
        {.format = qcclFormatInt4, .group = 96, .hadamard = 64},
        {.format = qcclFormatInt4, .group = 128, .nearest = 2},
        {.format = qcclFormatInt4, .group = 128, .feedback = 2},
        {.format = qcclFormatInt4, .group = 128, .reserved = 1},
        {.format = qcclFormatSign1, .group = 128, .nearest = 1},
        {.format = qcclFormatNone, .group = 64},
        {.format = qcclFormatBf16, .group = 64},
        {.format = qcclFormatNone, .group = 128, .feedback = 1},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[QCCL_CODEC_MAX];
        size_t bytes = 77;
        cr_expect_eq(qcclCodecPrint(&wrong[i], text, sizeof text), qcclInvalidArgument, "codec %zu",
                     i);
        cr_expect_eq(qcclEncodedBytes(&wrong[i], 1000, &bytes), qcclInvalidArgument, "codec %zu",
                     i);
        cr_expect_eq(bytes, 77);
        cr_expect_gt(strlen(qcclGetLastError()), 10);
    }
}

Test(codec_text, printing_needs_room_for_all_of_the_text)
{
    qcclCodec_t codec;
    char text[QCCL_CODEC_MAX], small[QCCL_CODEC_MAX];
    cr_assert_eq(qcclCodecParse("int4:group=256,hadamard=64,feedback=on", &codec), qcclSuccess);
    cr_assert_eq(qcclCodecPrint(&codec, text, sizeof text), qcclSuccess);
    for (size_t room = 0; room <= strlen(text); room++) {
        memset(small, 0x5a, sizeof small);
        cr_expect_eq(qcclCodecPrint(&codec, small, room), qcclInvalidArgument, "%zu bytes", room);
        for (size_t i = 0; i < sizeof small; i++)
            cr_assert_eq(small[i], 0x5a, "byte %zu of a buffer of %zu was written", i, room);
    }
    cr_expect_eq(qcclCodecPrint(&codec, small, strlen(text) + 1), qcclSuccess);
    cr_expect_str_eq(small, text);
}

Test(codec_text, null_arguments_are_refused)
{
    qcclCodec_t codec = {.format = qcclFormatInt4, .group = 128};
    char text[QCCL_CODEC_MAX];
    size_t bytes;
    cr_expect_eq(qcclCodecParse(NULL, &codec), qcclInvalidArgument);
    cr_expect_eq(qcclCodecParse("int4", NULL), qcclInvalidArgument);
    cr_expect_eq(qcclCodecPrint(NULL, text, sizeof text), qcclInvalidArgument);
    cr_expect_eq(qcclCodecPrint(&codec, NULL, 0), qcclInvalidArgument);
    cr_expect_eq(qcclEncodedBytes(NULL, 1, &bytes), qcclInvalidArgument);
    cr_expect_eq(qcclEncodedBytes(&codec, 1, NULL), qcclInvalidArgument);
}
