/* Sub-communicators, several communicators at once, several threads, and communicators by the
 * hundred.
 *
 * Inputs are whole numbers from -7 to 7 that reach 7 in every group, the same on all ranks of a
 * communicator: int4 holds them and their sums exactly, so the result is known, and one from
 * another communicator would be noticed. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "tests/mpi/rank_test.h"

enum { COUNT = 1000, CALLS = 25, MANY = 150 };

static const char *const policy = "int4; min=0";

static float input(int pattern, size_t i)
{
    return i % 32 == 0 ? 7.0f : (float)((int)(mix((uint64_t)pattern * COUNT + i) % 15) - 7);
}

static qcclComm_t open_on(MPI_Comm mpi_comm)
{
    qcclComm_t comm = NULL;
    qcclConfig_t config = QCCL_CONFIG_INITIALIZER;
    config.policy = policy;
    require_success(qcclCommInitMpi(&comm, mpi_comm, &config), "qcclCommInitMpi");
    return comm;
}

static void close_comm(qcclComm_t comm)
{
    require_success(qcclCommDestroy(comm), "qcclCommDestroy");
}

/* One allreduce of a pattern, and whether the result is the sum. */
static bool sum_is_right(qcclComm_t comm, int pattern)
{
    float values[COUNT];
    int nranks = 0;
    bool right;
    require_success(qcclCommCount(comm, &nranks), "qcclCommCount");
    for (size_t i = 0; i < COUNT; i++)
        values[i] = input(pattern, i);
    right = qcclAllReduce(values, values, COUNT, qcclFloat32, qcclSum, comm, NULL) == qcclSuccess;
    if (!right)
        note("%s", qcclGetLastError());
    for (size_t i = 0; i < COUNT && right; i++) {
        right = values[i] == (float)nranks * input(pattern, i);
        if (!right)
            note("pattern %d, value %zu: %g instead of %d * %g", pattern, i, (double)values[i],
                 nranks, (double)input(pattern, i));
    }
    return right;
}

/* ------------------------------------------------------------------ one thread */

static bool rank_and_size_are(qcclComm_t comm, int rank, int nranks)
{
    int r = -1, n = -1;
    require_success(qcclCommUserRank(comm, &r), "qcclCommUserRank");
    require_success(qcclCommCount(comm, &n), "qcclCommCount");
    return r == rank && n == nranks;
}

static void test_split(void)
{
    MPI_Comm half;
    int color = test_rank % 2, rank, nranks;
    /* Backwards, so that ranks differ from those in the world. */
    MPI_Comm_split(MPI_COMM_WORLD, color, -test_rank, &half);
    MPI_Comm_rank(half, &rank);
    MPI_Comm_size(half, &nranks);
    qcclComm_t world = open_on(MPI_COMM_WORLD), sub = open_on(half);
    /* The duplicate lives on its own. */
    MPI_Comm_free(&half);
    bool right =
        rank_and_size_are(sub, rank, nranks) && rank_and_size_are(world, test_rank, test_nranks);
    for (int i = 0; i < CALLS; i++) {
        right = sum_is_right(sub, 10 * i + color) && right;
        right = sum_is_right(world, 10 * i + 2) && right;
    }
    ok(right, "sub-communicators and the world are used in turn");
    close_comm(color ? sub : world);
    close_comm(color ? world : sub);
}

static void test_self(void)
{
    qcclComm_t self = open_on(MPI_COMM_SELF);
    bool right = rank_and_size_are(self, 0, 1) && sum_is_right(self, test_rank);
    int exact[3] = {test_rank, 1 << 30, -5}, result[3] = {0};
    right = right && qcclReduceScatter(exact, result, 3, qcclInt32, qcclAvg, self, NULL) == 0 &&
            memcmp(exact, result, sizeof exact) == 0;
    close_comm(self);
    ok(right, "a communicator of one rank gives back its input");
}

/* All alive at once, used in another order than they were made, destroyed in an order of each
 * rank's own. */
static void test_several(void)
{
    enum { SEVERAL = 6 };
    qcclComm_t comms[SEVERAL];
    bool right = true;
    for (int i = 0; i < SEVERAL; i++)
        comms[i] = open_on(MPI_COMM_WORLD);
    for (int call = 0; call < CALLS; call++)
        right = sum_is_right(comms[call * 5 % SEVERAL], call) && right;
    for (int i = 0; i < SEVERAL; i++)
        close_comm(comms[(i + test_rank) % SEVERAL]);
    ok(right, "several communicators are alive at once");
    right = sum_is_right(comms[0] = open_on(MPI_COMM_WORLD), 99);
    close_comm(comms[0]);
    ok(right, "a communicator that is made after them works");
}

/* MPI has few communicators: duplicates must be given back, on ranks that are far ahead of others
 * too. */
