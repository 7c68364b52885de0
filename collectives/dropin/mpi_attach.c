/* The library's communicator of a communicator of the program.
 *
 * It hangs on the program's as an attribute: made by the first compressed call, freed with it, and
 * not copied by MPI_Comm_dup.  A non-blocking call must not wait for other ranks, so there it is
 * made on the stream, from a duplicate that is requested in the program's order of calls. */
#include <pthread.h>

#include "base/memory.h"
#include "base/status.h"
#include "collectives/dropin/mpi_job.h"
#include "collectives/mpi_transport.h"
#include "qccl/qccl_mpi.h"

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
    qcclStreamDestroy(attached->order); /* after what is left to do */
    qcclStreamDestroy(attached->work);
    if (attached->qccl)
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

qcclResult_t qccl_dropin_connect(struct attached *attached)
{
    if (attached->qccl)
        return qcclSuccess;
    if (attached->failed)
        return qccl_fail(qcclInvalidUsage, "the library's communicator could not be made before");
    attached->failed = true;
    MPI_Comm comm = attached->comm;
    if (attached->duplicated) {
        RETURN_IF_FAILED(
            qccl_mpi_check(PMPI_Wait(&attached->request, MPI_STATUS_IGNORE), "MPI_Comm_idup"));
        comm = attached->duplicate;
    }
    qcclResult_t result = qcclCommInitMpi(&attached->qccl, comm, NULL);
    attached->failed = result != qcclSuccess;
    if (attached->duplicated)
        PMPI_Comm_free(&attached->duplicate);
    return result;
}

qcclResult_t qccl_dropin_open_streams(struct attached *attached)
{
    if (!attached->order)
        RETURN_IF_FAILED(qcclStreamCreate(&attached->order, 0));
    if (!attached->work)
        RETURN_IF_FAILED(qcclStreamCreate(&attached->work, 0));
    if (attached->duplicated || qcclStreamQuery(attached->order) == qcclInProgress ||
        attached->qccl)
        return qcclSuccess;
    RETURN_IF_FAILED(qccl_mpi_check(
        PMPI_Comm_idup(attached->comm, &attached->duplicate, &attached->request), "MPI_Comm_idup"));
    attached->duplicated = true;
    return qcclSuccess;
}
