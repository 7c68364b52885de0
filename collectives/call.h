/* One collective call, from the checks of its arguments to its result.
 *
 * The public entries (overlap/entry.c) describe a call and check it at once; it is run at once or
 * later, by whatever thread, when its turn comes: calls of one communicator run in the order in
 * which they took their turns. */
#ifndef QCCL_COLLECTIVES_CALL_H
#define QCCL_COLLECTIVES_CALL_H

#include "collectives/comm.h"

/* What a plan works on. */
struct operands {
    const void *input;
    qcclDataType_t input_type;
    const void *minus; /* the replica of a weight-delta gather, else NULL */
    void *output;
    uint64_t tensor;  /* for error feedback */
    uint16_t replica; /* its version, of a weight-delta gather: travels in every message */
    float *lost;      /* NULL, or where what encoding loses goes, in the places of the input */
    int priority;     /* of the stream that runs it */
    bool stale; /* set by the executor: replicas have different versions, nothing was changed */
};

/* An executor: runs a plan.  All of them give the same bits. */
typedef qcclResult_t execute_fn(struct qcclComm *comm, const struct plan *plan,
                                struct operands *operands);

/* collectives/serial.c: step by step, the reference meaning of a plan. */
execute_fn qccl_run_serial;

/* A tensor of a call that was merged from several (collectives/merge.c). */
struct tensor {
    const void *sendbuff;
    void *recvbuff;
    size_t count;
    struct tensor *next;
};

struct call {
    const char *name;
    const char *mark; /* in the timeline; the name when nothing else is given */
    struct qcclComm *comm;
    struct plan_key key;
    const void *sendbuff;
    void *recvbuff;
    size_t send_bytes, recv_bytes;
    size_t in_place_offset; /* where the smaller buffer lies in the larger one when in place */
    uint64_t tensor;        /* of qcclCommSetTensor when the call was made */
    uint16_t replica;       /* as in struct operands */
    float *lost;            /* likewise */
    struct tensor *tensors; /* NULL, or a list that the call owns: of more than one tensor count and
                               bytes are the sums, and sendbuff and recvbuff unused */
    struct tensor *last;
    bool grouped; /* calls may follow that this rank cannot take back */
    int priority;
    bool overlapped; /* others compute while it runs */
    execute_fn *execute;
    uint64_t turn;
};

/* The call as the user made it; comm is not NULL. */
struct call qccl_call(const char *name, struct qcclComm *comm, const struct plan_key *key,
                      const void *sendbuff, void *recvbuff);

/* Whether the arguments are right; touches nothing. */
qcclResult_t qccl_call_check(const struct call *call);

/* Bytes of the larger buffer: the same on every rank. */
size_t qccl_call_bytes(const struct call *call);

/* Whether two checked calls could be one: all but count and buffers is equal. */
bool qccl_calls_alike(const struct call *a, const struct call *b);
/* A call like this one, of no tensor yet. */
struct call qccl_call_empty(const struct call *like);
/* Puts the tensor of a call at the end of a list.  qcclOutOfMemory, and nothing has changed. */
qcclResult_t qccl_call_append(struct call *into, const struct call *call);
/* Frees a call that was allocated, and its list. */
void qccl_call_free(struct call *call);

/* The call on one buffer, the communicator's, that a merged one comes down to; the inputs are
 * copied there.  qccl_call_unpack copies the results to where they belong.  For whose turn it is.
 */
qcclResult_t qccl_call_pack(const struct call *merged, struct call *packed);
void qccl_call_unpack(const struct call *packed);

/* Takes the call's place in the order of its communicator; then qccl_call_run must follow, sooner
 * or later, in a thread that may block. */
void qccl_call_take_turn(struct call *call);

/* Waits for the call's turn and runs it.  An error breaks the communicator, except qcclMismatch of
 * replica versions (struct operands), which every rank returns alike. */
qcclResult_t qccl_call_run(const struct call *call);

#endif
