/* Lines for people on standard output, rows and a summary for machines in files. */
#include "bench/gpt/progress.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Whether people read standard output. */
static bool prints(const struct gpt_show *show)
{
    return !show->options->json || strcmp(show->options->json, "-") != 0;
}

static void require_written(const struct gpt_show *show, bool written, const char *path)
{
    if (!written)
        bench_world_fail(show->team->world, show->team->rank, "cannot write %s: %s", path,
                         strerror(errno));
}

static void open_files(struct gpt_show *show)
{
    const char *path = show->options->log;
    require_written(show, bench_json_open(&show->json, show->options->json), show->options->json);
    if (!path)
        return;
    show->log = fopen(path, "w");
    require_written(show, show->log, path);
    int written = fputs("step\ttrain_loss\tval_loss\tseconds\ttokens_per_s\tcomm_share\t"
                        "raw_bytes\twire_bytes\tgradient_bytes\tweight_bytes\tslow_bytes\t"
                        "exposed_share\n",
                        show->log);
    require_written(show, written >= 0, path);
}

void gpt_show_open(struct gpt_show *show, const struct gpt_options *options,
                   const struct gpt_team *team, size_t params)
{
    *show = (struct gpt_show){.options = options, .team = team, .params = params};
    if (qcclCommGetPolicy(team->comm, show->policy, sizeof show->policy) != qcclSuccess)
        bench_world_fail(team->world, team->rank, "policy: %s", qcclGetLastError());
    open_files(show);
    if (!prints(show))
        return;
    printf("parameters: %zu; ranks: %d (%s), each with %d bytes a step\npolicy: %s\n", params,
           team->world->nranks, team->world->backend->name, options->batch * options->context,
           show->policy);
    fflush(stdout);
}

static void print_line(const struct gpt_options *options, const struct gpt_progress *progress)
{
    const struct gpt_progress p = *progress;
    char error[32] = "unknown";
    if (!isnan(p.traffic.rel_error))
        snprintf(error, sizeof error, "%.3f", p.traffic.rel_error);
    printf("step %5d  train %.4f  val %.4f  %6.0f tokens/s  comm %4.1f %%  wire %7.1f MB  "
           "ratio %5.2f  error %s",
           p.step, p.train_loss, p.val_loss, p.tokens_per_s, 100 * p.comm_share,
           p.traffic.wire_bytes * 1e-6, p.traffic.ratio, error);
    if (options->sharded)
        printf("  gradients %.1f MB  weights %.1f MB", p.gradient_bytes * 1e-6,
               p.weight_bytes * 1e-6);
    if (options->duo)
        printf("  slow %.1f MB  exposed %.1f %%", p.slow_bytes * 1e-6, 100 * p.exposed_share);
    putchar('\n');
    fflush(stdout);
}

void gpt_show_line(const struct gpt_show *show, const struct gpt_progress *progress)
{
    const struct gpt_progress p = *progress;
    if (prints(show))
        print_line(show->options, progress);
    if (!show->log)
        return;
    int written = fprintf(
        show->log, "%d\t%.6f\t%.6f\t%.3f\t%.1f\t%.5f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.5f\n", p.step,
        p.train_loss, p.val_loss, p.seconds, p.tokens_per_s, p.comm_share, p.traffic.raw_bytes,
        p.traffic.wire_bytes, p.gradient_bytes, p.weight_bytes, p.slow_bytes, p.exposed_share);
    /* Flushed, so that a run that is stopped leaves its curve. */
    require_written(show, written > 0 && fflush(show->log) == 0, show->options->log);
}

/* What does not apply to the run is "no". */
static void summarise_sharding(struct json *json, const struct gpt_options *options,
                               const struct gpt_progress *last)
{
    bench_json_string(json, "optimizer", options->optimizer);
    bench_json_integer(json, "sharded", options->sharded);
    bench_json_string(json, "weights", options->sharded ? options->weights : "no");
    bench_json_string(json, "overlap", options->overlap);
    bench_json_string(json, "duo", options->duo ? options->duo : "no");
    bench_json_string(json, "slow", options->duo ? options->slow : "no");
    bench_json_number(json, "gradient_bytes", last->gradient_bytes);
    bench_json_number(json, "weight_bytes", last->weight_bytes);
    bench_json_number(json, "slow_bytes", last->slow_bytes);
    bench_json_number(json, "exposed_seconds", last->exposed_share * last->seconds);
    bench_json_number(json, "exposed_share", last->exposed_share);
}

void gpt_show_summary(struct gpt_show *show, const struct gpt_progress *last)
{
    struct json *json = &show->json;
    bench_json_object(json);
    bench_json_string(json, "policy", show->policy);
    bench_json_integer(json, "seed", show->options->seed);
    bench_json_integer(json, "steps", (uint64_t)last->step);
    bench_json_integer(json, "ranks", (uint64_t)show->team->world->nranks);
    bench_json_integer(json, "params", show->params);
    bench_json_number(json, "train_loss", last->train_loss);
    bench_json_number(json, "val_loss", last->val_loss);
    bench_json_number(json, "seconds", last->seconds);
    bench_json_number(json, "tokens_per_s", last->tokens_per_s);
    bench_json_number(json, "comm_share", last->comm_share);
    bench_json_number(json, "raw_bytes", last->traffic.raw_bytes);
    bench_json_number(json, "wire_bytes", last->traffic.wire_bytes);
    bench_json_number(json, "ratio", last->traffic.ratio);
    bench_json_number(json, "sampled_rel_error", last->traffic.rel_error);
    char hash[17];
    snprintf(hash, sizeof hash, "%016" PRIx64, last->hash);
    bench_json_string(json, "params_hash", hash);
    summarise_sharding(json, show->options, last);
    bench_json_object_end(json);
    require_written(show, bench_json_close(json), show->options->json);
}

void gpt_show_close(struct gpt_show *show)
{
    if (show->log)
        fclose(show->log);
    show->log = NULL;
    bench_json_close(&show->json);
}
