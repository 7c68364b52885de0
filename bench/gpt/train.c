/* Data-parallel training: every rank holds the whole model and learns from its own batch.
 *
 *   1. forward and backward pass on this rank's sequences
 *   2. one all-reduce averages the flat gradient buffer over the ranks
 *   3. every rank takes the same AdamW step
 *
 * Since the all-reduce leaves the same bits on every rank, so does step 3; a run checks that at
 * every progress line.  With --overlap on, 2 begins within 1, in buckets (buckets.c).  Sharded, 2
 * and 3 are the library's (sharded.c). */
#include "bench/gpt/train.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bench/gpt/adamw.h"
#include "bench/gpt/buckets.h"
#include "bench/gpt/model.h"
#include "bench/gpt/progress.h"
#include "bench/gpt/sharded.h"
#include "bench/report.h"
#include "bench/samples.h"

struct trainer {
    const struct gpt_options *options;
    const struct gpt_layout *layout;
    const struct gpt_text *text;
    const struct gpt_team *team;
    struct gpt_show show; /* of rank 0 */
    struct gpt_workspace *workspace;
    struct gpt_adamw adamw;
    struct gpt_sharded *sharded; /* NULL: every rank has everything */
    struct gpt_buckets *buckets; /* NULL: gradients are averaged by one call */
    float *params, *grads;       /* the shard's memory when sharded */
    uint8_t *tokens, *targets;
    double *window_losses;
    double seconds, comm_seconds; /* of all steps so far */
    double loss_sum;              /* of the steps since the last progress line */
    int loss_count;
};

/* ------------------------------------------------------------------ begin and end */

static void allocate(struct trainer *t)
{
    size_t params = t->layout->params;
    size_t tokens = (size_t)t->options->batch * (size_t)t->options->context;
    t->workspace = gpt_workspace_new(t->layout, t->options->batch);
    if (t->options->sharded) {
        t->sharded = gpt_sharded_new(t->options, t->layout, t->team);
        t->params = gpt_sharded_params(t->sharded);
        t->grads = gpt_sharded_grads(t->sharded);
    } else {
        t->params = calloc(params, sizeof *t->params);
        t->grads = calloc(params, sizeof *t->grads);
        t->adamw.mean = calloc(params, sizeof *t->adamw.mean);
        t->adamw.square = calloc(params, sizeof *t->adamw.square);
    }
    if (!t->sharded && t->grads && strcmp(t->options->overlap, "on") == 0)
        t->buckets = gpt_buckets_new(t->options, t->layout, t->team, t->grads);
    bool has_moments = t->sharded || (t->adamw.mean && t->adamw.square);
    t->tokens = calloc(tokens, 1);
    t->targets = calloc(tokens, 1);
    t->window_losses = calloc((size_t)t->options->windows, sizeof *t->window_losses);
    if (!t->workspace || !t->params || !t->grads || !has_moments || !t->tokens || !t->targets ||
        !t->window_losses)
        bench_world_fail(t->team->world, t->team->rank,
                         "no memory for %zu parameters and %zu tokens", params, tokens);
}

static void trainer_open(struct trainer *t, const struct gpt_job *job, const struct gpt_team *team)
{
    const struct gpt_options *options = job->options;
    *t = (struct trainer){
        .options = options, .layout = job->layout, .text = job->text, .team = team};
    t->adamw = (struct gpt_adamw){
        .layout = job->layout,
        .beta1 = 0.9,
        .beta2 = 0.95,
        .epsilon = 1e-8,
        .decay = options->decay,
        .clip = options->clip,
    };
    allocate(t);
    gpt_layout_randomise(job->layout, t->params, options->seed);
    if (t->sharded)
        gpt_sharded_start(t->sharded);
    if (team->rank == 0)
        gpt_show_open(&t->show, options, team, job->layout->params);
}

static void trainer_close(struct trainer *t)
{
    gpt_show_close(&t->show);
    gpt_workspace_free(t->workspace);
    gpt_buckets_free(t->buckets);
    if (!t->sharded) {
        free(t->params);
        free(t->grads);
    }
    gpt_sharded_free(t->sharded);
    free(t->adamw.mean);
    free(t->adamw.square);
    free(t->tokens);
    free(t->targets);
    free(t->window_losses);
}

/* ------------------------------------------------------------------ validation */

/* Losses of count windows first, first + stride, ... go to their places in window_losses. */
static void measure_windows(struct trainer *t, int first, int stride, int count)
{
    int context = t->options->context;
    for (int i = 0; i < count; i++)
        gpt_text_validation(t->text, first + i * stride, t->options->windows, context,
                            t->tokens + (size_t)i * (size_t)context,
                            t->targets + (size_t)i * (size_t)context);
    const double *losses = gpt_forward(t->workspace, t->params, t->tokens, t->targets, count);
    for (int i = 0; i < count; i++) {
        double sum = 0;
        for (int j = 0; j < context; j++)
            sum += losses[i * context + j];
        t->window_losses[first + i * stride] = sum / context;
    }
}

/* The ranks share the windows.  Each fills its own places and leaves the others zero, so the sum
 * over ranks adds nothing but zeros to a loss, and the mean is taken in the same order
 * everywhere. */
static double validate(struct trainer *t)
{
    int windows = t->options->windows, stride = t->team->world->nranks;
    memset(t->window_losses, 0, (size_t)windows * sizeof *t->window_losses);
    for (int first = t->team->rank; first < windows; first += stride * t->options->batch) {
        int left = (windows - first + stride - 1) / stride;
        measure_windows(t, first, stride, left < t->options->batch ? left : t->options->batch);
    }
    bench_world_combine(t->team->world, t->team->rank, t->window_losses, (size_t)windows,
                        BENCH_SUM);
    double loss = 0;
    for (int i = 0; i < windows; i++)
        loss += t->window_losses[i] / windows;
    return loss;
}

