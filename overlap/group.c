/* Groups: calls are collected between start and end, as bundles of those that can be one message.
 *
 *   collected   A: t0  B: t0  A: t1  B: t1  A: large  B: large      (A, B: communicators)
 *   bundles     A: t0 t1    B: t0 t1    A: large    B: large
 *   started     this thread: A(t0 t1) A(large)   another one: B(t0 t1) B(large)
 *
 * Bundles are started in the order of their first calls: that order is the same on all ranks, so
 * none waits for another in a circle.  Each takes its turn then, also those that are run later. */
#include "overlap/group.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/trace.h"
#include "overlap/stream.h"
#include "overlap/submit.h"

/* The first error, and its sentence. */
struct failure {
    qcclResult_t result;
    char sentence[512];
};

struct bundle {
    struct call call; /* the first member, as a stream frees it */
    qcclStream_t stream;
    struct bundle *next;
    struct failure *failure; /* of all that are started together */
    bool has_turn;
    bool leads; /* a thread of its own, for this communicator */
    pthread_t thread;
};

static _Thread_local struct group {
    int depth;
    struct bundle *newest; /* next: the one before */
    struct failure failure;
} group;

/* An error that tells of another rank's is replaced by that one, where this thread serves both. */
static qcclResult_t keep_failure(struct failure *f, qcclResult_t result)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    if (result == qcclSuccess)
        return result;
    pthread_mutex_lock(&lock);
    if (f->result == qcclSuccess || (f->result == qcclRemoteError && result != qcclRemoteError)) {
        f->result = result;
        snprintf(f->sentence, sizeof f->sentence, "%s", qccl_last_error());
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* ------------------------------------------------------------------ bundles */

qcclResult_t qccl_bundle_add(struct bundle **bundle, const struct call *call, void *stream)
{
    struct bundle *into = *bundle ? *bundle : qccl_alloc(1, sizeof *into);
    if (!into)
        return qccl_comm_lose(
            call->comm, qccl_fail(qcclOutOfMemory, "%s: no memory to collect calls", call->name));
    if (!*bundle) {
        into->call = qccl_call_empty(call);
        into->call.execute = qccl_executor(call->comm);
        into->call.grouped = true;
        into->stream = stream;
    }
    qcclResult_t result = qccl_call_append(&into->call, call);
    if (result == qcclSuccess)
        *bundle = into;
    else if (!*bundle)
        qccl_free(into);
    return result == qcclSuccess ? result : qccl_comm_lose(call->comm, result);
}

size_t qccl_bundle_bytes(const struct bundle *bundle)
{
    return bundle ? qccl_call_bytes(&bundle->call) : 0;
}

/* ------------------------------------------------------------------ starting */

/* Whether the bundle's stream has it now; otherwise it is to be run here, or by a thread of its
 * communicator. */
static bool put(struct bundle *b)
{
    if (!qccl_may_use_threads(b->call.comm))
        return false; /* its turn comes when this thread runs it */
    if (b->stream && qccl_queue(&b->call, b->stream) == qcclSuccess)
        return true;
    qccl_call_take_turn(&b->call);
    b->has_turn = true;
    return false;
}

static void run(struct bundle *b)
{
    qcclResult_t result = b->has_turn ? qccl_call_run(&b->call) : qccl_submit(&b->call, b->stream);
    keep_failure(b->failure, result);
}

/* The first bundle of b's communicator. */
static struct bundle *leader(struct bundle *first, const struct bundle *b)
{
    while (first->call.comm != b->call.comm)
        first = first->next;
    return first;
}

static void *run_communicator(void *leader)
{
    struct bundle *first = leader;
    qccl_trace_thread("group");
    for (struct bundle *b = first; b; b = b->next)
        if (b->call.comm == first->call.comm)
            run(b);
    return NULL;
}

/* A thread for every communicator but that of the first bundle, which is this thread's. */
static void start_threads(struct bundle *first)
{
    for (struct bundle *b = first; b; b = b->next) {
        if (!b->has_turn || b->call.comm == first->call.comm || leader(first, b) != b)
            continue;
        int error = pthread_create(&b->thread, NULL, run_communicator, b);
        b->leads = !error;
        if (error)
            qccl_comm_lose(b->call.comm, qccl_fail(qcclSystemError, "qcclGroupEnd: no thread: %s",
                                                   strerror(error)));
    }
}

/* Runs bundles whose callers wait, and frees them. */
static void run_all(struct bundle *first)
{
    start_threads(first);
    for (struct bundle *b = first; b; b = b->next)
        if (!leader(first, b)->leads)
            run(b);
    for (struct bundle *b = first; b; b = b->next)
        if (b->leads)
            pthread_join(b->thread, NULL);
    for (struct bundle *b = first, *next; b; b = next) {
        next = b->next;
        qccl_call_free(&b->call);
    }
}

/* Starts bundles, the oldest first. */
static qcclResult_t start(struct bundle *oldest, struct failure *failure)
{
    struct bundle *waiting = NULL, **end = &waiting;
    for (struct bundle *b = oldest, *next; b; b = next) {
        next = b->next;
        b->next = NULL;
        b->failure = failure;
        if (put(b))
            continue;
        *end = b;
        end = &b->next;
    }
    run_all(waiting);
    return failure->result == qcclSuccess ? qcclSuccess
                                          : qccl_fail(failure->result, "%s", failure->sentence);
}

qcclResult_t qccl_bundle_start(struct bundle *bundle)
{
    struct failure failure = {.result = qcclSuccess};
    return start(bundle, &failure);
}

/* ------------------------------------------------------------------ the thread's group */

bool qccl_group_is_open(void)
{
    return group.depth > 0;
}

qcclResult_t qcclGroupStart(void)
{
    group.depth++;
    return qcclSuccess;
}

/* Whether merging the call can change nothing but how it is compressed, and is worth a copy. */
static bool may_merge(const struct call *call)
{
    enum pass_reason reason = qccl_why_pass(call->comm, &call->key);
    return (reason == PASS_NOT || reason == PASS_SMALL) && qccl_call_bytes(call) < QCCL_GROUP_BYTES;
}

static bool fits(const struct bundle *b, const struct call *call, const void *stream)
{
    return qccl_calls_alike(&b->call, call) && b->stream == stream && may_merge(call) &&
           qccl_bundle_bytes(b) < QCCL_GROUP_BYTES &&
           qccl_bundle_bytes(b) + qccl_call_bytes(call) <= QCCL_GROUP_BYTES;
}

qcclResult_t qccl_group_collect(const struct call *call, void *stream, qcclResult_t check)
{
    if (check != qcclSuccess)
        return keep_failure(&group.failure, check);
    struct bundle *last = group.newest, *alone = NULL;
    while (last && last->call.comm != call->comm)
        last = last->next;
    if (last && fits(last, call, stream))
        return keep_failure(&group.failure, qccl_bundle_add(&last, call, stream));
    RETURN_IF_FAILED(keep_failure(&group.failure, qccl_bundle_add(&alone, call, stream)));
    alone->next = group.newest;
    group.newest = alone;
    return qcclSuccess;
}

static struct bundle *reverse(struct bundle *newest)
{
    struct bundle *oldest = NULL;
    for (struct bundle *b = newest, *before; b; b = before) {
        before = b->next;
        b->next = oldest;
        oldest = b;
    }
    return oldest;
}

qcclResult_t qcclGroupEnd(void)
{
    if (!group.depth)
        return qccl_fail(qcclInvalidUsage, "qcclGroupEnd: this thread has not started a group");
    if (--group.depth)
        return qcclSuccess;
    struct group ended = group;
    group = (struct group){.depth = 0};
    return start(reverse(ended.newest), &ended.failure);
}
