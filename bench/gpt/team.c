/* The all-reduce of a training run, the check that replicas stay equal, and what was sent. */
#include "bench/gpt/team.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/report.h"

static void require(const struct gpt_team *team, qcclResult_t result, const char *what)
{
    if (result != qcclSuccess)
        bench_world_fail(team->world, team->rank, "%s: %s", what, qcclGetLastError());
}

void gpt_team_average(const struct gpt_team *team, float *grads, size_t count)
{
    require(team, qcclAllReduce(grads, grads, count, qcclFloat32, qcclAvg, team->comm, NULL),
            "all-reduce of gradients");
}

/* ------------------------------------------------------------------ replicas */

/* FNV-1a, a word at a time. */
uint64_t gpt_team_hash(const float *values, size_t count)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        hash = (hash ^ bits) * 0x100000001b3u;
    }
    return hash;
}

bool gpt_team_agrees(const struct gpt_team *team, const float *params, size_t count, int step)
{
    int ranks = team->world->nranks;
    uint64_t hash = gpt_team_hash(params, count);
    /* Ranks combine doubles, which hold half a hash exactly.  Each rank fills its own two places.
     */
    double *halves = calloc(2 * (size_t)ranks, sizeof *halves);
    if (!halves)
        bench_world_fail(team->world, team->rank, "no memory for %d hashes", ranks);
    halves[2 * team->rank] = (double)(hash >> 32);
    halves[2 * team->rank + 1] = (double)(hash & UINT32_MAX);
    bench_world_combine(team->world, team->rank, halves, 2 * (size_t)ranks, BENCH_SUM);
    bool agree = true;
    for (int i = 1; i < ranks; i++) {
        if (memcmp(halves + 2 * i, halves, 2 * sizeof *halves) == 0)
            continue;
        agree = false;
        if (team->rank == 0)
            bench_error("step %d: the parameters of rank %d are not those of rank 0", step, i);
    }
    free(halves);
    return agree;
}

/* ------------------------------------------------------------------ traffic */

enum { RAW, WIRE, ENERGY, LOST, COMPRESSED, TOTALS };

struct gpt_traffic gpt_team_traffic(const struct gpt_team *team, size_t count, int steps)
{
    qcclStats_t stats = {.size = sizeof stats};
    require(team, qcclCommGetStats(team->comm, &stats), "statistics");
    double totals[TOTALS] = {
        [RAW] = (double)stats.raw_bytes,    [WIRE] = (double)stats.wire_bytes,
        [ENERGY] = stats.sampled_energy,    [LOST] = stats.sampled_error,
        [COMPRESSED] = (double)stats.calls,
    };
    bench_world_combine(team->world, team->rank, totals, TOTALS, BENCH_SUM);
    /* The library counts the bytes of compressed calls.  An average that passed through moved,
     * over all ranks, what a reduce-scatter and an all-gather of fp32 values move: each value to
     * all but its owner, twice. */
    int ranks = team->world->nranks;
    double raw = steps * 2.0 * (ranks - 1) * (double)count * sizeof(float);
    double passed_bytes = raw > totals[RAW] ? raw - totals[RAW] : 0;
    double wire = totals[WIRE] + passed_bytes;
    /* Messages with error feedback are not sampled. */
    double unsampled = totals[COMPRESSED] > 0 ? NAN : 0;
    return (struct gpt_traffic){
        .raw_bytes = raw,
        .wire_bytes = wire,
        .ratio = wire > 0 ? raw / wire : 1,
        .rel_error = totals[ENERGY] > 0 ? sqrt(totals[LOST] / totals[ENERGY]) : unsampled,
    };
}
