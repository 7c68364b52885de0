/* The GPT of the bench, compiled in double precision: gradients, causality, optimizer, text.
 *
 * Gradients are compared with Richardson-extrapolated central differences, one parameter at a
 * time.  No tolerance is typed in: the step and the bound follow from the rounding noise of the
 * loss, which is measured, and from how much two step sizes differ.  A second test shows that the
 * bound is tight enough to see a gradient that is a thousandth off, tensor by tensor. */
#include <criterion/criterion.h>

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <zlib.h>

#include "bench/gpt/adamw.h"
#include "bench/gpt/model.h"
#include "bench/gpt/random.h"
#include "bench/gpt/text.h"

enum { LAYERS = 2, WIDTH = 16, HEADS = 2, CONTEXT = 8, VOCABULARY = 11, BATCH = 2 };
enum { TOKENS = BATCH * CONTEXT, SEED = 7 };

/* A small model at a generic point: no gain is 1, no bias 0. */
struct model {
    struct gpt_layout layout;
    struct gpt_workspace *workspace;
    double *params, *grads;
    uint8_t tokens[TOKENS], targets[TOKENS];
};

static struct model model;

static void open_model(void)
{
    struct gpt_shape shape = {.layers = LAYERS,
                              .width = WIDTH,
                              .heads = HEADS,
                              .context = CONTEXT,
                              .vocabulary = VOCABULARY};
    gpt_layout_init(&model.layout, &shape);
    size_t count = model.layout.params;
    model.workspace = gpt_workspace_new(&model.layout, BATCH);
    model.params = calloc(count, sizeof *model.params);
    model.grads = calloc(count, sizeof *model.grads);
    cr_assert(model.workspace && model.params && model.grads);
    gpt_layout_randomise(&model.layout, model.params, SEED);
    for (size_t i = 0; i < count; i++)
        model.params[i] += 0.25 * gpt_random_signed(SEED, 1000, i);
    for (int i = 0; i < TOKENS; i++) {
        model.tokens[i] = (uint8_t)(gpt_random(SEED, 1001, (uint64_t)i) % VOCABULARY);
        model.targets[i] = (uint8_t)(gpt_random(SEED, 1002, (uint64_t)i) % VOCABULARY);
    }
}

static void close_model(void)
{
    gpt_workspace_free(model.workspace);
    free(model.params);
    free(model.grads);
}

static double mean_loss(void)
{
    const double *losses =
        gpt_forward(model.workspace, model.params, model.tokens, model.targets, BATCH);
    double sum = 0;
    for (int i = 0; i < TOKENS; i++)
        sum += losses[i];
    return sum / TOKENS;
}

TestSuite(gpt, .init = open_model, .fini = close_model);

/* ------------------------------------------------------------------ finite differences */

/* The standard deviation of the rounding noise of the loss, from its 6th differences on a line of
 * points so near to each other that nothing smooth is left of them (More and Wild, Estimating
 * Computational Noise, SIAM J. Sci. Comput. 2011): the variance of a k-th difference of noise is
 * (2k)! / (k!)^2 of the noise's. */
static double measure_noise(void)
{
    enum { POINTS = 70, ORDER = 6, CHOOSE_12_6 = 924 };
    double values[POINTS];
    double *params = malloc(model.layout.params * sizeof *params);
    cr_assert(params);
    memcpy(params, model.params, model.layout.params * sizeof *params);
    for (int i = 0; i < POINTS; i++) {
        for (size_t j = 0; j < model.layout.params; j++)
            model.params[j] = params[j] + i * 0x1p-40 * gpt_random_signed(SEED, 1003, j);
        values[i] = mean_loss();
    }
    memcpy(model.params, params, model.layout.params * sizeof *params);
    free(params);
    for (int order = 1; order <= ORDER; order++) {
        for (int i = 0; i < POINTS - order; i++)
            values[i] = values[i + 1] - values[i];
    }
    double sum = 0;
    for (int i = 0; i < POINTS - ORDER; i++)
        sum += values[i] * values[i];
    return sqrt(sum / (POINTS - ORDER) / CHOOSE_12_6);
}

