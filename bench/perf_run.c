/* The measurement of qccl-perf, as each rank runs it; see perf.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/options.h"
#include "bench/perf.h"
#include "bench/report.h"
#include "bench/samples.h"

/* A rank's side of one case.  An in-place call, and a delta, change their own input: `restored`
 * bytes of `work` are put back from `pristine` before each call. */
struct side {
    struct perf *perf;
    int rank;
    qcclComm_t comm, plain;
    struct perf_case of;
    const void *send;
    void *recv;
    const void *result; /* where the result is checked: element `begin` of the whole */
    size_t begin;
    void *buffers[3]; /* owned */
    void *work;
    const void *pristine;
    size_t restored;
};

/* ------------------------------------------------------------------ inputs */

/* Differences that a delta sends are small beside the replica, and of other places of the pool. */
static const float delta_scale = 0x1p-7f;
enum { DELTA_SHIFT = 7919 };

static void round_to_type(float *values, size_t count, qcclDataType_t type)
{
    if (type != qcclFloat32) {
        bench_from_float(values, type, count, values); /* narrower: never overtakes what is read */
        for (size_t i = count; i-- > 0;)
            bench_to_float(values, type, i, 1, values + i);
    }
}

static void read_input(const void *context, int rank, size_t first, size_t count, float *out)
{
    const struct side *s = context;
    bench_inputs_read(&s->perf->inputs, rank, first, count, out);
    round_to_type(out, count, s->of.type);
}

static void read_replica(const void *context, int rank, size_t first, size_t count, float *out)
{
    (void)rank;
    read_input(context, 0, first, count, out);
}

static void read_master(const struct side *s, int rank, size_t first, size_t count, float *out)
{
    enum { BLOCK = 1024 };
    float replica[BLOCK];
    bench_inputs_read(&s->perf->inputs, rank, first + DELTA_SHIFT, count, out);
    for (size_t i = 0; i < count; i += BLOCK) {
        size_t run = count - i < BLOCK ? count - i : BLOCK;
        read_input(s, 0, first + i, run, replica);
        for (size_t j = 0; j < run; j++)
            out[i + j] = replica[j] + delta_scale * out[i + j];
    }
}

static void read_difference(const void *context, int rank, size_t first, size_t count, float *out)
{
    enum { BLOCK = 1024 };
    float replica[BLOCK];
    read_master(context, rank, first, count, out);
    for (size_t i = 0; i < count; i += BLOCK) {
        size_t run = count - i < BLOCK ? count - i : BLOCK;
        read_input(context, 0, first + i, run, replica);
        for (size_t j = 0; j < run; j++)
            out[i + j] -= replica[j];
    }
}

/* ------------------------------------------------------------------ buffers */

static void *take_buffer(struct side *s, int index, size_t bytes)
{
    void *buffer = aligned_alloc(64, (bytes + 64) / 64 * 64);
    if (!buffer)
        bench_world_fail(&s->perf->world, s->rank, "no memory for a buffer of %zu bytes", bytes);
    memset(buffer, 0, bytes);
    s->buffers[index] = buffer;
    return buffer;
}

/* Makes `work` be refilled before each call. */
static void keep_pristine(struct side *s, void *work, size_t bytes)
{
    void *copy = take_buffer(s, 2, bytes);
    memcpy(copy, work, bytes);
    s->work = work;
    s->pristine = copy;
    s->restored = bytes;
}

static void make_reduce_buffers(struct side *s)
{
    const struct perf_case *c = &s->of;
    size_t size = qcclTypeBytes(c->type), begin = 0;
    char *send = take_buffer(s, 0, c->bytes);
    bench_inputs_fill(&s->perf->inputs, s->rank, 0, c->whole, c->type, c->op, send);
    if (s->perf->options->coll == qcclCollReduceScatter)
        begin = (size_t)s->rank * c->count;
    if (s->perf->options->in_place)
        keep_pristine(s, send, c->bytes);
    s->send = send;
    s->recv = s->perf->options->in_place ? send + begin * size : take_buffer(s, 1, c->count * size);
    s->begin = begin;
    s->result = s->recv;
}

