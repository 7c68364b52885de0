/* Error feedback: what encoding lost is what is kept, to the bit; it is added next time, so that
 * running means converge; it can be saved, restored and forgotten, and damaged or foreign state is
 * refused. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/comm.h"
#include "quant/kernels.h"
#include "tests/harness.h"

enum { RANKS = 3, COUNT = 3000, VALUES = 1000 };

static qcclCodec_t codec_of(const char *text)
{
    qcclCodec_t codec;
    cr_assert_eq(qcclCodecParse(text, &codec), qcclSuccess, "%s", qcclGetLastError());
    return codec;
}

/* Encodes x with residual e and decodes to y. */
static void round_trip(const qcclCodec_t *codec, uint32_t sequence, const float *x, float *e,
                       float *y)
{
    qcclPosition_t position = {.seed = 5, .sequence = sequence};
    size_t bytes;
    cr_assert_eq(qcclEncodedBytes(codec, VALUES, &bytes), qcclSuccess);
    void *message = aligned_alloc(64, (bytes + 63) / 64 * 64);
    cr_assert(message);
    cr_assert_eq(qcclEncode(codec, &position, x, qcclFloat32, VALUES, e, message, bytes),
                 qcclSuccess, "%s", qcclGetLastError());
    cr_assert_eq(qcclDecode(message, bytes, y, qcclFloat32, VALUES, 0), qcclSuccess);
    free(message);
}

static const char *const codecs[] = {
    "int8",          "int4", "int2:group=96",         "sr1",
    "sign1",         "bf16", "bf16:round=stochastic", "int4:round=nearest",
    "sign1:group=32"};

/* ------------------------------------------------------------------ one segment */

Test(feedback, the_residual_is_exactly_what_was_to_be_sent_minus_what_arrives)
{
    static const enum pattern patterns[] = {INPUT_NORMAL, INPUT_SPIKE, INPUT_TINY, INPUT_BLOCKS,
                                            INPUT_NEGATIVE};
    for (size_t c = 0; c < sizeof codecs / sizeof *codecs; c++)
        for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++) {
            qcclCodec_t codec = codec_of(codecs[c]);
            float x[VALUES], e[VALUES] = {0}, before[VALUES], y[VALUES];
            for (uint32_t step = 0; step < 6; step++) {
                input_fill(x, VALUES, qcclFloat32, patterns[p], step, 0);
                memcpy(before, e, sizeof e);
                round_trip(&codec, step, x, e, y);
                for (size_t i = 0; i < VALUES; i++) {
                    float sent = x[i] + before[i], lost = sent - y[i];
                    cr_assert_eq(e[i], lost, "%s, %s, step %u, %zu: residual %a instead of %a",
                                 codecs[c], input_name(patterns[p]), step, i, (double)e[i],
                                 (double)lost);
                }
            }
        }
}

Test(feedback, the_residual_of_a_hadamard_codec_is_that_of_the_transformed_values)
{
    enum { WHOLE = VALUES / 32 * 32 };
    qcclCodec_t plain = codec_of("int4:group=64"), rotated = codec_of("int4:group=64,hadamard=32");
    float x[VALUES], y[VALUES], decoded[VALUES], e[VALUES] = {0}, f[VALUES] = {0};
    for (uint32_t step = 0; step < 4; step++) {
        input_fill(x, VALUES, qcclFloat32, INPUT_NORMAL, step, 0);
        round_trip(&rotated, step, x, e, decoded);
        memcpy(y, x, sizeof y);
        qccl_converters()->hadamard(y, WHOLE, 32);
        round_trip(&plain, step, y, f, decoded);
        cr_expect_eq(memcmp(e, f, WHOLE / 64 * 64 * sizeof *e), 0, "step %u", step);
    }
}

Test(feedback, a_poisoned_group_leaves_no_residual_and_a_zero_group_keeps_all)
{
    for (size_t c = 0; c < sizeof codecs / sizeof *codecs; c++) {
        qcclCodec_t codec = codec_of(codecs[c]);
        float x[VALUES], e[VALUES], y[VALUES];
        if (codec.format == qcclFormatBf16)
            continue; /* no groups */
        for (size_t i = 0; i < VALUES; i++) {
            x[i] = i / codec.group == 1 ? 0x1p-110f : 1.0f;
            e[i] = i / codec.group == 1 ? 0x1p-111f : 0.25f;
        }
        x[5] = NAN;
        round_trip(&codec, 0, x, e, y);
        for (size_t i = 0; i < codec.group; i++) {
            cr_assert_eq(e[i], 0.0f, "%s, %zu", codecs[c], i);
            cr_assert(isnan(y[i]));
            cr_assert_eq(e[codec.group + i], 0x1.8p-110f, "%s, %zu", codecs[c], i);
            cr_assert_eq(y[codec.group + i], 0.0f);
        }
    }
}

