/* An allreduce between four threads of one process, at 4 bits a value, and what that did to the
 * sum.
 *
 * The smallest complete program: communicators for all ranks are made once, then every rank calls
 * the collective from a thread of its own.  Run it with QCCL_POLICY set to try another codec. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "qccl/qccl.h"

enum { RANKS = 4, COUNT = 1 << 20 };
static qcclComm_t comms[RANKS];
static float gradients[RANKS][COUNT], results[RANKS][COUNT];

static void check(qcclResult_t result)
{
    if (result == qcclSuccess)
        return;
    fprintf(stderr, "qccl: %s\n", qcclGetLastError());
    exit(1);
}

static void *run_rank(void *argument)
{
    size_t rank = (size_t)((float(*)[COUNT])argument - gradients);
    for (size_t i = 0; i < COUNT; i++)
        gradients[rank][i] = sinf((float)i * 0.37f + (float)rank);
    check(qcclAllReduce(gradients[rank], results[rank], COUNT, qcclFloat32, qcclSum, comms[rank],
                        NULL));
    return NULL;
}

/* |result - sum| / |sum|, with the sum in double precision. */
static double relative_error(const float *result)
{
    double energy = 0, error = 0;
    for (size_t i = 0; i < COUNT; i++) {
        double sum = 0;
        for (int r = 0; r < RANKS; r++)
            sum += gradients[r][i];
        energy += sum * sum;
        error += (result[i] - sum) * (result[i] - sum);
    }
    return sqrt(error / energy);
}

int main(void)
{
    pthread_t threads[RANKS];
    check(qcclCommInitThreads(comms, RANKS, NULL));
    for (int r = 0; r < RANKS; r++)
        if (pthread_create(&threads[r], NULL, run_rank, gradients[r]) != 0)
            return 1;
    for (int r = 0; r < RANKS; r++)
        pthread_join(threads[r], NULL);

    qcclStats_t stats = {.size = sizeof stats};
    check(qcclCommGetStats(comms[0], &stats));
    printf("rank 0 sent %llu bytes instead of %llu\n", (unsigned long long)stats.wire_bytes,
           (unsigned long long)stats.raw_bytes);
    printf("relative error of the sum: %.3g\n", relative_error(results[0]));
    for (int r = 0; r < RANKS; r++)
        check(qcclCommDestroy(comms[r]));
    return 0;
}
