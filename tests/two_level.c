/* Two-level sums: any node layout gives one result on all ranks; with one rank a node it is the
 * flat one, to the bit; with one node only the inner hop is left. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "tests/harness.h"

enum { MESSAGE = 2000 };

static float *result_of(const char *policy, const int *nodes, int nranks, const struct call *call,
                        size_t *bytes)
{
    char message[MESSAGE] = "";
    struct setup setup = {
        .nranks = nranks, .policy = policy, .nodes = nodes, .seed = 21, .sequence = 7};
    void *result = run_once(&setup, call, bytes, message, sizeof message);
    cr_assert(result, "%s: %s", policy, message);
    return result;
}

static void expect_equal(const char *a, const int *nodes_a, const char *b, const int *nodes_b,
                         int nranks, const struct call *call)
{
    size_t bytes, again;
    float *x = result_of(a, nodes_a, nranks, call, &bytes),
          *y = result_of(b, nodes_b, nranks, call, &again);
    cr_assert_eq(bytes, again);
    cr_expect_eq(memcmp(x, y, bytes), 0, "%s and %s differ over %d ranks, collective %d", a, b,
                 nranks, (int)call->collective);
    free(x);
    free(y);
}

static const int one_each[] = {0, 1, 2, 3, 4, 5, 6, 7}, one_node[] = {3, 3, 3, 3, 3, 3, 3, 3};

Test(two_level, one_rank_a_node_gives_the_bits_of_the_flat_sum)
{
    for (int nranks = 2; nranks <= 8; nranks++)
        for (int c = 0; c < 2; c++) {
            struct call call = {.collective = (qcclColl_t)c,
                                .count = 3001,
                                .type = qcclFloat32,
                                .pattern = INPUT_SPECIAL};
            expect_equal("int4:hadamard=32 intra=int8; min=0", one_each, "int4:hadamard=32; min=0",
                         NULL, nranks, &call);
            expect_equal("int4 gather=int8 intra=sr1; min=0", one_each, "int4 gather=int8; min=0",
                         one_node, nranks, &call);
        }
}

Test(two_level, one_node_leaves_only_the_inner_hop)
{
    /* Rounded to nearest the stage of the random numbers does not show: the inner codec alone
     * decides. */
    for (int nranks = 2; nranks <= 8; nranks++) {
        struct call call = {
            .collective = qcclCollReduceScatter, .count = 1111, .type = qcclFloat32};
        expect_equal("sr1 intra=int8:round=nearest; min=0", one_node, "int8:round=nearest; min=0",
                     one_node, nranks, &call);
        expect_equal("sr1 intra=none; min=0", one_node, "none", one_node, nranks, &call);
    }
}

Test(two_level, without_intra_the_node_layout_changes_nothing)
{
    static const int mixed[] = {1, 0, 1, 2, 0, 0, 2, 1};
    for (int c = 0; c < qcclNumColls; c++) {
        struct call call = {.collective = (qcclColl_t)c, .count = 2000, .type = qcclFloat32};
        expect_equal("int4; min=0", mixed, "int4; min=0", one_node, 8, &call);
    }
}

Test(two_level, an_exact_first_hop_adds_what_a_flat_exact_sum_adds)
{
    /* Whole numbers up to 7 * 8 add exactly in any order, so every layout must give the plain sum.
     */
    static const int layouts[][8] = {{0, 0, 1, 1, 2, 2, 3, 3}, {0, 0, 0, 0, 0, 0, 0, 1},
                                     {5, 1, 5, 1, 5, 1, 5, 9}, {0, 1, 1, 1, 1, 1, 1, 1},
                                     {2, 1, 0, 2, 1, 0, 2, 1}, {9, 8, 7, 6, 5, 4, 3, 2}};
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++)
        for (int nranks = 2; nranks <= 8; nranks++)
            for (int c = 0; c < 2; c++)
                for (int op = 0; op < 5; op += 4) {
                    size_t count = 1000;
                    struct call call = {.collective = (qcclColl_t)c,
                                        .count = count,
                                        .type = qcclFloat32,
                                        .op = (qcclRedOp_t)op,
                                        .pattern = INPUT_LEVELS};
                    expect_equal("none gather=none intra=bf16; min=0", layouts[l], "none", NULL,
                                 nranks, &call);
                }
}

