/* Bytes between ranks over MPI: MPI_Isend and MPI_Irecv, and a wait that yields, looks for notices
 * and gives up in time.
 *
 * The wait polls, since MPI has no wait with a time limit; it leaves the processor to others when
 * nothing arrives, because ranks may share cores.  Messages longer than an int are sent in pieces;
 * the last piece is always shorter than the limit, maybe empty, so that two ranks that disagree
 * about a length always notice. */
#include "collectives/mpi_transport.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"

enum { DATA_TAG = 1, FIRST_CAPACITY = 16 };

/* A pass that finds nothing takes about 0.2 us, with sockets 1 us.  Every CHECK_PASSES of them the
 * clock is looked at and the core is offered to others; after SLEEP_SECONDS without an arrival it
 * is left for some microseconds.  A mover with a nap leaves it at once.  Notices, and all requests
 * for errors, are looked at every LOOK_SECONDS. */
enum { CHECK_PASSES = 32 };
static const double sleep_seconds = 0.02, look_seconds = 0.0005;
/* What a rank sent before it left has arrived, or arrives within this time. */
static const double leave_seconds = 0.25;
/* How long transfers that have begun may take to end after an error. */
static const double abandon_seconds = 0.1;

static atomic_size_t limit_set;

size_t qccl_mpi_limit(void)
{
    size_t limit = atomic_load(&limit_set);
    return limit ? limit : (size_t)1 << 30;
}

void qccl_mpi_set_limit(size_t limit)
{
    atomic_store(&limit_set, limit);
}

qcclResult_t qccl_mpi_check(int error, const char *call)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (error == MPI_SUCCESS)
        return qcclSuccess;
    MPI_Error_string(error, text, &length);
    return qccl_fail(qcclSystemError, "%s: %s", call, text);
}

/* ------------------------------------------------------------------ starting messages */

/* Makes the arrays hold at least one request more. */
static qcclResult_t reserve(struct mpi_mover *mover)
{
    if (mover->count < mover->capacity)
        return qcclSuccess;
    int capacity = mover->capacity ? 2 * mover->capacity : FIRST_CAPACITY;
    size_t n = (size_t)capacity, used = (size_t)mover->count;
    MPI_Request *requests = qccl_alloc(n, sizeof *requests);
    struct mpi_piece *pieces = qccl_alloc(n, sizeof *pieces);
    if (!requests || !pieces) {
        qccl_free(requests);
        qccl_free(pieces);
        return qccl_fail(qcclOutOfMemory, "no memory for %d messages under way", capacity);
    }
    if (used) {
        memcpy(requests, mover->requests, used * sizeof *requests);
        memcpy(pieces, mover->pieces, used * sizeof *pieces);
    }
    qccl_free(mover->requests);
    qccl_free(mover->pieces);
    mover->requests = requests;
    mover->pieces = pieces;
    mover->capacity = capacity;
    return qcclSuccess;
}

/* Starts all pieces of a message; one of `out` and `in` is NULL unless the message is empty. */
static qcclResult_t start(struct mpi_mover *mover, bool receives, const char *out, char *in,
                          size_t bytes, int peer)
{
    size_t limit = qccl_mpi_limit(), before = 0, piece;
    if (mover->count == 0)
        RETURN_IF_FAILED(qccl_mpi_ready(mover));
    else if (mover->broken)
        return qccl_fail(mover->broken, "%s", mover->reason);
    do {
        piece = bytes - before < limit ? bytes - before : limit;
        RETURN_IF_FAILED(reserve(mover));
        MPI_Request *request = &mover->requests[mover->count];
        int error = receives ? MPI_Irecv(in ? in + before : NULL, (int)piece, MPI_BYTE, peer,
                                         DATA_TAG, mover->comm, request)
                             : MPI_Isend(out ? out + before : NULL, (int)piece, MPI_BYTE, peer,
                                         DATA_TAG, mover->comm, request);
        RETURN_IF_FAILED(qccl_mpi_check(error, receives ? "MPI_Irecv" : "MPI_Isend"));
        mover->pieces[mover->count++] = (struct mpi_piece){
            .number = mover->started,
            .peer = peer,
            .receives = receives,
            .before_bytes = before,
            .bytes = piece,
            .message_bytes = bytes,
        };
        before += piece;
    } while (piece == limit);
    mover->started++;
    return qcclSuccess;
}

static qcclResult_t give_up(struct mpi_mover *mover, qcclResult_t code)
{
    qccl_mpi_break(mover, code);
    qccl_mpi_abandon(mover);
    return qccl_fail(mover->broken, "%s", mover->reason);
}

