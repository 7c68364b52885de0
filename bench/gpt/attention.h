/* Causal self-attention with several heads (Vaswani et al. 2017), forward and backward.
 *
 * qkv has 3 * width values a token: queries, keys and values, each split into heads.
 * probabilities has batch * heads * context * context values, kept from the forward pass for the
 * backward one. */
#ifndef BENCH_GPT_ATTENTION_H
#define BENCH_GPT_ATTENTION_H

#include <stddef.h>

#include "bench/gpt/real.h"

struct gpt_attention {
    int batch, context, width, heads; /* heads divides width */
};

void gpt_attention_forward(const struct gpt_attention *shape, real *out, real *probabilities,
                           const real *qkv);

/* Overwrites d_qkv.  scratch has context * context values. */
void gpt_attention_backward(const struct gpt_attention *shape, real *d_qkv, const real *d_out,
                            const real *qkv, const real *probabilities, real *scratch);

#endif
