/* The byte mover of ranks that are threads of one process.
 *
 * A send is a note in the queue of its (sender, receiver) pair; the receiver, in its wait, copies
 * straight from the sender's buffer and ticks the note off.  One lock guards all queues of a group;
 * copies happen outside it.  Every rank sleeps on a condition of its own, so that more ranks than
 * processors do not spin. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "base/status.h"
#include "collectives/transport.h"

enum op_state { OP_OPEN, OP_COPYING, OP_DONE };

/* One message on its way.  A send's op is in its pair's queue until it is matched; a receive's only
 * in its rank's list. */
struct op {
    const void *from;
    void *to;
    size_t bytes, sent_bytes;
    int peer;
    uint64_t number;
    enum op_state state;
    struct op *next_in_queue, *next;
};

struct queue {
    struct op *first, *last;
};

struct member {
    struct group *group;
    int rank;
    pthread_cond_t changed;
    struct op *sends, *recvs; /* since the last wait, in order */
    struct op **sends_end, **recvs_end;
    uint64_t started; /* operations since the last wait */
    struct op *spare;
    bool closed;
};

struct group {
    pthread_mutex_t lock;
    int nranks, open;
    int gave_up;          /* the rank that aborted, -1: none */
    struct queue *queues; /* [sender * nranks + receiver] */
    struct member *members;
};

static struct op *new_op(struct member *m)
{
    struct op *op = m->spare;
    if (op)
        m->spare = op->next;
    else
        op = qccl_alloc(1, sizeof *op);
    if (op)
        *op = (struct op){0};
    return op;
}

static qcclResult_t isend(void *context, const void *buffer, size_t bytes, int peer)
{
    struct member *m = context;
    struct group *g = m->group;
    struct op *op = new_op(m);
    if (!op)
        return qccl_fail(qcclOutOfMemory, "no memory for a message to rank %d", peer);
    op->from = buffer;
    op->bytes = bytes;
    op->peer = peer;
    op->number = m->started++;
    *m->sends_end = op;
    m->sends_end = &op->next;
    struct queue *q = &g->queues[m->rank * g->nranks + peer];
    pthread_mutex_lock(&g->lock);
    if (q->last)
        q->last->next_in_queue = op;
    else
        q->first = op;
    q->last = op;
    pthread_cond_signal(&g->members[peer].changed);
    pthread_mutex_unlock(&g->lock);
    return qcclSuccess;
}

static qcclResult_t irecv(void *context, void *buffer, size_t bytes, int peer)
{
    struct member *m = context;
    struct op *op = new_op(m);
    if (!op)
        return qccl_fail(qcclOutOfMemory, "no memory for a message from rank %d", peer);
    op->to = buffer;
    op->bytes = bytes;
    op->peer = peer;
    op->number = m->started++;
    *m->recvs_end = op;
    m->recvs_end = &op->next;
    return qcclSuccess;
}

/* Copies the message that heads the queue of an open receive; false when none has come.  Called and
 * left with the lock held. */
static bool take_message(struct member *m, struct op *recv)
{
    struct group *g = m->group;
    struct queue *q = &g->queues[recv->peer * g->nranks + m->rank];
    struct op *send = q->first;
    if (!send)
        return false;
    q->first = send->next_in_queue;
    if (!q->first)
        q->last = NULL;
    recv->sent_bytes = send->bytes;
    if (send->bytes == recv->bytes && send->bytes) {
        send->state = OP_COPYING;
        pthread_mutex_unlock(&g->lock);
        memcpy(recv->to, send->from, recv->bytes);
        pthread_mutex_lock(&g->lock);
    }
    send->state = recv->state = OP_DONE;
    pthread_cond_signal(&g->members[recv->peer].changed);
    return true;
}

/* Takes whatever has come.  After each message the scan begins anew, since others may have come
 * meanwhile and the receives of one peer must be served in order. */
static void take_messages(struct member *m)
{
    struct op *recv = m->recvs;
    while (recv) {
        if (recv->state == OP_OPEN && take_message(m, recv))
            recv = m->recvs;
        else
            recv = recv->next;
    }
}

