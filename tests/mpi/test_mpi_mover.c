/* The MPI byte mover on its own: order, sizes, time limits, and that no rank waits for one that
 * failed or left. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "collectives/mpi_transport.h"
#include "tests/mpi/rank_test.h"

/* A time that no correct wait of this test comes near, on any machine that is not stuck. */
static const double far_too_long = 20;

static struct transport open_transport(void)
{
    MPI_Comm comm;
    struct mpi_mover *mover = NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    require_success(qccl_mpi_mover_create(&mover, comm), "qccl_mpi_mover_create");
    qccl_mpi_open(mover);
    return qccl_mpi_transport(mover);
}

static void close_transport(struct transport *transport)
{
    transport->mover.close(transport->mover.context);
}

static void fill(unsigned char *bytes, size_t count, int from, int to, int number)
{
    uint64_t seed = ((uint64_t)from * 1000 + (uint64_t)to) * 1000 + (uint64_t)number;
    for (size_t i = 0; i < count; i++)
        bytes[i] = (unsigned char)(mix(seed + i * 0x10001) >> 8);
}

/* Every rank sends `messages` messages of about `bytes` to every rank in one round, itself too;
 * each has its own bytes. */
static bool exchange(const struct transport *transport, size_t bytes, int messages)
{
    const qcclTransport_t *mover = &transport->mover;
    size_t n = (size_t)test_nranks * (size_t)messages, room = bytes + (size_t)messages;
    unsigned char *out = malloc(n * room), *in = malloc(n * room), *expected = malloc(room);
    bool right = true;
    require(out && in && expected, "no memory");
    memset(in, 0xa5, n * room);
    for (int peer = 0; peer < test_nranks; peer++)
        for (int m = 0; m < messages; m++) {
            size_t at = ((size_t)peer * (size_t)messages + (size_t)m) * room;
            fill(out + at, bytes + (size_t)m, test_rank, peer, m);
            require_success(mover->irecv(mover->context, in + at, bytes + (size_t)m, peer),
                            "irecv");
            require_success(mover->isend(mover->context, out + at, bytes + (size_t)m, peer),
                            "isend");
        }
    require_success(mover->wait(mover->context, far_too_long), "wait");
    for (int peer = 0; peer < test_nranks; peer++)
        for (int m = 0; m < messages; m++) {
            size_t at = ((size_t)peer * (size_t)messages + (size_t)m) * room;
            size_t length = bytes + (size_t)m;
            fill(expected, length, peer, test_rank, m);
            if (memcmp(in + at, expected, length) || (length < room && in[at + length] != 0xa5)) {
                note("message %d of %zu bytes from rank %d is not what was sent", m, length, peer);
                right = false;
            }
        }
    free(out);
    free(in);
    free(expected);
    return right;
}

static void test_exchange(void)
{
    static const size_t sizes[] = {0, 1, 7, 4095, 4096, 65537, (1 << 20) + 3};
    static const size_t split[] = {998, 999, 1000, 1999, 2000, 123456};
    struct transport transport = open_transport();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        ok(exchange(&transport, sizes[i], 3), "three messages of %zu bytes and more to each rank",
           sizes[i]);
    ok(exchange(&transport, 11, 100), "a hundred messages in one round arrive in order");
    qccl_mpi_set_limit(1000);
    for (size_t i = 0; i < sizeof split / sizeof *split; i++)
        ok(exchange(&transport, split[i], 2), "messages of %zu bytes in pieces of 1000", split[i]);
    qccl_mpi_set_limit(0);
    close_transport(&transport);
}

/* Rank 1 sends `sent` bytes to rank 0, which expects others; everyone is told. */
static void test_wrong_size(size_t sent, size_t expected, const char *text1, const char *text2)
{
    struct transport transport = open_transport();
    const qcclTransport_t *mover = &transport.mover;
    unsigned char *buffer = calloc(1, (sent > expected ? sent : expected) + 1);
    qcclResult_t result = qcclSuccess;
    bool right;
    require(buffer, "no memory");
    if (test_rank == 0)
        result = mover->irecv(mover->context, buffer, expected, 1);
    else if (test_rank == 1)
        result = mover->isend(mover->context, buffer, sent, 0);
    /* Then something that never comes, so that only the failure of rank 0 can end the wait. */
    if (result == qcclSuccess && test_rank != 0)
        result = mover->irecv(mover->context, buffer, 1, 0);
    if (result == qcclSuccess)
        result = mover->wait(mover->context, far_too_long);
    if (sent > expected && !test_open_mpi) /* other MPIs do not tell how long the message was */
        text1 = "more than";
    if (test_rank == 0)
        right =
            result_is(result, qcclMismatch, text1, text2) && strstr(qcclGetLastError(), "rank 1");
    else
        right = result_is(result, qcclRemoteError, "rank 0 gave up", NULL);
    right = right && mover->wait(mover->context, far_too_long) == result;
    close_transport(&transport);
    ok(right, "%zu bytes where %zu are expected are a mismatch that names both, and end every rank",
       sent, expected);
    free(buffer);
}