/* Central difference of the loss by one parameter.  Divides by the step that was really taken. */
static double central_difference(size_t index, double step)
{
    double value = model.params[index], above = value + step, below = value - step;
    model.params[index] = above;
    double loss_above = mean_loss();
    model.params[index] = below;
    double loss_below = mean_loss();
    model.params[index] = value;
    return (loss_above - loss_below) / (above - below);
}

struct estimate {
    double slope, bound;
};

/* With D(h) the central difference, R = (4 D(h / 2) - D(h)) / 3 has an error of order h^4, where
 * that of D(h / 2) is of order h^2 and about |R - D(h / 2)|: a bound for the far smaller error of
 * R.  The noise of a loss, of standard deviation s, makes that of R at most sqrt(4^2 * 2 + 1 / 2)
 * / 3 * s / h; six times that is exceeded by none of 10,000 normal numbers but with a probability
 * of 2e-5.  h near the cube root of s makes both parts about equal.  The rounding error of the
 * gradient under test is itself of order s, without the factor 1 / h, and so does not matter. */
static struct estimate estimate_slope(size_t index, double noise)
{
    double step = exp2(round(log2(cbrt(noise))));
    double wide = central_difference(index, step);
    double narrow = central_difference(index, step / 2);
    double slope = (4 * narrow - wide) / 3;
    double noise_bound = 6 * sqrt(32.5) / 3 * noise / step;
    return (struct estimate){.slope = slope, .bound = fabs(slope - narrow) + noise_bound};
}

static void compute_gradients(void)
{
    mean_loss();
    gpt_backward(model.workspace, model.params, model.grads, NULL);
}

Test(gpt, every_gradient_agrees_with_finite_differences)
{
    double noise = measure_noise();
    cr_assert(noise > 0 && noise < sqrt(DBL_EPSILON), "noise of the loss is %g", noise);
    compute_gradients();
    for (int i = 0; i < model.layout.tensor_count; i++) {
        const struct gpt_tensor *tensor = &model.layout.tensors[i];
        for (size_t j = 0; j < tensor->count; j++) {
            double grad = model.grads[tensor->offset + j];
            struct estimate estimate = estimate_slope(tensor->offset + j, noise);
            cr_assert(fabs(grad - estimate.slope) <= estimate.bound,
                      "%s [%zu]: gradient %.12g, finite difference %.12g, bound %.3g, noise %.3g",
                      tensor->name, j, grad, estimate.slope, estimate.bound, noise);
        }
    }
}

Test(gpt, the_bound_rejects_a_gradient_that_is_a_thousandth_off_in_any_tensor)
{
    double noise = measure_noise();
    compute_gradients();
    for (int i = 0; i < model.layout.tensor_count; i++) {
        const struct gpt_tensor *tensor = &model.layout.tensors[i];
        bool rejected = false;
        for (size_t j = 0; j < tensor->count && !rejected; j++) {
            double wrong = model.grads[tensor->offset + j] * (1 + 0x1p-10);
            struct estimate estimate = estimate_slope(tensor->offset + j, noise);
            rejected = fabs(wrong - estimate.slope) > estimate.bound;
        }
        cr_assert(rejected, "%s: wrong gradients pass", tensor->name);
    }
}

Test(gpt, gradients_are_those_of_the_last_batch_alone)
{
    compute_gradients();
    double *first = malloc(model.layout.params * sizeof *first);
    cr_assert(first);
    memcpy(first, model.grads, model.layout.params * sizeof *first);
    compute_gradients();
    cr_assert_eq(memcmp(first, model.grads, model.layout.params * sizeof *first), 0,
                 "a second pass gives other bits");
    free(first);
}