enum { ALL_OPS = -1 };

/* Of the operations, or of the one with this number, the first that is not done; NULL when there is
 * none. */
static const struct op *pending(const struct member *m, int64_t number)
{
    for (int list = 0; list < 2; list++)
        for (const struct op *op = list ? m->sends : m->recvs; op; op = op->next)
            if (op->state != OP_DONE && (number == ALL_OPS || op->number == (uint64_t)number))
                return op;
    return NULL;
}

static qcclResult_t check_sizes(const struct member *m)
{
    for (const struct op *op = m->recvs; op; op = op->next)
        if (op->state == OP_DONE && op->sent_bytes != op->bytes)
            return qccl_fail(qcclMismatch,
                             "rank %d sent %zu bytes where rank %d expects %zu: the calls differ",
                             op->peer, op->sent_bytes, m->rank, op->bytes);
    return qcclSuccess;
}

/* A pending operation whose peer is gone; NULL when there is none. */
static const struct op *orphan(const struct member *m)
{
    for (int list = 0; list < 2; list++)
        for (const struct op *op = list ? m->sends : m->recvs; op; op = op->next)
            if (op->state == OP_OPEN && m->group->members[op->peer].closed)
                return op;
    return NULL;
}

static struct timespec deadline_after(double seconds)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    double whole = (double)(long long)seconds;
    t.tv_sec += (time_t)whole;
    t.tv_nsec += (long)((seconds - whole) * 1e9);
    if (t.tv_nsec >= 1000000000) {
        t.tv_nsec -= 1000000000;
        t.tv_sec++;
    }
    return t;
}

/* Waits with the lock held until the operation, or all, are done or nothing more can be. */
static qcclResult_t wait_until(struct member *m, int64_t number, double timeout)
{
    struct group *g = m->group;
    struct timespec deadline = deadline_after(timeout < 0 || timeout > 1e9 ? 0 : timeout);
    for (bool late = false;;) {
        take_messages(m);
        const struct op *op = pending(m, number);
        if (!op)
            return check_sizes(m);
        if (g->gave_up >= 0)
            return qccl_fail(qcclRemoteError, "rank %d gave up", g->gave_up);
        const struct op *left = orphan(m);
        if (left)
            return qccl_fail(qcclRemoteError, "rank %d left while rank %d waits for it", left->peer,
                             m->rank);
        if (late)
            return qccl_fail(qcclRemoteError, "rank %d did not answer rank %d within %g s",
                             op->peer, m->rank, timeout);
        if (timeout < 0 || timeout > 1e9)
            pthread_cond_wait(&m->changed, &g->lock);
        else
            late = pthread_cond_timedwait(&m->changed, &g->lock, &deadline) != 0;
    }
}

/* Takes this rank's unmatched sends out of the queues and waits for the copies that are under way.
 */
static void withdraw_sends(struct member *m)
{
    struct group *g = m->group;
    for (struct op *op = m->sends; op; op = op->next) {
        struct queue *q = &g->queues[m->rank * g->nranks + op->peer];
        if (op->state == OP_OPEN)
            *q = (struct queue){0}; /* a queue holds sends of this rank since its last wait only */
        while (op->state == OP_COPYING)
            pthread_cond_wait(&m->changed, &g->lock);
    }
}

static void recycle(struct member *m)
{
    *m->sends_end = m->recvs;
    struct op **end = m->recvs ? m->recvs_end : m->sends_end;
    *end = m->spare;
    m->spare = m->sends;
    m->sends = m->recvs = NULL;
    m->sends_end = &m->sends;
    m->recvs_end = &m->recvs;
    m->started = 0;
}

static qcclResult_t wait_ops(void *context, double timeout)
{
    struct member *m = context;
    pthread_mutex_lock(&m->group->lock);
    qcclResult_t result = wait_until(m, ALL_OPS, timeout);
    if (result != qcclSuccess)
        withdraw_sends(m);
    pthread_mutex_unlock(&m->group->lock);
    recycle(m);
    return result;
}