static void test_wrong_sizes(void)
{
    test_wrong_size(100, 90, "100", "90");
    test_wrong_size(90, 100, "90", "100");
    test_wrong_size(0, 1, "0 bytes", "1 ");
    test_wrong_size(300000, 200000, "300000", "200000");
    test_wrong_size(200000, 300000, "200000", "300000");
    qccl_mpi_set_limit(1000);
    test_wrong_size(1000, 2000, "1000", "2000");
    test_wrong_size(2000, 1000, "1000", "expected");
    test_wrong_size(2500, 2000, "2500", "2000");
    qccl_mpi_set_limit(0);
}

static void test_timeout(void)
{
    const double limit = 0.3;
    struct transport transport = open_transport();
    const qcclTransport_t *mover = &transport.mover;
    unsigned char byte = 0;
    bool right;
    double start = seconds_now();
    if (test_rank == 0) {
        require_success(mover->irecv(mover->context, &byte, 1, test_nranks - 1), "irecv");
        qcclResult_t result = mover->wait(mover->context, limit);
        char name[32];
        snprintf(name, sizeof name, "rank %d did not", test_nranks - 1);
        right = result_is(result, qcclRemoteError, name, "0.3 seconds");
        right = right && seconds_now() - start >= limit && seconds_now() - start < far_too_long;
    } else {
        /* Where this rank is late, its first call is told already. */
        qcclResult_t result = mover->irecv(mover->context, &byte, 1, 0);
        if (result == qcclSuccess)
            result = mover->wait(mover->context, -1);
        right = result_is(result, qcclRemoteError, "rank 0 gave up", NULL);
    }
    close_transport(&transport);
    ok(right, "a wait ends after its timeout, names the rank, and ends the others' waits");
}

/* A message that nobody has begun to receive when its sender gives up must not be received later:
 * its buffer is gone. */
