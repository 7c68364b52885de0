/* The table of parameter tensors: names, places and initial values.
 *
 * Initial weights have standard deviation 1 / sqrt(inputs), so that widths behave alike; those
 * that write to the residual stream are smaller by sqrt(2 layers), as in GPT-2, so that depths
 * do. */
#include "bench/gpt/layout.h"

#include <math.h>
#include <stdio.h>

#include "bench/gpt/random.h"

/* What init adds one after the other. */
struct tensor_spec {
    const char *name;
    size_t count;
    double start, spread;
    bool decays;
};

static void add_tensor(struct gpt_layout *layout, int layer, const struct tensor_spec *spec)
{
    struct gpt_tensor *tensor = &layout->tensors[layout->tensor_count++];
    if (layer >= 0)
        snprintf(tensor->name, sizeof tensor->name, "layer %d %s", layer, spec->name);
    else
        snprintf(tensor->name, sizeof tensor->name, "%s", spec->name);
    tensor->offset = layout->params;
    tensor->count = spec->count;
    tensor->start = spec->start;
    tensor->spread = spec->spread;
    tensor->decays = spec->decays;
    layout->params += spec->count;
}

static void add_matrix(struct gpt_layout *layout, int layer, const char *name, int rows,
                       int columns, double spread)
{
    struct tensor_spec spec = {
        .name = name, .count = (size_t)rows * (size_t)columns, .spread = spread, .decays = true};
    add_tensor(layout, layer, &spec);
}

static void add_vector(struct gpt_layout *layout, int layer, const char *name, int count,
                       double start)
{
    struct tensor_spec spec = {.name = name, .count = (size_t)count, .start = start};
    add_tensor(layout, layer, &spec);
}

static void add_layer(struct gpt_layout *layout, int layer)
{
    int width = layout->shape.width;
    double spread = 1 / sqrt(width), branch = 1 / sqrt(2.0 * layout->shape.layers);
    add_vector(layout, layer, "norm 1 gain", width, 1);
    add_vector(layout, layer, "norm 1 bias", width, 0);
    add_matrix(layout, layer, "qkv weight", 3 * width, width, spread);
    add_vector(layout, layer, "qkv bias", 3 * width, 0);
    add_matrix(layout, layer, "project weight", width, width, spread * branch);
    add_vector(layout, layer, "project bias", width, 0);
    add_vector(layout, layer, "norm 2 gain", width, 1);
    add_vector(layout, layer, "norm 2 bias", width, 0);
    add_matrix(layout, layer, "widen weight", 4 * width, width, spread);
    add_vector(layout, layer, "widen bias", 4 * width, 0);
    add_matrix(layout, layer, "narrow weight", width, 4 * width, spread / 2 * branch);
    add_vector(layout, layer, "narrow bias", width, 0);
}

void gpt_layout_init(struct gpt_layout *layout, const struct gpt_shape *shape)
{
    *layout = (struct gpt_layout){.shape = *shape};
    double spread = 1 / sqrt(shape->width);
    add_matrix(layout, -1, "token embedding", shape->vocabulary, shape->width, spread);
    add_matrix(layout, -1, "position embedding", shape->context, shape->width, spread);
    for (int layer = 0; layer < shape->layers; layer++)
        add_layer(layout, layer);
    add_vector(layout, -1, "final norm gain", shape->width, 1);
    add_vector(layout, -1, "final norm bias", shape->width, 0);
    add_matrix(layout, -1, "head weight", shape->vocabulary, shape->width, spread);
}

size_t gpt_layer_offset(const struct gpt_layout *layout, int layer, enum gpt_layer_tensor tensor)
{
    return layout->tensors[GPT_FIRST_LAYER + layer * GPT_LAYER_TENSORS + (int)tensor].offset;
}

size_t gpt_last_offset(const struct gpt_layout *layout, enum gpt_last_tensor tensor)
{
    return layout->tensors[layout->tensor_count - GPT_LAST_TENSORS + (int)tensor].offset;
}

void gpt_layout_randomise(const struct gpt_layout *layout, real *params, uint64_t seed)
{
    const double uniform_spread = 0.57735026918962576; /* of the uniform distribution on [-1, 1) */
    for (int i = 0; i < layout->tensor_count; i++) {
        const struct gpt_tensor *tensor = &layout->tensors[i];
        double scale = tensor->spread / uniform_spread;
        for (size_t j = 0; j < tensor->count; j++) {
            double value = tensor->start + scale * gpt_random_signed(seed, (uint64_t)i, j);
            params[tensor->offset + j] = (real)value;
        }
    }
}
