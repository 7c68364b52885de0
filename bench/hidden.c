/* qccl-hidden: does DUO's slow reduction hide under computing?
 *
 * A step computes for a while, bucket by bucket, and reduces each bucket's gradient as it is
 * finished: fast only, or fast and slow (qcclDuoReduce).  Blocks of steps of both kinds take turns,
 * so what else the machine does hits both; a pair of blocks gives a ratio of step times.  Computing
 * is arithmetic on this rank's core, or with --device a sleep, as when an accelerator works. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "bench/hidden.h"
#include "bench/json.h"
#include "bench/report.h"
#include "bench/samples.h"

enum { BLOCK_STEPS = 4, WORK_FLOATS = 8192 };

/* One rank's side. */
struct side {
    struct hidden *run;
    int rank;
    qcclComm_t fast, slow;
    qcclStream_t stream;
    qcclDuo_t duo;
    float *gradient, *shard;
    float work[WORK_FLOATS];
};

static void require(struct side *s, qcclResult_t result)
{
    if (result != qcclSuccess)
        bench_world_fail(&s->run->world, s->rank, "%s", qcclGetLastError());
}

/* ------------------------------------------------------------------ computing */

static void work(struct side *s, uint64_t passes)
{
    for (uint64_t pass = 0; pass < passes; pass++)
        for (int i = 0; i < WORK_FLOATS; i++)
            s->work[i] = s->work[i] * 0.999f + 0.5f;
}

/* Passes that take so many seconds of a core; the same on all ranks. */
static uint64_t calibrate(struct side *s, double seconds)
{
    enum { TRIAL = 20000 };
    double best = 1e9;
    bench_world_barrier(&s->run->world); /* ranks may share a core: all compute at once */
    for (int i = 0; i < 5; i++) {
        double begin = bench_cpu_now();
        work(s, TRIAL);
        double took = bench_cpu_now() - begin;
        best = took < best ? took : best;
    }
    bench_world_combine(&s->run->world, s->rank, &best, 1, BENCH_MAX);
    return (uint64_t)(seconds / best * TRIAL) + 1;
}

static void compute(struct side *s, uint64_t passes, double seconds)
{
    if (!s->run->options.device) {
        work(s, passes);
        return;
    }
    struct timespec t = {.tv_sec = (time_t)seconds};
    t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
    nanosleep(&t, NULL);
}

/* ------------------------------------------------------------------ steps */

static void start_bucket(struct side *s, int b, bool slow)
{
    struct hidden *h = s->run;
    const float *gradient = s->gradient + (size_t)b * h->bucket_elems;
    size_t shard_elems = h->bucket_elems / (size_t)h->world.nranks;
    if (slow)
        require(s, qcclDuoReduce(s->duo, b, gradient, s->stream));
    else
        require(s, qcclReduceScatter(gradient, s->shard + (size_t)b * shard_elems, shard_elems,
                                     qcclFloat32, qcclAvg, s->fast, s->stream));
}

static void commit_all(struct side *s)
{
    const float *exact;
    for (int b = 0; b < s->run->nbuckets; b++)
        require(s, qcclDuoCommit(s->duo, b, &exact));
}

/* One step; before: the step before was one with slow reductions. */
static double run_step(struct side *s, uint64_t passes, bool slow, bool before)
{
    struct hidden *h = s->run;
    const float *shard;
    double begin = bench_now();
    for (int b = 0; b < h->nbuckets; b++) {
        compute(s, passes, h->options.compute_ms / 1e3 / h->nbuckets);
        start_bucket(s, b, slow);
    }
    if (slow && before)
        commit_all(s);
    for (int b = 0; slow && b < h->nbuckets; b++)
        require(s, qcclDuoFast(s->duo, b, &shard));
    if (!slow)
        require(s, qcclStreamSynchronize(s->stream));
    return bench_now() - begin;
}