Test(gpt, no_loss_depends_on_a_later_token_or_another_sequence)
{
    for (int changed = 0; changed < TOKENS; changed++) {
        double before[TOKENS];
        mean_loss();
        memcpy(before,
               gpt_forward(model.workspace, model.params, model.tokens, model.targets, BATCH),
               sizeof before);
        uint8_t token = model.tokens[changed];
        model.tokens[changed] = (uint8_t)((token + 1) % VOCABULARY);
        const double *after =
            gpt_forward(model.workspace, model.params, model.tokens, model.targets, BATCH);
        model.tokens[changed] = token;
        for (int i = 0; i < TOKENS; i++) {
            bool sees = i / CONTEXT == changed / CONTEXT && i >= changed;
            cr_assert((before[i] != after[i]) == sees, "token %d changed, loss %d: %.17g, %.17g",
                      changed, i, before[i], after[i]);
        }
    }
}

/* ------------------------------------------------------------------ the fast exponential */

/* With u = 2^-24 and |r| <= 0.35: the argument is reduced with an error of at most 0.4 u; the
 * sums r + r^2 t and 1 + ... round by 0.45 u and 1.42 u of at most e^0.35, the rest of the
 * polynomial by 0.3 u, and what it leaves out is 0.35^8 / 8! < 0.1 u.  Against e^r >= 0.7 that is
 * less than 4 u. */
Test(gpt, fast_exponential_is_within_its_rounding_error_of_libm)
{
    enum { SAMPLES = 1 << 20 };
    for (int i = 0; i < SAMPLES; i++) {
        float x = -87.0f + 175.0f * (float)i / SAMPLES, fast = x;
        gpt_expf_values(&fast, 1);
        double exact = exp((double)x);
        cr_assert(fabs((double)fast - exact) <= 4 * 0x1p-24 * exact, "e^%.9g: %.9g, libm %.9g",
                  (double)x, (double)fast, exact);
    }
}

Test(gpt, fast_exponential_is_clamped_and_keeps_nan)
{
    float values[] = {-1e30f, -87.0f, 88.0f, 1e30f, -INFINITY, INFINITY, NAN, 0.0f};
    gpt_expf_values(values, sizeof values / sizeof values[0]);
    cr_assert(values[0] == values[1] && values[4] == values[1] && values[1] > 0);
    cr_assert(values[3] == values[2] && values[5] == values[2] && isfinite(values[2]));
    cr_assert(isnan(values[6]));
    cr_assert(values[7] == 1.0f);
}

/* ------------------------------------------------------------------ optimizer */

static struct gpt_adamw new_adamw(double clip)
{
    size_t count = model.layout.params;
    struct gpt_adamw adamw = {.layout = &model.layout,
                              .mean = calloc(count, sizeof *adamw.mean),
                              .square = calloc(count, sizeof *adamw.square),
                              .beta1 = 0.9,
                              .beta2 = 0.95,
                              .epsilon = 1e-8,
                              .decay = 0.1,
                              .clip = clip};
    cr_assert(adamw.mean && adamw.square);
    return adamw;
}

static void free_adamw(struct gpt_adamw *adamw)
{
    free(adamw->mean);
    free(adamw->square);
}

/* The parameter after `steps` steps of the algorithm as the paper writes it; grads[i] is the
 * gradient of step i + 1. */
static double textbook_adamw(double param, const double *grads, int steps, double rate,
                             double decay)
{
    double m = 0, v = 0;
    for (int t = 1; t <= steps; t++) {
        double g = grads[t - 1];
        m = 0.9 * m + 0.1 * g;
        v = 0.95 * v + 0.05 * g * g;
        double unbiased_m = m / (1 - pow(0.9, t)), unbiased_v = v / (1 - pow(0.95, t));
        param -= rate * (unbiased_m / (sqrt(unbiased_v) + 1e-8) + decay * param);
    }
    return param;
}

