/* Error feedback: the residuals of a communicator, one array for each tensor and plan.
 *
 * A residual lives in the codec's domain, after the Hadamard transform; which part of the array
 * belongs to which encoding is the plan's affair. */
#ifndef QCCL_COLLECTIVES_FEEDBACK_H
#define QCCL_COLLECTIVES_FEEDBACK_H

#include "collectives/plan.h"

struct residual {
    uint64_t tensor;
    struct plan_key key;
    size_t elems;
    float *values;
    struct residual *next;
};

struct feedback {
    uint64_t tensor; /* what qcclCommSetTensor last named */
    struct residual *first;
};

/* The residuals of a tensor for a plan, zero when new; *values = NULL when the plan keeps
 * none. */
qcclResult_t qccl_feedback_values(struct feedback *feedback, uint64_t tensor,
                                  const struct plan *plan, float **values);
void qccl_feedback_clear(struct feedback *feedback);
size_t qccl_feedback_memory(const struct feedback *feedback);

#endif
