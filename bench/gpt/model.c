/* Forward and backward pass of the GPT over one arena of activations.
 *
 * Of each block the forward pass keeps what the backward pass multiplies with:
 *
 *   input -> norm 1 -> qkv -> attention -> project -> (+ input) = middle
 *   middle -> norm 2 -> widen -> GELU -> narrow -> (+ middle) = the next block's input
 *
 * The backward pass carries one gradient, that of the residual stream, from the last block to the
 * first. */
#include "bench/gpt/model.h"

#include <stdlib.h>
#include <string.h>

#include "bench/gpt/attention.h"
#include "bench/gpt/layers.h"

struct norm_memory {
    real *normal, *inverse, *out;
};

struct block {
    real *input, *middle;
    struct norm_memory norm1, norm2;
    real *qkv, *probabilities, *mixed;
    real *slope, *hidden;
};

struct gpt_workspace {
    const struct gpt_layout *layout;
    struct block blocks[GPT_MAX_LAYERS];
    real *last; /* the residual stream behind the last block */
    struct norm_memory final;
    real *logits;
    real *d_stream, *d_narrow, *d_wide, *d_square;
    double *losses;
    real *memory;
    /* of the last forward pass */
    const uint8_t *tokens, *targets;
    int batch;
};

/* ------------------------------------------------------------------ memory */

/* Hands out parts of one allocation; without a base it only counts. */
struct arena {
    real *base;
    size_t used;
};

static real *take(struct arena *arena, size_t count)
{
    const size_t line_elems = 64 / sizeof(real);
    size_t at = arena->used;
    arena->used += (count + line_elems - 1) / line_elems * line_elems;
    return arena->base ? arena->base + at : NULL;
}

static struct norm_memory take_norm(struct arena *arena, size_t tokens, size_t width)
{
    struct norm_memory norm;
    norm.normal = take(arena, tokens * width);
    norm.out = take(arena, tokens * width);
    norm.inverse = take(arena, tokens);
    return norm;
}

static void lay_out_block(struct block *block, struct arena *arena, const struct gpt_shape *shape,
                          size_t tokens)
{
    size_t width = (size_t)shape->width;
    size_t pairs = tokens * (size_t)shape->heads * (size_t)shape->context;
    block->input = take(arena, tokens * width);
    block->norm1 = take_norm(arena, tokens, width);
    block->qkv = take(arena, tokens * 3 * width);
    block->probabilities = take(arena, pairs);
    block->mixed = take(arena, tokens * width);
    block->middle = take(arena, tokens * width);
    block->norm2 = take_norm(arena, tokens, width);
    block->slope = take(arena, tokens * 4 * width);
    block->hidden = take(arena, tokens * 4 * width);
}

static void lay_out(struct gpt_workspace *w, struct arena *arena, size_t tokens)
{
    const struct gpt_shape *shape = &w->layout->shape;
    size_t width = (size_t)shape->width, context = (size_t)shape->context;
    for (int i = 0; i < shape->layers; i++)
        lay_out_block(&w->blocks[i], arena, shape, tokens);
    w->last = take(arena, tokens * width);
    w->final = take_norm(arena, tokens, width);
    w->logits = take(arena, tokens * (size_t)shape->vocabulary);
    w->d_stream = take(arena, tokens * width);
    w->d_narrow = take(arena, tokens * width);
    w->d_wide = take(arena, tokens * 4 * width);
    w->d_square = take(arena, context * context);
}

struct gpt_workspace *gpt_workspace_new(const struct gpt_layout *layout, int max_batch)
{
    struct gpt_workspace *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    size_t tokens = (size_t)max_batch * (size_t)layout->shape.context;
    struct arena arena = {0};
    w->layout = layout;
    lay_out(w, &arena, tokens);
    w->losses = calloc(tokens, sizeof *w->losses);
    w->memory = aligned_alloc(64, arena.used * sizeof *w->memory);
    if (!w->losses || !w->memory) {
        gpt_workspace_free(w);
        return NULL;
    }
    arena = (struct arena){.base = w->memory};
    lay_out(w, &arena, tokens);
    return w;
}

void gpt_workspace_free(struct gpt_workspace *workspace)
{
    if (!workspace)
        return;
    free(workspace->memory);
    free(workspace->losses);
    free(workspace);
}

/* ------------------------------------------------------------------ views of the parameters */

static struct gpt_linear layer_linear(const struct gpt_layout *layout, const real *params,
                                      int layer, enum gpt_layer_tensor weight, int inputs,
                                      int outputs)
{
    return (struct gpt_linear){
        .weight = params + gpt_layer_offset(layout, layer, weight),
        .bias = params + gpt_layer_offset(layout, layer, weight + 1),
        .inputs = inputs,
        .outputs = outputs,
    };
}

