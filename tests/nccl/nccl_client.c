/* A program that uses NCCL and knows nothing of the library: what it gets, it prints.
 *
 *     nccl_client all|results     every kind of call; what some calls return
 *
 * Devices are ranks of one thread, in groups, or threads with a rank each.  Also built as a plugin,
 * with plugin_run in the place of main. */
#include <nccl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int plugin_run(void);

enum { COUNT = 5000, RANKS = 3 };

static void check(ncclResult_t result, const char *what)
{
    if (result == ncclSuccess || result == ncclInProgress)
        return;
    printf("%s: %d %s\n", what, (int)result, ncclGetErrorString(result));
    fflush(stdout);
    exit(1);
}

static void show(const char *what, const float *values, size_t count)
{
    unsigned hash = 2166136261u;
    for (size_t i = 0; i < count * sizeof *values; i++)
        hash = (hash ^ ((const unsigned char *)values)[i]) * 16777619u;
    printf("%s: %g %g %08x\n", what, (double)values[0], (double)values[count - 1], hash);
}

static float value(int rank, size_t i)
{
    return (float)((i * 37 + (size_t)rank * 11) % 1001) / 1001.0f;
}

static float *filled(int rank, size_t count)
{
    float *values = calloc(count, sizeof *values);
    for (size_t i = 0; i < count; i++)
        values[i] = value(rank, i);
    return values;
}

/* ------------------------------------------------------------------ devices of one thread */

/* Two communicators of two devices each, in one group, after their making in one. */
static void devices(void)
{
    ncclComm_t comms[4];
    ncclUniqueId ids[2];
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    float *in[4], *out[4];
    config.commName = "pair";
    for (int c = 0; c < 2; c++)
        check(ncclGetUniqueId(&ids[c]), "ncclGetUniqueId");
    check(ncclGroupStart(), "ncclGroupStart");
    for (int i = 0; i < 4; i++)
        check(ncclCommInitRankConfig(&comms[i], 2, ids[i / 2], i % 2, &config), "in group");
    check(ncclGroupEnd(), "ncclGroupEnd");
    check(ncclGroupStart(), "ncclGroupStart");
    check(ncclGroupStart(), "ncclGroupStart");
    for (int i = 0; i < 4; i++) {
        in[i] = filled(i, COUNT);
        out[i] = calloc(COUNT, sizeof *out[i]);
        check(ncclAllReduce(in[i], out[i], COUNT, ncclFloat, ncclSum, comms[i], NULL), "in group");
        check(ncclAllReduce(out[i], out[i], 1, ncclFloat, ncclMax, comms[i], NULL), "in group");
    }
    check(ncclGroupEnd(), "ncclGroupEnd");
    printf("before the group ends: %g\n", (double)out[0][1]);
    check(ncclGroupEnd(), "ncclGroupEnd");
    for (int i = 0; i < 4; i++) {
        show("device", out[i], COUNT);
        check(ncclCommDestroy(comms[i]), "ncclCommDestroy");
        free(in[i]);
        free(out[i]);
    }
}

/* A communicator of one rank, of a program too old for names, and a group that is only simulated;
 * then another communicator, made by the strong name, which may have the address of the first. */
static void alone(void)
{
    ncclComm_t comm;
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    float in[4] = {1, 2, 3, 4}, out[4] = {0};
    config.size = offsetof(ncclConfig_t, commName);
    config.commName = "unseen";
    check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    check(ncclCommInitRankConfig(&comm, 1, id, 0, &config), "ncclCommInitRankConfig");
    check(ncclAllGather(in, out, 4, ncclFloat, comm, NULL), "ncclAllGather");
    show("alone", out, 4);
    check(ncclGroupStart(), "ncclGroupStart");
    check(ncclAllReduce(in, out, 1, ncclFloat, ncclSum, comm, NULL), "simulated");
    check(ncclGroupSimulateEnd(&info), "ncclGroupSimulateEnd");
    check(ncclAllReduce(out, out, 4, ncclFloat, ncclSum, comm, NULL), "after it");
    printf("simulated: %g seconds, then %g\n", (double)info.estimatedTime, (double)out[3]);
    check(ncclCommAbort(comm), "ncclCommAbort");
    check(pncclCommInitAll(&comm, 1, NULL), "pncclCommInitAll");
    check(ncclAllReduce(in, out, 4, ncclFloat, ncclSum, comm, NULL), "another");
    check(ncclCommDestroy(comm), "ncclCommDestroy");
}

