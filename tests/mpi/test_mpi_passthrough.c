/* A call that is not compressed has exactly the bits of the MPI call it stands for: every type
 * that MPI knows, every reduction, in place, misaligned, and in the slices of huge counts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/mpi_transport.h"
#include "tests/mpi/rank_test.h"

enum { ROOM = 64, TYPES = 8, COUNTS = 7 };

static const struct {
    qcclDataType_t type;
    MPI_Datatype mpi;
    const char *name;
} types[TYPES] = {
    {.type = qcclInt8, .mpi = MPI_INT8_T, .name = "int8"},
    {.type = qcclUint8, .mpi = MPI_UINT8_T, .name = "uint8"},
    {.type = qcclInt32, .mpi = MPI_INT32_T, .name = "int32"},
    {.type = qcclUint32, .mpi = MPI_UINT32_T, .name = "uint32"},
    {.type = qcclInt64, .mpi = MPI_INT64_T, .name = "int64"},
    {.type = qcclUint64, .mpi = MPI_UINT64_T, .name = "uint64"},
    {.type = qcclFloat32, .mpi = MPI_FLOAT, .name = "float32"},
    {.type = qcclFloat64, .mpi = MPI_DOUBLE, .name = "float64"},
};

/* MPI's reduction, and whether the sum is divided afterwards. */
static MPI_Op mpi_op(qcclRedOp_t op)
{
    static const int order[] = {0, 1, 2, 3, 0};
    const MPI_Op ops[] = {MPI_SUM, MPI_PROD, MPI_MAX, MPI_MIN};
    return ops[order[op]];
}

static const char *const op_names[] = {"sum", "prod", "max", "min", "avg"};

/* Bytes are small enough for their sum not to overflow: MPI's own treatment of that depends on the
 * position (Open MPI's vector code saturates them, its loop for the rest wraps). */
static void fill(void *values, size_t count, qcclDataType_t type, uint64_t seed)
{
    size_t bytes = qcclTypeBytes(type);
    int most = 127 / test_nranks;
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = mix(seed + i);
        double d = 3.0 * mixed_float(seed + i);
        float f = (float)d;
        char *at = (char *)values + i * bytes;
        if (type == qcclFloat32)
            memcpy(at, &f, bytes);
        else if (type == qcclFloat64)
            memcpy(at, &d, bytes);
        else if (type == qcclInt8)
            *at = (char)(signed char)((int)(bits % (unsigned)(2 * most + 1)) - most);
        else if (type == qcclUint8)
            *at = (char)(bits % (unsigned)(2 * most + 1));
        else
            memcpy(at, &bits, bytes);
    }
}

/* One value of any type over the number of ranks, as NCCL averages. */
static void divide_one(void *value, qcclDataType_t type)
{
    union {
        int8_t i8;
        uint8_t u8;
        int32_t i32;
        uint32_t u32;
        int64_t i64;
        uint64_t u64;
        float f;
        double d;
    } v;
    int n = test_nranks;
    memcpy(&v, value, qcclTypeBytes(type));
    if (type == qcclInt8)
        v.i8 = (int8_t)(v.i8 / n);
    else if (type == qcclUint8)
        v.u8 = (uint8_t)(v.u8 / n);
    else if (type == qcclInt32)
        v.i32 = v.i32 / n;
    else if (type == qcclUint32)
        v.u32 = v.u32 / (uint32_t)n;
    else if (type == qcclInt64)
        v.i64 = v.i64 / n;
    else if (type == qcclUint64)
        v.u64 = v.u64 / (uint64_t)n;
    else if (type == qcclFloat32)
        v.f = v.f * (1.0f / (float)n);
    else
        v.d = v.d * (1.0 / n);
    memcpy(value, &v, qcclTypeBytes(type));
}

/* One call: what, on how much, where. */
struct call {
    qcclColl_t collective;
    int type; /* index of types */
    qcclRedOp_t op;
    size_t count;
    bool in_place;
    int offset;
};

static size_t send_elems(const struct call *c)
{
    return c->collective == qcclCollReduceScatter ? c->count * (size_t)test_nranks : c->count;
}

static size_t recv_elems(const struct call *c)
{
    return c->collective == qcclCollAllGather ? c->count * (size_t)test_nranks : c->count;
}

/* What MPI itself makes of the same input. */
static void expect(const struct call *c, const void *send, void *expected)
{
    MPI_Datatype type = types[c->type].mpi;
    int count = (int)c->count;
    size_t bytes = qcclTypeBytes(types[c->type].type);
    if (c->collective == qcclCollAllReduce)
        MPI_Allreduce(send, expected, count, type, mpi_op(c->op), MPI_COMM_WORLD);
    else if (c->collective == qcclCollReduceScatter)
        MPI_Reduce_scatter_block(send, expected, count, type, mpi_op(c->op), MPI_COMM_WORLD);
    else
        MPI_Allgather(send, count, type, expected, count, type, MPI_COMM_WORLD);
    if (c->collective != qcclCollAllGather && c->op == qcclAvg)
        for (size_t i = 0; i < c->count; i++)
            divide_one((char *)expected + i * bytes, types[c->type].type);
}

