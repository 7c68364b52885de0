/* A plan as text: a head with its geometry, then one line a step. */
#include "collectives/plan.h"

static void print_codec(const qcclCodec_t *codec, FILE *out)
{
    char text[QCCL_CODEC_MAX] = "?";
    qcclCodec_t shown = *codec;
    shown.hadamard = 0;
    qcclCodecPrint(&shown, text, sizeof text);
    fputs(text, out);
    if (codec->hadamard)
        fprintf(out, ",hadamard=%d", codec->hadamard);
}

static void print_parts(const struct plan *plan, const struct plan_step *step, FILE *out)
{
    for (int i = 0; i < step->nparts; i++) {
        const struct plan_part *part = &plan->parts[step->first_part + i];
        fputs(i ? " + " : "", out);
        if (part->kind == PART_SLOT)
            fprintf(out, "slot %d", part->slot);
        else
            fputs(part->kind == PART_INPUT ? "own input" : "node sum", out);
    }
}

static void print_reduce(const struct plan *plan, const struct plan_step *step, FILE *out)
{
    fprintf(out, "reduce  segment %d: ", step->segment);
    print_parts(plan, step, out);
    if (step->last && plan->key.op == qcclAvg)
        fprintf(out, ", times 1/%d", plan->nranks);
    if (step->target == TO_SLOT) {
        fprintf(out, " -> slot %d, stage %d, ", step->slot, step->stage);
        print_codec(&step->codec, out);
    } else {
        fputs(step->target == TO_OUTPUT ? " -> output" : " -> node sum", out);
    }
    fputc('\n', out);
}

static void print_step(const struct plan *plan, const struct plan_step *step, FILE *out)
{
    switch (step->kind) {
    case STEP_RECV:
        fprintf(out, "recv    segment %d from rank %d -> slot %d, stage %d\n", step->segment,
                step->peer, step->slot, step->stage);
        break;
    case STEP_ENCODE:
        fprintf(out, "encode  segment %d -> slot %d, stage %d, ", step->segment, step->slot,
                step->stage);
        print_codec(&step->codec, out);
        fputc('\n', out);
        break;
    case STEP_SEND:
        fprintf(out, "send    slot %d to rank %d (segment %d)\n", step->slot, step->peer,
                step->segment);
        break;
    case STEP_WAIT:
        fputs("wait\n", out);
        break;
    case STEP_REDUCE:
        print_reduce(plan, step, out);
        break;
    case STEP_DECODE:
        fprintf(out, "decode  slot %d -> output of segment %d%s\n", step->slot, step->segment,
                plan->key.collective == qcclCollAllGatherDelta ? ", added" : "");
        break;
    }
}

void qccl_plan_print(const struct plan *plan, FILE *out)
{
    fprintf(out, "%s of %zu elements, rank %d of %d, %s\n",
            qccl_collective_name(plan->key.collective), plan->key.count, plan->rank, plan->nranks,
            plan->two_level ? "two levels" : "flat");
    fprintf(
        out,
        "shards of %zu elements, %zu round%s of chunks of %zu; workspace %zu bytes in %d slots\n",
        plan->shard_elems, plan->rounds, plan->rounds == 1 ? "" : "s", plan->chunk_elems,
        plan->workspace_bytes, plan->nslots);
    for (int i = 0; i < plan->nsteps; i++) {
        fprintf(out, "%4d  ", i);
        print_step(plan, &plan->steps[i], out);
    }
}
