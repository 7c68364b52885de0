/* The policy language: what it means, how it prints, and that every refusal names a position and
 * what was expected there. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#include "collectives/policy.h"
#include "quant/codec.h"
#include "tests/harness.h"

static const char *const good[] = {
    "int4",
    "int4 gather=int8",
    "int8:group=64 intra=int4",
    "int4:hadamard=32 gather=int8:group=32 intra=int8:group=64",
    "int4 intra=int8 gather=sr1",
    "allreduce: int4",
    "allreduce:int4",
    "allreduce : int4",
    "allreduce: int4; reducescatter: int8; allgather: bf16; delta: int4",
    "delta: int2:group=8192; min=0",
    "min=64KiB; allreduce: sign1:feedback=on gather=sign1:feedback=on",
    "allreduce: none gather=int4",
    "allreduce: none intra=int4:group=32; min=1MiB",
    ("allreduce: int4; reducescatter: int4:group=128,hadamard=32 intra=int8; allgather: none; "
     "min=64KiB"),
    "  allreduce:  int4   gather = int8 ;  min = 5 ; ",
    "none",
    "allreduce: int4;",
    "allgather: int4:feedback=on",
    "min=999999999",
    "int4; min=99GiB",
    QCCL_DEFAULT_POLICY,
};

Test(policy_text, what_parses_prints_to_a_text_that_means_and_prints_the_same)
{
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct policy policy, again;
        char text[QCCL_POLICY_MAX], twice[QCCL_POLICY_MAX];
        memset(&policy, 0, sizeof policy);
        memset(&again, 0, sizeof again);
        cr_assert_eq(qccl_policy_parse(good[i], &policy), qcclSuccess, "%s: %s", good[i],
                     qcclGetLastError());
        cr_assert_eq(qccl_policy_print(&policy, text, sizeof text), qcclSuccess);
        cr_assert_eq(qccl_policy_parse(text, &again), qcclSuccess, "%s: %s", text,
                     qcclGetLastError());
        cr_assert_eq(qccl_policy_print(&again, twice, sizeof twice), qcclSuccess);
        cr_expect_str_eq(text, twice, "from %s", good[i]);
        cr_expect_eq(policy.min_bytes, again.min_bytes);
        for (int c = 0; c < qcclNumColls; c++)
            cr_expect_eq(qccl_policy_compresses(&policy, c), qccl_policy_compresses(&again, c));
    }
}

struct bad {
    const char *text;
    int position;
    const char *expected;
};

static const struct bad bad[] = {
    {.text = "", .position = 1, .expected = "a codec"},
    {.text = "   ", .position = 4, .expected = "a codec"},
    {.text = ";", .position = 1, .expected = "a codec"},
    {.text = "int5", .position = 1, .expected = "int4"},
    {.text = "allreduce", .position = 1, .expected = "allreduce followed by a colon"},
    {.text = "allreduce int4", .position = 1, .expected = "followed by a colon"},
    {.text = "allreduce=int4", .position = 1, .expected = "followed by a colon"},
    {.text = "allreduce:", .position = 11, .expected = "a codec"},
    {.text = "allreduce: ; min=0", .position = 12, .expected = "a codec"},
    {.text = "allreduce: int4 int8", .position = 17, .expected = "gather=, intra=, the end or ;"},
    {.text = "allreduce: int4, reducescatter: int4", .position = 16, .expected = "the end or ;"},
    {.text = "allreduce: int4; ; min=5", .position = 18, .expected = "min="},
    {.text = "allreduce: int4 gather=", .position = 24, .expected = "a codec"},
    {.text = "allreduce: int4 gather=int4 gather=int4",
     .position = 29,
     .expected = "intra=, the end"},
    {.text = "allreduce: int4 intra=int4 intra=int4",
     .position = 28,
     .expected = "gather=, the end"},
    {.text = "allreduce: int4 gather=int8intra=int4", .position = 24, .expected = "a codec"},
    {.text = "allreduce: int4 gather=int8:group=64/intra=int4",
     .position = 37,
     .expected = "a space, ; or the end"},
    {.text = "reducescatter: int4 gather=int4", .position = 21, .expected = "intra=, the end"},
    {.text = "allgather: int4 intra=int4", .position = 17, .expected = "the end or ;"},
    {.text = "delta: int4 gather=int4", .position = 13, .expected = "the end or ;"},
    {.text = "delta: int4:feedback=on", .position = 1, .expected = "no feedback= for delta"},
    {.text = "allreduce: int4; allreduce: int8",
     .position = 18,
     .expected = "each collective once"},
    {.text = "allreduce: int4 intra=int4:hadamard=32",
     .position = 23,
     .expected = "no hadamard= of its own"},
    {.text = "allreduce: int4:hadamard=64 intra=int4:group=96",
     .position = 35,
     .expected = "hadamard=64 divides"},
    {.text = "allreduce: int4; int8", .position = 18, .expected = "allreduce:, reducescatter:"},
    {.text = "int4; int8", .position = 7, .expected = "min="},
    {.text = "broadcast: int4", .position = 1, .expected = "a codec"},
    {.text = "min=", .position = 5, .expected = "a size such as 64KiB"},
    {.text = "min=-1", .position = 5, .expected = "a size"},
    {.text = "min=64kb", .position = 7, .expected = "KiB, MiB, GiB"},
    {.text = "min=1TiB", .position = 6, .expected = "KiB"},
    {.text = "min=99999999999999999999", .position = 5, .expected = "a size"},
    {.text = "min=1; min=2", .position = 8, .expected = "min= once"},
    {.text = "min=1 int4", .position = 6, .expected = "; or the end"},
    {.text = "allreduce: int4:group=100", .position = 23, .expected = "no multiple of 32"},
};

Test(policy_text, every_error_names_the_position_and_what_was_expected)
{
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct policy policy, before;
        memset(&policy, 0x5a, sizeof policy);
        before = policy;
        cr_expect_eq(qccl_policy_parse(bad[i].text, &policy), qcclInvalidArgument, "%s",
                     bad[i].text);
        char position[32];
        snprintf(position, sizeof position, "position %d:", bad[i].position);
        cr_expect(strstr(qcclGetLastError(), position), "\"%s\" should fail at %s but says: %s",
                  bad[i].text, position, qcclGetLastError());
        cr_expect(strstr(qcclGetLastError(), bad[i].expected),
                  "\"%s\" should name \"%s\" but says: %s", bad[i].text, bad[i].expected,
                  qcclGetLastError());
        cr_expect_eq(memcmp(&policy, &before, sizeof policy), 0, "%s: the policy was written",
                     bad[i].text);
    }
}

static struct policy parsed(const char *text)
{
    struct policy policy;
    cr_assert_eq(qccl_policy_parse(text, &policy), qcclSuccess, "%s: %s", text, qcclGetLastError());
    return policy;
}

Test(policy_text, codecs_without_a_collective_are_everyones_as_far_as_it_has_the_hop)
{
    struct policy p = parsed("int4:feedback=on gather=int8 intra=int2");
    for (int c = 0; c < qcclNumColls; c++) {
        bool sums = c == qcclCollAllReduce || c == qcclCollReduceScatter;
        cr_expect(qccl_policy_compresses(&p, c));
        cr_expect_eq(p.of[c].main.format, qcclFormatInt4);
        cr_expect_eq(p.of[c].gather.format,
                     c == qcclCollAllReduce ? qcclFormatInt8 : qcclFormatInt4);
        cr_expect_eq(p.of[c].two_level, sums);
        cr_expect_eq(p.of[c].main.feedback, c != qcclCollAllGatherDelta);
        cr_expect_eq(p.of[c].main.group, c == qcclCollAllGatherDelta ? GROUP_DELTA : GROUP_DEFAULT);
    }
    cr_expect_eq(p.min_bytes, MIN_BYTES_DEFAULT);
}

Test(policy_text, what_is_not_named_is_not_compressed)
{
    struct policy p = parsed("reducescatter: int4");
    cr_expect(qccl_policy_compresses(&p, qcclCollReduceScatter));
    cr_expect_not(qccl_policy_compresses(&p, qcclCollAllReduce));
    cr_expect_not(qccl_policy_compresses(&p, qcclCollAllGather));
    cr_expect_not(qccl_policy_compresses(&p, qcclCollAllGatherDelta));
    p = parsed("allreduce: none gather=int4; reducescatter: none intra=int4; allgather: none");
    cr_expect(qccl_policy_compresses(&p, qcclCollAllReduce));
    cr_expect(qccl_policy_compresses(&p, qcclCollReduceScatter));
    cr_expect_not(qccl_policy_compresses(&p, qcclCollAllGather));
}

Test(policy_text, a_gather_codec_is_the_main_one_where_none_is_named)
{
    struct policy p = parsed("allreduce: int4:group=64,hadamard=32");
    cr_expect_eq(memcmp(&p.of[0].gather, &p.of[0].main, sizeof p.of[0].main), 0);
    cr_expect_not(p.of[0].two_level);
}

Test(policy_text, sizes_have_units)
{
    static const struct {
        const char *text;
        size_t bytes;
    } sizes[] = {{.text = "0", .bytes = 0},
                 {.text = "77", .bytes = 77},
                 {.text = "77B", .bytes = 77},
                 {.text = "3K", .bytes = 3 << 10},
                 {.text = "3KiB", .bytes = 3 << 10},
                 {.text = "5M", .bytes = 5 << 20},
                 {.text = "5MiB", .bytes = 5 << 20},
                 {.text = "7G", .bytes = (size_t)7 << 30},
                 {.text = "7GiB", .bytes = (size_t)7 << 30}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char text[64];
        snprintf(text, sizeof text, "int4; min=%s", sizes[i].text);
        cr_expect_eq(parsed(text).min_bytes, sizes[i].bytes, "%s", text);
    }
}

Test(policy_text, a_text_that_is_too_long_is_refused)
{
    char text[QCCL_POLICY_MAX + 8];
    struct policy policy;
    memset(text, ' ', sizeof text);
    memcpy(text, "int4", 4);
    text[QCCL_POLICY_MAX] = 0;
    cr_expect_eq(qccl_policy_parse(text, &policy), qcclInvalidArgument);
    cr_expect(strstr(qcclGetLastError(), "1024 characters; 1023 are allowed"), "%s",
              qcclGetLastError());
    text[QCCL_POLICY_MAX - 1] = 0;
    cr_expect_eq(qccl_policy_parse(text, &policy), qcclSuccess, "%s", qcclGetLastError());
}

Test(policy_text, the_longest_canonical_text_fits_into_the_stated_room)
{
    struct policy policy;
    char text[QCCL_POLICY_MAX];
    cr_assert_eq(qccl_policy_parse("int2:group=8192,hadamard=128,round=nearest,feedback=on "
                                   "gather=sign1:group=8192,hadamard=128,feedback=on "
                                   "intra=int8:group=8192,round=nearest; min=999999999GiB",
                                   &policy),
                 qcclSuccess, "%s", qcclGetLastError());
    cr_expect_eq(qccl_policy_print(&policy, text, sizeof text), qcclSuccess);
    for (size_t room = 0; room <= strlen(text); room++)
        cr_assert_eq(qccl_policy_print(&policy, (char[QCCL_POLICY_MAX]){0}, room),
                     qcclInvalidArgument);
}
