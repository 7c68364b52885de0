/* Ranks that disagree get an error that names both values, on every rank, and nobody hangs: setters
 * always, calls with QCCL_CHECK=1; without it a different number of bytes or another codec is still
 * found where it meets. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/comm.h"
#include "tests/harness.h"

enum { RANKS = 3, COUNT = 2000 };

static void open_team(struct team *team, const char *policy)
{
    qcclConfig_t config = QCCL_CONFIG_INITIALIZER;
    config.policy = policy;
    config.timeout = 20;
    cr_assert(team_open_config(team, RANKS, &config), "%s", team->sentence[0]);
}

static qcclResult_t good_call(struct team *team, int rank, void *arg)
{
    float in[COUNT], out[COUNT];
    (void)arg;
    input_fill(in, COUNT, qcclFloat32, INPUT_NORMAL, 0, rank);
    return qcclAllReduce(in, out, COUNT, qcclFloat32, qcclSum, team->comm[rank], NULL);
}

static void expect_usable(struct team *team)
{
    cr_expect(team_run(team, good_call, NULL), "afterwards: %s", team_report(team));
}

/* Every rank reports the mismatch with the same sentence, which names both values. */
static void expect_mismatch(struct team *team, const char *a, const char *b)
{
    cr_expect(team_all(team, qcclMismatch), "%s", team_report(team));
    cr_expect(team_all_say(team, a) && team_all_say(team, b), "\"%s\" and \"%s\" should be in %s",
              a, b, team_report(team));
    for (int r = 1; r < team->nranks; r++)
        cr_expect_str_eq(team->sentence[r], team->sentence[0]);
}

/* ------------------------------------------------------------------ setters */

static qcclResult_t set_seed(struct team *team, int rank, void *arg)
{
    return qcclCommSetSeed(team->comm[rank], 100 + (uint64_t)(rank == *(int *)arg));
}

static qcclResult_t set_sequence(struct team *team, int rank, void *arg)
{
    return qcclCommSetSequence(team->comm[rank], 200 + (uint32_t)(rank == *(int *)arg));
}

static qcclResult_t set_policy(struct team *team, int rank, void *arg)
{
    return qcclCommSetPolicy(team->comm[rank], rank == *(int *)arg ? "int8; min=0" : "int2; min=0");
}

static qcclResult_t set_wrong_policy(struct team *team, int rank, void *arg)
{
    return qcclCommSetPolicy(team->comm[rank], rank == *(int *)arg ? "int5" : "int2; min=0");
}

static qcclResult_t set_different_things(struct team *team, int rank, void *arg)
{
    if (rank == *(int *)arg)
        return qcclCommSetSeed(team->comm[rank], 7);
    return qcclCommSetSequence(team->comm[rank], 7);
}

Test(disagreement, setters_that_disagree_name_both_values_on_every_rank_and_change_nothing)
{
    struct team team;
    char policy[QCCL_POLICY_MAX], before[QCCL_POLICY_MAX];
    open_team(&team, "int4; min=0");
    qcclCommGetPolicy(team.comm[0], before, sizeof before);
    for (int odd = 0; odd < RANKS; odd++) {
        team_run(&team, set_seed, &odd);
        expect_mismatch(&team, "100", "101");
        team_run(&team, set_sequence, &odd);
        expect_mismatch(&team, "200", "201");
        team_run(&team, set_policy, &odd);
        expect_mismatch(&team, "int8:group=128", "int2:group=128");
        team_run(&team, set_different_things, &odd);
        expect_mismatch(&team, "SetSeed", "SetSequence");
        for (int r = 0; r < RANKS; r++) {
            uint64_t seed = 9;
            uint32_t sequence = 9;
            qcclCommGetSeed(team.comm[r], &seed);
            qcclCommGetSequence(team.comm[r], &sequence);
            qcclCommGetPolicy(team.comm[r], policy, sizeof policy);
            cr_expect(seed == 0 && sequence == (uint32_t)odd && strcmp(policy, before) == 0,
                      "rank %d", r);
        }
        expect_usable(&team);
    }
    team_close(&team);
}

