/* The n-th allocation fails, for every n until none does: each call returns an error instead of
 * crashing, nothing leaks, and no rank waits for ever.  With ranks as threads it is a matter of
 * chance which rank the failure hits; all of them must end. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "tests/harness.h"

enum { RANKS = 3, COUNT = 2000, MOST = 5000 };

static const int nodes[RANKS] = {0, 0, 1};

/* ------------------------------------------------------------------ making communicators */

Test(memory_failure, of_any_allocation_while_communicators_are_made_leaves_none_and_leaks_nothing)
{
    int failures = 0;
    for (long n = 1; n < MOST; n++) {
        struct team team;
        qccl_memory_fail_after(n);
        bool opened = team_open(&team, RANKS, "int4 intra=int8; min=0");
        qccl_memory_fail_after(0);
        if (opened) {
            team_close(&team);
            break;
        }
        failures++;
        cr_expect_eq(team.result[0], qcclOutOfMemory, "allocation %ld: %d", n, (int)team.result[0]);
        cr_expect(strstr(team.sentence[0], "memory"), "%s", team.sentence[0]);
        cr_assert_eq(qccl_memory_live(), 0, "allocation %ld leaks", n);
    }
    cr_expect_geq(failures, 3);
    cr_expect_eq(qccl_memory_live(), 0);
}

/* ------------------------------------------------------------------ calls */

struct work {
    const char *policy;
    qcclColl_t collective;
    qcclDataType_t type;
    const char *check;
};

static const struct work works[] = {
    {.policy = "int4; min=0", .collective = qcclCollAllReduce, .type = qcclFloat32, .check = "0"},
    {.policy = "int4; min=0", .collective = qcclCollAllReduce, .type = qcclBfloat16, .check = "1"},
    {.policy = "int4:group=8160 gather=int8:group=8192; min=0",
     .collective = qcclCollAllReduce,
     .type = qcclFloat16,
     .check = "0"},
    {.policy = "int4:hadamard=32 gather=int8 intra=int8; min=0",
     .collective = qcclCollAllReduce,
     .type = qcclFloat32,
     .check = "0"},
    {.policy = "int4:feedback=on gather=sr1:feedback=on intra=int8:feedback=on; min=0",
     .collective = qcclCollAllReduce,
     .type = qcclFloat32,
     .check = "0"},
    {.policy = "int4 intra=int8; min=0",
     .collective = qcclCollReduceScatter,
     .type = qcclFloat32,
     .check = "0"},
    {.policy = "int4; min=0",
     .collective = qcclCollReduceScatter,
     .type = qcclFloat32,
     .check = "1"},
    {.policy = "int4:feedback=on; min=0",
     .collective = qcclCollAllGather,
     .type = qcclFloat32,
     .check = "0"},
    {.policy = "int4; min=0",
     .collective = qcclCollAllGatherDelta,
     .type = qcclBfloat16,
     .check = "0"},
    {.policy = "none", .collective = qcclCollAllReduce, .type = qcclFloat32, .check = "1"},
    {.policy = "none", .collective = qcclCollReduceScatter, .type = qcclInt32, .check = "0"},
    {.policy = "none", .collective = qcclCollAllGather, .type = qcclFloat64, .check = "0"},
};

/* Runs one call with the n-th allocation failing; true when none failed. */
static bool call_with_failure(const struct work *work, long n)
{
    struct team team;
    struct trial trial;
    struct call call = {.collective = work->collective, .count = COUNT, .type = work->type};
    qcclConfig_t config = QCCL_CONFIG_INITIALIZER;
    config.policy = work->policy;
    config.nodes = nodes;
    config.timeout = 20;
    setenv("QCCL_CHECK", work->check, 1);
    cr_assert(team_open_config(&team, RANKS, &config), "%s", team.sentence[0]);
    cr_assert(trial_open(&trial, RANKS, &call));
    qccl_memory_fail_after(n);
    bool succeeded = trial_run(&trial, &team);
    qccl_memory_fail_after(0);
    int hit = 0;
    for (int r = 0; r < RANKS && !succeeded; r++) {
        hit += team.result[r] == qcclOutOfMemory;
        cr_expect(team.result[r] == qcclSuccess || team.result[r] == qcclOutOfMemory ||
                      team.result[r] == qcclRemoteError,
                  "%s, allocation %ld: %s", work->policy, n, team_report(&team));
    }
    cr_expect(succeeded || hit == 1, "%s, allocation %ld: %s", work->policy, n, team_report(&team));
    cr_expect(trial_guards_hold(&trial));
    trial_close(&trial);
    team_close(&team);
    cr_assert_eq(qccl_memory_live(), 0, "%s, allocation %ld leaks", work->policy, n);
    return succeeded;
}

