/* A communicator: a transport, a configuration that all ranks share, and what it keeps between
 * calls. */
#ifndef QCCL_COLLECTIVES_COMM_H
#define QCCL_COLLECTIVES_COMM_H

#include <pthread.h>
#include <stdatomic.h>

#include "collectives/feedback.h"
#include "collectives/plan.h"
#include "collectives/transport.h"
#include "quant/segment.h"

enum { PLANS_CACHED = 64, POLICIES_MAX = 8 };

struct qcclComm {
    struct transport transport;
    int *nodes; /* node of each rank */
    struct policy policy;
    uint64_t seed;
    uint32_t sequence;
    double timeout;    /* seconds; negative: for ever */
    bool check;        /* QCCL_CHECK=1: compare every call */
    bool stats_wanted; /* QCCL_STATS=1: a table at the end */
    bool serial;       /* QCCL_EXECUTOR=serial */
    size_t chunk_elems;

    /* What broke the communicator (a qcclResult_t) and its sentence, written once, before it. */
    atomic_int broken;
    char broken_sentence[512];

    /* Whose turn it is, and what others may read at any time. */
    pthread_mutex_t lock;
    pthread_cond_t turned;
    uint64_t turns_taken, turns_ended;
    qcclStats_t published;
    struct policy *registered[POLICIES_MAX]; /* by id - 1 */

    /* All that follows belongs to whose turn it is. */
    struct plan *plans[PLANS_CACHED]; /* most recently used first */
    uint8_t *workspace;
    size_t workspace_bytes;
    uint8_t *staging; /* the tensors of a merged call */
    size_t staging_bytes;
    struct message *messages; /* the open message of each slot */
    int messages_room;
    struct part *parts; /* the terms of a sum being made */
    int parts_room;
    struct feedback feedback;
    qcclStats_t stats;
    unsigned logged_reasons; /* reasons for passing a call through that the log has named already */
};

static inline int qccl_rank(const struct qcclComm *comm)
{
    return comm->transport.mover.rank;
}

static inline int qccl_nranks(const struct qcclComm *comm)
{
    return comm->transport.mover.nranks;
}

/* qcclInvalidArgument for NULL, or the error that broke the communicator with its sentence. */
qcclResult_t qccl_comm_usable(const struct qcclComm *comm, const char *call);

/* Breaks the communicator where every rank does so by itself, from any thread: keeps the error
 * unless there is one, and logs it. */
void qccl_comm_close(struct qcclComm *comm, qcclResult_t error, const char *sentence);

/* The same where the other ranks are to be told.  Calls in flight end with an error. */
void qccl_comm_give_up(struct qcclComm *comm, qcclResult_t error, const char *sentence);

/* The same with the error of the last failed call, that of a call which the other ranks count on
 * and this one cannot make.  Returns error. */
qcclResult_t qccl_comm_lose(struct qcclComm *comm, qcclResult_t error);

/* The same for whose turn it is: no buffer is in use afterwards.  Returns the error that broke the
 * communicator first, with its sentence. */
qcclResult_t qccl_comm_break(struct qcclComm *comm, qcclResult_t error);

/* Turns: a place in the order of this communicator's work.  Who has taken one waits for it, then
 * owns the communicator until it ends it. */
uint64_t qccl_comm_take_turn(struct qcclComm *comm);
void qccl_comm_await_turn(struct qcclComm *comm, uint64_t turn);
void qccl_comm_end_turn(struct qcclComm *comm);
/* Takes a turn and waits for it, for settings and state. */
void qccl_comm_enter(struct qcclComm *comm);

/* Keeps a policy beside the communicator's own; *id goes into plan keys.  Every rank registers the
 * same ones in the same order.  Calls under it are always plans, whatever their size or codec; it
 * must have no error feedback.  An equal one is found again.  qcclOutOfMemory, or
 * qcclInvalidArgument when POLICIES_MAX are there. */
qcclResult_t qccl_comm_add_policy(struct qcclComm *comm, const struct policy *policy, int *id);

/* Counts a slow reduction in the statistics. */
void qccl_comm_add_slow(struct qcclComm *comm, uint64_t slow_ns, uint64_t exposed_ns);

/* The cached plan of a call, built when it is not there. */
qcclResult_t qccl_comm_plan(struct qcclComm *comm, const struct plan_key *key, struct plan **plan);

void qccl_comm_forget_plans(struct qcclComm *comm);

/* One line of the log that tells how the communicator is configured. */
void qccl_comm_log_config(const struct qcclComm *comm);

/* Makes the workspace at least this large; its contents may be lost. */
qcclResult_t qccl_comm_workspace(struct qcclComm *comm, size_t bytes);
/* The same for staging. */
qcclResult_t qccl_comm_staging(struct qcclComm *comm, size_t bytes);
/* Makes workspace and messages large enough for `sets` rounds of a plan at once, and parts. */
qcclResult_t qccl_comm_reserve(struct qcclComm *comm, const struct plan *plan, int sets);

/* collectives/agree.c: what one rank says of its configuration or call, as text; the ranks' texts
 * are compared. */
enum { RECORD_BYTES = 1536 };
struct record {
    char text[RECORD_BYTES];
};
/* Exchanges records; qcclMismatch on every rank where two differ, the sentence naming the first
 * difference. */
qcclResult_t qccl_agree(struct qcclComm *comm, const char *what, const struct record *own);
/* The record of the whole configuration. */
void qccl_describe_config(const struct qcclComm *comm, struct record *record);

/* collectives/call.c: why a call is not compressed.  The same on every rank, since it depends on
 * what all ranks share. */
enum pass_reason {
    PASS_NOT,
    PASS_TYPE,
    PASS_OP,
    PASS_SMALL,
    PASS_POLICY,
    PASS_SINGLE,
    PASS_REASONS
};
enum pass_reason qccl_why_pass(const struct qcclComm *comm, const struct plan_key *key);
const char *qccl_pass_reason_text(enum pass_reason reason);

/* collectives/plain.c: the uncompressed collectives over the byte mover; any type and reduction. */
qcclResult_t qccl_plain_allreduce(struct qcclComm *comm, const void *sendbuff, void *recvbuff,
                                  size_t count, qcclDataType_t type, qcclRedOp_t op);
qcclResult_t qccl_plain_reducescatter(struct qcclComm *comm, const void *sendbuff, void *recvbuff,
                                      size_t recvcount, qcclDataType_t type, qcclRedOp_t op);
qcclResult_t qccl_plain_allgather(struct qcclComm *comm, const void *sendbuff, void *recvbuff,
                                  size_t sendcount, qcclDataType_t type);

/* collectives/stats.c: the table of QCCL_STATS=1, on stderr. */
void qccl_stats_print(const struct qcclComm *comm);

#endif
