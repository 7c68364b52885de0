/* A plan is data: what one rank does for a collective, as a list of steps.
 *
 * It depends only on its key: collective, count, type, op, ranks, rank, node layout and policy.
 * Large segments are cut into chunks; round c runs the whole list on chunk c of every segment, so
 * the list is short and the workspace bounded whatever the message. Values do not depend on the
 * chunk: random numbers follow from the position in the segment.
 *
 *   flat allreduce, one round, seen from rank 1 of 3 (segment d belongs to rank d):
 *
 *     encode 0 -> send to 0     recv 1 from 0 \
 *                                              > reduce: part 0 + own exact + part 2 -> message
 *     encode 2 -> send to 2     recv 1 from 2 /
 *
 *     send the message to 0, 2; decode into the result: own message, those of 0 and 2
 *
 *   two levels: the same twice, first inside the node to the head of each segment, then the node
 *   sums to the owner. */
#ifndef QCCL_COLLECTIVES_PLAN_H
#define QCCL_COLLECTIVES_PLAN_H

#include <stdbool.h>
#include <stdio.h>

#include "collectives/policy.h"

enum {
    ON_THE_WAY = 1 << 18,  /* bytes to one rank, about: the queues of switches are short */
    CHUNK_SMALL = 1 << 14, /* a chunk is not made smaller than this to save workspace */
    ROUNDS_FLAT = 3,       /* rounds in flight in overlap/pipeline.c, at most: one a phase */
    ROUNDS_TWO_LEVEL = 4,
    STAGE_SCATTER = 0,
    STAGE_GATHER = 1,
    STAGE_INTRA = 2,
};

struct plan_key {
    qcclColl_t collective;
    size_t count; /* as in the call: all of an allreduce, one shard otherwise */
    qcclDataType_t type;
    qcclRedOp_t op;
    int policy; /* 0: the communicator's own; others: qccl_comm_add_policy */
};

enum step_kind {
    STEP_RECV,   /* start receiving slot from peer */
    STEP_ENCODE, /* this rank's input of segment -> slot */
    STEP_SEND,   /* start sending slot to peer */
    STEP_WAIT,   /* everything started has arrived; received slots are checked */
    STEP_REDUCE, /* parts -> slot, node sum or output */
    STEP_DECODE, /* slot -> output of segment (delta: added to it) */
};

enum reduce_target { TO_SLOT, TO_NODE_SUM, TO_OUTPUT };

struct plan_step {
    enum step_kind kind;
    int segment;       /* its owner's rank */
    int peer;          /* SEND, RECV */
    int slot;          /* the message in play */
    int stage;         /* of that message */
    qcclCodec_t codec; /* of that message */
    size_t residual;   /* ENCODE, REDUCE: first element in the residuals, or NO_RESIDUAL */
    /* REDUCE only: */
    enum reduce_target target;
    qcclCodec_t parts_codec;
    int first_part, nparts;
    bool last; /* the sum is complete: apply the weight */
};
#define NO_RESIDUAL ((size_t)-1)

/* A term of a REDUCE: a received slot, this rank's own input, or its node's sum. */
struct plan_part {
    enum { PART_SLOT, PART_INPUT, PART_NODE_SUM } kind;
    int slot;
};

struct plan {
    struct plan_key key;
    int rank, nranks;
    bool two_level;
    float weight;       /* 1, or the fp32 reciprocal of nranks */
    size_t shard_elems; /* of the first shards; an allreduce's last ones are short or empty */
    size_t chunk_elems;
    size_t rounds;
    struct plan_step *steps;
    int nsteps;
    struct plan_part *parts;
    int nparts;
    size_t *slot_offset; /* in the workspace, nslots + 1 numbers */
    int nslots;
    size_t node_sum_offset; /* of a chunk of floats, or the workspace's end when there are none */
    size_t workspace_bytes;
    size_t residual_elems;
    size_t raw_bytes; /* what this rank would send uncompressed */
};

/* The layout of a communicator, for building. */
struct plan_layout {
    int rank, nranks;
    const int *nodes;   /* node of each rank */
    size_t chunk_elems; /* the most values of a segment per round; 0: those of CHUNK_BYTES */
};

/* Builds the plan of a compressed call.  qcclOutOfMemory, or qcclInvalidArgument for a count beyond
 * 2^48. */
qcclResult_t qccl_plan_build(struct plan **plan, const struct plan_key *key,
                             const struct plan_layout *layout, const struct policy *policy);
void qccl_plan_free(struct plan *plan);

/* Elements of a segment in round `round`, and where in the segment they begin. */
size_t qccl_plan_chunk(const struct plan *plan, int segment, size_t round, size_t *first);

/* Where a segment begins in this rank's input and output, in elements. */
size_t qccl_plan_input(const struct plan *plan, int segment);
size_t qccl_plan_output(const struct plan *plan, int segment);

/* Writes the plan as text. */
void qccl_plan_print(const struct plan *plan, FILE *out);

#endif
