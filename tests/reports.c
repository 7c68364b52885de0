/* What a user can see: statistics, plans as text, the table of QCCL_STATS=1, and the log that says
 * once why a call passed through. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "quant/wire.h"
#include "tests/harness.h"

enum { RANKS = 3 };

static void run(struct team *team, const struct call *call)
{
    struct trial trial;
    cr_assert(trial_open(&trial, team->nranks, call) && trial_run(&trial, team), "%s",
              team_report(team));
    trial_close(&trial);
}

static qcclStats_t stats_of(const struct team *team, int rank)
{
    qcclStats_t stats = {.size = sizeof stats};
    cr_assert_eq(qcclCommGetStats(team->comm[rank], &stats), qcclSuccess);
    return stats;
}

/* ------------------------------------------------------------------ statistics */

Test(reports, raw_and_wire_bytes_follow_from_count_and_codec)
{
    enum { COUNT = 3 * 128 * 50 };
    struct team team;
    qcclCodec_t codec;
    cr_assert(team_open(&team, RANKS, "int4 gather=int8; min=0"));
    struct call call = {.count = COUNT, .type = qcclFloat32};
    run(&team, &call);
    run(&team, &call);
    cr_assert_eq(qcclCodecParse("int4", &codec), qcclSuccess);
    size_t part = qccl_wire_bytes(&codec, COUNT / RANKS);
    cr_assert_eq(qcclCodecParse("int8", &codec), qcclSuccess);
    size_t sum = qccl_wire_bytes(&codec, COUNT / RANKS);
    for (int r = 0; r < RANKS; r++) {
        qcclStats_t s = stats_of(&team, r);
        cr_expect_eq(s.calls, 2);
        cr_expect_eq(s.raw_bytes, 2 * 4 * (COUNT / RANKS) * 2 * (RANKS - 1));
        cr_expect_eq(s.wire_bytes, 2 * (RANKS - 1) * (part + sum));
        cr_expect_gt(s.encode_ns, 0);
        cr_expect_gt(s.decode_ns, 0);
        cr_expect_gt(s.wire_ns, 0);
        cr_expect_gt(s.workspace_bytes, 0);
        cr_expect_eq(s.feedback_bytes, 0);
    }
    team_close(&team);
}

Test(reports, the_sampled_error_is_that_of_the_encoded_values)
{
    struct team team;
    cr_assert(team_open(&team, RANKS, "allgather: int4; min=0"));
    struct call call = {.collective = qcclCollAllGather, .count = 2000, .type = qcclFloat32};
    struct trial trial;
    cr_assert(trial_open(&trial, RANKS, &call) && trial_run(&trial, &team));
    for (int r = 0; r < RANKS; r++) {
        const float *in = trial.send[r], *out = (const float *)trial.recv[0] + 2000 * (size_t)r;
        double energy = 0, error = 0;
        for (size_t i = 0; i < 2000; i++) {
            double x = (double)in[i], lost = x - (double)out[i];
            energy += x * x;
            error += lost * lost;
        }
        qcclStats_t s = stats_of(&team, r);
        cr_expect_eq(s.sampled_energy, energy, "rank %d", r);
        cr_expect_eq(s.sampled_error, error, "rank %d", r);
        cr_expect_gt(error, 0);
    }
    trial_close(&trial);
    team_close(&team);
}

Test(reports, a_caller_with_a_shorter_struct_gets_its_part_and_no_more)
{
    struct team team;
    qcclStats_t whole = {.size = sizeof whole}, part;
    struct call call = {.count = 50, .type = qcclInt32};
    cr_assert(team_open(&team, RANKS, NULL));
    run(&team, &call);
    memset(&part, 0x5a, sizeof part);
    part.size = offsetof(qcclStats_t, passed_type);
    cr_expect_eq(qcclCommGetStats(team.comm[0], &part), qcclSuccess);
    cr_expect_eq(part.size, offsetof(qcclStats_t, passed_type));
    cr_expect_eq(part.passed, 1);
    cr_expect_eq(part.passed_type, 0x5a5a5a5a5a5a5a5a);
    cr_expect_eq(qcclCommGetStats(team.comm[0], &whole), qcclSuccess);
    cr_expect_eq(whole.passed_type, 1);
    team_close(&team);
}