static qcclResult_t mpi_isend(void *context, const void *buffer, size_t bytes, int peer)
{
    struct mpi_mover *mover = context;
    qcclResult_t status = start(mover, false, buffer, NULL, bytes, peer);
    return status ? give_up(mover, status) : status;
}

static qcclResult_t mpi_irecv(void *context, void *buffer, size_t bytes, int peer)
{
    struct mpi_mover *mover = context;
    qcclResult_t status = start(mover, true, NULL, buffer, bytes, peer);
    return status ? give_up(mover, status) : status;
}

/* ------------------------------------------------------------------ waiting */

/* Whether the status of a message that was too long has its length: MPI leaves that open, and
 * MPICH's is another number. */
static bool tells_length(void)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(version, &length);
    return strstr(version, "Open MPI") != NULL;
}

/* Whether a request that has ended brought what was expected.  error: MPI's, of this request. */
static qcclResult_t check_arrival(const struct mpi_piece *piece, const MPI_Status *status,
                                  int error)
{
    int class = MPI_SUCCESS, received = 0;
    if (error != MPI_SUCCESS)
        MPI_Error_class(error, &class);
    if (class != MPI_SUCCESS && class != MPI_ERR_TRUNCATE) {
        RETURN_IF_FAILED(qccl_mpi_check(error, piece->receives ? "MPI_Irecv" : "MPI_Isend"));
        return qccl_fail(qcclRemoteError, "rank %d: MPI reports error class %d", piece->peer,
                         class);
    }
    if (!piece->receives)
        return qcclSuccess;
    MPI_Get_count(status, MPI_BYTE, &received);
    size_t sent = received < 0 ? 0 : (size_t)received;
    if (class == MPI_SUCCESS && sent == piece->bytes)
        return qcclSuccess;
    if (class == MPI_ERR_TRUNCATE && (sent <= piece->bytes || !tells_length()))
        return qccl_fail(qcclMismatch, "rank %d sent more than the %zu bytes that were expected",
                         piece->peer, piece->message_bytes);
    return qccl_fail(qcclMismatch, "rank %d sent %s%zu bytes where %zu were expected", piece->peer,
                     sent >= qccl_mpi_limit() ? "at least " : "", piece->before_bytes + sent,
                     piece->message_bytes);
}

/* *done = whether request i has ended.  An error goes through the duplicate's handler, which
 * returns it, in Open MPI; MPICH asks that of MPI_COMM_WORLD, which is the program's: see
 * docs/mpi.md. */
static qcclResult_t test_one(struct mpi_mover *mover, int i, bool *done)
{
    MPI_Status status;
    int flag = 0;
    *done = true;
    if (mover->requests[i] == MPI_REQUEST_NULL)
        return qcclSuccess;
    int error = MPI_Test(&mover->requests[i], &flag, &status);
    *done = flag || error != MPI_SUCCESS;
    return *done ? check_arrival(&mover->pieces[i], &status, error) : qcclSuccess;
}

/* Looks at all requests, for one that ended with an error.  *any = whether one ended just now. */
static qcclResult_t test_all(struct mpi_mover *mover, bool *any)
{
    *any = false;
    for (int i = 0; i < mover->count; i++) {
        bool before = mover->requests[i] == MPI_REQUEST_NULL, done;
        RETURN_IF_FAILED(test_one(mover, i, &done));
        *any = *any || (done && !before);
    }
    return qcclSuccess;
}

/* Fails for a pending message of a rank that has left long enough ago for everything it sent to be
 * here. */
static qcclResult_t check_left(const struct mpi_mover *mover, double now, double since)
{
    double from = since > mover->left_time ? since : mover->left_time;
    if (mover->nleft == 0 || now - from < leave_seconds)
        return qcclSuccess;
    for (int i = 0; i < mover->count; i++) {
        int peer = mover->pieces[i].peer;
        if (mover->requests[i] != MPI_REQUEST_NULL && peer != mover->rank && mover->left[peer])
            return qccl_fail(qcclRemoteError, "rank %d has destroyed its communicator", peer);
    }
    return qcclSuccess;
}

/* What a wait remembers, in MPI's seconds. */
struct patience {
    double timeout;
    double now, looked; /* the clock, and when notices were looked at */
    double arrived;     /* the last arrival, or the wait's start */
};

static qcclResult_t fail_timeout(const struct mpi_mover *mover, double timeout)
{
    char list[128] = "";
    size_t used = 0;
    for (int peer = 0; peer < mover->nranks; peer++) {
        bool missing = false;
        for (int i = 0; i < mover->count && !missing; i++)
            missing = mover->requests[i] != MPI_REQUEST_NULL && mover->pieces[i].peer == peer;
        if (!missing)
            continue;
        if (used > sizeof list - 32) {
            snprintf(list + used, sizeof list - used, ", ...");
            break;
        }
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%d", used ? ", " : "", peer);
    }
    return qccl_fail(qcclRemoteError, "rank %s did not answer within %g seconds", list, timeout);
}

