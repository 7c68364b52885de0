/* Linear layers, layer normalisation, GELU, embeddings and the cross-entropy.
 *
 * The matrix products are BLAS calls; the rest are plain loops in forms that compilers
 * vectorise.  The order of every sum is fixed, so that a run repeats bit for bit. */
#include "bench/gpt/layers.h"

#include "bench/gpt/vector.h"

/* ------------------------------------------------------------------ linear */

void gpt_linear_forward(const struct gpt_linear *layer, real *out, const real *in,
                        const real *residual, size_t n)
{
    size_t outputs = (size_t)layer->outputs;
    if (residual)
        memcpy(out, residual, n * outputs * sizeof *out);
    else
        memset(out, 0, n * outputs * sizeof *out);
    for (size_t i = 0; layer->bias && i < n; i++) {
        real *row = out + i * outputs;
        for (size_t j = 0; j < outputs; j++)
            row[j] += layer->bias[j];
    }
    gpt_blas_gemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)n, layer->outputs, layer->inputs, 1,
                  in, layer->inputs, layer->weight, layer->inputs, 1, out, layer->outputs);
}

void gpt_linear_backward(const struct gpt_linear *layer, real *d_weight, real *d_bias, real *d_in,
                         const real *d_out, const real *in, size_t n)
{
    size_t outputs = (size_t)layer->outputs;
    for (size_t i = 0; d_bias && i < n; i++) {
        const real *row = d_out + i * outputs;
        for (size_t j = 0; j < outputs; j++)
            d_bias[j] += row[j];
    }
    gpt_blas_gemm(CblasRowMajor, CblasTrans, CblasNoTrans, layer->outputs, layer->inputs, (int)n, 1,
                  d_out, layer->outputs, in, layer->inputs, 1, d_weight, layer->inputs);
    gpt_blas_gemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)n, layer->inputs, layer->outputs,
                  1, d_out, layer->outputs, layer->weight, layer->inputs, 0, d_in, layer->inputs);
}

/* ------------------------------------------------------------------ layer normalisation */

/* Keeps a row of equal values finite. */
static const real variance_floor = (real)1e-5;

void gpt_norm_forward(const struct gpt_norm *norm, real *out, const real *in, size_t n)
{
    size_t width = (size_t)norm->width;
    for (size_t i = 0; i < n; i++) {
        const real *x = in + i * width;
        real *y = out + i * width, *h = norm->normal + i * width;
        real mean = gpt_sum(x, width) / (real)width;
        for (size_t j = 0; j < width; j++)
            h[j] = x[j] - mean;
        real variance = gpt_dot(h, h, width) / (real)width;
        real inverse = 1 / gpt_sqrt(variance + variance_floor);
        for (size_t j = 0; j < width; j++) {
            h[j] *= inverse;
            y[j] = h[j] * norm->gain[j] + norm->bias[j];
        }
        norm->inverse[i] = inverse;
    }
}

/* With h = normal and e = gain * d_out:  d_in = inverse * (e - mean(e) - h * mean(e * h)). */
void gpt_norm_backward(const struct gpt_norm *norm, real *d_gain, real *d_bias, real *d_in,
                       real *d_out, size_t n)
{
    size_t width = (size_t)norm->width;
    for (size_t i = 0; i < n; i++) {
        const real *h = norm->normal + i * width;
        real *e = d_out + i * width, *d_x = d_in + i * width;
        for (size_t j = 0; j < width; j++) {
            d_gain[j] += e[j] * h[j];
            d_bias[j] += e[j];
            e[j] *= norm->gain[j];
        }
        real mean_e = gpt_sum(e, width) / (real)width;
        real mean_eh = gpt_dot(e, h, width) / (real)width;
        for (size_t j = 0; j < width; j++)
            d_x[j] += norm->inverse[i] * (e[j] - mean_e - h[j] * mean_eh);
    }
}

/* ------------------------------------------------------------------ GELU */

/* With u = 2 sqrt(2 / pi) (x + 0.044715 x^3), 0.5 (1 + tanh(u / 2)) is the logistic function
 * s(u), so that y = x s(u) and y' = s + x u' s (1 - s).  Loops over one piece at a time: the
 * exponentials come from a pass of their own, and the piece stays in cache. */
static void gelu_piece(real *out, real *in_then_slope, size_t count)
{
    const real linear = (real)1.5957691216057308, cubic = linear * (real)0.044715;
    for (size_t i = 0; i < count; i++) {
        real x = in_then_slope[i];
        out[i] = -x * (linear + cubic * x * x);
    }
    gpt_exp_values(out, count);
    for (size_t i = 0; i < count; i++) {
        real x = in_then_slope[i];
        real s = 1 / (1 + out[i]);
        real du = linear + 3 * cubic * x * x;
        out[i] = x * s;
        in_then_slope[i] = s + x * du * s * (1 - s);
    }
}

void gpt_gelu_forward(real *out, real *in_then_slope, size_t count)
{
    const size_t piece = 1024;
    for (size_t at = 0; at < count; at += piece)
        gelu_piece(out + at, in_then_slope + at, count - at < piece ? count - at : piece);
}

void gpt_gelu_backward(real *d_values, const real *slope, size_t count)
{
    for (size_t i = 0; i < count; i++)
        d_values[i] *= slope[i];
}

/* ------------------------------------------------------------------ embeddings */

void gpt_embed_forward(real *out, const uint8_t *tokens, const real *token_rows,
                       const real *position_rows, int width, int context, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const real *token = token_rows + (size_t)tokens[i] * (size_t)width;
        const real *position = position_rows + i % (size_t)context * (size_t)width;
        real *row = out + i * (size_t)width;
        for (int j = 0; j < width; j++)
            row[j] = token[j] + position[j];
    }
}

void gpt_embed_backward(real *d_token_rows, real *d_position_rows, const real *d_out,
                        const uint8_t *tokens, int width, int context, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const real *row = d_out + i * (size_t)width;
        real *d_token = d_token_rows + (size_t)tokens[i] * (size_t)width;
        real *d_position = d_position_rows + i % (size_t)context * (size_t)width;
        for (int j = 0; j < width; j++) {
            d_token[j] += row[j];
            d_position[j] += row[j];
        }
    }
}

/* ------------------------------------------------------------------ cross-entropy */

void gpt_cross_entropy_forward(real *logits, double *losses, const uint8_t *targets, int classes,
                               size_t n)
{
    for (size_t i = 0; i < n; i++) {
        real *row = logits + i * (size_t)classes;
        real target = row[targets[i]];
        losses[i] = (double)(gpt_softmax(row, (size_t)classes) - target);
    }
}

void gpt_cross_entropy_backward(real *probabilities, const uint8_t *targets, int classes, size_t n)
{
    real scale = 1 / (real)n;
    for (size_t i = 0; i < n; i++) {
        real *row = probabilities + i * (size_t)classes;
        row[targets[i]] -= 1;
        for (int j = 0; j < classes; j++)
            row[j] *= scale;
    }
}