/* Takes finished operations off the front of a list, so that it does not grow with a call. */
static void retire(struct member *m, struct op **list, struct op ***end)
{
    while (*list && (*list)->state == OP_DONE) {
        struct op *op = *list;
        *list = op->next;
        op->next = m->spare;
        m->spare = op;
    }
    if (!*list)
        *end = list;
}

static qcclResult_t wait_for_op(void *context, uint64_t number, double timeout)
{
    struct member *m = context;
    pthread_mutex_lock(&m->group->lock);
    qcclResult_t result = wait_until(m, (int64_t)number, timeout);
    if (result == qcclSuccess) {
        retire(m, &m->recvs, &m->recvs_end);
        retire(m, &m->sends, &m->sends_end);
    } else {
        withdraw_sends(m);
    }
    pthread_mutex_unlock(&m->group->lock);
    if (result != qcclSuccess)
        recycle(m);
    return result;
}

static qcclResult_t test_op(void *context, uint64_t number, int *done)
{
    struct member *m = context;
    pthread_mutex_lock(&m->group->lock);
    take_messages(m);
    *done = !pending(m, (int64_t)number);
    pthread_mutex_unlock(&m->group->lock);
    return qcclSuccess;
}

static void wake_all(struct group *g)
{
    for (int r = 0; r < g->nranks; r++)
        pthread_cond_signal(&g->members[r].changed);
}

static void abort_group(void *context)
{
    struct member *m = context;
    struct group *g = m->group;
    pthread_mutex_lock(&g->lock);
    if (g->gave_up < 0)
        g->gave_up = m->rank;
    wake_all(g);
    pthread_mutex_unlock(&g->lock);
}

static void free_group(struct group *g)
{
    for (int r = 0; r < g->nranks && g->members; r++) {
        struct member *m = &g->members[r];
        while (m->spare) {
            struct op *next = m->spare->next;
            qccl_free(m->spare);
            m->spare = next;
        }
        pthread_cond_destroy(&m->changed);
    }
    pthread_mutex_destroy(&g->lock);
    qccl_free(g->members);
    qccl_free(g->queues);
    qccl_free(g);
}

static void close_member(void *context)
{
    struct member *m = context;
    struct group *g = m->group;
    pthread_mutex_lock(&g->lock);
    m->closed = true;
    bool last = --g->open == 0;
    wake_all(g);
    pthread_mutex_unlock(&g->lock);
    if (last)
        free_group(g);
}

static struct group *new_group(int nranks)
{
    struct group *g = qccl_alloc(1, sizeof *g);
    if (!g)
        return NULL;
    size_t n = (size_t)nranks;
    g->queues = qccl_alloc(n * n, sizeof *g->queues);
    g->members = qccl_alloc(n, sizeof *g->members);
    if (!g->queues || !g->members) {
        qccl_free(g->members);
        qccl_free(g->queues);
        qccl_free(g);
        return NULL;
    }
    g->nranks = g->open = nranks;
    g->gave_up = -1;
    pthread_mutex_init(&g->lock, NULL);
    return g;
}

qcclResult_t qccl_thread_movers(struct transport *transports, int nranks)
{
    struct group *g = new_group(nranks);
    if (!g)
        return qccl_fail(qcclOutOfMemory, "no memory for the queues of %d ranks", nranks);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    for (int r = 0; r < nranks; r++) {
        struct member *m = &g->members[r];
        *m = (struct member){.group = g, .rank = r};
        m->sends_end = &m->sends;
        m->recvs_end = &m->recvs;
        pthread_cond_init(&m->changed, &monotonic);
        transports[r] = (struct transport){.mover = {.size = sizeof(qcclTransport_t),
                                                     .context = m,
                                                     .rank = r,
                                                     .nranks = nranks,
                                                     .isend = isend,
                                                     .irecv = irecv,
                                                     .wait = wait_ops,
                                                     .abort = abort_group,
                                                     .close = close_member,
                                                     .wait_for = wait_for_op,
                                                     .test = test_op}};
    }
    pthread_condattr_destroy(&monotonic);
    return qcclSuccess;
}