Test(feedback, the_running_mean_of_what_arrives_approaches_the_value)
{
    /* What arrived in n steps is n times the value less the last residual, so the mean is off by
     * the residual over n.  A step rounds twice in fp32, x + e and that minus y, where y is below
     * twice the largest |x + e|: 2^-24 of 4 times that at most. */
    static const char *const lossy[] = {"sign1", "sign1:group=32", "int2:round=nearest", "int4",
                                        "int4:round=nearest"};
    for (size_t c = 0; c < sizeof lossy / sizeof *lossy; c++) {
        qcclCodec_t codec = codec_of(lossy[c]);
        enum { STEPS = 256 };
        float x[VALUES], e[VALUES] = {0}, y[VALUES];
        static double sum[VALUES];
        double early = 0, late = 0, largest = 0, kept = 0;
        memset(sum, 0, sizeof sum);
        input_fill(x, VALUES, qcclFloat32, INPUT_NORMAL, 1, 0);
        for (size_t i = 0; i < VALUES; i++)
            largest = fmax(largest, fabs((double)x[i]));
        for (uint32_t step = 1; step <= STEPS; step++) {
            round_trip(&codec, step, x, e, y);
            late = 0;
            for (size_t i = 0; i < VALUES; i++)
                kept = fmax(kept, fabs((double)e[i]));
            for (size_t i = 0; i < VALUES; i++) {
                sum[i] += (double)y[i];
                double off = fabs(sum[i] / step - (double)x[i]), rest = fabs((double)e[i]);
                late += off * off;
                cr_assert_leq(off, rest / step + (largest + kept) * 0x1p-22, "%s, step %u, %zu",
                              lossy[c], step, i);
            }
            early = step == 8 ? late : early;
        }
        cr_expect_lt(late, early, "%s: squared error %g after 8 steps, %g after %d", lossy[c],
                     early, late, STEPS);
    }
}

/* ------------------------------------------------------------------ collectives */

static void open_team(struct team *team, const char *policy)
{
    cr_assert(team_open(team, RANKS, policy), "%s", team->sentence[0]);
}

static float *step(struct team *team, const struct call *call)
{
    struct trial trial;
    size_t bytes;
    cr_assert(trial_open(&trial, team->nranks, call) && trial_run(&trial, team), "%s",
              team_report(team));
    cr_assert_eq(trial_differs(&trial), 0);
    float *result = trial_result(&trial, &bytes);
    cr_assert(result);
    trial_close(&trial);
    return result;
}

static const struct call usual = {.count = COUNT, .type = qcclFloat32, .input_seed = 1};

static double largest_residual(const struct team *team)
{
    double largest = 0;
    for (int r = 0; r < team->nranks; r++)
        for (const struct residual *x = team->comm[r]->feedback.first; x; x = x->next)
            for (size_t i = 0; i < x->elems; i++)
                largest = fmax(largest, fabs((double)x->values[i]));
    return largest;
}

/* The largest error of the mean result of so many equal allreduces. */
static double mean_error(const char *policy, int steps, double *residual)
{
    struct team team;
    double *sum = calloc(COUNT, sizeof *sum), largest = 0;
    cr_assert(sum);
    open_team(&team, policy);
    for (int s = 0; s < steps; s++) {
        float *result = step(&team, &usual);
        for (size_t i = 0; i < COUNT; i++)
            sum[i] += (double)result[i];
        free(result);
    }
    for (size_t i = 0; i < COUNT; i++) {
        double exact = 0;
        for (int r = 0; r < RANKS; r++)
            exact += (double)input_value(INPUT_NORMAL, 1, r, i);
        largest = fmax(largest, fabs(sum[i] / steps - exact));
    }
    *residual = largest_residual(&team);
    team_close(&team);
    free(sum);
    return largest;
}

Test(feedback,
     the_mean_of_repeated_allreduces_approaches_the_exact_sum_where_without_feedback_it_does_not)
{
    double residual, unused;
    double with = mean_error("sign1:feedback=on gather=sign1:feedback=on; min=0", 128, &residual);
    double early = mean_error("sign1:feedback=on gather=sign1:feedback=on; min=0", 8, &unused);
    double without = mean_error("sign1; min=0", 128, &unused);
    /* What is missing is in the residuals: those of the peers' parts and that of the sum, RANKS in
     * all. */
    cr_expect_leq(with, RANKS * residual / 128 * (1 + 0x1p-10), "off by %g, residuals up to %g",
                  with, residual);
    cr_expect_lt(with, early, "off by %g after 8 steps, %g after 128", early, with);
    cr_expect_lt(with, without, "off by %g with feedback, %g without", with, without);
}

