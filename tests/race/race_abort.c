/* Aborts from another thread, ranks that leave early and ranks that time out, at moments that vary:
 * every call ends, and the thread sanitizer sees no race.  A plain program, since Criterion cannot
 * run under that sanitizer. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/memory.h"
#include "tests/harness.h"
#include "tests/tap.h"

enum { RANKS = 4, COUNT = 5000, CALLS = 50 };

struct trouble {
    uint64_t seed;
    float in[RANKS][COUNT], out[RANKS][COUNT];
};

static void pause_us(uint64_t us)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)(us % 1000000 * 1000)}, NULL);
}

static qcclResult_t call_often(struct team *team, int rank, void *arg)
{
    struct trouble *t = arg;
    qcclResult_t result = qcclSuccess;
    for (int i = 0; i < CALLS && result == qcclSuccess; i++)
        result = qcclAllReduce(t->in[rank], t->out[rank], COUNT, qcclFloat32, qcclSum,
                               team->comm[rank], NULL);
    return result;
}

static qcclResult_t call_then_leave(struct team *team, int rank, void *arg)
{
    struct trouble *t = arg;
    qcclResult_t result = qcclSuccess;
    int calls = (int)(input_hash(t->seed, rank, 1) % 5);
    for (int i = 0; i < calls && result == qcclSuccess; i++)
        result = qcclAllReduce(t->in[rank], t->out[rank], COUNT, qcclFloat32, qcclSum,
                               team->comm[rank], NULL);
    qcclCommDestroy(team->comm[rank]);
    team->comm[rank] = NULL;
    return result;
}

struct aborter {
    struct team *team;
    uint64_t delay_us;
    int rank;
};

static void *abort_soon(void *arg)
{
    struct aborter *a = arg;
    pause_us(a->delay_us);
    qcclResult_t kept;
    qcclCommGetAsyncError(a->team->comm[a->rank], &kept);
    qcclCommAbort(a->team->comm[a->rank]);
    return NULL;
}

static bool ended_well(const struct team *team)
{
    for (int r = 0; r < RANKS; r++)
        if (team->result[r] != qcclSuccess && team->result[r] != qcclAborted &&
            team->result[r] != qcclRemoteError)
            return false;
    return true;
}

static bool open_team(struct team *team, double timeout)
{
    qcclConfig_t config = QCCL_CONFIG_INITIALIZER;
    config.policy = "int4; min=0";
    config.timeout = timeout;
    return team_open_config(team, RANKS, &config);
}

static bool abort_once(struct trouble *t, uint64_t seed)
{
    struct team team;
    pthread_t thread;
    struct aborter aborter = {
        .team = &team, .delay_us = input_hash(seed, 0, 0) % 20000, .rank = (int)(seed % RANKS)};
    if (!open_team(&team, -1) || pthread_create(&thread, NULL, abort_soon, &aborter) != 0)
        return false;
    team_run(&team, call_often, t);
    pthread_join(thread, NULL);
    bool good = ended_well(&team);
    team_close(&team);
    return good;
}

static bool leave_once(struct trouble *t, uint64_t seed)
{
    struct team team;
    t->seed = seed;
    if (!open_team(&team, seed % 2 ? -1 : 0.01))
        return false;
    team_run(&team, call_then_leave, t);
    return ended_well(&team);
}

int main(void)
{
    struct trouble *t = calloc(1, sizeof *t);
    if (!t)
        return EXIT_FAILURE;
    int aborts = 0, leaves = 0;
    for (uint64_t seed = 0; seed < 30; seed++) {
        aborts += abort_once(t, seed);
        leaves += leave_once(t, seed);
    }
    tap_ok(aborts == 30, "an abort from another thread ends every call (%d of 30)", aborts);
    tap_ok(leaves == 30, "ranks that leave or time out end every call (%d of 30)", leaves);
    tap_ok(qccl_memory_live() == 0, "no memory of the library is left");
    free(t);
    return tap_end();
}