static qcclResult_t run(const struct call *c, const void *send, void *recv, qcclComm_t comm)
{
    qcclDataType_t type = types[c->type].type;
    if (c->collective == qcclCollAllReduce)
        return qcclAllReduce(send, recv, c->count, type, c->op, comm, NULL);
    if (c->collective == qcclCollReduceScatter)
        return qcclReduceScatter(send, recv, c->count, type, c->op, comm, NULL);
    return qcclAllGather(send, recv, c->count, type, comm, NULL);
}

static bool check_call(const struct call *c, qcclComm_t comm)
{
    size_t bytes = qcclTypeBytes(types[c->type].type), place = (size_t)test_rank * c->count * bytes;
    size_t send_bytes = send_elems(c) * bytes, recv_bytes = recv_elems(c) * bytes;
    unsigned char *input = malloc(send_bytes + ROOM), *expected = malloc(recv_bytes + ROOM);
    unsigned char *a = malloc(send_bytes + ROOM), *b = malloc(recv_bytes + ROOM);
    require(input && expected && a && b, "no memory");
    unsigned char *send = a + c->offset, *recv = b + c->offset;
    fill(input, send_elems(c), types[c->type].type, (uint64_t)test_rank * 1000003 + c->count);
    if (c->in_place && c->collective == qcclCollAllGather)
        send = recv + place;
    if (c->in_place && c->collective == qcclCollReduceScatter)
        recv = send + place;
    if (c->in_place && c->collective == qcclCollAllReduce)
        recv = send;
    memcpy(send, input, send_bytes);
    expect(c, input, expected);
    qcclResult_t result = run(c, send, recv, comm);
    bool right = result == qcclSuccess && memcmp(recv, expected, recv_bytes) == 0;
    /* What lies around the result in place belongs to the caller. */
    for (size_t i = 0; i < send_bytes && c->in_place && c->collective == qcclCollReduceScatter; i++)
        right = right && (i - place < recv_bytes || send[i] == input[i]);
    if (!right)
        note("collective %d, %s, %s, count %zu, %s, offset %d: %s", (int)c->collective,
             types[c->type].name, op_names[c->op], c->count, c->in_place ? "in place" : "apart",
             c->offset, result ? qcclGetLastError() : "other bits than MPI's");
    free(input);
    free(expected);
    free(a);
    free(b);
    return right;
}

/* All counts; in place or not, aligned or not, in turn, so that each type has every combination. */
static bool check_counts(qcclColl_t collective, int type, qcclRedOp_t op, qcclComm_t comm)
{
    static const size_t counts[COUNTS] = {0, 1, 2, 3, 127, 1000, 20011};
    bool right = true;
    for (int i = 0; i < COUNTS; i++) {
        int variant = (i + type + (int)op) % 4;
        struct call c = {.collective = collective,
                         .type = type,
                         .op = op,
                         .count = counts[i],
                         .in_place = variant % 2 == 1,
                         .offset = variant > 1 ? 3 : 0};
        right = check_call(&c, comm) && right;
    }
    return right;
}

static void check_all(const char *policy, bool floats)
{
    qcclComm_t comm;
    qcclConfig_t config = QCCL_CONFIG_INITIALIZER;
    config.policy = policy;
    require_success(qcclCommInitMpi(&comm, MPI_COMM_WORLD, &config), "qcclCommInitMpi");
    for (int op = 0; op < qcclNumOps; op++) {
        bool reduce = true, scatter = true;
        for (int type = 0; type < (floats ? TYPES : TYPES - 2); type++) {
            reduce = check_counts(qcclCollAllReduce, type, (qcclRedOp_t)op, comm) && reduce;
            scatter = check_counts(qcclCollReduceScatter, type, (qcclRedOp_t)op, comm) && scatter;
        }
        ok(reduce, "%s: allreduce %s is MPI_Allreduce", policy, op_names[op]);
        ok(scatter, "%s: reduce-scatter %s is MPI_Reduce_scatter_block", policy, op_names[op]);
    }
    bool gather = true;
    for (int type = 0; type < TYPES; type++)
        gather = check_counts(qcclCollAllGather, type, qcclSum, comm) && gather;
    ok(gather, "%s: all-gather is MPI_Allgather", policy);
    qcclStats_t stats = {.size = sizeof stats};
    require_success(qcclCommGetStats(comm, &stats), "qcclCommGetStats");
    ok(stats.calls == 0 && stats.passed > 0 && stats.wire_bytes == 0, "%s: nothing was compressed",
       policy);
    require_success(qcclCommDestroy(comm), "qcclCommDestroy");
}

int main(int argc, char **argv)
{
    rank_test_start(&argc, &argv, MPI_THREAD_SINGLE, 1);
    check_all("none", true);
    /* Larger than any message here: small messages step aside whatever their type. */
    check_all("int4; min=1GiB", true);
    /* The split of counts beyond MPI's int; integers, whose sums do not depend on the cuts. */
    qccl_mpi_set_limit(999);
    check_all("allreduce: none; min=0", false);
    qccl_mpi_set_limit(0);
    return rank_test_end();
}
