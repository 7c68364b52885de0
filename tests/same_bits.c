/* Every rank ends with the same bits, whatever the count, the number of ranks, the type, the
 * operation; and they do not depend on where the buffers lie, on whether a call is in place, or on
 * the size of a chunk. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "tests/harness.h"

static const char *const policies[] = {
    "int4; min=0",
    "int4:hadamard=32; min=0",
    "int8:group=32 gather=int4:group=96; min=0",
    "int2:group=2048,round=nearest; min=0",
    "sr1 gather=int8; min=0",
    "sign1:feedback=on; min=0",
    "bf16; min=0",
    "int4:group=256,hadamard=128 gather=none intra=int8; min=0",
    "none gather=int4 intra=int8; min=0",
};

static const qcclDataType_t types[] = {qcclFloat32, qcclBfloat16, qcclFloat16};
enum { MESSAGE = 2000 };

static void *expect_result(struct team *team, const struct call *call, const char *policy,
                           size_t *bytes)
{
    char message[MESSAGE];
    void *result = team_call(team, call, 5, bytes, message, sizeof message);
    cr_assert(result, "%s, collective %d of %zu, type %d, op %d, %d ranks: %s", policy,
              (int)call->collective, call->count, (int)call->type, (int)call->op, team->nranks,
              message);
    return result;
}

/* Counts around nothing, one a rank, a group and a shard. */
static size_t count_of(int k, int nranks)
{
    size_t n = (size_t)nranks;
    const size_t counts[] = {0,   1,   n - 1,       n,           n + 1, 127,
                             128, 129, 128 * n - 1, 128 * n + 1, 1000,  3 * 128 * n + 77};
    return counts[k];
}

static bool usable(const char *policy, int c)
{
    return c != qcclCollAllGatherDelta || !strstr(policy, "feedback");
}

static void check_team(int nranks, const char *policy)
{
    struct team team;
    int k = 0;
    cr_assert(team_open(&team, nranks, policy), "%s: %s", policy, team.sentence[0]);
    for (int c = 0; c < qcclNumColls && usable(policy, c); c++)
        for (int i = 0; i < 12; i++) {
            size_t bytes;
            struct call call = {.collective = (qcclColl_t)c,
                                .count = count_of(i, nranks),
                                .type = types[k % 3],
                                .op = k % 2 ? qcclAvg : qcclSum,
                                .pattern = (enum pattern)(k % INPUT_PATTERNS),
                                .input_seed = (uint64_t)k};
            free(expect_result(&team, &call, policy, &bytes));
            k++;
        }
    team_close(&team);
}

Test(same_bits, every_rank_ends_with_the_same_bits_for_any_count_and_number_of_ranks)
{
    static const int ranks[] = {1, 2, 3, 4, 5, 6, 7, 8, 16};
    for (size_t r = 0; r < sizeof ranks / sizeof *ranks; r++)
        for (size_t p = 0; p < sizeof policies / sizeof *policies; p++)
            if (ranks[r] <= 8 || p % 4 == 0)
                check_team(ranks[r], policies[p]);
}

/* ------------------------------------------------------------------ where the buffers lie */

static void check_places(struct team *team, const struct call *base, const char *policy)
{
    size_t bytes, again;
    void *expected = expect_result(team, base, policy, &bytes);
    for (int in_place = 0; in_place <= (base->collective != qcclCollAllGatherDelta); in_place++)
        for (size_t off = 0; off < 4; off++) {
            struct call call = *base;
            call.in_place = in_place;
            call.misaligned = off;
            void *result = expect_result(team, &call, policy, &again);
            cr_assert(bytes == again && memcmp(expected, result, bytes) == 0,
                      "%s, collective %d of %zu, type %d: in place %d, misaligned by %zu", policy,
                      (int)base->collective, base->count, (int)base->type, in_place, off);
            free(result);
        }
    free(expected);
}

Test(same_bits, in_place_and_misaligned_calls_give_the_bits_of_the_plain_one)
{
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
        if (strstr(policies[p], "feedback"))
            continue;
        struct team team;
        cr_assert(team_open(&team, 3, policies[p]), "%s", team.sentence[0]);
        for (int c = 0; c < qcclNumColls; c++)
            for (int t = 0; t < 3; t++) {
                struct call call = {.collective = (qcclColl_t)c,
                                    .count = c ? 333 : 1000,
                                    .type = types[t],
                                    .op = t % 2 ? qcclAvg : qcclSum,
                                    .pattern = INPUT_SPECIAL,
                                    .input_seed = 3};
                check_places(&team, &call, policies[p]);
            }
        team_close(&team);
    }
}

