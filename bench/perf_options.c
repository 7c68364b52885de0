/* The command line of qccl-perf; see perf.h. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/options.h"
#include "bench/perf.h"
#include "bench/report.h"

static const char help[] =
    "Usage: qccl-perf allreduce|reducescatter|allgather|delta [options]\n"
    "       mpirun -n N qccl-perf allreduce|... [options]\n"
    "\n"
    "Times a collective with compressed values on the wire, in turn with the\n"
    "uncompressed one, and checks every value of the result.  Ranks are threads of\n"
    "this process, or mpirun's processes.\n"
    "\n"
    "What is measured:\n"
    "      --policy P           what is compressed and how: \"int4\",\n"
    "                           \"int4:group=64 gather=int8; min=0\",\n"
    "                           \"allreduce: sr1; min=64KiB\"; default QCCL_POLICY,\n"
    "                           then the library's\n"
    "      --ranks N            threads (default 4); under mpirun its processes\n"
    "      --nodes 0,0,1,1      the node of each rank, for intra=; default\n"
    "                           QCCL_NODES, then one node, or MPI's\n"
    "  -b, --minbytes SIZE      smallest size in raw bytes (default: the largest, or\n"
    "                           that of the first --input, or 32M); K, M and G are\n"
    "                           powers of 1024\n"
    "  -e, --maxbytes SIZE      largest size (default: the smallest)\n"
    "  -f, --stepfactor F       each size is F times the last (F above 1),\n"
    "  -i, --stepbytes SIZE     or SIZE more (default 1M)\n"
    "  -d, --datatype TYPE      int8, uint8, int32, uint32, int64, uint64,\n"
    "                           half (fp16), float (fp32), double (fp64),\n"
    "                           bfloat16 (bf16) or all (default float)\n"
    "  -o, --op OP              sum, prod, min, max, avg or all (default sum)\n"
    "  -r, --root RANK          accepted as nccl-tests does for these collectives:\n"
    "                           none of them has a root\n"
    "      --in-place           send and receive in one buffer, refilled before\n"
    "                           each call\n"
    "      --input FILE...      values from these files, not normal ones: raw\n"
    "                           little-endian fp32 or .npy; rank r reads file r\n"
    "                           modulo their number, around and around\n"
    "      --seed N             of values and of random rounding (default 1)\n"
    "How:\n"
    "  -n, --iters N            timed iterations (default 20)\n"
    "  -w, --warmup_iters N     iterations before them (default 5)\n"
    "  -c, --check 0|1          check results (default 1)\n"
    "  -p, --parallel_init 0|1  ranks make and fill their buffers at the same time\n"
    "                           (1, the default) or one after another (0)\n"
    "What is shown:\n"
    "      --json FILE          also writes one JSON object a row; \"-\": to standard\n"
    "                           output, without the table\n"
    "      --print-plan         before each row, what rank 0 does for the call\n"
    "      --help, --version\n"
    "\n"
    "Columns:\n"
    "  size, count  raw bytes and elements; for reducescatter, allgather and delta\n"
    "               the size of all shards and the count of one, as in nccl-tests\n"
    "  time         microseconds: of each iteration that of the slowest rank, of\n"
    "               these the median\n"
    "  algbw        size / time, GB/s of raw bytes\n"
    "  busbw        algbw * 2(n-1)/n for allreduce, algbw * (n-1)/n for the others\n"
    "  plain        microseconds of the uncompressed call of the same library\n"
    "  speed-up     plain / time\n"
    "  wire, ratio  bytes a rank sent, and raw bytes over those\n"
    "  rel_error    |result - fp64 result| / |fp64 result| in the 2-norm; delta:\n"
    "               beside the difference that was sent\n"
    "  #wrong       values outside the bound that the codec's steps give\n"
    "  codec        what travelled; none where the policy passes a call through\n"
    "               (other types and reductions, sizes below its min=)\n"
    "\n"
    "Exit status: 0; 1 when a value is wrong, ranks disagree or a call fails; 2 for\n"
    "a bad command line.\n";

enum {
    OPT_POLICY = 256,
    OPT_RANKS,
    OPT_NODES,
    OPT_IN_PLACE,
    OPT_INPUT,
    OPT_SEED,
    OPT_JSON,
    OPT_PRINT_PLAN,
    OPT_HELP,
    OPT_VERSION
};

static const struct option long_options[] = {
    {.name = "policy", .has_arg = required_argument, .val = OPT_POLICY},
    {.name = "ranks", .has_arg = required_argument, .val = OPT_RANKS},
    {.name = "nodes", .has_arg = required_argument, .val = OPT_NODES},
    {.name = "minbytes", .has_arg = required_argument, .val = 'b'},
    {.name = "maxbytes", .has_arg = required_argument, .val = 'e'},
    {.name = "stepfactor", .has_arg = required_argument, .val = 'f'},
    {.name = "stepbytes", .has_arg = required_argument, .val = 'i'},
    {.name = "datatype", .has_arg = required_argument, .val = 'd'},
    {.name = "op", .has_arg = required_argument, .val = 'o'},
    {.name = "root", .has_arg = required_argument, .val = 'r'},
    {.name = "in-place", .has_arg = no_argument, .val = OPT_IN_PLACE},
    {.name = "input", .has_arg = required_argument, .val = OPT_INPUT},
    {.name = "seed", .has_arg = required_argument, .val = OPT_SEED},
    {.name = "iters", .has_arg = required_argument, .val = 'n'},
    {.name = "warmup_iters", .has_arg = required_argument, .val = 'w'},
    {.name = "check", .has_arg = required_argument, .val = 'c'},
    {.name = "parallel_init", .has_arg = required_argument, .val = 'p'},
    {.name = "json", .has_arg = required_argument, .val = OPT_JSON},
    {.name = "print-plan", .has_arg = no_argument, .val = OPT_PRINT_PLAN},
    {.name = "help", .has_arg = no_argument, .val = OPT_HELP},
    {.name = "version", .has_arg = no_argument, .val = OPT_VERSION},
    {.name = NULL},
};

/* What is known while the words of the command line go by. */
struct parser {
    struct perf_options *options;
    bool coll_given, type_given, op_given;
};

