/* The list of residuals, and how it is saved: a head with a checksum, then for each residual its
 * key and its values. */
#include "collectives/feedback.h"

#include <string.h>
#include <xxhash.h>

#include "base/memory.h"
#include "base/status.h"
#include "collectives/comm.h"

struct saved_head {
    char magic[8];
    uint64_t bytes, checksum; /* of the whole, and of what follows the head */
    uint32_t rank, nranks;
    uint64_t residuals, policy_hash;
};

struct saved_entry {
    uint64_t tensor, count, elems;
    uint32_t collective, type, op, reserved;
};

static const char magic[8] = "QCCLEF1";

static bool same_tensor(const struct residual *r, uint64_t tensor, const struct plan_key *key)
{
    return r->tensor == tensor && r->key.collective == key->collective &&
           r->key.count == key->count && r->key.type == key->type && r->key.op == key->op;
}

static struct residual *new_residual(uint64_t tensor, const struct plan_key *key, size_t elems)
{
    struct residual *made = qccl_alloc(1, sizeof *made);
    if (!made)
        return NULL;
    made->values = qccl_alloc(elems, sizeof(float));
    if (!made->values) {
        qccl_free(made);
        return NULL;
    }
    made->tensor = tensor;
    made->key = *key;
    made->elems = elems;
    return made;
}

qcclResult_t qccl_feedback_values(struct feedback *feedback, uint64_t tensor,
                                  const struct plan *plan, float **values)
{
    *values = NULL;
    if (!plan->residual_elems)
        return qcclSuccess;
    struct residual *r = feedback->first;
    while (r && !same_tensor(r, tensor, &plan->key))
        r = r->next;
    if (!r) {
        r = new_residual(tensor, &plan->key, plan->residual_elems);
        if (!r)
            return qccl_fail(qcclOutOfMemory, "no memory for %zu error feedback residuals",
                             plan->residual_elems);
        r->next = feedback->first;
        feedback->first = r;
    }
    if (r->elems != plan->residual_elems)
        return qccl_fail(qcclInternalError, "%zu residuals are kept where the plan has %zu",
                         r->elems, plan->residual_elems);
    *values = r->values;
    return qcclSuccess;
}

void qccl_feedback_clear(struct feedback *feedback)
{
    while (feedback->first) {
        struct residual *r = feedback->first;
        feedback->first = r->next;
        qccl_free(r->values);
        qccl_free(r);
    }
}

size_t qccl_feedback_memory(const struct feedback *feedback)
{
    size_t bytes = 0;
    for (const struct residual *r = feedback->first; r; r = r->next)
        bytes += r->elems * sizeof(float);
    return bytes;
}

/* ------------------------------------------------------------------ save and restore */

/* Residuals belong to a policy: another one encodes other segments in another domain. */
static uint64_t policy_hash(const struct qcclComm *comm)
{
    char text[QCCL_POLICY_MAX] = "";
    qccl_policy_print(&comm->policy, text, sizeof text);
    return XXH3_64bits(text, strlen(text));
}

qcclResult_t qcclFeedbackReset(qcclComm_t comm)
{
    CHECK_ARG(comm, "qcclFeedbackReset: the communicator is NULL");
    qccl_comm_enter(comm);
    qccl_feedback_clear(&comm->feedback);
    qccl_comm_end_turn(comm);
    return qcclSuccess;
}

static size_t saved_bytes(const struct qcclComm *comm)
{
    size_t bytes = sizeof(struct saved_head);
    for (const struct residual *r = comm->feedback.first; r; r = r->next)
        bytes += sizeof(struct saved_entry) + r->elems * sizeof(float);
    return bytes;
}

qcclResult_t qcclFeedbackBytes(qcclComm_t comm, size_t *bytes)
{
    CHECK_ARG(comm && bytes, "qcclFeedbackBytes: %s is NULL", comm ? "bytes" : "comm");
    qccl_comm_enter(comm);
    *bytes = saved_bytes(comm);
    qccl_comm_end_turn(comm);
    return qcclSuccess;
}

static qcclResult_t save(qcclComm_t comm, void *state, size_t capacity)
{
    size_t bytes = saved_bytes(comm);
    CHECK_ARG(capacity >= bytes, "qcclFeedbackSave: the residuals take %zu bytes, capacity is %zu",
              bytes, capacity);
    struct saved_head head = {.bytes = bytes,
                              .rank = (uint32_t)qccl_rank(comm),
                              .nranks = (uint32_t)qccl_nranks(comm),
                              .policy_hash = policy_hash(comm)};
    memcpy(head.magic, magic, sizeof magic);
    uint8_t *body = (uint8_t *)state + sizeof head, *out = body;
    for (const struct residual *r = comm->feedback.first; r; r = r->next, head.residuals++) {
        struct saved_entry entry = {.tensor = r->tensor,
                                    .count = r->key.count,
                                    .elems = r->elems,
                                    .collective = (uint32_t)r->key.collective,
                                    .type = (uint32_t)r->key.type,
                                    .op = (uint32_t)r->key.op};
        memcpy(out, &entry, sizeof entry);
        memcpy(out + sizeof entry, r->values, r->elems * sizeof(float));
        out += sizeof entry + r->elems * sizeof(float);
    }
    head.checksum = XXH3_64bits(body, bytes - sizeof head);
    memcpy(state, &head, sizeof head);
    return qcclSuccess;
}

