/* The serial executor: the steps of a plan in order, round after round.  It is the reference
 * meaning of a plan. */
#include <string.h>
#include <time.h>

#include "base/status.h"
#include "collectives/comm.h"
#include "quant/codec.h"
#include "quant/segment.h"

/* One call being run. */
struct run {
    struct qcclComm *comm;
    const struct plan *plan;
    const void *input, *minus;
    qcclDataType_t input_type;
    void *output;
    float *residuals;
    size_t round;
    int first_unchecked; /* the first step whose received slot a WAIT has not checked yet */
    struct part *parts;
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint8_t *slot_memory(const struct run *run, int slot)
{
    return run->comm->workspace + run->plan->slot_offset[slot];
}

static float *node_sum(const struct run *run)
{
    return (float *)(void *)(run->comm->workspace + run->plan->node_sum_offset);
}

static qcclPosition_t position_of(const struct run *run, const struct plan_step *step,
                                  int quantizer, size_t first)
{
    return (qcclPosition_t){.seed = run->comm->seed,
                            .segment = (uint32_t)step->segment,
                            .sequence = run->comm->sequence,
                            .rank = (uint32_t)quantizer,
                            .stage = (uint32_t)step->stage,
                            .first = first};
}

static struct encoding encoding_of(const struct run *run, const struct plan_step *step,
                                   size_t first)
{
    bool feedback = run->residuals && step->residual != NO_RESIDUAL;
    return (struct encoding){
        .codec = step->codec,
        .position = position_of(run, step, run->plan->rank, first),
        .residual = feedback ? run->residuals + step->residual + first : NULL,
        .checked = run->comm->check,
        .message = slot_memory(run, step->slot),
    };
}

/* This rank's input of a segment's chunk. */
static struct source input_of(const struct run *run, int segment, size_t first)
{
    const struct plan *plan = run->plan;
    size_t input = qccl_plan_input(plan, segment) + first;
    struct source source = {
        .values = (const char *)run->input + input * qcclTypeBytes(run->input_type),
        .type = run->input_type,
    };
    if (run->minus) {
        size_t old = qccl_plan_output(plan, segment) + first;
        source.minus = (const char *)run->minus + old * qcclTypeBytes(plan->key.type);
        source.minus_type = plan->key.type;
    }
    return source;
}

static void *output_of(const struct run *run, int segment, size_t first)
{
    size_t at = qccl_plan_output(run->plan, segment) + first;
    return (char *)run->output + at * qcclTypeBytes(run->plan->key.type);
}

/* Opens the message in a slot, which this rank wrote itself or a check has passed. */
static qcclResult_t open_slot(const struct run *run, const struct plan_step *step, size_t elems)
{
    return qccl_wire_open(slot_memory(run, step->slot), qccl_wire_bytes(&step->codec, elems),
                          &run->comm->messages[step->slot]);
}

static qcclResult_t run_encode(struct run *run, const struct plan_step *step, size_t first,
                               size_t elems)
{
    struct source source = input_of(run, step->segment, first);
    struct encoding encoding = encoding_of(run, step, first);
    RETURN_IF_FAILED(qccl_encode_segment(&source, elems, &encoding));
    RETURN_IF_FAILED(open_slot(run, step, elems));
    qcclStats_t *stats = &run->comm->stats;
    if (encoding.residual) /* what was encoded is not the source alone */
        return qcclSuccess;
    return qccl_sample_error(&source, &run->comm->messages[step->slot], &stats->sampled_energy,
                             &stats->sampled_error);
}

static void list_parts(const struct run *run, const struct plan_step *step, size_t first)
{
    for (int i = 0; i < step->nparts; i++) {
        const struct plan_part *part = &run->plan->parts[step->first_part + i];
        run->parts[i] = (struct part){0};
        if (part->kind == PART_SLOT)
            run->parts[i].message = &run->comm->messages[part->slot];
        else if (part->kind == PART_INPUT)
            run->parts[i].values = input_of(run, step->segment, first);
        else
            run->parts[i].domain = node_sum(run);
    }
}

static qcclResult_t run_reduce(struct run *run, const struct plan_step *step, size_t first,
                               size_t elems)
{
    struct encoding encoding = encoding_of(run, step, first);
    list_parts(run, step, first);
    struct reduction reduction = {
        .parts = run->parts,
        .nparts = step->nparts,
        .codec = step->parts_codec,
        .count = elems,
        .weight = step->last ? run->plan->weight : 1.0f,
    };
    if (step->target == TO_SLOT)
        reduction.encoding = &encoding;
    else if (step->target == TO_NODE_SUM)
        reduction.domain = node_sum(run);
    else
        reduction.values = output_of(run, step->segment, first);
    reduction.type = run->plan->key.type;
    RETURN_IF_FAILED(qccl_reduce_segment(&reduction));
    return step->target == TO_SLOT ? open_slot(run, step, elems) : qcclSuccess;
}

/* Whether a received message is the one that the plan expects here. */
static qcclResult_t check_message(const struct run *run, const struct plan_step *step,
                                  const struct message *m, size_t first, size_t elems)
{
    qcclPosition_t want = position_of(run, step, step->peer, first);
    const qcclPosition_t *got = &m->position;
    const qcclCodec_t *c = &m->codec, *d = &step->codec;
    if (c->format != d->format || c->group != d->group || c->hadamard != d->hadamard ||
        c->nearest != d->nearest || m->count != elems)
        return qccl_fail(
            qcclMismatch,
            "rank %d sent %zu values as %s, group %d, hadamard %d; rank %d expects %zu as %s, "
            "group %d, hadamard %d",
            step->peer, m->count, qccl_format_name(c->format), c->group, c->hadamard,
            run->plan->rank, elems, qccl_format_name(d->format), d->group, d->hadamard);
    if (got->seed != want.seed || got->sequence != want.sequence || got->segment != want.segment ||
        got->rank != want.rank || got->stage != want.stage || got->first != want.first)
        return qccl_fail(
            qcclMismatch,
            "rank %d sent sequence %u, segment %u, stage %u, seed %llu; rank %d expects "
            "sequence %u, segment %u, stage %u, seed %llu",
            step->peer, got->sequence, got->segment, got->stage, (unsigned long long)got->seed,
            run->plan->rank, want.sequence, want.segment, want.stage,
            (unsigned long long)want.seed);
    return qcclSuccess;
}

/* Opens and checks every slot received since the last wait. */
static qcclResult_t check_received(struct run *run, int end)
{
    for (int i = run->first_unchecked; i < end; i++) {
        const struct plan_step *step = &run->plan->steps[i];
        size_t first, elems = qccl_plan_chunk(run->plan, step->segment, run->round, &first);
        if (step->kind != STEP_RECV || !elems)
            continue;
        qcclResult_t result = open_slot(run, step, elems);
        if (result != qcclSuccess)
            return qccl_fail_prefix(result, "from rank %d", step->peer);
        RETURN_IF_FAILED(check_message(run, step, &run->comm->messages[step->slot], first, elems));
    }
    run->first_unchecked = end;
    return qcclSuccess;
}

static qcclResult_t run_send(struct run *run, const struct plan_step *step)
{
    const qcclTransport_t *mover = &run->comm->transport.mover;
    const struct message *m = &run->comm->messages[step->slot];
    size_t bytes = qccl_wire_bytes(&m->codec, m->count);
    run->comm->stats.wire_bytes += bytes;
    return mover->isend(mover->context, slot_memory(run, step->slot), bytes, step->peer);
}

static qcclResult_t run_step(struct run *run, const struct plan_step *step, int index)
{
    const qcclTransport_t *mover = &run->comm->transport.mover;
    size_t first, elems = qccl_plan_chunk(run->plan, step->segment, run->round, &first);
    if (step->kind == STEP_WAIT) {
        RETURN_IF_FAILED(mover->wait(mover->context, run->comm->timeout));
        return check_received(run, index);
    }
    if (!elems)
        return qcclSuccess;
    switch (step->kind) {
    case STEP_RECV:
        return mover->irecv(mover->context, slot_memory(run, step->slot),
                            qccl_wire_bytes(&step->codec, elems), step->peer);
    case STEP_ENCODE:
        return run_encode(run, step, first, elems);
    case STEP_SEND:
        return run_send(run, step);
    case STEP_REDUCE:
        return run_reduce(run, step, first, elems);
    default:
        return qccl_decode_segment(&run->comm->messages[step->slot],
                                   output_of(run, step->segment, first), run->plan->key.type,
                                   run->minus != NULL);
    }
}

/* Adds the time since `since` to the column of a step's kind. */
static uint64_t account(qcclStats_t *stats, enum step_kind kind, uint64_t since)
{
    uint64_t now = now_ns();
    uint64_t *column = kind == STEP_ENCODE                          ? &stats->encode_ns
                       : kind == STEP_REDUCE || kind == STEP_DECODE ? &stats->decode_ns
                                                                    : &stats->wire_ns;
    *column += now - since;
    return now;
}

static qcclResult_t run_rounds(struct run *run)
{
    const struct plan *plan = run->plan;
    uint64_t since = now_ns();
    for (run->round = 0; run->round < plan->rounds; run->round++) {
        run->first_unchecked = 0;
        for (int i = 0; i < plan->nsteps; i++) {
            RETURN_IF_FAILED(run_step(run, &plan->steps[i], i));
            since = account(&run->comm->stats, plan->steps[i].kind, since);
        }
    }
    return qcclSuccess;
}

qcclResult_t qccl_run_serial(struct qcclComm *comm, const struct plan *plan, const void *input,
                             qcclDataType_t input_type, const void *minus, void *output)
{
    struct run run = {.comm = comm,
                      .plan = plan,
                      .input = input,
                      .minus = minus,
                      .input_type = input_type,
                      .output = output};
    RETURN_IF_FAILED(qccl_comm_reserve(comm, plan));
    RETURN_IF_FAILED(qccl_feedback_values(&comm->feedback, plan, &run.residuals));
    run.parts = comm->parts;
    return run_rounds(&run);
}