/* ------------------------------------------------------------------ plans as text */

static char *plan_text(const struct team *team, int rank, qcclColl_t collective, size_t count,
                       qcclRedOp_t op)
{
    size_t needed;
    cr_assert_eq(
        qcclCommPrintPlan(team->comm[rank], collective, count, qcclFloat32, op, NULL, 0, &needed),
        qcclSuccess, "%s", qcclGetLastError());
    char *text = malloc(needed), *cut = malloc(needed);
    cr_assert(text && cut);
    cr_assert_eq(
        qcclCommPrintPlan(team->comm[rank], collective, count, qcclFloat32, op, text, needed, NULL),
        qcclSuccess);
    cr_expect_eq(strlen(text) + 1, needed);
    cr_assert_eq(qcclCommPrintPlan(team->comm[rank], collective, count, qcclFloat32, op, cut,
                                   needed / 2, NULL),
                 qcclSuccess);
    cr_expect(strlen(cut) == needed / 2 - 1 && strncmp(text, cut, needed / 2 - 1) == 0);
    free(cut);
    return text;
}

Test(reports, the_text_of_a_plan_names_every_step)
{
    static const char *const words[] = {"allreduce of 3000 elements, rank 1 of 3, flat",
                                        "shards of 1024 elements",
                                        "recv    segment 1 from rank 0",
                                        "encode  segment 2",
                                        "int4:group=128",
                                        "send    slot",
                                        "wait",
                                        "reduce  segment 1: slot 0 + own input + slot 1",
                                        "times 1/3",
                                        "decode  slot",
                                        "stage 1"};
    struct team team;
    cr_assert(team_open(&team, RANKS, "int4; min=0"));
    char *text = plan_text(&team, 1, qcclCollAllReduce, 3000, qcclAvg);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        cr_expect(strstr(text, words[i]), "\"%s\" is not in\n%s", words[i], text);
    free(text);
    text = plan_text(&team, 1, qcclCollAllGatherDelta, 3000, qcclSum);
    cr_expect(strstr(text, "added"), "%s", text);
    free(text);
    team_close(&team);
}

Test(reports, the_text_of_a_call_that_passes_says_why)
{
    struct team team;
    cr_assert(team_open(&team, RANKS, "allreduce: int4; min=1MiB"));
    char *text = plan_text(&team, 0, qcclCollAllReduce, 3000, qcclSum);
    cr_expect(strstr(text, "not compressed, the message is below the policy's min="), "%s", text);
    free(text);
    text = plan_text(&team, 0, qcclCollAllReduce, 1 << 20, qcclMax);
    cr_expect(strstr(text, "neither sum nor avg"), "%s", text);
    free(text);
    cr_expect_eq(
        qcclCommPrintPlan(team.comm[0], qcclNumColls, 1, qcclFloat32, qcclSum, NULL, 0, NULL),
        qcclInvalidArgument);
    cr_expect_eq(qcclCommPrintPlan(NULL, qcclCollAllReduce, 1, qcclFloat32, qcclSum, NULL, 0, NULL),
                 qcclInvalidArgument);
    cr_expect_eq(
        qcclCommPrintPlan(team.comm[0], qcclCollAllReduce, 1, qcclFloat32, qcclSum, NULL, 5, NULL),
        qcclInvalidArgument);
    cr_expect_eq(qcclCommPrintPlan(team.comm[0], qcclCollAllReduce, SIZE_MAX / 8, qcclFloat32,
                                   qcclSum, NULL, 0, NULL),
                 qcclInvalidArgument);
    team_close(&team);
}

/* ------------------------------------------------------------------ stderr */

