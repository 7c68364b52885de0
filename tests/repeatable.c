/* Policy, seed and sequence number: readable, settable by all ranks together, and with the inputs
 * they determine every bit. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness.h"

enum { RANKS = 4 };

static const struct call usual = {.count = 4000, .type = qcclFloat32, .input_seed = 2};

struct state {
    const char *policy;
    uint64_t seed;
    uint32_t sequence;
};

static qcclResult_t set_state(struct team *team, int rank, void *arg)
{
    const struct state *s = arg;
    qcclComm_t comm = team->comm[rank];
    qcclResult_t result = s->policy ? qcclCommSetPolicy(comm, s->policy) : qcclSuccess;
    if (result == qcclSuccess)
        result = qcclCommSetSeed(comm, s->seed);
    return result == qcclSuccess ? qcclCommSetSequence(comm, s->sequence) : result;
}

/* One allreduce, the sequence number going on by itself. */
static void *step(struct team *team, size_t *bytes)
{
    struct trial trial;
    cr_assert(trial_open(&trial, team->nranks, &usual));
    cr_assert(trial_run(&trial, team), "%s", team_report(team));
    cr_assert_eq(trial_differs(&trial), 0);
    void *result = trial_result(&trial, bytes);
    trial_close(&trial);
    return result;
}

static void open_team(struct team *team, const char *policy, uint64_t seed)
{
    qcclConfig_t config = QCCL_CONFIG_INITIALIZER;
    config.policy = policy;
    config.seed = seed;
    cr_assert(team_open_config(team, RANKS, &config), "%s", team->sentence[0]);
}

Test(repeatable, a_run_repeats_bit_for_bit_from_policy_seed_and_sequence_number)
{
    struct team first, second;
    char policy[QCCL_POLICY_MAX];
    size_t bytes;
    void *later[3];
    open_team(&first, "int4:hadamard=32 gather=sr1; min=0", 12345);
    for (int i = 0; i < 5; i++)
        free(step(&first, &bytes));
    struct state saved = {.policy = policy};
    cr_assert_eq(qcclCommGetPolicy(first.comm[0], policy, sizeof policy), qcclSuccess);
    cr_assert_eq(qcclCommGetSeed(first.comm[1], &saved.seed), qcclSuccess);
    cr_assert_eq(qcclCommGetSequence(first.comm[2], &saved.sequence), qcclSuccess);
    cr_expect_eq(saved.seed, 12345);
    cr_expect_eq(saved.sequence, 5);
    for (int i = 0; i < 3; i++)
        later[i] = step(&first, &bytes);
    open_team(&second, "none", 1);
    cr_assert(team_run(&second, set_state, &saved), "%s", team_report(&second));
    for (int i = 0; i < 3; i++) {
        void *again = step(&second, &bytes);
        cr_expect_eq(memcmp(again, later[i], bytes), 0, "step %d", i);
        free(again);
        free(later[i]);
    }
    team_close(&first);
    team_close(&second);
}

Test(repeatable, another_seed_or_another_sequence_number_gives_other_bits)
{
    struct team team;
    size_t bytes;
    open_team(&team, "int4; min=0", 1);
    void *base = step(&team, &bytes), *next = step(&team, &bytes);
    cr_expect_neq(memcmp(base, next, bytes), 0, "the second call drew the same numbers");
    free(next);
    struct state state = {.seed = 1, .sequence = 0};
    cr_assert(team_run(&team, set_state, &state));
    void *again = step(&team, &bytes);
    cr_expect_eq(memcmp(base, again, bytes), 0,
                 "the same seed and sequence number drew other numbers");
    free(again);
    for (int bit = 0; bit < 64; bit += 31) {
        state.seed = 1 ^ (uint64_t)1 << bit ^ (uint64_t)2;
        cr_assert(team_run(&team, set_state, &state));
        again = step(&team, &bytes);
        cr_expect_neq(memcmp(base, again, bytes), 0, "seed %llx drew the same numbers",
                      (unsigned long long)state.seed);
        free(again);
    }
    free(base);
    team_close(&team);
}

