/* Non-blocking calls: a stream of the communicator does them, and a generalized request of MPI's
 * tells the program, which may wait for it in any of MPI's ways.
 *
 *     program      MPI_Iallreduce                         MPI_Waitall
 *     order        [ connect | values in |   wait   | values out | complete the request ]
 *     work                               [ exchange ]
 *
 * A blocking call waits for the non-blocking ones before it, so calls are done in the order in
 * which they were made, the same on all ranks.  The program may start calls of two communicators in
 * another order on each rank; those have streams of their own.  Arrays of counts and the buffers
 * are the library's until the call is complete (MPI 3.1, 5.12); types are not, so they are
 * duplicated. */
#include "base/memory.h"
#include "base/status.h"
#include "collectives/dropin/mpi_job.h"
#include "collectives/mpi_transport.h"

struct later {
    struct mpi_call call;
    struct job job;
    struct attached *attached;
    MPI_Request request;
    int ntypes; /* duplicated ones */
    MPI_Datatype types[2];
    int error; /* for MPI */
};

static void free_types(struct later *later)
{
    while (later->ntypes)
        PMPI_Type_free(&later->types[--later->ntypes]);
}

/* ------------------------------------------------------------------ the request's functions */

static int query(void *extra, MPI_Status *status)
{
    const struct later *later = extra;
    PMPI_Status_set_elements(status, MPI_BYTE, 0);
    PMPI_Status_set_cancelled(status, 0);
    status->MPI_SOURCE = MPI_UNDEFINED;
    status->MPI_TAG = MPI_UNDEFINED;
    return later->error;
}

static int forget(void *extra)
{
    qccl_free(extra); /* no call of MPI's: MPICH holds its lock here */
    return MPI_SUCCESS;
}

static int cancel(void *extra, int complete)
{
    (void)extra, (void)complete;
    return MPI_SUCCESS; /* collectives cannot be cancelled */
}

/* ------------------------------------------------------------------ doing it */

static qcclResult_t work(void *argument)
{
    struct later *later = argument;
    MPI_Request request = later->request;
    qcclResult_t result =
        qccl_dropin_do(&later->call, &later->job, later->attached, later->attached->work);
    later->error = result == qcclSuccess ? MPI_SUCCESS : qccl_dropin_error(result);
    free_types(later);
    PMPI_Grequest_complete(request); /* the program may free it all from now on */
    return qcclSuccess;
}

static qcclResult_t keep_type(struct later *later, word *type)
{
    MPI_Datatype *kept = &later->types[later->ntypes];
    RETURN_IF_FAILED(qccl_mpi_check(PMPI_Type_dup((MPI_Datatype)*type, kept), "MPI_Type_dup"));
    *type = (word)*kept;
    later->ntypes++;
    return qcclSuccess;
}

static qcclResult_t start(struct later *later)
{
    struct mpi_call *call = &later->call;
    bool gathers = later->job.collective == qcclCollAllGather;
    RETURN_IF_FAILED(qccl_dropin_attach(later->job.comm, &later->attached));
    RETURN_IF_FAILED(qccl_dropin_open_streams(later->attached));
    RETURN_IF_FAILED(keep_type(later, &call->recvtype));
    if (gathers && call->sendbuf != MPI_IN_PLACE)
        RETURN_IF_FAILED(keep_type(later, &call->sendtype));
    RETURN_IF_FAILED(qccl_mpi_check(
        PMPI_Grequest_start(query, forget, cancel, later, &later->request), "MPI_Grequest_start"));
    *(MPI_Request *)call->request = later->request;
    return qcclStreamLaunch(later->attached->order, work, later);
}

qcclResult_t qccl_dropin_start_later(const struct mpi_call *call, const struct job *job)
{
    struct later *later = qccl_alloc(1, sizeof *later);
    if (!later)
        return qccl_fail(qcclOutOfMemory, "no memory for a non-blocking call");
    *later = (struct later){.call = *call, .job = *job, .request = MPI_REQUEST_NULL};
    qcclResult_t result = start(later);
    if (result == qcclSuccess)
        return result;
    if (later->attached) { /* the others may wait for this rank */
        qcclStreamSynchronize(later->attached->order);
        qcclCommAbort(later->attached->qccl);
    }
    free_types(later);
    if (later->request == MPI_REQUEST_NULL) {
        qccl_free(later);
        return result;
    }
    later->error = qccl_dropin_error(result); /* the request ends with it */
    PMPI_Grequest_complete(later->request);
    return qcclSuccess;
}