static struct gpt_linear head_linear(const struct gpt_layout *layout, const real *params)
{
    return (struct gpt_linear){
        .weight = params + gpt_last_offset(layout, GPT_HEAD_WEIGHT),
        .inputs = layout->shape.width,
        .outputs = layout->shape.vocabulary,
    };
}

static struct gpt_norm norm_of(const struct norm_memory *memory, const real *gain, int width)
{
    return (struct gpt_norm){
        .gain = gain,
        .bias = gain + width,
        .normal = memory->normal,
        .inverse = memory->inverse,
        .width = width,
    };
}

static struct gpt_attention attention_of(const struct gpt_workspace *w)
{
    const struct gpt_shape *shape = &w->layout->shape;
    return (struct gpt_attention){
        .batch = w->batch,
        .context = shape->context,
        .width = shape->width,
        .heads = shape->heads,
    };
}

static size_t token_count(const struct gpt_workspace *w)
{
    return (size_t)w->batch * (size_t)w->layout->shape.context;
}

/* ------------------------------------------------------------------ forward */

static void block_forward(struct gpt_workspace *w, const real *params, int layer, real *output)
{
    const struct gpt_layout *layout = w->layout;
    const struct block *b = &w->blocks[layer];
    int width = layout->shape.width;
    size_t n = token_count(w);
    const real *gain1 = params + gpt_layer_offset(layout, layer, GPT_NORM1_GAIN);
    const real *gain2 = params + gpt_layer_offset(layout, layer, GPT_NORM2_GAIN);
    struct gpt_norm norm1 = norm_of(&b->norm1, gain1, width);
    struct gpt_norm norm2 = norm_of(&b->norm2, gain2, width);
    struct gpt_linear qkv = layer_linear(layout, params, layer, GPT_QKV_WEIGHT, width, 3 * width);
    struct gpt_linear project =
        layer_linear(layout, params, layer, GPT_PROJECT_WEIGHT, width, width);
    struct gpt_linear widen =
        layer_linear(layout, params, layer, GPT_WIDEN_WEIGHT, width, 4 * width);
    struct gpt_linear narrow =
        layer_linear(layout, params, layer, GPT_NARROW_WEIGHT, 4 * width, width);
    struct gpt_attention attention = attention_of(w);

    gpt_norm_forward(&norm1, b->norm1.out, b->input, n);
    gpt_linear_forward(&qkv, b->qkv, b->norm1.out, NULL, n);
    gpt_attention_forward(&attention, b->mixed, b->probabilities, b->qkv);
    gpt_linear_forward(&project, b->middle, b->mixed, b->input, n);

    gpt_norm_forward(&norm2, b->norm2.out, b->middle, n);
    gpt_linear_forward(&widen, b->slope, b->norm2.out, NULL, n);
    gpt_gelu_forward(b->hidden, b->slope, n * 4 * (size_t)width);
    gpt_linear_forward(&narrow, output, b->hidden, b->middle, n);
}

const double *gpt_forward(struct gpt_workspace *w, const real *params, const uint8_t *tokens,
                          const uint8_t *targets, int batch)
{
    const struct gpt_layout *layout = w->layout;
    const struct gpt_shape *shape = &layout->shape;
    w->tokens = tokens;
    w->targets = targets;
    w->batch = batch;
    size_t n = token_count(w);
    gpt_embed_forward(w->blocks[0].input, tokens, params + layout->tensors[GPT_TOKENS].offset,
                      params + layout->tensors[GPT_POSITIONS].offset, shape->width, shape->context,
                      n);
    for (int i = 0; i < shape->layers; i++) {
        bool is_last = i + 1 == shape->layers;
        block_forward(w, params, i, is_last ? w->last : w->blocks[i + 1].input);
    }
    struct gpt_norm norm =
        norm_of(&w->final, params + gpt_last_offset(layout, GPT_FINAL_GAIN), shape->width);
    struct gpt_linear head = head_linear(layout, params);
    gpt_norm_forward(&norm, w->final.out, w->last, n);
    gpt_linear_forward(&head, w->logits, w->final.out, NULL, n);
    gpt_cross_entropy_forward(w->logits, w->losses, targets, shape->vocabulary, n);
    return w->losses;
}

/* ------------------------------------------------------------------ backward */

/* Both halves of a block end by adding to d_stream, which already holds the gradient that goes
 * around them. */
