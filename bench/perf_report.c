/* Rows of qccl-perf as a table and as JSON; see perf.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/options.h"
#include "bench/perf.h"
#include "bench/report.h"

double perf_bus_factor(qcclColl_t coll, int nranks)
{
    double share = (double)(nranks - 1) / nranks;
    return coll == qcclCollAllReduce ? 2 * share : share;
}

void perf_output_head(struct perf_output *output, const char *policy)
{
    const struct perf_options *o = output->options;
    if (!output->table)
        return;
    printf("# qccl-perf %d.%d.%d: %s over %d %s%s, %d iterations after %d, %s\n", QCCL_MAJOR,
           QCCL_MINOR, QCCL_PATCH, bench_coll_name(o->coll), output->nranks,
           strcmp(output->transport, "mpi") == 0 ? "MPI ranks" : "thread ranks",
           o->in_place ? ", in place" : "", o->iters, o->warmup,
           o->ninputs ? "values from files" : "normal values");
    printf("# policy %s\n", policy);
    printf("#%11s %12s %9s %6s %10s %8s %8s %10s %8s %12s %7s %10s %7s  %s\n", "size", "count",
           "type", "redop", "time", "algbw", "busbw", "plain", "speed-up", "wire", "ratio",
           "rel_error", "#wrong", "codec");
    printf("#%11s %12s %9s %6s %10s %8s %8s %10s %8s %12s %7s %10s %7s\n", "(B)", "(elements)", "",
           "", "(us)", "(GB/s)", "(GB/s)", "(us)", "", "(B)", "", "", "");
    fflush(stdout);
}

void perf_output_plan(struct perf_output *output, const char *text)
{
    FILE *out = output->table ? stdout : stderr;
    fputs(text, out);
    fflush(out);
}

static const char *op_of(const struct perf_output *output, const struct perf_row *row)
{
    bool reduces = output->options->coll == qcclCollAllReduce ||
                   output->options->coll == qcclCollReduceScatter;
    return reduces ? bench_op_name(row->of.op) : "none";
}

static void print_row(const struct perf_output *output, const struct perf_row *row)
{
    double algbw = (double)row->of.bytes / row->seconds * 1e-9;
    double busbw = algbw * perf_bus_factor(output->options->coll, output->nranks);
    bench_progress_end();
    printf("%12zu %12zu %9s %6s %10.1f %8.3f %8.3f %10.1f %8.3f %12.0f %7.3f", row->of.bytes,
           row->of.count, bench_type_name(row->of.type), op_of(output, row), row->seconds * 1e6,
           algbw, busbw, row->plain_seconds * 1e6, row->plain_seconds / row->seconds,
           row->wire_bytes, row->wire_bytes > 0 ? row->raw_bytes / row->wire_bytes : 1.0);
    if (output->options->check)
        printf(" %10.3e %7llu", bench_relative_error(&row->found),
               (unsigned long long)row->found.wrong);
    else
        printf(" %10s %7s", "-", "-");
    printf("  %s\n", row->codec);
    fflush(stdout);
}

static void write_row(struct perf_output *output, const struct perf_row *row)
{
    struct json *json = &output->json;
    const struct perf_options *o = output->options;
    double factor = perf_bus_factor(o->coll, output->nranks) * (double)row->of.bytes * 1e-9;
    bench_json_object(json);
    bench_json_string(json, "collective", bench_coll_name(o->coll));
    bench_json_integer(json, "bytes", row->of.bytes);
    bench_json_integer(json, "count", row->of.count);
    bench_json_string(json, "type", bench_type_name(row->of.type));
    bench_json_string(json, "op", op_of(output, row));
    bench_json_integer(json, "ranks", (uint64_t)output->nranks);
    bench_json_string(json, "policy", o->policy ? o->policy : row->codec);
    bench_json_number(json, "time_us", row->seconds * 1e6);
    bench_json_number(json, "busbw", factor / row->seconds);
    bench_json_number(json, "uncompressed_time_us", row->plain_seconds * 1e6);
    bench_json_integer(json, "wire_bytes", (uint64_t)(row->wire_bytes + 0.5));
    bench_json_number(json, "ratio", row->wire_bytes > 0 ? row->raw_bytes / row->wire_bytes : 1.0);
    bench_json_number(json, "rel_error", o->check ? bench_relative_error(&row->found) : NAN);
    if (o->check)
        bench_json_integer(json, "wrong", row->found.wrong);
    else
        bench_json_number(json, "wrong", NAN);
    bench_json_string(json, "codec", row->codec);
    bench_json_string(json, "transport", output->transport);
    bench_json_bool(json, "in_place", o->in_place);
    bench_json_bool(json, "compressed", row->compressed);
    bench_json_number(json, "algbw", (double)row->of.bytes / row->seconds * 1e-9);
    bench_json_number(json, "uncompressed_busbw", factor / row->plain_seconds);
    bench_json_number(json, "encode_us", row->encode_us);
    bench_json_number(json, "wire_us", row->wire_us);
    bench_json_number(json, "decode_us", row->decode_us);
    bench_json_integer(json, "workspace_bytes", (uint64_t)row->workspace_bytes);
    if (o->check) {
        bench_json_number(json, "closest_to_bound", row->found.closest);
        bench_json_integer(json, "nan_values", row->found.nan_values);
        bench_json_bool(json, "same_bits", row->same_bits);
    }
    bench_json_object_end(json);
}

void perf_output_row(struct perf_output *output, const struct perf_row *row)
{
    if (output->table)
        print_row(output, row);
    write_row(output, row);
    if (row->found.wrong || !row->same_bits)
        output->any_wrong = true;
    if (row->found.wrong)
        bench_error("%llu of %zu values of %zu bytes are outside their bound",
                    (unsigned long long)row->found.wrong, row->of.whole, row->of.bytes);
    if (!row->same_bits)
        bench_error("ranks have different bits in the result of %zu bytes", row->of.bytes);
}
