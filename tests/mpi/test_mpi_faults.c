/* Ranks that abort, leave or never call: the others get an error in time, and the program goes on
 * with a new communicator.
 *
 * Every fault is tried with short and with long messages, since MPI sends only short ones ahead,
 * compressed and not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/mpi/rank_test.h"

enum { SHORT_COUNT = 300, LONG_COUNT = 1 << 20 };

/* A time that no correct call of this test comes near, on any machine that is not stuck. */
static const double far_too_long = 20;

struct mode {
    const char *name;
    size_t count;
    qcclDataType_t type;
    qcclRedOp_t op;
};

static const struct mode modes[] = {
    {.name = "short int4", .count = SHORT_COUNT, .type = qcclFloat32, .op = qcclSum},
    {.name = "long int4", .count = LONG_COUNT, .type = qcclFloat32, .op = qcclSum},
    {.name = "long uncompressed bf16", .count = LONG_COUNT, .type = qcclBfloat16, .op = qcclMax},
};
enum { MODES = sizeof modes / sizeof *modes };

static qcclComm_t open_comm(double timeout)
{
    qcclComm_t comm = NULL;
    qcclConfig_t config = QCCL_CONFIG_INITIALIZER;
    config.policy = "int4; min=0";
    config.timeout = timeout;
    require_success(qcclCommInitMpi(&comm, MPI_COMM_WORLD, &config), "qcclCommInitMpi");
    /* A rank that fails at once would else end the others' making of the communicator. */
    MPI_Barrier(MPI_COMM_WORLD);
    return comm;
}

static bool odd_one(void)
{
    return test_rank == test_nranks - 1;
}

/* An allreduce on buffers of its own, which are freed at once: nothing may use them after an
 * error. */
static qcclResult_t call(const struct mode *mode, qcclComm_t comm)
{
    void *send = calloc(mode->count, 4), *recv = calloc(mode->count, 4);
    require(send && recv, "no memory");
    qcclResult_t result = qcclAllReduce(send, recv, mode->count, mode->type, mode->op, comm, NULL);
    memset(send, 0xff, mode->count * 4);
    memset(recv, 0xff, mode->count * 4);
    free(send);
    free(recv);
    return result;
}

/* Whether the call failed as a broken communicator does, and fails again in the same way. */
static bool fails_remotely(const struct mode *mode, qcclComm_t comm, const char *text)
{
    qcclResult_t error = qcclSuccess;
    double start = seconds_now();
    bool right = result_is(call(mode, comm), qcclRemoteError, text, NULL);
    right = right && result_is(call(mode, comm), qcclRemoteError, text, NULL);
    right = right && qcclCommGetAsyncError(comm, &error) == qcclSuccess && error == qcclRemoteError;
    double seconds = seconds_now() - start;
    if (seconds > far_too_long)
        note("it took %g seconds", seconds);
    return right && seconds <= far_too_long;
}

static bool works(const struct mode *mode)
{
    qcclComm_t comm = open_comm(far_too_long);
    bool right = call(mode, comm) == qcclSuccess;
    if (!right)
        note("a new communicator: %s", qcclGetLastError());
    require_success(qcclCommDestroy(comm), "qcclCommDestroy");
    return right;
}

static void test_abort(const struct mode *mode)
{
    qcclComm_t comm = open_comm(-1);
    char name[32];
    bool right = call(mode, comm) == qcclSuccess;
    snprintf(name, sizeof name, "rank %d gave up", test_nranks - 1);
    MPI_Barrier(MPI_COMM_WORLD); /* the others are done with that call */
    if (odd_one()) {
        require_success(qcclCommAbort(comm), "qcclCommAbort");
        right = right && result_is(call(mode, comm), qcclAborted, NULL, NULL);
    } else {
        right = right && fails_remotely(mode, comm, name);
    }
    require_success(qcclCommDestroy(comm), "qcclCommDestroy");
    ok(right && works(mode), "%s: a rank that aborts ends the calls of the others, which name it",
       mode->name);
}

static void test_never(const struct mode *mode)
{
    const double timeout = 1;
    qcclComm_t comm = open_comm(timeout);
    bool right = true;
    double start = seconds_now();
    if (!odd_one()) {
        /* The first to lose patience names the rank that is missing, the others that one or the
         * first. */
        right = fails_remotely(mode, comm, "rank ");
        if (strstr(qcclGetLastError(), "did not answer") && seconds_now() - start < timeout) {
            note("it gave up after %g seconds", seconds_now() - start);
            right = false;
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    /* It comes at last, and learns at once that the others have gone. */
    start = seconds_now();
    if (odd_one())
        right = fails_remotely(mode, comm, "gave up") && seconds_now() - start < timeout;
    require_success(qcclCommDestroy(comm), "qcclCommDestroy");
    ok(right && works(mode),
       "%s: a rank that does not call ends the others' calls after the timeout", mode->name);
}

static void test_destroy(const struct mode *mode)
{
    qcclComm_t comm = open_comm(-1);
    bool right = call(mode, comm) == qcclSuccess;
    if (!odd_one())
        right = right && fails_remotely(mode, comm, "rank ");
    double start = seconds_now();
    require_success(qcclCommDestroy(comm), "qcclCommDestroy");
    right = right && seconds_now() - start < far_too_long;
    ok(right && works(mode), "%s: a rank that destroys its communicator ends the others' calls",
       mode->name);
}

/* Slow is not lost. */
static void test_slow(const struct mode *mode)
{
    qcclComm_t comm = open_comm(far_too_long);
    if (odd_one())
        sleep_seconds(0.7);
    bool right = call(mode, comm) == qcclSuccess;
    if (!right)
        note("%s", qcclGetLastError());
    /* The first ranks leave while the last one is still busy elsewhere. */
    if (odd_one())
        sleep_seconds(0.3);
    require_success(qcclCommDestroy(comm), "qcclCommDestroy");
    ok(right, "%s: a rank that is late, but within the timeout, is waited for", mode->name);
}

int main(int argc, char **argv)
{
    rank_test_start(&argc, &argv, MPI_THREAD_SINGLE, 2);
    for (int m = 0; m < MODES; m++) {
        test_abort(&modes[m]);
        test_never(&modes[m]);
        test_destroy(&modes[m]);
        test_slow(&modes[m]);
    }
    return rank_test_end();
}
