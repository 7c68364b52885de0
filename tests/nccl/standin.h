/* A small NCCL on the host, for tests: ranks are threads or devices of one process, buffers are
 * ordinary memory, streams are ignored.
 *
 * A collective runs when every rank of its communicator has posted it.  Outside a group a call
 * waits for that; inside, calls are posted when the outermost group ends, and handles of new
 * communicators are written then.  A rank that waits 20 seconds gets ncclRemoteError.
 * Non-blocking communicators return ncclInProgress and are asked by ncclCommGetAsyncError.
 *
 *     STANDIN_FAIL=ncclAllReduce=3    that function returns that result
 *     STANDIN_ASYNC=6                 what ncclCommGetAsyncError reports */
#ifndef QCCL_TESTS_NCCL_STANDIN_H
#define QCCL_TESTS_NCCL_STANDIN_H

#include <nccl.h>
#include <stdbool.h>

enum { STANDIN_RANKS = 8, STANDIN_OPS = 8 };

enum kind { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, SPLIT };

/* One rank's part of a collective, and what a split gives and gets. */
struct part {
    struct part *next;
    ncclComm_t comm;
    enum kind kind;
    const void *send;
    void *recv;
    size_t count;
    ncclDataType_t type;
    int op, root, color, key;
    ncclComm_t *slot;
};

/* What the ranks of a communicator share. */
struct world {
    struct world *next;
    long id;
    int nranks, joined;
    ncclComm_t comms[STANDIN_RANKS];
};

struct ncclComm {
    struct world *world;
    int rank, polls, shrinks;
    bool blocking, aborted;
    struct part *parts; /* posted and not run, in order */
    double scalars[STANDIN_OPS];
    bool made[STANDIN_OPS];
};

/* standin_run.c, for who has the lock: appends a part, and runs what all ranks have posted. */
void standin_post(struct part *part);
struct world *standin_world(long id, int nranks);
/* A communicator of a world, ready when all have joined. */
ncclComm_t standin_join(struct world *world, int rank, bool blocking);

#endif
