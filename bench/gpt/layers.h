/* The layers of the model other than attention, forward and backward.
 *
 * Matrices are row-major and n counts tokens.  A backward function *adds* to the gradients of
 * parameters; what it does to the gradient of its input is said at each. */
#ifndef BENCH_GPT_LAYERS_H
#define BENCH_GPT_LAYERS_H

#include <stddef.h>
#include <stdint.h>

#include "bench/gpt/real.h"

/* out[n][outputs] = in[n][inputs] times the transpose of weight[outputs][inputs], + bias.  A row
 * of weight is one output, so the values of a quantization group share what they do; that of a
 * rare token in the head, say. */
struct gpt_linear {
    const real *weight, *bias; /* a NULL bias is none */
    int inputs, outputs;
};

/* residual, when not NULL, is added to out. */
void gpt_linear_forward(const struct gpt_linear *layer, real *out, const real *in,
                        const real *residual, size_t n);

/* Overwrites d_in; d_bias is NULL where the layer has no bias. */
void gpt_linear_backward(const struct gpt_linear *layer, real *d_weight, real *d_bias, real *d_in,
                         const real *d_out, const real *in, size_t n);

/* Layer normalisation (Ba et al. 2016) of rows of width values: out = gain * normal + bias, where
 * normal = (in - mean) * inverse and inverse = 1 / standard deviation, one for each row. */
struct gpt_norm {
    const real *gain, *bias;
    real *normal, *inverse; /* kept for the backward pass */
    int width;
};

void gpt_norm_forward(const struct gpt_norm *norm, real *out, const real *in, size_t n);

/* Adds to d_in; d_out is used up. */
void gpt_norm_backward(const struct gpt_norm *norm, real *d_gain, real *d_bias, real *d_in,
                       real *d_out, size_t n);

/* The tanh form of GELU (Hendrycks and Gimpel 2016).  The input becomes the slope at each value,
 * which is all that the backward pass needs. */
void gpt_gelu_forward(real *out, real *in_then_slope, size_t count);
void gpt_gelu_backward(real *d_values, const real *slope, size_t count);

/* out[i] = token_rows[tokens[i]] + position_rows[i mod context] */
void gpt_embed_forward(real *out, const uint8_t *tokens, const real *token_rows,
                       const real *position_rows, int width, int context, size_t n);
void gpt_embed_backward(real *d_token_rows, real *d_position_rows, const real *d_out,
                        const uint8_t *tokens, int width, int context, size_t n);

/* Replaces each row of logits by its softmax; losses[i] = -log of the probability of targets[i]. */
void gpt_cross_entropy_forward(real *logits, double *losses, const uint8_t *targets, int classes,
                               size_t n);

/* Turns those probabilities into the gradient of the mean of the losses. */
void gpt_cross_entropy_backward(real *probabilities, const uint8_t *targets, int classes, size_t n);

#endif
