/* Ranks that disagree get an error, all of them, and none hangs: about a configuration when a
 * communicator is made, about a call when QCCL_CHECK=1 compares calls, and about the sizes of
 * messages when nothing is compared. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/mpi/rank_test.h"

enum { COUNT = 4000 };

static float values[COUNT], results[8 * COUNT];

static qcclConfig_t usual_config(void)
{
    qcclConfig_t config = QCCL_CONFIG_INITIALIZER;
    config.policy = "int4; min=0";
    config.timeout = 20;
    return config;
}

static bool odd_one(void)
{
    return test_rank == test_nranks - 1;
}

/* ------------------------------------------------------------------ configurations */

/* Every rank's qcclCommInitMpi fails with a sentence that has both texts. */
static void check_init(const char *what, const qcclConfig_t *config, const char *text1,
                       const char *text2)
{
    qcclComm_t comm = NULL;
    qcclResult_t result = qcclCommInitMpi(&comm, MPI_COMM_WORLD, config);
    ok(result_is(result, qcclMismatch, text1, text2) && comm == NULL,
       "another %s on one rank is a mismatch on every rank, which names both", what);
}

static void test_configs(void)
{
    int nodes[64] = {0};
    qcclConfig_t config = usual_config();
    config.policy = odd_one() ? "int8; min=0" : "int4; min=0";
    check_init("policy", &config, "int8", "int4");

    config = usual_config();
    config.seed = odd_one() ? 4711 : 1234;
    check_init("seed", &config, "4711", "1234");

    config = usual_config();
    nodes[0] = odd_one() ? 6 : 5;
    config.nodes = nodes;
    check_init("node list in the config", &config, "nodes=6", "nodes=5");

    char list[256] = "";
    for (int r = 0; r < test_nranks; r++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%d", r ? "," : "",
                 odd_one() ? 8 : 7);
    setenv("QCCL_NODES", list, 1);
    config = usual_config();
    check_init("QCCL_NODES", &config, "nodes=8", "nodes=7");
    unsetenv("QCCL_NODES");

    setenv("QCCL_CHECK", odd_one() ? "1" : "0", 1);
    config = usual_config();
    check_init("QCCL_CHECK", &config, "QCCL_CHECK=1", "QCCL_CHECK=0");
    unsetenv("QCCL_CHECK");
}

/* One rank's own configuration is wrong; the others must not wait for it. */
static void test_wrong_config(void)
{
    qcclComm_t comm = NULL;
    qcclConfig_t config = usual_config();
    config.policy = odd_one() ? "int5" : "int4; min=0";
    qcclResult_t result = qcclCommInitMpi(&comm, MPI_COMM_WORLD, &config);
    bool right = odd_one() ? result_is(result, qcclInvalidArgument, "int5", NULL)
                           : result_is(result, qcclMismatch, "int5", "wrong");
    ok(right && comm == NULL, "a policy that does not parse on one rank is an error on every rank");
}

static void test_setters(void)
{
    qcclComm_t comm;
    qcclConfig_t config = usual_config();
    uint64_t seed = 1;
    uint32_t sequence = 1;
    char policy[QCCL_POLICY_MAX] = "";
    require_success(qcclCommInitMpi(&comm, MPI_COMM_WORLD, &config), "qcclCommInitMpi");
    bool right = result_is(qcclCommSetSeed(comm, odd_one() ? 31 : 32), qcclMismatch, "31", "32");
    right = right &&
            result_is(qcclCommSetSequence(comm, odd_one() ? 41 : 42), qcclMismatch, "41", "42");
    right = right && result_is(qcclCommSetPolicy(comm, odd_one() ? "int8" : "int2"), qcclMismatch,
                               "int8", "int2");
    require_success(qcclCommGetSeed(comm, &seed), "qcclCommGetSeed");
    require_success(qcclCommGetSequence(comm, &sequence), "qcclCommGetSequence");
    require_success(qcclCommGetPolicy(comm, policy, sizeof policy), "qcclCommGetPolicy");
    ok(right && seed == 0 && sequence == 0 && strstr(policy, "int4"),
       "setters with different values are mismatches and change nothing");
    require_success(qcclCommSetSeed(comm, 5), "qcclCommSetSeed");
    require_success(qcclCommDestroy(comm), "qcclCommDestroy");
}

/* ------------------------------------------------------------------ calls that are compared */

struct variant {
    qcclColl_t collective;
    size_t count;
    qcclDataType_t type;
    qcclRedOp_t op;
};

static qcclResult_t run(const struct variant *v, qcclComm_t comm)
{
    if (v->collective == qcclCollAllReduce)
        return qcclAllReduce(values, results, v->count, v->type, v->op, comm, NULL);
    if (v->collective == qcclCollReduceScatter)
        return qcclReduceScatter(results, values, v->count, v->type, v->op, comm, NULL);
    return qcclAllGather(values, results, v->count, v->type, comm, NULL);
}

static bool usable(qcclComm_t comm)
{
    for (size_t i = 0; i < COUNT; i++)
        values[i] = 7.0f; /* the top level of int4, which is exact */
    qcclResult_t result = qcclAllReduce(values, results, COUNT, qcclFloat32, qcclSum, comm, NULL);
    bool right = result == qcclSuccess && results[0] == 7.0f * (float)test_nranks &&
                 results[COUNT - 1] == 7.0f * (float)test_nranks;
    if (!right)
        note("afterwards: result %d (%s), %g", (int)result, result ? qcclGetLastError() : "",
             (double)results[0]);
    memset(results, 0, sizeof results);
    return right;
}

