/* The loops of the optimizers, compiled once for each instruction set.
 *
 * Every operation is rounded as IEEE 754 says (no fused multiply-add, no reciprocals), so all of
 * them give the same bits; docs/training.md has the formulas. */
#ifndef QCCL_OVERLAP_OPTIMIZER_LOOPS_H
#define QCCL_OVERLAP_OPTIMIZER_LOOPS_H

#include <stddef.h>

/* The constants of one step; those of the other kind are unused. */
struct optimizer_step {
    float scale; /* of the gradient */
    float keep;  /* 1 - rate * decay */
    float rate, momentum;
    float beta1, beta2, new1, new2; /* new = 1 - beta */
    float size, root, epsilon;      /* size = rate / (1 - beta1^t), root = 1 / sqrt(1 - beta2^t) */
};

struct optimizer_loops {
    void (*sgd_commit)(const struct optimizer_step *step, float *x, float *m, const float *g,
                       size_t n);
    void (*sgd_tentative)(const struct optimizer_step *step, const float *x, const float *m,
                          const float *g, float *result, size_t n);
    void (*adamw_commit)(const struct optimizer_step *step, float *x, float *m, float *v,
                         const float *g, size_t n);
    void (*adamw_tentative)(const struct optimizer_step *step, const float *x, const float *m,
                            const float *v, const float *g, float *result, size_t n);
};

extern const struct optimizer_loops qccl_optimizer_plain, qccl_optimizer_avx2,
    qccl_optimizer_avx512;

#endif
