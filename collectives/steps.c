/* The steps of a plan: where their values are, what they compute, what a received message has to
 * be.
 */
#include "collectives/steps.h"

#include <string.h>
#include <time.h>

#include "base/status.h"
#include "base/trace.h"
#include "quant/codec.h"
#include "quant/segment.h"

static uint8_t *slot_memory(const struct round *round, int slot)
{
    return round->memory + round->plan->slot_offset[slot];
}

static float *node_sum(const struct round *round)
{
    return (float *)(void *)(round->memory + round->plan->node_sum_offset);
}

static qcclPosition_t position_of(const struct round *round, const struct plan_step *step,
                                  int quantizer, size_t first)
{
    return (qcclPosition_t){.seed = round->comm->seed,
                            .segment = (uint32_t)step->segment,
                            .sequence = round->comm->sequence,
                            .rank = (uint32_t)quantizer,
                            .stage = (uint32_t)step->stage,
                            .first = first};
}

/* Where what an encoding loses goes: error feedback, or the caller's array, which holds nothing
 * that should be added. */
static float *residual_of(const struct round *round, const struct plan_step *step, size_t first,
                          size_t elems)
{
    if (round->residuals && step->residual != NO_RESIDUAL)
        return round->residuals + step->residual + first;
    if (!round->operands->lost)
        return NULL;
    float *lost = round->operands->lost + qccl_plan_input(round->plan, step->segment) + first;
    memset(lost, 0, elems * sizeof *lost);
    return lost;
}

static struct encoding encoding_of(const struct round *round, const struct plan_step *step,
                                   size_t first, size_t elems)
{
    return (struct encoding){
        .codec = step->codec,
        .position = position_of(round, step, round->plan->rank, first),
        .residual = residual_of(round, step, first, elems),
        .replica = round->operands->replica,
        .checked = round->comm->check,
        .message = slot_memory(round, step->slot),
    };
}

/* This rank's input of a segment's chunk. */
static struct source input_of(const struct round *round, int segment, size_t first)
{
    const struct plan *plan = round->plan;
    size_t input = qccl_plan_input(plan, segment) + first;
    struct source source = {
        .values = (const char *)round->operands->input +
                  input * qcclTypeBytes(round->operands->input_type),
        .type = round->operands->input_type,
    };
    if (round->operands->minus) {
        size_t old = qccl_plan_output(plan, segment) + first;
        source.minus = (const char *)round->operands->minus + old * qcclTypeBytes(plan->key.type);
        source.minus_type = plan->key.type;
    }
    return source;
}

static void *output_of(const struct round *round, int segment, size_t first)
{
    size_t at = qccl_plan_output(round->plan, segment) + first;
    return (char *)round->operands->output + at * qcclTypeBytes(round->plan->key.type);
}

/* Opens the message in a slot, which this rank wrote itself or a check has passed. */
static qcclResult_t open_slot(const struct round *round, const struct plan_step *step, size_t elems)
{
    return qccl_wire_open(slot_memory(round, step->slot), qccl_wire_bytes(&step->codec, elems),
                          &round->messages[step->slot]);
}

static qcclResult_t run_encode(const struct round *round, const struct plan_step *step,
                               size_t first, size_t elems)
{
    struct source source = input_of(round, step->segment, first);
    struct encoding encoding = encoding_of(round, step, first, elems);
    RETURN_IF_FAILED(qccl_encode_segment(&source, elems, &encoding));
    RETURN_IF_FAILED(open_slot(round, step, elems));
    qcclStats_t *stats = &round->comm->stats;
    if (encoding.residual || step->codec.format == qcclFormatNone)
        return qcclSuccess; /* what was encoded is not the source alone, or nothing is lost */
    return qccl_sample_error(&source, &round->messages[step->slot], &stats->sampled_energy,
                             &stats->sampled_error);
}

static void list_parts(const struct round *round, const struct plan_step *step, size_t first)
{
    for (int i = 0; i < step->nparts; i++) {
        const struct plan_part *part = &round->plan->parts[step->first_part + i];
        round->comm->parts[i] = (struct part){0};
        if (part->kind == PART_SLOT)
            round->comm->parts[i].message = &round->messages[part->slot];
        else if (part->kind == PART_INPUT)
            round->comm->parts[i].values = input_of(round, step->segment, first);
        else
            round->comm->parts[i].domain = node_sum(round);
    }
}

static qcclResult_t run_reduce(const struct round *round, const struct plan_step *step,
                               size_t first, size_t elems)
{
    struct encoding encoding = encoding_of(round, step, first, elems);
    list_parts(round, step, first);
    struct reduction reduction = {
        .parts = round->comm->parts,
        .nparts = step->nparts,
        .codec = step->parts_codec,
        .count = elems,
        .weight = step->last ? round->plan->weight : 1.0f,
    };
    if (step->target == TO_SLOT)
        reduction.encoding = &encoding;
    else if (step->target == TO_NODE_SUM)
        reduction.domain = node_sum(round);
    else
        reduction.values = output_of(round, step->segment, first);
    reduction.type = round->plan->key.type;
    RETURN_IF_FAILED(qccl_reduce_segment(&reduction));
    return step->target == TO_SLOT ? open_slot(round, step, elems) : qcclSuccess;
}

