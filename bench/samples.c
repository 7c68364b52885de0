/* Clock and median; see samples.h. */
#include "bench/samples.h"

#include <stdlib.h>
#include <time.h>

static double seconds_of(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double bench_now(void)
{
    return seconds_of(CLOCK_MONOTONIC);
}

double bench_cpu_now(void)
{
    return seconds_of(CLOCK_THREAD_CPUTIME_ID);
}

static int compare(const void *left, const void *right)
{
    const double *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

double bench_median(double *samples, size_t count)
{
    qsort(samples, count, sizeof *samples, compare);
    return count % 2 ? samples[count / 2] : 0.5 * (samples[count / 2 - 1] + samples[count / 2]);
}
