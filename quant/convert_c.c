/* Plain C row of the converters: half floats at any address, subtraction, scaling, and the
 * Walsh-Hadamard transform. */
#include <string.h>

#include "base/half.h"
#include "quant/c_kernels.h"

static inline uint16_t load16(const void *in, size_t i)
{
    uint16_t h;
    memcpy(&h, (const char *)in + 2 * i, sizeof h);
    return h;
}

static inline void store16(void *out, size_t i, uint16_t h)
{
    memcpy((char *)out + 2 * i, &h, sizeof h);
}

void load_bf16_c(float *out, const void *in, size_t elems)
{
    for (size_t i = 0; i < elems; i++)
        out[i] = qccl_bf16_to_float(load16(in, i));
}

void load_fp16_c(float *out, const void *in, size_t elems)
{
    for (size_t i = 0; i < elems; i++)
        out[i] = qccl_fp16_to_float(load16(in, i));
}

void store_bf16_c(void *out, const float *in, size_t elems)
{
    for (size_t i = 0; i < elems; i++)
        store16(out, i, qccl_bf16_nearest(in[i]));
}

void store_fp16_c(void *out, const float *in, size_t elems)
{
    for (size_t i = 0; i < elems; i++)
        store16(out, i, qccl_fp16_nearest(in[i]));
}

void subtract_c(float *x, const float *y, size_t elems)
{
    for (size_t i = 0; i < elems; i++)
        x[i] -= y[i];
}

void scale_c(float *x, float weight, size_t elems)
{
    for (size_t i = 0; i < elems; i++)
        x[i] = qccl_canonical(x[i] * weight);
}

void hadamard_c(float *x, size_t elems, size_t order)
{
    for (size_t span = 1; span < order; span *= 2)
        for (size_t start = 0; start < elems; start += 2 * span)
            for (size_t i = start; i < start + span; i++) {
                float a = x[i], b = x[i + span];
                x[i] = a + b;
                x[i + span] = a - b;
            }
}
