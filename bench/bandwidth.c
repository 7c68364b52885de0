/* Yardsticks; see bandwidth.h. */
#include "bench/bandwidth.h"

#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "bench/samples.h"
#include "qccl/qccl.h"

/* The one place that knows which instruction sets the read loop was compiled for. */
static const struct bench_reader_row rows[] = {
#if BENCH_READ_AVX512
    {.cpu = "avx512", .pass = bench_read_avx512},
#endif
#if BENCH_READ_AVX2
    {.cpu = "avx2", .pass = bench_read_avx2},
#endif
    {.cpu = "c", .pass = bench_read_plain},
};

/* Where results go, so that a pass has an effect. */
static volatile uint64_t sink;

static bool runs_here(const char *cpu)
{
    for (int i = 0; qcclCpuName(i); i++)
        if (strcmp(qcclCpuName(i), cpu) == 0)
            return true;
    return false;
}

double bench_time_read(const struct bench_fast_reader *reader, const void *buffer, size_t bytes,
                       int passes)
{
    double start = bench_cpu_now();
    for (int i = 0; i < passes; i++)
        sink = reader->row->pass(buffer, bytes, &reader->shape);
    return bench_cpu_now() - start;
}

double bench_time_copy(void *to, const void *from, size_t bytes, int passes)
{
    double start = bench_cpu_now();
    for (int i = 0; i < passes; i++)
        memcpy(to, from, bytes);
    double seconds = bench_cpu_now() - start;
    sink = *(const unsigned char *)to;
    return seconds;
}

struct bench_fast_reader bench_find_reader(const void *buffer, size_t bytes)
{
    static const struct bench_read_shape shapes[] = {
        {.streams = 1},
        {.streams = 4},
        {.streams = 8},
        {.streams = 1, .ahead_bytes = 1024},
        {.streams = 1, .ahead_bytes = 2048},
        {.streams = 1, .ahead_bytes = 8192},
    };
    enum { ROUNDS = 6 };
    struct bench_fast_reader best = {.row = &rows[sizeof rows / sizeof *rows - 1],
                                     .shape = shapes[0]};
    int passes = (int)(((size_t)16 << 20) / bytes) + 1;
    double best_seconds = bench_time_read(&best, buffer, bytes, passes);
    /* Round after round, so that a disturbance meets all of them alike. */
    for (int round = 0; round < ROUNDS; round++)
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
            for (size_t s = 0; s < sizeof shapes / sizeof *shapes && runs_here(rows[r].cpu); s++) {
                struct bench_fast_reader tried = {.row = &rows[r], .shape = shapes[s]};
                double seconds = bench_time_read(&tried, buffer, bytes, passes);
                if (seconds < best_seconds) {
                    best_seconds = seconds;
                    best = tried;
                }
            }
    return best;
}

double bench_core_hertz(void)
{
    enum { LINKS = 400000, CYCLES_PER_LINK = 4 };
    uint64_t x = sink | 1;
    double start = bench_cpu_now();
    for (int i = 0; i < LINKS; i++)
        x = x * 0x9e3779b97f4a7c15u + 0x632be59bd9b4e019u;
    double seconds = bench_cpu_now() - start;
    sink = x;
    return LINKS * (double)CYCLES_PER_LINK / seconds;
}

int bench_pin(int core)
{
    cpu_set_t set;
    if (core < 0)
        core = sched_getcpu();
    if (core < 0 || core >= CPU_SETSIZE)
        return -1;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    return sched_setaffinity(0, sizeof set, &set) ? -1 : core;
}

size_t bench_l2_bytes(void)
{
    long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
    size_t known = bytes > 0 ? (size_t)bytes : (size_t)512 << 10;
    return known / 8192 * 8192; /* halves are whole steps of every read loop */
}
