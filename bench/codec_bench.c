/* qccl-codec: what every kernel row reaches, beside what the core's memory allows.
 *
 * A rate in values a second says little on another machine; a share of the read or copy bandwidth
 * of the same core, in the same second, says whether there is anything left to gain. */
#include "bench/codec_bench.h"

#include <stdio.h>
#include <string.h>

#include "bench/report.h"

struct output {
    struct json json;
    bool table;
};

static void print_reader(const char *where, const struct bench_fast_reader *reader)
{
    printf("# read loop in %s: %s, %zu streams, prefetching %zu bytes ahead\n", where,
           reader->row->cpu, reader->shape.streams, reader->shape.ahead_bytes);
}

static void print_head(const struct codec_arena *arena, int core)
{
    char in_memory[32], in_cache[32];
    bench_print_size(in_memory, sizeof in_memory, (double)arena->memory_count * sizeof(float));
    bench_print_size(in_cache, sizeof in_cache, (double)arena->l2_bytes / 2);
    printf("# qccl-codec %d.%d.%d on core %d; memory: %s of fp32; cache: %s touched\n", QCCL_MAJOR,
           QCCL_MINOR, QCCL_PATCH, core, in_memory, in_cache);
    print_reader("memory", &arena->memory_reader);
    print_reader("cache", &arena->cache_reader);
    printf("#%-30s %-14s %-12s %-7s %9s %9s %8s %8s %8s   %s\n", "codec", "kernel", "operation",
           "where", "Gvalues/s", "per cycle", "GB/s", "of read", "of copy",
           "(read, copy GB/s; GHz)");
    fflush(stdout);
}

/* The kernel row's name, as the library's tables have it. */
static void name_kernel(const qcclCodec_t *codec, const char *cpu, char *name, size_t capacity)
{
    static const char *const formats[qcclNumFormats] = {
        [qcclFormatNone] = "none",  [qcclFormatBf16] = "bf16", [qcclFormatInt8] = "int8",
        [qcclFormatInt4] = "int4",  [qcclFormatInt2] = "int2", [qcclFormatSr1] = "sr1",
        [qcclFormatSign1] = "sign1"};
    snprintf(name, capacity, "%s_%s", formats[codec->format], cpu);
}

static void show(struct output *output, const char *codec, const char *kernel,
                 const struct codec_case *c, const struct codec_result *r)
{
    int messages = codec_operation_messages(c->operation);
    const char *operation = codec_operation_name(c->operation),
               *where = c->memory ? "memory" : "cache";
    char label[32];
    snprintf(label, sizeof label, messages > 1 ? "%s %d" : "%s", operation, messages);
    bench_progress_end();
    if (output->table)
        printf("%-31s %-14s %-12s %-7s %9.3f %9.3f %8.2f %8.3f %8.3f   %.1f %.1f; %.2f\n", codec,
               kernel, label, where, r->values_per_s * 1e-9, r->values_per_cycle,
               r->bytes_per_s * 1e-9, r->share_of_read, r->share_of_copy,
               r->read_bytes_per_s * 1e-9, r->copy_bytes_per_s * 1e-9, r->hertz * 1e-9);
    fflush(stdout);
    struct json *json = &output->json;
    bench_json_object(json);
    bench_json_string(json, "codec", codec);
    bench_json_string(json, "kernel", kernel);
    bench_json_string(json, "operation", operation);
    bench_json_string(json, "where", where);
    bench_json_number(json, "values_per_s", r->values_per_s);
    bench_json_number(json, "share_of_read", r->share_of_read);
    bench_json_number(json, "share_of_copy", r->share_of_copy);
    bench_json_integer(json, "messages", (uint64_t)messages);
    bench_json_integer(json, "count", r->count);
    bench_json_number(json, "values_per_cycle", r->values_per_cycle);
    bench_json_number(json, "bytes_per_s", r->bytes_per_s);
    bench_json_number(json, "read_bytes_per_s", r->read_bytes_per_s);
    bench_json_number(json, "copy_bytes_per_s", r->copy_bytes_per_s);
    bench_json_number(json, "hertz", r->hertz);
    bench_json_object_end(json);
}

/* All operations of one codec, kernel row and place. */
static int measure_operations(struct codec_arena *arena, const struct codec_options *o,
                              const char *text, const char *cpu, bool memory, struct output *output)
{
    struct codec_case c = {.memory = memory, .samples = o->samples};
    char kernel[32];
    int status = qcclCodecParse(text, &c.codec) ? bench_error("%s", qcclGetLastError()) : 0;
    name_kernel(&c.codec, cpu, kernel, sizeof kernel);
    for (int i = 0; i < CODEC_OPERATIONS && !status; i++) {
        struct codec_result result;
        if (!o->operations[i])
            continue;
        c.operation = (enum codec_operation)i;
        bench_progress("%s, %s, %s in %s ...", text, kernel, codec_operation_name(c.operation),
                       memory ? "memory" : "cache");
        status = codec_measure(arena, &c, &result);
        if (!status)
            show(output, text, kernel, &c, &result);
    }
    return status;
}

/* Every row of a codec in one place. */
static int measure_rows(struct codec_arena *arena, const struct codec_options *o, const char *text,
                        bool memory, struct output *output)
{
    qcclCodec_t codec;
    int status = qcclCodecParse(text, &codec) ? bench_error("%s", qcclGetLastError())
                                              : codec_prepare(arena, &codec, memory);
    for (int i = 0; qcclCpuName(i) && !status; i++) {
        const char *cpu = qcclCpuName(i);
        if (o->cpu && strcmp(o->cpu, cpu) != 0)
            continue;
        if (qcclSetCpu(cpu))
            status = bench_error("%s", qcclGetLastError());
        else
            status = measure_operations(arena, o, text, cpu, memory, output);
    }
    qcclSetCpu(NULL);
    return status;
}

static int run(const struct codec_options *o)
{
    struct codec_arena arena;
    struct output output = {.table = !o->json || strcmp(o->json, "-") != 0};
    int core = bench_pin(o->core);
    if (core < 0 && o->core >= 0)
        return bench_usage_error("--core %d: the system does not let this program run there",
                                 o->core);
    int status = codec_arena_make(&arena, o->bytes);
    if (!status && !bench_json_open(&output.json, o->json))
        status = bench_error("%s: cannot be written", o->json);
    if (!status && output.table)
        print_head(&arena, core);
    for (int i = 0; i < o->ncodecs && !status; i++) {
        if (o->cache)
            status = measure_rows(&arena, o, o->codecs[i], false, &output);
        if (o->memory && !status)
            status = measure_rows(&arena, o, o->codecs[i], true, &output);
    }
    if (!bench_json_close(&output.json))
        status = bench_error("%s: cannot be written", o->json);
    codec_arena_free(&arena);
    return status;
}

int main(int argc, char **argv)
{
    struct codec_options options;
    bench_program("qccl-codec");
    int status = codec_options_parse(&options, argc, argv);
    return status < 0 ? run(&options) : status;
}
