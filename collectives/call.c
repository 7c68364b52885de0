/* One call: checked, then compressed or passed through when its turn comes. */
#include "collectives/call.h"

#include <string.h>

#include <xxhash.h>

#include "base/log.h"
#include "base/status.h"
#include "base/trace.h"

static const char *const type_names[qcclNumTypes] = {
    [qcclInt8] = "int8",         [qcclUint8] = "uint8",     [qcclInt32] = "int32",
    [qcclUint32] = "uint32",     [qcclInt64] = "int64",     [qcclUint64] = "uint64",
    [qcclFloat16] = "float16",   [qcclFloat32] = "float32", [qcclFloat64] = "float64",
    [qcclBfloat16] = "bfloat16",
};
static const char *const op_names[qcclNumOps] = {
    [qcclSum] = "sum", [qcclProd] = "prod", [qcclMax] = "max", [qcclMin] = "min", [qcclAvg] = "avg",
};

/* ------------------------------------------------------------------ decisions */

static bool reduces(qcclColl_t collective)
{
    return collective == qcclCollAllReduce || collective == qcclCollReduceScatter;
}

static size_t whole_bytes(const struct qcclComm *comm, const struct plan_key *key)
{
    size_t shards = key->collective == qcclCollAllReduce ? 1 : (size_t)qccl_nranks(comm);
    return key->count * shards * qcclTypeBytes(key->type);
}

enum pass_reason qccl_why_pass(const struct qcclComm *comm, const struct plan_key *key)
{
    bool delta = key->collective == qcclCollAllGatherDelta;
    if (key->policy) /* registered, and so always a plan: the caller saw to the rest */
        return qccl_nranks(comm) == 1 || !key->count ? PASS_SINGLE : PASS_NOT;
    if (key->type != qcclFloat32 && key->type != qcclBfloat16 && key->type != qcclFloat16)
        return PASS_TYPE;
    if (reduces(key->collective) && key->op != qcclSum && key->op != qcclAvg)
        return PASS_OP;
    if (!qccl_policy_compresses(&comm->policy, key->collective))
        return PASS_POLICY;
    if (qccl_nranks(comm) == 1 && !delta)
        return PASS_SINGLE;
    return whole_bytes(comm, key) < comm->policy.min_bytes || !key->count ? PASS_SMALL : PASS_NOT;
}

const char *qccl_pass_reason_text(enum pass_reason reason)
{
    static const char *const texts[PASS_REASONS] = {
        [PASS_NOT] = "compressed",
        [PASS_TYPE] = "the element type is none of fp32, bf16, fp16",
        [PASS_OP] = "the reduction is neither sum nor avg",
        [PASS_SMALL] = "the message is below the policy's min=",
        [PASS_POLICY] = "the policy does not compress this collective",
        [PASS_SINGLE] = "there is one rank",
    };
    return texts[reason];
}

static void count_passed(struct qcclComm *comm, const struct call *call, enum pass_reason reason)
{
    qcclStats_t *s = &comm->stats;
    uint64_t *counts[PASS_REASONS] = {
        [PASS_TYPE] = &s->passed_type,     [PASS_OP] = &s->passed_op,
        [PASS_SMALL] = &s->passed_small,   [PASS_POLICY] = &s->passed_policy,
        [PASS_SINGLE] = &s->passed_single,
    };
    s->passed++;
    ++*counts[reason];
    unsigned bit = 1u << ((unsigned)call->key.collective * PASS_REASONS + (unsigned)reason);
    if (comm->logged_reasons & bit)
        return;
    comm->logged_reasons |= bit;
    qccl_log(QCCL_LOG_INFO, qccl_rank(comm), "%s of %zu x %s is passed through: %s (said once)",
             call->name, call->key.count, type_names[call->key.type],
             qccl_pass_reason_text(reason));
}

/* ------------------------------------------------------------------ the two ways */

static qcclResult_t run_native(struct qcclComm *comm, const struct call *call, const void *sendbuff)
{
    const struct plan_key *key = &call->key;
    const struct native_collectives *native = comm->transport.native;
    void *context = comm->transport.mover.context;
    if (native && !native->handles(key->type, key->op))
        native = NULL;
    switch (key->collective) {
    case qcclCollAllReduce:
        return native ? native->allreduce(context, sendbuff, call->recvbuff, key->count, key->type,
                                          key->op)
                      : qccl_plain_allreduce(comm, sendbuff, call->recvbuff, key->count, key->type,
                                             key->op);
    case qcclCollReduceScatter:
        return native ? native->reducescatter(context, sendbuff, call->recvbuff, key->count,
                                              key->type, key->op)
                      : qccl_plain_reducescatter(comm, sendbuff, call->recvbuff, key->count,
                                                 key->type, key->op);
    default:
        return native ? native->allgather(context, sendbuff, call->recvbuff, key->count, key->type)
                      : qccl_plain_allgather(comm, sendbuff, call->recvbuff, key->count, key->type);
    }
}

