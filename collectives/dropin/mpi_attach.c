/* The library's communicator of a communicator of the program.
 *
 * It hangs on the program's as an attribute: made by the first compressed call, freed with it, and
 * not copied by MPI_Comm_dup.  A non-blocking call must not wait for other ranks, so there it is
 * made on the stream, of the same group: MPI_Comm_create_group has an order of its own, while other
 * ways to make a communicator would mix with the program's collectives on that one. */
#include <pthread.h>

#include "base/memory.h"
#include "base/status.h"
#include "collectives/dropin/mpi_job.h"
#include "collectives/mpi_transport.h"
#include "qccl/qccl_mpi.h"

enum { CONNECT_TAG = 0x7163 };

static int keyval = MPI_KEYVAL_INVALID;
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct attached *list, *unfinished; /* unfinished: detached with work left to do */
static uint64_t raw_bytes, wire_bytes;

static void finish(struct attached *attached)
{
    qcclStats_t stats = {.size = sizeof stats};
    qcclStreamDestroy(attached->order); /* after what is left to do */
    qcclStreamDestroy(attached->work);
    if (attached->qccl)
        qcclCommGetStats(attached->qccl, &stats);
    pthread_mutex_lock(&list_lock);
    raw_bytes += stats.raw_bytes;
    wire_bytes += stats.wire_bytes;
    pthread_mutex_unlock(&list_lock);
    qcclCommDestroy(attached->qccl);
    qccl_free(attached);
}

/* The delete function of the attribute: the program frees its communicator.  MPI holds locks here
 * that the work of a stream may need, so this must not wait for it. */
static int detach(MPI_Comm comm, int key, void *value, void *extra)
{
    struct attached *attached = value;
    bool idle = !attached->order || qcclStreamQuery(attached->order) != qcclInProgress;
    (void)comm, (void)key, (void)extra;
    pthread_mutex_lock(&list_lock);
    for (struct attached **at = &list; *at; at = &(*at)->next)
        if (*at == attached) {
            *at = attached->next;
            break;
        }
    if (!idle) {
        attached->next = unfinished;
        unfinished = attached;
    }
    pthread_mutex_unlock(&list_lock);
    if (idle)
        finish(attached);
    return MPI_SUCCESS;
}

qcclResult_t qccl_dropin_attach_begin(void)
{
    return qccl_mpi_check(PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, detach, &keyval, NULL),
                          "MPI_Comm_create_keyval");
}

void qccl_dropin_settle(MPI_Comm comm)
{
    struct attached *attached = NULL;
    int found = 0;
    if (keyval == MPI_KEYVAL_INVALID || comm == MPI_COMM_NULL)
        return;
    PMPI_Comm_get_attr(comm, keyval, &attached, &found);
    if (found && attached->order)
        qcclStreamSynchronize(attached->order);
}

static struct attached *first_of(struct attached **of)
{
    pthread_mutex_lock(&list_lock);
    struct attached *first = *of;
    pthread_mutex_unlock(&list_lock);
    return first;
}

void qccl_dropin_detach_all(void)
{
    struct attached *first;
    while ((first = first_of(&list))) {
        if (first->order)
            qcclStreamSynchronize(first->order);
        if (PMPI_Comm_delete_attr(first->comm, keyval) != MPI_SUCCESS)
            break;
    }
    while ((first = first_of(&unfinished))) {
        unfinished = first->next;
        finish(first);
    }
}

void qccl_dropin_traffic(uint64_t *raw, uint64_t *wire)
{
    pthread_mutex_lock(&list_lock);
    *raw = raw_bytes;
    *wire = wire_bytes;
    pthread_mutex_unlock(&list_lock);
}

qcclResult_t qccl_dropin_attach(MPI_Comm comm, struct attached **attached)
{
    int found = 0;
    PMPI_Comm_get_attr(comm, keyval, attached, &found);
    if (found)
        return qcclSuccess;
    struct attached *made = qccl_alloc(1, sizeof *made);
    if (!made)
        return qccl_fail(qcclOutOfMemory, "no memory for a communicator");
    made->comm = comm;
    pthread_mutex_lock(&list_lock);
    made->next = list;
    list = made;
    pthread_mutex_unlock(&list_lock);
    PMPI_Comm_set_attr(comm, keyval, made);
    *attached = made;
    return qcclSuccess;
}

static qcclResult_t connect_group(struct attached *attached)
{
    MPI_Group group;
    MPI_Comm comm;
    RETURN_IF_FAILED(qccl_mpi_check(PMPI_Comm_group(attached->comm, &group), "MPI_Comm_group"));
    int error = PMPI_Comm_create_group(attached->comm, group, CONNECT_TAG, &comm);
    PMPI_Group_free(&group);
    RETURN_IF_FAILED(qccl_mpi_check(error, "MPI_Comm_create_group"));
    qcclResult_t result = qcclCommInitMpi(&attached->qccl, comm, NULL);
    PMPI_Comm_free(&comm);
    return result;
}

qcclResult_t qccl_dropin_connect(struct attached *attached, bool on_stream)
{
    if (attached->qccl)
        return qcclSuccess;
    if (attached->failed)
        return qccl_fail(qcclInvalidUsage, "the library's communicator could not be made before");
    qcclResult_t result = on_stream ? connect_group(attached)
                                    : qcclCommInitMpi(&attached->qccl, attached->comm, NULL);
    attached->failed = result != qcclSuccess;
    return result;
}

qcclResult_t qccl_dropin_open_streams(struct attached *attached)
{
    if (!attached->order)
        RETURN_IF_FAILED(qcclStreamCreate(&attached->order, 0));
    if (!attached->work)
        RETURN_IF_FAILED(qcclStreamCreate(&attached->work, 0));
    return qcclSuccess;
}
