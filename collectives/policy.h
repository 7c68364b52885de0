/* The policy language: which calls are compressed, and how.  docs/policy.md describes it for users.
 *
 *   policy     := clause (';' clause)* [';']
 *   clause     := collective ':' codecs  |  codecs  |  'min' '=' size
 *   collective := 'allreduce' | 'reducescatter' | 'allgather' | 'delta'
 *   codecs     := codec ['gather' '=' codec] ['intra' '=' codec]
 *   size       := digits ['KiB' | 'MiB' | 'GiB' | 'K' | 'M' | 'G' | 'B']
 *
 * gather= belongs to allreduce, intra= to allreduce and reducescatter.
 * Codecs alone, as the first clause, are those of every collective.  What is not named is not
 * compressed. */
#ifndef QCCL_COLLECTIVES_POLICY_H
#define QCCL_COLLECTIVES_POLICY_H

#include <stdbool.h>

#include "qccl/qccl.h"

enum { MIN_BYTES_DEFAULT = 64 << 10 };

struct collective_policy {
    qcclCodec_t main;   /* what contributions, or gathered values, travel as */
    qcclCodec_t gather; /* allreduce: what the sum travels as; main where the text names none */
    qcclCodec_t intra;  /* two levels: the first hop, inside a node, in main's transform domain */
    bool two_level;     /* intra was named */
};

struct policy {
    struct collective_policy of[qcclNumColls];
    size_t min_bytes; /* messages below this are not compressed */
};

qcclResult_t qccl_policy_parse(const char *text, struct policy *policy);

/* Writes the canonical text: every collective and min=, every default spelled out. */
qcclResult_t qccl_policy_print(const struct policy *policy, char *text, size_t capacity);

/* Whether the policy compresses a collective at all. */
bool qccl_policy_compresses(const struct policy *policy, qcclColl_t collective);

const char *qccl_collective_name(qcclColl_t collective);

#endif