static double process_cpu(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* What this rank adds to the time that threads other than the computing ones ran. */
static double other_cpu(const struct side *s)
{
    return (s->rank == s->run->world.first ? process_cpu() : 0) - bench_cpu_now();
}

/* A block of one kind; fills times[BLOCK_STEPS].  The first step fills the pipe and does not count.
 */
static void run_block(struct side *s, uint64_t passes, bool slow, double *times, double *busy)
{
    bench_world_barrier(&s->run->world);
    run_step(s, passes, slow, false);
    double cpu = other_cpu(s), begin = bench_now();
    for (int i = 0; i < BLOCK_STEPS; i++)
        times[i] = run_step(s, passes, slow, true);
    *busy = (other_cpu(s) - cpu) / (bench_now() - begin);
    if (slow)
        commit_all(s);
}

static void measure(struct side *s)
{
    struct hidden *h = s->run;
    uint64_t passes = calibrate(s, h->options.compute_ms / 1e3 / h->nbuckets);
    double times[2][BLOCK_STEPS], busy[2];
    for (int pair = -1; pair < h->options.pairs; pair++) { /* one to warm up */
        for (int slow = 0; slow < 2; slow++)
            run_block(s, passes, slow, times[slow], &busy[slow]);
        bench_world_combine(&h->world, s->rank, times[0], 2 * BLOCK_STEPS, BENCH_MAX);
        bench_world_combine(&h->world, s->rank, busy, 2, BENCH_SUM);
        if (s->rank != 0 || pair < 0)
            continue;
        h->off[pair] = bench_median(times[0], BLOCK_STEPS);
        h->on[pair] = bench_median(times[1], BLOCK_STEPS);
        h->ratio[pair] = h->on[pair] / h->off[pair];
        h->busy_off[pair] = busy[0];
        h->busy_on[pair] = busy[1];
        bench_progress("pair %d of %d: %.2f and %.2f ms", pair + 1, h->options.pairs,
                       h->off[pair] * 1e3, h->on[pair] * 1e3);
    }
}

static void run_rank(void *context, int rank)
{
    struct hidden *h = context;
    int local = rank - h->world.first;
    size_t elems = h->bucket_elems * (size_t)h->nbuckets;
    struct side *s = calloc(1, sizeof *s);
    size_t *counts = malloc((size_t)h->nbuckets * sizeof *counts);
    if (!s || !counts)
        bench_world_fail(&h->world, rank, "no memory for a rank");
    *s = (struct side){.run = h, .rank = rank, .fast = h->fast[local], .slow = h->slow[local]};
    s->gradient = malloc(elems * sizeof *s->gradient);
    s->shard = malloc(elems / (size_t)h->world.nranks * sizeof *s->shard);
    if (!s->gradient || !s->shard)
        bench_world_fail(&h->world, rank, "no memory for %zu gradients", elems);
    for (size_t i = 0; i < elems; i++)
        s->gradient[i] = (float)((i * 2654435761u + (unsigned)rank) % 1000) - 499.5f;
    for (int b = 0; b < h->nbuckets; b++)
        counts[b] = h->bucket_elems;
    const qcclDuoConfig_t config = {.size = sizeof config,
                                    .counts = counts,
                                    .nbuckets = h->nbuckets,
                                    .fast = h->options.fast,
                                    .slow = h->options.slow};
    require(s, qcclStreamCreate(&s->stream, 0));
    require(s, qcclDuoCreate(&s->duo, s->fast, s->slow, &config));
    measure(s);
    require(s, qcclDuoDestroy(s->duo));
    require(s, qcclStreamDestroy(s->stream));
    free(s->gradient);
    free(s->shard);
    free(s);
    free(counts);
}

/* ------------------------------------------------------------------ the run */

static int open_comms(struct hidden *h)
{
    const char *names[] = {"reducescatter: %s; min=0", "none"};
    qcclComm_t **comms[] = {&h->fast, &h->slow};
    for (int i = 0; i < 2; i++) {
        char policy[QCCL_POLICY_MAX];
        qcclConfig_t config = QCCL_CONFIG_INITIALIZER;
        bool local = i == 0 && strcmp(h->options.fast, "local") == 0;
        snprintf(policy, sizeof policy, local ? names[1] : names[i], h->options.fast);
        config.policy = policy;
        config.seed = (uint64_t)i + 1;
        *comms[i] = calloc((size_t)h->world.local, sizeof **comms[i]);
        if (!*comms[i])
            return bench_error("no memory for %d ranks", h->world.local);
        if (bench_world_comms(&h->world, *comms[i], &config))
            return bench_error("%s", qcclGetLastError());
    }
    return 0;
}

/* Means over the run of rank 0's slow reductions, in milliseconds a step. */
static void read_slow(struct hidden *h, double *slow_ms, double *exposed_ms)
{
    qcclStats_t stats = {.size = sizeof stats};
    qcclCommGetStats(h->slow[0], &stats);
    double steps = (double)stats.slow_calls / h->nbuckets;
    *slow_ms = (double)stats.slow_ns * 1e-6 / steps;
    *exposed_ms = (double)stats.slow_exposed_ns * 1e-6 / steps;
}

static int report(struct hidden *h)
{
    const struct hidden_options *o = &h->options;
    size_t pairs = (size_t)o->pairs;
    double slow_ms, exposed_ms, off = bench_median(h->off, pairs) * 1e3;
    double on = bench_median(h->on, pairs) * 1e3, ratio = bench_median(h->ratio, pairs);
    double busy_off = bench_median(h->busy_off, pairs), busy_on = bench_median(h->busy_on, pairs);
    struct json json;
    read_slow(h, &slow_ms, &exposed_ms);
    if (!o->json || strcmp(o->json, "-") != 0) {
        puts("#ranks\tbytes\tfast\tslow\tcompute_ms\toff_ms\ton_ms\tratio\tslow_ms\texposed_ms\t"
             "cores_off\tcores_on");
        printf("%d\t%zu\t%s\t%s\t%g\t%.2f\t%.2f\t%.3f\t%.2f\t%.3f\t%.2f\t%.2f\n", h->world.nranks,
               o->bytes, o->fast, o->slow, o->compute_ms, off, on, ratio, slow_ms, exposed_ms,
               busy_off, busy_on);
    }
    if (!bench_json_open(&json, o->json))
        return bench_error("%s: cannot be written", o->json);
    bench_json_object(&json);
    bench_json_integer(&json, "ranks", (uint64_t)h->world.nranks);
    bench_json_integer(&json, "bytes", o->bytes);
    bench_json_string(&json, "fast", o->fast);
    bench_json_string(&json, "slow", o->slow);
    bench_json_number(&json, "compute_ms", o->compute_ms);
    bench_json_number(&json, "off_ms", off);
    bench_json_number(&json, "on_ms", on);
    bench_json_number(&json, "ratio", ratio);
    bench_json_number(&json, "slow_ms", slow_ms);
    bench_json_number(&json, "exposed_ms", exposed_ms);
    bench_json_number(&json, "cores_off", busy_off);
    bench_json_number(&json, "cores_on", busy_on);
    bench_json_object_end(&json);
    return bench_json_close(&json) ? 0 : bench_error("%s: cannot be written", o->json);
}

/* Whole buckets of whole shards. */
static int divide(struct hidden *h)
{
    size_t n = (size_t)h->world.nranks, unit = 128 * n * sizeof(float);
    size_t bucket = h->options.bucket_bytes / unit * unit;
    if (!bucket || h->options.bytes < bucket)
        return bench_usage_error("--bytes %zu and --bucket %zu: a bucket has at least %zu bytes",
                                 h->options.bytes, h->options.bucket_bytes, unit);
    h->bucket_elems = bucket / sizeof(float);
    h->nbuckets = (int)(h->options.bytes / bucket);
    return 0;
}

int main(int argc, char **argv)
{
    static struct hidden run = {.world = {.threads = true}};
    bench_program("qccl-hidden");
    int status = hidden_options_parse(&run.options, argc, argv);
    if (status >= 0)
        return status;
    status = bench_world_open(&run.world, run.options.ranks, 2);
    if (status)
        return status;
    status = divide(&run);
    if (!status)
        status = open_comms(&run);
    if (!bench_world_agree(&run.world, status)) {
        status = bench_world_run(&run.world, run_rank, &run);
        bench_progress_end();
        if (!status && run.world.first == 0)
            status = report(&run);
    }
    for (int i = 0; i < run.world.local; i++) {
        if (run.fast)
            qcclCommDestroy(run.fast[i]);
        if (run.slow)
            qcclCommDestroy(run.slow[i]);
    }
    free(run.fast);
    free(run.slow);
    bench_world_close(&run.world);
    return status;
}
