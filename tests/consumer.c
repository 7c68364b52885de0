/* A program outside the tree, as C99 or C++17, against the installed header and library: two ranks
 * as threads average a vector. */
#include <qccl/qccl.h>

#include <pthread.h>
#include <stdio.h>

enum { COUNT = 20000 };

static qcclComm_t comms[2];
static float values[2][COUNT];

static void *run_rank(void *arg)
{
    int rank = *(int *)arg;
    for (int i = 0; i < COUNT; i++)
        values[rank][i] = (float)(rank + 1);
    qcclResult_t result =
        qcclAllReduce(values[rank], values[rank], COUNT, qcclFloat32, qcclAvg, comms[rank], NULL);
    if (result != qcclSuccess)
        printf("%s: %s\n", qcclGetErrorString(result), qcclGetLastError());
    return NULL;
}

int main(void)
{
    qcclConfig_t config = QCCL_CONFIG_INITIALIZER;
    int version = 0, ranks[2] = {0, 1};
    pthread_t threads[2];
    config.policy = "int8:round=nearest; min=0";
    if (qcclGetVersion(&version) != qcclSuccess || version != QCCL_VERSION)
        return 1;
    if (qcclCommInitThreads(comms, 2, &config) != qcclSuccess) {
        printf("%s\n", qcclGetLastError());
        return 1;
    }
    for (int r = 0; r < 2; r++)
        pthread_create(&threads[r], NULL, run_rank, &ranks[r]);
    for (int r = 0; r < 2; r++) {
        pthread_join(threads[r], NULL);
        qcclCommDestroy(comms[r]);
    }
    for (int i = 0; i < COUNT; i++) {
        float off = values[0][i] - 1.5f, step = 2.0f / 127 * (1 + 1.0f / 128);
        if (values[0][i] != values[1][i] || off > step || -off > step) {
            printf("value %d is %g and %g\n", i, (double)values[0][i], (double)values[1][i]);
            return 1;
        }
    }
    return 0;
}