Test(memory_failure, of_any_allocation_in_a_collective_is_an_error_without_a_leak_or_a_hang)
{
    for (size_t w = 0; w < sizeof works / sizeof *works; w++) {
        long n = 1;
        while (n < MOST && !call_with_failure(&works[w], n))
            n++;
        cr_expect(n > 3 && n < MOST, "%s: %ld allocations", works[w].policy, n);
    }
}

struct on_streams {
    qcclStream_t stream[RANKS];
    float values[RANKS][COUNT];
    qcclResult_t put[RANKS], kept[RANKS];
};

/* The call, and what the communicator keeps once the rank has learned of its end. */
static qcclResult_t reduce_on_stream(struct team *team, int rank, void *arg)
{
    struct on_streams *s = arg;
    s->put[rank] = qcclAllReduce(s->values[rank], s->values[rank], COUNT, qcclFloat32, qcclSum,
                                 team->comm[rank], s->stream[rank]);
    qcclResult_t done = qcclStreamSynchronize(s->stream[rank]);
    qcclCommGetAsyncError(team->comm[rank], &s->kept[rank]);
    return s->put[rank] == qcclSuccess ? done : s->put[rank];
}

/* True when no allocation failed. *at_put = whether one failed before the call had returned. */
static bool stream_call_with_failure(long n, bool *at_put)
{
    struct team team;
    struct on_streams *s = calloc(1, sizeof *s);
    qcclConfig_t config = QCCL_CONFIG_INITIALIZER;
    config.policy = "int4; min=0";
    config.timeout = 20;
    cr_assert(s && team_open_config(&team, RANKS, &config));
    for (int r = 0; r < RANKS; r++)
        cr_assert_eq(qcclStreamCreate(&s->stream[r], 0), qcclSuccess);
    qccl_memory_fail_after(n);
    bool succeeded = team_run(&team, reduce_on_stream, s);
    qccl_memory_fail_after(0);
    int hit = 0;
    for (int r = 0; r < RANKS && !succeeded; r++) {
        hit += team.result[r] == qcclOutOfMemory;
        *at_put = *at_put || s->put[r] != qcclSuccess;
        cr_expect(team.result[r] == qcclSuccess || team.result[r] == qcclOutOfMemory ||
                      team.result[r] == qcclRemoteError,
                  "allocation %ld: %s", n, team_report(&team));
        cr_expect_eq(s->kept[r], team.result[r], "allocation %ld, rank %d", n, r);
    }
    cr_expect(succeeded || hit == 1, "allocation %ld: %s", n, team_report(&team));
    for (int r = 0; r < RANKS; r++)
        qcclStreamDestroy(s->stream[r]);
    team_close(&team);
    free(s);
    cr_assert_eq(qccl_memory_live(), 0, "allocation %ld leaks", n);
    return succeeded;
}

Test(memory_failure, of_any_allocation_of_a_call_on_a_stream_breaks_the_communicator_on_every_rank)
{
    bool at_put = false;
    long n = 1;
    while (n < MOST && !stream_call_with_failure(n, &at_put))
        n++;
    cr_expect(n > 6 && n < MOST, "%ld allocations", n);
    cr_expect(at_put, "no call failed where it was put on its stream");
}

/* ------------------------------------------------------------------ the rest of the surface */

static qcclResult_t set_everything(struct team *team, int rank, void *arg)
{
    (void)arg;
    qcclResult_t result = qcclCommSetSeed(team->comm[rank], 3);
    if (result == qcclSuccess)
        result = qcclCommSetSequence(team->comm[rank], 4);
    return result == qcclSuccess ? qcclCommSetPolicy(team->comm[rank], "int8; min=0") : result;
}

Test(memory_failure, of_any_allocation_in_a_setter_ends_on_every_rank)
{
    bool succeeded = false;
    long n = 0;
    while (!succeeded && ++n < MOST) {
        struct team team;
        cr_assert(team_open(&team, RANKS, "int4; min=0"));
        qccl_memory_fail_after(n);
        succeeded = team_run(&team, set_everything, NULL);
        qccl_memory_fail_after(0);
        for (int r = 0; r < RANKS && !succeeded; r++)
            cr_expect_neq(team.result[r], qcclInternalError, "%s", team_report(&team));
        team_close(&team);
        cr_assert_eq(qccl_memory_live(), 0, "allocation %ld leaks", n);
    }
    cr_expect(n > 3 && n < MOST);
}

