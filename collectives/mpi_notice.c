/* How a rank gives up, and how it leaves, over MPI.
 *
 * Freeing a communicator while a message for it is under way would let the message meet a later
 * communicator.  So qcclCommDestroy, which is local, sends the notice "I have left" and keeps the
 * duplicate on a list; it is freed once every rank has left: in a later call that makes or
 * destroys a communicator, or at the start of MPI_Finalize, through an attribute of MPI_COMM_SELF
 * whose delete function runs there.  A duplicate that is broken may still have messages under way,
 * for ever; it is never freed. */
#include "collectives/mpi_transport.h"

#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"

enum { NOTICE_TAG = 2 };

/* How long MPI_Finalize waits for ranks that have not destroyed their communicators. */
static const double farewell_seconds = 5.0;

/* What the sends of notices read: it outlives every request. */
#define NOTICE_OF(name, value, sentence) [value] = (value),
static const int notices[] = {QCCL_RESULTS(NOTICE_OF)};
#undef NOTICE_OF
enum { NOTICES = sizeof notices / sizeof notices[0] };

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct mpi_mover *list;

/* ------------------------------------------------------------------ giving up */

/* A number that is this thread's alone while it lives. */
static uintptr_t this_thread(void)
{
    static _Thread_local char here;
    return (uintptr_t)&here;
}

void qccl_mpi_tell(struct mpi_mover *mover, qcclResult_t code)
{
    if (atomic_exchange(&mover->told, true))
        return;
    for (int hop = 1; hop < mover->nranks; hop++) {
        int peer = (mover->rank + hop) % mover->nranks;
        MPI_Isend(&notices[code], 1, MPI_INT, peer, NOTICE_TAG, mover->comm, &mover->notices[peer]);
    }
}

qcclResult_t qccl_mpi_break(struct mpi_mover *mover, qcclResult_t code)
{
    if (mover->broken)
        return mover->broken;
    mover->broken = code;
    strncpy(mover->reason, qccl_last_error(), sizeof mover->reason - 1);
    qccl_mpi_tell(mover, code);
    return code;
}

void qccl_mpi_abort(void *context)
{
    struct mpi_mover *mover = context;
    int level = MPI_THREAD_SINGLE, finalized = 0;
    atomic_store(&mover->abort_wanted, true);
    MPI_Finalized(&finalized);
    if (finalized)
        return;
    MPI_Query_thread(&level);
    bool owner = atomic_load(&mover->thread) == this_thread();
    /* Another thread may be inside MPI just now: where MPI does not allow both, that one sends the
     * notices. */
    if (owner || level == MPI_THREAD_MULTIPLE)
        qccl_mpi_tell(mover, owner && mover->broken ? mover->broken : qcclAborted);
}

qcclResult_t qccl_mpi_read_notices(struct mpi_mover *mover)
{
    for (;;) {
        MPI_Status status;
        int there = 0, notice = 0;
        RETURN_IF_FAILED(qccl_mpi_check(
            MPI_Iprobe(MPI_ANY_SOURCE, NOTICE_TAG, mover->comm, &there, &status), "MPI_Iprobe"));
        if (!there)
            return qcclSuccess;
        int peer = status.MPI_SOURCE;
        RETURN_IF_FAILED(qccl_mpi_check(
            MPI_Recv(&notice, 1, MPI_INT, peer, NOTICE_TAG, mover->comm, MPI_STATUS_IGNORE),
            "MPI_Recv"));
        if (notice != qcclSuccess) {
            /* It told everyone: no need to pass it on. */
            atomic_store(&mover->told, true);
            return qccl_fail(qcclRemoteError, "rank %d gave up: %s", peer,
                             qcclGetErrorString((qcclResult_t)notice));
        }
        if (!mover->left[peer])
            mover->nleft++;
        mover->left[peer] = true;
        mover->left_time = MPI_Wtime();
    }
}

qcclResult_t qccl_mpi_ready(struct mpi_mover *mover)
{
    if (mover->broken)
        return qccl_fail(mover->broken, "%s", mover->reason);
    atomic_store(&mover->thread, this_thread());
    if (atomic_load(&mover->abort_wanted))
        return qccl_mpi_break(
            mover, qccl_fail(qcclAborted, "rank %d aborted the communicator", mover->rank));
    qcclResult_t status = qccl_mpi_read_notices(mover);
    return status ? qccl_mpi_break(mover, status) : status;
}

/* ------------------------------------------------------------------ leaving */

