/* What the program calls, and what becomes of it: a line of the log for each new kind of call, and
 * the table of QCCL_EXPLAIN=1. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "collectives/dropin/mpi_job.h"

enum { KINDS_MAX = 128, NAME_MAX = 32 };

/* Calls of one kind. */
struct kind {
    enum form form;
    enum reason reason;
    char type[NAME_MAX];
    const char *op;
    uint64_t calls, values, least, most, bytes;
};

static struct kind kinds[KINDS_MAX];
static int nkinds;
static uint64_t left_out; /* calls of kinds for which there was no room */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const char *const form_names[FORMS] = {
    [FORM_ALLREDUCE] = "MPI_Allreduce",
    [FORM_REDUCE_SCATTER] = "MPI_Reduce_scatter",
    [FORM_REDUCE_SCATTER_BLOCK] = "MPI_Reduce_scatter_block",
    [FORM_ALLGATHER] = "MPI_Allgather",
    [FORM_ALLGATHERV] = "MPI_Allgatherv",
    [FORM_IALLREDUCE] = "MPI_Iallreduce",
    [FORM_IREDUCE_SCATTER] = "MPI_Ireduce_scatter",
    [FORM_IREDUCE_SCATTER_BLOCK] = "MPI_Ireduce_scatter_block",
    [FORM_IALLGATHER] = "MPI_Iallgather",
    [FORM_IALLGATHERV] = "MPI_Iallgatherv",
    [FORM_ALLREDUCE_INIT] = "MPI_Allreduce_init",
    [FORM_REDUCE_SCATTER_INIT] = "MPI_Reduce_scatter_init",
    [FORM_REDUCE_SCATTER_BLOCK_INIT] = "MPI_Reduce_scatter_block_init",
    [FORM_ALLGATHER_INIT] = "MPI_Allgather_init",
    [FORM_ALLGATHERV_INIT] = "MPI_Allgatherv_init",
};

static const char *const reason_texts[REASONS] = {
    [REASON_NONE] = "compressed",
    [REASON_NONBLOCKING] = "passed: non-blocking, and not every rank has MPI_THREAD_MULTIPLE",
    [REASON_PERSISTENT] = "passed: persistent calls are MPI's",
    [REASON_OFF] = "passed: QCCL_POLICY is not set",
    [REASON_OP] = "passed: the operation is not MPI_SUM",
    [REASON_TYPE] = "passed: the values are no floats",
    [REASON_POLICY] = "passed: the policy does not compress this collective",
    [REASON_ARGUMENTS] = "passed: arguments for MPI to judge",
    [REASON_INTER] = "passed: an inter-communicator",
    [REASON_SINGLE] = "passed: there is one rank",
    [REASON_SMALL] = "passed: below the policy's min=",
    [REASON_UNEVEN] = "passed: blocks of very different sizes",
    [REASON_DOUBLE] = "passed: doubles, which no only= of QCCL_DROPIN names",
    [REASON_NOT_ONLY] = "passed: no only= of QCCL_DROPIN matches",
    [REASON_EXCEPT] = "passed: an except= of QCCL_DROPIN matches",
    [REASON_LOCAL] = "passed: non-blocking, and ranks cannot compare what name= and site= match",
    [REASON_DIFFERS] = "an error: name= or site= of QCCL_DROPIN match on some ranks only",
};

/* ------------------------------------------------------------------ describing */

static const char *op_name(enum form form, MPI_Op op)
{
    const struct {
        MPI_Op op;
        const char *name;
    } known[] = {{.op = MPI_SUM, .name = "sum"},       {.op = MPI_MAX, .name = "max"},
                 {.op = MPI_MIN, .name = "min"},       {.op = MPI_PROD, .name = "prod"},
                 {.op = MPI_LAND, .name = "land"},     {.op = MPI_LOR, .name = "lor"},
                 {.op = MPI_BAND, .name = "band"},     {.op = MPI_BOR, .name = "bor"},
                 {.op = MPI_MAXLOC, .name = "maxloc"}, {.op = MPI_MINLOC, .name = "minloc"}};
    if (strstr(form_names[form], "llgather"))
        return "";
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].op == op)
            return known[i].name;
    return "other";
}

