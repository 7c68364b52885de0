/* Calls at the wrong time and with the wrong communicator are errors, not crashes; and
 * MPI_Finalize ends although a rank has forgotten to destroy its communicator. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/mpi/rank_test.h"

static void test_arguments(void)
{
    qcclComm_t comm = NULL;
    qcclConfig_t config = QCCL_CONFIG_INITIALIZER;
    ok(result_is(qcclCommInitMpi(NULL, MPI_COMM_WORLD, NULL), qcclInvalidArgument, "NULL", NULL),
       "a NULL communicator is an error");
    ok(result_is(qcclCommInitMpi(&comm, MPI_COMM_NULL, NULL), qcclInvalidArgument, "MPI_COMM_NULL",
                 NULL),
       "MPI_COMM_NULL is an error");
    config.size = 1;
    ok(result_is(qcclCommInitMpi(&comm, MPI_COMM_WORLD, &config), qcclInvalidArgument, "size",
                 NULL),
       "a config of another size is an error");
    ok(comm == NULL, "after an error no communicator exists");
}

static void test_intercommunicator(void)
{
    MPI_Comm half, inter;
    qcclComm_t comm = NULL;
    int color = test_rank % 2;
    MPI_Comm_split(MPI_COMM_WORLD, color, test_rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - color, 1, &inter);
    ok(result_is(qcclCommInitMpi(&comm, inter, NULL), qcclInvalidArgument, "inter-communicator",
                 NULL),
       "an inter-communicator is an error");
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
}

static void test_default(qcclComm_t *comm)
{
    float ones[100], sums[100];
    for (int i = 0; i < 100; i++)
        ones[i] = 1.0f;
    require_success(qcclCommInitMpi(comm, MPI_COMM_WORLD, NULL), "qcclCommInitMpi");
    qcclResult_t result = qcclAllReduce(ones, sums, 100, qcclFloat32, qcclSum, *comm, NULL);
    ok(result == qcclSuccess && sums[0] == (float)test_nranks && sums[99] == (float)test_nranks,
       "without a config the defaults hold");
    qcclStream_t stream;
    require_success(qcclStreamCreate(&stream, 0), "qcclStreamCreate");
    sums[99] = 0;
    result = qcclAllReduce(ones, sums, 100, qcclFloat32, qcclSum, *comm, stream);
    ok(result == qcclSuccess && sums[99] == (float)test_nranks,
       "where MPI allows one thread alone, a call on a stream is done when it returns");
    require_success(qcclStreamDestroy(stream), "qcclStreamDestroy");
}

/* After MPI_Finalize nothing can be compared across ranks: each speaks for itself. */
static int check_after_finalize(qcclComm_t forgotten, double seconds)
{
    float one = 1;
    qcclComm_t comm = NULL;
    bool right = true;
    if (forgotten) {
        qcclResult_t result = qcclAllReduce(&one, &one, 1, qcclFloat32, qcclSum, forgotten, NULL);
        right = result == (test_nranks > 1 ? qcclInvalidUsage : qcclSuccess);
        right = right && qcclCommAbort(forgotten) == qcclSuccess;
        right = right && qcclCommDestroy(forgotten) == qcclSuccess;
    }
    right = right && qcclCommInitMpi(&comm, MPI_COMM_WORLD, NULL) == qcclInvalidUsage;
    right =
        right && seconds < 4; /* it does not come to the time limit for ranks that never leave */
    if (!right)
        printf("Bail out! rank %d: after MPI_Finalize, which took %g seconds: %s\n", test_rank,
               seconds, qcclGetLastError());
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    qcclComm_t comm = NULL;
    bool early = result_is(qcclCommInitMpi(&comm, MPI_COMM_WORLD, NULL), qcclInvalidUsage,
                           "before MPI_Init", NULL);
    rank_test_start(&argc, &argv, MPI_THREAD_SINGLE, 1);
    ok(early, "a communicator before MPI_Init is an error");
    test_arguments();
    if (test_nranks > 1)
        test_intercommunicator();
    test_default(&comm);
    bool forgets = test_rank == test_nranks - 1;
    if (!forgets)
        require_success(qcclCommDestroy(comm), "qcclCommDestroy");
    double start = seconds_now();
    MPI_Finalize();
    int code = check_after_finalize(forgets ? comm : NULL, seconds_now() - start);
    int tap = rank_test_end_finalized();
    return code ? code : tap;
}