static void make_gather_buffers(struct side *s)
{
    const struct perf_case *c = &s->of;
    size_t size = qcclTypeBytes(c->type), begin = (size_t)s->rank * c->count;
    char *recv = take_buffer(s, 0, c->bytes);
    bool in_place = s->perf->options->in_place;
    void *send = in_place ? recv + begin * size : take_buffer(s, 1, c->count * size);
    bench_inputs_fill(&s->perf->inputs, s->rank, begin, c->count, c->type, qcclSum, send);
    if (in_place)
        keep_pristine(s, recv, c->bytes);
    s->send = send;
    s->recv = recv;
    s->result = recv;
}

static void make_delta_buffers(struct side *s)
{
    const struct perf_case *c = &s->of;
    void *replica = take_buffer(s, 0, c->bytes);
    float *master = take_buffer(s, 1, c->count * sizeof *master);
    bench_inputs_fill(&s->perf->inputs, 0, 0, c->whole, c->type, qcclSum, replica);
    read_master(s, s->rank, (size_t)s->rank * c->count, c->count, master);
    keep_pristine(s, replica, c->bytes);
    s->send = master;
    s->recv = replica;
    s->result = replica;
}

static void make_buffers(struct side *s)
{
    switch (s->perf->options->coll) {
    case qcclCollAllReduce:
    case qcclCollReduceScatter:
        make_reduce_buffers(s);
        break;
    case qcclCollAllGather:
        make_gather_buffers(s);
        break;
    default:
        make_delta_buffers(s);
    }
}

static void make_buffers_in_turn(struct side *s)
{
    for (int r = 0; r < s->perf->world.nranks; r++) {
        if (r == s->rank)
            make_buffers(s);
        bench_world_barrier(&s->perf->world);
    }
}

/* ------------------------------------------------------------------ calls */

/* Every call of the bench: refill, meet, call.  Returns the seconds of the call. */
static double call(struct side *s, qcclComm_t comm)
{
    const struct perf_case *c = &s->of;
    qcclResult_t status;
    if (s->restored)
        memcpy(s->work, s->pristine, s->restored);
    bench_world_barrier(&s->perf->world);
    double start = bench_now();
    switch (s->perf->options->coll) {
    case qcclCollAllReduce:
        status = qcclAllReduce(s->send, s->recv, c->count, c->type, c->op, comm, NULL);
        break;
    case qcclCollReduceScatter:
        status = qcclReduceScatter(s->send, s->recv, c->count, c->type, c->op, comm, NULL);
        break;
    case qcclCollAllGather:
        status = qcclAllGather(s->send, s->recv, c->count, c->type, comm, NULL);
        break;
    default:
        status = qcclAllGatherDelta(s->send, s->recv, c->count, c->type, comm, NULL);
    }
    double seconds = bench_now() - start;
    if (status)
        bench_world_fail(&s->perf->world, s->rank, "%zu bytes of %s: %s", c->bytes,
                         bench_type_name(c->type), qcclGetLastError());
    return seconds;
}

static qcclStats_t stats_of(const struct side *s)
{
    qcclStats_t stats = {.size = sizeof stats};
    if (qcclCommGetStats(s->comm, &stats))
        bench_world_fail(&s->perf->world, s->rank, "%s", qcclGetLastError());
    return stats;
}

/* ------------------------------------------------------------------ checking */

static struct bench_scheme scheme_of(const struct side *s, bool compressed)
{
    struct bench_scheme scheme = {.coll = s->perf->options->coll,
                                  .type = s->of.type,
                                  .op = s->of.op,
                                  .nranks = s->perf->world.nranks,
                                  .nodes = s->perf->nodes};
    if (compressed && bench_scheme_read(&scheme, s->comm))
        bench_world_fail(&s->perf->world, s->rank, "the policy in force is not understood");
    if (!compressed)
        bench_scheme_plain(&scheme);
    return scheme;
}

