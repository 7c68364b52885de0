/* What the environment asks of the drop-in, from MPI_Init to MPI_Finalize.
 *
 * Settings are compared between all ranks in MPI_Init: a rank that passes a call through while the
 * others compress it would hang all of them.  Without QCCL_POLICY nothing is compressed; the
 * library's own default is for programs that call it. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/environment.h"
#include "base/log.h"
#include "base/status.h"
#include "collectives/dropin/mpi_job.h"

enum phase { UNKNOWN, IGNORE, WATCH };

static struct dropin_settings settings;
static atomic_int phase = UNKNOWN;
static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
static int error_class = MPI_ERR_OTHER; /* of this library's errors */

/* ------------------------------------------------------------------ errors */

int qccl_dropin_error(qcclResult_t result)
{
    char text[MPI_MAX_ERROR_STRING];
    snprintf(text, sizeof text, "qccl: %.200s", qcclGetLastError());
    qccl_log(QCCL_LOG_WARN, settings.rank, "%s: %s", qcclGetErrorString(result),
             qcclGetLastError());
    if (error_class != MPI_ERR_OTHER)
        PMPI_Add_error_string(error_class, text);
    return error_class;
}

int qccl_dropin_raise(MPI_Comm comm, qcclResult_t result)
{
    int error = qccl_dropin_error(result);
    PMPI_Comm_call_errhandler(comm, error);
    return error;
}

/* ------------------------------------------------------------------ settings */

/* Residuals belong to a tensor, and an MPI call does not say which tensor it is. */
static qcclResult_t check_feedback(const struct policy *policy)
{
    for (int c = 0; c < qcclNumColls; c++) {
        const struct collective_policy *p = &policy->of[c];
        if (p->main.feedback || p->gather.feedback || (p->two_level && p->intra.feedback))
            return qccl_fail(qcclInvalidArgument,
                             "QCCL_POLICY: feedback=on needs to know which tensor a call reduces, "
                             "which an MPI call does not say");
    }
    return qcclSuccess;
}

static qcclResult_t read_settings(void)
{
    settings.policy_text = qccl_env_text("QCCL_POLICY");
    settings.rules_text = qccl_env_text("QCCL_DROPIN");
    settings.explains = qccl_env_flag("QCCL_EXPLAIN");
    settings.notes = settings.explains || qccl_log_wants(QCCL_LOG_INFO);
    if (settings.rules_text)
        RETURN_IF_FAILED(qccl_rules_parse(settings.rules_text, &settings.rules));
    if (!settings.policy_text)
        return qcclSuccess;
    RETURN_IF_FAILED(qccl_policy_parse(settings.policy_text, &settings.policy));
    RETURN_IF_FAILED(check_feedback(&settings.policy));
    settings.compresses = true;
    return qcclSuccess;
}

static uint64_t hash_settings(void)
{
    const char *policy = settings.policy_text ? settings.policy_text : "";
    const char *rules = settings.rules_text ? settings.rules_text : "";
    uint64_t hash = XXH3_64bits(policy, strlen(policy));
    return XXH3_64bits_withSeed(rules, strlen(rules), hash);
}

/* Whether all ranks of the world have the same settings.  Finds out whether all may use threads. */
static bool all_agree(void)
{
    uint64_t hash = hash_settings(), largest[3] = {0, 0, 0};
    uint64_t mine[3] = {hash, ~hash, !settings.threads};
    int error = PMPI_Allreduce(mine, largest, 3, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    settings.threads = !largest[2];
    return error == MPI_SUCCESS && largest[0] == hash && largest[1] == ~hash;
}

/* What both ways to start have in common; for who has the lock. */
static qcclResult_t prepare(void)
{
    int size = 0, level = MPI_THREAD_SINGLE;
    PMPI_Query_thread(&level);
    settings.threads = level == MPI_THREAD_MULTIPLE;
    PMPI_Comm_rank(MPI_COMM_WORLD, &settings.rank);
    PMPI_Type_size(MPI_REAL, &size);
    settings.real_is_float = size == (int)sizeof(float);
    PMPI_Add_error_class(&error_class);
    RETURN_IF_FAILED(read_settings());
    if (settings.compresses)
        RETURN_IF_FAILED(qccl_dropin_attach_begin());
    return qcclSuccess;
}

/* Whether MPI is the one that this library was built for, and its symbols are bound here.  They are
 * not when the program opened MPI later, with dlopen. */
static bool usable(void)
{
    if (qccl_dropin_presence() != MPI_HERE)
        return false;
    volatile MPI_Comm world = MPI_COMM_WORLD; /* the address of a weak symbol in one MPI */
    if (PMPI_Init && (word)world)
        return true;
    qccl_dropin_say("the program opens MPI with dlopen: nothing is compressed; preload the MPI "
                    "library too, as qccl-run --mpi does");
    return false;
}

int qccl_dropin_start(void)
{
    pthread_mutex_lock(&start_lock);
    bool use = atomic_load(&phase) == UNKNOWN && usable();
    qcclResult_t result = qcclSuccess;
    if (use) {
        result = prepare();
        if (!all_agree() && result == qcclSuccess)
            result =
                qccl_fail(qcclMismatch,
                          "QCCL_POLICY or QCCL_DROPIN differ between ranks; rank %d has \"%s\" "
                          "and \"%s\"",
                          settings.rank, settings.policy_text ? settings.policy_text : "",
                          settings.rules_text ? settings.rules_text : "");
        bool watch = result == qcclSuccess && (settings.compresses || settings.notes);
        atomic_store(&phase, watch ? WATCH : IGNORE);
    }
    pthread_mutex_unlock(&start_lock);
    if (result == qcclSuccess)
        return MPI_SUCCESS;
    qccl_dropin_say("%s", qcclGetLastError());
    return qccl_dropin_raise(MPI_COMM_WORLD, result);
}

/* MPI was initialised past this library, by another tool, say: as in qccl_dropin_start, but that
 * the other ranks may not be here. */
static void start_late(void)
{
    int initialized = 0;
    pthread_mutex_lock(&start_lock);
    if (atomic_load(&phase) == UNKNOWN) {
        bool use = usable();
        if (use)
            PMPI_Initialized(&initialized);
        qcclResult_t result = initialized ? prepare() : qcclSuccess;
        settings.threads = false; /* nobody asked the other ranks */
        if (result != qcclSuccess)
            qccl_dropin_say("nothing is compressed: %s", qcclGetLastError());
        bool watch =
            initialized && result == qcclSuccess && (settings.compresses || settings.notes);
        if (!use || initialized)
            atomic_store(&phase, watch ? WATCH : IGNORE);
    }
    pthread_mutex_unlock(&start_lock);
}

const struct dropin_settings *qccl_dropin_settings(void)
{
    int now = atomic_load(&phase);
    if (now == UNKNOWN) {
        start_late();
        now = atomic_load(&phase);
    }
    return now == WATCH ? &settings : NULL;
}

void qccl_dropin_leave(const void *comm)
{
    if (qccl_dropin_settings())
        qccl_dropin_settle(*(const MPI_Comm *)comm);
}

void qccl_dropin_end(void)
{
    if (atomic_exchange(&phase, IGNORE) != WATCH)
        return;
    qccl_dropin_detach_all();
    if (settings.explains && settings.rank == 0)
        qccl_dropin_explain(&settings);
}
