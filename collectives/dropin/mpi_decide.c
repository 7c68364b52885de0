/* Whether a call is compressed.  Every rank must come to the same answer, so it depends on what MPI
 * demands to be equal everywhere, and on settings that were compared. */
#include <dlfcn.h>
#include <string.h>

#include "base/status.h"
#include "collectives/dropin/mpi_job.h"

/* Blocks of different sizes travel as blocks of the largest size; more than this many times the
 * message is not worth it. */
enum { UNEVEN_MAX = 2 };

/* ------------------------------------------------------------------ what kind of call */

static qcclColl_t collective_of(enum form form)
{
    switch (qccl_dropin_blocking(form)) {
    case FORM_ALLREDUCE:
        return qcclCollAllReduce;
    case FORM_REDUCE_SCATTER:
    case FORM_REDUCE_SCATTER_BLOCK:
        return qcclCollReduceScatter;
    default:
        return qcclCollAllGather;
    }
}

/* Predefined operations take predefined types alone; a type that fails here may still be judged by
 * MPI. */
static enum reason check_kind(const struct dropin_settings *settings, const struct mpi_call *call,
                              struct job *job)
{
    bool reduces = job->collective != qcclCollAllGather;
    if (call->form >= FORM_ALLREDUCE_INIT)
        return REASON_PERSISTENT;
    if (!settings->compresses)
        return REASON_OFF;
    if (call->form >= FORM_IALLREDUCE && !settings->threads)
        return REASON_NONBLOCKING;
    if (reduces && (MPI_Op)call->op != MPI_SUM)
        return REASON_OP;
    if (!qccl_policy_compresses(&settings->policy, job->collective))
        return REASON_POLICY;
    if (!qccl_dropin_element(settings, (MPI_Datatype)call->recvtype, &job->element))
        return REASON_TYPE;
    return reduces && job->element.values != 1 ? REASON_TYPE : REASON_NONE;
}

/* ------------------------------------------------------------------ how large */

/* Whether the block of each rank stands right behind the one before. */
static bool consecutive(const struct mpi_call *call, int nranks)
{
    int64_t end = 0;
    for (int r = 0; call->displs && r < nranks; r++) {
        if (call->displs[r] != end)
            return false;
        end += call->recvcounts[r];
    }
    return true;
}

static enum reason measure(const struct mpi_call *call, struct job *job)
{
    int blocks = job->collective == qcclCollAllReduce ? 1 : job->nranks, largest = 0;
    size_t total = 0;
    for (int r = 0; r < blocks; r++) {
        int elements = qccl_dropin_elements(call, r);
        if (elements < 0)
            return REASON_ARGUMENTS;
        largest = elements > largest ? elements : largest;
        total += (size_t)elements;
    }
    job->total = total * job->element.values;
    job->largest = (size_t)largest * job->element.values;
    job->even = job->largest * (size_t)blocks == job->total && consecutive(call, blocks);
    return job->largest * (size_t)blocks > UNEVEN_MAX * job->total ? REASON_UNEVEN : REASON_NONE;
}

static enum reason check_communicator(const struct mpi_call *call, struct job *job)
{
    int inter = 0;
    job->comm = (MPI_Comm)call->comm;
    enum form form = qccl_dropin_blocking(call->form);
    bool counts = form == FORM_REDUCE_SCATTER || form == FORM_ALLGATHERV;
    if (job->comm == MPI_COMM_NULL || (counts && !call->recvcounts) ||
        (form == FORM_ALLGATHERV && !call->displs))
        return REASON_ARGUMENTS;
    PMPI_Comm_test_inter(job->comm, &inter);
    if (inter)
        return REASON_INTER;
    PMPI_Comm_size(job->comm, &job->nranks);
    PMPI_Comm_rank(job->comm, &job->rank);
    return job->nranks < 2 ? REASON_SINGLE : REASON_NONE;
}

/* ------------------------------------------------------------------ what the rules say */

/* Names and places of calls are the rank's own, so the answer is compared.  It takes a message. */
static enum reason compare(MPI_Comm comm, enum reason reason)
{
    int mine[2] = {reason == REASON_NONE, reason != REASON_NONE}, any[2] = {0, 0};
    int error = PMPI_Allreduce(mine, any, 2, MPI_INT, MPI_MAX, comm);
    return error == MPI_SUCCESS && any[0] != any[1] ? reason : REASON_DIFFERS;
}

static enum reason ask_rules(const struct dropin_settings *settings, const struct mpi_call *call,
                             const struct job *job)
{
    char name[MPI_MAX_OBJECT_NAME] = "";
    int length;
    Dl_info where = {0};
    bool local = settings->rules.ask_name || settings->rules.ask_site;
    if (local && call->request)
        return REASON_LOCAL; /* it must not wait for other ranks */
    if (settings->rules.ask_name)
        PMPI_Comm_get_name(job->comm, name, &length);
    if (settings->rules.ask_site)
        dladdr(call->site, &where);
    const char *path = where.dli_fname ? where.dli_fname : "", *slash = strrchr(path, '/');
    const struct candidate candidate = {
        .collective = job->collective,
        .type = job->element.type,
        .count = job->total,
        .nranks = job->nranks,
        .name = name,
        .site = {slash ? slash + 1 : path, where.dli_sname ? where.dli_sname : ""},
    };
    static const enum reason reasons[] = {[RULES_TAKE] = REASON_NONE,
                                          [RULES_NOT_ONLY] = REASON_NOT_ONLY,
                                          [RULES_EXCEPT] = REASON_EXCEPT,
                                          [RULES_DOUBLE] = REASON_DOUBLE};
    enum reason reason = reasons[qccl_rules_ask(&settings->rules, &candidate)];
    return local ? compare(job->comm, reason) : reason;
}

static enum reason decide(const struct dropin_settings *settings, const struct mpi_call *call,
                          struct job *job)
{
    job->collective = collective_of(call->form);
    enum reason reason = check_kind(settings, call, job);
    if (reason == REASON_NONE)
        reason = check_communicator(call, job);
    if (reason == REASON_NONE)
        reason = measure(call, job);
    if (reason != REASON_NONE)
        return reason;
    if (!job->total || job->total * sizeof(float) < settings->policy.min_bytes)
        return REASON_SMALL;
    return ask_rules(settings, call, job);
}

static qcclResult_t do_it(const struct mpi_call *call, const struct job *job, enum reason reason)
{
    if (reason == REASON_DIFFERS)
        return qccl_fail(qcclMismatch,
                         "name= or site= of QCCL_DROPIN match this call on some of %d ranks only",
                         job->nranks);
    return call->request ? qccl_dropin_start_later(call, job) : qccl_dropin_run(call, job);
}

bool qccl_dropin_take(const struct mpi_call *call, int *error)
{
    static _Thread_local bool inside; /* what this library does for a call is not taken again */
    const struct dropin_settings *settings = inside ? NULL : qccl_dropin_settings();
    struct job job;
    if (!settings)
        return false;
    enum reason reason = decide(settings, call, &job);
    if (settings->notes)
        qccl_dropin_note(settings, call, reason);
    if (reason != REASON_NONE && reason != REASON_DIFFERS)
        return false;
    inside = true;
    qcclResult_t result = do_it(call, &job, reason);
    inside = false;
    *error = result == qcclSuccess ? MPI_SUCCESS : qccl_dropin_raise(job.comm, result);
    return true;
}