Test(feedback, every_tensor_keeps_its_own)
{
    struct team both, alone[2];
    struct call call[2] = {usual, usual};
    call[1].input_seed = 2;
    open_team(&both, "int2:round=nearest,feedback=on; min=0");
    open_team(&alone[0], "int2:round=nearest,feedback=on; min=0");
    open_team(&alone[1], "int2:round=nearest,feedback=on; min=0");
    for (int s = 0; s < 5; s++)
        for (int t = 0; t < 2; t++) {
            for (int r = 0; r < RANKS; r++)
                cr_assert_eq(qcclCommSetTensor(both.comm[r], 40 + (uint64_t)t), qcclSuccess);
            float *a = step(&both, &call[t]), *b = step(&alone[t], &call[t]);
            cr_expect_eq(memcmp(a, b, COUNT * sizeof *a), 0, "step %d, tensor %d", s, t);
            free(a);
            free(b);
        }
    qcclStats_t stats = {.size = sizeof stats};
    cr_assert_eq(qcclCommGetStats(both.comm[0], &stats), qcclSuccess);
    size_t one = stats.feedback_bytes;
    cr_assert_eq(qcclCommGetStats(alone[0].comm[0], &stats), qcclSuccess);
    cr_expect_eq(one, 2 * stats.feedback_bytes);
    team_close(&both);
    team_close(&alone[0]);
    team_close(&alone[1]);
}

Test(feedback, a_reset_forgets_everything)
{
    static const char *const policy =
        "allreduce: int2:round=nearest,feedback=on; allgather: sign1:feedback=on; min=0";
    for (int c = 0; c < 3; c += 2) {
        struct team team;
        struct call call = usual;
        call.collective = (qcclColl_t)c;
        open_team(&team, policy);
        float *first = step(&team, &call), *second = step(&team, &call);
        cr_expect_neq(memcmp(first, second, COUNT * sizeof *first), 0, "feedback changed nothing");
        for (int r = 0; r < RANKS; r++)
            cr_assert_eq(qcclFeedbackReset(team.comm[r]), qcclSuccess);
        float *again = step(&team, &call);
        cr_expect_eq(memcmp(first, again, COUNT * sizeof *first), 0);
        free(first);
        free(second);
        free(again);
        team_close(&team);
    }
}

static qcclResult_t set_policy(struct team *team, int rank, void *policy)
{
    return qcclCommSetPolicy(team->comm[rank], policy);
}

Test(feedback, a_new_policy_begins_without_residuals)
{
    static char other[] = "sign1:feedback=on; min=0", back[] = "int2:feedback=on; min=0";
    struct team team;
    size_t empty, bytes;
    open_team(&team, back);
    cr_assert_eq(qcclFeedbackBytes(team.comm[0], &empty), qcclSuccess);
    free(step(&team, &usual));
    cr_assert_eq(qcclFeedbackBytes(team.comm[0], &bytes), qcclSuccess);
    cr_expect_gt(bytes, empty);
    char *const policies[] = {other, back};
    for (int i = 0; i < 2; i++) {
        cr_assert(team_run(&team, set_policy, policies[i]), "%s", team_report(&team));
        cr_assert_eq(qcclFeedbackBytes(team.comm[0], &bytes), qcclSuccess);
        cr_expect_eq(bytes, empty, "%s begins with %zu bytes", policies[i], bytes - empty);
        free(step(&team, &usual));
    }
    team_close(&team);
}

/* ------------------------------------------------------------------ state */

struct state {
    unsigned char *bytes[RANKS];
    size_t size[RANKS];
};

static void save(const struct team *team, struct state *state)
{
    for (int r = 0; r < RANKS; r++) {
        cr_assert_eq(qcclFeedbackBytes(team->comm[r], &state->size[r]), qcclSuccess);
        state->bytes[r] = malloc(state->size[r]);
        cr_assert(state->bytes[r]);
        cr_expect_eq(qcclFeedbackSave(team->comm[r], state->bytes[r], state->size[r] - 1),
                     qcclInvalidArgument);
        cr_assert_eq(qcclFeedbackSave(team->comm[r], state->bytes[r], state->size[r]), qcclSuccess,
                     "%s", qcclGetLastError());
    }
}

static void forget(struct state *state)
{
    for (int r = 0; r < RANKS; r++)
        free(state->bytes[r]);
}

static qcclResult_t set_sequence(struct team *team, int rank, void *arg)
{
    return qcclCommSetSequence(team->comm[rank], *(uint32_t *)arg);
}

static const char *const kept =
    "int4:feedback=on,hadamard=32 gather=sr1:feedback=on intra=int8:feedback=on; min=0";

