/* SGD and AdamW: the bits of plain formulas on every processor level, committed and tentative. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "tests/inputs.h"

enum { MOST = 3000, OFF = 3 };

struct state {
    float x[MOST + OFF], m[MOST + OFF], v[MOST + OFF], g[MOST + OFF];
};

static const qcclOptimizer_t optimizers[] = {
    {.size = sizeof(qcclOptimizer_t), .kind = qcclSgd, .momentum = 0.9f, .decay = 0.1f},
    {.size = sizeof(qcclOptimizer_t),
     .kind = qcclAdamW,
     .beta1 = 0.9f,
     .beta2 = 0.95f,
     .epsilon = 1e-8f,
     .decay = 0.1f},
    {.size = sizeof(qcclOptimizer_t), .kind = qcclAdamW, .beta1 = 0, .beta2 = 0.999f, .epsilon = 1},
};
enum { OPTIMIZERS = sizeof optimizers / sizeof optimizers[0] };

static void fill(struct state *s, uint64_t seed)
{
    size_t n = MOST + OFF;
    input_fill(s->x, n, qcclFloat32, INPUT_NORMAL, seed, 0);
    input_fill(s->m, n, qcclFloat32, INPUT_NORMAL, seed, 1);
    input_fill(s->g, n, qcclFloat32, INPUT_SPECIAL, seed, 2);
    input_fill(s->v, n, qcclFloat32, INPUT_NORMAL, seed, 3);
    for (size_t i = 0; i < n; i++)
        s->v[i] = s->v[i] * s->v[i];
}

/* One weight, as docs/training.md has it. */
static void reference(const qcclOptimizer_t *o, float rate, double step, float scale, float *x,
                      float *m, float *v, float g)
{
    volatile float scaled = g * scale, kept, change; /* each operation rounded once */
    kept = (float)(1 - (double)rate * (double)o->decay) * *x;
    if (o->kind == qcclSgd) {
        volatile float old = o->momentum * *m;
        *m = old + scaled;
        change = rate * *m;
        *x = kept - change;
        return;
    }
    volatile float m1 = o->beta1 * *m, m2 = (float)(1 - (double)o->beta1) * scaled;
    volatile float v1 = o->beta2 * *v, v2 = (float)(1 - (double)o->beta2) * scaled;
    volatile float size = (float)((double)rate / (1 - pow((double)o->beta1, step)));
    volatile float root = (float)(1 / sqrt(1 - pow((double)o->beta2, step)));
    v2 = v2 * scaled;
    *m = m1 + m2;
    *v = v1 + v2;
    volatile float top = size * *m, bottom = sqrtf(*v);
    bottom = bottom * root;
    bottom = bottom + o->epsilon;
    change = top / bottom;
    *x = kept - change;
}

static bool same(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i])))
            return false;
    return true;
}

static void check(const qcclOptimizer_t *o, size_t n, size_t off, const char *row)
{
    static struct state before, expected, got;
    static float result[MOST + OFF];
    fill(&before, n);
    expected = got = before;
    for (size_t i = off; i < off + n; i++)
        reference(o, 0.01f, 3, 0.5f, &expected.x[i], &expected.m[i], &expected.v[i], expected.g[i]);
    cr_assert_eq(qcclOptimizerTentative(o, 0.01f, 3, 0.5f, got.x + off, got.m + off, got.v + off,
                                        got.g + off, result + off, n),
                 qcclSuccess);
    cr_expect(memcmp(&got, &before, sizeof got) == 0, "a tentative evaluation changed its inputs");
    cr_assert_eq(qcclOptimizerCommit(o, 0.01f, 3, 0.5f, got.x + off, got.m + off, got.v + off,
                                     got.g + off, n),
                 qcclSuccess);
    cr_expect(same(result + off, expected.x + off, n), "%s, n %zu: tentative", row, n);
    cr_expect(same(got.x, expected.x, MOST + OFF) && same(got.m, expected.m, MOST + OFF) &&
                  same(got.v, expected.v, MOST + OFF),
              "%s, n %zu: commit", row, n);
    got = before;
    qcclOptimizerTentative(o, 0.01f, 3, 0.5f, got.x + off, got.m + off, got.v + off, got.g + off,
                           got.x + off, n);
    cr_expect(same(got.x, expected.x, MOST + OFF), "%s, n %zu: in place", row, n);
}

Test(optimizer, every_processor_level_gives_the_bits_of_the_plain_formulas)
{
    for (int level = 0; qcclCpuName(level); level++) {
        cr_assert_eq(qcclSetCpu(qcclCpuName(level)), qcclSuccess);
        for (int k = 0; k < OPTIMIZERS; k++) {
            for (size_t n = 0; n <= 70; n++)
                check(&optimizers[k], n, n % (OFF + 1), qcclCpuName(level));
            check(&optimizers[k], MOST, OFF, qcclCpuName(level));
        }
    }
    qcclSetCpu(NULL);
}

Test(optimizer, what_cannot_be_is_refused)
{
    float x = 1;
    qcclOptimizer_t o = optimizers[1];
    cr_expect_eq(qcclOptimizerCommit(NULL, 1, 1, 1, &x, &x, &x, &x, 1), qcclInvalidArgument);
    cr_expect_eq(qcclOptimizerCommit(&o, 1, 0, 1, &x, &x, &x, &x, 1), qcclInvalidArgument);
    cr_expect_eq(qcclOptimizerCommit(&o, 1, 1, 1, &x, &x, NULL, &x, 1), qcclInvalidArgument);
    cr_expect_eq(qcclOptimizerTentative(&o, 1, 1, 1, &x, &x, &x, &x, NULL, 1), qcclInvalidArgument);
    o.beta2 = 1;
    cr_expect_eq(qcclOptimizerCommit(&o, 1, 1, 1, &x, &x, &x, &x, 1), qcclInvalidArgument);
    o = optimizers[0];
    o.momentum = -1;
    cr_expect_eq(qcclOptimizerCommit(&o, 1, 1, 1, &x, &x, NULL, &x, 1), qcclInvalidArgument);
    o.kind = (qcclOptimizerKind_t)7;
    cr_expect_eq(qcclOptimizerCommit(&o, 1, 1, 1, &x, &x, &x, &x, 1), qcclInvalidArgument);
    o.size = 4;
    cr_expect_eq(qcclOptimizerCommit(&o, 1, 1, 1, &x, &x, &x, &x, 1), qcclInvalidArgument);
    cr_expect_eq(x, 1);
}
