/* qccl-apply: runs one collective on the user's own values, one file a rank, and says what
 * compression did to them.
 *
 * Ranks are threads.  Results go to DIR/rank0.f32 and so on, always as raw little-endian fp32, so
 * that they can be compared with what another program computed from the same files, policy, seed
 * and sequence number. */
#include "bench/apply.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bench/options.h"
#include "bench/report.h"

static const char help[] =
    "Usage: qccl-apply allreduce|reducescatter|allgather [options] --out DIR FILE...\n"
    "\n"
    "Runs one collective on the values of the files, one file a rank, writes\n"
    "DIR/rank0.f32 and so on, and prints what compression did to these values.\n"
    "\n"
    "  FILE...            raw little-endian numbers, or .npy (float32 or float16, C\n"
    "                     order); all of one size\n"
    "  --out DIR          where results go, as raw little-endian fp32; made when it\n"
    "                     is not there\n"
    "  --policy P         what is compressed and how: \"int4; min=0\",\n"
    "                     \"allreduce: int4 gather=int8; min=0\"; default QCCL_POLICY,\n"
    "                     then the library's.  Messages below min= (64 KiB unless\n"
    "                     the policy says otherwise) are not compressed: min=0\n"
    "                     compresses everything\n"
    "  --op sum|avg       the reduction (default sum)\n"
    "  --type TYPE        of raw files: fp32 (default), bf16 or fp16\n"
    "  --nodes 0,0,1      the node of each rank, for intra=; default QCCL_NODES,\n"
    "                     then one node\n"
    "  --seed S           of the random rounding (default 0)\n"
    "  --seq Q            the sequence number of the call (default 0)\n"
    "  --json FILE        also writes what is printed as JSON; \"-\": to standard\n"
    "                     output instead\n"
    "  --help, --version\n"
    "\n"
    "What is printed: raw and wire bytes of all ranks and their ratio; the relative\n"
    "error, |result - fp64 result| / |fp64 result| in the 2-norm (allgather: beside\n"
    "the input); the group with the largest error beside its own largest value;\n"
    "values outside the bound that the codec's steps give; contributions that were\n"
    "clipped, that is, came back smaller by more than a step; groups that travelled\n"
    "with a NaN or an infinity; whether all ranks have the same bits.\n"
    "\n"
    "Exit status: 0; 1 when a value is wrong or clipped, ranks disagree, or a file\n"
    "cannot be used; 2 for a bad command line.\n";

enum {
    OPT_POLICY = 256,
    OPT_OP,
    OPT_TYPE,
    OPT_NODES,
    OPT_SEED,
    OPT_SEQ,
    OPT_OUT,
    OPT_JSON,
    OPT_HELP,
    OPT_VERSION
};

static const struct option long_options[] = {
    {.name = "policy", .has_arg = required_argument, .val = OPT_POLICY},
    {.name = "op", .has_arg = required_argument, .val = OPT_OP},
    {.name = "type", .has_arg = required_argument, .val = OPT_TYPE},
    {.name = "nodes", .has_arg = required_argument, .val = OPT_NODES},
    {.name = "seed", .has_arg = required_argument, .val = OPT_SEED},
    {.name = "seq", .has_arg = required_argument, .val = OPT_SEQ},
    {.name = "out", .has_arg = required_argument, .val = OPT_OUT},
    {.name = "json", .has_arg = required_argument, .val = OPT_JSON},
    {.name = "help", .has_arg = no_argument, .val = OPT_HELP},
    {.name = "version", .has_arg = no_argument, .val = OPT_VERSION},
    {.name = NULL},
};

/* ------------------------------------------------------------------ command line */

static int parse_option(struct apply_options *o, int option, const char *text)
{
    switch (option) {
    case OPT_POLICY:
        o->policy = text;
        return -1;
    case OPT_NODES:
        o->nodes = text;
        return -1;
    case OPT_OUT:
        o->out = text;
        return -1;
    case OPT_JSON:
        o->json = text;
        return -1;
    case OPT_OP:
        return bench_parse_op(text, &o->op) && (o->op == qcclSum || o->op == qcclAvg)
                   ? -1
                   : bench_usage_error("--op %s: expected sum or avg", text);
    case OPT_TYPE:
        o->type_given = true;
        return bench_parse_type(text, &o->type) && bench_type_compresses(o->type)
                   ? -1
                   : bench_usage_error("--type %s: expected fp32, bf16 or fp16", text);
    case OPT_SEED:
        return bench_parse_integer(text, 0, UINT64_MAX, &o->seed)
                   ? -1
                   : bench_usage_error("--seed %s: expected a number", text);
    case OPT_SEQ:
        return bench_parse_integer(text, 0, UINT32_MAX, &o->sequence)
                   ? -1
                   : bench_usage_error("--seq %s: expected a number below 2^32", text);
    case OPT_VERSION:
        return bench_print_version();
    default:
        fputs(help, stdout);
        return 0;
    }
}