Test(repeatable, ranks_draw_different_numbers)
{
    /* Two ranks with one input: were their roundings the same, every contribution would decode
     * alike. */
    enum { COUNT = 4096 };
    struct team team;
    open_team(&team, "reducescatter: int4; min=0", 9);
    struct trial trial;
    struct call call = {.collective = qcclCollReduceScatter, .count = COUNT, .type = qcclFloat32};
    cr_assert(trial_open(&trial, RANKS, &call));
    for (int r = 1; r < RANKS; r++)
        memcpy(trial.send[r], trial.send[0], trial.send_bytes);
    cr_assert(trial_run(&trial, &team), "%s", team_report(&team));
    /* Owner 0 adds its exact part and three decoded ones; equal roundings would make the rest three
     * times one decoded value. */
    const float *out = trial.recv[0], *in = trial.send[0];
    size_t off_grid = 0;
    for (size_t g = 0; g < COUNT; g += 128) {
        float max = 0;
        for (size_t i = g; i < g + 128; i++)
            max = in[i] > max ? in[i] : -in[i] > max ? -in[i] : max;
        for (size_t i = g; i < g + 128; i++) {
            double steps = ((double)out[i] - (double)in[i]) / ((double)max / 7), thirds = steps / 3;
            double nearest = (double)(long)(thirds + (thirds < 0 ? -0.5 : 0.5));
            off_grid += thirds - nearest > 0.2 || nearest - thirds > 0.2;
        }
    }
    cr_expect_gt(off_grid, COUNT / 8, "%zu of %d sums are three equal values", COUNT - off_grid,
                 COUNT);
    trial_close(&trial);
    team_close(&team);
}

Test(repeatable, the_sequence_number_counts_compressed_calls_modulo_2_to_the_32)
{
    struct team team;
    size_t bytes;
    uint32_t sequence;
    open_team(&team, "allreduce: int4; min=0", 1);
    struct state state = {.seed = 1, .sequence = UINT32_MAX};
    cr_assert(team_run(&team, set_state, &state));
    struct call integers = {.count = 4000, .type = qcclInt32};
    struct trial trial;
    cr_assert(trial_open(&trial, RANKS, &integers) && trial_run(&trial, &team), "%s",
              team_report(&team));
    trial_close(&trial);
    qcclCommGetSequence(team.comm[0], &sequence);
    cr_expect_eq(sequence, UINT32_MAX, "a call that passed through was counted");
    free(step(&team, &bytes));
    for (int r = 0; r < RANKS; r++) {
        qcclCommGetSequence(team.comm[r], &sequence);
        cr_expect_eq(sequence, 0);
    }
    team_close(&team);
}

Test(repeatable, the_policy_reads_as_canonical_text_and_needs_room_for_all_of_it)
{
    struct team team;
    char text[QCCL_POLICY_MAX], small[QCCL_POLICY_MAX];
    open_team(&team, "int4 gather=int8; min=5KiB", 0);
    cr_assert_eq(qcclCommGetPolicy(team.comm[0], text, sizeof text), qcclSuccess);
    cr_expect_str_eq(
        text, "allreduce: int4:group=128 gather=int8:group=128; reducescatter: int4:group=128; "
              "allgather: int4:group=128; delta: int4:group=2048; min=5120");
    for (size_t room = 0; room <= strlen(text); room++)
        cr_assert_eq(qcclCommGetPolicy(team.comm[0], small, room), qcclInvalidArgument, "%zu bytes",
                     room);
    cr_expect_eq(qcclCommGetPolicy(team.comm[0], small, strlen(text) + 1), qcclSuccess);
    cr_expect_str_eq(small, text);
    team_close(&team);
}

Test(repeatable, a_new_policy_takes_effect_with_the_next_call_and_the_old_one_comes_back)
{
    struct team team;
    size_t bytes;
    open_team(&team, "int4; min=0", 3);
    void *int4 = step(&team, &bytes);
    struct state state = {.policy = "int8; min=0", .seed = 3};
    cr_assert(team_run(&team, set_state, &state), "%s", team_report(&team));
    void *int8 = step(&team, &bytes);
    cr_expect_neq(memcmp(int4, int8, bytes), 0);
    state.policy = "int4; min=0";
    cr_assert(team_run(&team, set_state, &state), "%s", team_report(&team));
    void *again = step(&team, &bytes);
    cr_expect_eq(memcmp(int4, again, bytes), 0);
    free(int4);
    free(int8);
    free(again);
    team_close(&team);
}

