/* What a training run shows: progress lines, the rows of --log, the summary of --json.
 *
 * Rank 0 alone uses it.  A file that cannot be written ends the program on all ranks. */
#ifndef BENCH_GPT_PROGRESS_H
#define BENCH_GPT_PROGRESS_H

#include <stdio.h>

#include "bench/gpt/flags.h"
#include "bench/gpt/team.h"
#include "bench/json.h"

struct gpt_progress {
    int step;
    double train_loss, val_loss; /* nats a byte */
    double seconds;              /* of training, without validation */
    double tokens_per_s, comm_share;
    struct gpt_traffic traffic;
    uint64_t hash;                       /* of the parameters that the next step starts from */
    double gradient_bytes, weight_bytes; /* the parts of what the traffic has sent */
    double slow_bytes;                   /* of DUO's slow reductions, all ranks, besides */
    double exposed_share;                /* of the time: commits that waited for them */
};

struct gpt_show {
    const struct gpt_options *options;
    const struct gpt_team *team;
    char policy[QCCL_POLICY_MAX]; /* what the communicator made of --policy */
    size_t params;
    FILE *log; /* NULL: none */
    struct json json;
};

/* Opens the files, so that a bad path is found before the training, and prints what is about to be
 * trained. */
void gpt_show_open(struct gpt_show *show, const struct gpt_options *options,
                   const struct gpt_team *team, size_t params);

void gpt_show_line(const struct gpt_show *show, const struct gpt_progress *progress);

/* Writes the summary that --json asks for. */
void gpt_show_summary(struct gpt_show *show, const struct gpt_progress *last);

/* Also of a zeroed show. */
void gpt_show_close(struct gpt_show *show);

#endif