/* Looks for notices and errors. */
static qcclResult_t look_around(struct mpi_mover *mover, struct patience *p)
{
    bool any;
    p->looked = p->now;
    RETURN_IF_FAILED(qccl_mpi_ready(mover));
    RETURN_IF_FAILED(test_all(mover, &any));
    if (any)
        p->arrived = p->now;
    RETURN_IF_FAILED(check_left(mover, p->now, p->arrived));
    if (p->timeout >= 0 && p->now - p->arrived >= p->timeout)
        return fail_timeout(mover, p->timeout);
    return qcclSuccess;
}

/* Nothing arrives: leaves the core to others. */
static qcclResult_t be_patient(struct mpi_mover *mover, struct patience *p)
{
    p->now = MPI_Wtime();
    if (p->now - p->looked >= look_seconds)
        RETURN_IF_FAILED(look_around(mover, p));
    if (!mover->nap_ns && p->now - p->arrived < sleep_seconds) {
        sched_yield();
        return qcclSuccess;
    }
    const struct timespec nap = {.tv_nsec = mover->nap_ns ? mover->nap_ns : 1000};
    nanosleep(&nap, NULL);
    return qcclSuccess;
}

/* Waits for pieces [from, end).  All have to arrive, so it is enough to test the first that has
 * not: every test moves all of them. */
static qcclResult_t wait_for_pieces(struct mpi_mover *mover, int from, int end, double timeout)
{
    int every = mover->nap_ns ? 1 : CHECK_PASSES;
    struct patience p = {.timeout = timeout, .now = MPI_Wtime()};
    p.arrived = p.looked = p.now;
    for (int i = from, passes = 0; i < end;) {
        bool done = false;
        qcclResult_t status = test_one(mover, i, &done);
        if (status == qcclSuccess && !done && ++passes % every == 0)
            status = be_patient(mover, &p);
        if (status != qcclSuccess)
            return give_up(mover, status);
        if (!done)
            continue;
        p.arrived = MPI_Wtime();
        i++;
    }
    /* A rank that gives up may give the buffers of its sends away; it says so before. */
    qcclResult_t ready = qccl_mpi_ready(mover);
    return ready == qcclSuccess ? qcclSuccess : give_up(mover, ready);
}

static qcclResult_t mpi_wait(void *context, double timeout)
{
    struct mpi_mover *mover = context;
    if (mover->broken)
        return qccl_fail(mover->broken, "%s", mover->reason);
    RETURN_IF_FAILED(wait_for_pieces(mover, 0, mover->count, timeout));
    mover->count = 0;
    mover->started = 0;
    return qcclSuccess;
}

/* The pieces of an operation: [*from, *end).  They lie behind one another, in rising numbers. */
static void find_pieces(const struct mpi_mover *mover, uint64_t number, int *from, int *end)
{
    *from = 0;
    while (*from < mover->count && mover->pieces[*from].number < number)
        ++*from;
    *end = *from;
    while (*end < mover->count && mover->pieces[*end].number == number)
        ++*end;
}

/* Forgets finished pieces at the front, so that the arrays do not grow with a call. */
static void retire(struct mpi_mover *mover)
{
    int done = 0;
    while (done < mover->count && mover->requests[done] == MPI_REQUEST_NULL)
        done++;
    if (2 * done < mover->count || !done)
        return;
    size_t left = (size_t)(mover->count - done);
    memmove(mover->requests, mover->requests + done, left * sizeof *mover->requests);
    memmove(mover->pieces, mover->pieces + done, left * sizeof *mover->pieces);
    mover->count = (int)left;
}

static qcclResult_t mpi_wait_for(void *context, uint64_t number, double timeout)
{
    struct mpi_mover *mover = context;
    int from, end;
    if (mover->broken)
        return qccl_fail(mover->broken, "%s", mover->reason);
    find_pieces(mover, number, &from, &end);
    RETURN_IF_FAILED(wait_for_pieces(mover, from, end, timeout));
    retire(mover);
    return qcclSuccess;
}

/* Moves messages along.  A test of a request that has ended, as a short send has at once, does not
 * make MPI look at the others; one of a request that has not ended does. */
static qcclResult_t move_along(struct mpi_mover *mover)
{
    bool done;
    for (int i = 0; i < mover->count; i++)
        if (mover->requests[i] != MPI_REQUEST_NULL) {
            RETURN_IF_FAILED(test_one(mover, i, &done));
            if (!done)
                break;
        }
    return qcclSuccess;
}