/* Whether nothing more will come for a closed mover, and what it holds can be freed. */
static bool is_over(struct mpi_mover *mover)
{
    bool sent = true;
    if (!mover->broken && qccl_mpi_read_notices(mover) != qcclSuccess)
        mover->broken = qcclRemoteError;
    for (int r = 0; r < mover->nranks; r++) {
        int flag = 1;
        if (mover->notices[r] != MPI_REQUEST_NULL)
            MPI_Test(&mover->notices[r], &flag, MPI_STATUS_IGNORE);
        sent = sent && flag;
    }
    return mover->broken || (sent && mover->nleft == mover->nranks - 1);
}

/* Gives the duplicate back to MPI, unless messages may be on their way to it for ever. */
static void free_duplicate(struct mpi_mover *mover)
{
    for (int r = 0; r < mover->nranks; r++)
        if (mover->notices[r] != MPI_REQUEST_NULL)
            MPI_Request_free(&mover->notices[r]);
    if (mover->broken)
        qccl_log(QCCL_LOG_INFO, mover->rank, "a broken communicator's duplicate is not freed");
    else
        MPI_Comm_free(&mover->comm);
}

static void reap_locked(void)
{
    for (struct mpi_mover **at = &list; *at;) {
        struct mpi_mover *mover = *at;
        if (mover->closed && is_over(mover)) {
            *at = mover->next;
            free_duplicate(mover);
            qccl_mpi_mover_free(mover);
        } else {
            at = &mover->next;
        }
    }
}

void qccl_mpi_reap(void)
{
    pthread_mutex_lock(&list_lock);
    reap_locked();
    pthread_mutex_unlock(&list_lock);
}

static bool all_over(void)
{
    bool over = true;
    for (struct mpi_mover *mover = list; mover; mover = mover->next)
        over = is_over(mover) && over;
    return over;
}

/* Runs first of all in MPI_Finalize.  Communicators that were not destroyed are left here too, so
 * that the other ranks do not wait for them. */
static int say_farewell(MPI_Comm self, int keyval, void *value, void *extra)
{
    (void)self, (void)keyval, (void)value, (void)extra;
    double start = MPI_Wtime();
    pthread_mutex_lock(&list_lock);
    for (struct mpi_mover *mover = list; mover; mover = mover->next)
        if (!mover->closed) {
            qccl_log(QCCL_LOG_WARN, mover->rank, "MPI_Finalize before qcclCommDestroy");
            qccl_mpi_tell(mover, qcclSuccess);
        }
    while (!all_over() && MPI_Wtime() - start < farewell_seconds)
        sched_yield();
    for (struct mpi_mover *mover = list; mover; mover = mover->next) {
        if (!is_over(mover))
            mover->broken = qcclRemoteError;
        if (!mover->closed) {
            free_duplicate(mover);
            mover->broken = qcclInvalidUsage;
            strcpy(mover->reason, "MPI is finalized");
        }
    }
    reap_locked();
    pthread_mutex_unlock(&list_lock);
    return MPI_SUCCESS;
}

static qcclResult_t watch_locked(void)
{
    static bool watching;
    int keyval;
    if (watching)
        return qcclSuccess;
    RETURN_IF_FAILED(
        qccl_mpi_check(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, say_farewell, &keyval, NULL),
                       "MPI_Comm_create_keyval"));
    RETURN_IF_FAILED(
        qccl_mpi_check(MPI_Comm_set_attr(MPI_COMM_SELF, keyval, NULL), "MPI_Comm_set_attr"));
    watching = true;
    return qcclSuccess;
}

qcclResult_t qccl_mpi_watch_finalize(void)
{
    pthread_mutex_lock(&list_lock);
    qcclResult_t status = watch_locked();
    pthread_mutex_unlock(&list_lock);
    return status;
}

void qccl_mpi_open(struct mpi_mover *mover)
{
    pthread_mutex_lock(&list_lock);
    atomic_store(&mover->thread, this_thread());
    mover->next = list;
    list = mover;
    pthread_mutex_unlock(&list_lock);
}

static void unlink_mover(const struct mpi_mover *mover)
{
    pthread_mutex_lock(&list_lock);
    for (struct mpi_mover **at = &list; *at; at = &(*at)->next)
        if (*at == mover) {
            *at = mover->next;
            break;
        }
    pthread_mutex_unlock(&list_lock);
}

void qccl_mpi_close(void *context)
{
    struct mpi_mover *mover = context;
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized) {
        qccl_log(QCCL_LOG_WARN, mover->rank,
                 "qcclCommDestroy after MPI_Finalize: MPI is not called");
        unlink_mover(mover);
        qccl_mpi_mover_free(mover);
        return;
    }
    if (!mover->broken && atomic_load(&mover->abort_wanted))
        mover->broken = qcclAborted;
    if (mover->count > 0)
        qccl_mpi_abandon(mover);
    qccl_mpi_tell(mover, mover->broken);
    pthread_mutex_lock(&list_lock);
    mover->closed = true;
    reap_locked();
    pthread_mutex_unlock(&list_lock);
}
