/* The NCCL drop-in: between a program and its NCCL.
 *
 *     program -> nccl_entry.c -> nccl_decide.c: what becomes of the call, counted by nccl_report.c
 *                     \_______-> the function of NCCL, found by one of
 *                                  nccl_preload.c   libqccl-nccl.so, for LD_PRELOAD
 *                                  nccl_forward.c   libnccl.so.2, which stands in NCCL's place and
 *                                                   has the other functions from nccl_forward.py
 *
 * Every call goes on to NCCL at once, in the program's order and in its groups, and NCCL's results
 * are returned as they are. */
#ifndef QCCL_DROPIN_NCCL_CALL_H
#define QCCL_DROPIN_NCCL_CALL_H

#include <nccl.h>
#include <stdbool.h>

#include "collectives/dropin/rules.h"
#include "collectives/policy.h"
#include "qccl/qccl.h"

/* ------------------------------------------------------------------ NCCL's functions */

/* A function of NCCL, looked up when it is first called. */
struct nccl_next {
    const char *name; /* ncclX; what is called is the pncclX behind it, where there is one */
    _Atomic(void *) function;
};
typedef void any_function(void);

/* nccl_next.c.  NULL: there is none, the reason was said once, and *missing is what the call is to
 * return. */
any_function *qccl_nccl_next(struct nccl_next *next, ncclResult_t *missing);
/* A sentence of this library to the user, on stderr. */
void qccl_nccl_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* nccl_preload.c or nccl_forward.c.  The address of a symbol of NCCL; NULL: it has none. */
void *qccl_nccl_symbol(const char *name);
/* Why NCCL itself is not there; NULL: it is. */
const char *qccl_nccl_absent(void);

/* ------------------------------------------------------------------ settings */

struct nccl_settings {
    bool compresses; /* QCCL_POLICY is set */
    bool watches;    /* there is something to do at all */
    bool explains;   /* QCCL_EXPLAIN=1: tables of the ranks 0 */
    bool stats;      /* QCCL_STATS=1: tables of all ranks */
    struct policy policy;
    struct rules rules;
    const char *policy_text, *rules_text; /* of the environment; "": unset */
    char error[256];                      /* what is wrong with them; "": nothing */
};
/* nccl_decide.c.  Read from the environment by the first call. */
const struct nccl_settings *qccl_nccl_settings(void);

/* ------------------------------------------------------------------ communicators */

enum { NCCL_NAME_MAX = 64 };

struct nccl_op {
    struct nccl_op *next;
    ncclRedOp_t op;
    ncclDataType_t type;
};

/* A communicator of the program; kept until the process ends, for the tables. */
struct nccl_comm {
    struct nccl_comm *next;
    ncclComm_t handle; /* NULL: destroyed or aborted */
    int number, nranks, rank;
    char name[NCCL_NAME_MAX];
    _Atomic bool closing; /* finalized or revoked */
    _Atomic bool failed;  /* NCCL reported an asynchronous error */
    struct nccl_op *ops;  /* pre-multiplied sums */
    struct nccl_kind *kinds;
};

/* nccl_comm.c.  The communicator of a handle, once NCCL has told its size; else NULL. */
struct nccl_comm *qccl_nccl_comm(ncclComm_t handle);
/* What happened to communicators.  slots: where NCCL writes n new handles, at the end of the group
 * if there is one; parent and config may be NULL. */
void qccl_nccl_created(ncclComm_t *slots, int n, ncclComm_t parent, const ncclConfig_t *config,
                       ncclResult_t result);
void qccl_nccl_gone(ncclComm_t handle);
void qccl_nccl_closing(ncclComm_t handle);
void qccl_nccl_failed(ncclComm_t handle);
void qccl_nccl_op_created(ncclRedOp_t op, ncclDataType_t type, ncclComm_t handle);
void qccl_nccl_op_gone(ncclRedOp_t op, ncclComm_t handle);
bool qccl_nccl_op_known(const struct nccl_comm *comm, ncclRedOp_t op, ncclDataType_t type);
/* This thread opened a group, or closed one with this result. */
void qccl_nccl_group_opened(void);
void qccl_nccl_group_closed(ncclResult_t result);

/* ------------------------------------------------------------------ calls */

/* One collective of the program.  op belongs to reductions. */
struct nccl_call {
    qcclColl_t collective;
    const void *site; /* where the program called */
    size_t count;     /* as the program gave it */
    ncclDataType_t type;
    ncclRedOp_t op;
    ncclComm_t comm;
};

/* Why a call is passed on; nccl_report.c has the sentences. */
enum nccl_reason {
    NCCL_PASSED_OFF,
    NCCL_PASSED_OP,
    NCCL_PASSED_POLICY,
    NCCL_PASSED_TYPE,
    NCCL_PASSED_CLOSING,
    NCCL_PASSED_FAILED,
    NCCL_PASSED_SINGLE,
    NCCL_PASSED_SMALL,
    NCCL_PASSED_DOUBLE,
    NCCL_PASSED_NOT_ONLY,
    NCCL_PASSED_EXCEPT,
    NCCL_PASSED_EXECUTOR,
    NCCL_REASONS
};

/* nccl_decide.c.  What becomes of a call; the same on every rank. */
enum nccl_reason qccl_nccl_decide(const struct nccl_settings *settings,
                                  const struct nccl_call *call, const struct nccl_comm *comm);
/* Values of the whole message. */
size_t qccl_nccl_total(const struct nccl_call *call, const struct nccl_comm *comm);

/* nccl_report.c */
void qccl_nccl_note(struct nccl_comm *comm, const struct nccl_call *call, enum nccl_reason reason);
void qccl_nccl_report(const struct nccl_settings *settings, const struct nccl_comm *first);
void qccl_nccl_forget_kinds(struct nccl_comm *comm);

#endif
