/* A compressed call: the library's communicator of the program's, and values in the shape that the
 * library's collectives want.
 *
 * Where a call has that shape it works on the program's buffers.  Otherwise the message is staged:
 * a block of floats for each rank, all as long as the longest, one behind the other.  That serves
 * doubles, blocks of different sizes, gaps, derived types and MPI's reduce-scatter in place.
 *
 * The library's communicator hangs on the program's as an attribute: made by the first compressed
 * call, freed with it, and not copied by MPI_Comm_dup. */
#include <limits.h>
#include <pthread.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "collectives/mpi_transport.h"
#include "dropin/mpi_job.h"
#include "qccl/qccl_mpi.h"

/* ------------------------------------------------------------------ communicators */

struct attached {
    MPI_Comm comm;
    qcclComm_t qccl;
    struct attached *next;
};

static int keyval = MPI_KEYVAL_INVALID;
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct attached *list;
static uint64_t raw_bytes, wire_bytes;

/* The delete function of the attribute: the program frees its communicator. */
static int detach(MPI_Comm comm, int key, void *value, void *extra)
{
    struct attached *attached = value;
    qcclStats_t stats = {.size = sizeof stats};
    (void)comm, (void)key, (void)extra;
    qcclCommGetStats(attached->qccl, &stats);
    pthread_mutex_lock(&list_lock);
    raw_bytes += stats.raw_bytes;
    wire_bytes += stats.wire_bytes;
    for (struct attached **at = &list; *at; at = &(*at)->next)
        if (*at == attached) {
            *at = attached->next;
            break;
        }
    pthread_mutex_unlock(&list_lock);
    qcclCommDestroy(attached->qccl);
    qccl_free(attached);
    return MPI_SUCCESS;
}

qcclResult_t qccl_dropin_attach_begin(void)
{
    return qccl_mpi_check(PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, detach, &keyval, NULL),
                          "MPI_Comm_create_keyval");
}

void qccl_dropin_detach_all(void)
{
    for (;;) {
        pthread_mutex_lock(&list_lock);
        struct attached *first = list;
        pthread_mutex_unlock(&list_lock);
        if (!first || PMPI_Comm_delete_attr(first->comm, keyval) != MPI_SUCCESS)
            return;
    }
}

void qccl_dropin_traffic(uint64_t *raw, uint64_t *wire)
{
    pthread_mutex_lock(&list_lock);
    *raw = raw_bytes;
    *wire = wire_bytes;
    pthread_mutex_unlock(&list_lock);
}

static qcclResult_t attach(MPI_Comm comm, qcclComm_t *qccl)
{
    struct attached *attached = NULL;
    int found = 0;
    PMPI_Comm_get_attr(comm, keyval, &attached, &found);
    if (!found) {
        attached = qccl_alloc(1, sizeof *attached);
        if (!attached)
            return qccl_fail(qcclOutOfMemory, "no memory for a communicator");
        qcclResult_t result = qcclCommInitMpi(&attached->qccl, comm, NULL);
        if (result != qcclSuccess) {
            qccl_free(attached);
            return result;
        }
        attached->comm = comm;
        pthread_mutex_lock(&list_lock);
        attached->next = list;
        list = attached;
        pthread_mutex_unlock(&list_lock);
        PMPI_Comm_set_attr(comm, keyval, attached);
    }
    *qccl = attached->qccl;
    return qcclSuccess;
}

/* ------------------------------------------------------------------ values of the program */

/* Elements of the program's in memory. */
struct place {
    char *at;
    int elements;
    MPI_Datatype type;
    struct element element;
};

static size_t values_of(const struct place *place)
{
    return (size_t)place->elements * place->element.values;
}

static void narrow(float *to, const void *from, size_t count, qcclDataType_t type)
{
    const double *doubles = from;
    if (type == qcclFloat32)
        memcpy(to, from, count * sizeof *to);
    for (size_t i = 0; type == qcclFloat64 && i < count; i++)
        to[i] = (float)doubles[i];
}

