/* qccl-codec in three parts: what was asked for, the measurement, how it is shown. */
#ifndef BENCH_CODEC_BENCH_H
#define BENCH_CODEC_BENCH_H

#include <stdbool.h>

#include "bench/bandwidth.h"
#include "bench/json.h"
#include "qccl/qccl.h"

enum { CODECS_MAX = 32, MESSAGES = 4 };

enum codec_operation {
    OP_ENCODE,
    OP_DECODE,
    OP_DECODE_ADD,
    OP_SUM_2,
    OP_SUM_4,
    OP_SUM_ENCODE,
    CODEC_OPERATIONS
};

struct codec_options {
    const char *codecs[CODECS_MAX]; /* as given */
    int ncodecs;
    const char *cpu; /* NULL: all */
    bool operations[CODEC_OPERATIONS];
    bool cache, memory;
    size_t bytes; /* of fp32 values in memory */
    int samples, core;
    const char *json;
};

/* Fills the options.  Returns an exit status, or -1 when the program shall go on. */
int codec_options_parse(struct codec_options *options, int argc, char **argv);

/* "encode", "sum", and how many messages go in. */
const char *codec_operation_name(enum codec_operation operation);
int codec_operation_messages(enum codec_operation operation);

/* Memory for everything a kernel touches. */
struct codec_arena {
    size_t capacity, memory_count; /* values: there is room for, a case in memory has */
    float *values, *out, *residual;
    void *messages[MESSAGES + 1]; /* the last is written by encoders */
    size_t message_capacity;
    struct bench_fast_reader cache_reader, memory_reader;
    size_t l2_bytes;
};

/* Returns an exit status. */
int codec_arena_make(struct codec_arena *arena, size_t bytes);
void codec_arena_free(struct codec_arena *arena);

struct codec_case {
    qcclCodec_t codec;
    enum codec_operation operation;
    bool memory;
    int samples;
};

/* Medians over samples.  A share compares bytes moved a second with those of a read loop or of
 * memcpy (which moves two bytes for each that it copies), timed before and after each sample. */
struct codec_result {
    size_t count;
    double values_per_s, values_per_cycle, bytes_per_s, share_of_read, share_of_copy;
    double read_bytes_per_s, copy_bytes_per_s, hertz;
};

/* Encodes the messages that decoders and sums read.  Returns an exit status. */
int codec_prepare(struct codec_arena *arena, const qcclCodec_t *codec, bool memory);

/* Measures one case with the kernel row in force.  Returns an exit status. */
int codec_measure(struct codec_arena *arena, const struct codec_case *c,
                  struct codec_result *result);

#endif
