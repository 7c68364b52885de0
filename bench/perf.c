/* qccl-perf: the nccl-tests of this library.
 *
 * Times a compressed collective and, in turn with it, the uncompressed one of the same library and
 * transport; counts what travelled; and checks every value against a bound derived from the codec's
 * steps.  Ranks are threads, or under mpirun its processes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/options.h"
#include "bench/perf.h"
#include "bench/report.h"

static const char plain_policy[] =
    "allreduce: none; reducescatter: none; allgather: none; delta: none";

/* The nodes in force, for the bound: --nodes, else the environment's, else what the launcher's
 * machines say. */
static int find_nodes(struct perf *perf, int *nodes)
{
    const char *text = perf->options->nodes ? perf->options->nodes : getenv("QCCL_NODES");
    perf->nodes = perf->world.nodes;
    if (!text || !*text)
        return 0;
    int n = perf->world.nranks;
    if (bench_parse_nodes(text, nodes, n) != n)
        return bench_usage_error("--nodes %s: expected %d numbers, as in 0,0,1,1", text, n);
    perf->nodes = nodes;
    return 0;
}

static int open_comms(struct perf *perf)
{
    const struct perf_options *o = perf->options;
    size_t local = (size_t)perf->world.local;
    qcclConfig_t config = QCCL_CONFIG_INITIALIZER;
    perf->comms = calloc(local, sizeof *perf->comms);
    perf->plain_comms = calloc(local, sizeof *perf->plain_comms);
    if (!perf->comms || !perf->plain_comms)
        return bench_error("no memory for %zu ranks", local);
    config.policy = o->policy;
    config.seed = o->seed;
    config.nodes = perf->nodes;
    qcclResult_t status = bench_world_comms(&perf->world, perf->comms, &config);
    if (status == qcclInvalidArgument)
        return bench_usage_error("%s", qcclGetLastError());
    config.policy = plain_policy;
    if (!status)
        status = bench_world_comms(&perf->world, perf->plain_comms, &config);
    return status ? bench_error("%s", qcclGetLastError()) : 0;
}

static void close_comms(struct perf *perf)
{
    for (int i = 0; i < perf->world.local; i++) {
        if (perf->comms && perf->comms[i])
            qcclCommDestroy(perf->comms[i]);
        if (perf->plain_comms && perf->plain_comms[i])
            qcclCommDestroy(perf->plain_comms[i]);
    }
    free(perf->comms);
    free(perf->plain_comms);
}

static int measure(struct perf *perf)
{
    const struct perf_options *o = perf->options;
    struct perf_output output = {
        .options = o, .nranks = perf->world.nranks, .transport = perf->world.backend->name};
    output.table = !o->json || strcmp(o->json, "-") != 0;
    bool speaks = perf->world.first == 0;
    if (!bench_json_open(&output.json, speaks ? o->json : NULL))
        return bench_error("%s: cannot be written", o->json);
    char policy[QCCL_POLICY_MAX];
    if (speaks && qcclCommGetPolicy(perf->comms[0], policy, sizeof policy) == qcclSuccess)
        perf_output_head(&output, policy);
    perf->output = &output;
    int status = bench_world_run(&perf->world, perf_rank, perf);
    bench_progress_end();
    if (!bench_json_close(&output.json))
        status = bench_error("%s: cannot be written", o->json);
    return status ? status : output.any_wrong ? EXIT_WRONG : 0;
}

static int run(const struct perf_options *options)
{
    struct perf perf = {.options = options};
    int status = bench_world_open(&perf.world, options->ranks, 4);
    if (status)
        return status;
    int *nodes = calloc((size_t)perf.world.nranks, sizeof *nodes);
    status = nodes ? find_nodes(&perf, nodes) : bench_error("no memory for the ranks' nodes");
    if (!status && options->root >= perf.world.nranks)
        status =
            bench_usage_error("-r %d, but there are %d ranks", options->root, perf.world.nranks);
    if (!status)
        status = bench_inputs_open(&perf.inputs, perf.world.nranks, options->seed, options->inputs,
                                   options->ninputs);
    status = bench_world_agree(&perf.world, status);
    if (!status)
        status = open_comms(&perf);
    if (!status)
        status = measure(&perf);
    close_comms(&perf);
    bench_inputs_free(&perf.inputs);
    free(nodes);
    bench_world_close(&perf.world);
    return status;
}

int main(int argc, char **argv)
{
    struct perf_options options;
    bench_program("qccl-perf");
    int status = perf_options_parse(&options, argc, argv);
    if (status < 0)
        status = run(&options);
    free(options.inputs);
    return status;
}
