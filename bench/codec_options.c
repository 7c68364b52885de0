/* The command line of qccl-codec; see codec_bench.h. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "bench/codec_bench.h"
#include "bench/options.h"
#include "bench/report.h"

static const char help[] =
    "Usage: qccl-codec [options]\n"
    "\n"
    "Times every kernel row on one pinned core, in cache and in memory, beside the\n"
    "core's own read and copy bandwidth, measured before and after each sample.\n"
    "\n"
    "  --codec CODEC      only this one, in the policy language, as in\n"
    "                     int4:hadamard=32; may be repeated (default: int8, int4,\n"
    "                     int4:round=nearest, int2, sr1, sign1:feedback=on, bf16,\n"
    "                     int4 with hadamard=32, with 128, and with 32 and nearest)\n"
    "  --cpu ROW          only this kernel row: avx512, avx2 or c (default: all that\n"
    "                     run here)\n"
    "  --operation OP     only this one: encode, decode, decode-add, sum (of 2 and\n"
    "                     of 4 messages) or sum-encode (of 4, encoded again in the\n"
    "                     same pass)\n"
    "  --where W          only in cache or in memory\n"
    "  --bytes SIZE       fp32 values in memory (default 256M)\n"
    "  --samples N        samples, of which the median counts (default 7)\n"
    "  --quick            64M and 3 samples\n"
    "  --core N           the core to run on (default: the one it starts on)\n"
    "  --json FILE        also writes one JSON object a row; \"-\": to standard\n"
    "                     output, without the table\n"
    "  --help, --version\n"
    "\n"
    "Columns: G values a second; values a cycle of the core's clock, which is\n"
    "measured by a chain of dependent multiplications and additions around each\n"
    "sample; GB/s moved, what is read and written together; that as a share of what\n"
    "a read loop moves, and of what memcpy moves, read and written.  In cache,\n"
    "everything a call touches takes half of the second-level cache.  Times are\n"
    "those that this thread ran, so that other programs on the core do not count.\n"
    "\n"
    "Exit status: 0; 1 when something fails; 2 for a bad command line.\n";

enum {
    OPT_CODEC = 256,
    OPT_CPU,
    OPT_OPERATION,
    OPT_WHERE,
    OPT_BYTES,
    OPT_SAMPLES,
    OPT_QUICK,
    OPT_CORE,
    OPT_JSON,
    OPT_HELP,
    OPT_VERSION
};

static const struct option long_options[] = {
    {.name = "codec", .has_arg = required_argument, .val = OPT_CODEC},
    {.name = "cpu", .has_arg = required_argument, .val = OPT_CPU},
    {.name = "operation", .has_arg = required_argument, .val = OPT_OPERATION},
    {.name = "where", .has_arg = required_argument, .val = OPT_WHERE},
    {.name = "bytes", .has_arg = required_argument, .val = OPT_BYTES},
    {.name = "samples", .has_arg = required_argument, .val = OPT_SAMPLES},
    {.name = "quick", .has_arg = no_argument, .val = OPT_QUICK},
    {.name = "core", .has_arg = required_argument, .val = OPT_CORE},
    {.name = "json", .has_arg = required_argument, .val = OPT_JSON},
    {.name = "help", .has_arg = no_argument, .val = OPT_HELP},
    {.name = "version", .has_arg = no_argument, .val = OPT_VERSION},
    {.name = NULL},
};

static const char *const default_codecs[] = {
    "int8",
    "int4",
    "int4:round=nearest",
    "int2",
    "sr1",
    "sign1:feedback=on",
    "bf16",
    "int4:hadamard=32",
    "int4:hadamard=128",
    "int4:hadamard=32,round=nearest",
};

static const struct {
    const char *name;
    int messages;
} operations[CODEC_OPERATIONS] = {
    [OP_ENCODE] = {.name = "encode"},
    [OP_DECODE] = {.name = "decode", .messages = 1},
    [OP_DECODE_ADD] = {.name = "decode-add", .messages = 1},
    [OP_SUM_2] = {.name = "sum", .messages = 2},
    [OP_SUM_4] = {.name = "sum", .messages = 4},
    [OP_SUM_ENCODE] = {.name = "sum-encode", .messages = 4},
};

const char *codec_operation_name(enum codec_operation operation)
{
    return operations[operation].name;
}

int codec_operation_messages(enum codec_operation operation)
{
    return operations[operation].messages;
}

static int add_codec(struct codec_options *o, const char *text)
{
    qcclCodec_t codec;
    if (o->ncodecs == CODECS_MAX)
        return bench_usage_error("--codec %s: %d codecs are enough", text, CODECS_MAX);
    if (qcclCodecParse(text, &codec))
        return bench_usage_error("--codec: %s", qcclGetLastError());
    o->codecs[o->ncodecs++] = text;
    return -1;
}

static int choose_cpu(struct codec_options *o, const char *text)
{
    for (int i = 0; qcclCpuName(i); i++)
        if (strcmp(qcclCpuName(i), text) == 0) {
            o->cpu = text;
            return -1;
        }
    return bench_usage_error("--cpu %s: this processor's rows are %s%s%s%s%s", text, qcclCpuName(0),
                             qcclCpuName(0) && qcclCpuName(1) ? ", " : "",
                             qcclCpuName(1) ? qcclCpuName(1) : "", qcclCpuName(2) ? ", " : "",
                             qcclCpuName(2) ? qcclCpuName(2) : "");
}

static int choose_operation(struct codec_options *o, const char *text)
{
    bool known = false;
    for (int i = 0; i < CODEC_OPERATIONS; i++)
        if (strcmp(operations[i].name, text) == 0)
            o->operations[i] = known = true;
    return known ? -1
                 : bench_usage_error("--operation %s: expected encode, decode, decode-add, sum or "
                                     "sum-encode",
                                     text);
}

static int choose_where(struct codec_options *o, const char *text)
{
    if (strcmp(text, "cache") == 0)
        o->cache = true;
    else if (strcmp(text, "memory") == 0)
        o->memory = true;
    else
        return bench_usage_error("--where %s: expected cache or memory", text);
    return -1;
}

static int parse_option(struct codec_options *o, int option, const char *text)
{
    switch (option) {
    case OPT_CODEC:
        return add_codec(o, text);
    case OPT_CPU:
        return choose_cpu(o, text);
    case OPT_OPERATION:
        return choose_operation(o, text);
    case OPT_WHERE:
        return choose_where(o, text);
    case OPT_BYTES:
        return bench_parse_bytes(text, &o->bytes) && o->bytes >= (size_t)1 << 20
                   ? -1
                   : bench_usage_error("--bytes %s: expected a size of at least 1M", text);
    case OPT_SAMPLES:
        return bench_parse_int(text, 1, 10000, &o->samples)
                   ? -1
                   : bench_usage_error("--samples %s: expected a number from 1 to 10000", text);
    case OPT_CORE:
        return bench_parse_int(text, 0, 100000, &o->core)
                   ? -1
                   : bench_usage_error("--core %s: expected the number of a core", text);
    case OPT_QUICK:
        o->bytes = (size_t)64 << 20;
        o->samples = 3;
        return -1;
    case OPT_JSON:
        o->json = text;
        return -1;
    case OPT_VERSION:
        return bench_print_version();
    default:
        fputs(help, stdout);
        return 0;
    }
}

/* What was not narrowed down is everything. */
static void fill_in(struct codec_options *o)
{
    bool any = false;
    for (int i = 0; i < CODEC_OPERATIONS; i++)
        any = any || o->operations[i];
    for (int i = 0; i < CODEC_OPERATIONS; i++)
        o->operations[i] = o->operations[i] || !any;
    if (!o->cache && !o->memory)
        o->cache = o->memory = true;
    if (o->ncodecs)
        return;
    for (size_t i = 0; i < sizeof default_codecs / sizeof *default_codecs; i++)
        o->codecs[o->ncodecs++] = default_codecs[i];
}

int codec_options_parse(struct codec_options *o, int argc, char **argv)
{
    *o = (struct codec_options){.bytes = (size_t)256 << 20, .samples = 7, .core = -1};
    int option, status = -1;
    opterr = 0;
    while (status < 0 && (option = getopt_long(argc, argv, ":", long_options, NULL)) != -1) {
        if (option == ':')
            status = bench_usage_error("%s needs a value", argv[optind - 1]);
        else if (option == '?')
            status = bench_usage_error("%s is no option", argv[optind - 1]);
        else
            status = parse_option(o, option, optarg);
    }
    if (status < 0 && optind < argc)
        status = bench_usage_error("%s: expected options only", argv[optind]);
    if (status < 0)
        fill_in(o);
    return status;
}
