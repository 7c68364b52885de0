/* AdamW and its learning rate schedule.
 *
 * Everything that depends on the step alone is worked out once in double precision, so the loop
 * over parameters is a few vector operations; decay differs by tensor, so the loop runs tensor by
 * tensor. */
#include "bench/gpt/adamw.h"

#include <math.h>

#include "bench/gpt/vector.h"

/* The factor that brings the norm of the gradient down to at most clip. */
static double clip_factor(const struct gpt_adamw *adamw, const real *grads)
{
    const struct gpt_layout *layout = adamw->layout;
    double square = 0;
    for (int i = 0; i < layout->tensor_count; i++) {
        const real *tensor = grads + layout->tensors[i].offset;
        square += (double)gpt_dot(tensor, tensor, layout->tensors[i].count);
    }
    double norm = sqrt(square);
    return adamw->clip > 0 && norm > adamw->clip ? adamw->clip / norm : 1;
}

/* The constants of one step. */
struct step {
    real beta1, beta2, new1, new2; /* new = 1 - beta */
    real size, root, epsilon;      /* size = rate / (1 - beta1^t), root = 1 / sqrt(1 - beta2^t) */
    real clip;
};

static void update(const struct step *step, real keep, real *restrict params,
                   const real *restrict grads, real *restrict mean, real *restrict square,
                   size_t count)
{
    const struct step s = *step;
    for (size_t i = 0; i < count; i++) {
        real g = grads[i] * s.clip;
        mean[i] = s.beta1 * mean[i] + s.new1 * g;
        square[i] = s.beta2 * square[i] + s.new2 * g * g;
        real change = s.size * mean[i] / (gpt_sqrt(square[i]) * s.root + s.epsilon);
        params[i] = keep * params[i] - change;
    }
}

void gpt_adamw_step(struct gpt_adamw *adamw, real *params, const real *grads, double rate)
{
    const struct gpt_layout *layout = adamw->layout;
    adamw->steps++;
    double unbias1 = 1 - pow(adamw->beta1, adamw->steps);
    double unbias2 = 1 - pow(adamw->beta2, adamw->steps);
    struct step step = {
        .beta1 = (real)adamw->beta1,
        .beta2 = (real)adamw->beta2,
        .new1 = (real)(1 - adamw->beta1),
        .new2 = (real)(1 - adamw->beta2),
        .size = (real)(rate / unbias1),
        .root = (real)(1 / sqrt(unbias2)),
        .epsilon = (real)adamw->epsilon,
        .clip = (real)clip_factor(adamw, grads),
    };
    for (int i = 0; i < layout->tensor_count; i++) {
        const struct gpt_tensor *tensor = &layout->tensors[i];
        size_t at = tensor->offset;
        real keep = (real)(tensor->decays ? 1 - rate * adamw->decay : 1);
        update(&step, keep, params + at, grads + at, adamw->mean + at, adamw->square + at,
               tensor->count);
    }
}

double gpt_learning_rate(double peak, int step, int warmup, int steps)
{
    const double pi = 3.14159265358979323846, lowest = 0.1;
    if (step < warmup)
        return peak * step / warmup;
    double done = steps > warmup ? (double)(step - warmup) / (steps - warmup) : 1;
    return peak * (lowest + (1 - lowest) * 0.5 * (1 + cos(pi * done)));
}