/* ------------------------------------------------------------------ a rank a thread */

struct rank {
    int rank;
    ncclUniqueId id, slow_id;
    float *sum, *average, *scaled, *part, *all, *tiny, *half, *rest, *late;
    int answers[5];
    bool polled;
};

static void collectives(struct rank *r, ncclComm_t comm)
{
    ncclRedOp_t scaled;
    float scalar = 0.5f, *in = filled(r->rank, COUNT * RANKS);
    check(ncclAllReduce(in, r->sum, COUNT, ncclFloat, ncclSum, comm, NULL), "sum");
    check(ncclAllReduce(in, r->average, COUNT, ncclFloat, ncclAvg, comm, NULL), "average");
    check(ncclRedOpCreatePreMulSum(&scaled, &scalar, ncclFloat, ncclScalarHostImmediate, comm),
          "ncclRedOpCreatePreMulSum");
    check(ncclAllReduce(in, r->scaled, COUNT, ncclFloat, scaled, comm, NULL), "scaled");
    check(ncclRedOpDestroy(scaled, comm), "ncclRedOpDestroy");
    r->answers[4] = ncclAllReduce(in, r->scaled, COUNT, ncclFloat, scaled, comm, NULL);
    check(ncclReduceScatter(in, r->part, COUNT, ncclFloat, ncclSum, comm, NULL), "part");
    memcpy(r->all + (size_t)r->rank * COUNT, in, COUNT * sizeof *in);
    check(ncclAllGather(r->all + (size_t)r->rank * COUNT, r->all, COUNT, ncclFloat, comm, NULL),
          "all in place");
    check(ncclAllReduce(in, r->tiny, 1, ncclFloat, ncclSum, comm, NULL), "tiny");
    check(ncclAllReduce(in, r->tiny + 1, 1, ncclInt, ncclSum, comm, NULL), "integers");
    free(in);
}

/* Communicators from others: halves by parity, and all but rank 1. */
static void families(struct rank *r, ncclComm_t comm)
{
    ncclComm_t half, rest = NULL;
    int excluded = 1;
    float *in = filled(r->rank, COUNT);
    check(ncclCommSplit(comm, r->rank % 2, -r->rank, &half, NULL), "ncclCommSplit");
    check(ncclAllReduce(in, r->half, COUNT, ncclFloat, ncclSum, half, NULL), "half");
    if (r->rank != excluded) {
        check(ncclCommShrink(comm, &excluded, 1, &rest, NULL, NCCL_SHRINK_DEFAULT),
              "ncclCommShrink");
        check(ncclAllReduce(in, r->rest, COUNT, ncclFloat, ncclSum, rest, NULL), "rest");
        check(ncclCommRevoke(rest, NCCL_REVOKE_DEFAULT), "ncclCommRevoke");
        r->answers[0] = ncclAllReduce(in, r->rest, 1, ncclFloat, ncclSum, rest, NULL);
        check(ncclCommDestroy(rest), "ncclCommDestroy");
    }
    check(ncclCommDestroy(half), "ncclCommDestroy");
    free(in);
}

static void poll_it(struct rank *r, ncclComm_t comm)
{
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
        check(ncclCommGetAsyncError(comm, &state), "ncclCommGetAsyncError");
        r->polled = r->polled || state == ncclInProgress;
    }
    check(state, "state");
}

/* A communicator that does not block, with a name. */
static void slow(struct rank *r)
{
    ncclComm_t comm;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    float *in = filled(r->rank, COUNT);
    config.blocking = 0;
    config.commName = "slow";
    r->answers[1] = ncclCommInitRankConfig(&comm, RANKS, r->slow_id, r->rank, &config);
    poll_it(r, comm);
    r->answers[2] = ncclAllReduce(in, r->late, COUNT, ncclFloat, ncclSum, comm, NULL);
    poll_it(r, comm);
    check(ncclCommFinalize(comm), "ncclCommFinalize");
    poll_it(r, comm);
    check(ncclAllReduce(in, in, 1, ncclFloat, ncclSum, comm, NULL), "after the end");
    poll_it(r, comm);
    r->answers[3] = ncclCommDestroy(comm);
    free(in);
}