Test(disagreement, a_policy_that_parses_on_some_ranks_only_changes_none)
{
    struct team team;
    open_team(&team, "int4; min=0");
    for (int odd = 0; odd < RANKS; odd++) {
        team_run(&team, set_wrong_policy, &odd);
        for (int r = 0; r < RANKS; r++) {
            cr_expect_eq(team.result[r], r == odd ? qcclInvalidArgument : qcclMismatch, "%s",
                         team_report(&team));
            cr_expect(strstr(team.sentence[r], "position 1"), "%s", team.sentence[r]);
        }
        expect_usable(&team);
    }
    team_close(&team);
}

/* ------------------------------------------------------------------ calls under QCCL_CHECK=1 */

enum difference {
    COUNT_DIFFERS,
    TYPE_DIFFERS,
    OP_DIFFERS,
    CALL_DIFFERS,
    TENSOR_DIFFERS,
    DIFFERENCES
};
struct odd {
    enum difference what;
    int rank;
    bool checked; /* nothing may be written then */
};

static const char *const named[DIFFERENCES][2] = {
    [COUNT_DIFFERS] = {"count=1000", "count=999"},
    [TYPE_DIFFERS] = {"float32", "bfloat16"},
    [OP_DIFFERS] = {"op=sum", "op=avg"},
    [CALL_DIFFERS] = {"qcclAllReduce", "qcclAllGather"},
    [TENSOR_DIFFERS] = {"tensor=0", "tensor=5"},
};

static qcclResult_t odd_call(struct team *team, int rank, void *arg)
{
    const struct odd *odd = arg;
    bool different = rank == odd->rank;
    static float in[RANKS][COUNT], out[RANKS][RANKS * COUNT];
    input_fill(in[rank], COUNT, qcclFloat32, INPUT_NORMAL, 0, rank);
    memset(out[rank], 0x5a, sizeof out[rank]);
    qcclComm_t comm = team->comm[rank];
    if (different && odd->what == CALL_DIFFERS)
        return qcclAllGather(in[rank], out[rank], 1000, qcclFloat32, comm, NULL);
    qcclCommSetTensor(comm, different && odd->what == TENSOR_DIFFERS ? 5 : 0);
    qcclResult_t result =
        qcclAllReduce(in[rank], out[rank], different && odd->what == COUNT_DIFFERS ? 999 : 1000,
                      different && odd->what == TYPE_DIFFERS ? qcclBfloat16 : qcclFloat32,
                      different && odd->what == OP_DIFFERS ? qcclAvg : qcclSum, comm, NULL);
    qcclCommSetTensor(comm, 0);
    for (size_t i = 0; odd->checked && i < COUNT; i++) {
        uint32_t bits;
        memcpy(&bits, &out[rank][i], 4);
        if (bits != 0x5a5a5a5a)
            return qcclInternalError; /* written although the call failed */
    }
    return result;
}

static void check_calls(const char *policy)
{
    struct team team;
    setenv("QCCL_CHECK", "1", 1);
    open_team(&team, policy);
    for (int what = 0; what < DIFFERENCES; what++)
        for (int rank = 0; rank < RANKS; rank++) {
            struct odd odd = {.what = (enum difference)what, .rank = rank, .checked = true};
            team_run(&team, odd_call, &odd);
            expect_mismatch(&team, named[what][0], named[what][1]);
            expect_usable(&team);
        }
    team_close(&team);
}

Test(disagreement,
     checked_calls_that_differ_are_refused_on_every_rank_and_the_communicator_lives_on)
{
    check_calls("int4; min=0");
}

Test(disagreement, checked_calls_that_pass_through_are_compared_too)
{
    check_calls("none");
}

