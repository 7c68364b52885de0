/* What small threads, tiny messages and odd settings must not do: crash, take memory out of all
 * proportion, or be read as something else. */
#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "collectives/comm.h"
#include "collectives/plan.h"

enum { STACK_BYTES = 128 << 10, VALUES = 4096, MESSAGES = 40 };

/* Encodes one message and adds it up MESSAGES times. */
static void *encode_and_sum(void *result)
{
    static float values[VALUES];
    static _Alignas(64) unsigned char message[1 << 16];
    const void *messages[MESSAGES];
    size_t bytes[MESSAGES], size;
    qcclCodec_t codec;
    qcclPosition_t position = {.seed = 1};
    qcclResult_t *status = result;
    for (int i = 0; i < VALUES; i++)
        values[i] = (float)(i % 15 - 7);
    qcclCodecParse("int4", &codec);
    qcclEncodedBytes(&codec, VALUES, &size);
    *status =
        qcclEncode(&codec, &position, values, qcclFloat32, VALUES, NULL, message, sizeof message);
    for (int i = 0; i < MESSAGES; i++) {
        messages[i] = message;
        bytes[i] = size;
    }
    if (*status == qcclSuccess)
        *status = qcclDecodeSum(messages, bytes, MESSAGES, 1.0f, values, qcclFloat32, VALUES);
    for (int i = 0; i < VALUES && *status == qcclSuccess; i++)
        if (values[i] != (float)(MESSAGES * (i % 15 - 7)))
            *status = qcclInternalError;
    return NULL;
}

Test(limits, codecs_run_on_a_thread_with_a_small_stack)
{
    pthread_attr_t small;
    pthread_t thread;
    qcclResult_t result = qcclInternalError;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, STACK_BYTES);
    cr_assert_eq(pthread_create(&thread, &small, encode_and_sum, &result), 0);
    pthread_join(thread, NULL);
    cr_expect_eq(result, qcclSuccess, "%s", qcclGetErrorString(result));
}

Test(limits, a_tiny_message_takes_a_tiny_workspace_whatever_its_groups)
{
    struct policy policy;
    struct plan *plan;
    int nodes[2] = {0, 0};
    struct plan_key key = {.collective = qcclCollAllReduce, .count = 3, .type = qcclFloat32};
    struct plan_layout layout = {.nranks = 2, .nodes = nodes, .chunk_elems = 1 << 16};
    cr_assert_eq(qccl_policy_parse("allreduce: int4:group=8160 gather=int8:group=8192 "
                                   "intra=int8:group=8128; min=0",
                                   &policy),
                 qcclSuccess);
    cr_assert_eq(qccl_plan_build(&plan, &key, &layout, &policy), qcclSuccess);
    size_t widest = qccl_wire_bytes(&policy.of[qcclCollAllReduce].gather, key.count);
    cr_expect_leq(plan->workspace_bytes, 3 * (size_t)layout.nranks * ((widest + 63) / 64 * 64),
                  "%zu bytes for 3 values", plan->workspace_bytes);
    qccl_plan_free(plan);
}

Test(limits, numbers_of_the_environment_are_decimal_unless_they_begin_with_0x)
{
    static const struct {
        const char *text;
        uint64_t seed;
    } cases[] = {
        {.text = "010", .seed = 10}, {.text = "09", .seed = 9}, {.text = "0x1f", .seed = 31}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qcclComm_t comm;
        uint64_t seed = 0;
        setenv("QCCL_SEED", cases[i].text, 1);
        cr_assert_eq(qcclCommInitThreads(&comm, 1, NULL), qcclSuccess, "%s", qcclGetLastError());
        cr_expect_eq(qcclCommGetSeed(comm, &seed), qcclSuccess);
        cr_expect_eq(seed, cases[i].seed, "%s is read as %llu", cases[i].text,
                     (unsigned long long)seed);
        qcclCommDestroy(comm);
    }
}

Test(limits, a_timeout_that_is_no_number_or_zero_seconds_is_refused)
{
    qcclComm_t comm = NULL;
    qcclConfig_t config = QCCL_CONFIG_INITIALIZER;
    config.timeout = nan("");
    cr_expect_eq(qcclCommInitThreads(&comm, 1, &config), qcclInvalidArgument);
    setenv("QCCL_TIMEOUT", "0", 1);
    cr_expect_eq(qcclCommInitThreads(&comm, 1, NULL), qcclInvalidArgument);
    cr_expect_null(comm);
}

/* Rank 0 of a lone pair: its values reach the sample alone, NaN in front. */
static void *reduce_with_a_nan(void *comm)
{
    static const size_t count = 1 << 15;
    float *values = malloc(count * sizeof *values);
    for (size_t i = 0; i < count; i++)
        values[i] = i % 1024 ? 1.5f : NAN;
    qcclAllReduce(values, values, count, qcclFloat32, qcclSum, comm, NULL);
    free(values);
    return NULL;
}

Test(limits, a_nan_does_not_spoil_the_sampled_error)
{
    qcclComm_t comms[2];
    pthread_t threads[2];
    qcclStats_t stats = {.size = sizeof stats};
    qcclConfig_t config = QCCL_CONFIG_INITIALIZER;
    config.policy = "int4; min=0";
    cr_assert_eq(qcclCommInitThreads(comms, 2, &config), qcclSuccess);
    for (int r = 0; r < 2; r++)
        pthread_create(&threads[r], NULL, reduce_with_a_nan, comms[r]);
    for (int r = 0; r < 2; r++)
        pthread_join(threads[r], NULL);
    cr_assert_eq(qcclCommGetStats(comms[0], &stats), qcclSuccess);
    cr_expect(stats.sampled_energy > 0 && isfinite(stats.sampled_energy), "%g",
              stats.sampled_energy);
    cr_expect(isfinite(stats.sampled_error), "%g", stats.sampled_error);
    for (int r = 0; r < 2; r++)
        qcclCommDestroy(comms[r]);
}
