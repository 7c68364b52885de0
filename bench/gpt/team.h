/* What the ranks of a training run do together.
 *
 * Every rank calls each function.  A call that cannot succeed ends the program on all ranks, with
 * a sentence. */
#ifndef BENCH_GPT_TEAM_H
#define BENCH_GPT_TEAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bench/world.h"
#include "qccl/qccl.h"

struct gpt_team {
    struct bench_world *world;
    qcclComm_t comm;
    qcclComm_t slow; /* for DUO's slow reductions; NULL: none */
    int rank;
};

/* grads = their average over the ranks, compressed as the policy says. */
void gpt_team_average(const struct gpt_team *team, float *grads, size_t count);

/* Of the bits of values. */
uint64_t gpt_team_hash(const float *values, size_t count);

/* Whether all ranks hold the same bits; if not, rank 0 names the ranks that differ from it. */
bool gpt_team_agrees(const struct gpt_team *team, const float *params, size_t count, int step);

/* Totals over all ranks. */
struct gpt_traffic {
    double raw_bytes, wire_bytes;
    double ratio; /* raw to wire; 1 where nothing was sent */
    /* Of what was encoded, sampled; 0 where nothing was, NaN where none of it was sampled. */
    double rel_error;
};

/* Of the first `steps` averages, of `count` gradients each. */
struct gpt_traffic gpt_team_traffic(const struct gpt_team *team, size_t count, int steps);

#endif
