/* qccl-gpt: trains a small GPT on several ranks with this library's all-reduce.
 *
 * Reads the command line and the text, then runs the training loop of train.c as each rank. */
#include <stdio.h>
#include <stdlib.h>

#include "bench/gpt/flags.h"
#include "bench/gpt/text.h"
#include "bench/gpt/train.h"
#include "bench/report.h"
#include "bench/world.h"

enum { DEFAULT_RANKS = 4 };

struct run {
    struct gpt_options options;
    struct gpt_layout layout;
    struct gpt_text text;
    struct bench_world world;
    qcclComm_t *comms; /* one for each rank of this process */
    qcclComm_t *slow;  /* the same, for DUO's slow reductions; zeros without */
    bool *succeeded;   /* likewise */
};

static void run_rank(void *context, int rank)
{
    struct run *run = context;
    int local = rank - run->world.first;
    struct gpt_job job = {.options = &run->options, .layout = &run->layout, .text = &run->text};
    struct gpt_team team = {
        .world = &run->world, .comm = run->comms[local], .slow = run->slow[local], .rank = rank};
    run->succeeded[local] = gpt_train(&job, &team);
}

/* Makes the communicators, trains, and takes them down. */
static int train_all(struct run *run)
{
    const struct gpt_options *options = &run->options;
    qcclConfig_t config = {.size = sizeof config, .policy = options->policy, .seed = options->seed};
    if (bench_world_comms(&run->world, run->comms, &config) != qcclSuccess)
        return bench_usage_error("%s", qcclGetLastError());
    config.seed = ~options->seed; /* so that residuals are rounded by other numbers */
    int status = 0;
    if (options->duo && bench_world_comms(&run->world, run->slow, &config) != qcclSuccess)
        status = bench_error("%s", qcclGetLastError());
    if (!status)
        status = bench_world_run(&run->world, run_rank, run);
    for (int i = 0; i < run->world.local; i++) {
        qcclCommDestroy(run->comms[i]);
        qcclCommDestroy(run->slow[i]);
        if (!run->succeeded[i])
            status = EXIT_WRONG;
    }
    return status;
}

static int run_world(struct run *run)
{
    run->world.threads = run->options.sharded || strcmp(run->options.overlap, "on") == 0;
    int status = bench_world_open(&run->world, run->options.ranks, DEFAULT_RANKS);
    if (status)
        return status;
    size_t local = (size_t)run->world.local;
    run->comms = calloc(local, sizeof(qcclComm_t));
    run->slow = calloc(local, sizeof(qcclComm_t));
    run->succeeded = calloc(local, sizeof *run->succeeded);
    if (run->comms && run->slow && run->succeeded)
        status = train_all(run);
    else
        status = bench_error("no memory for %zu ranks", local);
    free(run->comms);
    free(run->slow);
    free(run->succeeded);
    bench_world_close(&run->world);
    return status;
}

int main(int argc, char **argv)
{
    static struct run run;
    int status;
    bench_program("qccl-gpt");
    if (!gpt_flags_parse(&run.options, argc, argv, &status))
        return status;
    /* The ranks are as many threads or processes as there should be; BLAS must not start more. */
    openblas_set_num_threads(1);
    struct gpt_shape shape = gpt_flags_shape(&run.options);
    gpt_layout_init(&run.layout, &shape);
    char problem[512];
    if (!gpt_text_load(&run.text, run.options.text, run.options.context, problem, sizeof problem))
        return bench_error("%s", problem);
    status = run_world(&run);
    gpt_text_free(&run.text);
    return status;
}
