/* Averages of gradients in buckets, beside the backward pass.
 *
 * What cannot succeed ends the program on all ranks, with a sentence. */
#ifndef BENCH_GPT_BUCKETS_H
#define BENCH_GPT_BUCKETS_H

#include "bench/gpt/flags.h"
#include "bench/gpt/model.h"
#include "bench/gpt/team.h"

struct gpt_buckets;

/* grads: layout->params values. */
struct gpt_buckets *gpt_buckets_new(const struct gpt_options *options,
                                    const struct gpt_layout *layout, const struct gpt_team *team,
                                    float *grads);
/* NULL is allowed. */
void gpt_buckets_free(struct gpt_buckets *buckets);

/* Collects gradients as the backward pass finishes them. */
struct gpt_listener gpt_buckets_listener(struct gpt_buckets *buckets);

/* Returns when all gradients of the pass are averages. */
void gpt_buckets_finish(struct gpt_buckets *buckets);

#endif
