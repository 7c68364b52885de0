/* Streams and events: order, errors that stick, what destroying means, collectives on streams. */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "collectives/comm.h"
#include "tests/harness.h"

enum { JOBS = 200, RANKS = 3, COUNT = 5000, CALLS = 6 };

static void pause_ms(long ms)
{
    struct timespec t = {.tv_nsec = ms * 1000000};
    nanosleep(&t, NULL);
}

/* A gate that jobs wait at. */
struct gate {
    atomic_int open, reached;
};

static qcclResult_t wait_at_gate(void *argument)
{
    struct gate *gate = argument;
    atomic_fetch_add(&gate->reached, 1);
    while (!atomic_load(&gate->open))
        pause_ms(1);
    return qcclSuccess;
}

struct note {
    int *list, *used;
    int number;
};

static qcclResult_t write_note(void *argument)
{
    struct note *note = argument;
    note->list[(*note->used)++] = note->number;
    return qcclSuccess;
}

static qcclResult_t fail_once(void *argument)
{
    return qccl_fail(qcclSystemError, "%s", (const char *)argument);
}

static qcclStream_t new_stream(int priority)
{
    qcclStream_t stream = NULL;
    cr_assert_eq(qcclStreamCreate(&stream, priority), qcclSuccess, "%s", qcclGetLastError());
    return stream;
}

Test(streams, work_is_done_in_the_order_in_which_it_was_put)
{
    int list[JOBS], used = 0;
    struct note notes[JOBS];
    qcclStream_t stream = new_stream(0);
    for (int i = 0; i < JOBS; i++) {
        notes[i] = (struct note){.list = list, .used = &used, .number = i};
        cr_assert_eq(qcclStreamLaunch(stream, write_note, &notes[i]), qcclSuccess);
    }
    cr_expect_eq(qcclStreamSynchronize(stream), qcclSuccess);
    cr_expect_eq(used, JOBS);
    for (int i = 0; i < used; i++)
        cr_expect_eq(list[i], i);
    cr_expect_eq(qcclStreamDestroy(stream), qcclSuccess);
    cr_expect_eq(qccl_memory_live(), 0);
}

static qcclResult_t read_niceness(void *argument)
{
    *(int *)argument = getpriority(PRIO_PROCESS, 0); /* on Linux, this thread's */
    return qcclSuccess;
}

/* Twice: as the program was started, and when it is nice itself. */
Test(streams, a_worker_is_nicer_than_the_program_by_its_priority)
{
    for (int round = 0; round < 2; round++) {
        int own = getpriority(PRIO_PROCESS, 0), niceness = -99;
        for (int priority = 0; priority <= QCCL_PRIORITY_LOWEST; priority++) {
            qcclStream_t stream = new_stream(priority);
            qcclStreamLaunch(stream, read_niceness, &niceness);
            cr_expect_eq(qcclStreamDestroy(stream), qcclSuccess);
            cr_expect_eq(niceness, own + priority < 19 ? own + priority : 19, "priority %d",
                         priority);
        }
        cr_assert_eq(setpriority(PRIO_PROCESS, 0, own < 14 ? own + 5 : 19), 0);
    }
}

/* Of this thread, as sched_getattr(2) tells it. */
static uint64_t slice_of_thread(void)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t slice_ns, deadline, period;
    } attr = {.size = sizeof attr};
    return syscall(SYS_sched_getattr, 0, &attr, sizeof attr, 0) == 0 ? attr.slice_ns : 0;
}

static qcclResult_t read_slice(void *argument)
{
    *(uint64_t *)argument = slice_of_thread();
    return qcclSuccess;
}

Test(streams, a_worker_has_the_shortest_slice_where_threads_have_slices)
{
    uint64_t own = slice_of_thread(), slice_ns = 0;
    qcclStream_t stream = new_stream(3);
    qcclStreamLaunch(stream, read_slice, &slice_ns);
    cr_expect_eq(qcclStreamDestroy(stream), qcclSuccess);
    if (own) /* since Linux 6.12 */
        cr_expect_eq(slice_ns, 100000, "%llu ns", (unsigned long long)slice_ns);
    else
        cr_expect_eq(slice_ns, 0);
}