static void verify(const struct side *s, const struct bench_scheme *scheme,
                   struct bench_findings *found)
{
    const struct perf_case *c = &s->of;
    bool is_delta = scheme->coll == qcclCollAllGatherDelta;
    struct bench_subject subject = {.scheme = scheme,
                                    .reader = is_delta ? read_difference : read_input,
                                    .base = is_delta ? read_replica : NULL,
                                    .context = s,
                                    .count = c->whole,
                                    .result = s->result,
                                    .begin = s->begin};
    if (!scheme->plain || is_delta) {
        if (bench_verify(&subject, s->rank, found))
            bench_world_fail(&s->perf->world, s->rank, "no memory to check the result");
        return;
    }
    size_t first, elems, size = qcclTypeBytes(c->type);
    bench_scheme_segment(scheme, c->whole, s->rank, &first, &elems);
    bench_verify_plain(&s->perf->inputs, c->type, c->op,
                       scheme->coll == qcclCollAllGather ? s->rank : -1, first, elems,
                       (const char *)s->result + (first - s->begin) * size, found);
}

/* Whether all ranks have the same result. */
static bool same_bits(struct side *s)
{
    if (s->perf->options->coll == qcclCollReduceScatter)
        return true;
    uint64_t hash = bench_hash(s->result, s->of.bytes);
    double low[2] = {(double)(hash >> 32), (double)(hash & 0xffffffffu)}, high[2];
    memcpy(high, low, sizeof high);
    bench_world_combine(&s->perf->world, s->rank, low, 2, BENCH_MIN);
    bench_world_combine(&s->perf->world, s->rank, high, 2, BENCH_MAX);
    return low[0] == high[0] && low[1] == high[1];
}

static void combine_findings(struct side *s, struct bench_findings *found)
{
    double sums[4] = {(double)found->wrong, (double)found->nan_values, found->error_energy,
                      found->energy};
    bench_world_combine(&s->perf->world, s->rank, sums, 4, BENCH_SUM);
    bench_world_combine(&s->perf->world, s->rank, &found->closest, 1, BENCH_MAX);
    found->wrong = (uint64_t)sums[0];
    found->nan_values = (uint64_t)sums[1];
    found->error_energy = sums[2];
    found->energy = sums[3];
}

/* The first call: what it sends, and whether its result is right. */
static void check(struct side *s, struct perf_row *row)
{
    qcclFeedbackReset(
        s->comm); /* with residuals of earlier calls, no bound follows from this call alone */
    qcclStats_t before = stats_of(s);
    call(s, s->comm);
    qcclStats_t after = stats_of(s);
    row->compressed = after.calls > before.calls;
    double plain =
        perf_bus_factor(s->perf->options->coll, s->perf->world.nranks) * (double)s->of.bytes;
    double sums[2] = {row->compressed ? (double)(after.raw_bytes - before.raw_bytes) : plain,
                      row->compressed ? (double)(after.wire_bytes - before.wire_bytes) : plain};
    bench_world_combine(&s->perf->world, s->rank, sums, 2, BENCH_SUM);
    row->raw_bytes = sums[0] / s->perf->world.nranks;
    row->wire_bytes = sums[1] / s->perf->world.nranks;
    row->same_bits = true;
    struct bench_scheme scheme = scheme_of(s, row->compressed);
    bench_scheme_print(&scheme, row->codec);
    if (!s->perf->options->check)
        return;
    verify(s, &scheme, &row->found);
    combine_findings(s, &row->found);
    if (row->compressed)
        row->same_bits = same_bits(s);
}

/* ------------------------------------------------------------------ timing */

static void time_calls(struct side *s, struct perf_row *row)
{
    const struct perf_options *o = s->perf->options;
    size_t iters = (size_t)o->iters;
    double *times = calloc(2 * iters, sizeof *times), *plain_times = times + iters;
    if (!times)
        bench_world_fail(&s->perf->world, s->rank, "no memory for %d iterations", o->iters);
    for (int i = 0; i < o->warmup; i++) {
        call(s, s->comm);
        call(s, s->plain);
    }
    qcclStats_t before = stats_of(s);
    for (size_t i = 0; i < iters; i++) {
        times[i] = call(s, s->comm);
        plain_times[i] = call(s, s->plain);
    }
    qcclStats_t after = stats_of(s);
    bench_world_combine(&s->perf->world, s->rank, times, 2 * iters, BENCH_MAX);
    row->seconds = bench_median(times, iters);
    row->plain_seconds = bench_median(plain_times, iters);
    free(times);
    double parts[4] = {(double)(after.encode_ns - before.encode_ns),
                       (double)(after.wire_ns - before.wire_ns),
                       (double)(after.decode_ns - before.decode_ns), 0};
    double workspace = (double)after.workspace_bytes, calls = s->perf->world.nranks * (double)iters;
    bench_world_combine(&s->perf->world, s->rank, parts, 3, BENCH_SUM);
    bench_world_combine(&s->perf->world, s->rank, &workspace, 1, BENCH_MAX);
    row->encode_us = parts[0] / calls * 1e-3;
    row->wire_us = parts[1] / calls * 1e-3;
    row->decode_us = parts[2] / calls * 1e-3;
    row->workspace_bytes = workspace;
}

