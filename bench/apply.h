/* qccl-apply in two parts: the run, and what is said about it. */
#ifndef BENCH_APPLY_H
#define BENCH_APPLY_H

#include <stdbool.h>

#include "bench/verify.h"
#include "bench/world.h"

struct apply_options {
    qcclColl_t coll;
    qcclRedOp_t op;
    qcclDataType_t type; /* of raw files */
    bool type_given;
    const char *policy, *nodes, *out, *json;
    uint64_t seed, sequence;
    char **files;
    int nfiles;
};

struct apply {
    const struct apply_options *options;
    struct bench_world world;
    struct bench_file *files; /* one a rank, all of one type and count */
    int nranks;
    qcclDataType_t type;
    size_t count; /* of a file */
    size_t whole; /* of all values: count, or nranks * count for an all-gather */
    int *nodes;   /* NULL: all ranks on one */
    qcclComm_t *comms;
    void **results; /* of each rank */
    size_t result_count;
    struct bench_scheme scheme;
    uint64_t raw_bytes, wire_bytes; /* of all ranks together */
    bool compressed;
};

/* What encoding did to the values that went in. */
struct apply_losses {
    uint64_t clipped;    /* values that came back smaller by more than a step */
    uint64_t nan_groups; /* groups that travelled with a NaN or an infinity in them */
};

/* Values first .. first + count - 1 of the whole as a rank put them in; a bench_reader whose
 * context is a struct apply. */
void apply_read(const void *apply, int rank, size_t first, size_t count, float *out);

/* Encodes each contribution as the collective did and compares.  Returns an exit status. */
int apply_find_losses(const struct apply *apply, struct apply_losses *losses);

/* Checks the results and says what compression did to these values.  Returns an exit status:
 * EXIT_WRONG also for a wrong value, a clipped one, or ranks that disagree. */
int apply_report(const struct apply *apply);

#endif
