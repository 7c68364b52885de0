/* Every collective over MPI has the bits of the thread transport: policies, node layouts, counts
 * around every edge, types, in place, misaligned, and passed through where MPI has no such type.
 *
 * For each setting one rank, a different one each time, runs the same calls on threads, with the
 * serial executor in one round, and scatters their results; over MPI the pipelined executor runs
 * them, for every second setting in rounds of the smallest chunk. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/mpi/equal_cases.h"
#include "tests/mpi/rank_test.h"

enum { COUNTS = 20, MAX_RANKS = 64 };

enum layout { ONE_NODE, PAIRS, INTERLEAVED, SHIFTED_PAIRS, LAST_ALONE, ALL_APART };

struct setting {
    const char *policy;
    enum layout layout;
    bool by_environment; /* QCCL_NODES and QCCL_POLICY instead of the config */
    bool halves_only;    /* fp32 goes to MPI, whose order of summing is its own */
};

static const struct setting settings[] = {
    {.policy = "int4; min=0"},
    {.policy = "int8:group=64; min=0", .by_environment = true},
    {.policy = "int4:hadamard=64; min=0"},
    {.policy = "int2; min=0"},
    {.policy = "sr1:group=32; min=0"},
    {.policy = "sign1:feedback=on; min=0"},
    {.policy = "bf16; min=0"},
    {.policy = "allreduce: int4:hadamard=32 gather=int8:round=nearest,group=96; "
               "reducescatter: int2:group=256; allgather: int8; delta: int4:group=32; min=0"},
    {.policy = "allreduce: sr1 gather=int4:hadamard=128; reducescatter: sign1; allgather: sr1; "
               "delta: sign1; min=0"},
    {.policy = "int4 intra=int8; min=0", .layout = PAIRS, .by_environment = true},
    {.policy = "int4 intra=int8; min=0", .layout = SHIFTED_PAIRS},
    {.policy = "allreduce: int4:hadamard=32 intra=int8:group=32 gather=int8; "
               "reducescatter: int4:hadamard=32 intra=bf16; min=0",
     .layout = LAST_ALONE},
    {.policy = "int4:feedback=on intra=int8:feedback=on; min=0", .layout = INTERLEAVED},
    {.policy = "int4 intra=int8; min=0", .layout = ONE_NODE},
    {.policy = "int4 intra=int8; min=0", .layout = ALL_APART},
    {.policy = "int4; min=3KiB", .halves_only = true},
    {.policy = "none", .halves_only = true},
};
enum { SETTINGS = sizeof settings / sizeof *settings };

static int node_of(enum layout layout, int rank)
{
    switch (layout) {
    case PAIRS:
        return rank / 2;
    case INTERLEAVED:
        return rank % 2;
    case SHIFTED_PAIRS:
        return (rank + 1) / 2;
    case LAST_ALONE:
        return rank == test_nranks - 1;
    case ALL_APART:
        return rank;
    default:
        return 0;
    }
}

static void make_counts(size_t counts[COUNTS])
{
    size_t n = (size_t)test_nranks;
    const size_t made[COUNTS] = {0,
                                 1,
                                 2,
                                 n - 1,
                                 n,
                                 31,
                                 32,
                                 33,
                                 127,
                                 128,
                                 129,
                                 128 * n - 1,
                                 128 * n,
                                 128 * n + 1,
                                 640,
                                 1000,
                                 2047,
                                 256 * n + 5,
                                 128 * (n + 1) - 7,
                                 5003};
    memcpy(counts, made, sizeof made);
}

/* The communicators of a setting: over MPI on every rank, and of threads on one of them. */
struct comms {
    qcclComm_t mpi, threads[MAX_RANKS];
    int reference;
};

static void open_comms(struct comms *comms, const struct setting *s, int reference)
{
    int nodes[MAX_RANKS];
    char list[4 * MAX_RANKS] = "";
    qcclConfig_t config = QCCL_CONFIG_INITIALIZER;
    for (int r = 0; r < test_nranks; r++) {
        nodes[r] = node_of(s->layout, r);
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%d", r ? "," : "", nodes[r]);
    }
    config.seed = 77 + (uint64_t)reference;
    if (s->by_environment) {
        setenv("QCCL_NODES", list, 1);
        setenv("QCCL_POLICY", s->policy, 1);
    } else {
        config.policy = s->policy;
        config.nodes = s->layout == ONE_NODE ? NULL : nodes;
    }
    comms->reference = reference;
    setenv("QCCL_EXECUTOR", "pipelined", 1);
    setenv("QCCL_CHUNK", (s - settings) % 2 ? "65536" : "1", 1);
    require_success(qcclCommInitMpi(&comms->mpi, MPI_COMM_WORLD, &config), "qcclCommInitMpi");
    setenv("QCCL_EXECUTOR", "serial", 1);
    setenv("QCCL_CHUNK", "1000000", 1);
    if (test_rank == reference)
        require_success(qcclCommInitThreads(comms->threads, test_nranks, &config),
                        "qcclCommInitThreads");
    unsetenv("QCCL_NODES");
    unsetenv("QCCL_POLICY");
    unsetenv("QCCL_EXECUTOR");
    unsetenv("QCCL_CHUNK");
}