Test(streams, several_run_at_once_and_a_query_tells_when_work_is_left)
{
    struct gate gate = {0};
    qcclStream_t a = new_stream(0), b = new_stream(QCCL_PRIORITY_LOWEST);
    qcclStreamLaunch(a, wait_at_gate, &gate);
    qcclStreamLaunch(b, wait_at_gate, &gate);
    while (atomic_load(&gate.reached) < 2)
        pause_ms(1); /* only if both run */
    cr_expect_eq(qcclStreamQuery(a), qcclInProgress);
    cr_expect_eq(qcclStreamQuery(b), qcclInProgress);
    atomic_store(&gate.open, 1);
    cr_expect_eq(qcclStreamSynchronize(a), qcclSuccess);
    cr_expect_eq(qcclStreamQuery(a), qcclSuccess);
    qcclStreamDestroy(a);
    qcclStreamDestroy(b);
}

Test(streams, an_event_orders_the_work_of_two_streams)
{
    struct gate gate = {0};
    int list[2], used = 0;
    struct note first = {.list = list, .used = &used, .number = 1};
    struct note second = {.list = list, .used = &used, .number = 2};
    qcclStream_t a = new_stream(0), b = new_stream(0);
    qcclEvent_t event = NULL;
    cr_assert_eq(qcclEventCreate(&event), qcclSuccess);
    cr_expect_eq(qcclEventQuery(event), qcclSuccess, "an event that was never recorded");
    cr_expect_eq(qcclEventSynchronize(event), qcclSuccess);
    qcclStreamLaunch(a, wait_at_gate, &gate);
    qcclStreamLaunch(a, write_note, &first);
    cr_expect_eq(qcclEventRecord(event, a), qcclSuccess);
    cr_expect_eq(qcclStreamWaitEvent(b, event), qcclSuccess);
    cr_expect_eq(qcclEventDestroy(event), qcclSuccess, "while b waits for it");
    qcclStreamLaunch(b, write_note, &second);
    pause_ms(20);
    cr_expect_eq(qcclStreamQuery(b), qcclInProgress);
    atomic_store(&gate.open, 1);
    cr_expect_eq(qcclStreamSynchronize(b), qcclSuccess);
    cr_expect(used == 2 && list[0] == 1 && list[1] == 2);
    qcclStreamDestroy(a);
    qcclStreamDestroy(b);
    cr_expect_eq(qccl_memory_live(), 0);
}

Test(streams, an_event_outlives_its_stream_and_is_recorded_anew)
{
    struct gate gate = {0};
    qcclStream_t a = new_stream(0);
    qcclEvent_t event = NULL;
    qcclEventCreate(&event);
    qcclStreamLaunch(a, wait_at_gate, &gate);
    qcclEventRecord(event, a);
    cr_expect_eq(qcclEventQuery(event), qcclInProgress);
    atomic_store(&gate.open, 1);
    qcclStreamDestroy(a);
    cr_expect_eq(qcclEventQuery(event), qcclSuccess);
    cr_expect_eq(qcclEventRecord(event, NULL), qcclSuccess);
    cr_expect_eq(qcclEventQuery(event), qcclSuccess);
    qcclEventDestroy(event);
    cr_expect_eq(qccl_memory_live(), 0);
}

Test(streams, the_first_error_stays_with_its_sentence_and_later_work_is_done)
{
    static char one[] = "the first of two", two[] = "the second of two";
    int list[1], used = 0;
    struct note note = {.list = list, .used = &used, .number = 1};
    qcclStream_t stream = new_stream(0);
    qcclStreamLaunch(stream, fail_once, one);
    qcclStreamLaunch(stream, fail_once, two);
    qcclStreamLaunch(stream, write_note, &note);
    for (int i = 0; i < 2; i++) {
        cr_expect_eq(qcclStreamSynchronize(stream), qcclSystemError);
        cr_expect_str_eq(qcclGetLastError(), one);
        cr_expect_eq(qcclStreamQuery(stream), qcclSystemError);
    }
    cr_expect_eq(used, 1);
    cr_expect_eq(qcclStreamDestroy(stream), qcclSystemError);
}

