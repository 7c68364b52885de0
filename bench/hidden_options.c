/* The command line of qccl-hidden; see hidden.h. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/hidden.h"
#include "bench/options.h"
#include "bench/report.h"

static const char help[] =
    "Usage: qccl-hidden [options]\n"
    "       mpirun -n N qccl-hidden [options]\n"
    "\n"
    "Does DUO's slow reduction hide under computing?  A step computes and reduces\n"
    "its gradients bucket by bucket; blocks of steps without and with the slow\n"
    "reduction take turns, and each pair gives a ratio of step times.\n"
    "\n"
    "  --ranks N      threads (default 2); under mpirun its processes\n"
    "  --bytes SIZE   fp32 gradients of a step (default 8M)\n"
    "  --bucket SIZE  of them that are reduced together (default 1M)\n"
    "  --compute MS   milliseconds of computing a step (default 200)\n"
    "  --device       computing sleeps, as when an accelerator works; else it is\n"
    "                 arithmetic on each rank's core\n"
    "  --fast CODEC   of the fast reduction, or local (default int4)\n"
    "  --slow CODEC   fp32, bf16, \"residual int8\" or \"residual int4\" (default fp32)\n"
    "  --pairs N      pairs of blocks, of which the medians count (default 15)\n"
    "  --json FILE    also writes a JSON object; \"-\": to standard output, without\n"
    "                 the table\n"
    "  --help, --version\n"
    "\n"
    "Columns: bytes of gradients; milliseconds of a step of the slowest rank without\n"
    "and with slow reductions, and the median ratio of a pair; how long the slow\n"
    "reductions of a step took, and how long commits waited for them; cores kept\n"
    "busy by threads that do not compute, all ranks together, without and with slow\n"
    "reductions.\n"
    "\n"
    "Exit status: 0; 1 when a call fails; 2 for a bad command line.\n";

enum { RANKS = 1, BYTES, BUCKET, COMPUTE, DEVICE, FAST, SLOW, PAIRS, JSON, HELP, VERSION };

static const struct option long_options[] = {
    {.name = "ranks", .has_arg = required_argument, .val = RANKS},
    {.name = "bytes", .has_arg = required_argument, .val = BYTES},
    {.name = "bucket", .has_arg = required_argument, .val = BUCKET},
    {.name = "compute", .has_arg = required_argument, .val = COMPUTE},
    {.name = "device", .has_arg = no_argument, .val = DEVICE},
    {.name = "fast", .has_arg = required_argument, .val = FAST},
    {.name = "slow", .has_arg = required_argument, .val = SLOW},
    {.name = "pairs", .has_arg = required_argument, .val = PAIRS},
    {.name = "json", .has_arg = required_argument, .val = JSON},
    {.name = "help", .has_arg = no_argument, .val = HELP},
    {.name = "version", .has_arg = no_argument, .val = VERSION},
    {.name = NULL},
};

static bool parse_ms(const char *text, double *ms)
{
    char *end;
    *ms = strtod(text, &end);
    return end != text && !*end && *ms >= 0 && *ms <= 60000;
}

/* A value of an option; -1 when it is one. */
static int parse_value(struct hidden_options *o, int option, const char *text)
{
    switch (option) {
    case RANKS:
        return bench_parse_int(text, 1, 4096, &o->ranks)
                   ? -1
                   : bench_usage_error("--ranks %s: expected a number from 1 to 4096", text);
    case BYTES:
        return bench_parse_bytes(text, &o->bytes)
                   ? -1
                   : bench_usage_error("--bytes %s: expected a size such as 8M", text);
    case BUCKET:
        return bench_parse_bytes(text, &o->bucket_bytes)
                   ? -1
                   : bench_usage_error("--bucket %s: expected a size such as 1M", text);
    case COMPUTE:
        return parse_ms(text, &o->compute_ms)
                   ? -1
                   : bench_usage_error("--compute %s: expected 0 to 60000 milliseconds", text);
    case PAIRS:
        return bench_parse_int(text, 1, HIDDEN_PAIRS_MAX, &o->pairs)
                   ? -1
                   : bench_usage_error("--pairs %s: expected a number from 1 to %d", text,
                                       HIDDEN_PAIRS_MAX);
    case FAST:
        o->fast = text;
        return -1;
    case SLOW:
        o->slow = text;
        return -1;
    default:
        o->json = text;
        return -1;
    }
}

int hidden_options_parse(struct hidden_options *options, int argc, char **argv)
{
    *options = (struct hidden_options){.bytes = 8 << 20,
                                       .bucket_bytes = 1 << 20,
                                       .compute_ms = 200,
                                       .fast = "int4",
                                       .slow = "fp32",
                                       .pairs = 15};
    int option, status = -1;
    opterr = 0;
    while (status < 0 && (option = getopt_long(argc, argv, ":", long_options, NULL)) != -1) {
        if (option == HELP) {
            if (bench_speaks())
                fputs(help, stdout);
            return 0;
        }
        if (option == VERSION)
            return bench_print_version();
        if (option == ':' || option == '?')
            return bench_usage_error("%s: %s; see --help", argv[optind - 1],
                                     option == ':' ? "a value is missing" : "no such option");
        if (option == DEVICE)
            options->device = true;
        else
            status = parse_value(options, option, optarg);
    }
    if (status < 0 && optind < argc)
        return bench_usage_error("%s: no word is expected; see --help", argv[optind]);
    return status;
}
