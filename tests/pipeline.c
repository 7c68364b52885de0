/* The pipelined executor gives the bits of the serial one, in a bounded workspace. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/comm.h"
#include "tests/harness.h"

enum { MESSAGE = 2000 };

static const char *const policies[] = {
    "int4; min=0",
    "sign1:group=64 gather=int8; min=0",
    "int8:hadamard=32 gather=bf16 intra=int4; min=0",
    "none gather=int2; min=0",
    "allgather: sr1; delta: int4:group=2048; reducescatter: int2 intra=int8; min=0",
};
enum { POLICIES = sizeof policies / sizeof policies[0] };

static void *run_with(const char *executor, const char *chunk, const struct setup *setup,
                      const struct call *call, size_t *bytes)
{
    char message[MESSAGE] = "";
    setenv("QCCL_EXECUTOR", executor, 1);
    setenv("QCCL_CHUNK", chunk, 1);
    void *result = run_once(setup, call, bytes, message, sizeof message);
    cr_assert(result, "%s, chunk %s, %s, %d ranks: %s", executor, chunk, setup->policy,
              setup->nranks, message);
    return result;
}

/* One call under both executors, and chunks from the smallest to one for everything. */
static void expect_same(const struct setup *setup, const struct call *call)
{
    static const char *const chunks[] = {"1", "300", "65536"};
    size_t bytes, again;
    void *expected = run_with("serial", "1000000", setup, call, &bytes);
    for (int i = 0; i < 3; i++) {
        void *result = run_with("pipelined", chunks[i], setup, call, &again);
        cr_expect(bytes == again && memcmp(result, expected, bytes) == 0,
                  "%s, chunk %s, %d ranks, collective %d, %zu values", setup->policy, chunks[i],
                  setup->nranks, (int)call->collective, call->count);
        free(result);
    }
    free(expected);
}

Test(pipeline, the_bits_are_those_of_the_serial_executor_for_any_chunk)
{
    static const int nodes[] = {0, 1, 1, 2, 1, 0, 0};
    static const size_t counts[] = {1, 127, 2049, 30011};
    for (int p = 0; p < POLICIES; p++)
        for (int nranks = 2; nranks <= 7; nranks += nranks < 5 ? 1 : 2)
            for (int c = 0; c < qcclNumColls; c++)
                for (int k = 0; k < 4; k++) {
                    struct setup setup = {.nranks = nranks,
                                          .policy = policies[p],
                                          .nodes = nodes,
                                          .seed = 5,
                                          .sequence = 9};
                    struct call call = {.collective = (qcclColl_t)c,
                                        .count = counts[k],
                                        .type = (k + p) % 2 ? qcclBfloat16 : qcclFloat32,
                                        .op = c % 2 ? qcclSum : qcclAvg,
                                        .pattern = INPUT_SPECIAL,
                                        .input_seed = (uint64_t)(p + k),
                                        .in_place = c != qcclCollAllGatherDelta && k % 2};
                    expect_same(&setup, &call);
                }
}

static qcclResult_t twice_with_feedback(struct team *team, int rank, void *arg)
{
    float(*values)[20000] = arg;
    for (int i = 0; i < 3; i++) {
        qcclResult_t result = qcclAllReduce(values[rank], values[rank], 20000, qcclFloat32, qcclAvg,
                                            team->comm[rank], NULL);
        if (result != qcclSuccess)
            return result;
    }
    return qcclSuccess;
}

Test(pipeline, error_feedback_goes_on_as_in_the_serial_executor)
{
    enum { RANKS = 3, COUNT = 20000 };
    static float values[2][RANKS][COUNT];
    for (int way = 0; way < 2; way++) {
        struct team team;
        setenv("QCCL_EXECUTOR", way ? "pipelined" : "serial", 1);
        setenv("QCCL_CHUNK", way ? "256" : "100000", 1);
        for (int r = 0; r < RANKS; r++)
            input_fill(values[way][r], COUNT, qcclFloat32, INPUT_NORMAL, 3, r);
        cr_assert(team_open(&team, RANKS, "sign1:feedback=on; min=0"));
        cr_assert(team_run(&team, twice_with_feedback, values[way]), "%s", team_report(&team));
        team_close(&team);
    }
    cr_expect(memcmp(values[0], values[1], sizeof values[0]) == 0);
}

Test(pipeline, the_workspace_is_a_fixed_number_of_chunks_whatever_the_message)
{
    static const size_t counts[] = {1 << 20, 1 << 22};
    uint64_t bytes[2] = {0};
    for (int i = 0; i < 2; i++) {
        struct team team;
        struct trial trial;
        struct call call = {.count = counts[i], .type = qcclFloat32};
        qcclStats_t stats = {.size = sizeof stats};
        setenv("QCCL_CHUNK", "4096", 1);
        cr_assert(team_open(&team, 4, "int4; min=0"));
        cr_assert(trial_open(&trial, 4, &call) && trial_run(&trial, &team), "%s",
                  team_report(&team));
        cr_assert_eq(qcclCommGetStats(team.comm[0], &stats), qcclSuccess);
        bytes[i] = stats.workspace_bytes;
        trial_close(&trial);
        team_close(&team);
    }
    cr_expect_eq(bytes[0], bytes[1]);
}

Test(pipeline, an_executor_of_another_name_is_refused)
{
    struct team team;
    setenv("QCCL_EXECUTOR", "fast", 1);
    cr_expect_not(team_open(&team, 2, "int4"));
    cr_expect(strstr(team.sentence[0], "fast"), "%s", team.sentence[0]);
}
