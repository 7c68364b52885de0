/* The pipelined executor: while the messages of one round travel, the next one is encoded.
 *
 * The WAITs cut a plan into phases.  A phase needs what the phase before it received, so tick t
 * runs phase 0 of round t, then phase 1 of round t - 1, phase 2 of round t - 2:
 *
 *     tick    0        1        2        3
 *     phase 0 round 0  round 1  round 2  ...
 *     phase 1          round 0  round 1
 *     phase 2                   round 0
 *
 * Every rank runs phases in this order, so messages between two ranks keep the order that both
 * expect, and since values follow from their positions alone, results have the bits of the serial
 * executor.  Each round in flight has a set of slots of its own.  A round is over with its last
 * phase, so there are as many sets as phases: that bounds the workspace and what is posted to a
 * peer, whatever the message. */
#include "overlap/pipeline.h"

#include <time.h>

#include "base/memory.h"
#include "base/status.h"
#include "collectives/steps.h"

/* A slow call looks at faster ones between rounds: it waits while one of them is running and has
 * got on within the last stall_ns.  A faster call that gets no further may wait for a peer that
 * waits for this slow one; so the wait must end. */
static const uint64_t stall_ns = 1000000;
static const long nap_ns = 100000;
static atomic_int running[QCCL_PRIORITY_LOWEST + 1];
static _Atomic uint64_t last_progress[QCCL_PRIORITY_LOWEST + 1];

enum { PHASES_MAX = 4 };
#define NOT_STARTED UINT64_MAX

struct pipeline {
    struct qcclComm *comm;
    const struct plan *plan;
    int priority;
    int nphases, nsets;
    int begins[PHASES_MAX + 1]; /* the first step of each phase, and the plan's end */
    struct round *rounds;       /* of each set */
    uint64_t *numbers;          /* [set * nsteps + step]: the operation that a step started */
    uint64_t started;           /* operations so far */
    uint64_t since;             /* what the statistics have counted up to */
};

/* ------------------------------------------------------------------ letting others go first */

static bool faster_gets_on(int priority)
{
    for (int p = 0; p < priority; p++) {
        uint64_t last = atomic_load(&last_progress[p]); /* before the clock: never later than it */
        if (atomic_load(&running[p]) && qccl_now_ns() - last < stall_ns)
            return true;
    }
    return false;
}

static void let_faster_go(int priority)
{
    const struct timespec nap = {.tv_nsec = nap_ns};
    while (priority && faster_gets_on(priority))
        nanosleep(&nap, NULL);
    atomic_store(&last_progress[priority], qccl_now_ns());
}

/* ------------------------------------------------------------------ phases */

static void find_phases(struct pipeline *p)
{
    const struct plan *plan = p->plan;
    p->nphases = 1;
    for (int i = 0; i < plan->nsteps; i++)
        if (plan->steps[i].kind == STEP_WAIT)
            p->begins[p->nphases++] = i + 1;
    p->begins[p->nphases] = plan->nsteps;
    p->nsets = p->nphases;
    if ((size_t)p->nsets > plan->rounds)
        p->nsets = plan->rounds ? (int)plan->rounds : 1;
}

static uint64_t *number_of(const struct pipeline *p, const struct round *round, int step)
{
    size_t set = round->number % (size_t)p->nsets;
    return &p->numbers[set * (size_t)p->plan->nsteps + (size_t)step];
}

static qcclResult_t wait_for_step(struct pipeline *p, const struct round *round, int step)
{
    const qcclTransport_t *mover = &p->comm->transport.mover;
    uint64_t *number = number_of(p, round, step);
    if (*number == NOT_STARTED)
        return qcclSuccess;
    RETURN_IF_FAILED(mover->wait_for(mover->context, *number, p->comm->timeout));
    atomic_store(&last_progress[p->priority], qccl_now_ns()); /* each message is progress */
    *number = NOT_STARTED;
    return qcclSuccess;
}

/* The WAIT before a phase: what the phase before it received has arrived and is what it should be,
 * and the slots that it sent are free. */
static qcclResult_t finish_phase(struct pipeline *p, const struct round *round, int phase)
{
    for (int i = p->begins[phase]; i < p->begins[phase + 1]; i++) {
        RETURN_IF_FAILED(wait_for_step(p, round, i));
        RETURN_IF_FAILED(qccl_step_check(round, &p->plan->steps[i]));
    }
    p->since = qccl_step_account(p->comm, STEP_WAIT, p->since);
    return qcclSuccess;
}

