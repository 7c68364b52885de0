/* What the oracle computed, to the bit: every codec and every collective, 1 to 8 ranks, node
 * layouts, element types, special inputs.
 *
 * The cases lie in tests/golden/.  Every collective runs twice, with the usual chunk and with the
 * smallest one, and every third time in place: neither may change a bit. */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include "tests/golden.h"
#include "tests/harness.h"

static qcclColl_t collective_named(const char *name)
{
    static const char *const names[] = {"allreduce", "reducescatter", "allgather", "delta"};
    int c = 0;
    while (strcmp(name, names[c]) != 0)
        c++;
    return (qcclColl_t)c;
}

/* Runs a line of collectives.txt and describes the result, or what went wrong. */
static void run_line(const struct golden_line *line, bool in_place, char text[GOLDEN_RESULT_BYTES],
                     char *message, size_t message_bytes)
{
    char policy[256];
    int nodes[RANKS_MAX], nranks = (int)golden_number(line, 1);
    struct call call = {
        .collective = collective_named(line->column[0]),
        .count = golden_number(line, 5),
        .type = golden_type(line->column[4]),
        .op = strcmp(line->column[3], "avg") == 0 ? qcclAvg : qcclSum,
        .pattern = input_named(line->column[8]),
        .input_seed = golden_number(line, 9),
        .in_place = in_place,
    };
    snprintf(policy, sizeof policy, "%s: %s; min=0", line->column[0], line->column[10]);
    struct setup setup = {.nranks = nranks,
                          .policy = policy,
                          .nodes = golden_nodes(line->column[2], nodes, nranks),
                          .seed = golden_number(line, 6),
                          .sequence = (uint32_t)golden_number(line, 7)};
    size_t bytes;
    void *result = run_once(&setup, &call, &bytes, message, message_bytes);
    snprintf(text, GOLDEN_RESULT_BYTES, "failed");
    if (result)
        golden_describe(result, bytes, text);
    free(result);
}

static void check_collectives(bool small_chunks)
{
    FILE *file = golden_open("collectives.txt");
    cr_assert(file, "tests/golden/collectives.txt is missing");
    struct golden_line line = {0};
    int cases = 0;
    setenv("QCCL_CHUNK", small_chunks ? "1" : "262144", 1);
    while (golden_next(file, &line)) {
        char text[GOLDEN_RESULT_BYTES], message[2000] = "";
        bool in_place = ++cases % 3 == small_chunks && strcmp(line.column[0], "delta") != 0;
        run_line(&line, in_place, text, message, sizeof message);
        cr_expect_str_eq(text, line.column[11], "line %d, %s %s over %s ranks: %s instead of %s %s",
                         line.number, line.column[0], line.column[10], line.column[1], text,
                         line.column[11], message);
    }
    fclose(file);
    cr_assert_gt(cases, 100);
}

Test(golden_values, collectives_equal_the_oracle_to_the_bit)
{
    check_collectives(false);
}

Test(golden_values, the_smallest_chunks_give_the_same_bits)
{
    check_collectives(true);
}

static void decode_line(const struct golden_line *line, char text[GOLDEN_RESULT_BYTES])
{
    qcclCodec_t codec;
    size_t count = golden_number(line, 1), bytes;
    cr_assert_eq(qcclCodecParse(line->column[0], &codec), qcclSuccess, "%s", qcclGetLastError());
    qcclPosition_t position = {.seed = golden_number(line, 2),
                               .segment = (uint32_t)golden_number(line, 3),
                               .sequence = (uint32_t)golden_number(line, 4),
                               .rank = (uint32_t)golden_number(line, 5),
                               .stage = (uint32_t)golden_number(line, 6)};
    float *values = malloc((count + 1) * sizeof *values);
    cr_assert(values);
    input_fill(values, count, qcclFloat32, input_named(line->column[7]), golden_number(line, 8), 0);
    cr_assert_eq(qcclEncodedBytes(&codec, count, &bytes), qcclSuccess);
    void *message = aligned_alloc(64, (bytes + 63) / 64 * 64);
    cr_assert(message);
    cr_assert_eq(qcclEncode(&codec, &position, values, qcclFloat32, count, NULL, message, bytes),
                 qcclSuccess, "%s", qcclGetLastError());
    cr_assert_eq(qcclDecode(message, bytes, values, qcclFloat32, count, 0), qcclSuccess, "%s",
                 qcclGetLastError());
    golden_describe(values, count * sizeof *values, text);
    free(message);
    free(values);
}

Test(golden_values, every_codec_equals_the_oracle_to_the_bit)
{
    FILE *file = golden_open("codecs.txt");
    cr_assert(file, "tests/golden/codecs.txt is missing");
    struct golden_line line = {0};
    int cases = 0;
    for (; golden_next(file, &line); cases++) {
        char text[GOLDEN_RESULT_BYTES];
        decode_line(&line, text);
        cr_expect_str_eq(text, line.column[9], "line %d, %s, %s %s values: %s instead of %s",
                         line.number, line.column[0], line.column[1], line.column[7], text,
                         line.column[9]);
    }
    fclose(file);
    cr_assert_gt(cases, 100);
}