static int parse_words(struct apply_options *o, char **words, int count)
{
    if (count < 1)
        return bench_usage_error("expected allreduce, reducescatter or allgather");
    if (!bench_parse_coll(words[0], &o->coll) || o->coll == qcclCollAllGatherDelta)
        return bench_usage_error("%s: expected allreduce, reducescatter or allgather", words[0]);
    if (count < 2)
        return bench_usage_error("expected files, one a rank");
    if (!o->out)
        return bench_usage_error("expected --out DIR");
    if (bench_launched())
        return bench_usage_error("ranks are threads here: start it without mpirun");
    o->files = words + 1;
    o->nfiles = count - 1;
    return -1;
}

static int parse(struct apply_options *o, int argc, char **argv)
{
    *o = (struct apply_options){.op = qcclSum, .type = qcclFloat32};
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
    return status < 0 ? parse_words(o, argv + optind, argc - optind) : status;
}

/* ------------------------------------------------------------------ values in and out */

static int load_files(struct apply *a)
{
    const struct apply_options *o = a->options;
    for (int r = 0; r < a->nranks; r++) {
        int status = bench_file_load(o->files[r], o->type, &a->files[r]);
        if (status)
            return status;
        const struct bench_file *file = &a->files[r], *model = &a->files[0];
        if (o->type_given && file->type != o->type)
            return bench_error("%s: its numbers are %s, --type says %s", o->files[r],
                               bench_type_name(file->type), bench_type_name(o->type));
        if (file->type != model->type || file->count != model->count)
            return bench_error("%s has %zu values of %s, %s has %zu of %s", o->files[0],
                               model->count, bench_type_name(model->type), o->files[r], file->count,
                               bench_type_name(file->type));
    }
    a->type = a->files[0].type;
    a->count = a->files[0].count;
    a->whole = a->result_count = a->count;
    if (o->coll == qcclCollReduceScatter) {
        if (a->count % (size_t)a->nranks)
            return bench_error("reducescatter: %zu values are no multiple of %d ranks", a->count,
                               a->nranks);
        a->result_count = a->count / (size_t)a->nranks;
    }
    if (o->coll == qcclCollAllGather)
        a->whole = a->result_count = a->count * (size_t)a->nranks;
    return 0;
}

void apply_read(const void *context, int rank, size_t first, size_t count, float *out)
{
    const struct apply *a = context;
    if (a->options->coll == qcclCollAllGather)
        first -= (size_t)rank * a->count;
    bench_to_float(a->files[rank].values, a->type, first, count, out);
}

static int write_result(const struct apply *a, int rank)
{
    enum { BLOCK = 4096 };
    float block[BLOCK];
    char path[4096];
    int length = snprintf(path, sizeof path, "%s/rank%d.f32", a->options->out, rank);
    FILE *file = length < (int)sizeof path ? fopen(path, "wb") : NULL;
    if (!file)
        return bench_error("%s: %s", path, strerror(errno));
    bool good = true;
    for (size_t i = 0; i < a->result_count && good; i += BLOCK) {
        size_t run = a->result_count - i < BLOCK ? a->result_count - i : BLOCK;
        bench_to_float(a->results[rank], a->type, i, run, block);
        good = fwrite(block, sizeof *block, run, file) == run;
    }
    good = fclose(file) == 0 && good;
    return good ? 0 : bench_error("%s: %s", path, strerror(errno));
}

static int write_results(const struct apply *a)
{
    if (mkdir(a->options->out, 0777) && errno != EEXIST)
        return bench_error("%s: %s", a->options->out, strerror(errno));
    int status = 0;
    for (int r = 0; r < a->nranks && !status; r++)
        status = write_result(a, r);
    return status;
}

/* ------------------------------------------------------------------ the collective */

static qcclResult_t call(struct apply *a, int rank)
{
    const void *values = a->files[rank].values;
    qcclComm_t comm = a->comms[rank];
    switch (a->options->coll) {
    case qcclCollAllReduce:
        return qcclAllReduce(values, a->results[rank], a->count, a->type, a->options->op, comm,
                             NULL);
    case qcclCollReduceScatter:
        return qcclReduceScatter(values, a->results[rank], a->result_count, a->type, a->options->op,
                                 comm, NULL);
    default:
        return qcclAllGather(values, a->results[rank], a->count, a->type, comm, NULL);
    }
}

