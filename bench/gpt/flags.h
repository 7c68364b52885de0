/* What the command line of qccl-gpt sets. */
#ifndef BENCH_GPT_FLAGS_H
#define BENCH_GPT_FLAGS_H

#include <stdbool.h>
#include <stdint.h>

#include "bench/gpt/layout.h"

struct gpt_options {
    int layers, width, heads, context;
    int ranks; /* 0: not given */
    int batch; /* sequences a rank and step */
    int steps, warmup;
    double rate, decay, clip;
    uint64_t seed;
    const char *text;
    const char *policy;    /* NULL: not given */
    bool sharded;          /* ZeRO-style training through qcclShard */
    const char *weights;   /* sharded: delta, plain or fp32 */
    const char *duo;       /* NULL: none; 4, 1, 0 or a codec */
    const char *slow;      /* of the duo */
    const char *optimizer; /* adamw or sgd */
    const char *overlap;   /* on or off */
    int bucket_kib;
    int eval, windows; /* steps between validations; sequences of each */
    const char *log, *json;
    const char *dump_dir; /* NULL: none */
    int dump_step;
};

/* Fills options from argv.  True: go on.  False: leave with *status, after the help or a sentence
 * about what is wrong. */
bool gpt_flags_parse(struct gpt_options *options, int argc, char **argv, int *status);

struct gpt_shape gpt_flags_shape(const struct gpt_options *options);

#endif
