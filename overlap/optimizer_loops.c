/* One instruction set's loops; LOOPS is the table's name.  meson.build compiles this file once for
 * each.  Values pass through a block of locals, so that buffers which are the same one, or shifted
 * against each other, do not keep the compiler from using vectors. */
#include "overlap/optimizer_loops.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 64 };

static void sgd_block(const struct optimizer_step *s, float *restrict x, float *restrict m,
                      const float *restrict g)
{
    for (int i = 0; i < BLOCK; i++) {
        m[i] = s->momentum * m[i] + g[i] * s->scale;
        x[i] = s->keep * x[i] - s->rate * m[i];
    }
}

static void adamw_block(const struct optimizer_step *s, float *restrict x, float *restrict m,
                        float *restrict v, const float *restrict g)
{
    for (int i = 0; i < BLOCK; i++) {
        float scaled = g[i] * s->scale;
        m[i] = s->beta1 * m[i] + s->new1 * scaled;
        v[i] = s->beta2 * v[i] + s->new2 * scaled * scaled;
        x[i] = s->keep * x[i] - s->size * m[i] / (sqrtf(v[i]) * s->root + s->epsilon);
    }
}

static size_t part(size_t i, size_t n)
{
    return n - i < BLOCK ? n - i : BLOCK;
}

static void sgd(const struct optimizer_step *s, const float *x, const float *m, const float *g,
                float *new_x, float *new_m, size_t n)
{
    const struct optimizer_step step = *s;
    float bx[BLOCK] = {0}, bm[BLOCK] = {0}, bg[BLOCK] = {0};
    for (size_t i = 0; i < n; i += BLOCK) {
        size_t bytes = part(i, n) * sizeof *x;
        memcpy(bx, x + i, bytes);
        memcpy(bm, m + i, bytes);
        memcpy(bg, g + i, bytes);
        sgd_block(&step, bx, bm, bg);
        memcpy(new_x + i, bx, bytes);
        if (new_m)
            memcpy(new_m + i, bm, bytes);
    }
}

static void adamw(const struct optimizer_step *s, const float *x, const float *m, const float *v,
                  const float *g, float *new_x, float *new_m, float *new_v, size_t n)
{
    const struct optimizer_step step = *s;
    float bx[BLOCK] = {0}, bm[BLOCK] = {0}, bv[BLOCK] = {0}, bg[BLOCK] = {0};
    for (size_t i = 0; i < n; i += BLOCK) {
        size_t bytes = part(i, n) * sizeof *x;
        memcpy(bx, x + i, bytes);
        memcpy(bm, m + i, bytes);
        memcpy(bv, v + i, bytes);
        memcpy(bg, g + i, bytes);
        adamw_block(&step, bx, bm, bv, bg);
        memcpy(new_x + i, bx, bytes);
        if (!new_m)
            continue;
        memcpy(new_m + i, bm, bytes);
        memcpy(new_v + i, bv, bytes);
    }
}

static void sgd_commit(const struct optimizer_step *step, float *x, float *m, const float *g,
                       size_t n)
{
    sgd(step, x, m, g, x, m, n);
}

static void sgd_tentative(const struct optimizer_step *step, const float *x, const float *m,
                          const float *g, float *result, size_t n)
{
    sgd(step, x, m, g, result, NULL, n);
}

static void adamw_commit(const struct optimizer_step *step, float *x, float *m, float *v,
                         const float *g, size_t n)
{
    adamw(step, x, m, v, g, x, m, v, n);
}

static void adamw_tentative(const struct optimizer_step *step, const float *x, const float *m,
                            const float *v, const float *g, float *result, size_t n)
{
    adamw(step, x, m, v, g, result, NULL, NULL, n);
}

const struct optimizer_loops LOOPS = {
    .sgd_commit = sgd_commit,
    .sgd_tentative = sgd_tentative,
    .adamw_commit = adamw_commit,
    .adamw_tentative = adamw_tentative,
};
