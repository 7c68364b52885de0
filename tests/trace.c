/* The timeline inside one process: when there is a file, what is in it, and that nothing that goes
 * wrong with it is an error of a call.  tests/race/race_trace.c has the threads,
 * tests/trace_file.py the whole programs. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/trace.h"
#include "tests/harness.h"

enum { RANKS = 3 };

static char folder[] = "/tmp/qccl-trace-XXXXXX", path[64];

static void make_folder(void)
{
    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/out.json", folder);
}

static void remove_folder(void)
{
    unlink(path);
    rmdir(folder);
}

TestSuite(trace, .init = make_folder, .fini = remove_folder);

static qcclResult_t reduce(struct team *team, int rank, void *arg)
{
    float in[64] = {0}, out[64];
    (void)arg;
    return qcclAllReduce(in, out, 64, qcclFloat32, qcclSum, team->comm[rank], NULL);
}

/* A compressed call on every rank, communicators made before and freed after it. */
static bool run_team(void)
{
    struct team team;
    bool good = team_open(&team, RANKS, "int4; min=0") && team_run(&team, reduce, NULL);
    team_close(&team);
    return good;
}

/* How often the file has text; -1 without a file.  The caller's text is shorter than a line. */
static int occurrences(const char *text)
{
    char line[400];
    FILE *file = fopen(path, "r");
    int count = 0;
    if (!file)
        return -1;
    while (fgets(line, sizeof line, file))
        count += strstr(line, text) != NULL;
    fclose(file);
    return count;
}

static void open_timeline(void)
{
    setenv("QCCL_TRACE", path, 1);
    qccl_trace_open();
}

Test(trace, without_the_variable_there_is_neither_a_mark_nor_memory_for_one)
{
    unsetenv("QCCL_TRACE");
    cr_expect(run_team());
    cr_expect(!qccl_trace_on());
    cr_expect_eq(qcclTraceBegin(0, "mark"), qcclSuccess);
    cr_expect_eq(qcclTraceEnd(0), qcclSuccess);
    cr_expect_eq(qccl_memory_live(), 0);
}

Test(trace, when_the_last_communicator_goes_the_file_has_every_rank_and_kind)
{
    static const char *const names[] = {"encode", "wire", "decode", "qcclAllReduce"};
    setenv("QCCL_TRACE", path, 1);
    cr_assert(run_team());
    for (int rank = 0; rank < RANKS; rank++) {
        for (int i = 0; i < 4; i++) {
            char text[64];
            snprintf(text, sizeof text, "\"name\":\"%s\",\"pid\":%d,", names[i], rank);
            cr_expect_gt(occurrences(text), 0, "%s", text);
        }
    }
    cr_expect_eq(occurrences("\"process_name\""), RANKS);
}

Test(trace, another_communicator_adds_to_the_file)
{
    setenv("QCCL_TRACE", path, 1);
    cr_assert(run_team());
    int calls = occurrences("\"qcclAllReduce\"");
    cr_assert_eq(calls, RANKS);
    cr_assert(run_team());
    cr_expect_eq(occurrences("\"qcclAllReduce\""), 2 * RANKS);
}

Test(trace, a_file_that_cannot_be_written_is_no_error_of_a_call)
{
    setenv("QCCL_TRACE", "/nonexistent/folder/out.json", 1);
    cr_expect(run_team());
    cr_expect(qccl_trace_on());
}

Test(trace, no_memory_for_a_timeline_is_no_error_of_a_call)
{
    open_timeline();
    for (long n = 1; n <= 2; n++) {
        qccl_memory_fail_after(n);
        cr_expect_eq(qcclTraceBegin(0, "lost"), qcclSuccess);
        cr_expect_eq(qcclTraceEnd(0), qcclSuccess);
        qccl_memory_fail_after(0);
    }
    qccl_trace_begin(0, "kept");
    qccl_trace_end(0);
    qccl_trace_close();
    cr_expect_eq(occurrences("\"kept\""), 1);
}

Test(trace, marks_beyond_the_limit_are_dropped_and_counted)
{
    enum { ROOM = TRACE_CHUNK * TRACE_CHUNKS, MORE = 7 };
    open_timeline();
    for (int i = 0; i < ROOM + MORE; i++) {
        qccl_trace_begin(0, "mark");
        qccl_trace_end(0);
    }
    qccl_trace_close();
    char text[32];
    snprintf(text, sizeof text, "\"dropped\":%d}", MORE);
    cr_expect_eq(occurrences(text), 1);
    cr_expect_eq(occurrences("\"mark\""), ROOM);
}

Test(trace, ends_without_a_beginning_and_marks_too_deep_leave_the_others_alone)
{
    open_timeline();
    qccl_trace_end(0);
    for (int i = 0; i < TRACE_DEPTH + 5; i++)
        qccl_trace_begin(0, "deep");
    for (int i = 0; i < TRACE_DEPTH + 5; i++)
        qccl_trace_end(0);
    qccl_trace_begin(0, "after");
    qccl_trace_end(0);
    qccl_trace_close();
    cr_expect_eq(occurrences("\"deep\""), TRACE_DEPTH);
    cr_expect_eq(occurrences("\"after\""), 1);
}

Test(trace, spans_that_touch_become_one_unless_name_or_rank_differ)
{
    open_timeline();
    qccl_trace_span(0, "wire", 1000, 2000);
    qccl_trace_span(0, "wire", 2000, 4500);
    qccl_trace_span(1, "wire", 4500, 5000);
    qccl_trace_span(1, "encode", 5000, 6000);
    qccl_trace_span(1, "encode", 6001, 7000);
    qccl_trace_close();
    cr_expect_eq(occurrences("\"ts\":1.000,\"dur\":3.500"), 1);
    cr_expect_eq(occurrences("\"wire\""), 2);
    cr_expect_eq(occurrences("\"encode\""), 2);
}

Test(trace, names_are_cut_and_cleaned_so_that_the_file_stays_json)
{
    open_timeline();
    qccl_trace_thread("a \"row\"\n");
    qccl_trace_begin(0, "back\\slash \"quoted\" and far too long for a mark");
    qccl_trace_end(0);
    qccl_trace_close();
    cr_expect_eq(occurrences("\"name\":\"back_slash _quoted_ and far too\""), 1);
    cr_expect_eq(occurrences("\"name\":\"a _row__\""), 1);
}

Test(trace, a_rank_that_is_a_process_has_a_file_of_its_own)
{
    char whole[sizeof path];
    memcpy(whole, path, sizeof path);
    open_timeline();
    qccl_trace_rank_file(5);
    qccl_trace_rank_file(2);
    qccl_trace_begin(5, "mark");
    qccl_trace_end(5);
    qccl_trace_close();
    cr_expect_eq(occurrences("mark"), -1);
    snprintf(path, sizeof path, "%.*s.rank5.json", (int)strlen(whole) - 5, whole);
    cr_expect_eq(occurrences("\"mark\""), 1);
}

Test(trace, a_null_name_and_a_negative_rank_are_refused)
{
    cr_expect_eq(qcclTraceBegin(0, NULL), qcclInvalidArgument);
    cr_expect_eq(qcclTraceBegin(-1, "mark"), qcclInvalidArgument);
    cr_expect_eq(qcclTraceEnd(-1), qcclInvalidArgument);
}