static void widen(void *to, const float *from, size_t count, qcclDataType_t type)
{
    double *doubles = to;
    if (type == qcclFloat32)
        memcpy(to, from, count * sizeof *from);
    for (size_t i = 0; type == qcclFloat64 && i < count; i++)
        doubles[i] = from[i];
}

/* Copies elements with gaps from or to dense ones, as many at a time as an int can say bytes.  MPI
 * packs values as they are between processes of one kind. */
static qcclResult_t repack(const struct place *place, char *dense, bool out)
{
    size_t bytes = place->element.values * qcclTypeBytes(place->element.type);
    int most = bytes ? (int)(INT_MAX / bytes) : 0;
    for (int done = 0, n; bytes && done < place->elements; done += n) {
        char *at = place->at + done * place->element.extent;
        int position = 0;
        n = place->elements - done < most ? place->elements - done : most;
        int size = (int)((size_t)n * bytes);
        int error = out ? PMPI_Unpack(dense, size, &position, at, n, place->type, MPI_COMM_SELF)
                        : PMPI_Pack(at, n, place->type, dense, size, &position, MPI_COMM_SELF);
        RETURN_IF_FAILED(qccl_mpi_check(error, out ? "MPI_Unpack" : "MPI_Pack"));
        if (position != size)
            return qccl_fail(qcclInternalError, "MPI packs %d bytes into %d", size, position);
        dense += size;
    }
    return qcclSuccess;
}

/* One side is the program's, the other floats. */
static qcclResult_t load(float *to, const struct place *from)
{
    const struct element *e = &from->element;
    size_t count = values_of(from);
    if (e->dense) {
        narrow(to, from->at, count, e->type);
        return qcclSuccess;
    }
    char *dense = qccl_alloc(count, qcclTypeBytes(e->type));
    if (!dense)
        return qccl_fail(qcclOutOfMemory, "no memory for %zu values", count);
    qcclResult_t result = repack(from, dense, false);
    if (result == qcclSuccess)
        narrow(to, dense, count, e->type);
    qccl_free(dense);
    return result;
}

static qcclResult_t store(const struct place *to, const float *from)
{
    const struct element *e = &to->element;
    size_t count = values_of(to);
    if (e->dense) {
        widen(to->at, from, count, e->type);
        return qcclSuccess;
    }
    char *dense = qccl_alloc(count, qcclTypeBytes(e->type));
    if (!dense)
        return qccl_fail(qcclOutOfMemory, "no memory for %zu values", count);
    widen(dense, from, count, e->type);
    qcclResult_t result = repack(to, dense, true);
    qccl_free(dense);
    return result;
}

/* ------------------------------------------------------------------ the collectives */

/* A call being done. */
struct run {
    const struct mpi_call *call;
    const struct job *job;
    qcclComm_t qccl;
    float *staged;
};

/* The block of rank r, when blocks stand one behind the other from `at`. */
static struct place block_of(const struct run *run, const void *at, int r)
{
    const struct mpi_call *call = run->call;
    int64_t before = 0;
    for (int k = 0; !call->displs && k < r; k++)
        before += qccl_dropin_elements(call, k);
    if (call->displs)
        before = call->displs[r];
    union {
        const void *const_at;
        char *at;
    } both = {.const_at = at};
    return (struct place){.at = both.at + before * run->job->element.extent,
                          .elements = qccl_dropin_elements(call, r),
                          .type = (MPI_Datatype)call->recvtype,
                          .element = run->job->element};
}

static qcclResult_t stage(struct run *run)
{
    size_t blocks = run->job->collective == qcclCollAllReduce ? 1 : (size_t)run->job->nranks;
    run->staged = qccl_alloc(blocks * run->job->largest, sizeof(float));
    return run->staged ? qcclSuccess
                       : qccl_fail(qcclOutOfMemory, "no memory for %zu values to be sent",
                                   blocks * run->job->largest);
}