Test(same_bits, buffers_that_overlap_otherwise_are_refused_on_every_rank)
{
    struct team team;
    float memory[2 * 1024];
    memset(memory, 0, sizeof memory);
    cr_assert(team_open(&team, 1, "int4; min=0"));
    qcclComm_t comm = team.comm[0];
    cr_expect_eq(qcclAllReduce(memory, memory + 1, 512, qcclFloat32, qcclSum, comm, NULL),
                 qcclInvalidArgument);
    cr_expect(strstr(qcclGetLastError(), "overlap"), "%s", qcclGetLastError());
    cr_expect_eq(qcclAllReduce(memory + 1, memory, 512, qcclFloat32, qcclSum, comm, NULL),
                 qcclInvalidArgument);
    cr_expect_eq(qcclReduceScatter(memory, memory + 1, 512, qcclFloat32, qcclSum, comm, NULL),
                 qcclInvalidArgument);
    cr_expect_eq(qcclAllGather(memory, memory + 1, 512, qcclFloat32, comm, NULL),
                 qcclInvalidArgument);
    cr_expect_eq(qcclAllGatherDelta(memory, memory, 512, qcclFloat32, comm, NULL),
                 qcclInvalidArgument);
    cr_expect_eq(qcclAllGatherDelta(memory, memory + 511, 512, qcclFloat32, comm, NULL),
                 qcclInvalidArgument);
    cr_expect_eq(qcclAllReduce(memory, memory + 512, 512, qcclFloat32, qcclSum, comm, NULL),
                 qcclSuccess);
    cr_expect_eq(qcclAllReduce(memory, memory, 512, qcclFloat32, qcclSum, comm, NULL), qcclSuccess);
    team_close(&team);
}

struct overlap {
    float memory[8192];
};

/* One rank's place in the larger buffer is another rank's overlap. */
static qcclResult_t wrong_place(struct team *team, int rank, void *arg)
{
    struct overlap *o = (struct overlap *)arg + rank;
    int other = (rank + 1) % team->nranks;
    return qcclAllGather(o->memory + other * 1024, o->memory, 1024, qcclFloat32, team->comm[rank],
                         NULL);
}

static qcclResult_t wrong_scatter_place(struct team *team, int rank, void *arg)
{
    struct overlap *o = (struct overlap *)arg + rank;
    int other = (rank + 1) % team->nranks;
    return qcclReduceScatter(o->memory, o->memory + other * 1024, 1024, qcclFloat32, qcclSum,
                             team->comm[rank], NULL);
}

Test(same_bits, another_ranks_place_is_no_place_of_ones_own)
{
    struct team team;
    struct overlap *o = calloc(4, sizeof *o);
    cr_assert(o && team_open(&team, 4, "int4; min=0"));
    team_run(&team, wrong_place, o);
    cr_expect(team_all(&team, qcclInvalidArgument), "%s", team_report(&team));
    cr_expect(team_all_say(&team, "overlap"), "%s", team_report(&team));
    team_run(&team, wrong_scatter_place, o);
    cr_expect(team_all(&team, qcclInvalidArgument), "%s", team_report(&team));
    struct call call = {.count = 100, .type = qcclFloat32};
    size_t bytes;
    free(expect_result(&team, &call, "after a refused call", &bytes));
    team_close(&team);
    free(o);
}

/* ------------------------------------------------------------------ chunks */

static void *with_chunk(const char *chunk, const char *policy, const int *nodes,
                        const struct call *call, int nranks, size_t *bytes)
{
    char message[MESSAGE] = "";
    struct setup setup = {
        .nranks = nranks, .policy = policy, .nodes = nodes, .seed = 77, .sequence = 4};
    setenv("QCCL_CHUNK", chunk, 1);
    void *result = run_once(&setup, call, bytes, message, sizeof message);
    cr_assert(result, "%s, chunk %s: %s", policy, chunk, message);
    return result;
}

Test(same_bits, the_size_of_a_chunk_changes_no_bit)
{
    static const char *const chunks[] = {"1", "128", "384", "1000", "4096", "65536"};
    static const int nodes[] = {0, 0, 1, 0, 2};
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++)
        for (int c = 0; c < qcclNumColls && usable(policies[p], c); c++) {
            size_t bytes, again;
            struct call call = {.collective = (qcclColl_t)c,
                                .count = c ? 5000 : 30001,
                                .type = types[(size_t)c % 3],
                                .pattern = INPUT_SPECIAL};
            void *expected = with_chunk("262144", policies[p], nodes, &call, 5, &bytes);
            for (size_t k = 0; k < sizeof chunks / sizeof *chunks; k++) {
                void *result = with_chunk(chunks[k], policies[p], nodes, &call, 5, &again);
                cr_assert(bytes == again && memcmp(expected, result, bytes) == 0,
                          "%s, collective %d, chunk %s", policies[p], c, chunks[k]);
                free(result);
            }
            free(expected);
        }
}

/* ------------------------------------------------------------------ NaN, one spike, all negative,
 * all equal */

