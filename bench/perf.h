/* qccl-perf in three parts: what was asked for, one measured row, how rows are shown. */
#ifndef BENCH_PERF_H
#define BENCH_PERF_H

#include <stdbool.h>

#include "bench/json.h"
#include "bench/verify.h"
#include "bench/world.h"

struct perf_options {
    qcclColl_t coll;
    size_t min_bytes, max_bytes; /* both 0: as many values as the first input has */
    size_t step_bytes;
    double factor; /* above 1: each size is this times the last; else step_bytes more */
    int iters, warmup;
    bool check, parallel_init, in_place, print_plan;
    bool types[qcclNumTypes], ops[qcclNumOps];
    int root, ranks; /* ranks 0: the default */
    const char *policy, *nodes, *json;
    uint64_t seed;
    char **inputs; /* files; ninputs 0: normal values */
    int ninputs;
};

/* Fills the options from a command line.  Returns an exit status, or -1 when the program shall go
 * on. */
int perf_options_parse(struct perf_options *options, int argc, char **argv);

/* One size, type and reduction. */
struct perf_case {
    qcclDataType_t type;
    qcclRedOp_t op;
    size_t bytes; /* the whole, in raw bytes */
    size_t whole; /* elements of the whole */
    size_t count; /* as in the call: all of an allreduce, one shard otherwise */
};

/* What came of it, equal on all ranks. */
struct perf_row {
    struct perf_case of;
    bool compressed, same_bits;
    double seconds, plain_seconds; /* medians over iterations of the slowest rank's time */
    double raw_bytes, wire_bytes;  /* a rank, on average */
    double encode_us, wire_us, decode_us;
    double workspace_bytes; /* the largest of a rank */
    struct bench_findings found;
    char codec[QCCL_POLICY_MAX]; /* what travelled, in the policy language; "none" when passed
                                    through */
};

/* The measurement, shared by the ranks of this process. */
struct perf {
    const struct perf_options *options;
    struct bench_world world;
    struct bench_inputs inputs;
    const int *nodes;
    qcclComm_t *comms, *plain_comms; /* of the local ranks */
    struct perf_output *output;
};

/* What each rank runs: measures every case and hands each row to perf_output_row on rank 0. */
void perf_rank(void *perf, int rank);

struct perf_output {
    const struct perf_options *options;
    struct json json;
    bool table; /* false while standard output carries JSON */
    int nranks;
    const char *transport;
    bool any_wrong;
};

void perf_output_head(struct perf_output *output, const char *policy);
void perf_output_plan(struct perf_output *output, const char *text);
void perf_output_row(struct perf_output *output, const struct perf_row *row);

/* Bytes that cross each link of a rank for one raw byte of the whole, as nccl-tests counts. */
double perf_bus_factor(qcclColl_t coll, int nranks);

#endif
