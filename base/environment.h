/* Settings from the environment, read when asked for, so that a program may set them before it
 * makes a communicator. */
#ifndef QCCL_BASE_ENVIRONMENT_H
#define QCCL_BASE_ENVIRONMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "qccl/qccl.h"

/* The text of a variable; NULL when it is unset or empty. */
const char *qccl_env_text(const char *name);

/* Whether a variable is 1; unset, empty and 0 are no, anything else is an error that is logged and
 * means no. */
bool qccl_env_flag(const char *name);

/* *number = the variable's value; left alone when unset.  qcclInvalidArgument when it is no whole
 * number (decimal or 0x). */
qcclResult_t qccl_env_u64(const char *name, uint64_t *number);

/* The same for seconds, which may have a fraction. */
qcclResult_t qccl_env_seconds(const char *name, double *seconds);

#endif