static void *thread(void *arg)
{
    struct rank *r = arg;
    ncclComm_t comm;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    float **const buffers[] = {&r->sum,  &r->average, &r->scaled, &r->part, &r->all,
                               &r->tiny, &r->half,    &r->rest,   &r->late};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        *buffers[i] = calloc(COUNT * RANKS, sizeof **buffers[i]);
    config.commName = "world";
    check(ncclCommInitRankScalable(&comm, RANKS, r->rank, 1, &r->id, &config),
          "ncclCommInitRankScalable");
    collectives(r, comm);
    families(r, comm);
    check(ncclCommDestroy(comm), "ncclCommDestroy");
    slow(r);
    return NULL;
}

static void threads(void)
{
    struct rank ranks[RANKS] = {0};
    pthread_t ids[RANKS];
    check(ncclGetUniqueId(&ranks[0].id), "ncclGetUniqueId");
    check(ncclGetUniqueId(&ranks[0].slow_id), "ncclGetUniqueId");
    for (int r = 0; r < RANKS; r++) {
        ranks[r].rank = r;
        ranks[r].id = ranks[0].id;
        ranks[r].slow_id = ranks[0].slow_id;
        pthread_create(&ids[r], NULL, thread, &ranks[r]);
    }
    for (int r = 0; r < RANKS; r++) {
        struct rank *one = &ranks[r];
        pthread_join(ids[r], NULL);
        const struct {
            const char *name;
            float *values;
        } shown[] = {
            {.name = "sum", .values = one->sum},     {.name = "avg", .values = one->average},
            {.name = "made", .values = one->scaled}, {.name = "part", .values = one->part},
            {.name = "all", .values = one->all},     {.name = "tiny", .values = one->tiny},
            {.name = "half", .values = one->half},   {.name = "rest", .values = one->rest},
            {.name = "late", .values = one->late}};
        for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
            show(shown[i].name, shown[i].values, COUNT * RANKS);
            free(shown[i].values);
        }
        printf("rank %d: answers %d %d %d %d %d%s\n", r, one->answers[0], one->answers[1],
               one->answers[2], one->answers[3], one->answers[4], one->polled ? ", polled" : "");
    }
}

/* ------------------------------------------------------------------ what calls return */

static int results(void)
{
    ncclComm_t comm = NULL;
    ncclResult_t state = ncclSuccess;
    float one[1] = {1};
    int version = 0;
    printf("ncclGetVersion %d", (int)ncclGetVersion(&version));
    printf(" %d\n", version);
    int made = ncclCommInitAll(&comm, 1, NULL);
    printf("ncclCommInitAll %d\n", made);
    printf("ncclGroupEnd %d\n", (int)ncclGroupEnd());
    if (made != ncclSuccess)
        return 1;
    printf("ncclAllReduce %d\n", (int)ncclAllReduce(one, one, 1, ncclFloat, ncclSum, comm, NULL));
    printf("ncclAllReduce without communicator %d\n",
           (int)ncclAllReduce(one, one, 1, ncclFloat, ncclSum, NULL, NULL));
    printf("ncclCommGetAsyncError %d", (int)ncclCommGetAsyncError(comm, &state));
    printf(" %d\n", (int)state);
    printf("ncclReduceScatter %d\n",
           (int)ncclReduceScatter(one, one, 1, ncclFloat, ncclSum, comm, NULL));
    printf("ncclCommRevoke %d\n", (int)ncclCommRevoke(comm, 0));
    printf("ncclCommDestroy %d\n", (int)ncclCommDestroy(comm));
    return 0;
}

static int all(void)
{
    devices();
    alone();
    threads();
    return 0;
}

int plugin_run(void)
{
    return all();
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "all") == 0)
        return all();
    if (argc == 2 && strcmp(argv[1], "results") == 0)
        return results();
    fprintf(stderr, "nccl_client all|results\n");
    return 2;
}