Test(memory_failure, of_any_allocation_while_a_plan_is_printed_leaves_the_communicator_usable)
{
    bool succeeded = false;
    long n = 0;
    while (!succeeded && ++n < MOST) {
        struct team team;
        struct trial trial;
        struct call call = {.count = COUNT, .type = qcclFloat32};
        char text[4000];
        cr_assert(team_open(&team, RANKS, "int4; min=0"));
        qccl_memory_fail_after(n);
        qcclResult_t result = qcclCommPrintPlan(team.comm[1], qcclCollAllReduce, COUNT, qcclFloat32,
                                                qcclSum, text, sizeof text, NULL);
        qccl_memory_fail_after(0);
        succeeded = result == qcclSuccess;
        cr_expect(succeeded || result == qcclOutOfMemory, "allocation %ld: %d", n, (int)result);
        cr_assert(trial_open(&trial, RANKS, &call));
        cr_expect(trial_run(&trial, &team), "after allocation %ld failed: %s", n,
                  team_report(&team));
        trial_close(&trial);
        team_close(&team);
        cr_assert_eq(qccl_memory_live(), 0, "allocation %ld leaks", n);
    }
    cr_expect(n > 3 && n < MOST);
}

Test(memory_failure, of_any_allocation_while_residuals_are_restored_changes_nothing)
{
    struct team team;
    struct trial trial;
    struct call call = {.count = COUNT, .type = qcclFloat32};
    size_t bytes;
    cr_assert(team_open(&team, RANKS, "int4:feedback=on; min=0") &&
              trial_open(&trial, RANKS, &call));
    cr_assert(trial_run(&trial, &team), "%s", team_report(&team));
    cr_assert_eq(qcclFeedbackBytes(team.comm[0], &bytes), qcclSuccess);
    char *state = malloc(bytes), *after = malloc(bytes);
    cr_assert(state && after);
    cr_assert_eq(qcclFeedbackSave(team.comm[0], state, bytes), qcclSuccess);
    long live = qccl_memory_live(), n = 0;
    qcclResult_t result;
    do {
        qccl_memory_fail_after(++n);
        result = qcclFeedbackRestore(team.comm[0], state, bytes);
        qccl_memory_fail_after(0);
        cr_expect(result == qcclSuccess || result == qcclOutOfMemory, "allocation %ld: %d", n,
                  (int)result);
        cr_assert_eq(qcclFeedbackSave(team.comm[0], after, bytes), qcclSuccess);
        cr_assert_eq(memcmp(state, after, bytes), 0, "allocation %ld", n);
        cr_assert_eq(qccl_memory_live(), live, "allocation %ld leaks", n);
    } while (result != qcclSuccess && n < MOST);
    cr_expect(n > 1 && n < MOST, "%ld allocations", n);
    free(state);
    free(after);
    trial_close(&trial);
    team_close(&team);
}

Test(memory_failure, of_any_allocation_in_a_codec_call_writes_nothing)
{
    /* A unit of 8160 and 128 values needs the heap; so do more than 64 messages. */
    enum { VALUES = 130560 + 5, MESSAGES = 70 };
    qcclCodec_t codec;
    qcclPosition_t position = {.seed = 1};
    size_t bytes, sizes[MESSAGES];
    const void *messages[MESSAGES];
    cr_assert_eq(qcclCodecParse("int4:group=8160", &codec), qcclSuccess);
    cr_assert_eq(qcclEncodedBytes(&codec, VALUES, &bytes), qcclSuccess);
    uint16_t *values = calloc(VALUES, sizeof *values);
    unsigned char *message = aligned_alloc(64, (bytes + 63) / 64 * 64);
    cr_assert(values && message);
    input_fill(values, VALUES, qcclBfloat16, INPUT_NORMAL, 1, 0);
    memset(message, 0x5a, bytes);
    qccl_memory_fail_after(1);
    cr_expect_eq(qcclEncode(&codec, &position, values, qcclBfloat16, VALUES, NULL, message, bytes),
                 qcclOutOfMemory);
    for (size_t i = 0; i < bytes; i++)
        cr_assert_eq(message[i], 0x5a, "byte %zu", i);
    cr_assert_eq(qcclEncode(&codec, &position, values, qcclBfloat16, VALUES, NULL, message, bytes),
                 qcclSuccess);
    memset(values, 0x5a, VALUES * sizeof *values);
    qccl_memory_fail_after(1);
    cr_expect_eq(qcclDecode(message, bytes, values, qcclBfloat16, VALUES, 0), qcclOutOfMemory);
    for (size_t i = 0; i < VALUES; i++)
        cr_assert_eq(values[i], 0x5a5a);
    for (int m = 0; m < MESSAGES; m++) {
        messages[m] = message;
        sizes[m] = bytes;
    }
    for (long n = 1; n <= 2; n++) {
        qccl_memory_fail_after(n);
        cr_expect_eq(qcclDecodeSum(messages, sizes, MESSAGES, 1, values, qcclBfloat16, VALUES),
                     qcclOutOfMemory);
        cr_expect_eq(values[0], 0x5a5a);
        cr_expect_eq(qccl_memory_live(), 0);
    }
    qccl_memory_fail_after(0);
    cr_expect_eq(qcclDecodeSum(messages, sizes, MESSAGES, 1, values, qcclBfloat16, VALUES),
                 qcclSuccess);
    cr_expect_eq(qccl_memory_live(), 0);
    free(values);
    free(message);
}