static void mlp_backward(struct gpt_workspace *w, const real *params, real *grads, int layer)
{
    const struct gpt_layout *layout = w->layout;
    const struct block *b = &w->blocks[layer];
    int width = layout->shape.width;
    size_t n = token_count(w);
    size_t gain = gpt_layer_offset(layout, layer, GPT_NORM2_GAIN);
    struct gpt_norm norm = norm_of(&b->norm2, params + gain, width);
    struct gpt_linear widen =
        layer_linear(layout, params, layer, GPT_WIDEN_WEIGHT, width, 4 * width);
    struct gpt_linear narrow =
        layer_linear(layout, params, layer, GPT_NARROW_WEIGHT, 4 * width, width);

    gpt_linear_backward(&narrow, grads + gpt_layer_offset(layout, layer, GPT_NARROW_WEIGHT),
                        grads + gpt_layer_offset(layout, layer, GPT_NARROW_BIAS), w->d_wide,
                        w->d_stream, b->hidden, n);
    gpt_gelu_backward(w->d_wide, b->slope, n * 4 * (size_t)width);
    gpt_linear_backward(&widen, grads + gpt_layer_offset(layout, layer, GPT_WIDEN_WEIGHT),
                        grads + gpt_layer_offset(layout, layer, GPT_WIDEN_BIAS), w->d_narrow,
                        w->d_wide, b->norm2.out, n);
    gpt_norm_backward(&norm, grads + gain, grads + gain + width, w->d_stream, w->d_narrow, n);
}

static void attention_backward(struct gpt_workspace *w, const real *params, real *grads, int layer)
{
    const struct gpt_layout *layout = w->layout;
    const struct block *b = &w->blocks[layer];
    int width = layout->shape.width;
    size_t n = token_count(w);
    size_t gain = gpt_layer_offset(layout, layer, GPT_NORM1_GAIN);
    struct gpt_norm norm = norm_of(&b->norm1, params + gain, width);
    struct gpt_linear qkv = layer_linear(layout, params, layer, GPT_QKV_WEIGHT, width, 3 * width);
    struct gpt_linear project =
        layer_linear(layout, params, layer, GPT_PROJECT_WEIGHT, width, width);
    struct gpt_attention attention = attention_of(w);

    gpt_linear_backward(&project, grads + gpt_layer_offset(layout, layer, GPT_PROJECT_WEIGHT),
                        grads + gpt_layer_offset(layout, layer, GPT_PROJECT_BIAS), w->d_narrow,
                        w->d_stream, b->mixed, n);
    gpt_attention_backward(&attention, w->d_wide, w->d_narrow, b->qkv, b->probabilities,
                           w->d_square);
    gpt_linear_backward(&qkv, grads + gpt_layer_offset(layout, layer, GPT_QKV_WEIGHT),
                        grads + gpt_layer_offset(layout, layer, GPT_QKV_BIAS), w->d_narrow,
                        w->d_wide, b->norm1.out, n);
    gpt_norm_backward(&norm, grads + gain, grads + gain + width, w->d_stream, w->d_narrow, n);
}

/* Tensors first .. end - 1 are finished. */
static void tell(const struct gpt_listener *listener, int first, int end)
{
    for (int tensor = end - 1; listener && tensor >= first; tensor--)
        listener->finished(listener->context, tensor);
}

void gpt_backward(struct gpt_workspace *w, const real *params, real *grads,
                  const struct gpt_listener *listener)
{
    const struct gpt_layout *layout = w->layout;
    const struct gpt_shape *shape = &layout->shape;
    size_t n = token_count(w), width = (size_t)shape->width;
    size_t gain = gpt_last_offset(layout, GPT_FINAL_GAIN);
    struct gpt_norm norm = norm_of(&w->final, params + gain, shape->width);
    struct gpt_linear head = head_linear(layout, params);

    memset(grads, 0, layout->params * sizeof *grads);
    memset(w->d_stream, 0, n * width * sizeof *w->d_stream);
    gpt_cross_entropy_backward(w->logits, w->targets, shape->vocabulary, n);
    gpt_linear_backward(&head, grads + gpt_last_offset(layout, GPT_HEAD_WEIGHT), NULL, w->d_narrow,
                        w->logits, w->final.out, n);
    gpt_norm_backward(&norm, grads + gain, grads + gain + width, w->d_stream, w->d_narrow, n);
    int end = layout->tensor_count;
    tell(listener, end - GPT_LAST_TENSORS, end);
    for (int i = shape->layers - 1; i >= 0; i--) {
        mlp_backward(w, params, grads, i);
        attention_backward(w, params, grads, i);
        int first = GPT_FIRST_LAYER + i * GPT_LAYER_TENSORS;
        tell(listener, first, first + GPT_LAYER_TENSORS);
    }
    gpt_embed_backward(grads + layout->tensors[GPT_TOKENS].offset,
                       grads + layout->tensors[GPT_POSITIONS].offset, w->d_stream, w->tokens,
                       shape->width, shape->context, n);
    tell(listener, GPT_TOKENS, GPT_FIRST_LAYER);
}