static qcclResult_t pass_through(struct qcclComm *comm, const struct call *call)
{
    const struct plan_key *key = &call->key;
    const void *sendbuff = call->sendbuff;
    size_t own_bytes = key->count * qcclTypeBytes(key->type);
    if (key->collective ==
        qcclCollAllGatherDelta) { /* the masters themselves, in the replica's type */
        struct source master = {.values = sendbuff, .type = qcclFloat32};
        char *own = (char *)call->recvbuff + (size_t)qccl_rank(comm) * own_bytes;
        qccl_convert(&master, own, key->type, key->count);
        sendbuff = own;
    }
    if (qccl_nranks(comm) > 1 && key->count)
        return run_native(comm, call, sendbuff);
    if (own_bytes && call->recvbuff != sendbuff)
        memcpy(call->recvbuff, sendbuff, own_bytes);
    return qcclSuccess;
}

static qcclResult_t compress(struct qcclComm *comm, const struct call *call)
{
    struct plan *plan;
    RETURN_IF_FAILED(qccl_comm_plan(comm, &call->key, &plan));
    bool delta = call->key.collective == qcclCollAllGatherDelta;
    struct operands operands = {
        .input = call->sendbuff,
        .input_type = delta ? qcclFloat32 : call->key.type,
        .minus = delta ? call->recvbuff : NULL,
        .output = call->recvbuff,
        .tensor = call->tensor,
        .replica = call->replica,
        .lost = call->lost,
        .priority = call->priority,
    };
    RETURN_IF_FAILED(call->execute(comm, plan, &operands));
    qccl_log(QCCL_LOG_TRACE, qccl_rank(comm), "%s of %zu x %s compressed, sequence %u, %zu rounds",
             call->name, call->key.count, type_names[call->key.type], comm->sequence, plan->rounds);
    comm->sequence++;
    comm->stats.calls++;
    comm->stats.raw_bytes += plan->raw_bytes;
    if (operands.stale)
        return qccl_fail(qcclMismatch,
                         "%s: rank %d's replica has version %u, another rank's a different one; "
                         "no replica was changed",
                         call->name, qccl_rank(comm), call->replica);
    return qcclSuccess;
}

/* ------------------------------------------------------------------ checks */

static qcclResult_t check_values(const struct call *call)
{
    const struct qcclComm *comm = call->comm;
    const struct plan_key *key = &call->key;
    const char *name = call->name;
    CHECK_ARG(qcclTypeBytes(key->type), "%s: datatype %d is unknown", name, (int)key->type);
    CHECK_ARG((unsigned)key->op < qcclNumOps, "%s: op %d is unknown", name, (int)key->op);
    CHECK_ARG(key->count <= ((size_t)1 << 48) / (size_t)qccl_nranks(comm),
              "%s: count %zu is too large for %d ranks", name, key->count, qccl_nranks(comm));
    CHECK_ARG(!key->count || (call->sendbuff && call->recvbuff), "%s: %s is NULL for %zu elements",
              name, call->sendbuff ? "recvbuff" : "sendbuff", key->count);
    CHECK_ARG(key->collective != qcclCollAllGatherDelta || key->type == qcclFloat32 ||
                  key->type == qcclBfloat16 || key->type == qcclFloat16,
              "%s: datatype %s is none of float32, bfloat16, float16", name, type_names[key->type]);
    return qcclSuccess;
}

/* Buffers are apart, or the smaller one is exactly this rank's place in the larger one. */
static qcclResult_t check_overlap(const struct call *call)
{
    bool in_place_allowed = call->key.collective != qcclCollAllGatherDelta;
    uintptr_t send = (uintptr_t)call->sendbuff, recv = (uintptr_t)call->recvbuff;
    if (!call->key.count || send + call->send_bytes <= recv || recv + call->recv_bytes <= send)
        return qcclSuccess;
    bool send_is_larger = call->send_bytes > call->recv_bytes;
    bool in_place = send_is_larger ? recv == send + call->in_place_offset
                                   : send == recv + call->in_place_offset;
    CHECK_ARG(in_place && in_place_allowed,
              "%s: rank %d's buffers overlap, but not in place: sendbuff has %zu bytes at %p, "
              "recvbuff %zu at %p",
              call->name, qccl_rank(call->comm), call->send_bytes, call->sendbuff, call->recv_bytes,
              call->recvbuff);
    return qcclSuccess;
}

qcclResult_t qccl_call_check(const struct call *call)
{
    RETURN_IF_FAILED(qccl_comm_usable(call->comm, call->name));
    RETURN_IF_FAILED(check_values(call));
    return check_overlap(call);
}