static void run_rank(void *context, int rank)
{
    struct apply *a = context;
    qcclResult_t status = qcclCommSetSeed(a->comms[rank], a->options->seed);
    if (!status)
        status = qcclCommSetSequence(a->comms[rank], (uint32_t)a->options->sequence);
    if (!status)
        status = call(a, rank);
    if (status)
        bench_world_fail(&a->world, rank, "%s", qcclGetLastError());
}

static int open_comms(struct apply *a)
{
    const struct apply_options *o = a->options;
    const char *nodes = o->nodes ? o->nodes : getenv("QCCL_NODES");
    int *list = calloc((size_t)a->nranks, sizeof *list);
    a->comms = calloc((size_t)a->nranks, sizeof *a->comms);
    a->nodes = nodes && *nodes ? list : NULL;
    if (!list || !a->comms || !a->nodes)
        free(list);
    if (!list || !a->comms)
        return bench_error("no memory for %d ranks", a->nranks);
    if (a->nodes && bench_parse_nodes(nodes, a->nodes, a->nranks) != a->nranks)
        return bench_usage_error("--nodes %s: expected %d numbers, as in 0,0,1,1", nodes,
                                 a->nranks);
    qcclConfig_t config = QCCL_CONFIG_INITIALIZER;
    config.policy = o->policy;
    config.nodes = a->nodes;
    qcclResult_t status = bench_world_comms(&a->world, a->comms, &config);
    return !status                         ? 0
           : status == qcclInvalidArgument ? bench_usage_error("%s", qcclGetLastError())
                                           : bench_error("%s", qcclGetLastError());
}

static int make_results(struct apply *a)
{
    size_t bytes = a->result_count * qcclTypeBytes(a->type);
    a->results = calloc((size_t)a->nranks, sizeof *a->results);
    for (int r = 0; a->results && r < a->nranks; r++) {
        a->results[r] = malloc(bytes + 1);
        if (!a->results[r])
            return bench_error("no memory for results of %zu bytes", bytes);
    }
    return a->results ? 0 : bench_error("no memory for %d ranks", a->nranks);
}

static int read_stats(struct apply *a)
{
    for (int r = 0; r < a->nranks; r++) {
        qcclStats_t stats = {.size = sizeof stats};
        if (qcclCommGetStats(a->comms[r], &stats))
            return bench_error("%s", qcclGetLastError());
        a->raw_bytes += stats.raw_bytes;
        a->wire_bytes += stats.wire_bytes;
        a->compressed = stats.calls > 0;
    }
    a->scheme = (struct bench_scheme){.coll = a->options->coll,
                                      .type = a->type,
                                      .op = a->options->op,
                                      .nranks = a->nranks,
                                      .nodes = a->nodes};
    if (!a->compressed)
        bench_scheme_plain(&a->scheme);
    else if (bench_scheme_read(&a->scheme, a->comms[0]))
        return bench_error("the policy in force is not understood");
    return 0;
}

static void close_all(struct apply *a)
{
    for (int r = 0; r < a->nranks; r++) {
        if (a->comms && a->comms[r])
            qcclCommDestroy(a->comms[r]);
        if (a->results)
            free(a->results[r]);
        if (a->files)
            bench_file_free(&a->files[r]);
    }
    free(a->comms);
    free(a->results);
    free(a->files);
    free(a->nodes);
    bench_world_close(&a->world);
}

static int run(const struct apply_options *options)
{
    struct apply a = {.options = options, .nranks = options->nfiles};
    a.files = calloc((size_t)a.nranks, sizeof *a.files);
    int status = a.files ? load_files(&a) : bench_error("no memory for %d files", a.nranks);
    if (!status)
        status = bench_world_open(&a.world, a.nranks, a.nranks);
    if (!status)
        status = open_comms(&a);
    if (!status)
        status = make_results(&a);
    if (!status)
        status = bench_world_run(&a.world, run_rank, &a);
    if (!status)
        status = read_stats(&a);
    if (!status)
        status = write_results(&a);
    if (!status)
        status = apply_report(&a);
    close_all(&a);
    return status;
}

int main(int argc, char **argv)
{
    struct apply_options options;
    bench_program("qccl-apply");
    int status = parse(&options, argc, argv);
    return status < 0 ? run(&options) : status;
}
