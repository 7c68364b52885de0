/* DUO with an optimizer of one's own: linear regression by gradient descent with momentum on ranks
 * that are threads.
 *
 * Each rank has its own samples.  The exact gradient is what the slow reduction brings; the
 * tentative weights of the next step come from 1-bit gradients.  Beside it: the same training with
 * exact gradients, and with 1-bit gradients alone. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <qccl/qccl.h>

enum { RANKS = 4, WEIGHTS = 1024, SHARD = WEIGHTS / RANKS, SAMPLES = 256, STEPS = 60 };
enum way { EXACT, ONE_BIT, DUO };
static const float rate = 0.05f, momentum = 0.9f;

struct rank {
    enum way way;
    int rank;
    qcclComm_t fast, slow;
    float loss; /* of this rank's samples, in the end */
};

struct training {
    float weights[WEIGHTS], gradient[WEIGHTS], truth[WEIGHTS];
    float samples[SAMPLES][WEIGHTS], targets[SAMPLES];
    float master[SHARD], velocity[SHARD], reduced[SHARD];
};

static void require(qcclResult_t result)
{
    if (result == qcclSuccess)
        return;
    fprintf(stderr, "duo_momentum: %s\n", qcclGetLastError());
    exit(1);
}

/* Uniform in -1 .. 1, with a period long enough for an example. */
static float next_value(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / 8388608.0f - 1.0f;
}

static void make_data(struct training *t, int rank)
{
    uint32_t shared = 1, own = 100 + (uint32_t)rank;
    for (int i = 0; i < WEIGHTS; i++)
        t->truth[i] = next_value(&shared);
    for (int s = 0; s < SAMPLES; s++)
        for (int i = 0; i < WEIGHTS; i++) {
            t->samples[s][i] = next_value(&own) / 18.5f; /* about 1 / sqrt(WEIGHTS / 3) */
            t->targets[s] += t->samples[s][i] * t->truth[i];
        }
}

/* Mean squared error at the weights, and its gradient. */
static float learn(struct training *t)
{
    float loss = 0;
    memset(t->gradient, 0, sizeof t->gradient);
    for (int s = 0; s < SAMPLES; s++) {
        float error = -t->targets[s];
        for (int i = 0; i < WEIGHTS; i++)
            error += t->samples[s][i] * t->weights[i];
        loss += error * error / SAMPLES;
        for (int i = 0; i < WEIGHTS; i++)
            t->gradient[i] += 2 * error * t->samples[s][i];
    }
    return loss;
}

static void commit(struct training *t, const float *gradient)
{
    for (int i = 0; i < SHARD; i++) {
        t->velocity[i] = momentum * t->velocity[i] + gradient[i];
        t->master[i] -= rate * t->velocity[i];
    }
}

/* Everyone's `shard` becomes the weights. */
static void gather(struct training *t, const float *shard, qcclComm_t comm)
{
    require(qcclAllGather(shard, t->weights, SHARD, qcclFloat32, comm, NULL));
}

static void step_plain(struct training *t, qcclComm_t comm)
{
    require(qcclReduceScatter(t->gradient, t->reduced, SHARD, qcclFloat32, qcclAvg, comm, NULL));
    commit(t, t->reduced);
    gather(t, t->master, comm);
}

static void step_duo(struct training *t, qcclDuo_t duo, int step, qcclComm_t comm)
{
    const float *exact, *fast;
    require(qcclDuoReduce(duo, 0, t->gradient, NULL));
    if (step) {
        require(qcclDuoCommit(duo, 0, &exact)); /* of the step before */
        commit(t, exact);
    }
    require(qcclDuoFast(duo, 0, &fast));
    for (int i = 0; i < SHARD; i++)
        t->reduced[i] = t->master[i] - rate * (momentum * t->velocity[i] + fast[i]);
    gather(t, t->reduced, comm);
}

static void *train(void *argument)
{
    struct rank *r = argument;
    struct training *t = calloc(1, sizeof *t);
    static const size_t counts[] = {WEIGHTS};
    qcclDuoConfig_t config = {
        .size = sizeof config, .counts = counts, .nbuckets = 1, .fast = "sign1"};
    qcclDuo_t duo = NULL;
    if (!t)
        exit(1);
    make_data(t, r->rank);
    if (r->way == DUO)
        require(qcclDuoCreate(&duo, r->fast, r->slow, &config));
    for (int step = 0; step < STEPS; step++) {
        learn(t);
        if (r->way == DUO)
            step_duo(t, duo, step, r->fast);
        else
            step_plain(t, r->fast);
    }
    if (r->way == DUO) {
        const float *exact;
        require(qcclDuoCommit(duo, 0, &exact));
        commit(t, exact);
        gather(t, t->master, r->fast);
    }
    r->loss = learn(t);
    qcclDuoDestroy(duo);
    free(t);
    return NULL;
}

int main(void)
{
    static const char *const names[] = {"exact gradients", "1 bit (sign1)", "DUO, 1 bit"};
    for (int way = EXACT; way <= DUO; way++) {
        qcclComm_t fast[RANKS], slow[RANKS];
        pthread_t threads[RANKS];
        struct rank ranks[RANKS];
        qcclConfig_t config = QCCL_CONFIG_INITIALIZER;
        config.policy = way == ONE_BIT ? "reducescatter: sign1; min=0" : "none";
        require(qcclCommInitThreads(fast, RANKS, &config));
        require(qcclCommInitThreads(slow, RANKS, &config));
        for (int r = 0; r < RANKS; r++) {
            ranks[r] =
                (struct rank){.way = (enum way)way, .rank = r, .fast = fast[r], .slow = slow[r]};
            pthread_create(&threads[r], NULL, train, &ranks[r]);
        }
        float loss = 0;
        for (int r = 0; r < RANKS; r++) {
            pthread_join(threads[r], NULL);
            loss += ranks[r].loss / RANKS;
            qcclCommDestroy(fast[r]);
            qcclCommDestroy(slow[r]);
        }
        printf("%-16s loss %.6f\n", names[way], (double)loss);
    }
    return 0;
}
