/* QCCL_DROPIN: which calls of a program a drop-in may compress, beside what the policy says.
 *
 *   rules  := clause (';' clause)* [';']
 *   clause := ('only' | 'except') '=' test (' ' test)*
 *   test   := 'allreduce' | 'reducescatter' | 'allgather' | 'float' | 'double'
 *           | ('count' | 'ranks') ('>=' | '<=') number ['K' | 'M' | 'G']
 *           | ('name' | 'site') '=' pattern
 *
 * A clause matches a call that passes all of its tests; tests of one kind (collectives, types) are
 * alternatives.  A call is taken when no except= matches and, where there is any only=, one of them
 * does; a call of doubles only by an only= that says double.  docs/dropin.md is for users. */
#ifndef QCCL_DROPIN_RULES_H
#define QCCL_DROPIN_RULES_H

#include <stdbool.h>

#include "qccl/qccl.h"

enum { RULES_MAX = 16, PATTERN_MAX = 64 };

struct rule {
    bool except;
    unsigned collectives; /* bits of qcclColl_t; 0: all */
    unsigned types;       /* bits of qcclDataType_t; 0: all */
    size_t count_min, count_max;
    size_t ranks_min, ranks_max;
    char name[PATTERN_MAX], site[PATTERN_MAX]; /* "": not asked */
};

struct rules {
    struct rule of[RULES_MAX];
    int count;
    bool ask_name, ask_site; /* whether a clause has such a test */
};

/* What the clauses look at. */
struct candidate {
    qcclColl_t collective;
    qcclDataType_t type; /* fp32 or fp64 */
    size_t count;        /* values of the whole message */
    int nranks;
    const char *name;    /* of the communicator; "" when not asked */
    const char *site[2]; /* the caller's file and function; "" when not asked or not known */
};

enum rules_answer { RULES_TAKE, RULES_NOT_ONLY, RULES_EXCEPT, RULES_DOUBLE };

qcclResult_t qccl_rules_parse(const char *text, struct rules *rules);
enum rules_answer qccl_rules_ask(const struct rules *rules, const struct candidate *call);

#endif