/* What a call was merged from, as a number of tensors and a hash of their counts. */
static void describe_tensors(const struct call *call, char *text, size_t capacity)
{
    uint64_t tensors = 0, hash = 0;
    for (const struct tensor *t = call->tensors; t; t = t->next) {
        uint64_t count = t->count;
        hash = XXH3_64bits_withSeed(&count, sizeof count, hash);
        tensors++;
    }
    if (tensors > 1)
        snprintf(text, capacity, "%llu, hash of their counts %016llx", (unsigned long long)tensors,
                 (unsigned long long)hash);
    else
        snprintf(text, capacity, "1");
}

/* QCCL_CHECK=1: every rank says what it is about to do. */
static qcclResult_t compare_calls(struct qcclComm *comm, const struct call *call)
{
    struct record record = {""};
    char tensors[64];
    const struct plan_key *key = &call->key;
    describe_tensors(call, tensors, sizeof tensors);
    snprintf(record.text, sizeof record.text,
             "call=%s\ncount=%zu\ndatatype=%s\nop=%s\nsequence=%u\nseed=%llu\ntensor=%llu\n"
             "tensors=%s",
             call->name, key->count, type_names[key->type], op_names[key->op], comm->sequence,
             (unsigned long long)comm->seed, (unsigned long long)call->tensor, tensors);
    qcclResult_t result = qccl_agree(comm, "calls", &record);
    if (result == qcclMismatch && call->grouped) /* the calls behind it do not fit either */
        qccl_comm_close(comm, result, qccl_last_error());
    return result;
}

/* ------------------------------------------------------------------ running */

static qcclResult_t run_one(struct qcclComm *comm, const struct call *call)
{
    enum pass_reason reason = qccl_why_pass(comm, &call->key);
    qcclResult_t result;
    if (reason == PASS_NOT) {
        uint32_t before = comm->sequence;
        result = compress(comm, call);
        if (result == qcclMismatch && comm->sequence != before)
            return result; /* of replica versions: the ranks are still together */
    } else {
        count_passed(comm, call, reason);
        result = pass_through(comm, call);
    }
    return result == qcclSuccess ? qcclSuccess : qccl_comm_break(comm, result);
}

static qcclResult_t run_merged(struct qcclComm *comm, const struct call *call)
{
    struct call packed;
    qcclResult_t result = qccl_call_pack(call, &packed);
    if (result != qcclSuccess)
        return qccl_comm_break(comm, result);
    RETURN_IF_FAILED(run_one(comm, &packed));
    qccl_call_unpack(&packed);
    return qcclSuccess;
}

static qcclResult_t run_in_turn(struct qcclComm *comm, const struct call *call)
{
    RETURN_IF_FAILED(qccl_comm_usable(comm, call->name));
    if (comm->check)
        RETURN_IF_FAILED(compare_calls(comm, call));
    bool merged = call->tensors && call->tensors->next;
    return merged ? run_merged(comm, call) : run_one(comm, call);
}

/* How long a wait leaves the core: the less hurry, the longer. */
static void set_nap(const struct call *call)
{
    const struct transport *transport = &call->comm->transport;
    long nap_ns = !call->overlapped ? 0 : call->priority ? 300000 : 50000;
    if (transport->set_nap)
        transport->set_nap(transport->mover.context, nap_ns);
}

void qccl_call_take_turn(struct call *call)
{
    call->turn = qccl_comm_take_turn(call->comm);
}

qcclResult_t qccl_call_run(const struct call *call)
{
    qccl_comm_await_turn(call->comm, call->turn);
    int rank = qccl_rank(call->comm);
    set_nap(call);
    qccl_trace_begin(rank, call->mark);
    qcclResult_t result = run_in_turn(call->comm, call);
    qccl_trace_end(rank);
    qccl_comm_end_turn(call->comm);
    return result;
}

/* ------------------------------------------------------------------ making */

/* Shards of a collective in the input, and in the output. */
static void count_shards(const struct qcclComm *comm, qcclColl_t collective, size_t *in,
                         size_t *out)
{
    size_t all = (size_t)qccl_nranks(comm);
    *in = collective == qcclCollReduceScatter ? all : 1;
    *out = collective == qcclCollAllGather || collective == qcclCollAllGatherDelta ? all : 1;
}

struct call qccl_call(const char *name, struct qcclComm *comm, const struct plan_key *key,
                      const void *sendbuff, void *recvbuff)
{
    size_t type_bytes = qcclTypeBytes(key->type), in, out;
    bool delta = key->collective == qcclCollAllGatherDelta;
    count_shards(comm, key->collective, &in, &out);
    return (struct call){
        .name = name,
        .mark = name,
        .comm = comm,
        .key = *key,
        .sendbuff = sendbuff,
        .recvbuff = recvbuff,
        .send_bytes = key->count * in * (delta ? sizeof(float) : type_bytes),
        .recv_bytes = key->count * out * type_bytes,
        .in_place_offset = in != out ? (size_t)qccl_rank(comm) * key->count * type_bytes : 0,
        .tensor = comm->feedback.tensor,
    };
}