static bool parse_flag(const char *text, bool *flag)
{
    int value;
    bool good = bench_parse_int(text, 0, 1, &value);
    *flag = good && value;
    return good;
}

static bool parse_factor(const char *text, double *factor)
{
    char *end;
    *factor = strtod(text, &end);
    return end != text && !*end && *factor >= 1 && *factor <= 0x1p40;
}

static int parse_types(struct parser *p, const char *text)
{
    qcclDataType_t type;
    p->type_given = true;
    if (strcmp(text, "all") == 0)
        for (int t = 0; t < qcclNumTypes; t++)
            p->options->types[t] = true;
    else if (bench_parse_type(text, &type))
        p->options->types[type] = true;
    else
        return bench_usage_error("-d %s: expected all or one of %s", text, bench_type_names());
    return -1;
}

static int parse_ops(struct parser *p, const char *text)
{
    qcclRedOp_t op;
    p->op_given = true;
    if (strcmp(text, "all") == 0)
        for (int i = 0; i < qcclNumOps; i++)
            p->options->ops[i] = true;
    else if (bench_parse_op(text, &op))
        p->options->ops[op] = true;
    else
        return bench_usage_error("-o %s: expected all or one of %s", text, bench_op_names());
    return -1;
}

/* A word that is no option: the collective, then files of --input. */
static int parse_word(struct parser *p, char *word)
{
    struct perf_options *o = p->options;
    if (!p->coll_given) {
        p->coll_given = true;
        return bench_parse_coll(word, &o->coll)
                   ? -1
                   : bench_usage_error("%s: expected allreduce, reducescatter, allgather or delta "
                                       "as the first word",
                                       word);
    }
    if (!o->ninputs)
        return bench_usage_error("%s: one collective is enough; files follow --input", word);
    o->inputs[o->ninputs++] = word;
    return -1;
}

static int parse_number(struct perf_options *o, int option, const char *text)
{
    bool good = false;
    const char *expected = "a size such as 64K, 1M or 4096";
    switch (option) {
    case 'b':
        good = bench_parse_bytes(text, &o->min_bytes) && o->min_bytes > 0;
        break;
    case 'e':
        good = bench_parse_bytes(text, &o->max_bytes) && o->max_bytes > 0;
        break;
    case 'i':
        good = bench_parse_bytes(text, &o->step_bytes) && o->step_bytes > 0;
        break;
    case 'f':
        expected = "a factor of at least 1";
        good = parse_factor(text, &o->factor);
        break;
    case 'n':
        expected = "a number from 1 to 1000000";
        good = bench_parse_int(text, 1, 1000000, &o->iters);
        break;
    case 'w':
        expected = "a number from 0 to 1000000";
        good = bench_parse_int(text, 0, 1000000, &o->warmup);
        break;
    case 'c':
        expected = "0 or 1";
        good = parse_flag(text, &o->check);
        break;
    case 'p':
        expected = "0 or 1";
        good = parse_flag(text, &o->parallel_init);
        break;
    case 'r':
        expected = "a rank";
        good = bench_parse_int(text, 0, 0x7ffffffe, &o->root);
        break;
    default:
        return bench_usage_error("option -%c is unknown", option);
    }
    return good ? -1 : bench_usage_error("-%c %s: expected %s", option, text, expected);
}

