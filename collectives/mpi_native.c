/* MPI's own collectives, for the calls that are not compressed.
 *
 * A call that fits MPI's ints is one call of MPI on the user's buffers and so gives exactly MPI's
 * result.  A larger one is done in slices, owner by owner, with MPI_Reduce and MPI_Bcast, which
 * needs no memory.  Temporary memory is needed in two rare cases only: for buffers that are not
 * aligned to their elements, since MPI may assume that they are, and for a reduce-scatter in
 * place, where MPI's convention for the result's place differs from NCCL's. */
#include "collectives/mpi_transport.h"

#include <stdint.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

static MPI_Datatype mpi_type(qcclDataType_t type)
{
    switch (type) {
    case qcclInt8:
        return MPI_INT8_T;
    case qcclUint8:
        return MPI_UINT8_T;
    case qcclInt32:
        return MPI_INT32_T;
    case qcclUint32:
        return MPI_UINT32_T;
    case qcclInt64:
        return MPI_INT64_T;
    case qcclUint64:
        return MPI_UINT64_T;
    case qcclFloat32:
        return MPI_FLOAT;
    case qcclFloat64:
        return MPI_DOUBLE;
    default: /* MPI has no half floats */
        return MPI_DATATYPE_NULL;
    }
}

static MPI_Op mpi_op(qcclRedOp_t op)
{
    switch (op) {
    case qcclSum:
    case qcclAvg: /* divided afterwards */
        return MPI_SUM;
    case qcclProd:
        return MPI_PROD;
    case qcclMax:
        return MPI_MAX;
    case qcclMin:
        return MPI_MIN;
    default:
        return MPI_OP_NULL;
    }
}

static bool handles(qcclDataType_t type, qcclRedOp_t op)
{
    return mpi_type(type) != MPI_DATATYPE_NULL && mpi_op(op) != MPI_OP_NULL;
}

/* ------------------------------------------------------------------ average */

/* Through memcpy, since a user's buffer may have any address. */
#define DIVIDE_EACH(type, wide)                                 \
    for (size_t i = 0; i < count; i++) {                        \
        type value;                                             \
        memcpy(&value, bytes + i * sizeof value, sizeof value); \
        value = (type)(value / (wide)nranks);                   \
        memcpy(bytes + i * sizeof value, &value, sizeof value); \
    }

#define SCALE_EACH(type)                                        \
    for (size_t i = 0; i < count; i++) {                        \
        type value;                                             \
        memcpy(&value, bytes + i * sizeof value, sizeof value); \
        value *= (type)1 / (type)nranks;                        \
        memcpy(bytes + i * sizeof value, &value, sizeof value); \
    }

/* The sum divided by the number of ranks as NCCL does it: integers towards zero, floats times the
 * reciprocal. */
static void divide(void *values, size_t count, qcclDataType_t type, int nranks)
{
    char *bytes = values;
    switch (type) {
    case qcclInt8:
        DIVIDE_EACH(int8_t, int64_t)
        break;
    case qcclUint8:
        DIVIDE_EACH(uint8_t, int64_t)
        break;
    case qcclInt32:
        DIVIDE_EACH(int32_t, int64_t)
        break;
    case qcclUint32:
        DIVIDE_EACH(uint32_t, int64_t)
        break;
    case qcclInt64:
        DIVIDE_EACH(int64_t, int64_t)
        break;
    case qcclUint64:
        DIVIDE_EACH(uint64_t, uint64_t)
        break;
    case qcclFloat32:
        SCALE_EACH(float)
        break;
    default:
        SCALE_EACH(double)
        break;
    }
}

/* ------------------------------------------------------------------ buffers */

static bool misaligned(const void *buffer, size_t element_bytes)
{
    return (uintptr_t)buffer % element_bytes != 0;
}

/* An aligned copy of a buffer; NULL when there is no memory.  The caller then passes its own
 * buffer to MPI, which is better than an error here: the other ranks are in the call already and
 * would wait for ever. */