static void test_checked_calls(void)
{
    static const struct {
        const char *what, *text1, *text2;
        struct variant odd;
    } cases[] = {
        {.what = "count",
         .text1 = "count=999",
         .text2 = "count=1000",
         .odd =
             {.collective = qcclCollAllReduce, .count = 999, .type = qcclFloat32, .op = qcclSum}},
        {.what = "count of 0",
         .text1 = "count=0",
         .text2 = "count=1000",
         .odd = {.collective = qcclCollAllReduce, .count = 0, .type = qcclFloat32, .op = qcclSum}},
        {.what = "type",
         .text1 = "bfloat16",
         .text2 = "float32",
         .odd =
             {.collective = qcclCollAllReduce, .count = 1000, .type = qcclBfloat16, .op = qcclSum}},
        {.what = "uncompressed type",
         .text1 = "int32",
         .text2 = "float32",
         .odd = {.collective = qcclCollAllReduce, .count = 1000, .type = qcclInt32, .op = qcclSum}},
        {.what = "reduction",
         .text1 = "op=avg",
         .text2 = "op=sum",
         .odd =
             {.collective = qcclCollAllReduce, .count = 1000, .type = qcclFloat32, .op = qcclAvg}},
        {.what = "uncompressed reduction",
         .text1 = "op=max",
         .text2 = "op=sum",
         .odd =
             {.collective = qcclCollAllReduce, .count = 1000, .type = qcclFloat32, .op = qcclMax}},
        {.what = "collective",
         .text1 = "AllGather",
         .text2 = "AllReduce",
         .odd =
             {.collective = qcclCollAllGather, .count = 1000, .type = qcclFloat32, .op = qcclSum}},
        {.what = "reduction of shards",
         .text1 = "ReduceScatter",
         .text2 = "AllReduce",
         .odd = {.collective = qcclCollReduceScatter,
                 .count = 500,
                 .type = qcclFloat32,
                 .op = qcclSum}},
    };
    const struct variant common = {
        .collective = qcclCollAllReduce, .count = 1000, .type = qcclFloat32, .op = qcclSum};
    qcclComm_t comm;
    qcclConfig_t config = usual_config();
    setenv("QCCL_CHECK", "1", 1);
    require_success(qcclCommInitMpi(&comm, MPI_COMM_WORLD, &config), "qcclCommInitMpi");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qcclResult_t result = run(odd_one() ? &cases[i].odd : &common, comm);
        bool right = result_is(result, qcclMismatch, cases[i].text1, cases[i].text2);
        ok(right && usable(comm),
           "QCCL_CHECK=1: another %s on one rank is a mismatch that names both, and the next call "
           "works",
           cases[i].what);
    }
    require_success(qcclCommDestroy(comm), "qcclCommDestroy");
    unsetenv("QCCL_CHECK");
}

/* ------------------------------------------------------------------ calls that are not */

/* Without QCCL_CHECK the messages themselves disagree.  Not every rank need see that in this call,
 * but each does by its next, and none waits for ever. */
static void check_unchecked(const char *what, const char *policy, const struct variant *odd,
                            const struct variant *common)
{
    qcclComm_t comm;
    qcclConfig_t config = usual_config();
    config.policy = policy;
    double start = seconds_now();
    require_success(qcclCommInitMpi(&comm, MPI_COMM_WORLD, &config), "qcclCommInitMpi");
    /* A rank that fails at once would else end the others' making of the communicator. */
    MPI_Barrier(MPI_COMM_WORLD);
    qcclResult_t result = run(odd_one() ? odd : common, comm);
    if (result == qcclSuccess)
        result = run(common, comm);
    bool right = result == qcclMismatch || result == qcclRemoteError;
    if (!right)
        note("result %d: %s", (int)result, qcclGetLastError());
    right = right && run(common, comm) == result;
    require_success(qcclCommDestroy(comm), "qcclCommDestroy");
    ok(right && seconds_now() - start < config.timeout,
       "%s: another %s on one rank is an error on every rank before the timeout", policy, what);
}

static void test_unchecked_calls(void)
{
    const struct variant common = {
        .collective = qcclCollAllReduce, .count = 3000, .type = qcclFloat32, .op = qcclSum};
    struct variant odd = common;
    odd.count = 1000;
    check_unchecked("count", "int4; min=0", &odd, &common);
    check_unchecked("count", "int8:hadamard=32 intra=bf16 gather=int4; min=0", &odd, &common);
    odd.count = 2999;
    check_unchecked("count by one", "int4; min=0", &odd, &common);
    odd.count = 1;
    check_unchecked("count, one only", "int4; min=0", &odd, &common);
    odd = common;
    odd.collective = qcclCollAllGather;
    check_unchecked("collective", "int4; min=0", &odd, &common);
    odd = common;
    odd.collective = qcclCollReduceScatter;
    odd.count = 1000;
    check_unchecked("collective", "int4; min=0", &odd, &common);
}

int main(int argc, char **argv)
{
    rank_test_start(&argc, &argv, MPI_THREAD_SINGLE, 2);
    require(test_nranks <= 8, "buffers are made for 8 ranks");
    test_configs();
    test_wrong_config();
    test_setters();
    test_checked_calls();
    test_unchecked_calls();
    return rank_test_end();
}
