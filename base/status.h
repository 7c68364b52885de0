/* Result codes and the sentence that goes with the last failure.
 *
 * A function that fails calls qccl_fail(code, "sentence with the numbers"), which keeps the
 * sentence for this thread and returns the code.  RETURN_IF_FAILED and CHECK_ARG are the only
 * macros in the tree that hide a return: the first where nothing is owned yet, the second at public
 * entries. */
#ifndef QCCL_BASE_STATUS_H
#define QCCL_BASE_STATUS_H

#include "qccl/qccl.h"

/* Keeps the sentence (printf format) for qcclGetLastError and returns code. */
qcclResult_t qccl_fail(qcclResult_t code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Puts "prefix: " in front of the sentence that is kept, and returns code. */
qcclResult_t qccl_fail_prefix(qcclResult_t code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

const char *qccl_last_error(void);

#define RETURN_IF_FAILED(call)         \
    do {                               \
        qcclResult_t status_ = (call); \
        if (status_ != qcclSuccess)    \
            return status_;            \
    } while (0)

#define CHECK_ARG(condition, ...)                               \
    do {                                                        \
        if (!(condition))                                       \
            return qccl_fail(qcclInvalidArgument, __VA_ARGS__); \
    } while (0)

#endif