static char *aligned_copy(const void *buffer, size_t count, size_t element_bytes)
{
    char *copy = qccl_alloc(count, element_bytes);
    if (copy)
        memcpy(copy, buffer, count * element_bytes);
    return copy;
}

static size_t slice_elems(size_t count, size_t first)
{
    size_t limit = qccl_mpi_limit();
    return count - first < limit ? count - first : limit;
}

/* ------------------------------------------------------------------ allreduce */

static qcclResult_t allreduce_slices(MPI_Comm comm, const char *in, char *out, size_t count,
                                     qcclDataType_t type, qcclRedOp_t op)
{
    size_t bytes = qcclTypeBytes(type);
    for (size_t first = 0, n; first < count; first += n) {
        n = slice_elems(count, first);
        RETURN_IF_FAILED(qccl_mpi_check(MPI_Allreduce(in == out ? MPI_IN_PLACE : in + first * bytes,
                                                      out + first * bytes, (int)n, mpi_type(type),
                                                      mpi_op(op), comm),
                                        "MPI_Allreduce"));
    }
    return qcclSuccess;
}

static qcclResult_t allreduce_mpi(void *context, const void *sendbuff, void *recvbuff, size_t count,
                                  qcclDataType_t type, qcclRedOp_t op)
{
    struct mpi_mover *mover = context;
    size_t bytes = qcclTypeBytes(type);
    const char *in = sendbuff;
    char *out = recvbuff, *copy = NULL;
    RETURN_IF_FAILED(qccl_mpi_ready(mover));
    if (misaligned(sendbuff, bytes) || misaligned(recvbuff, bytes))
        copy = aligned_copy(sendbuff, count, bytes);
    if (copy)
        in = out = copy;
    qcclResult_t status = allreduce_slices(mover->comm, in, out, count, type, op);
    if (status == qcclSuccess && op == qcclAvg)
        divide(out, count, type, mover->nranks);
    if (status == qcclSuccess && copy)
        memcpy(recvbuff, copy, count * bytes);
    qccl_free(copy);
    return status ? qccl_mpi_break(mover, status) : status;
}

/* ------------------------------------------------------------------ reduce-scatter */

/* One MPI_Reduce to each owner in turn, in slices; any number of elements. */
static qcclResult_t reduce_slices(const struct mpi_mover *mover, const char *in, char *out,
                                  size_t recvcount, qcclDataType_t type, qcclRedOp_t op)
{
    size_t bytes = qcclTypeBytes(type);
    for (int owner = 0; owner < mover->nranks; owner++) {
        const char *block = in + (size_t)owner * recvcount * bytes;
        for (size_t first = 0, n; first < recvcount; first += n) {
            const void *source = block + first * bytes;
            char *target = owner == mover->rank ? out + first * bytes : NULL;
            n = slice_elems(recvcount, first);
            RETURN_IF_FAILED(
                qccl_mpi_check(MPI_Reduce(source == target ? MPI_IN_PLACE : source, target, (int)n,
                                          mpi_type(type), mpi_op(op), owner, mover->comm),
                               "MPI_Reduce"));
        }
    }
    return qcclSuccess;
}

static qcclResult_t reduce_scatter(const struct mpi_mover *mover, const char *in, char *out,
                                   size_t recvcount, qcclDataType_t type, qcclRedOp_t op)
{
    if (recvcount > qccl_mpi_limit() / (size_t)mover->nranks)
        return reduce_slices(mover, in, out, recvcount, type, op);
    return qccl_mpi_check(
        MPI_Reduce_scatter_block(in, out, (int)recvcount, mpi_type(type), mpi_op(op), mover->comm),
        "MPI_Reduce_scatter_block");
}

