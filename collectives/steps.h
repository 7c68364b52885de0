/* What one step of a plan does in one round, for every executor. */
#ifndef QCCL_COLLECTIVES_STEPS_H
#define QCCL_COLLECTIVES_STEPS_H

#include "collectives/call.h"

/* A round being run: a call, and the memory of one set of slots. */
struct round {
    struct qcclComm *comm;
    const struct plan *plan;
    struct operands *operands;
    float *residuals; /* error feedback of the tensor, or NULL */
    size_t number;
    uint8_t *memory;          /* plan->workspace_bytes */
    struct message *messages; /* the open message of each slot */
};

/* Everything of a round but its number, memory and messages. */
qcclResult_t qccl_round_begin(struct round *round, struct qcclComm *comm, const struct plan *plan,
                              struct operands *operands);

/* Does a step that is no WAIT; one without elements in this round does nothing.  *started = whether
 * it started an operation of the mover. */
qcclResult_t qccl_step_run(const struct round *round, const struct plan_step *step, bool *started);

/* Opens and checks what a RECV step has received; nothing for other steps. */
qcclResult_t qccl_step_check(const struct round *round, const struct plan_step *step);

/* Adds the time since `since` to the statistics of a step's kind; returns the time now, in ns. */
uint64_t qccl_step_account(struct qcclComm *comm, enum step_kind kind, uint64_t since);
uint64_t qccl_now_ns(void);

#endif
