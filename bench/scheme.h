/* What a policy does to one collective, read back from the communicator's own canonical text, and
 * how its values divide into segments: all that a bound for the result needs to know. */
#ifndef BENCH_SCHEME_H
#define BENCH_SCHEME_H

#include <stdbool.h>

#include "qccl/qccl.h"

struct bench_scheme {
    qcclColl_t coll;
    qcclDataType_t type;
    qcclRedOp_t op;
    int nranks;
    const int *nodes; /* of each rank, not owned; NULL: all on one */
    qcclCodec_t main, gather, intra;
    bool two_level; /* intra is in use */
    /* The call was not compressed: all codecs are none, and sums may round to the type at once. */
    bool plain;
};

/* Reads the codecs of scheme->coll from the policy in force.  Returns what qccl's calls return;
 * qcclInternalError for a text that is not understood. */
qcclResult_t bench_scheme_read(struct bench_scheme *scheme, qcclComm_t comm);

/* Makes it the scheme of a call that was not compressed. */
void bench_scheme_plain(struct bench_scheme *scheme);

/* Writes the codecs in the policy language, "none" for a plain scheme; needs QCCL_POLICY_MAX
 * bytes. */
void bench_scheme_print(const struct bench_scheme *scheme, char *text);

/* The node of a rank. */
int bench_scheme_node(const struct bench_scheme *scheme, int rank);

/* The rank that adds up a node's parts for an owner: the one with the owner's local index, modulo
 * the node's size. */
int bench_scheme_head(const struct bench_scheme *scheme, int node, int owner);

/* Elements whose groups, transforms and tiles all begin and end together. */
size_t bench_scheme_unit(const struct bench_scheme *scheme);

/* Where the segment of an owner lies in the whole of count elements (all of an allreduce, all
 * shards otherwise). */
void bench_scheme_segment(const struct bench_scheme *scheme, size_t count, int owner, size_t *first,
                          size_t *elems);

#endif
