/* SGD with momentum and AdamW: what depends on the step alone is worked out here in double
 * precision, the loops over weights are those of the processor. */
#include <math.h>
#include <stdbool.h>

#include "base/cpu.h"
#include "base/status.h"
#include "overlap/optimizer_loops.h"

static const struct optimizer_loops *loops_here(void)
{
#if QCCL_HAVE_X86
    enum qccl_cpu level = qccl_cpu_level();
#if QCCL_HAVE_AVX512 && !QCCL_EMULATED_AVX512
    if (level >= QCCL_CPU_AVX512)
        return &qccl_optimizer_avx512;
#endif
    if (level >= QCCL_CPU_AVX2)
        return &qccl_optimizer_avx2;
#endif
    return &qccl_optimizer_plain;
}

static qcclResult_t check(const qcclOptimizer_t *o, const char *name, uint64_t step)
{
    CHECK_ARG(o, "%s: optimizer is NULL", name);
    CHECK_ARG(o->size == sizeof *o, "%s: optimizer.size is %zu; set it to %zu", name, o->size,
              sizeof *o);
    CHECK_ARG(o->kind == qcclSgd || o->kind == qcclAdamW, "%s: kind %d is unknown", name,
              (int)o->kind);
    CHECK_ARG(step >= 1, "%s: steps count from 1", name);
    if (o->kind == qcclSgd) {
        CHECK_ARG(o->momentum >= 0 && o->momentum < 1, "%s: momentum %g is not in [0, 1)", name,
                  (double)o->momentum);
        return qcclSuccess;
    }
    CHECK_ARG(o->beta1 >= 0 && o->beta1 < 1 && o->beta2 >= 0 && o->beta2 < 1,
              "%s: beta1 %g or beta2 %g is not in [0, 1)", name, (double)o->beta1,
              (double)o->beta2);
    CHECK_ARG(o->epsilon > 0, "%s: epsilon %g is not above 0", name, (double)o->epsilon);
    return qcclSuccess;
}

static struct optimizer_step step_of(const qcclOptimizer_t *o, float rate, uint64_t step,
                                     float scale)
{
    struct optimizer_step made = {
        .scale = scale,
        .keep = (float)(1 - (double)rate * (double)o->decay),
        .rate = rate,
        .momentum = o->momentum,
    };
    if (o->kind == qcclSgd)
        return made;
    double t = (double)step;
    made.beta1 = o->beta1;
    made.beta2 = o->beta2;
    made.new1 = (float)(1 - (double)o->beta1);
    made.new2 = (float)(1 - (double)o->beta2);
    made.size = (float)((double)rate / (1 - pow((double)o->beta1, t)));
    made.root = (float)(1 / sqrt(1 - pow((double)o->beta2, t)));
    made.epsilon = o->epsilon;
    return made;
}

qcclResult_t qcclOptimizerCommit(const qcclOptimizer_t *optimizer, float rate, uint64_t step,
                                 float scale, float *x, float *m, float *v, const float *g,
                                 size_t n)
{
    RETURN_IF_FAILED(check(optimizer, "qcclOptimizerCommit", step));
    bool sgd = optimizer->kind == qcclSgd;
    CHECK_ARG(!n || (x && m && g && (v || sgd)),
              "qcclOptimizerCommit: x, m, v or g is NULL for %zu weights", n);
    struct optimizer_step s = step_of(optimizer, rate, step, scale);
    if (sgd)
        loops_here()->sgd_commit(&s, x, m, g, n);
    else
        loops_here()->adamw_commit(&s, x, m, v, g, n);
    return qcclSuccess;
}

qcclResult_t qcclOptimizerTentative(const qcclOptimizer_t *optimizer, float rate, uint64_t step,
                                    float scale, const float *x, const float *m, const float *v,
                                    const float *g, float *result, size_t n)
{
    RETURN_IF_FAILED(check(optimizer, "qcclOptimizerTentative", step));
    bool sgd = optimizer->kind == qcclSgd;
    CHECK_ARG(!n || (x && m && g && result && (v || sgd)),
              "qcclOptimizerTentative: x, m, v, g or result is NULL for %zu weights", n);
    struct optimizer_step s = step_of(optimizer, rate, step, scale);
    if (sgd)
        loops_here()->sgd_tentative(&s, x, m, g, result, n);
    else
        loops_here()->adamw_tentative(&s, x, m, v, g, result, n);
    return qcclSuccess;
}