qcclResult_t qcclFeedbackSave(qcclComm_t comm, void *state, size_t capacity)
{
    CHECK_ARG(comm && state, "qcclFeedbackSave: %s is NULL", comm ? "state" : "comm");
    qccl_comm_enter(comm);
    qcclResult_t result = save(comm, state, capacity);
    qccl_comm_end_turn(comm);
    return result;
}

static qcclResult_t check_head(qcclComm_t comm, const uint8_t *state, size_t bytes,
                               struct saved_head *head)
{
    if (bytes < sizeof *head)
        return qccl_fail(qcclCorruptMessage,
                         "saved residuals of %zu bytes are shorter than their head of %zu", bytes,
                         sizeof *head);
    memcpy(head, state, sizeof *head);
    if (memcmp(head->magic, magic, sizeof magic) != 0 || head->bytes != bytes ||
        head->checksum != XXH3_64bits(state + sizeof *head, bytes - sizeof *head))
        return qccl_fail(qcclCorruptMessage, "saved residuals of %zu bytes are damaged", bytes);
    if ((int)head->rank != qccl_rank(comm) || (int)head->nranks != qccl_nranks(comm))
        return qccl_fail(qcclCorruptMessage,
                         "saved residuals are rank %u's of %u, this is rank %d of %d", head->rank,
                         head->nranks, qccl_rank(comm), qccl_nranks(comm));
    if (head->policy_hash != policy_hash(comm))
        return qccl_fail(qcclCorruptMessage, "saved residuals belong to another policy");
    return qcclSuccess;
}

/* Reads one residual into a new list, moving *in; what does not fit the plan of its key is damage.
 */
static qcclResult_t read_entry(qcclComm_t comm, const uint8_t **in, const uint8_t *end,
                               struct feedback *into)
{
    struct saved_entry e;
    struct plan *plan;
    if ((size_t)(end - *in) < sizeof e)
        return qccl_fail(qcclCorruptMessage, "saved residuals end within an entry");
    memcpy(&e, *in, sizeof e);
    *in += sizeof e;
    struct plan_key key = {.collective = (qcclColl_t)e.collective,
                           .count = e.count,
                           .type = (qcclDataType_t)e.type,
                           .op = (qcclRedOp_t)e.op};
    if (!e.elems || e.elems > (size_t)(end - *in) / sizeof(float) || e.collective >= qcclNumColls ||
        qccl_why_pass(comm, &key) != PASS_NOT)
        return qccl_fail(qcclCorruptMessage, "saved residuals have an entry that cannot be");
    qcclResult_t planned = qccl_comm_plan(comm, &key, &plan);
    if (planned == qcclInvalidArgument) /* a count that no call can have */
        return qccl_fail_prefix(qcclCorruptMessage, "saved residuals");
    RETURN_IF_FAILED(planned);
    if (plan->residual_elems != e.elems)
        return qccl_fail(qcclCorruptMessage,
                         "saved residuals have %llu values where the plan has %zu",
                         (unsigned long long)e.elems, plan->residual_elems);
    float *values;
    RETURN_IF_FAILED(qccl_feedback_values(into, e.tensor, plan, &values));
    memcpy(values, *in, e.elems * sizeof *values);
    *in += e.elems * sizeof *values;
    return qcclSuccess;
}

static qcclResult_t restore(qcclComm_t comm, const void *state, size_t bytes)
{
    struct saved_head head;
    RETURN_IF_FAILED(check_head(comm, state, bytes, &head));
    const uint8_t *in = (const uint8_t *)state + sizeof head, *end = (const uint8_t *)state + bytes;
    struct feedback made = {0};
    qcclResult_t result = qcclSuccess;
    for (uint64_t i = 0; result == qcclSuccess && i < head.residuals; i++)
        result = read_entry(comm, &in, end, &made);
    if (result == qcclSuccess && in != end)
        result = qccl_fail(qcclCorruptMessage, "saved residuals have %zu bytes too many",
                           (size_t)(end - in));
    if (result != qcclSuccess) {
        qccl_feedback_clear(&made);
        return result;
    }
    qccl_feedback_clear(&comm->feedback);
    comm->feedback.first = made.first;
    return qcclSuccess;
}

qcclResult_t qcclFeedbackRestore(qcclComm_t comm, const void *state, size_t bytes)
{
    CHECK_ARG(comm && state, "qcclFeedbackRestore: %s is NULL", comm ? "state" : "comm");
    qccl_comm_enter(comm);
    qcclResult_t result = restore(comm, state, bytes);
    qccl_comm_end_turn(comm);
    return result;
}