/* What a function writes to stderr in a process of its own; the caller frees it. */
static char *stderr_of(void (*fn)(void))
{
    FILE *file = tmpfile();
    cr_assert(file);
    pid_t child = fork();
    if (child == 0) {
        dup2(fileno(file), STDERR_FILENO);
        fn();
        _exit(0);
    }
    int status = 1;
    cr_assert(waitpid(child, &status, 0) == child && status == 0);
    long size = (fseek(file, 0, SEEK_END), ftell(file));
    char *text = calloc((size_t)size + 1, 1);
    rewind(file);
    cr_assert(text && fread(text, 1, (size_t)size, file) == (size_t)size);
    fclose(file);
    return text;
}

static int occurrences(const char *text, const char *word)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, word)); at++)
        n++;
    return n;
}

/* Five calls, three of which pass through for two reasons. */
static void five_calls(void)
{
    static const struct call calls[] = {{.count = 3000, .type = qcclFloat32},
                                        {.count = 3000, .type = qcclInt64},
                                        {.count = 3000, .type = qcclInt8},
                                        {.count = 10, .type = qcclFloat32},
                                        {.count = 3000, .type = qcclFloat32, .op = qcclAvg}};
    struct team team;
    if (!team_open(&team, RANKS, "allreduce: int4; min=1000"))
        _exit(1);
    for (int i = 0; i < 5; i++) {
        struct trial trial;
        if (!trial_open(&trial, RANKS, &calls[i]) || !trial_run(&trial, &team))
            _exit(1);
        trial_close(&trial);
    }
    team_close(&team);
}

Test(reports, the_library_is_silent_unless_asked)
{
    char *text = stderr_of(five_calls);
    cr_expect_str_eq(text, "");
    free(text);
}

Test(reports, the_log_says_once_why_calls_pass_through)
{
    setenv("QCCL_DEBUG", "INFO", 1);
    char *text = stderr_of(five_calls);
    cr_expect_eq(
        occurrences(text, "qcclAllReduce of 3000 x int64 is passed through: the element type"),
        RANKS, "%s", text);
    cr_expect_eq(occurrences(text, "int8 is passed through"), 0, "%s", text);
    cr_expect_eq(occurrences(text, "below the policy's min="), RANKS, "%s", text);
    cr_expect_eq(occurrences(text, "policy \"allreduce: int4:group=128;"), RANKS, "%s", text);
    for (int r = 0; r < RANKS; r++) {
        char word[32];
        snprintf(word, sizeof word, " [%d] QCCL INFO ", r);
        cr_expect_gt(occurrences(text, word), 1, "%s", text);
    }
    free(text);
}

Test(reports, warnings_show_what_broke_a_communicator)
{
    setenv("QCCL_DEBUG", "WARN", 1);
    char *text = stderr_of(five_calls);
    cr_expect_str_eq(text, "");
    free(text);
    setenv("QCCL_CPU", "mmx", 1);
    setenv("QCCL_CHECK", "perhaps", 1);
    text = stderr_of(five_calls);
    cr_expect(strstr(text, "QCCL_CHECK=perhaps is neither 0 nor 1"), "%s", text);
    cr_expect(strstr(text, "QCCL_CPU=mmx is none of c, avx2, avx512"), "%s", text);
    free(text);
}

Test(reports, the_statistics_table_is_printed_at_the_end_when_asked_for)
{
    setenv("QCCL_STATS", "1", 1);
    char *text = stderr_of(five_calls);
    for (int r = 0; r < RANKS; r++) {
        char word[32];
        snprintf(word, sizeof word, "qccl rank %d of %d\n", r, RANKS);
        cr_expect_eq(occurrences(text, word), 1, "%s", text);
    }
    cr_expect_eq(occurrences(text, "compressed calls             2\n"), RANKS, "%s", text);
    cr_expect_eq(occurrences(text, "(type 2, op 0, small 1, policy 0, one rank 0)"), RANKS, "%s",
                 text);
    cr_expect_eq(occurrences(text, "relative error of encoding, sampled"), RANKS, "%s", text);
    free(text);
}
