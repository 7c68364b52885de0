/* The GPT: embeddings, pre-LayerNorm blocks of attention and a GELU MLP, a final LayerNorm, an
 * untied head.
 *
 * A workspace holds what the forward pass keeps for the backward one, for batches of up to a
 * fixed number of sequences of exactly `context` tokens.  Parameters and gradients are flat
 * buffers (layout.h).  No state is shared, so each rank of a process has its own workspace and
 * needs no lock. */
#ifndef BENCH_GPT_MODEL_H
#define BENCH_GPT_MODEL_H

#include <stdint.h>

#include "bench/gpt/layout.h"

struct gpt_workspace;

/* NULL when memory is short.  layout must outlive the workspace. */
struct gpt_workspace *gpt_workspace_new(const struct gpt_layout *layout, int max_batch);
void gpt_workspace_free(struct gpt_workspace *workspace);

/* tokens and targets have batch * context values below the vocabulary's size.  Returns an array
 * of batch * context losses, in nats, one a token, that lives until the next call. */
const double *gpt_forward(struct gpt_workspace *workspace, const real *params,
                          const uint8_t *tokens, const uint8_t *targets, int batch);

/* Hears of each tensor (its number in the layout) whose gradient is finished: from the last layer
 * to the first, so that it can be sent while the rest is worked out. */
struct gpt_listener {
    void (*finished)(void *context, int tensor);
    void *context;
};

/* listener may be NULL.  grads = gradient of the mean of the losses that the last gpt_forward
 * returned, called with the same parameters and the same, still unchanged tokens and targets.  Once
 * for each forward pass. */
void gpt_backward(struct gpt_workspace *workspace, const real *params, real *grads,
                  const struct gpt_listener *listener);

#endif
