/* Sharded training through the library: reduce-scatter of gradients, an optimizer step on each
 * rank's shard, a gather of weights; with --duo two reductions.
 *
 * What cannot succeed ends the program on all ranks, with a sentence. */
#ifndef BENCH_GPT_SHARDED_H
#define BENCH_GPT_SHARDED_H

#include "bench/gpt/flags.h"
#include "bench/gpt/model.h"
#include "bench/gpt/progress.h"
#include "bench/gpt/team.h"

struct gpt_sharded;

struct gpt_sharded *gpt_sharded_new(const struct gpt_options *options,
                                    const struct gpt_layout *layout, const struct gpt_team *team);
/* NULL is allowed. */
void gpt_sharded_free(struct gpt_sharded *sharded);

/* The flat buffers, layout->params values each. */
float *gpt_sharded_params(const struct gpt_sharded *sharded);
float *gpt_sharded_grads(const struct gpt_sharded *sharded);

/* The parameters are filled in. */
void gpt_sharded_start(struct gpt_sharded *sharded);

/* Starts the reduction of gradients as the backward pass finishes them. */
struct gpt_listener gpt_sharded_listener(struct gpt_sharded *sharded);

/* Ends the step; the parameters are new when it returns. */
void gpt_sharded_step(struct gpt_sharded *sharded, double rate);

/* Between the two the parameters are the fp32 masters, the last step committed.  Training goes on
 * as if nothing had been: it does not depend on how often it is validated. */
void gpt_sharded_show_masters(struct gpt_sharded *sharded);
void gpt_sharded_hide_masters(struct gpt_sharded *sharded);

/* Called while masters are shown, when all reductions that were started have been sent.  Tells
 * gradients, weights and slow reductions apart, takes what validations gathered out of the traffic,
 * and adds how many seconds commits have waited for slow reductions, summed over ranks. */
void gpt_sharded_progress(struct gpt_sharded *sharded, struct gpt_progress *progress);

#endif