static qcclResult_t reducescatter_mpi(void *context, const void *sendbuff, void *recvbuff,
                                      size_t recvcount, qcclDataType_t type, qcclRedOp_t op)
{
    struct mpi_mover *mover = context;
    size_t bytes = qcclTypeBytes(type), total = recvcount * (size_t)mover->nranks;
    const char *own = (const char *)sendbuff + (size_t)mover->rank * recvcount * bytes;
    bool in_place = own == (const char *)recvbuff;
    char *in = NULL, *out = NULL;
    RETURN_IF_FAILED(qccl_mpi_ready(mover));
    if (recvcount == 0)
        return qcclSuccess;
    if (misaligned(sendbuff, bytes))
        in = aligned_copy(sendbuff, total, bytes);
    if (in_place || misaligned(recvbuff, bytes))
        out = qccl_alloc(recvcount, bytes);
    if (in_place && !out)
        return qccl_mpi_break(
            mover, qccl_fail(qcclOutOfMemory, "no memory for %zu bytes", recvcount * bytes));
    char *target = out ? out : recvbuff;
    qcclResult_t status = reduce_scatter(mover, in ? in : sendbuff, target, recvcount, type, op);
    if (status == qcclSuccess && op == qcclAvg)
        divide(target, recvcount, type, mover->nranks);
    if (status == qcclSuccess && out)
        memcpy(recvbuff, out, recvcount * bytes);
    qccl_free(in);
    qccl_free(out);
    return status ? qccl_mpi_break(mover, status) : status;
}

/* ------------------------------------------------------------------ all-gather */

/* A type of that size: what is gathered is not interpreted. */
static MPI_Datatype type_of_bytes(size_t element_bytes)
{
    switch (element_bytes) {
    case 1:
        return MPI_UINT8_T;
    case 2:
        return MPI_UINT16_T;
    case 4:
        return MPI_UINT32_T;
    default:
        return MPI_UINT64_T;
    }
}

/* Every owner's block in turn, in slices; any number of elements. */
static qcclResult_t broadcast_slices(const struct mpi_mover *mover, char *recv, size_t sendcount,
                                     size_t bytes)
{
    for (int owner = 0; owner < mover->nranks; owner++) {
        char *block = recv + (size_t)owner * sendcount * bytes;
        for (size_t first = 0, n; first < sendcount; first += n) {
            n = slice_elems(sendcount, first);
            RETURN_IF_FAILED(qccl_mpi_check(
                MPI_Bcast(block + first * bytes, (int)n, type_of_bytes(bytes), owner, mover->comm),
                "MPI_Bcast"));
        }
    }
    return qcclSuccess;
}

static qcclResult_t allgather_mpi(void *context, const void *sendbuff, void *recvbuff,
                                  size_t sendcount, qcclDataType_t type)
{
    struct mpi_mover *mover = context;
    size_t bytes = qcclTypeBytes(type);
    char *own = (char *)recvbuff + (size_t)mover->rank * sendcount * bytes;
    MPI_Datatype element = type_of_bytes(bytes);
    qcclResult_t status;
    RETURN_IF_FAILED(qccl_mpi_ready(mover));
    if (sendcount == 0)
        return qcclSuccess;
    if (sendcount > qccl_mpi_limit() / (size_t)mover->nranks) {
        if (sendbuff != own)
            memcpy(own, sendbuff, sendcount * bytes);
        status = broadcast_slices(mover, recvbuff, sendcount, bytes);
    } else {
        status =
            qccl_mpi_check(MPI_Allgather(sendbuff == own ? MPI_IN_PLACE : sendbuff, (int)sendcount,
                                         element, recvbuff, (int)sendcount, element, mover->comm),
                           "MPI_Allgather");
    }
    return status ? qccl_mpi_break(mover, status) : status;
}

const struct native_collectives qccl_mpi_native = {
    .handles = handles,
    .allreduce = allreduce_mpi,
    .reducescatter = reducescatter_mpi,
    .allgather = allgather_mpi,
};
