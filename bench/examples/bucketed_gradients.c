/* The gradients of many small tensors, averaged one by one and in buckets.
 *
 * A backward pass finishes tensors from the last layer to the first.  A bucketer collects them and
 * starts an all-reduce whenever enough bytes have come together, on a stream, while the pass goes
 * on.  Four ranks, which are threads of this process. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "qccl/qccl.h"

enum { RANKS = 4, LAYERS = 24, TENSORS = 6 * LAYERS, STEPS = 20, BUCKET_BYTES = 1 << 20 };

/* Of a layer of width 64, in the order of the backward pass. */
static const size_t counts[6] = {64, 4 * 64 * 64, 4 * 64 * 64, 64, 64 * 64, 3 * 64 * 64};

struct rank {
    qcclComm_t comm;
    qcclStream_t stream;
    float *gradients[TENSORS];
    double seconds[2]; /* one by one, in buckets */
    uint64_t calls[2];
};

static void check(qcclResult_t result)
{
    if (result == qcclSuccess)
        return;
    fprintf(stderr, "qccl: %s\n", qcclGetLastError());
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void one_by_one(struct rank *r)
{
    for (int t = 0; t < TENSORS; t++)
        check(qcclAllReduce(r->gradients[t], r->gradients[t], counts[t % 6], qcclFloat32, qcclAvg,
                            r->comm, r->stream));
}

static void in_buckets(struct rank *r, qcclBucketer_t bucketer)
{
    for (int t = 0; t < TENSORS; t++)
        check(qcclBucketerAdd(bucketer, r->gradients[t], r->gradients[t], counts[t % 6]));
    check(qcclBucketerFlush(bucketer)); /* the last bucket is rarely full */
}

static void *run_rank(void *argument)
{
    struct rank *r = argument;
    qcclBucketer_t bucketer;
    check(qcclStreamCreate(&r->stream, 0));
    check(qcclBucketerCreate(&bucketer, r->comm, BUCKET_BYTES, qcclFloat32, qcclAvg, r->stream));
    for (int t = 0; t < TENSORS; t++) {
        r->gradients[t] = calloc(counts[t % 6], sizeof(float));
        if (!r->gradients[t])
            exit(1);
        for (size_t i = 0; i < counts[t % 6]; i++)
            r->gradients[t][i] = (float)(i % 7) - 3;
    }
    for (int way = 0; way < 2; way++) {
        double begin = now();
        for (int step = 0; step < STEPS; step++) {
            if (way)
                in_buckets(r, bucketer);
            else
                one_by_one(r);
            check(qcclStreamSynchronize(r->stream)); /* then the optimizer would run */
        }
        r->seconds[way] = now() - begin;
        qcclStats_t stats = {.size = sizeof stats};
        check(qcclCommGetStats(r->comm, &stats));
        r->calls[way] = stats.calls + stats.passed - (way ? r->calls[0] : 0);
    }
    check(qcclBucketerDestroy(bucketer));
    check(qcclStreamDestroy(r->stream));
    for (int t = 0; t < TENSORS; t++)
        free(r->gradients[t]);
    return NULL;
}

int main(void)
{
    static const char *const ways[] = {"one by one", "in buckets"};
    static struct rank ranks[RANKS];
    qcclComm_t comms[RANKS];
    pthread_t threads[RANKS];
    check(qcclCommInitThreads(comms, RANKS, NULL));
    for (int r = 0; r < RANKS; r++) {
        ranks[r].comm = comms[r];
        if (pthread_create(&threads[r], NULL, run_rank, &ranks[r]) != 0)
            return 1;
    }
    for (int r = 0; r < RANKS; r++)
        pthread_join(threads[r], NULL);
    for (int way = 0; way < 2; way++)
        printf("%s: %d tensors in %llu calls, %.2f ms a step\n", ways[way], TENSORS,
               (unsigned long long)ranks[0].calls[way] / STEPS,
               ranks[0].seconds[way] / STEPS * 1e3);
    for (int r = 0; r < RANKS; r++)
        check(qcclCommDestroy(comms[r]));
    return 0;
}