static void check_lost_sequence(const char *check)
{
    struct team team;
    setenv("QCCL_CHECK", check, 1);
    open_team(&team, "int4; min=0");
    team.comm[1]->sequence = 77;
    team_run(&team, good_call, NULL);
    if (*check == '1')
        expect_mismatch(&team, "sequence=0", "sequence=77");
    int named_both = 0;
    for (int r = 0; r < RANKS; r++) {
        cr_expect(team.result[r] == qcclMismatch || team.result[r] == qcclRemoteError, "%s",
                  team_report(&team));
        named_both += strstr(team.sentence[r], "sequence") && strstr(team.sentence[r], "77");
    }
    cr_expect_geq(named_both, 1, "%s", team_report(&team));
    team_close(&team);
}

Test(disagreement, a_lost_sequence_number_is_found_with_the_check_and_without_it)
{
    check_lost_sequence("1");
    check_lost_sequence("0");
}

/* ------------------------------------------------------------------ calls that nobody checks */

/* Without the check the error comes from a message of the wrong size, a silent peer, or one that
 * gave up. */
static void check_unchecked(const char *policy, enum difference what, size_t small_timeout)
{
    for (int rank = 0; rank < RANKS; rank++) {
        struct team team;
        qcclConfig_t config = QCCL_CONFIG_INITIALIZER;
        config.policy = policy;
        config.timeout = (double)small_timeout;
        cr_assert(team_open_config(&team, RANKS, &config), "%s", team.sentence[0]);
        struct odd odd = {.what = what, .rank = rank};
        team_run(&team, odd_call, &odd);
        for (int r = 0; r < RANKS; r++) {
            cr_expect(team.result[r] == qcclMismatch || team.result[r] == qcclRemoteError, "%s",
                      team_report(&team));
            cr_expect_gt(strlen(team.sentence[r]), 10);
            qcclResult_t kept = qcclSuccess;
            cr_expect_eq(qcclCommGetAsyncError(team.comm[r], &kept), qcclSuccess);
            cr_expect_eq(kept, team.result[r], "rank %d keeps %d", r, (int)kept);
        }
        qcclResult_t first[RANKS];
        memcpy(first, team.result, sizeof first);
        team_run(&team, good_call, NULL);
        for (int r = 0; r < RANKS; r++)
            cr_expect_eq(team.result[r], first[r], "a broken communicator returned %d, then %d",
                         (int)first[r], (int)team.result[r]);
        cr_expect(team_all_say(&team, "broken"), "%s", team_report(&team));
        team_close(&team);
    }
}

Test(disagreement, unchecked_counts_that_differ_end_with_an_error_on_every_rank)
{
    check_unchecked("none", COUNT_DIFFERS, 5);
    check_unchecked("int4; min=0", COUNT_DIFFERS, 5);
}

Test(disagreement, an_unchecked_collective_that_differs_ends_with_an_error_on_every_rank)
{
    check_unchecked("int4; min=0", CALL_DIFFERS, 2);
}

static qcclResult_t one_passes(struct team *team, int rank, void *arg)
{
    float in[COUNT] = {0}, out[COUNT];
    (void)arg;
    return qcclAllReduce(in, out, COUNT, rank ? qcclFloat32 : qcclInt32, qcclSum, team->comm[rank],
                         NULL);
}

Test(disagreement, a_rank_that_passes_through_what_others_compress_is_found)
{
    struct team team;
    qcclConfig_t config = QCCL_CONFIG_INITIALIZER;
    config.policy = "int4; min=0";
    config.timeout = 5;
    cr_assert(team_open_config(&team, RANKS, &config));
    team_run(&team, one_passes, NULL);
    for (int r = 0; r < RANKS; r++)
        cr_expect(team.result[r] == qcclMismatch || team.result[r] == qcclRemoteError, "%s",
                  team_report(&team));
    team_close(&team);
}