Test(gpt, adamw_is_the_papers)
{
    enum { STEPS = 5 };
    const double rate = 3e-3;
    size_t count = model.layout.params;
    struct gpt_adamw adamw = new_adamw(0);
    double *start = malloc(count * sizeof *start);
    cr_assert(start);
    memcpy(start, model.params, count * sizeof *start);
    for (int t = 0; t < STEPS; t++) {
        for (size_t i = 0; i < count; i++)
            model.grads[i] = gpt_random_signed(SEED, (uint64_t)t, i);
        gpt_adamw_step(&adamw, model.params, model.grads, rate);
    }
    for (int k = 0; k < model.layout.tensor_count; k++) {
        const struct gpt_tensor *tensor = &model.layout.tensors[k];
        for (size_t i = tensor->offset; i < tensor->offset + tensor->count; i++) {
            double grads[STEPS];
            for (int t = 0; t < STEPS; t++)
                grads[t] = gpt_random_signed(SEED, (uint64_t)t, i);
            double expected =
                textbook_adamw(start[i], grads, STEPS, rate, tensor->decays ? 0.1 : 0);
            /* Two roundings a step of the parameter, and one a step for all of the change, which
             * is at most a few rates: with both sides rounding, less than 8 a step. */
            double bound = STEPS * 8 * DBL_EPSILON * (fabs(start[i]) + rate);
            cr_assert(fabs(model.params[i] - expected) <= bound, "%s: %.17g, expected %.17g",
                      tensor->name, model.params[i], expected);
        }
    }
    free(start);
    free_adamw(&adamw);
}

Test(gpt, a_clipped_gradient_has_the_norm_of_the_limit)
{
    size_t count = model.layout.params;
    double *params = malloc(count * sizeof *params);
    cr_assert(params);
    memcpy(params, model.params, count * sizeof *params);
    struct gpt_adamw clipped = new_adamw(1), free_of_limit = new_adamw(0);
    /* Powers of two: the norms, 4 and 1, and the factor 1/4 are exact, so the bits must agree. */
    model.grads[5] = -4;
    gpt_adamw_step(&clipped, model.params, model.grads, 1e-3);
    model.grads[5] = -1;
    gpt_adamw_step(&free_of_limit, params, model.grads, 1e-3);
    cr_assert_eq(memcmp(params, model.params, count * sizeof *params), 0);
    cr_assert_eq(memcmp(clipped.square, free_of_limit.square, count * sizeof *params), 0);
    free(params);
    free_adamw(&clipped);
    free_adamw(&free_of_limit);
}

Test(gpt, learning_rate_rises_to_its_peak_and_falls_to_a_tenth)
{
    const double peak = 2.0; /* a power of two, so that products with it are exact */
    cr_assert_eq(gpt_learning_rate(peak, 50, 100, 1000), peak / 2);
    cr_assert_eq(gpt_learning_rate(peak, 100, 100, 1000), peak);
    cr_assert_eq(gpt_learning_rate(peak, 1, 0, 1) < peak, true);
    for (int step = 1; step < 1000; step++) {
        double rise =
            gpt_learning_rate(peak, step + 1, 100, 1000) - gpt_learning_rate(peak, step, 100, 1000);
        cr_assert_eq(rise > 0, step < 100, "step %d", step);
    }
    double last = gpt_learning_rate(peak, 1000, 100, 1000);
    cr_assert(fabs(last - peak / 10) <= DBL_EPSILON * peak, "%.17g", last);
}

/* ------------------------------------------------------------------ text */

enum { TEXT_BYTES = 4000, TRAINING_BYTES = 3800 };

/* A text whose byte i tells by its top bit which part it is in and by the rest its place, modulo
 * 128. */
static void make_text(uint8_t *bytes)
{
    for (int i = 0; i < TEXT_BYTES; i++)
        bytes[i] = (uint8_t)((i >= TRAINING_BYTES) << 7 | (i & 127));
}

static void write_text(char *path, const char *mode)
{
    uint8_t bytes[TEXT_BYTES];
    int file = mkstemp(path);
    cr_assert(file >= 0);
    close(file);
    make_text(bytes);
    gzFile out = gzopen(path, mode);
    cr_assert(out);
    cr_assert_eq(gzwrite(out, bytes, TEXT_BYTES), TEXT_BYTES);
    cr_assert_eq(gzclose(out), Z_OK);
}