static int parse_option(struct parser *p, int option, char *text)
{
    struct perf_options *o = p->options;
    switch (option) {
    case 1:
        return parse_word(p, text);
    case 'd':
        return parse_types(p, text);
    case 'o':
        return parse_ops(p, text);
    case OPT_POLICY:
        o->policy = text;
        return -1;
    case OPT_NODES:
        o->nodes = text;
        return -1;
    case OPT_JSON:
        o->json = text;
        return -1;
    case OPT_INPUT:
        o->inputs[o->ninputs++] = text;
        return -1;
    case OPT_IN_PLACE:
        o->in_place = true;
        return -1;
    case OPT_PRINT_PLAN:
        o->print_plan = true;
        return -1;
    case OPT_RANKS:
        return bench_parse_int(text, 1, 4096, &o->ranks)
                   ? -1
                   : bench_usage_error("--ranks %s: expected a number from 1 to 4096", text);
    case OPT_SEED:
        return bench_parse_integer(text, 0, UINT64_MAX, &o->seed)
                   ? -1
                   : bench_usage_error("--seed %s: expected a number", text);
    case OPT_HELP:
        if (bench_speaks())
            fputs(help, stdout);
        return 0;
    case OPT_VERSION:
        return bench_speaks() ? bench_print_version() : 0;
    default:
        return parse_number(o, option, text);
    }
}

/* What no option alone can get wrong. */
static int check_together(struct parser *p)
{
    struct perf_options *o = p->options;
    if (!p->coll_given)
        return bench_usage_error("expected allreduce, reducescatter, allgather or delta");
    o->types[qcclFloat32] |= !p->type_given;
    o->ops[qcclSum] |= !p->op_given;
    if (!o->min_bytes && !o->max_bytes && !o->ninputs)
        o->min_bytes = (size_t)32 << 20;
    o->min_bytes = o->min_bytes ? o->min_bytes : o->max_bytes;
    o->max_bytes = o->max_bytes ? o->max_bytes : o->min_bytes;
    if (o->min_bytes > o->max_bytes)
        return bench_usage_error("-b %zu is above -e %zu", o->min_bytes, o->max_bytes);
    if (o->ninputs && o->ops[qcclProd] && p->op_given)
        return bench_usage_error("-o prod multiplies made-up powers of two; leave --input away");
    for (int t = 0; o->coll == qcclCollAllGatherDelta && t < qcclNumTypes; t++)
        if (o->types[t] && !bench_type_compresses((qcclDataType_t)t))
            return bench_usage_error("delta: replicas are float, half or bfloat16, not %s",
                                     bench_type_name((qcclDataType_t)t));
    return -1;
}

int perf_options_parse(struct perf_options *options, int argc, char **argv)
{
    *options = (struct perf_options){.step_bytes = 1 << 20,
                                     .factor = 1,
                                     .iters = 20,
                                     .warmup = 5,
                                     .check = true,
                                     .parallel_init = true,
                                     .seed = 1};
    options->inputs = calloc((size_t)argc + 1, sizeof *options->inputs);
    if (!options->inputs)
        return bench_error("no memory for the command line");
    struct parser parser = {.options = options};
    int option, status = -1;
    opterr = 0;
    /* "-": words that are no options come in their place, ":": a missing argument is told from an
     * unknown option */
    while (status < 0 && (option = getopt_long(argc, argv, "-:b:e:f:i:n:w:c:o:d:r:p:", long_options,
                                               NULL)) != -1) {
        const char *word = argv[optind - 1];
        if (option == ':')
            status = bench_usage_error("%s needs a value", word);
        else if (option == '?')
            status = bench_usage_error("%s is no option", word);
        else
            status = parse_option(&parser, option, optarg);
    }
    while (status < 0 && optind < argc)
        status = parse_word(&parser, argv[optind++]);
    return status < 0 ? check_together(&parser) : status;
}