static void print_plan(const struct side *s)
{
    size_t needed = 0;
    qcclColl_t coll = s->perf->options->coll;
    if (qcclCommPrintPlan(s->comm, coll, s->of.count, s->of.type, s->of.op, NULL, 0, &needed))
        bench_world_fail(&s->perf->world, s->rank, "%s", qcclGetLastError());
    char *text = malloc(needed + 1);
    if (!text ||
        qcclCommPrintPlan(s->comm, coll, s->of.count, s->of.type, s->of.op, text, needed, NULL))
        bench_world_fail(&s->perf->world, s->rank, "the plan cannot be printed");
    perf_output_plan(s->perf->output, text);
    free(text);
}

static void run_case(struct side *s)
{
    struct perf_row row = {.of = s->of};
    if (s->rank == 0) {
        char size[32];
        bench_print_size(size, sizeof size, (double)s->of.bytes);
        bench_progress("%s of %s ...", size, bench_type_name(s->of.type));
    }
    if (s->perf->options->parallel_init)
        make_buffers(s);
    else
        make_buffers_in_turn(s);
    if (s->rank == 0 && s->perf->options->print_plan)
        print_plan(s);
    check(s, &row);
    time_calls(s, &row);
    if (s->rank == 0)
        perf_output_row(s->perf->output, &row);
    for (size_t i = 0; i < sizeof s->buffers / sizeof *s->buffers; i++)
        free(s->buffers[i]);
}

/* The case of a size: whole elements, whole shards. */
static struct perf_case case_of(const struct perf *perf, qcclDataType_t type, qcclRedOp_t op,
                                size_t bytes)
{
    size_t elems = bytes / qcclTypeBytes(type), ranks = (size_t)perf->world.nranks;
    struct perf_case c = {.type = type, .op = op, .whole = elems, .count = elems};
    if (perf->options->coll != qcclCollAllReduce) {
        c.count = elems / ranks;
        c.whole = c.count * ranks;
    }
    c.bytes = c.whole * qcclTypeBytes(type);
    return c;
}

static void run_sizes(struct perf *perf, int rank, qcclDataType_t type, qcclRedOp_t op)
{
    const struct perf_options *o = perf->options;
    size_t input_bytes = perf->inputs.pools[0].count * qcclTypeBytes(type);
    size_t last = o->max_bytes ? o->max_bytes : input_bytes;
    for (size_t bytes = o->min_bytes ? o->min_bytes : input_bytes; bytes <= last;) {
        struct side side = {.perf = perf,
                            .rank = rank,
                            .comm = perf->comms[rank - perf->world.first],
                            .plain = perf->plain_comms[rank - perf->world.first],
                            .of = case_of(perf, type, op, bytes)};
        run_case(&side);
        size_t next = o->factor > 1 ? (size_t)((double)bytes * o->factor) : bytes + o->step_bytes;
        bytes = next > bytes ? next : bytes + 1;
    }
}

void perf_rank(void *context, int rank)
{
    struct perf *perf = context;
    const struct perf_options *o = perf->options;
    bool reduces = o->coll == qcclCollAllReduce || o->coll == qcclCollReduceScatter;
    for (int type = 0; type < qcclNumTypes; type++)
        for (int op = 0; op < qcclNumOps; op++)
            if (o->types[type] && (reduces ? o->ops[op] : op == qcclSum))
                run_sizes(perf, rank, (qcclDataType_t)type, (qcclRedOp_t)op);
}
