/* DUO while it fails: at varying moments an allocation of some rank fails, or a rank aborts a
 * communicator, with both reductions of both buckets under way on two streams; every rank then
 * destroys its duo at once, before the stream that may still work for it.  A plain program, so that
 * the thread sanitizer and valgrind can watch it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "tests/harness.h"
#include "tests/tap.h"

enum { RANKS = 3, COUNT = RANKS * 700, BUCKETS = 2, STEPS = 3, STRIDE = 3, MOST = 2000 };

struct work {
    struct team slow;
    const char *fast_codec, *slow_codec;
    int abort_step; /* rank 0 aborts there; STEPS: nowhere */
    bool abort_slow;
    float in[RANKS][COUNT];
};

static qcclResult_t run_steps(struct team *team, int rank, struct work *w, qcclDuo_t duo,
                              qcclStream_t stream)
{
    const float *shard;
    for (int step = 0; step < STEPS; step++) {
        for (int b = BUCKETS - 1; b >= 0; b--)
            RETURN_IF_FAILED(qcclDuoReduce(duo, b, w->in[rank], stream));
        if (rank == 0 && step == w->abort_step)
            qcclCommAbort(w->abort_slow ? w->slow.comm[0] : team->comm[0]);
        for (int b = 0; step && b < BUCKETS; b++)
            RETURN_IF_FAILED(qcclDuoCommit(duo, b, &shard));
        for (int b = 0; b < BUCKETS; b++)
            RETURN_IF_FAILED(qcclDuoFast(duo, b, &shard));
    }
    for (int b = 0; b < BUCKETS; b++)
        RETURN_IF_FAILED(qcclDuoCommit(duo, b, &shard));
    return qcclSuccess;
}

/* A rank that fails ends both communicators, as a program would, so that no other waits for it. */
static qcclResult_t train(struct team *team, int rank, void *arg)
{
    static const size_t counts[BUCKETS] = {COUNT, COUNT};
    struct work *w = arg;
    qcclDuoConfig_t config = {.size = sizeof config,
                              .counts = counts,
                              .nbuckets = BUCKETS,
                              .fast = w->fast_codec,
                              .slow = w->slow_codec};
    qcclDuo_t duo = NULL;
    qcclStream_t stream = NULL;
    char sentence[SENTENCE_BYTES];
    qcclResult_t result = qcclDuoCreate(&duo, team->comm[rank], w->slow.comm[rank], &config);
    if (result == qcclSuccess)
        result = qcclStreamCreate(&stream, 0);
    if (result == qcclSuccess)
        result = run_steps(team, rank, w, duo, stream);
    snprintf(sentence, sizeof sentence, "%s", qcclGetLastError());
    if (result != qcclSuccess) {
        qcclCommAbort(team->comm[rank]);
        qcclCommAbort(w->slow.comm[rank]);
    }
    qcclDuoDestroy(duo);
    qcclStreamDestroy(stream);
    return result == qcclSuccess ? result : qccl_fail(result, "%s", sentence);
}

static bool open_teams(struct team *team, struct work *w)
{
    qcclConfig_t config = {.size = sizeof config, .policy = "none", .seed = 1, .timeout = 60};
    bool opened = team_open_config(team, RANKS, &config);
    config.seed = 2;
    return opened && team_open_config(&w->slow, RANKS, &config);
}

/* Trains on new communicators; whether all ranks succeeded. */
static bool train_once(struct work *w, long failing_allocation)
{
    struct team team;
    if (!open_teams(&team, w))
        return false;
    qccl_memory_fail_after(failing_allocation);
    bool succeeded = team_run(&team, train, w);
    qccl_memory_fail_after(0);
    team_close(&w->slow);
    team_close(&team);
    return succeeded;
}

static void fail_allocations(struct work *w)
{
    long n = 1;
    while (n < MOST && !train_once(w, n))
        n += STRIDE;
    tap_ok(n > 1 && n < MOST, "fast %s, slow %s: allocations that fail end it until none does",
           w->fast_codec, w->slow_codec);
    tap_ok(qccl_memory_live() == 0, "and leave no memory");
}

static void abort_steps(struct work *w)
{
    bool ended = true;
    for (int i = 0; i < 2 * STEPS; i++) {
        w->abort_step = i / 2;
        w->abort_slow = i % 2;
        ended = !train_once(w, 0) && ended;
    }
    w->abort_step = STEPS;
    tap_ok(ended, "fast %s, slow %s: an abort of either communicator ends it in any step",
           w->fast_codec, w->slow_codec);
    tap_ok(qccl_memory_live() == 0, "and leaves no memory");
}

int main(void)
{
    struct work *w = calloc(1, sizeof *w);
    if (!w)
        return EXIT_FAILURE;
    for (int r = 0; r < RANKS; r++)
        input_fill(w->in[r], COUNT, qcclFloat32, INPUT_NORMAL, 1, r);
    w->abort_step = STEPS;
    for (int residual = 0; residual < 2; residual++) {
        w->fast_codec = residual ? "int4" : "local";
        w->slow_codec = residual ? "residual int8" : "fp32";
        fail_allocations(w);
        abort_steps(w);
    }
    free(w);
    return tap_end();
}