static void type_name(MPI_Datatype type, char *text)
{
    char name[MPI_MAX_OBJECT_NAME] = "";
    int a, b, c, combiner = MPI_COMBINER_NAMED, length;
    if (type == MPI_DATATYPE_NULL) {
        strcpy(text, "none");
        return;
    }
    PMPI_Type_get_envelope(type, &a, &b, &c, &combiner);
    if (combiner == MPI_COMBINER_NAMED)
        PMPI_Type_get_name(type, name, &length);
    snprintf(text, NAME_MAX, "%.31s", *name ? name : "derived");
}

/* Elements of a call, as far as this rank knows them. */
static uint64_t count_elements(const struct mpi_call *call)
{
    int nranks = 1;
    uint64_t sum = 0;
    bool blocks = qccl_dropin_blocking(call->form) != FORM_ALLREDUCE;
    if ((MPI_Comm)call->comm == MPI_COMM_NULL)
        return 0;
    if (blocks)
        PMPI_Comm_size((MPI_Comm)call->comm, &nranks);
    for (int r = 0; r < nranks; r++) {
        int n = qccl_dropin_elements(call, r);
        sum += n > 0 ? (uint64_t)n : 0;
    }
    return sum;
}

/* ------------------------------------------------------------------ noting */

static struct kind *find_kind(const struct kind *like)
{
    for (int i = 0; i < nkinds; i++)
        if (kinds[i].form == like->form && kinds[i].reason == like->reason &&
            kinds[i].op == like->op && strcmp(kinds[i].type, like->type) == 0)
            return &kinds[i];
    if (nkinds == KINDS_MAX)
        return NULL;
    kinds[nkinds] = *like;
    kinds[nkinds].least = UINT64_MAX;
    return &kinds[nkinds++];
}

void qccl_dropin_note(const struct dropin_settings *settings, const struct mpi_call *call,
                      enum reason reason)
{
    struct kind like = {
        .form = call->form, .reason = reason, .op = op_name(call->form, (MPI_Op)call->op)};
    MPI_Datatype type = (MPI_Datatype)call->recvtype;
    int bytes = 0;
    uint64_t elements = count_elements(call);
    type_name(type, like.type);
    if (type != MPI_DATATYPE_NULL)
        PMPI_Type_size(type, &bytes);
    pthread_mutex_lock(&lock);
    struct kind *kind = find_kind(&like);
    bool first = kind && !kind->calls;
    if (kind) {
        kind->calls++;
        kind->least = elements < kind->least ? elements : kind->least;
        kind->most = elements > kind->most ? elements : kind->most;
        kind->bytes += elements * (uint64_t)bytes;
    } else {
        left_out++;
    }
    pthread_mutex_unlock(&lock);
    if (first)
        qccl_log(QCCL_LOG_INFO, settings->rank, "%s of %llu x %s %s: %s (said once)",
                 form_names[call->form], (unsigned long long)elements, like.type, like.op,
                 reason_texts[reason]);
}

void qccl_dropin_explain(const struct dropin_settings *settings)
{
    uint64_t raw, wire;
    qccl_dropin_traffic(&raw, &wire);
    qccl_dropin_say("the collectives of rank 0; policy \"%s\", rules \"%s\"",
                    settings->policy_text ? settings->policy_text : "",
                    settings->rules_text ? settings->rules_text : "");
    fprintf(stderr, "  %-25s %-20s %-6s %9s %12s %12s %14s  %s\n", "call", "type", "op", "calls",
            "elements >=", "<=", "bytes in all", "what became of them");
    for (int i = 0; i < nkinds; i++) {
        const struct kind *k = &kinds[i];
        fprintf(stderr, "  %-25s %-20s %-6s %9llu %12llu %12llu %14llu  %s\n", form_names[k->form],
                k->type, k->op, (unsigned long long)k->calls, (unsigned long long)k->least,
                (unsigned long long)k->most, (unsigned long long)k->bytes, reason_texts[k->reason]);
    }
    if (left_out)
        fprintf(stderr, "  and %llu calls of more kinds\n", (unsigned long long)left_out);
    if (nkinds == 0)
        fprintf(stderr, "  none\n");
    if (wire)
        fprintf(stderr, "  compressed calls sent %llu bytes instead of %llu\n",
                (unsigned long long)wire, (unsigned long long)raw);
}
