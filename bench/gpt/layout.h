/* Where each parameter tensor lies in the flat buffers of parameters, gradients and moments.
 *
 * One buffer a rank means one collective call a step, and an optimizer that is a single loop.
 * The layout also knows each tensor's name, initial values and whether weight decay applies to
 * it. */
#ifndef BENCH_GPT_LAYOUT_H
#define BENCH_GPT_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bench/gpt/real.h"

struct gpt_shape {
    int layers, width, heads, context;
    int vocabulary; /* 256 for bytes; at most that */
};

enum { GPT_MAX_LAYERS = 64 };

/* The tensors before, in, and after the layers. */
enum gpt_tensor_id { GPT_TOKENS, GPT_POSITIONS, GPT_FIRST_LAYER };

enum gpt_layer_tensor {
    GPT_NORM1_GAIN,
    GPT_NORM1_BIAS,
    GPT_QKV_WEIGHT,
    GPT_QKV_BIAS,
    GPT_PROJECT_WEIGHT,
    GPT_PROJECT_BIAS,
    GPT_NORM2_GAIN,
    GPT_NORM2_BIAS,
    GPT_WIDEN_WEIGHT,
    GPT_WIDEN_BIAS,
    GPT_NARROW_WEIGHT,
    GPT_NARROW_BIAS,
    GPT_LAYER_TENSORS
};

enum gpt_last_tensor { GPT_FINAL_GAIN, GPT_FINAL_BIAS, GPT_HEAD_WEIGHT, GPT_LAST_TENSORS };

enum { GPT_MAX_TENSORS = GPT_FIRST_LAYER + GPT_MAX_LAYERS * GPT_LAYER_TENSORS + GPT_LAST_TENSORS };

struct gpt_tensor {
    char name[32]; /* such as "layer 2 qkv weight" */
    size_t offset, count;
    double start;  /* initial values are uniform around this */
    double spread; /* with this standard deviation */
    bool decays;
};

struct gpt_layout {
    struct gpt_shape shape;
    size_t params;
    int tensor_count;
    struct gpt_tensor tensors[GPT_MAX_TENSORS];
};

/* shape is valid: every number positive, heads divides width, at most GPT_MAX_LAYERS layers. */
void gpt_layout_init(struct gpt_layout *layout, const struct gpt_shape *shape);

/* Offsets of tensors. */
size_t gpt_layer_offset(const struct gpt_layout *layout, int layer, enum gpt_layer_tensor tensor);
size_t gpt_last_offset(const struct gpt_layout *layout, enum gpt_last_tensor tensor);

/* Fills params with the initial values of a seed. */
void gpt_layout_randomise(const struct gpt_layout *layout, real *params, uint64_t seed);

#endif
