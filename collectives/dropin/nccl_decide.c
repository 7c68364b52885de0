/* What becomes of a call of NCCL, and what the environment says about that.
 *
 * Every rank must come to the same answer, so it depends on what NCCL demands to be equal
 * everywhere, and on settings, which the job's launcher gives to all ranks. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/environment.h"
#include "base/log.h"
#include "base/status.h"
#include "collectives/dropin/nccl_call.h"

/* ------------------------------------------------------------------ settings */

static struct nccl_settings settings;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Residuals belong to a tensor, and an NCCL call does not say which tensor it is. */
static qcclResult_t check_feedback(const struct policy *policy)
{
    for (int c = 0; c < qcclNumColls; c++) {
        const struct collective_policy *p = &policy->of[c];
        if (p->main.feedback || p->gather.feedback || (p->two_level && p->intra.feedback))
            return qccl_fail(qcclInvalidArgument,
                             "QCCL_POLICY: feedback=on needs to know which tensor a call reduces, "
                             "which an NCCL call does not say");
    }
    return qcclSuccess;
}

static qcclResult_t parse_settings(void)
{
    if (*settings.rules_text)
        RETURN_IF_FAILED(qccl_rules_parse(settings.rules_text, &settings.rules));
    if (!*settings.policy_text)
        return qcclSuccess;
    RETURN_IF_FAILED(qccl_policy_parse(settings.policy_text, &settings.policy));
    settings.compresses = true;
    return check_feedback(&settings.policy);
}

static void read_settings(void)
{
    const char *policy = qccl_env_text("QCCL_POLICY"), *rules = qccl_env_text("QCCL_DROPIN");
    settings.policy_text = policy ? policy : "";
    settings.rules_text = rules ? rules : "";
    settings.explains = qccl_env_flag("QCCL_EXPLAIN");
    settings.stats = qccl_env_flag("QCCL_STATS");
    settings.watches = settings.explains || settings.stats || qccl_log_wants(QCCL_LOG_INFO);
    if (parse_settings() == qcclSuccess)
        return;
    snprintf(settings.error, sizeof settings.error, "%s", qcclGetLastError());
    settings.watches = false;
}

const struct nccl_settings *qccl_nccl_settings(void)
{
    pthread_once(&once, read_settings);
    return &settings;
}

/* ------------------------------------------------------------------ deciding */

size_t qccl_nccl_total(const struct nccl_call *call, const struct nccl_comm *comm)
{
    return call->count * (call->collective == qcclCollAllReduce ? 1 : (size_t)comm->nranks);
}

static bool op_sums(const struct nccl_call *call, const struct nccl_comm *comm)
{
    return call->collective == qcclCollAllGather || call->op == ncclSum || call->op == ncclAvg ||
           qccl_nccl_op_known(comm, call->op, call->type);
}

static enum nccl_reason ask_rules(const struct nccl_settings *s, const struct nccl_call *call,
                                  const struct nccl_comm *comm)
{
    Dl_info where = {0};
    if (s->rules.ask_site)
        dladdr(call->site, &where);
    const char *path = where.dli_fname ? where.dli_fname : "", *slash = strrchr(path, '/');
    const struct candidate candidate = {
        .collective = call->collective,
        .type = (qcclDataType_t)call->type,
        .count = qccl_nccl_total(call, comm),
        .nranks = comm->nranks,
        .name = comm->name,
        .site = {slash ? slash + 1 : path, where.dli_sname ? where.dli_sname : ""},
    };
    /* What passes all rules waits for an executor on GPUs, which this library does not have. */
    static const enum nccl_reason reasons[] = {[RULES_TAKE] = NCCL_PASSED_EXECUTOR,
                                               [RULES_NOT_ONLY] = NCCL_PASSED_NOT_ONLY,
                                               [RULES_EXCEPT] = NCCL_PASSED_EXCEPT,
                                               [RULES_DOUBLE] = NCCL_PASSED_DOUBLE};
    return reasons[qccl_rules_ask(&s->rules, &candidate)];
}

enum nccl_reason qccl_nccl_decide(const struct nccl_settings *s, const struct nccl_call *call,
                                  const struct nccl_comm *comm)
{
    bool floats = call->type == ncclFloat32 || call->type == ncclFloat16 ||
                  call->type == ncclBfloat16 || call->type == ncclFloat64;
    if (!s->compresses)
        return NCCL_PASSED_OFF;
    if (!op_sums(call, comm))
        return NCCL_PASSED_OP;
    if (!qccl_policy_compresses(&s->policy, call->collective))
        return NCCL_PASSED_POLICY;
    if (!floats)
        return NCCL_PASSED_TYPE;
    if (comm->failed)
        return NCCL_PASSED_FAILED;
    if (comm->closing)
        return NCCL_PASSED_CLOSING;
    if (comm->nranks < 2)
        return NCCL_PASSED_SINGLE;
    size_t bytes = qccl_nccl_total(call, comm) * qcclTypeBytes((qcclDataType_t)call->type);
    return bytes && bytes >= s->policy.min_bytes ? ask_rules(s, call, comm) : NCCL_PASSED_SMALL;
}
