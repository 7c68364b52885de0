/* The library's sharded training, as the training loop wants it. */
#include "bench/gpt/sharded.h"

#include <stdlib.h>
#include <string.h>

struct gpt_sharded {
    const struct gpt_options *options;
    const struct gpt_layout *layout;
    const struct gpt_team *team;
    qcclShard_t shard;
    qcclStream_t stream; /* NULL: nothing overlaps */
    float *params, *grads;
    float *kept; /* the parameters that training goes on with, while masters are shown */
    double shown_raw, shown_wire; /* bytes that showing masters has sent, of this rank */
};

static void require(const struct gpt_sharded *s, qcclResult_t result, const char *what)
{
    if (result != qcclSuccess)
        bench_world_fail(s->team->world, s->team->rank, "%s: %s", what, qcclGetLastError());
}

static qcclStats_t stats_of(const struct gpt_sharded *s, qcclComm_t comm)
{
    qcclStats_t stats = {.size = sizeof stats};
    if (comm)
        require(s, qcclCommGetStats(comm, &stats), "statistics");
    return stats;
}

/* 4, 1 and 0 bits by their numbers. */
static const char *fast_codec(const char *duo)
{
    return strcmp(duo, "4") == 0   ? "int4"
           : strcmp(duo, "1") == 0 ? "sign1"
           : strcmp(duo, "0") == 0 ? "local"
                                   : duo;
}

static void make_shard(struct gpt_sharded *s)
{
    const struct gpt_options *o = s->options;
    size_t counts[GPT_MAX_TENSORS];
    uint8_t undecayed[GPT_MAX_TENSORS];
    for (int t = 0; t < s->layout->tensor_count; t++) {
        counts[t] = s->layout->tensors[t].count;
        undecayed[t] = !s->layout->tensors[t].decays;
    }
    qcclDuoConfig_t duo = {.size = sizeof duo, .slow = o->slow};
    if (o->duo)
        duo.fast = fast_codec(o->duo);
    qcclShardConfig_t config = {
        .size = sizeof config,
        .datatype = qcclFloat32,
        .bucket_bytes = (size_t)o->bucket_kib << 10,
        .optimizer = {.size = sizeof config.optimizer,
                      .kind = strcmp(o->optimizer, "sgd") == 0 ? qcclSgd : qcclAdamW,
                      .momentum = 0.9f,
                      .beta1 = 0.9f,
                      .beta2 = 0.95f,
                      .epsilon = 1e-8f,
                      .decay = (float)o->decay},
        .undecayed = undecayed,
        .clip = (float)o->clip,
        .plain = strcmp(o->weights, "plain") == 0,
        .slow_comm = s->team->slow,
        .duo = o->duo ? &duo : NULL,
    };
    require(s, qcclShardCreate(&s->shard, s->team->comm, counts, s->layout->tensor_count, &config),
            "sharded training");
}

struct gpt_sharded *gpt_sharded_new(const struct gpt_options *options,
                                    const struct gpt_layout *layout, const struct gpt_team *team)
{
    struct gpt_sharded *s = calloc(1, sizeof *s);
    float *kept = calloc(layout->params, sizeof *kept);
    void *params;
    if (!s || !kept)
        bench_world_fail(team->world, team->rank, "no memory for %zu parameters", layout->params);
    *s = (struct gpt_sharded){.options = options, .layout = layout, .team = team, .kept = kept};
    make_shard(s);
    require(s, qcclShardTensor(s->shard, 0, &params, &s->grads), "sharded training");
    s->params = params;
    if (strcmp(options->overlap, "on") == 0)
        require(s, qcclStreamCreate(&s->stream, 0), "stream");
    return s;
}

void gpt_sharded_free(struct gpt_sharded *s)
{
    if (!s)
        return;
    qcclStreamDestroy(s->stream);
    qcclShardDestroy(s->shard);
    free(s->kept);
    free(s);
}

float *gpt_sharded_params(const struct gpt_sharded *s)
{
    return s->params;
}

float *gpt_sharded_grads(const struct gpt_sharded *s)
{
    return s->grads;
}

void gpt_sharded_start(struct gpt_sharded *s)
{
    require(s, qcclShardStart(s->shard), "start");
}

static void finished(void *context, int tensor)
{
    struct gpt_sharded *s = context;
    if (s->stream)
        require(s, qcclShardReduce(s->shard, tensor, s->stream), "reduction");
}

struct gpt_listener gpt_sharded_listener(struct gpt_sharded *s)
{
    return (struct gpt_listener){.finished = finished, .context = s};
}

void gpt_sharded_step(struct gpt_sharded *s, double rate)
{
    int tensors = s->layout->tensor_count;
    for (int t = tensors - 1; !s->stream && t >= 0; t--)
        require(s, qcclShardReduce(s->shard, t, NULL), "reduction");
    require(s, qcclShardStep(s->shard, (float)rate, s->stream), "step");
    for (int t = 0; t < tensors; t++)
        require(s, qcclShardWait(s->shard, t), "gather");
}

void gpt_sharded_show_masters(struct gpt_sharded *s)
{
    qcclStats_t before = stats_of(s, s->team->comm);
    memcpy(s->kept, s->params, s->layout->params * sizeof *s->kept);
    require(s, s->options->duo ? qcclShardFlush(s->shard) : qcclShardResync(s->shard), "masters");
    qcclStats_t after = stats_of(s, s->team->comm);
    s->shown_raw += (double)(after.raw_bytes - before.raw_bytes);
    s->shown_wire += (double)(after.wire_bytes - before.wire_bytes);
}

void gpt_sharded_hide_masters(struct gpt_sharded *s)
{
    memcpy(s->params, s->kept, s->layout->params * sizeof *s->kept);
}

void gpt_sharded_progress(struct gpt_sharded *s, struct gpt_progress *progress)
{
    qcclStats_t slow = stats_of(s, s->team->slow);
    double totals[] = {(double)slow.wire_bytes, (double)slow.slow_exposed_ns * 1e-9, s->shown_raw,
                       s->shown_wire};
    bench_world_combine(s->team->world, s->team->rank, totals, 4, BENCH_SUM);
    progress->slow_bytes = totals[0];
    progress->exposed_share = totals[1];
    progress->traffic.wire_bytes += totals[2] - totals[3];
    progress->traffic.ratio = progress->traffic.raw_bytes / progress->traffic.wire_bytes;
}
