/* The library's bucketer, as the training loop wants it: tensors come from the last layer to the
 * first, and a full bucket's all-reduce runs on a stream while the rest is worked out. */
#include "bench/gpt/buckets.h"

#include <stdlib.h>

struct gpt_buckets {
    const struct gpt_layout *layout;
    const struct gpt_team *team;
    qcclStream_t stream;
    qcclBucketer_t bucketer;
    float *grads;
};

static void require(const struct gpt_buckets *b, qcclResult_t result)
{
    if (result != qcclSuccess)
        bench_world_fail(b->team->world, b->team->rank, "all-reduce of gradients: %s",
                         qcclGetLastError());
}

struct gpt_buckets *gpt_buckets_new(const struct gpt_options *options,
                                    const struct gpt_layout *layout, const struct gpt_team *team,
                                    float *grads)
{
    struct gpt_buckets *b = calloc(1, sizeof *b);
    if (!b)
        bench_world_fail(team->world, team->rank, "no memory for buckets");
    *b = (struct gpt_buckets){.layout = layout, .team = team, .grads = grads};
    require(b, qcclStreamCreate(&b->stream, 0));
    require(b, qcclBucketerCreate(&b->bucketer, team->comm, (size_t)options->bucket_kib << 10,
                                  qcclFloat32, qcclAvg, b->stream));
    return b;
}

void gpt_buckets_free(struct gpt_buckets *b)
{
    if (!b)
        return;
    qcclBucketerDestroy(b->bucketer);
    qcclStreamDestroy(b->stream);
    free(b);
}

static void finished(void *context, int tensor)
{
    struct gpt_buckets *b = context;
    float *at = b->grads + b->layout->tensors[tensor].offset;
    require(b, qcclBucketerAdd(b->bucketer, at, at, b->layout->tensors[tensor].count));
}

struct gpt_listener gpt_buckets_listener(struct gpt_buckets *b)
{
    return (struct gpt_listener){.finished = finished, .context = b};
}

void gpt_buckets_finish(struct gpt_buckets *b)
{
    require(b, qcclBucketerFlush(b->bucketer));
    require(b, qcclStreamSynchronize(b->stream));
}
