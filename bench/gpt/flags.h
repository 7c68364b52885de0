/* What the command line of qccl-gpt sets. */
#ifndef BENCH_GPT_FLAGS_H
#define BENCH_GPT_FLAGS_H

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
    const char *policy; /* NULL: not given */
    int eval, windows;  /* steps between validations; sequences of each */
    const char *log, *json;
    const char *dump_dir; /* NULL: none */
    int dump_step;
};

/* Fills options from argv.  True: go on.  False: leave with *status, after the help or a sentence
 * about what is wrong. */
bool gpt_flags_parse(struct gpt_options *options, int argc, char **argv, int *status);

struct gpt_shape gpt_flags_shape(const struct gpt_options *options);

#endif