/* ------------------------------------------------------------------ the environment */

Test(repeatable, the_environment_gives_what_the_config_leaves_at_zero)
{
    struct team team;
    uint64_t seed;
    char text[QCCL_POLICY_MAX];
    setenv("QCCL_POLICY", "allgather: sr1; min=0", 1);
    setenv("QCCL_SEED", "0x1234567890", 1);
    cr_assert(team_open_config(&team, 2, NULL), "%s", team.sentence[0]);
    cr_assert_eq(qcclCommGetSeed(team.comm[1], &seed), qcclSuccess);
    cr_assert_eq(qcclCommGetPolicy(team.comm[1], text, sizeof text), qcclSuccess);
    cr_expect_eq(seed, 0x1234567890);
    cr_expect(strstr(text, "allgather: sr1:group=128"), "%s", text);
    team_close(&team);
    qcclConfig_t config = QCCL_CONFIG_INITIALIZER;
    config.policy = "none";
    config.seed = 4;
    cr_assert(team_open_config(&team, 2, &config));
    cr_assert_eq(qcclCommGetSeed(team.comm[0], &seed), qcclSuccess);
    cr_assert_eq(qcclCommGetPolicy(team.comm[0], text, sizeof text), qcclSuccess);
    cr_expect_eq(seed, 4);
    cr_expect_not(strstr(text, "sr1"), "%s", text);
    team_close(&team);
}

Test(repeatable, a_setting_of_the_environment_that_does_not_parse_is_an_error_that_names_it)
{
    static const char *const settings[][2] = {{"QCCL_POLICY", "int5"},
                                              {"QCCL_SEED", "twelve"},
                                              {"QCCL_SEED", "-1"},
                                              {"QCCL_SEED", "1 "},
                                              {"QCCL_SEED", "99999999999999999999"},
                                              {"QCCL_TIMEOUT", "soon"},
                                              {"QCCL_TIMEOUT", "inf"},
                                              {"QCCL_CHUNK", "-4"},
                                              {"QCCL_CHUNK", "1.5"},
                                              {"QCCL_CHUNK", "2000000000"}};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        struct team team;
        setenv(settings[i][0], settings[i][1], 1);
        cr_expect_not(team_open_config(&team, 2, NULL), "%s=%s", settings[i][0], settings[i][1]);
        cr_expect_eq(team.result[0], qcclInvalidArgument);
        cr_expect(strstr(team.sentence[0], settings[i][1]), "%s=%s: %s", settings[i][0],
                  settings[i][1], team.sentence[0]);
        unsetenv(settings[i][0]);
    }
}

/* An address that is no communicator. */
static qcclComm_t no_comm(void)
{
    static char nothing;
    return (qcclComm_t)(void *)&nothing;
}

Test(repeatable, a_wrong_config_makes_no_communicator_and_leaves_the_callers_array_alone)
{
    qcclComm_t comms[2] = {no_comm(), no_comm()};
    qcclConfig_t config = QCCL_CONFIG_INITIALIZER;
    config.size = 3;
    cr_expect_eq(qcclCommInitThreads(comms, 2, &config), qcclInvalidArgument);
    cr_expect(strstr(qcclGetLastError(), "config.size is 3"), "%s", qcclGetLastError());
    config = (qcclConfig_t)QCCL_CONFIG_INITIALIZER;
    config.policy = "int4:group=1";
    cr_expect_eq(qcclCommInitThreads(comms, 2, &config), qcclInvalidArgument);
    cr_expect_eq(qcclCommInitThreads(comms, 0, NULL), qcclInvalidArgument);
    cr_expect_eq(qcclCommInitThreads(comms, -1, NULL), qcclInvalidArgument);
    cr_expect_eq(qcclCommInitThreads(NULL, 2, NULL), qcclInvalidArgument);
    cr_expect(comms[0] == no_comm() && comms[1] == no_comm());
    config = (qcclConfig_t)QCCL_CONFIG_INITIALIZER;
    config.size = sizeof config.size; /* a caller that knows no other field */
    config.policy = "nonsense";
    cr_expect_eq(qcclCommInitThreads(comms, 2, &config), qcclSuccess, "%s", qcclGetLastError());
    qcclCommDestroy(comms[0]);
    qcclCommDestroy(comms[1]);
}