/* ------------------------------------------------------------------ one step */

static bool write_gradients(const struct trainer *t, const char *path)
{
    size_t params = t->layout->params;
    FILE *file = fopen(path, "wb");
    if (!file)
        return false;
    bool ok = fwrite(t->grads, sizeof *t->grads, params, file) == params;
    return fclose(file) == 0 && ok;
}

static void dump_gradients(const struct trainer *t)
{
    char path[4096];
    const char *folder = t->options->dump_dir;
    int length = snprintf(path, sizeof path, "%s/grad.rank%d.f32", folder, t->team->rank);
    bool fits = length > 0 && (size_t)length < sizeof path;
    /* Every rank asks for the folder; all but the first find it there. */
    bool has_folder = fits && (mkdir(folder, 0777) == 0 || errno == EEXIST);
    if (!has_folder || !write_gradients(t, path))
        bench_world_fail(t->team->world, t->team->rank, "cannot write %s: %s", path,
                         fits ? strerror(errno) : "the name is too long");
}

static double learn(struct trainer *t, int step)
{
    const struct gpt_options *options = t->options;
    size_t tokens = (size_t)options->batch * (size_t)options->context;
    gpt_text_sample(t->text, options->seed, step, t->team->rank, options->batch, options->context,
                    t->tokens, t->targets);
    qcclTraceBegin(t->team->rank, "compute");
    const double *losses =
        gpt_forward(t->workspace, t->params, t->tokens, t->targets, options->batch);
    double sum = 0;
    for (size_t i = 0; i < tokens; i++)
        sum += losses[i];
    struct gpt_listener listener =
        t->sharded ? gpt_sharded_listener(t->sharded) : gpt_buckets_listener(t->buckets);
    gpt_backward(t->workspace, t->params, t->grads, t->sharded || t->buckets ? &listener : NULL);
    qcclTraceEnd(t->team->rank);
    return sum / (double)tokens;
}

/* Returns the mean loss of the ranks' batches. */
static double train_step(struct trainer *t, int step)
{
    const struct gpt_options *options = t->options;
    const struct gpt_team *team = t->team;
    double begin = bench_now();
    double loss = learn(t, step) / team->world->nranks;
    if (options->dump_dir && options->dump_step == step)
        dump_gradients(t);
    /* This also waits for the slowest rank, so that the clock below sees communication alone. */
    bench_world_combine(team->world, team->rank, &loss, 1, BENCH_SUM);
    double arrived = bench_now();
    double rate = gpt_learning_rate(options->rate, step, options->warmup, options->steps);
    if (t->sharded) {
        gpt_sharded_step(t->sharded, rate);
        t->comm_seconds += bench_now() - arrived;
    } else {
        if (t->buckets)
            gpt_buckets_finish(t->buckets);
        else
            gpt_team_average(team, t->grads, t->layout->params);
        t->comm_seconds += bench_now() - arrived;
        gpt_adamw_step(&t->adamw, t->params, t->grads, rate);
    }
    t->seconds += bench_now() - begin;
    return loss;
}

/* ------------------------------------------------------------------ the run */

static struct gpt_progress measure_progress(struct trainer *t, int step)
{
    struct gpt_progress progress = {
        .step = step,
        .train_loss = t->loss_sum / t->loss_count,
        .traffic = gpt_team_traffic(t->team, t->layout->params, step),
        .hash = gpt_team_hash(t->params, t->layout->params),
    };
    progress.gradient_bytes = progress.traffic.wire_bytes;
    if (t->sharded) {
        gpt_sharded_show_masters(t->sharded);
        gpt_sharded_progress(t->sharded, &progress);
    }
    progress.val_loss = validate(t);
    if (t->sharded)
        gpt_sharded_hide_masters(t->sharded);
    int ranks = t->team->world->nranks;
    double times[] = {t->seconds, t->comm_seconds};
    bench_world_combine(t->team->world, t->team->rank, times, 2, BENCH_SUM);
    double tokens = (double)t->options->batch * t->options->context * ranks * step;
    progress.seconds = times[0] / ranks;
    progress.tokens_per_s = tokens / progress.seconds;
    progress.comm_share = times[1] / times[0];
    progress.exposed_share /= times[0];
    t->loss_sum = 0;
    t->loss_count = 0;
    return progress;
}

static bool train(struct trainer *t)
{
    const struct gpt_options *options = t->options;
    bool speaks = t->team->rank == 0;
    struct gpt_progress progress = {0};
    for (int step = 1; step <= options->steps; step++) {
        double loss = train_step(t, step);
        if (!isfinite(loss)) {
            if (speaks)
                bench_error("step %d: the loss is not finite: training has diverged", step);
            return false;
        }
        t->loss_sum += loss;
        t->loss_count++;
        if (step % options->eval != 0 && step != options->steps)
            continue;
        if (!gpt_team_agrees(t->team, t->params, t->layout->params, step))
            return false;
        progress = measure_progress(t, step);
        if (speaks)
            gpt_show_line(&t->show, &progress);
    }
    if (speaks)
        gpt_show_summary(&t->show, &progress);
    return true;
}

bool gpt_train(const struct gpt_job *job, const struct gpt_team *team)
{
    struct trainer trainer;
    trainer_open(&trainer, job, team);
    bool ok = train(&trainer);
    trainer_close(&trainer);
    return ok;
}
