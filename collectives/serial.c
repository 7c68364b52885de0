/* The serial executor: the steps of a plan in order, round after round.  It is the reference
 * meaning of a plan. */
#include "base/status.h"
#include "collectives/steps.h"

/* The WAIT at index `end`: everything has arrived, and what came since the last one is checked. */
static qcclResult_t run_wait(const struct round *round, int *first_unchecked, int end)
{
    const qcclTransport_t *mover = &round->comm->transport.mover;
    RETURN_IF_FAILED(mover->wait(mover->context, round->comm->timeout));
    for (; *first_unchecked < end; ++*first_unchecked)
        RETURN_IF_FAILED(qccl_step_check(round, &round->plan->steps[*first_unchecked]));
    return qcclSuccess;
}

static qcclResult_t run_round(const struct round *round, uint64_t *since)
{
    const struct plan *plan = round->plan;
    int first_unchecked = 0;
    bool started;
    for (int i = 0; i < plan->nsteps; i++) {
        const struct plan_step *step = &plan->steps[i];
        RETURN_IF_FAILED(step->kind == STEP_WAIT ? run_wait(round, &first_unchecked, i)
                                                 : qccl_step_run(round, step, &started));
        *since = qccl_step_account(round->comm, step->kind, *since);
    }
    return qcclSuccess;
}

qcclResult_t qccl_run_serial(struct qcclComm *comm, const struct plan *plan,
                             struct operands *operands)
{
    struct round round;
    RETURN_IF_FAILED(qccl_comm_reserve(comm, plan, 1));
    RETURN_IF_FAILED(qccl_round_begin(&round, comm, plan, operands));
    round.memory = comm->workspace;
    round.messages = comm->messages;
    uint64_t since = qccl_now_ns();
    for (; round.number < plan->rounds; round.number++)
        RETURN_IF_FAILED(run_round(&round, &since));
    return qcclSuccess;
}
