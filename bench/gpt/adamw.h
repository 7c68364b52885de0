/* AdamW (Loshchilov and Hutter 2019) over the flat parameter buffer, with the gradient's norm
 * clipped first.
 *
 * It is a pure function of its inputs: ranks that give it the same gradients keep the same
 * parameters, to the bit. */
#ifndef BENCH_GPT_ADAMW_H
#define BENCH_GPT_ADAMW_H

#include "bench/gpt/layout.h"

struct gpt_adamw {
    const struct gpt_layout *layout;
    real *mean,
        *square; /* running averages of the gradient and its square, layout->params values each */
    double beta1, beta2, epsilon, decay;
    double clip; /* largest norm of the gradient; 0: any */
    int steps;   /* taken so far */
};

/* One step at learning rate rate. */
void gpt_adamw_step(struct gpt_adamw *adamw, real *params, const real *grads, double rate);

/* Linear warm-up to peak over warmup steps, then a cosine down to a tenth of it at the last of
 * steps.  step counts from 1. */
double gpt_learning_rate(double peak, int step, int warmup, int steps);

#endif
