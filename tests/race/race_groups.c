/* Groups that run at once: threads of several ranks group calls, on streams and without, while
 * others serve all ranks of a team of their own from one thread, at varying moments with an
 * allocation that fails or an abort.  A plain program, so that the thread sanitizer and valgrind
 * can watch it. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "tests/harness.h"
#include "tests/tap.h"

enum { RANKS = 3, TENSORS = 5, COUNT = 700, ROUNDS = 6, STRIDE = 5, MOST = 2000 };

static float in[RANKS][TENSORS][COUNT];

/* What one thread serves: all ranks of a team, in one group a round. */
struct server {
    float out[RANKS][TENSORS][COUNT];
    bool succeeded;
};

static void *serve(void *argument)
{
    struct server *s = argument;
    struct team team;
    s->succeeded = team_open(&team, RANKS, "int4; min=0");
    for (int round = 0; s->succeeded && round < ROUNDS; round++) {
        qcclGroupStart();
        for (int t = 0; t < TENSORS; t++)
            for (int r = 0; r < RANKS; r++)
                qcclAllReduce(in[r][t], s->out[r][t], COUNT, qcclFloat32, qcclAvg, team.comm[r],
                              NULL);
        s->succeeded = qcclGroupEnd() == qcclSuccess;
    }
    team_close(&team);
    return NULL;
}

static void serve_at_once(void)
{
    pthread_t threads[2];
    struct server *servers = calloc(2, sizeof *servers);
    for (int i = 0; servers && i < 2; i++)
        pthread_create(&threads[i], NULL, serve, &servers[i]);
    for (int i = 0; servers && i < 2; i++)
        pthread_join(threads[i], NULL);
    tap_ok(servers && servers[0].succeeded && servers[1].succeeded &&
               memcmp(servers[0].out, servers[1].out, sizeof servers[0].out) == 0,
           "two threads that serve three ranks each get the same bits");
    free(servers);
}

/* A rank's rounds: a group on a stream, one without, a bucketer on the stream. */
struct work {
    float out[RANKS][3][TENSORS][COUNT];
    int abort_round; /* rank 0 aborts there; ROUNDS: nowhere */
};

static qcclResult_t group(int rank, float (*out)[COUNT], qcclComm_t comm, qcclStream_t stream)
{
    qcclGroupStart();
    for (int t = 0; t < TENSORS; t++)
        qcclAllReduce(in[rank][t], out[t], COUNT, qcclFloat32, qcclAvg, comm, stream);
    return qcclGroupEnd();
}

static qcclResult_t fill(int rank, float (*out)[COUNT], qcclComm_t comm, qcclStream_t stream)
{
    qcclBucketer_t b = NULL;
    qcclResult_t result =
        qcclBucketerCreate(&b, comm, 2 * COUNT * sizeof(float), qcclFloat32, qcclAvg, stream);
    for (int t = 0; t < TENSORS && result == qcclSuccess; t++)
        result = qcclBucketerAdd(b, in[rank][t], out[t], COUNT);
    qcclResult_t left = qcclBucketerDestroy(b);
    return result == qcclSuccess ? left : result;
}

static qcclResult_t run_rounds(struct team *team, int rank, void *arg)
{
    struct work *w = arg;
    qcclComm_t comm = team->comm[rank];
    qcclStream_t stream = NULL;
    qcclResult_t result = qcclStreamCreate(&stream, 0);
    for (int round = 0; round < ROUNDS && result == qcclSuccess; round++) {
        result = group(rank, w->out[rank][0], comm, stream);
        if (rank == 0 && round == w->abort_round)
            qcclCommAbort(comm);
        if (result == qcclSuccess)
            result = group(rank, w->out[rank][1], comm, NULL);
        if (result == qcclSuccess)
            result = fill(rank, w->out[rank][2], comm, stream);
    }
    if (result != qcclSuccess)
        qcclCommAbort(comm);
    qcclResult_t left = qcclStreamDestroy(stream);
    return result == qcclSuccess ? left : result;
}

/* Whether all ranks succeeded. */
static bool run_once_with(struct work *w, long failing_allocation)
{
    struct team team;
    if (!team_open(&team, RANKS, "int4; min=0"))
        return false;
    qccl_memory_fail_after(failing_allocation);
    bool succeeded = team_run(&team, run_rounds, w);
    qccl_memory_fail_after(0);
    team_close(&team);
    return succeeded;
}

int main(void)
{
    struct work *w = calloc(1, sizeof *w);
    if (!w)
        return EXIT_FAILURE;
    for (int r = 0; r < RANKS; r++)
        for (int t = 0; t < TENSORS; t++)
            input_fill(in[r][t], COUNT, qcclFloat32, INPUT_NORMAL, (uint64_t)t, r);
    serve_at_once();
    w->abort_round = ROUNDS;
    bool succeeded = run_once_with(w, 0);
    bool same = memcmp(w->out[0], w->out[1], sizeof w->out[0]) == 0;
    tap_ok(succeeded && same, "groups and buckets on a stream and without give equal ranks");
    long n = 1;
    while (n < MOST && !run_once_with(w, n))
        n += STRIDE;
    tap_ok(n > 1 && n < MOST, "allocations that fail end them until none does");
    bool ended = true;
    for (w->abort_round = 0; w->abort_round < ROUNDS; w->abort_round++)
        ended = !run_once_with(w, 0) && ended;
    tap_ok(ended, "an abort ends them in any round");
    tap_ok(qccl_memory_live() == 0, "no memory is left");
    free(w);
    return tap_end();
}