Test(same_bits, a_nan_or_an_infinity_on_one_rank_arrives_on_every_rank_as_the_canonical_nan)
{
    static const uint32_t bad[] = {0x7fc00000, 0xffc12345, 0x7f800001, 0x7f800000, 0xff800000};
    enum { RANKS = 4, COUNT = 4096, AT = 1700 };
    for (size_t b = 0; b < sizeof bad / sizeof *bad; b++)
        for (int op = 0; op < 2; op++) {
            struct team team;
            struct trial trial;
            struct call call = {.count = COUNT, .type = qcclFloat32, .op = op ? qcclAvg : qcclSum};
            cr_assert(team_open(&team, RANKS, op ? "sr1 gather=int4; min=0" : "int4; min=0"));
            cr_assert(trial_open(&trial, RANKS, &call));
            memcpy((float *)trial.send[2] + AT, &bad[b], 4);
            cr_assert(trial_run(&trial, &team), "%s", team_report(&team));
            cr_assert_eq(trial_differs(&trial), 0);
            const uint32_t *out = trial.recv[3];
            for (size_t i = 0; i < COUNT; i++)
                cr_assert_eq(out[i] == 0x7fc00000, i / 128 == AT / 128, "%08x, element %zu is %08x",
                             bad[b], i, out[i]);
            trial_close(&trial);
            team_close(&team);
        }
}

/* The largest difference that int4 with groups of 128 can make to a sum: a step for each
 * contribution that travels, one for the sum. */
static void check_error_bound(enum pattern pattern)
{
    enum { RANKS = 4, COUNT = 2048 };
    char message[MESSAGE] = "";
    size_t bytes;
    struct setup setup = {.nranks = RANKS, .policy = "int4; min=0", .seed = 3};
    struct call call = {.count = COUNT, .type = qcclFloat32, .pattern = pattern, .input_seed = 9};
    float *result = run_once(&setup, &call, &bytes, message, sizeof message);
    cr_assert(result, "%s", message);
    for (size_t group = 0; group < COUNT; group += 128) {
        double bound = 0, largest = 0, sums[128];
        for (size_t i = 0; i < 128; i++)
            sums[i] = 0;
        for (int r = 0; r < RANKS; r++) {
            double max = 0;
            for (size_t i = 0; i < 128; i++) {
                double x = (double)input_value(pattern, 9, r, group + i);
                sums[i] += x;
                max = x > max ? x : -x > max ? -x : max;
            }
            bound += max / 7 * (1 + 0x1p-7) + max * 0x1p-22;
        }
        for (size_t i = 0; i < 128; i++)
            largest = sums[i] > largest ? sums[i] : -sums[i] > largest ? -sums[i] : largest;
        bound += (largest + bound) / 7 * (1 + 0x1p-7) + 0x1p-100;
        for (size_t i = 0; i < 128; i++) {
            double lost = sums[i] - (double)result[group + i];
            cr_assert(lost <= bound && -lost <= bound,
                      "%s, element %zu: %a instead of %a, bound %a", input_name(pattern), group + i,
                      (double)result[group + i], sums[i], bound);
        }
    }
    free(result);
}

Test(same_bits, negative_equal_spiked_denormal_and_sparse_values_stay_within_their_steps)
{
    static const enum pattern patterns[] = {INPUT_NORMAL, INPUT_NEGATIVE, INPUT_EQUAL,
                                            INPUT_SPIKE,  INPUT_DENORMAL, INPUT_TINY,
                                            INPUT_BLOCKS, INPUT_LEVELS};
    for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++)
        check_error_bound(patterns[p]);
}

/* ------------------------------------------------------------------ several communicators, several
 * threads */

struct crowd {
    struct team team[3];
    struct trial trial[3];
    void *expected[3];
};

static qcclResult_t call_three(struct team *team, int rank, void *arg)
{
    struct crowd *crowd = arg;
    (void)team;
    for (int i = 0; i < 20;
         i++) /* every rank its own order of three communicators would deadlock; all share one */
        for (int k = 0; k < 3; k++) {
            qcclResult_t result = trial_call(&crowd->trial[k], &crowd->team[k], rank);
            if (result != qcclSuccess)
                return result;
        }
    return qcclSuccess;
}

Test(same_bits, several_communicators_interleaved_in_the_same_threads_do_not_meet)
{
    static const char *const three[] = {"int4; min=0", "int8:group=32; min=0", "none"};
    struct crowd *crowd = calloc(1, sizeof *crowd);
    cr_assert(crowd);
    for (int k = 0; k < 3; k++) {
        struct call call = {.collective = (qcclColl_t)k,
                            .count = 500,
                            .type = qcclFloat32,
                            .input_seed = (uint64_t)k};
        cr_assert(team_open(&crowd->team[k], 4, three[k]) &&
                  trial_open(&crowd->trial[k], 4, &call));
    }
    cr_assert(team_run(&crowd->team[0], call_three, crowd), "%s", team_report(&crowd->team[0]));
    for (int k = 0; k < 3; k++) {
        char message[MESSAGE] = "";
        size_t bytes, again;
        struct setup setup = {.nranks = 4, .policy = three[k], .sequence = k < 2 ? 19 : 0};
        void *result = trial_result(&crowd->trial[k], &bytes);
        void *alone = run_once(&setup, &crowd->trial[k].call, &again, message, sizeof message);
        cr_assert(alone && bytes == again, "%s", message);
        cr_expect_eq(memcmp(result, alone, bytes), 0, "communicator %d", k);
        free(result);
        free(alone);
        trial_close(&crowd->trial[k]);
        team_close(&crowd->team[k]);
    }
    free(crowd);
}
