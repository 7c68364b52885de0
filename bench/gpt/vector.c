/* Sum, dot product and softmax in 8 interleaved lanes: see vector.h.
 *
 * The loops over lanes have a constant trip count, which is what lets a compiler turn the partial
 * results into vector registers although addition may not be reordered. */
#include "bench/gpt/vector.h"

enum { LANES = 8 };

static real fold(real *lanes)
{
    for (size_t half = LANES / 2; half > 0; half /= 2) {
        for (size_t j = 0; j < half; j++)
            lanes[j] += lanes[j + half];
    }
    return lanes[0];
}

real gpt_sum(const real *values, size_t count)
{
    real lanes[LANES] = {0};
    size_t whole = count - count % LANES;
    for (size_t i = 0; i < whole; i += LANES) {
        for (size_t j = 0; j < LANES; j++)
            lanes[j] += values[i + j];
    }
    for (size_t i = whole; i < count; i++)
        lanes[i - whole] += values[i];
    return fold(lanes);
}

real gpt_dot(const real *a, const real *b, size_t count)
{
    real lanes[LANES] = {0};
    size_t whole = count - count % LANES;
    for (size_t i = 0; i < whole; i += LANES) {
        for (size_t j = 0; j < LANES; j++)
            lanes[j] += a[i + j] * b[i + j];
    }
    for (size_t i = whole; i < count; i++)
        lanes[i - whole] += a[i] * b[i];
    return fold(lanes);
}

/* A NaN need not win here: it reaches every result of the softmax through the sum. */
static real largest(const real *values, size_t count)
{
    real lanes[LANES];
    for (size_t j = 0; j < LANES; j++)
        lanes[j] = values[0];
    size_t whole = count - count % LANES;
    for (size_t i = 0; i < whole; i += LANES) {
        for (size_t j = 0; j < LANES; j++)
            lanes[j] = values[i + j] > lanes[j] ? values[i + j] : lanes[j];
    }
    for (size_t i = whole; i < count; i++)
        lanes[0] = values[i] > lanes[0] ? values[i] : lanes[0];
    for (size_t j = 1; j < LANES; j++)
        lanes[0] = lanes[j] > lanes[0] ? lanes[j] : lanes[0];
    return lanes[0];
}

real gpt_softmax(real *values, size_t count)
{
    real top = largest(values, count);
    for (size_t i = 0; i < count; i++)
        values[i] -= top;
    gpt_exp_values(values, count);
    real sum = gpt_sum(values, count);
    real scale = 1 / sum;
    for (size_t i = 0; i < count; i++)
        values[i] *= scale;
    return top + gpt_log(sum);
}
