/* A compressed call: values in the shape that the library's collectives want.
 *
 * Where a call has that shape it works on the program's buffers.  Otherwise the message is staged:
 * a block of floats for each rank, all as long as the longest, one behind the other.  That serves
 * doubles, blocks of different sizes, gaps, derived types and MPI's reduce-scatter in place. */
#include <limits.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "collectives/dropin/mpi_job.h"
#include "collectives/mpi_transport.h"

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

/* Elements at MPI_BOTTOM, which MPICH does not pack: the same, seen from another address. */
static qcclResult_t see_from(const struct place *place, char *here, struct place *seen)
{
    MPI_Aint back;
    *seen = (struct place){.at = here, .elements = 1, .element = place->element};
    seen->element.values = values_of(place);
    PMPI_Get_address(here, &back);
    back = -back;
    RETURN_IF_FAILED(qccl_mpi_check(
        PMPI_Type_create_hindexed(1, &place->elements, &back, place->type, &seen->type),
        "MPI_Type_create_hindexed"));
    return qccl_mpi_check(PMPI_Type_commit(&seen->type), "MPI_Type_commit");
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

static qcclResult_t repack_anywhere(const struct place *place, char *dense, bool out)
{
    struct place seen;
    if (place->at != MPI_BOTTOM)
        return repack(place, dense, out);
    RETURN_IF_FAILED(see_from(place, dense, &seen));
    qcclResult_t result = repack(&seen, dense, out);
    PMPI_Type_free(&seen.type);
    return result;
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
    qcclResult_t result = repack_anywhere(from, dense, false);
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
    qcclResult_t result = repack_anywhere(to, dense, true);
    qccl_free(dense);
    return result;
}

/* ------------------------------------------------------------------ where values are */

/* A call being done. */
struct run {
    struct mpi_call call;
    struct job job;
    qcclComm_t qccl;
    struct place own; /* of a gather: what this rank contributes */
    float *staged;    /* NULL: the library works on the program's buffers */
};

/* From the address that the program gave, which it may have declared const. */
static char *bytes_at(const void *address)
{
    union {
        const void *address;
        char *bytes;
    } both = {.address = address};
    return both.bytes;
}

static const void *input_of(const struct run *run)
{
    return run->call.sendbuf == MPI_IN_PLACE ? run->call.recvbuf : run->call.sendbuf;
}

/* The block of rank r, when blocks stand one behind the other from `at`. */
static struct place block_of(const struct run *run, const void *at, int r)
{
    const struct mpi_call *call = &run->call;
    int64_t before = 0;
    for (int k = 0; !call->displs && k < r; k++)
        before += qccl_dropin_elements(call, k);
    if (call->displs)
        before = call->displs[r];
    return (struct place){.at = bytes_at(at) + before * run->job.element.extent,
                          .elements = qccl_dropin_elements(call, r),
                          .type = (MPI_Datatype)call->recvtype,
                          .element = run->job.element};
}

/* What this rank contributes to a gather, where the program has it. */
static qcclResult_t find_own(const struct run *run, struct place *own)
{
    const struct mpi_call *call = &run->call;
    *own = block_of(run, call->recvbuf, run->job.rank);
    if (call->sendbuf == MPI_IN_PLACE)
        return qcclSuccess;
    size_t expected = values_of(own);
    own->at = bytes_at(call->sendbuf);
    own->elements = call->sendcount;
    own->type = (MPI_Datatype)call->sendtype;
    if (!qccl_dropin_element(qccl_dropin_settings(), own->type, &own->element) ||
        own->element.type != run->job.element.type || values_of(own) != expected)
        return qccl_fail(qcclInvalidArgument,
                         "rank %d sends %d elements of another kind or number than the %zu values "
                         "that are to be received from it",
                         run->job.rank, call->sendcount, expected);
    return qcclSuccess;
}

static float *own_block(const struct run *run)
{
    return run->staged + (size_t)run->job.rank * run->job.largest;
}

/* Whether the library's call can work on the program's buffers. */
static bool is_direct(const struct run *run)
{
    const struct job *job = &run->job;
    bool floats = job->element.type == qcclFloat32 && job->element.dense;
    switch (job->collective) {
    case qcclCollAllReduce:
        return floats;
    case qcclCollReduceScatter:
        return floats && job->even && run->call.sendbuf != MPI_IN_PLACE;
    default:
        return floats && job->even && run->own.element.dense;
    }
}

/* ------------------------------------------------------------------ a call in three parts */

static qcclResult_t prepare(struct run *run)
{
    const struct job *job = &run->job;
    if (job->collective == qcclCollAllGather)
        RETURN_IF_FAILED(find_own(run, &run->own));
    if (is_direct(run))
        return qcclSuccess;
    size_t blocks = job->collective == qcclCollAllReduce ? 1 : (size_t)job->nranks;
    run->staged = qccl_alloc(blocks * job->largest, sizeof(float));
    return run->staged ? qcclSuccess
                       : qccl_fail(qcclOutOfMemory, "no memory for %zu values to be sent",
                                   blocks * job->largest);
}

static qcclResult_t load_all(const struct run *run)
{
    const struct job *job = &run->job;
    if (!run->staged)
        return qcclSuccess;
    if (job->collective == qcclCollAllGather)
        return load(own_block(run), &run->own);
    if (job->collective == qcclCollAllReduce)
        narrow(run->staged, input_of(run), job->total, job->element.type);
    for (int r = 0; job->collective == qcclCollReduceScatter && r < job->nranks; r++) {
        struct place block = block_of(run, input_of(run), r);
        RETURN_IF_FAILED(load(run->staged + (size_t)r * job->largest, &block));
    }
    return qcclSuccess;
}

static qcclResult_t exchange(const struct run *run, qcclStream_t stream)
{
    const struct job *job = &run->job;
    float *staged = run->staged;
    qcclComm_t comm = run->qccl;
    switch (job->collective) {
    case qcclCollAllReduce:
        return qcclAllReduce(staged ? staged : input_of(run), staged ? staged : run->call.recvbuf,
                             job->total, qcclFloat32, qcclSum, comm, stream);
    case qcclCollReduceScatter:
        return qcclReduceScatter(staged ? staged : run->call.sendbuf,
                                 staged ? own_block(run) : run->call.recvbuf, job->largest,
                                 qcclFloat32, qcclSum, comm, stream);
    default:
        return qcclAllGather(staged ? (void *)own_block(run) : run->own.at,
                             staged ? staged : run->call.recvbuf, job->largest, qcclFloat32, comm,
                             stream);
    }
}

static qcclResult_t store_all(const struct run *run)
{
    const struct job *job = &run->job;
    if (!run->staged)
        return qcclSuccess;
    if (job->collective == qcclCollAllReduce) {
        widen(run->call.recvbuf, run->staged, job->total, job->element.type);
        return qcclSuccess;
    }
    if (job->collective == qcclCollReduceScatter) {
        struct place result = block_of(run, run->call.recvbuf, job->rank);
        result.at = run->call.recvbuf;
        return store(&result, own_block(run));
    }
    for (int r = 0; r < job->nranks; r++) {
        struct place block = block_of(run, run->call.recvbuf, r);
        RETURN_IF_FAILED(store(&block, run->staged + (size_t)r * job->largest));
    }
    return qcclSuccess;
}

static qcclResult_t run_parts(struct run *run, qcclStream_t stream)
{
    RETURN_IF_FAILED(prepare(run));
    RETURN_IF_FAILED(load_all(run));
    RETURN_IF_FAILED(exchange(run, stream));
    if (stream)
        RETURN_IF_FAILED(qcclStreamSynchronize(stream));
    return store_all(run);
}

qcclResult_t qccl_dropin_do(const struct mpi_call *call, const struct job *job,
                            struct attached *attached, qcclStream_t stream)
{
    struct run run = {.call = *call, .job = *job};
    RETURN_IF_FAILED(qccl_dropin_connect(attached, stream != NULL));
    run.qccl = attached->qccl;
    qcclResult_t result = run_parts(&run, stream);
    qccl_free(run.staged);
    if (result != qcclSuccess)
        qcclCommAbort(run.qccl); /* the others may wait for this rank */
    return result;
}

qcclResult_t qccl_dropin_run(const struct mpi_call *call, const struct job *job)
{
    struct attached *attached;
    RETURN_IF_FAILED(qccl_dropin_attach(job->comm, &attached));
    if (attached->order) /* non-blocking calls were made before this one, on every rank */
        qcclStreamSynchronize(attached->order);
    return qccl_dropin_do(call, job, attached, NULL);
}
