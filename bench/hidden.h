/* qccl-hidden: what its parts share.  The measurement is in hidden.c, the command line in
 * hidden_options.c. */
#ifndef BENCH_HIDDEN_H
#define BENCH_HIDDEN_H

#include "bench/world.h"

enum { HIDDEN_PAIRS_MAX = 1000 };

struct hidden_options {
    int ranks; /* 0: default */
    size_t bytes, bucket_bytes;
    double compute_ms;
    bool device;
    const char *fast, *slow;
    int pairs;
    const char *json;
};

struct hidden {
    struct hidden_options options;
    struct bench_world world;
    qcclComm_t *fast, *slow; /* of this process's ranks */
    size_t bucket_elems;
    int nbuckets;
    /* Of each pair of blocks: a step's time without and with slow reductions, in seconds, and the
     * cores kept busy by threads that do not compute. */
    double off[HIDDEN_PAIRS_MAX], on[HIDDEN_PAIRS_MAX], ratio[HIDDEN_PAIRS_MAX];
    double busy_off[HIDDEN_PAIRS_MAX], busy_on[HIDDEN_PAIRS_MAX];
};

/* Returns -1 when the program should run, else an exit status. */
int hidden_options_parse(struct hidden_options *options, int argc, char **argv);

#endif
