/* The training loop of one rank. */
#ifndef BENCH_GPT_TRAIN_H
#define BENCH_GPT_TRAIN_H

#include "bench/gpt/flags.h"
#include "bench/gpt/team.h"
#include "bench/gpt/text.h"

/* What all ranks share, read-only. */
struct gpt_job {
    const struct gpt_options *options;
    const struct gpt_layout *layout;
    const struct gpt_text *text;
};

/* Trains as the options say; every rank calls it.  Returns, the same on every rank, whether
 * training came to its end with equal replicas; rank 0 says what went wrong. */
bool gpt_train(const struct gpt_job *job, const struct gpt_team *team);

#endif