static void close_comms(struct comms *comms)
{
    require_success(qcclCommDestroy(comms->mpi), "qcclCommDestroy");
    for (int r = 0; r < test_nranks && test_rank == comms->reference; r++)
        require_success(qcclCommDestroy(comms->threads[r]), "qcclCommDestroy");
}

/* This rank's result of the thread transport. */
static void expected_result(const struct comms *comms, const struct equal_case *c,
                            unsigned char *expected)
{
    size_t bytes = equal_result_bytes(c, test_nranks);
    unsigned char *all = NULL;
    if (test_rank == comms->reference) {
        char sentence[400] = "";
        all = malloc((size_t)test_nranks * bytes + 1);
        require(all != NULL, "no memory");
        require(
            equal_case_run_threads(c, comms->threads, test_nranks, all, sentence, sizeof sentence),
            "%s", sentence);
    }
    MPI_Scatter(all, (int)bytes, MPI_BYTE, expected, (int)bytes, MPI_BYTE, comms->reference,
                MPI_COMM_WORLD);
    free(all);
}

static bool check_case(const struct comms *comms, const struct equal_case *c)
{
    struct equal_buffers buffers = {.send_memory = NULL};
    size_t bytes = equal_result_bytes(c, test_nranks);
    unsigned char *expected = malloc(bytes + 1);
    require(expected && equal_buffers_make(&buffers, c, test_rank, test_nranks), "no memory");
    expected_result(comms, c, expected);
    qcclResult_t result = equal_case_run(c, &buffers, comms->mpi);
    bool right = result == qcclSuccess && memcmp(buffers.recv, expected, bytes) == 0;
    if (!right)
        note("case %d, count %zu, type %d, op %d, %s, offset %d: %s", c->number, c->count,
             (int)c->type, (int)c->op, c->in_place ? "in place" : "apart", c->offset,
             result ? qcclGetLastError() : "other bits than on threads");
    if (c->collective != qcclCollReduceScatter &&
        !same_everywhere(hash_bytes(buffers.recv, bytes), MPI_COMM_WORLD)) {
        note("case %d: the ranks' results differ", c->number);
        right = false;
    }
    free(expected);
    equal_buffers_free(&buffers);
    return right;
}

static bool check_sequences(const struct comms *comms)
{
    uint32_t here = 0, there = 0;
    require_success(qcclCommGetSequence(comms->mpi, &here), "qcclCommGetSequence");
    if (test_rank == comms->reference)
        require_success(qcclCommGetSequence(comms->threads[0], &there), "qcclCommGetSequence");
    MPI_Bcast(&there, 1, MPI_UINT32_T, comms->reference, MPI_COMM_WORLD);
    if (here != there)
        note("sequence %u over MPI, %u on threads", here, there);
    return here == there;
}

static void check_setting(const struct setting *s, int index)
{
    static const char *const names[] = {"allreduce", "reduce-scatter", "all-gather", "delta"};
    static const qcclDataType_t types[] = {qcclFloat32, qcclBfloat16, qcclFloat16};
    size_t counts[COUNTS];
    struct comms comms;
    make_counts(counts);
    open_comms(&comms, s, index % test_nranks);
    for (int collective = 0; collective < qcclNumColls; collective++) {
        bool right = true;
        for (int i = 0; i < COUNTS; i++) {
            struct equal_case c = {.collective = (qcclColl_t)collective,
                                   .type = types[(i + index) % 3],
                                   .op = i % 2 ? qcclAvg : qcclSum,
                                   .count = counts[i],
                                   .number = (index * 4 + collective) * COUNTS + i,
                                   .in_place = i % 4 > 1,
                                   .offset = i % 3 == 1 ? 1 : 0};
            if (s->halves_only) {
                c.type = types[1 + i % 2];
                c.op = (qcclRedOp_t)(i % qcclNumOps);
            }
            right = check_case(&comms, &c) && right;
        }
        ok(right && check_sequences(&comms), "%s, nodes %d: %s has the bits of threads", s->policy,
           (int)s->layout, names[collective]);
    }
    qcclStats_t stats = {.size = sizeof stats};
    require_success(qcclCommGetStats(comms.mpi, &stats), "qcclCommGetStats");
    /* One rank compresses nothing but deltas. */
    bool expected = test_nranks > 1 ? strcmp(s->policy, "none") != 0 : stats.calls > 0;
    ok(stats.calls + stats.passed == 4 * COUNTS && (stats.calls > 0) == expected,
       "%s: every call was counted as compressed or passed through", s->policy);
    close_comms(&comms);
}

int main(int argc, char **argv)
{
    rank_test_start(&argc, &argv, MPI_THREAD_FUNNELED, 1);
    for (int i = 0; i < SETTINGS; i++)
        check_setting(&settings[i], i);
    return rank_test_end();
}