static qcclResult_t allreduce(struct run *run)
{
    const struct mpi_call *call = run->call;
    size_t count = run->job->total;
    const void *input = call->sendbuf == MPI_IN_PLACE ? call->recvbuf : call->sendbuf;
    qcclDataType_t type = run->job->element.type;
    if (type == qcclFloat32)
        return qcclAllReduce(input, call->recvbuf, count, qcclFloat32, qcclSum, run->qccl, NULL);
    RETURN_IF_FAILED(stage(run));
    narrow(run->staged, input, count, type);
    RETURN_IF_FAILED(
        qcclAllReduce(run->staged, run->staged, count, qcclFloat32, qcclSum, run->qccl, NULL));
    widen(call->recvbuf, run->staged, count, type);
    return qcclSuccess;
}

static qcclResult_t reduce_scatter(struct run *run)
{
    const struct mpi_call *call = run->call;
    const struct job *job = run->job;
    bool in_place = call->sendbuf == MPI_IN_PLACE;
    const void *input = in_place ? call->recvbuf : call->sendbuf;
    if (job->even && !in_place && job->element.type == qcclFloat32)
        return qcclReduceScatter(input, call->recvbuf, job->largest, qcclFloat32, qcclSum,
                                 run->qccl, NULL);
    RETURN_IF_FAILED(stage(run));
    for (int r = 0; r < job->nranks; r++) {
        struct place block = block_of(run, input, r);
        RETURN_IF_FAILED(load(run->staged + (size_t)r * job->largest, &block));
    }
    float *own = run->staged + (size_t)job->rank * job->largest;
    RETURN_IF_FAILED(
        qcclReduceScatter(run->staged, own, job->largest, qcclFloat32, qcclSum, run->qccl, NULL));
    struct place result = block_of(run, input, job->rank);
    result.at = call->recvbuf;
    return store(&result, own);
}

/* What this rank contributes to a gather, where the program has it. */
static qcclResult_t own_part(const struct run *run, struct place *own)
{
    const struct mpi_call *call = run->call;
    struct place expected = block_of(run, call->recvbuf, run->job->rank);
    *own = expected;
    if (call->sendbuf == MPI_IN_PLACE)
        return qcclSuccess;
    union {
        const void *const_at;
        char *at;
    } both = {.const_at = call->sendbuf};
    own->at = both.at;
    own->elements = call->sendcount;
    own->type = (MPI_Datatype)call->sendtype;
    if (!qccl_dropin_element(qccl_dropin_settings(), own->type, &own->element) ||
        own->element.type != expected.element.type || values_of(own) != values_of(&expected))
        return qccl_fail(qcclInvalidArgument,
                         "rank %d sends %d elements of another kind or number than the %zu values "
                         "that are to be received from it",
                         run->job->rank, call->sendcount, values_of(&expected));
    return qcclSuccess;
}

static qcclResult_t allgather(struct run *run)
{
    const struct job *job = run->job;
    struct place own, block;
    RETURN_IF_FAILED(own_part(run, &own));
    if (job->even && job->element.dense && own.element.dense && own.element.type == qcclFloat32)
        return qcclAllGather(own.at, run->call->recvbuf, job->largest, qcclFloat32, run->qccl,
                             NULL);
    RETURN_IF_FAILED(stage(run));
    float *mine = run->staged + (size_t)job->rank * job->largest;
    RETURN_IF_FAILED(load(mine, &own));
    RETURN_IF_FAILED(qcclAllGather(mine, run->staged, job->largest, qcclFloat32, run->qccl, NULL));
    for (int r = 0; r < job->nranks; r++) {
        block = block_of(run, run->call->recvbuf, r);
        RETURN_IF_FAILED(store(&block, run->staged + (size_t)r * job->largest));
    }
    return qcclSuccess;
}

qcclResult_t qccl_dropin_run(const struct mpi_call *call, const struct job *job)
{
    struct run run = {.call = call, .job = job};
    RETURN_IF_FAILED(attach(job->comm, &run.qccl));
    qcclResult_t result = job->collective == qcclCollAllReduce       ? allreduce(&run)
                          : job->collective == qcclCollReduceScatter ? reduce_scatter(&run)
                                                                     : allgather(&run);
    qccl_free(run.staged);
    if (result != qcclSuccess)
        qcclCommAbort(run.qccl); /* the others may wait for this rank */
    return result;
}
