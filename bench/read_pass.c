/* A loop that reads as fast as the core can: four independent vector accumulators, so that loads
 * and not additions are what it waits for.  Compiled once for each instruction set; READ_PASS names
 * the function, READ_VECTOR is its vector's size in bytes. */
#include "bench/bandwidth.h"

typedef uint64_t vector __attribute__((vector_size(READ_VECTOR)));

uint64_t READ_PASS(const void *buffer, size_t bytes, const struct bench_read_shape *shape)
{
    enum { STEP = 512, LINE = 64, LANES = READ_VECTOR / 8 };
    size_t part = bytes / shape->streams, ahead = shape->ahead_bytes;
    vector a = {0}, b = {0}, c = {0}, d = {0};
    for (size_t at = 0; at < part; at += STEP)
        for (size_t stream = 0; stream < shape->streams; stream++) {
            const char *from = (const char *)buffer + stream * part + at;
            for (size_t line = 0; ahead && line < STEP; line += LINE)
                __builtin_prefetch(from + ahead + line);
            const vector *v = (const vector *)(const void *)from;
            for (size_t i = 0; i < STEP / READ_VECTOR; i += 4) {
                a += v[i];
                b += v[i + 1];
                c += v[i + 2];
                d += v[i + 3];
            }
        }
    a += b;
    c += d;
    a += c;
    uint64_t sum = 0;
    for (int lane = 0; lane < LANES; lane++)
        sum += a[lane];
    return sum;
}
