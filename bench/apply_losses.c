/* What encoding did to single contributions: clipped values and poisoned groups; see apply.h.
 *
 * The collective's messages do not stay, but with seed and sequence number known the codec calls
 * make the same ones again. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/apply.h"
#include "bench/report.h"

/* One contribution on its way: a rank's values of one owner's segment. */
struct journey {
    const qcclCodec_t *codec;
    qcclPosition_t position;
    size_t count;
    float *values, *back; /* before and after */
    double *magnitude, *step;
    unsigned char *is_nan;
    void *message;
    size_t message_bytes;
};

static int make_journey(struct journey *j)
{
    size_t n = j->count + 1;
    if (qcclEncodedBytes(j->codec, j->count, &j->message_bytes))
        return bench_error("%s", qcclGetLastError());
    j->values = calloc(n, sizeof *j->values);
    j->back = calloc(n, sizeof *j->back);
    j->magnitude = calloc(n, sizeof *j->magnitude);
    j->step = calloc(n, sizeof *j->step);
    j->is_nan = calloc(n, sizeof *j->is_nan);
    j->message = aligned_alloc(64, (j->message_bytes + 63) / 64 * 64);
    bool good = j->values && j->back && j->magnitude && j->step && j->is_nan && j->message;
    return good ? 0 : bench_error("no memory to look at %zu values", j->count);
}

static void end_journey(struct journey *j)
{
    free(j->values);
    free(j->back);
    free(j->magnitude);
    free(j->step);
    free(j->is_nan);
    free(j->message);
}

/* Counts what was lost.  In a transform domain both sides are compared there, where the step lies;
 * the inverse that the message came back through rounds, by less than a thousandth of a step. */
static void compare(struct journey *j, struct apply_losses *losses)
{
    const qcclCodec_t *codec = j->codec;
    bench_transform(j->values, j->count, codec->hadamard);
    bench_transform(j->back, j->count, codec->hadamard);
    for (size_t i = 0; i < j->count; i++)
        j->magnitude[i] = fabs(j->values[i]);
    bench_add_steps(codec, j->magnitude, j->count, j->step, j->is_nan);
    for (size_t i = 0; i < j->count; i++) {
        double kept = fabs(j->back[i]);
        /* sr1 has two levels, the ends of its range; sign1 keeps a sign and has no range. */
        double slack = codec->format == qcclFormatSr1 ? kept * 0x1p-10 : j->step[i] * (1 + 0x1p-10);
        if (codec->format != qcclFormatSign1 && !j->is_nan[i])
            losses->clipped += j->magnitude[i] - kept > slack && j->magnitude[i] >= 0x1p-100;
    }
    for (size_t i = 0; i < j->count; i += codec->group)
        losses->nan_groups += j->is_nan[i];
}

static int travel(const struct apply *a, int rank, int owner, const qcclCodec_t *codec,
                  uint32_t stage, struct apply_losses *losses)
{
    size_t first;
    struct journey j = {.codec = codec,
                        .position = {.seed = a->options->seed,
                                     .segment = (uint32_t)owner,
                                     .sequence = (uint32_t)a->options->sequence,
                                     .rank = (uint32_t)rank,
                                     .stage = stage}};
    bench_scheme_segment(&a->scheme, a->whole, owner, &first, &j.count);
    int status = make_journey(&j);
    if (!status) {
        apply_read(a, rank, first, j.count, j.values);
        if (qcclEncode(codec, &j.position, j.values, qcclFloat32, j.count, NULL, j.message,
                       j.message_bytes) ||
            qcclDecode(j.message, j.message_bytes, j.back, qcclFloat32, j.count, 0))
            status = bench_error("%s", qcclGetLastError());
        else
            compare(&j, losses);
    }
    end_journey(&j);
    return status;
}

int apply_find_losses(const struct apply *a, struct apply_losses *losses)
{
    enum { SCATTER = 0, GATHER = 1, INTRA = 2 };
    const struct bench_scheme *scheme = &a->scheme;
    int status = 0;
    *losses = (struct apply_losses){.clipped = 0};
    for (int owner = 0; owner < a->nranks && !scheme->plain; owner++) {
        if (scheme->coll == qcclCollAllGather)
            status = travel(a, owner, owner, &scheme->main, GATHER, losses);
        for (int r = 0; r < a->nranks && !status && scheme->coll != qcclCollAllGather; r++) {
            int head = scheme->two_level
                           ? bench_scheme_head(scheme, bench_scheme_node(scheme, r), owner)
                           : owner;
            if (r != head)
                status = travel(a, r, owner, scheme->two_level ? &scheme->intra : &scheme->main,
                                scheme->two_level ? INTRA : SCATTER, losses);
        }
        if (status)
            return status;
    }
    return 0;
}