static void test_many(void)
{
    long live = qccl_memory_live(), most = 0;
    bool right = true;
    for (int i = 0; i < MANY; i++) {
        qcclComm_t comm = open_on(MPI_COMM_WORLD);
        if (i % 10 == 0)
            right = sum_is_right(comm, i) && right;
        long one = qccl_memory_live() - live;
        most = one > most ? one : most;
        close_comm(comm);
    }
    if (most >
        100) /* a communicator has about a dozen allocations; 150 of them would be some thousand */
        note("%ld allocations were alive at once", most);
    ok(right && most <= 100, "%d communicators one after another do not pile up", MANY);
}

/* ------------------------------------------------------------------ several threads */

struct worker {
    qcclComm_t comm;
    int pattern;
    bool right;
};

static void *work(void *argument)
{
    struct worker *w = argument;
    w->right = true;
    for (int i = 0; i < CALLS; i++)
        w->right = sum_is_right(w->comm, w->pattern + 2 * i) && w->right;
    return NULL;
}

static void test_threads(void)
{
    struct worker workers[2];
    pthread_t threads[2];
    for (int t = 0; t < 2; t++)
        workers[t] = (struct worker){.comm = open_on(MPI_COMM_WORLD), .pattern = t};
    for (int t = 0; t < 2; t++)
        require(pthread_create(&threads[t], NULL, work, &workers[t]) == 0, "no thread");
    for (int t = 0; t < 2; t++)
        pthread_join(threads[t], NULL);
    for (int t = 0; t < 2; t++)
        close_comm(workers[t].comm);
    ok(workers[0].right && workers[1].right, "two threads use a communicator each at once");
}

/* Tensors of two communicators by turns; the ranks are at different places when they group. */
static void test_group(void)
{
    enum { TENSORS = 6 };
    static float values[2][TENSORS][COUNT];
    qcclComm_t comms[2] = {open_on(MPI_COMM_WORLD), open_on(MPI_COMM_WORLD)};
    bool right = true;
    sleep_seconds(0.01 * test_rank);
    qcclGroupStart();
    for (int k = 0; k < 2 * TENSORS; k++) {
        float *v = values[k % 2][k / 2];
        for (size_t i = 0; i < COUNT; i++)
            v[i] = input(k, i);
        right = qcclAllReduce(v, v, COUNT, qcclFloat32, qcclSum, comms[k % 2], NULL) == 0 && right;
    }
    right = result_is(qcclGroupEnd(), qcclSuccess, NULL, NULL) && right;
    for (int k = 0; k < 2 * TENSORS; k++)
        for (size_t i = 0; i < COUNT; i++)
            right = right && values[k % 2][k / 2][i] == (float)test_nranks * input(k, i);
    for (int c = 0; c < 2; c++) {
        qcclStats_t stats = {.size = sizeof stats};
        qcclCommGetStats(comms[c], &stats);
        right = right && stats.calls == (test_nranks > 1);
        close_comm(comms[c]);
    }
    ok(right, "a group of two communicators' tensors is a message of each");
}

static void *abort_soon(void *comm)
{
    sleep_seconds(0.3);
    qcclCommAbort(comm);
    return NULL;
}

/* The call of rank 0 waits for a rank that never calls, until another thread of rank 0 aborts. */
static void test_abort_from_thread(void)
{
    qcclComm_t comm = open_on(MPI_COMM_WORLD);
    float values[COUNT] = {0};
    bool right = true;
    MPI_Barrier(MPI_COMM_WORLD);
    if (test_rank == 0) {
        pthread_t thread;
        require(pthread_create(&thread, NULL, abort_soon, comm) == 0, "no thread");
        qcclResult_t result =
            qcclAllReduce(values, values, COUNT, qcclFloat32, qcclSum, comm, NULL);
        pthread_join(thread, NULL);
        right = result == qcclAborted;
        if (!right)
            note("result %d: %s", (int)result, qcclGetLastError());
    } else if (test_rank != test_nranks - 1) {
        right = result_is(qcclAllReduce(values, values, COUNT, qcclFloat32, qcclSum, comm, NULL),
                          qcclRemoteError, "rank 0 gave up", NULL);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (test_rank == test_nranks - 1 && test_rank != 0)
        right = result_is(qcclAllReduce(values, values, COUNT, qcclFloat32, qcclSum, comm, NULL),
                          qcclRemoteError, "rank 0 gave up", NULL);
    qcclResult_t error = qcclSuccess;
    right = right && qcclCommGetAsyncError(comm, &error) == qcclSuccess && error != qcclSuccess;
    close_comm(comm);
    ok(right, "qcclCommAbort from another thread ends the call that waits, on every rank");
}

int main(int argc, char **argv)
{
    rank_test_start(&argc, &argv, MPI_THREAD_MULTIPLE, 1);
    test_split();
    test_self();
    test_several();
    test_many();
    test_threads();
    test_group();
    if (test_nranks > 1)
        test_abort_from_thread();
    MPI_Finalize();
    if (qccl_memory_live() != 0) {
        printf("Bail out! rank %d: %ld allocations are alive after MPI_Finalize\n", test_rank,
               qccl_memory_live());
        return EXIT_FAILURE;
    }
    return rank_test_end_finalized();
}
