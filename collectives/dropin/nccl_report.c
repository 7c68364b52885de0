/* What a program calls of NCCL, and what becomes of it: a line of the log for each new kind of
 * call, and at the end a table for each communicator: with QCCL_STATS=1 of all in every process,
 * with QCCL_EXPLAIN=1 of those whose rank 0 is in this process, if that of its largest one is. */
#include <pthread.h>
#include <stdio.h>

#include "base/log.h"
#include "base/memory.h"
#include "collectives/dropin/nccl_call.h"

/* Calls of one kind. */
struct nccl_kind {
    struct nccl_kind *next;
    qcclColl_t collective;
    ncclDataType_t type;
    ncclRedOp_t op; /* ncclNumOps: any that the program made */
    enum nccl_reason reason;
    uint64_t calls, least, most, bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const char *const reason_texts[NCCL_REASONS] = {
    [NCCL_PASSED_OFF] = "passed: QCCL_POLICY is not set",
    [NCCL_PASSED_OP] = "passed: the operation is no sum",
    [NCCL_PASSED_POLICY] = "passed: the policy does not compress this collective",
    [NCCL_PASSED_TYPE] = "passed: the values are no floats",
    [NCCL_PASSED_CLOSING] = "passed: the communicator is finalized or revoked",
    [NCCL_PASSED_FAILED] = "passed: the communicator has failed",
    [NCCL_PASSED_SINGLE] = "passed: there is one rank",
    [NCCL_PASSED_SMALL] = "passed: below the policy's min=",
    [NCCL_PASSED_DOUBLE] = "passed: doubles, which no only= of QCCL_DROPIN names",
    [NCCL_PASSED_NOT_ONLY] = "passed: no only= of QCCL_DROPIN matches",
    [NCCL_PASSED_EXCEPT] = "passed: an except= of QCCL_DROPIN matches",
    [NCCL_PASSED_EXECUTOR] = "passed: could be compressed, but this library does not run on GPUs",
};

static const char *collective_name(qcclColl_t collective)
{
    static const char *const names[] = {[qcclCollAllReduce] = "ncclAllReduce",
                                        [qcclCollReduceScatter] = "ncclReduceScatter",
                                        [qcclCollAllGather] = "ncclAllGather"};
    return names[collective];
}

static const char *type_name(ncclDataType_t type)
{
    static const char *const names[] = {"ncclInt8",     "ncclUint8",      "ncclInt32",
                                        "ncclUint32",   "ncclInt64",      "ncclUint64",
                                        "ncclFloat16",  "ncclFloat32",    "ncclFloat64",
                                        "ncclBfloat16", "ncclFloat8e4m3", "ncclFloat8e5m2"};
    return (size_t)type < sizeof names / sizeof *names ? names[type] : "other";
}

/* Bytes of an element; the two types that the library has no name for have one. */
static uint64_t type_bytes(ncclDataType_t type)
{
    size_t bytes = qcclTypeBytes((qcclDataType_t)type);
    return bytes ? bytes : 1;
}

static const char *op_name(const struct nccl_kind *kind)
{
    static const char *const names[] = {"sum", "prod", "max", "min", "avg", "made"};
    return kind->collective == qcclCollAllGather ? "" : names[kind->op];
}

/* ------------------------------------------------------------------ noting */

/* NULL: no memory, and the call goes uncounted. */
static struct nccl_kind *find_kind(struct nccl_comm *comm, const struct nccl_kind *like)
{
    struct nccl_kind **at = &comm->kinds;
    while (*at && ((*at)->collective != like->collective || (*at)->type != like->type ||
                   (*at)->op != like->op || (*at)->reason != like->reason))
        at = &(*at)->next;
    if (!*at) {
        *at = qccl_alloc(1, sizeof **at);
        if (*at)
            **at = *like;
    }
    return *at;
}

void qccl_nccl_note(struct nccl_comm *comm, const struct nccl_call *call, enum nccl_reason reason)
{
    bool reduces = call->collective != qcclCollAllGather;
    bool builtin = (unsigned)call->op < ncclNumOps;
    const struct nccl_kind like = {.collective = call->collective,
                                   .type = call->type,
                                   .op = !reduces  ? ncclSum
                                         : builtin ? call->op
                                                   : (ncclRedOp_t)ncclNumOps,
                                   .reason = reason,
                                   .least = UINT64_MAX};
    uint64_t elements = qccl_nccl_total(call, comm);
    pthread_mutex_lock(&lock);
    struct nccl_kind *kind = find_kind(comm, &like);
    bool is_new = kind && !kind->calls;
    if (kind) {
        kind->calls++;
        kind->least = elements < kind->least ? elements : kind->least;
        kind->most = elements > kind->most ? elements : kind->most;
        kind->bytes += elements * type_bytes(call->type);
    }
    pthread_mutex_unlock(&lock);
    if (is_new)
        qccl_log(QCCL_LOG_INFO, comm->rank, "%s of %llu x %s %s on communicator %d: %s (said once)",
                 collective_name(call->collective), (unsigned long long)elements,
                 type_name(call->type), op_name(&like), comm->number, reason_texts[reason]);
}

void qccl_nccl_forget_kinds(struct nccl_comm *comm)
{
    while (comm->kinds) {
        struct nccl_kind *kind = comm->kinds;
        comm->kinds = kind->next;
        qccl_free(kind);
    }
}

/* ------------------------------------------------------------------ the tables */

static void print_table(const struct nccl_comm *comm)
{
    qccl_nccl_say("communicator %d%s%s of %d ranks, rank %d", comm->number, *comm->name ? " " : "",
                  comm->name, comm->nranks, comm->rank);
    fprintf(stderr, "  %-25s %-20s %-6s %9s %12s %12s %14s  %s\n", "call", "type", "op", "calls",
            "elements >=", "<=", "bytes in all", "what became of them");
    for (const struct nccl_kind *k = comm->kinds; k; k = k->next)
        fprintf(stderr, "  %-25s %-20s %-6s %9llu %12llu %12llu %14llu  %s\n",
                collective_name(k->collective), type_name(k->type), op_name(k),
                (unsigned long long)k->calls, (unsigned long long)k->least,
                (unsigned long long)k->most, (unsigned long long)k->bytes, reason_texts[k->reason]);
}

void qccl_nccl_report(const struct nccl_settings *settings, const struct nccl_comm *first)
{
    const struct nccl_comm *largest = NULL;
    for (const struct nccl_comm *comm = first; comm; comm = comm->next)
        if (comm->kinds && (!largest || comm->nranks > largest->nranks ||
                            (comm->nranks == largest->nranks && comm->rank < largest->rank)))
            largest = comm;
    if (!largest || !(settings->stats || (settings->explains && largest->rank == 0)))
        return;
    qccl_nccl_say("the collectives of NCCL; policy \"%s\", rules \"%s\"", settings->policy_text,
                  settings->rules_text);
    for (const struct nccl_comm *comm = first; comm; comm = comm->next)
        if (comm->kinds && (settings->stats || comm->rank == 0))
            print_table(comm);
}
