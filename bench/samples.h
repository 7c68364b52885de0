/* Time, and what is made of repeated measurements: the median, which one late sample does not
 * move. */
#ifndef BENCH_SAMPLES_H
#define BENCH_SAMPLES_H

#include <stddef.h>

/* Seconds of a clock that only runs forward. */
double bench_now(void);

/* Seconds that this thread has run on a core: what others take from it does not count. */
double bench_cpu_now(void);

/* The median of count >= 1 samples; sorts them. */
double bench_median(double *samples, size_t count);

#endif