Test(streams, destroying_a_stream_does_the_work_that_is_left)
{
    int list[JOBS], used = 0;
    struct note notes[JOBS];
    qcclStream_t stream = new_stream(3);
    for (int i = 0; i < JOBS; i++) {
        notes[i] = (struct note){.list = list, .used = &used, .number = i};
        qcclStreamLaunch(stream, write_note, &notes[i]);
    }
    cr_expect_eq(qcclStreamDestroy(stream), qcclSuccess);
    cr_expect_eq(used, JOBS);
    cr_expect_eq(qcclStreamDestroy(NULL), qcclSuccess);
    cr_expect_eq(qcclEventDestroy(NULL), qcclSuccess);
}

/* From within: waits for its own stream; the sentence of the last refusal is kept. */
struct insider {
    qcclStream_t stream;
    qcclResult_t synchronized, destroyed;
    char sentence[200];
};

static qcclResult_t wait_for_oneself(void *argument)
{
    struct insider *in = argument;
    in->synchronized = qcclStreamSynchronize(in->stream);
    in->destroyed = qcclStreamDestroy(in->stream);
    snprintf(in->sentence, sizeof in->sentence, "%s", qcclGetLastError());
    return qcclSuccess;
}

Test(streams, a_function_on_a_stream_that_would_wait_for_that_stream_is_refused)
{
    struct insider in = {.stream = new_stream(0)};
    cr_assert_eq(qcclStreamLaunch(in.stream, wait_for_oneself, &in), qcclSuccess);
    cr_expect_eq(qcclStreamSynchronize(in.stream), qcclSuccess);
    cr_expect_eq(in.synchronized, qcclInvalidUsage);
    cr_expect_eq(in.destroyed, qcclInvalidUsage);
    cr_expect(strstr(in.sentence, "qcclStreamDestroy"), "%s", in.sentence);
    cr_expect_eq(qcclStreamDestroy(in.stream), qcclSuccess, "it is still there");
    cr_expect_eq(qccl_memory_live(), 0);
}

Test(streams, wrong_arguments_are_refused)
{
    qcclStream_t stream = NULL;
    cr_expect_eq(qcclStreamCreate(NULL, 0), qcclInvalidArgument);
    cr_expect_eq(qcclStreamCreate(&stream, -1), qcclInvalidArgument);
    cr_expect_eq(qcclStreamCreate(&stream, QCCL_PRIORITY_LOWEST + 1), qcclInvalidArgument);
    cr_expect_null(stream);
    cr_expect_eq(qcclStreamSynchronize(NULL), qcclInvalidArgument);
    cr_expect_eq(qcclStreamQuery(NULL), qcclInvalidArgument);
    cr_expect_eq(qcclStreamLaunch(NULL, fail_once, NULL), qcclInvalidArgument);
    cr_expect_eq(qcclEventCreate(NULL), qcclInvalidArgument);
    cr_expect_eq(qcclEventRecord(NULL, NULL), qcclInvalidArgument);
    cr_expect_eq(qcclEventQuery(NULL), qcclInvalidArgument);
    cr_expect_eq(qcclEventSynchronize(NULL), qcclInvalidArgument);
    cr_expect_eq(qcclStreamWaitEvent(NULL, NULL), qcclInvalidArgument);
}

/* ------------------------------------------------------------------ collectives on streams */

struct calls {
    float in[RANKS][CALLS][COUNT], out[RANKS][CALLS][COUNT];
    int streams; /* 0: blocking */
    qcclResult_t async;
};

/* CALLS all-reduces, spread over streams. */
static qcclResult_t reduce_all(struct team *team, int rank, void *arg)
{
    struct calls *calls = arg;
    qcclStream_t streams[3] = {NULL};
    qcclResult_t result = qcclSuccess;
    for (int i = 0; i < calls->streams; i++)
        result = qcclStreamCreate(&streams[i], i);
    for (int i = 0; i < CALLS && result == qcclSuccess; i++)
        result =
            qcclAllReduce(calls->in[rank][i], calls->out[rank][i], COUNT, qcclFloat32, qcclAvg,
                          team->comm[rank], calls->streams ? streams[i % calls->streams] : NULL);
    for (int i = 0; i < calls->streams; i++) {
        qcclResult_t left = qcclStreamDestroy(streams[i]);
        result = result == qcclSuccess ? left : result;
    }
    return result;
}

