/* Messages of the programs; see report.h. */
#include "bench/report.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "qccl/qccl.h"

static const char *program = "qccl";

void bench_program(const char *name)
{
    program = name;
}

bool bench_launched(void)
{
    static const char *const marks[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK",
                                        "MPI_LOCALNRANKS"};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (getenv(marks[i]))
            return true;
    return false;
}

bool bench_speaks(void)
{
    static const char *const ranks[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"};
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        const char *rank = getenv(ranks[i]);
        if (rank)
            return strcmp(rank, "0") == 0;
    }
    return true;
}

int bench_error(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    bench_progress_end();
    fprintf(stderr, "%s: ", program);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return EXIT_WRONG;
}

int bench_usage_error(const char *format, ...)
{
    if (!bench_speaks())
        return EXIT_USAGE;
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s: ", program);
    vfprintf(stderr, format, args);
    fprintf(stderr, " (%s --help lists the options)\n", program);
    va_end(args);
    return EXIT_USAGE;
}

int bench_print_version(void)
{
    int loaded = 0;
    qcclGetVersion(&loaded);
    printf("%s %d.%d.%d\n", program, QCCL_MAJOR, QCCL_MINOR, QCCL_PATCH);
    if (loaded != QCCL_VERSION)
        printf("running with version %d.%d.%d of the library\n", loaded / 10000, loaded / 100 % 100,
               loaded % 100);
    return 0;
}

static bool progress_shown;

void bench_progress(const char *format, ...)
{
    if (!bench_speaks() || !isatty(STDERR_FILENO))
        return;
    va_list args;
    va_start(args, format);
    fprintf(stderr, "\r\033[K");
    vfprintf(stderr, format, args);
    fflush(stderr);
    va_end(args);
    progress_shown = true;
}

void bench_progress_end(void)
{
    if (progress_shown)
        fprintf(stderr, "\r\033[K");
    progress_shown = false;
}

void bench_print_size(char *text, size_t capacity, double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;
    while (bytes >= 1024 && unit + 1 < sizeof units / sizeof *units) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, capacity, "%.4g %s", bytes, units[unit]);
}
