/* What a user can read and set of a communicator: settings that all ranks share, statistics, plans
 * as text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "collectives/comm.h"

qcclResult_t qcclCommGetAsyncError(qcclComm_t comm, qcclResult_t *error)
{
    CHECK_ARG(comm && error, "qcclCommGetAsyncError: %s is NULL", comm ? "error" : "comm");
    *error = (qcclResult_t)atomic_load(&comm->broken);
    return qcclSuccess;
}

qcclResult_t qcclCommCount(qcclComm_t comm, int *nranks)
{
    CHECK_ARG(comm && nranks, "qcclCommCount: %s is NULL", comm ? "nranks" : "comm");
    *nranks = qccl_nranks(comm);
    return qcclSuccess;
}

qcclResult_t qcclCommUserRank(qcclComm_t comm, int *rank)
{
    CHECK_ARG(comm && rank, "qcclCommUserRank: %s is NULL", comm ? "rank" : "comm");
    *rank = qccl_rank(comm);
    return qcclSuccess;
}

qcclResult_t qcclCommGetPolicy(qcclComm_t comm, char *text, size_t capacity)
{
    CHECK_ARG(comm && text, "qcclCommGetPolicy: %s is NULL", comm ? "text" : "comm");
    return qccl_policy_print(&comm->policy, text, capacity);
}

qcclResult_t qcclCommGetSeed(qcclComm_t comm, uint64_t *seed)
{
    CHECK_ARG(comm && seed, "qcclCommGetSeed: %s is NULL", comm ? "seed" : "comm");
    *seed = comm->seed;
    return qcclSuccess;
}

qcclResult_t qcclCommGetSequence(qcclComm_t comm, uint32_t *sequence)
{
    CHECK_ARG(comm && sequence, "qcclCommGetSequence: %s is NULL", comm ? "sequence" : "comm");
    qccl_comm_enter(comm);
    *sequence = comm->sequence;
    qccl_comm_end_turn(comm);
    return qcclSuccess;
}

/* What a setter is about to set, compared over all ranks. */
static qcclResult_t agree_on_setting(qcclComm_t comm, const char *name, const char *value)
{
    struct record record = {""};
    snprintf(record.text, sizeof record.text, "%s=%s", name, value);
    return qccl_agree(comm, "settings", &record);
}

static qcclResult_t agree_on_number(qcclComm_t comm, const char *name, uint64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    RETURN_IF_FAILED(qccl_comm_usable(comm, name));
    return agree_on_setting(comm, name, text);
}

static qcclResult_t set_policy(qcclComm_t comm, const char *policy)
{
    struct policy parsed;
    char text[QCCL_POLICY_MAX];
    qcclResult_t own = qccl_policy_parse(policy, &parsed);
    if (own == qcclSuccess)
        own = qccl_policy_print(&parsed, text, sizeof text);
    else
        snprintf(text, sizeof text, "wrong on this rank: %.800s", qccl_last_error());
    qcclResult_t agreed = agree_on_setting(comm, "policy", text);
    if (own != qcclSuccess)
        return qccl_fail(own, "qcclCommSetPolicy: %s", text);
    RETURN_IF_FAILED(agreed);
    comm->policy = parsed;
    qccl_comm_forget_plans(comm);
    qccl_feedback_clear(&comm->feedback);
    qccl_comm_log_config(comm);
    return qcclSuccess;
}

qcclResult_t qcclCommSetPolicy(qcclComm_t comm, const char *policy)
{
    RETURN_IF_FAILED(qccl_comm_usable(comm, "qcclCommSetPolicy"));
    CHECK_ARG(policy, "qcclCommSetPolicy: policy is NULL");
    qccl_comm_enter(comm);
    qcclResult_t result = set_policy(comm, policy);
    qccl_comm_end_turn(comm);
    return result;
}

qcclResult_t qcclCommSetSeed(qcclComm_t comm, uint64_t seed)
{
    CHECK_ARG(comm, "qcclCommSetSeed: the communicator is NULL");
    qccl_comm_enter(comm);
    qcclResult_t result = agree_on_number(comm, "qcclCommSetSeed", seed);
    if (result == qcclSuccess)
        comm->seed = seed;
    qccl_comm_end_turn(comm);
    return result;
}

qcclResult_t qcclCommSetSequence(qcclComm_t comm, uint32_t sequence)
{
    CHECK_ARG(comm, "qcclCommSetSequence: the communicator is NULL");
    qccl_comm_enter(comm);
    qcclResult_t result = agree_on_number(comm, "qcclCommSetSequence", sequence);
    if (result == qcclSuccess)
        comm->sequence = sequence;
    qccl_comm_end_turn(comm);
    return result;
}

qcclResult_t qcclCommGetStats(qcclComm_t comm, qcclStats_t *stats)
{
    CHECK_ARG(comm && stats, "qcclCommGetStats: %s is NULL", comm ? "stats" : "comm");
    CHECK_ARG(stats->size >= sizeof stats->size && stats->size <= 4096,
              "qcclCommGetStats: stats->size is %zu; set it to sizeof(qcclStats_t) = %zu",
              stats->size, sizeof *stats);
    pthread_mutex_lock(&comm->lock);
    qcclStats_t now = comm->published;
    pthread_mutex_unlock(&comm->lock);
    now.size = stats->size;
    memcpy(stats, &now, stats->size < sizeof now ? stats->size : sizeof now);
    return qcclSuccess;
}

qcclResult_t qcclCommSetTensor(qcclComm_t comm, uint64_t tensor)
{
    CHECK_ARG(comm, "qcclCommSetTensor: the communicator is NULL");
    comm->feedback.tensor = tensor;
    return qcclSuccess;
}

qcclResult_t qcclCommPrintPlan(qcclComm_t comm, qcclColl_t collective, size_t count,
                               qcclDataType_t datatype, qcclRedOp_t op, char *text, size_t capacity,
                               size_t *needed)
{
    CHECK_ARG(comm && (text || !capacity), "qcclCommPrintPlan: %s is NULL", comm ? "text" : "comm");
    CHECK_ARG(collective >= 0 && collective < qcclNumColls,
              "qcclCommPrintPlan: collective %d is unknown", (int)collective);
    struct plan_key key = {.collective = collective, .count = count, .type = datatype, .op = op};
    char *made = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&made, &bytes);
    if (!out)
        return qccl_fail(qcclOutOfMemory, "no memory to print a plan");
    qccl_comm_enter(comm);
    enum pass_reason reason = qccl_why_pass(comm, &key);
    struct plan *plan;
    qcclResult_t result = qcclSuccess;
    if (reason != PASS_NOT)
        fprintf(out, "%s of %zu elements: not compressed, %s\n", qccl_collective_name(collective),
                count, qccl_pass_reason_text(reason));
    else if ((result = qccl_comm_plan(comm, &key, &plan)) == qcclSuccess)
        qccl_plan_print(plan, out);
    qccl_comm_end_turn(comm);
    bool written = fclose(out) == 0;
    if (result == qcclSuccess && !written)
        result = qccl_fail(qcclOutOfMemory, "no memory to print a plan");
    if (result == qcclSuccess && needed)
        *needed = bytes + 1;
    if (result == qcclSuccess && capacity)
        snprintf(text, capacity, "%s", made);
    free(made);
    return result;
}