static struct calls *new_calls(int streams)
{
    struct calls *calls = calloc(1, sizeof *calls);
    cr_assert(calls);
    calls->streams = streams;
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < CALLS; i++)
            input_fill(calls->in[r][i], COUNT, qcclFloat32, INPUT_NORMAL, (uint64_t)i, r);
    return calls;
}

Test(streams, calls_on_one_or_several_streams_give_the_bits_of_blocking_calls)
{
    struct calls *blocking = new_calls(0);
    struct team team;
    cr_assert(team_open(&team, RANKS, "int4; min=0"));
    cr_assert(team_run(&team, reduce_all, blocking), "%s", team_report(&team));
    team_close(&team);
    for (int streams = 1; streams <= 3; streams++) {
        struct calls *calls = new_calls(streams);
        cr_assert(team_open(&team, RANKS, "int4; min=0"));
        cr_assert(team_run(&team, reduce_all, calls), "%s", team_report(&team));
        team_close(&team);
        cr_expect(memcmp(calls->out, blocking->out, sizeof calls->out) == 0, "%d streams", streams);
        free(calls);
    }
    free(blocking);
    cr_expect_eq(qccl_memory_live(), 0);
}

/* Rank 0 aborts while its calls wait for the others, who never call. */
static qcclResult_t abort_queued(struct team *team, int rank, void *arg)
{
    struct calls *calls = arg;
    qcclStream_t stream;
    qcclResult_t error, result = qcclStreamCreate(&stream, 0);
    if (rank || result != qcclSuccess)
        return result == qcclSuccess ? qcclStreamDestroy(stream) : result;
    for (int i = 0; i < CALLS; i++)
        qcclAllReduce(calls->in[0][i], calls->out[0][i], COUNT, qcclFloat32, qcclSum, team->comm[0],
                      stream);
    pause_ms(10);
    qcclCommAbort(team->comm[0]);
    calls->async = qcclStreamSynchronize(stream);
    qcclCommGetAsyncError(team->comm[0], &error);
    qcclStreamDestroy(stream);
    return error;
}

Test(streams, an_abort_ends_what_is_queued_and_the_error_stays)
{
    struct calls *calls = new_calls(1);
    struct team team;
    cr_assert(team_open(&team, RANKS, "int4; min=0"));
    team_run(&team, abort_queued, calls);
    cr_expect_eq(team.result[0], qcclAborted, "%s", team_report(&team));
    cr_expect(calls->async == qcclAborted || calls->async == qcclRemoteError);
    team_close(&team);
    free(calls);
    cr_expect_eq(qccl_memory_live(), 0);
}

/* ------------------------------------------------------------------ without threads of its own */

static bool no_threads(void)
{
    return false;
}

static qcclResult_t remember_thread(void *argument)
{
    *(pthread_t *)argument = pthread_self();
    return qcclSuccess;
}

/* As over MPI below MPI_THREAD_MULTIPLE: two calls on a stream that has an error already. */
static qcclResult_t reduce_behind(struct team *team, int rank, void *arg)
{
    static char first[] = "before the calls";
    struct calls *calls = arg;
    qcclStream_t stream;
    qcclResult_t result = qcclStreamCreate(&stream, 0);
    if (result != qcclSuccess)
        return result;
    team->comm[rank]->transport.may_use_threads = no_threads;
    if (rank == 0)
        qcclStreamLaunch(stream, fail_once, first);
    for (int i = 0; i < 2 && result == qcclSuccess; i++)
        result = qcclAllReduce(calls->in[rank][i], calls->out[rank][i], COUNT, qcclFloat32, qcclAvg,
                               team->comm[rank], stream);
    if (result == qcclSuccess && qcclStreamQuery(stream) == qcclInProgress)
        result = qccl_fail(qcclInternalError, "a call returned before it was done");
    qcclResult_t left = qcclStreamDestroy(stream);
    return result == qcclSuccess ? left : result;
}

