/* What the programs say: errors on stderr under the program's name, usage errors, progress.
 *
 * Exit statuses are the same everywhere: 0 all is well, 1 something failed or a result is wrong, 2
 * the command line makes no sense.  Under mpirun one rank speaks for all where all would say the
 * same. */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include <stdbool.h>
#include <stddef.h>

enum { EXIT_WRONG = 1, EXIT_USAGE = 2 };

/* Names the program in everything below; call it first. */
void bench_program(const char *name);

/* Whether this process is the first of those that mpirun started, or was started alone. */
bool bench_speaks(void);

/* Whether mpirun or a like launcher started this process. */
bool bench_launched(void);

/* Both print one sentence; they return EXIT_WRONG and EXIT_USAGE, to be returned from main. */
int bench_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
int bench_usage_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* "qccl-perf 0.1.0", and the version of the library where it is another. */
int bench_print_version(void);

/* One line on a terminal that the next one replaces; nothing where stderr is no terminal.  NULL
 * wipes it. */
void bench_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));
void bench_progress_end(void);

/* Bytes as people write them: "64 MiB", "1000 B". */
void bench_print_size(char *text, size_t capacity, double bytes);

#endif
