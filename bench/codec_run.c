/* The measurement of qccl-codec; see codec_bench.h. */
#include <stdlib.h>
#include <string.h>

#include "bench/codec_bench.h"
#include "bench/input.h"
#include "bench/report.h"
#include "bench/samples.h"

enum { ALIGNMENT = 64, COUNT_UNIT = 8192, CACHE_UNIT = 1024 };

/* A sample in cache repeats the call for this long. */
static const double cache_sample_seconds = 2e-3;

static void *take(size_t bytes)
{
    void *memory = aligned_alloc(ALIGNMENT, (bytes + 4095) / 4096 * 4096);
    if (memory)
        memset(memory, 0, bytes); /* no page is first touched inside a measurement */
    return memory;
}

static int fill_values(struct codec_arena *a)
{
    struct bench_inputs inputs;
    int status = bench_inputs_open(&inputs, 1, 1, NULL, 0);
    if (!status)
        bench_inputs_read(&inputs, 0, 0, a->capacity, a->values);
    bench_inputs_free(&inputs);
    return status;
}

int codec_arena_make(struct codec_arena *a, size_t bytes)
{
    *a = (struct codec_arena){.l2_bytes = bench_l2_bytes()};
    a->memory_count =
        bytes / sizeof(float) / COUNT_UNIT * COUNT_UNIT; /* whole steps of the read loop */
    /* In cache there are never more values than bytes of it. */
    size_t count = a->memory_count > a->l2_bytes ? a->memory_count : a->l2_bytes;
    a->capacity = count;
    /* none has the longest messages. */
    qcclCodec_t longest = {.format = qcclFormatNone, .group = 128};
    if (qcclEncodedBytes(&longest, count, &a->message_capacity))
        return bench_error("%s", qcclGetLastError());
    a->values = take(count * sizeof *a->values);
    a->out = take(count * sizeof *a->out);
    a->residual = take(count * sizeof *a->residual);
    bool good = a->values && a->out && a->residual;
    for (int i = 0; i <= MESSAGES; i++) {
        a->messages[i] = take(a->message_capacity);
        good = good && a->messages[i];
    }
    if (!good)
        return bench_error("no memory for %zu values, their messages and results", count);
    int status = fill_values(a);
    if (!status) {
        a->memory_reader = bench_find_reader(a->values, a->memory_count * sizeof(float));
        a->cache_reader = bench_find_reader(a->values, a->l2_bytes / 2);
    }
    return status;
}

void codec_arena_free(struct codec_arena *a)
{
    free(a->values);
    free(a->out);
    free(a->residual);
    for (int i = 0; i <= MESSAGES; i++)
        free(a->messages[i]);
    *a = (struct codec_arena){.capacity = 0};
}

/* ------------------------------------------------------------------ what a call moves */

static double message_bytes(const qcclCodec_t *codec)
{
    size_t bytes = 0;
    qcclEncodedBytes(codec, COUNT_UNIT * 64, &bytes);
    return (double)bytes / (COUNT_UNIT * 64);
}

/* Bytes read and written for a value. */
static double moved_bytes(const struct codec_case *c)
{
    double message = message_bytes(&c->codec);
    double in = codec_operation_messages(c->operation) * message;
    switch (c->operation) {
    case OP_ENCODE:
        return 4 + message + (c->codec.feedback ? 8 : 0);
    case OP_DECODE_ADD:
        return in + 8;
    case OP_SUM_ENCODE:
        return in + message;
    default:
        return in + 4;
    }
}

/* Bytes that a value occupies in what a call touches. */
static double footprint(const struct codec_case *c)
{
    bool twice = c->operation == OP_DECODE_ADD || (c->operation == OP_ENCODE && c->codec.feedback);
    return moved_bytes(c) - (twice ? 4 : 0);
}

static size_t values_of(const struct codec_arena *a, const struct codec_case *c)
{
    if (c->memory)
        return a->memory_count;
    size_t count = (size_t)((double)(a->l2_bytes / 2) / footprint(c));
    return count / CACHE_UNIT * CACHE_UNIT;
}

/* ------------------------------------------------------------------ calls */

static qcclResult_t encode_into(struct codec_arena *a, const qcclCodec_t *codec, size_t count,
                                int message)
{
    qcclPosition_t position = {.seed = 1, .rank = (uint32_t)message};
    return qcclEncode(codec, &position, a->values, qcclFloat32, count,
                      codec->feedback ? a->residual : NULL, a->messages[message],
                      a->message_capacity);
}

static qcclResult_t call(struct codec_arena *a, const struct codec_case *c, size_t count)
{
    size_t bytes[MESSAGES];
    const void *messages[MESSAGES];
    int nmessages = codec_operation_messages(c->operation);
    qcclPosition_t position = {.seed = 1, .rank = MESSAGES};
    for (int i = 0; i < nmessages; i++) {
        messages[i] = a->messages[i];
        qcclEncodedBytes(&c->codec, count, &bytes[i]);
    }
    switch (c->operation) {
    case OP_ENCODE:
        return encode_into(a, &c->codec, count, MESSAGES);
    case OP_DECODE:
    case OP_DECODE_ADD:
        return qcclDecode(messages[0], bytes[0], a->out, qcclFloat32, count,
                          c->operation == OP_DECODE_ADD);
    case OP_SUM_ENCODE:
        return qcclDecodeSumEncode(messages, bytes, nmessages, 1.0f, &c->codec, &position, count,
                                   a->messages[MESSAGES], a->message_capacity);
    default:
        return qcclDecodeSum(messages, bytes, nmessages, 1.0f, a->out, qcclFloat32, count);
    }
}

