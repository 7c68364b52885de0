/* Streams, events, turns and DUO at once: several streams a rank, calls of one communicator from
 * all of them, host and slow stream beside each other, an abort while work is queued.  A plain
 * program, so that the thread sanitizer and valgrind can watch it. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "tests/harness.h"
#include "tests/tap.h"

enum { RANKS = 3, COUNT = 3 * 2000, SHARD = COUNT / RANKS, STREAMS = 3, ROUNDS = 4, PUTS = 500 };

struct work {
    struct team slow, single;
    qcclStream_t shared;
    float in[RANKS][STREAMS][COUNT], out[RANKS][STREAMS][COUNT];
    float exact[RANKS][SHARD];
};

static qcclResult_t run_streams(struct team *team, int rank, struct work *w, qcclStream_t *streams,
                                qcclEvent_t event)
{
    for (int round = 0; round < ROUNDS; round++) {
        for (int s = 0; s < STREAMS; s++) {
            RETURN_IF_FAILED(qcclAllReduce(w->in[rank][s], w->out[rank][s], COUNT, qcclFloat32,
                                           qcclAvg, team->comm[rank], streams[s]));
            RETURN_IF_FAILED(qcclEventRecord(event, streams[s]));
            RETURN_IF_FAILED(qcclStreamWaitEvent(streams[(s + 1) % STREAMS], event));
        }
        qcclStats_t stats = {.size = sizeof stats};
        RETURN_IF_FAILED(qcclCommGetStats(team->comm[rank], &stats)); /* beside the workers */
    }
    for (int s = 0; s < STREAMS; s++)
        RETURN_IF_FAILED(qcclStreamSynchronize(streams[s]));
    return qcclSuccess;
}

static qcclResult_t use_streams(struct team *team, int rank, void *arg)
{
    qcclStream_t streams[STREAMS] = {NULL};
    qcclEvent_t event = NULL;
    qcclResult_t result = qcclEventCreate(&event);
    for (int s = 0; s < STREAMS && result == qcclSuccess; s++)
        result = qcclStreamCreate(&streams[s], s);
    if (result == qcclSuccess)
        result = run_streams(team, rank, arg, streams, event);
    for (int s = 0; s < STREAMS; s++)
        qcclStreamDestroy(streams[s]);
    qcclEventDestroy(event);
    return result;
}

static qcclResult_t run_duo(struct team *team, int rank, struct work *w, qcclDuo_t duo,
                            qcclStream_t stream)
{
    const float *shard;
    for (int round = 0; round < ROUNDS; round++) {
        RETURN_IF_FAILED(qcclDuoReduce(duo, 0, w->in[rank][0], stream));
        if (round)
            RETURN_IF_FAILED(qcclDuoCommit(duo, 0, &shard));
        RETURN_IF_FAILED(qcclDuoFast(duo, 0, &shard));
        /* Fast traffic beside the slow reduction. */
        RETURN_IF_FAILED(qcclAllReduce(w->in[rank][1], w->out[rank][1], COUNT, qcclFloat32, qcclSum,
                                       team->comm[rank], stream));
    }
    RETURN_IF_FAILED(qcclDuoCommit(duo, 0, &shard));
    memcpy(w->exact[rank], shard, sizeof w->exact[rank]);
    return qcclStreamSynchronize(stream);
}

static qcclResult_t use_duo(struct team *team, int rank, void *arg)
{
    static const size_t counts[] = {COUNT};
    struct work *w = arg;
    qcclDuo_t duo = NULL;
    qcclStream_t stream = NULL;
    qcclDuoConfig_t config = {.size = sizeof config,
                              .counts = counts,
                              .nbuckets = 1,
                              .fast = "sign1",
                              .late = qcclDuoDrop};
    qcclResult_t result = qcclStreamCreate(&stream, 0);
    if (result == qcclSuccess)
        result = qcclDuoCreate(&duo, team->comm[rank], w->slow.comm[rank], &config);
    if (result == qcclSuccess)
        result = run_duo(team, rank, w, duo, stream);
    qcclStreamDestroy(stream);
    qcclDuoDestroy(duo);
    return result;
}

/* Rank 0 makes one call more than the others, which only an abort can end: the communicators
 * wait for ever. */
static qcclResult_t abort_queued(struct team *team, int rank, void *arg)
{
    struct work *w = arg;
    qcclStream_t stream;
    RETURN_IF_FAILED(qcclStreamCreate(&stream, 0));
    for (int i = 0; i < (rank ? ROUNDS - 1 : ROUNDS); i++)
        qcclAllReduce(w->in[rank][0], w->out[rank][0], COUNT, qcclFloat32, qcclAvg,
                      team->comm[rank], stream);
    if (rank == 0)
        qcclCommAbort(team->comm[0]);
    return qcclStreamDestroy(stream);
}

/* Whether the aborting rank says so and the others were told, unless they had finished. */
static bool aborted(const struct team *team)
{
    bool told = team->result[0] == qcclAborted;
    for (int r = 1; r < RANKS; r++)
        told = told && (team->result[r] == qcclSuccess || team->result[r] == qcclRemoteError);
    return told;
}

/* Threads that put calls of one communicator, of a single rank, on one stream: would a call get its
 * turn before another one but its place behind it, they would wait for each other. */
static qcclResult_t put_on_shared(struct team *team, int rank, void *arg)
{
    struct work *w = arg;
    (void)team;
    for (int i = 0; i < PUTS; i++)
        RETURN_IF_FAILED(qcclAllReduce(&w->in[rank][0][i], &w->out[rank][0][i], 1, qcclFloat32,
                                       qcclSum, w->single.comm[0], w->shared));
    return qcclSuccess;
}

static void check_shared(struct team *team, struct work *w)
{
    memset(w->out, 0, sizeof w->out);
    bool ended = team_open(&w->single, 1, "none") &&
                 qcclStreamCreate(&w->shared, 0) == qcclSuccess &&
                 team_run(team, put_on_shared, w) && qcclStreamDestroy(w->shared) == qcclSuccess;
    for (int r = 0; r < RANKS; r++)
        ended = ended && memcmp(w->out[r][0], w->in[r][0], PUTS * sizeof(float)) == 0;
    tap_ok(ended, "threads that put calls of one communicator on one stream do not block it");
    team_close(&w->single);
}

int main(void)
{
    struct team team;
    qcclConfig_t config = QCCL_CONFIG_INITIALIZER;
    config.policy = "int4; min=0";
    config.timeout = -1;
    struct work *w = calloc(1, sizeof *w);
    if (!w)
        return EXIT_FAILURE;
    for (int r = 0; r < RANKS; r++)
        for (int s = 0; s < STREAMS; s++)
            input_fill(w->in[r][s], COUNT, qcclFloat32, INPUT_NORMAL, (uint64_t)s, r);
    tap_ok(team_open_config(&team, RANKS, &config) && team_run(&team, use_streams, w),
           "calls on three streams a rank end");
    bool same = true;
    for (int r = 1; r < RANKS; r++)
        same = same && memcmp(w->out[r], w->out[0], sizeof w->out[0]) == 0;
    tap_ok(same, "with the same bits on every rank");
    tap_ok(team_open(&w->slow, RANKS, "none") && team_run(&team, use_duo, w),
           "fast and slow reductions run beside each other");
    check_shared(&team, w);
    team_run(&team, abort_queued, w);
    tap_ok(aborted(&team), "an abort ends what is queued");
    team_close(&w->slow);
    team_close(&team);
    free(w);
    tap_ok(qccl_memory_live() == 0, "no memory of the library is left");
    return tap_end();
}