Test(streams, calls_in_the_callers_thread_are_done_after_errors_that_stay_the_streams)
{
    struct calls *calls = new_calls(1);
    struct team team;
    cr_assert(team_open(&team, RANKS, "int4; min=0"));
    team_run(&team, reduce_behind, calls);
    for (int r = 0; r < RANKS; r++) {
        cr_expect_eq(team.result[r], r ? qcclSuccess : qcclSystemError, "%s", team_report(&team));
        for (int i = 0; i < 2; i++)
            cr_expect(memcmp(calls->out[r][i], calls->out[0][i], sizeof calls->out[0][i]) == 0);
    }
    cr_expect_str_eq(team.sentence[0], "before the calls");
    qcclStats_t stats = {.size = sizeof stats};
    cr_expect_eq(qcclCommGetStats(team.comm[0], &stats), qcclSuccess);
    cr_expect_eq(stats.calls, 2);
    team_close(&team);
    free(calls);
    cr_expect_eq(qccl_memory_live(), 0);
}

Test(streams, what_goes_wrong_in_the_callers_thread_is_the_streams_first_error)
{
    static float master[COUNT], replica[COUNT];
    pthread_t worker = pthread_self();
    struct team team;
    qcclStream_t stream = new_stream(0);
    cr_assert(team_open(&team, 1, "int4; min=0"));
    team.comm[0]->transport.may_use_threads = no_threads;
    qccl_memory_fail_after(1);
    cr_expect_eq(qcclAllGatherDelta(master, replica, COUNT, qcclFloat32, team.comm[0], stream),
                 qcclSuccess);
    qccl_memory_fail_after(0);
    cr_expect_eq(qcclStreamQuery(stream), qcclOutOfMemory);
    cr_expect(strstr(qcclGetLastError(), "memory"), "%s", qcclGetLastError());
    cr_expect_eq(qcclStreamLaunch(stream, remember_thread, &worker), qcclSuccess);
    cr_expect_eq(qcclStreamDestroy(stream), qcclOutOfMemory);
    cr_expect(!pthread_equal(worker, pthread_self()), "later work is the worker's again");
    team_close(&team);
}

/* ------------------------------------------------------------------ destroying */

static qcclResult_t destroy_with_work(struct team *team, int rank, void *arg)
{
    struct calls *calls = arg;
    qcclStream_t stream;
    qcclResult_t result = qcclStreamCreate(&stream, 0);
    if (result == qcclSuccess)
        result = qcclAllReduce(calls->in[rank][0], calls->out[rank][0], COUNT, qcclFloat32, qcclAvg,
                               team->comm[rank], stream);
    qcclCommDestroy(team->comm[rank]); /* waits for the call */
    team->comm[rank] = NULL;
    qcclResult_t left = qcclStreamDestroy(stream);
    return result == qcclSuccess ? left : result;
}

Test(streams, destroying_a_communicator_waits_for_its_calls)
{
    struct calls *calls = new_calls(1);
    struct team team;
    cr_assert(team_open(&team, RANKS, "int4; min=0"));
    cr_expect(team_run(&team, destroy_with_work, calls), "%s", team_report(&team));
    for (int r = 1; r < RANKS; r++)
        cr_expect(memcmp(calls->out[r][0], calls->out[0][0], sizeof calls->out[0][0]) == 0);
    free(calls);
    cr_expect_eq(qccl_memory_live(), 0);
}

Test(streams, no_failed_allocation_leaks_or_hangs)
{
    struct calls *calls = new_calls(1);
    struct team team;
    cr_assert(team_open(&team, 1, "int4; min=0"));
    for (long n = 1; n < 12; n++) {
        qccl_memory_fail_after(n);
        team_run(&team, reduce_all, calls);
        cr_expect(team.result[0] == qcclSuccess || team.result[0] == qcclOutOfMemory, "%ld: %s", n,
                  team_report(&team));
    }
    qccl_memory_fail_after(0);
    team_close(&team);
    free(calls);
    cr_expect_eq(qccl_memory_live(), 0);
}