Test(two_level, every_uneven_layout_ends_with_one_result_on_all_ranks)
{
    static const char *const policies[] = {
        "int4 intra=int8; min=0",
        "int4:hadamard=64,group=64 gather=int8:group=96 intra=int4:group=192; min=0",
        "none gather=sr1 intra=int2:group=32; min=0",
        "sign1:feedback=on gather=int4:feedback=on intra=int8:feedback=on; min=0",
    };
    enum { RANKS = 7 };
    int layouts = 0;
    for (uint64_t k = 0; k < 24; k++) {
        int nodes[RANKS];
        for (int r = 0; r < RANKS; r++)
            nodes[r] = (int)(input_hash(k, r, 0) % (1 + k % 5));
        for (size_t p = 0; p < sizeof policies / sizeof *policies; p++)
            for (int c = 0; c < 2; c++) {
                size_t bytes, counts[] = {1, 100, 700, 5003};
                struct call call = {.collective = (qcclColl_t)c,
                                    .count = counts[k % 4],
                                    .type = qcclFloat32,
                                    .op = k % 2 ? qcclAvg : qcclSum,
                                    .pattern = INPUT_NORMAL,
                                    .in_place = k % 3 == 0};
                float *result = result_of(policies[p], nodes, RANKS, &call, &bytes);
                for (size_t i = 0; i < bytes / sizeof *result; i++)
                    cr_assert_eq(result[i], result[i], "element %zu is NaN", i);
                free(result);
                layouts++;
            }
    }
    cr_assert_gt(layouts, 100);
}

Test(two_level, a_nan_on_one_rank_reaches_every_rank_through_both_hops)
{
    static const int nodes[] = {0, 0, 1, 1, 1};
    struct team team;
    struct trial trial;
    struct call call = {.count = 2560, .type = qcclFloat32};
    qcclConfig_t config = QCCL_CONFIG_INITIALIZER;
    config.policy = "int4 intra=int8; min=0";
    config.nodes = nodes;
    for (int rank = 0; rank < 5; rank++) {
        cr_assert(team_open_config(&team, 5, &config) && trial_open(&trial, 5, &call));
        ((float *)trial.send[rank])[999] = qccl_bits_float(0xff800000);
        cr_assert(trial_run(&trial, &team), "%s", team_report(&team));
        cr_assert_eq(trial_differs(&trial), 0);
        for (size_t i = 0; i < 2560; i++)
            cr_assert_eq(((uint32_t *)trial.recv[0])[i] == 0x7fc00000, i / 128 == 999 / 128,
                         "element %zu", i);
        trial_close(&trial);
        team_close(&team);
    }
}

Test(two_level, a_node_list_comes_from_the_config_or_from_the_environment_and_is_checked)
{
    static const int nodes[] = {0, 1, 0, 1}, wrong[] = {0, -1, 0, 1};
    static const char *const bad[] = {"0,1",      "0,1,0,1,0", "0,1,x,1", "0,1,,1",
                                      "0,1,0,-1", "0 1 0 1",   "0,1,0,1 "};
    size_t bytes, again;
    struct call call = {.count = 900, .type = qcclFloat32};
    float *x = result_of("int4 intra=int8; min=0", nodes, 4, &call, &bytes);
    setenv("QCCL_NODES", "0,1,0,1", 1);
    float *y = result_of("int4 intra=int8; min=0", NULL, 4, &call, &again);
    cr_expect(bytes == again && memcmp(x, y, bytes) == 0);
    free(x);
    free(y);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct team team;
        setenv("QCCL_NODES", bad[i], 1);
        cr_expect_not(team_open(&team, 4, "int4"), "%s", bad[i]);
        cr_expect_eq(team.result[0], qcclInvalidArgument);
        cr_expect(strstr(team.sentence[0], bad[i]), "%s", team.sentence[0]);
    }
    unsetenv("QCCL_NODES");
    struct team team;
    qcclConfig_t config = QCCL_CONFIG_INITIALIZER;
    config.nodes = wrong;
    cr_expect_not(team_open_config(&team, 4, &config));
    cr_expect(strstr(team.sentence[0], "nodes[1] is -1"), "%s", team.sentence[0]);
}
