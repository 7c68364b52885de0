/* One collective call as data: its inputs, which follow from a number, and the call itself, on any
 * communicator.
 *
 * So the rank programs run the same call over MPI and, on threads of one process, over the thread
 * transport, and compare the bits. */
#ifndef QCCL_TESTS_EQUAL_CASES_H
#define QCCL_TESTS_EQUAL_CASES_H

#include <stdbool.h>
#include <stddef.h>

#include "qccl/qccl.h"

struct equal_case {
    qcclColl_t collective;
    qcclDataType_t type;
    qcclRedOp_t op;
    size_t count;  /* as in the call */
    int number;    /* determines the inputs */
    bool in_place; /* where the collective has that */
    int offset;    /* bytes from an aligned address */
};

/* The buffers of one rank. */
struct equal_buffers {
    unsigned char *send_memory, *recv_memory;
    void *send, *recv; /* in place, one lies in the other */
    size_t result_bytes;
};

/* Makes and fills them; false when there is no memory. */
bool equal_buffers_make(struct equal_buffers *buffers, const struct equal_case *c, int rank,
                        int nranks);
void equal_buffers_free(struct equal_buffers *buffers);

qcclResult_t equal_case_run(const struct equal_case *c, const struct equal_buffers *buffers,
                            qcclComm_t comm);

size_t equal_result_bytes(const struct equal_case *c, int nranks);

/* Runs a case on threads of this process, one for each of the communicators, on aligned buffers
 * that are not in place. results: nranks * equal_result_bytes.  False when a rank fails;
 * qcclGetLastError is then copied to sentence. */
bool equal_case_run_threads(const struct equal_case *c, const qcclComm_t *comms, int nranks,
                            unsigned char *results, char *sentence, size_t capacity);

#endif