/* Whether a received message is the one that the plan expects here. */
static qcclResult_t check_message(const struct round *round, const struct plan_step *step,
                                  const struct message *m, size_t first, size_t elems)
{
    qcclPosition_t want = position_of(round, step, step->peer, first);
    const qcclPosition_t *got = &m->position;
    const qcclCodec_t *c = &m->codec, *d = &step->codec;
    if (c->format != d->format || c->group != d->group || c->hadamard != d->hadamard ||
        c->nearest != d->nearest || m->count != elems)
        return qccl_fail(
            qcclMismatch,
            "rank %d sent %zu values as %s, group %d, hadamard %d; rank %d expects %zu as %s, "
            "group %d, hadamard %d",
            step->peer, m->count, qccl_format_name(c->format), c->group, c->hadamard,
            round->plan->rank, elems, qccl_format_name(d->format), d->group, d->hadamard);
    if (got->seed != want.seed || got->sequence != want.sequence || got->segment != want.segment ||
        got->rank != want.rank || got->stage != want.stage || got->first != want.first)
        return qccl_fail(
            qcclMismatch,
            "rank %d sent sequence %u, segment %u, stage %u, seed %llu; rank %d expects "
            "sequence %u, segment %u, stage %u, seed %llu",
            step->peer, got->sequence, got->segment, got->stage, (unsigned long long)got->seed,
            round->plan->rank, want.sequence, want.segment, want.stage,
            (unsigned long long)want.seed);
    if (m->replica != round->operands->replica)
        round->operands->stale = true; /* every rank sees it: each message goes to all */
    return qcclSuccess;
}

static qcclResult_t run_send(const struct round *round, const struct plan_step *step)
{
    const qcclTransport_t *mover = &round->comm->transport.mover;
    const struct message *m = &round->messages[step->slot];
    size_t bytes = qccl_wire_bytes(&m->codec, m->count);
    round->comm->stats.wire_bytes += bytes;
    return mover->isend(mover->context, slot_memory(round, step->slot), bytes, step->peer);
}

static qcclResult_t run_recv(const struct round *round, const struct plan_step *step, size_t elems)
{
    const qcclTransport_t *mover = &round->comm->transport.mover;
    return mover->irecv(mover->context, slot_memory(round, step->slot),
                        qccl_wire_bytes(&step->codec, elems), step->peer);
}

static qcclResult_t run_decode(const struct round *round, const struct plan_step *step,
                               size_t first)
{
    if (round->operands->stale)
        return qcclSuccess;
    return qccl_decode_segment(&round->messages[step->slot], output_of(round, step->segment, first),
                               round->plan->key.type, round->operands->minus != NULL);
}

qcclResult_t qccl_step_run(const struct round *round, const struct plan_step *step, bool *started)
{
    size_t first, elems = qccl_plan_chunk(round->plan, step->segment, round->number, &first);
    *started = elems && (step->kind == STEP_RECV || step->kind == STEP_SEND);
    if (!elems)
        return qcclSuccess;
    switch (step->kind) {
    case STEP_RECV:
        return run_recv(round, step, elems);
    case STEP_ENCODE:
        return run_encode(round, step, first, elems);
    case STEP_SEND:
        return run_send(round, step);
    case STEP_REDUCE:
        return run_reduce(round, step, first, elems);
    case STEP_DECODE:
        return run_decode(round, step, first);
    default:
        return qcclSuccess;
    }
}

qcclResult_t qccl_step_check(const struct round *round, const struct plan_step *step)
{
    size_t first, elems = qccl_plan_chunk(round->plan, step->segment, round->number, &first);
    if (step->kind != STEP_RECV || !elems)
        return qcclSuccess;
    qcclResult_t result = open_slot(round, step, elems);
    if (result != qcclSuccess)
        return qccl_fail_prefix(result, "from rank %d", step->peer);
    return check_message(round, step, &round->messages[step->slot], first, elems);
}

uint64_t qccl_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t qccl_step_account(struct qcclComm *comm, enum step_kind kind, uint64_t since)
{
    qcclStats_t *stats = &comm->stats;
    uint64_t now = qccl_now_ns();
    uint64_t *column = kind == STEP_ENCODE                          ? &stats->encode_ns
                       : kind == STEP_REDUCE || kind == STEP_DECODE ? &stats->decode_ns
                                                                    : &stats->wire_ns;
    *column += now - since;
    const char *name = column == &stats->encode_ns   ? "encode"
                       : column == &stats->decode_ns ? "decode"
                                                     : "wire";
    qccl_trace_span(qccl_rank(comm), name, since, now);
    return now;
}

qcclResult_t qccl_round_begin(struct round *round, struct qcclComm *comm, const struct plan *plan,
                              struct operands *operands)
{
    *round = (struct round){.comm = comm, .plan = plan, .operands = operands};
    return qccl_feedback_values(&comm->feedback, operands->tensor, plan, &round->residuals);
}