/* Seconds of one call. */
static int time_call(struct codec_arena *a, const struct codec_case *c, size_t count,
                     size_t repeats, double *seconds)
{
    qcclResult_t status = qcclSuccess;
    double start = bench_cpu_now();
    for (size_t i = 0; i < repeats && !status; i++)
        status = call(a, c, count);
    *seconds = (bench_cpu_now() - start) / (double)repeats;
    return status ? bench_error("%s", qcclGetLastError()) : 0;
}

/* ------------------------------------------------------------------ yardsticks */

struct yardstick {
    double read, copy; /* bytes a second */
    double hertz;
};

static struct yardstick look_around(struct codec_arena *a, bool memory)
{
    struct yardstick y;
    size_t bytes = memory ? a->memory_count * sizeof(float) : a->l2_bytes / 2;
    size_t copied = memory ? bytes : bytes / 2;
    const struct bench_fast_reader *reader = memory ? &a->memory_reader : &a->cache_reader;
    int passes = memory ? 1 : 128;
    if (!memory)
        bench_time_read(reader, a->values, bytes, 1); /* brings it into the cache */
    y.read = (double)bytes * passes / bench_time_read(reader, a->values, bytes, passes);
    if (!memory)
        bench_time_copy(a->out, a->values, copied, 1);
    y.copy = 2.0 * (double)copied * passes / bench_time_copy(a->out, a->values, copied, passes);
    y.hertz = bench_core_hertz();
    return y;
}

int codec_prepare(struct codec_arena *a, const qcclCodec_t *codec, bool memory)
{
    /* Messages of a cached case are as long as its own count; codec_measure makes those. */
    qcclResult_t status = qcclSuccess;
    memset(a->residual, 0, a->capacity * sizeof *a->residual);
    for (int i = 0; i < MESSAGES && memory && !status; i++)
        status = encode_into(a, codec, a->memory_count, i);
    return status ? bench_error("%s", qcclGetLastError()) : 0;
}

/* ------------------------------------------------------------------ samples */

/* One sample of everything, as columns of an array that medians are taken of. */
enum { RATE, PER_CYCLE, READ_SHARE, COPY_SHARE, READ_RATE, COPY_RATE, HERTZ, COLUMNS };

static int take_sample(struct codec_arena *a, const struct codec_case *c, size_t count,
                       size_t repeats, struct yardstick *before, double *sample)
{
    double seconds;
    int status = c->memory ? 0 : time_call(a, c, count, 1, &seconds); /* back into the cache */
    if (!status)
        status = time_call(a, c, count, repeats, &seconds);
    if (status)
        return status;
    struct yardstick after = look_around(a, c->memory);
    double read = 0.5 * (before->read + after.read), copy = 0.5 * (before->copy + after.copy);
    double hertz = 0.5 * (before->hertz + after.hertz), rate = (double)count / seconds;
    sample[RATE] = rate;
    sample[PER_CYCLE] = rate / hertz;
    sample[READ_SHARE] = rate * moved_bytes(c) / read;
    sample[COPY_SHARE] = rate * moved_bytes(c) / copy;
    sample[READ_RATE] = read;
    sample[COPY_RATE] = copy;
    sample[HERTZ] = hertz;
    *before = after;
    return 0;
}

static double column_median(const double *samples, int count, int column, double *scratch)
{
    for (int i = 0; i < count; i++)
        scratch[i] = samples[i * COLUMNS + column];
    return bench_median(scratch, (size_t)count);
}

/* Makes short messages, and finds how often to call for one sample. */
static int get_ready(struct codec_arena *a, const struct codec_case *c, size_t count,
                     size_t *repeats)
{
    double seconds;
    *repeats = 1;
    for (int i = 0; i < codec_operation_messages(c->operation) && !c->memory; i++)
        if (encode_into(a, &c->codec, count, i))
            return bench_error("%s", qcclGetLastError());
    int status = time_call(a, c, count, 1, &seconds);
    if (!status && !c->memory)
        status = time_call(a, c, count, 3, &seconds);
    if (!status && !c->memory && seconds < cache_sample_seconds)
        *repeats = (size_t)(cache_sample_seconds / seconds) + 1;
    return status;
}

int codec_measure(struct codec_arena *a, const struct codec_case *c, struct codec_result *result)
{
    size_t count = values_of(a, c), repeats;
    double *samples = calloc((size_t)c->samples * (COLUMNS + 1), sizeof *samples);
    if (!samples)
        return bench_error("no memory for %d samples", c->samples);
    double *scratch = samples + (size_t)c->samples * COLUMNS;
    int status = get_ready(a, c, count, &repeats);
    struct yardstick before = look_around(a, c->memory);
    for (int i = 0; i < c->samples && !status; i++)
        status = take_sample(a, c, count, repeats, &before, samples + (size_t)i * COLUMNS);
    if (!status) {
        *result = (struct codec_result){
            .count = count,
            .values_per_s = column_median(samples, c->samples, RATE, scratch),
            .values_per_cycle = column_median(samples, c->samples, PER_CYCLE, scratch),
            .share_of_read = column_median(samples, c->samples, READ_SHARE, scratch),
            .share_of_copy = column_median(samples, c->samples, COPY_SHARE, scratch),
            .read_bytes_per_s = column_median(samples, c->samples, READ_RATE, scratch),
            .copy_bytes_per_s = column_median(samples, c->samples, COPY_RATE, scratch),
            .hertz = column_median(samples, c->samples, HERTZ, scratch),
        };
        result->bytes_per_s = result->values_per_s * moved_bytes(c);
    }
    free(samples);
    return status;
}
