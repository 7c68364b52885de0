/* Several groups of ranks at once, each with its own communicators and policy, all collectives,
 * while another thread changes the kernel row under them.  A plain program, so that the thread
 * sanitizer and valgrind can watch it. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "tests/harness.h"
#include "tests/tap.h"

enum { GROUPS = 4, RANKS = 4, ROUNDS = 3, COUNT = 3000, MESSAGE = 2000 };

static const char *const policies[GROUPS] = {
    "int4; min=0",
    "int8:hadamard=32,feedback=on gather=sr1:feedback=on intra=int4:feedback=on; min=0",
    "none",
    "sign1:group=64 gather=int2; min=0",
};
static const int nodes[RANKS] = {0, 1, 1, 0};

struct group {
    int index;
    struct team team;
    void *first[qcclNumColls]; /* results of the first round, alone */
    bool good;
    char message[MESSAGE];
};

static struct call call_of(int group, int collective)
{
    return (struct call){.collective = (qcclColl_t)collective,
                         .count = COUNT + (size_t)group,
                         .type = group % 2 ? qcclBfloat16 : qcclFloat32,
                         .op = group / 2 ? qcclAvg : qcclSum,
                         .pattern = INPUT_SPECIAL,
                         .input_seed = (uint64_t)group};
}

static qcclResult_t reset(struct team *team, int rank, void *arg)
{
    (void)arg;
    return qcclFeedbackReset(team->comm[rank]);
}

/* All collectives once; keeps the results, or compares them with those kept. */
static bool run_round(struct group *g)
{
    for (int c = 0; c < qcclNumColls; c++) {
        size_t bytes;
        struct call call = call_of(g->index, c);
        void *result = team_call(&g->team, &call, 7, &bytes, g->message, sizeof g->message);
        team_run(&g->team, reset, NULL);
        if (!result)
            return false;
        if (!g->first[c]) {
            g->first[c] = result;
            continue;
        }
        bool same = memcmp(result, g->first[c], bytes) == 0;
        free(result);
        if (!same) {
            snprintf(g->message, sizeof g->message, "collective %d gave other bits", c);
            return false;
        }
    }
    return true;
}

static void *run_group(void *arg)
{
    struct group *g = arg;
    for (int i = 0; i < ROUNDS && g->good; i++)
        g->good = run_round(g);
    return NULL;
}

static atomic_bool stop;

static void *change_row(void *arg)
{
    static const char *const rows[] = {"c", "avx2", NULL};
    const struct timespec pause = {.tv_nsec = 100000}; /* valgrind runs one thread at a time */
    for (int i = 0; !atomic_load(&stop); i++) {
        qcclSetCpu(rows[i % 3]);
        nanosleep(&pause, NULL);
    }
    return arg;
}

int main(void)
{
    struct group *groups = calloc(GROUPS, sizeof *groups);
    pthread_t threads[GROUPS], changer;
    if (!groups)
        return EXIT_FAILURE;
    setenv("QCCL_CHUNK", "256", 1); /* several rounds in flight */
    for (int i = 0; i < GROUPS; i++) {
        struct group *g = &groups[i];
        qcclConfig_t config = QCCL_CONFIG_INITIALIZER;
        config.policy = policies[i];
        config.nodes = nodes;
        config.timeout = 300;
        g->index = i;
        g->good = team_open_config(&g->team, RANKS, &config) && run_round(g);
        tap_ok(g->good, "a group with \"%s\" runs alone %s", policies[i], g->message);
    }
    pthread_create(&changer, NULL, change_row, NULL);
    for (int i = 0; i < GROUPS; i++)
        pthread_create(&threads[i], NULL, run_group, &groups[i]);
    for (int i = 0; i < GROUPS; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&stop, true);
    pthread_join(changer, NULL);
    for (int i = 0; i < GROUPS; i++) {
        tap_ok(groups[i].good, "beside the others it gives the same bits %s", groups[i].message);
        team_close(&groups[i].team);
        for (int c = 0; c < qcclNumColls; c++)
            free(groups[i].first[c]);
    }
    free(groups);
    tap_ok(qccl_memory_live() == 0, "no memory of the library is left");
    return tap_end();
}