static void check_window(const uint8_t *tokens, const uint8_t *targets, bool validation)
{
    for (int i = 0; i < CONTEXT; i++) {
        cr_assert_eq(tokens[i] >> 7, validation);
        cr_assert_eq(targets[i] >> 7, validation);
        cr_assert_eq(targets[i] & 127, (tokens[i] + 1) & 127);
        cr_assert(i == 0 || tokens[i] == targets[i - 1]);
    }
}

static void check_text(const char *mode)
{
    char path[] = "/tmp/gpt_text_XXXXXX", problem[256];
    uint8_t expected[TEXT_BYTES], tokens[CONTEXT], targets[CONTEXT];
    struct gpt_text text;
    write_text(path, mode);
    cr_assert(gpt_text_load(&text, path, CONTEXT, problem, sizeof problem), "%s", problem);
    make_text(expected);
    cr_assert_eq(text.count, TEXT_BYTES);
    cr_assert_eq(text.training, TRAINING_BYTES);
    cr_assert_eq(memcmp(text.bytes, expected, TEXT_BYTES), 0);
    for (int step = 0; step < 20000; step++) {
        gpt_text_sample(&text, SEED, step, step % 5, 1, CONTEXT, tokens, targets);
        check_window(tokens, targets, false);
    }
    for (int i = 0; i < 50; i++) {
        gpt_text_validation(&text, i, 50, CONTEXT, tokens, targets);
        check_window(tokens, targets, true);
    }
    gpt_text_free(&text);
    remove(path);
}

Test(gpt, plain_text_is_split_by_position)
{
    check_text("wbT");
}

Test(gpt, compressed_text_is_split_by_position)
{
    check_text("wb");
}

Test(gpt, ranks_and_steps_learn_from_different_windows)
{
    char path[] = "/tmp/gpt_text_XXXXXX", problem[256];
    uint8_t first[4][CONTEXT], targets[CONTEXT];
    struct gpt_text text;
    write_text(path, "wbT");
    cr_assert(gpt_text_load(&text, path, CONTEXT, problem, sizeof problem), "%s", problem);
    gpt_text_sample(&text, SEED, 1, 0, 1, CONTEXT, first[0], targets);
    gpt_text_sample(&text, SEED, 1, 1, 1, CONTEXT, first[1], targets);
    gpt_text_sample(&text, SEED, 2, 0, 1, CONTEXT, first[2], targets);
    gpt_text_sample(&text, SEED + 1, 1, 0, 1, CONTEXT, first[3], targets);
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < i; j++)
            cr_assert(memcmp(first[i], first[j], CONTEXT) != 0, "windows %d and %d", i, j);
    }
    gpt_text_free(&text);
    remove(path);
}

Test(gpt, a_text_that_is_missing_or_short_is_refused_with_a_sentence)
{
    char path[] = "/tmp/gpt_text_XXXXXX", problem[256];
    struct gpt_text text;
    cr_assert(!gpt_text_load(&text, "/nowhere/text", CONTEXT, problem, sizeof problem));
    cr_assert(strstr(problem, "cannot open /nowhere/text: "), "%s", problem);
    write_text(path, "wbT");
    cr_assert(!gpt_text_load(&text, path, 200, problem, sizeof problem));
    cr_assert(strstr(problem, "4000 bytes, the last 200 for validation"), "%s", problem);
    cr_assert(gpt_text_load(&text, path, 199, problem, sizeof problem), "%s", problem);
    gpt_text_free(&text);
    remove(path);
}

Test(gpt, a_damaged_compressed_text_is_refused)
{
    char path[] = "/tmp/gpt_text_XXXXXX", problem[256];
    struct gpt_text text;
    write_text(path, "wb");
    cr_assert_eq(truncate(path, 60), 0);
    cr_assert(!gpt_text_load(&text, path, CONTEXT, problem, sizeof problem));
    cr_assert(strstr(problem, "cannot read "), "%s", problem);
    remove(path);
}
