/* What this core can move at best, and how fast it runs: the yardsticks of qccl-codec. */
#ifndef BENCH_BANDWIDTH_H
#define BENCH_BANDWIDTH_H

#include <stddef.h>
#include <stdint.h>

/* How a read loop goes about it: streams that advance side by side, and how far ahead each
 * prefetches, 0 for not. */
struct bench_read_shape {
    size_t streams, ahead_bytes;
};

/* Reads every byte of a buffer aligned to 64, bytes a multiple of 512 times the streams.  The
 * result depends on every byte, so that no read can be left out. */
typedef uint64_t bench_read_pass(const void *buffer, size_t bytes,
                                 const struct bench_read_shape *shape);

/* One translation unit, read_pass.c, compiled for each instruction set. */
bench_read_pass bench_read_plain, bench_read_avx2, bench_read_avx512;

struct bench_reader_row {
    const char *cpu; /* as qcclCpuName names it; "c" for any */
    bench_read_pass *pass;
};

/* The fastest way to read this buffer: instruction set and shape, found by trying. */
struct bench_fast_reader {
    const struct bench_reader_row *row;
    struct bench_read_shape shape;
};
struct bench_fast_reader bench_find_reader(const void *buffer, size_t bytes);

/* Seconds that so many passes take, and copies likewise. */
double bench_time_read(const struct bench_fast_reader *reader, const void *buffer, size_t bytes,
                       int passes);
double bench_time_copy(void *to, const void *from, size_t bytes, int passes);

/* Cycles a second of this core now, by a chain of dependent multiplications and additions, 4 cycles
 * each on x86-64 cores of the last ten years. */
double bench_core_hertz(void);

/* Keeps this thread on one core; core -1: the one it is on.  Returns the core, or -1 when the
 * system refuses. */
int bench_pin(int core);

/* Bytes of this core's second-level cache; a guess of 512 KiB where the system does not say. */
size_t bench_l2_bytes(void);

#endif