Test(feedback, a_saved_state_goes_on_bit_for_bit_in_another_communicator)
{
    struct team old, new;
    struct state state;
    struct call scatter = usual;
    scatter.collective = qcclCollReduceScatter;
    scatter.count = 700;
    open_team(&old, kept);
    open_team(&new, kept);
    for (int s = 0; s < 3; s++) {
        free(step(&old, &usual));
        free(step(&old, &scatter));
    }
    save(&old, &state);
    uint32_t sequence = 6;
    cr_assert(team_run(&new, set_sequence, &sequence));
    for (int r = 0; r < RANKS; r++)
        cr_assert_eq(qcclFeedbackRestore(new.comm[r], state.bytes[r], state.size[r]), qcclSuccess,
                     "%s", qcclGetLastError());
    for (int s = 0; s < 3; s++)
        for (int k = 0; k < 2; k++) {
            float *a = step(&old, k ? &scatter : &usual), *b = step(&new, k ? &scatter : &usual);
            cr_expect_eq(memcmp(a, b, (k ? 2100 : COUNT) * sizeof *a), 0, "step %d", s);
            free(a);
            free(b);
        }
    forget(&state);
    team_close(&old);
    team_close(&new);
}

/* Restoring must fail and leave the residuals as they are: saving again gives the same bytes. */
static void expect_refused(qcclComm_t comm, const void *bytes, size_t size, const char *what)
{
    size_t before, after;
    cr_assert_eq(qcclFeedbackBytes(comm, &before), qcclSuccess);
    unsigned char *a = malloc(before), *b = malloc(before);
    cr_assert(a && b);
    cr_assert_eq(qcclFeedbackSave(comm, a, before), qcclSuccess);
    cr_expect_eq(qcclFeedbackRestore(comm, bytes, size), qcclCorruptMessage, "%s", what);
    cr_expect_gt(strlen(qcclGetLastError()), 10);
    cr_assert_eq(qcclFeedbackBytes(comm, &after), qcclSuccess);
    cr_assert_eq(before, after, "%s changed the residuals", what);
    cr_assert_eq(qcclFeedbackSave(comm, b, before), qcclSuccess);
    cr_expect_eq(memcmp(a, b, before), 0, "%s changed the residuals", what);
    free(a);
    free(b);
}

Test(feedback, damaged_cut_or_foreign_state_is_refused_and_changes_nothing)
{
    struct team team, other;
    struct state state;
    char what[64];
    open_team(&team, kept);
    free(step(&team, &usual));
    save(&team, &state);
    for (size_t at = 0; at < state.size[0]; at += at < 128 ? 1 : 997) {
        state.bytes[0][at] ^= 0x40;
        snprintf(what, sizeof what, "damage at byte %zu", at);
        expect_refused(team.comm[0], state.bytes[0], state.size[0], what);
        state.bytes[0][at] ^= 0x40;
    }
    for (size_t size = 0; size < state.size[0]; size += size < 128 ? 1 : 997)
        expect_refused(team.comm[0], state.bytes[0], size, "a cut state");
    expect_refused(team.comm[0], state.bytes[1], state.size[1], "another rank's state");
    cr_expect(strstr(qcclGetLastError(), "rank 1's of 3, this is rank 0 of 3"), "%s",
              qcclGetLastError());
    open_team(&other, "int8:feedback=on; min=0");
    expect_refused(other.comm[0], state.bytes[0], state.size[0], "another policy's state");
    team_close(&other);
    cr_assert(team_open(&other, 2, kept));
    expect_refused(other.comm[0], state.bytes[0], state.size[0],
                   "the state of another number of ranks");
    cr_expect_eq(qcclFeedbackRestore(team.comm[0], state.bytes[0], state.size[0]), qcclSuccess,
                 "%s", qcclGetLastError());
    cr_expect_eq(qcclFeedbackRestore(team.comm[0], NULL, 100), qcclInvalidArgument);
    cr_expect_eq(qcclFeedbackRestore(NULL, state.bytes[0], state.size[0]), qcclInvalidArgument);
    team_close(&other);
    forget(&state);
    team_close(&team);
}

Test(feedback, an_empty_state_saves_and_restores_as_empty)
{
    struct team team;
    struct state state;
    open_team(&team, kept);
    save(&team, &state);
    float *first = step(&team, &usual);
    uint32_t sequence = 0;
    for (int r = 0; r < RANKS; r++)
        cr_assert_eq(qcclFeedbackRestore(team.comm[r], state.bytes[r], state.size[r]), qcclSuccess);
    cr_assert(team_run(&team, set_sequence, &sequence));
    float *again = step(&team, &usual);
    cr_expect_eq(memcmp(first, again, COUNT * sizeof *first), 0);
    free(first);
    free(again);
    forget(&state);
    team_close(&team);
}