/* Keeps messages moving while this rank computes. */
static qcclResult_t poke(struct pipeline *p)
{
    const qcclTransport_t *mover = &p->comm->transport.mover;
    int done;
    return p->started ? mover->test(mover->context, p->started - 1, &done) : qcclSuccess;
}

static qcclResult_t run_phase(struct pipeline *p, const struct round *round, int phase)
{
    if (phase)
        RETURN_IF_FAILED(finish_phase(p, round, phase - 1));
    for (int i = p->begins[phase]; i < p->begins[phase + 1]; i++) {
        const struct plan_step *step = &p->plan->steps[i];
        bool started;
        RETURN_IF_FAILED(qccl_step_run(round, step, &started));
        if (started)
            *number_of(p, round, i) = p->started++;
        else if (step->kind != STEP_WAIT)
            RETURN_IF_FAILED(poke(p));
        p->since = qccl_step_account(p->comm, step->kind, p->since);
    }
    atomic_store(&last_progress[p->priority], qccl_now_ns());
    return qcclSuccess;
}

static qcclResult_t run_tick(struct pipeline *p, size_t tick)
{
    let_faster_go(p->priority);
    p->since = qccl_now_ns(); /* waiting for others is no step's time */
    for (int phase = 0; phase < p->nphases && (size_t)phase <= tick; phase++) {
        size_t number = tick - (size_t)phase;
        if (number >= p->plan->rounds)
            continue;
        struct round *round = &p->rounds[number % (size_t)p->nsets];
        round->number = number;
        RETURN_IF_FAILED(run_phase(p, round, phase));
    }
    return qcclSuccess;
}

/* ------------------------------------------------------------------ the run */

static qcclResult_t open_sets(struct pipeline *p, struct operands *operands)
{
    struct round first;
    size_t nsets = (size_t)p->nsets, steps = nsets * (size_t)p->plan->nsteps;
    RETURN_IF_FAILED(qccl_comm_reserve(p->comm, p->plan, p->nsets));
    RETURN_IF_FAILED(qccl_round_begin(&first, p->comm, p->plan, operands));
    p->rounds = qccl_alloc(nsets, sizeof *p->rounds);
    p->numbers = qccl_alloc(steps ? steps : 1, sizeof *p->numbers);
    if (!p->rounds || !p->numbers)
        return qccl_fail(qcclOutOfMemory, "no memory for %zu rounds in flight", nsets);
    for (size_t i = 0; i < steps; i++)
        p->numbers[i] = NOT_STARTED;
    for (size_t set = 0; set < nsets; set++) {
        p->rounds[set] = first;
        p->rounds[set].memory = p->comm->workspace + set * p->plan->workspace_bytes;
        p->rounds[set].messages = p->comm->messages + set * (size_t)p->plan->nslots;
    }
    return qcclSuccess;
}

static qcclResult_t run(struct pipeline *p, struct operands *operands)
{
    const qcclTransport_t *mover = &p->comm->transport.mover;
    RETURN_IF_FAILED(open_sets(p, operands));
    p->since = qccl_now_ns();
    size_t ticks = p->plan->rounds ? p->plan->rounds + (size_t)p->nphases - 1 : 0;
    for (size_t tick = 0; tick < ticks; tick++)
        RETURN_IF_FAILED(run_tick(p, tick));
    RETURN_IF_FAILED(mover->wait(mover->context, p->comm->timeout));
    p->since = qccl_step_account(p->comm, STEP_WAIT, p->since);
    return qcclSuccess;
}

qcclResult_t qccl_run_pipelined(struct qcclComm *comm, const struct plan *plan,
                                struct operands *operands)
{
    const qcclTransport_t *mover = &comm->transport.mover;
    struct pipeline p = {.comm = comm, .plan = plan, .priority = operands->priority};
    if (!mover->wait_for || !mover->test)
        return qccl_run_serial(comm, plan, operands);
    find_phases(&p);
    atomic_fetch_add(&running[p.priority], 1);
    qcclResult_t result = run(&p, operands);
    atomic_fetch_sub(&running[p.priority], 1);
    qccl_free(p.rounds);
    qccl_free(p.numbers);
    return result;
}