static void test_late_receiver(void)
{
    enum { BYTES = 3 << 20 };
    struct transport transport = open_transport();
    const qcclTransport_t *mover = &transport.mover;
    unsigned char *buffer = malloc(BYTES);
    bool right = true;
    require(buffer, "no memory");
    memset(buffer, test_rank, BYTES);
    if (test_rank == 0) {
        require_success(mover->isend(mover->context, buffer, BYTES, 1), "isend");
        right = result_is(mover->wait(mover->context, 0.1), qcclRemoteError, "rank 1", NULL);
        memset(buffer, 0xee, BYTES);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (test_rank == 1) {
        right = result_is(mover->irecv(mover->context, buffer, BYTES, 0), qcclRemoteError,
                          "rank 0 gave up", NULL);
        for (size_t i = 0; i < BYTES; i++)
            right = right && buffer[i] == 1;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    close_transport(&transport);
    free(buffer);
    ok(right, "what a rank sent before it gave up is not received afterwards");
}

static void test_left(void)
{
    struct transport transport = open_transport();
    const qcclTransport_t *mover = &transport.mover;
    unsigned char byte = 0, *large = calloc(1, 1 << 20);
    bool right = true;
    require(large, "no memory");
    if (test_rank == 1) {
        close_transport(&transport);
    } else {
        qcclResult_t result = mover->isend(mover->context, large, 1 << 20, 1);
        if (result == qcclSuccess)
            result = mover->irecv(mover->context, &byte, 1, 1);
        if (result == qcclSuccess)
            result = mover->wait(mover->context, -1);
        right = result == qcclRemoteError && (strstr(qcclGetLastError(), "rank 1 has destroyed") ||
                                              strstr(qcclGetLastError(), "gave up"));
        close_transport(&transport);
    }
    ok(right, "a rank that destroys its communicator ends the waits of others");
    free(large);
}

/* Short messages leave a rank at once; it may be gone for long when they are received. */
static void test_left_in_order(void)
{
    struct transport transport = open_transport();
    const qcclTransport_t *mover = &transport.mover;
    unsigned char first[64], second[64];
    bool right = true;
    memset(first, 7, sizeof first);
    memset(second, 9, sizeof second);
    if (test_rank == 0) {
        for (int peer = 1; peer < test_nranks; peer++) {
            require_success(mover->isend(mover->context, first, sizeof first, peer), "isend");
            require_success(mover->isend(mover->context, second, sizeof second, peer), "isend");
        }
        require_success(mover->wait(mover->context, far_too_long), "wait");
        close_transport(&transport);
    } else {
        sleep_seconds(0.5);
        require_success(mover->irecv(mover->context, second, sizeof second, 0), "irecv");
        require_success(mover->wait(mover->context, far_too_long), "first wait");
        right = second[0] == 7 && second[63] == 7;
        require_success(mover->irecv(mover->context, second, sizeof second, 0), "irecv");
        require_success(mover->wait(mover->context, far_too_long), "second wait");
        right = right && second[0] == 9 && second[63] == 9;
        close_transport(&transport);
    }
    ok(right, "what a rank sent before it left still arrives");
}

static void test_abort(void)
{
    struct transport transport = open_transport();
    const qcclTransport_t *mover = &transport.mover;
    unsigned char byte = 0;
    bool right;
    if (test_rank == test_nranks - 1) {
        mover->abort(mover->context);
        right = result_is(mover->irecv(mover->context, &byte, 1, 0), qcclAborted, "aborted", NULL);
    } else {
        char name[32];
        snprintf(name, sizeof name, "rank %d gave up", test_nranks - 1);
        qcclResult_t result = mover->irecv(mover->context, &byte, 1, test_nranks - 1);
        if (result == qcclSuccess)
            result = mover->wait(mover->context, -1);
        right = result_is(result, qcclRemoteError, name, NULL);
        right = right && mover->isend(mover->context, &byte, 1, 0) == qcclRemoteError;
    }
    close_transport(&transport);
    ok(right, "a rank that aborts ends the waits of all others, which name it");
}

/* Runs a round with the n-th allocation failing on rank 0 alone, for each n until none fails. */
static void test_memory(void)
{
    bool right = true, again = true;
    for (long n = 1; again; n++) {
        MPI_Comm comm;
        struct mpi_mover *mover = NULL;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        long live = qccl_memory_live();
        qccl_memory_fail_after(test_rank == 0 ? n : 0);
        qcclResult_t result = qccl_mpi_mover_create(&mover, comm);
        int failed = result != qcclSuccess;
        MPI_Bcast(&failed, 1, MPI_INT, 0, MPI_COMM_WORLD);
        if (failed) {
            right = right && (test_rank != 0 || result == qcclOutOfMemory);
            right = right && (test_rank != 0 || qccl_memory_live() == live);
            if (test_rank != 0)
                qccl_mpi_mover_free(mover);
            MPI_Comm_free(&comm);
            continue;
        }
        qccl_mpi_open(mover);
        /* More messages than the first arrays hold. */
        unsigned char bytes[100];
        for (int i = 0; i < 50 && result == qcclSuccess; i++)
            result = qccl_mpi_transport(mover).mover.isend(mover, &bytes[i], 1, test_rank);
        for (int i = 50; i < 100 && result == qcclSuccess; i++)
            result = qccl_mpi_transport(mover).mover.irecv(mover, &bytes[i], 1, test_rank);
        if (result == qcclSuccess)
            result = qccl_mpi_transport(mover).mover.wait(mover, far_too_long);
        qccl_memory_fail_after(0);
        again = result != qcclSuccess;
        right = right && (result == qcclSuccess || result == qcclOutOfMemory ||
                          (test_rank != 0 && result == qcclRemoteError));
        MPI_Bcast(&again, 1, MPI_C_BOOL, 0, MPI_COMM_WORLD);
        qccl_mpi_close(mover);
    }
    ok(right, "every allocation that fails is reported, and the other ranks go on");
}

int main(int argc, char **argv)
{
    rank_test_start(&argc, &argv, MPI_THREAD_SINGLE, 2);
    test_exchange();
    test_wrong_sizes();
    test_timeout();
    test_late_receiver();
    test_left();
    test_left_in_order();
    test_abort();
    test_memory();
    /* The last notices may still be on their way; MPI_Finalize waits for them and frees what is
     * left. */
    MPI_Finalize();
    if (qccl_memory_live() != 0) {
        printf("Bail out! %ld allocations are alive after MPI_Finalize\n", qccl_memory_live());
        return EXIT_FAILURE;
    }
    return rank_test_end_finalized();
}