static qcclResult_t mpi_test(void *context, uint64_t number, int *done)
{
    struct mpi_mover *mover = context;
    int from, end;
    if (mover->broken)
        return qccl_fail(mover->broken, "%s", mover->reason);
    qcclResult_t moved = move_along(mover);
    if (moved != qcclSuccess)
        return give_up(mover, moved);
    find_pieces(mover, number, &from, &end);
    *done = 1;
    for (int i = from; i < end; i++) {
        bool one;
        qcclResult_t status = test_one(mover, i, &one);
        if (status != qcclSuccess)
            return give_up(mover, status);
        *done = *done && one;
    }
    return qcclSuccess;
}

/* Streams call MPI from their own threads. */
static bool may_use_threads(void)
{
    int level = MPI_THREAD_SINGLE;
    MPI_Query_thread(&level);
    return level == MPI_THREAD_MULTIPLE;
}

static void set_nap(void *context, long nap_ns)
{
    struct mpi_mover *mover = context;
    mover->nap_ns = nap_ns;
}

void qccl_mpi_abandon(struct mpi_mover *mover)
{
    bool ended = false;
    if (mover->count == 0)
        return;
    double start_time = MPI_Wtime();
    for (int i = 0; i < mover->count; i++)
        if (mover->requests[i] != MPI_REQUEST_NULL && mover->pieces[i].receives)
            MPI_Cancel(&mover->requests[i]);
    while (!ended && MPI_Wtime() - start_time < abandon_seconds) {
        ended = true;
        for (int i = 0; i < mover->count; i++) {
            int flag = 1;
            if (mover->requests[i] != MPI_REQUEST_NULL)
                MPI_Test(&mover->requests[i], &flag, MPI_STATUS_IGNORE);
            ended = ended && flag;
        }
        sched_yield();
    }
    for (int i = 0; i < mover->count; i++) {
        if (mover->requests[i] == MPI_REQUEST_NULL)
            continue;
        qccl_log(QCCL_LOG_WARN, mover->rank, "a message of %zu bytes %s rank %d is still under way",
                 mover->pieces[i].message_bytes, mover->pieces[i].receives ? "from" : "to",
                 mover->pieces[i].peer);
        MPI_Request_free(&mover->requests[i]);
    }
    mover->count = 0;
    mover->started = 0;
}

/* ------------------------------------------------------------------ the mover as a whole */

qcclResult_t qccl_mpi_mover_create(struct mpi_mover **result, MPI_Comm comm)
{
    struct mpi_mover *mover = qccl_alloc(1, sizeof *mover);
    if (!mover)
        return qccl_fail(qcclOutOfMemory, "no memory for an MPI communicator");
    MPI_Comm_rank(comm, &mover->rank);
    MPI_Comm_size(comm, &mover->nranks);
    size_t nranks = (size_t)mover->nranks;
    mover->comm = comm;
    mover->nodes = qccl_alloc(nranks, sizeof *mover->nodes);
    mover->notices = qccl_alloc(nranks, sizeof *mover->notices);
    mover->left = qccl_alloc(nranks, sizeof *mover->left);
    if (!mover->nodes || !mover->notices || !mover->left) {
        qccl_mpi_mover_free(mover);
        return qccl_fail(qcclOutOfMemory, "no memory for an MPI communicator of %zu ranks", nranks);
    }
    for (size_t r = 0; r < nranks; r++)
        mover->notices[r] = MPI_REQUEST_NULL;
    qcclResult_t status = reserve(mover);
    if (status == qcclSuccess)
        status = qccl_mpi_watch_finalize();
    if (status == qcclSuccess)
        *result = mover;
    else
        qccl_mpi_mover_free(mover);
    return status;
}

void qccl_mpi_mover_free(struct mpi_mover *mover)
{
    if (!mover)
        return;
    qccl_free(mover->nodes);
    qccl_free(mover->requests);
    qccl_free(mover->pieces);
    qccl_free(mover->notices);
    qccl_free(mover->left);
    qccl_free(mover);
}

struct transport qccl_mpi_transport(struct mpi_mover *mover)
{
    return (struct transport){
        .mover = {.size = sizeof(qcclTransport_t),
                  .context = mover,
                  .rank = mover->rank,
                  .nranks = mover->nranks,
                  .isend = mpi_isend,
                  .irecv = mpi_irecv,
                  .wait = mpi_wait,
                  .abort = qccl_mpi_abort,
                  .close = qccl_mpi_close,
                  .wait_for = mpi_wait_for,
                  .test = mpi_test},
        .native = &qccl_mpi_native,
        .may_use_threads = may_use_threads,
        .set_nap = set_nap,
        .nodes = mover->nodes,
    };
}
