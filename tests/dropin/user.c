/* See tests/dropin/user.h. */
#include "tests/dropin/user.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "tests/tap.h"

enum { INT4_LEVELS = 7 };

int user_rank, user_nranks;

void user_start(int *argc, char ***argv, int threads)
{
    int provided;
    MPI_Init_thread(argc, argv, threads, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &user_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &user_nranks);
    user_ok(provided >= threads, "MPI gives the level of threads that was asked for");
}

int user_end(void)
{
    return user_rank == 0 ? tap_end() : 0;
}

void user_ok(bool here, const char *sentence, ...)
{
    char text[256];
    int mine = here, all = 0;
    va_list arguments;
    PMPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    va_start(arguments, sentence);
    vsnprintf(text, sizeof text, sentence, arguments);
    va_end(arguments);
    if (user_rank == 0)
        tap_ok(all, "%s", text);
    if (!here)
        fprintf(stderr, "# rank %d: not so: %s\n", user_rank, text);
}

float user_value(int rank, size_t i)
{
    uint64_t z = ((uint64_t)rank << 40) + i + 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (float)(int32_t)(z >> 33 ^ z) * 0x1p-31f;
}

void user_fill(float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] = user_value(user_rank, i);
}

/* Values are at most 1 in magnitude.  A value moves by less than a step when it is encoded: a
 * seventh of its group's largest, rounded up to a bfloat16. */
static double bound(bool sums, bool again)
{
    double ranks = sums ? user_nranks : 1, step = (1 + 0x1p-7) / INT4_LEVELS;
    double rounding = 2 * ranks * ranks * (double)FLT_EPSILON;
    double sum = ranks * (1 + step) + rounding;
    return ranks * step + (again ? sum * step : 0) + rounding;
}

struct user_error user_compare(const float *result, const float *exact, size_t count, bool sums,
                               bool again)
{
    struct user_error error = {.same = memcmp(result, exact, count * sizeof *result) == 0,
                               .within = true};
    for (size_t i = 0; i < count; i++)
        error.within =
            error.within && fabs((double)result[i] - (double)exact[i]) <= bound(sums, again);
    return error;
}

bool user_same_everywhere(const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    uint64_t hash = 0xcbf29ce484222325u, both[2], largest[2];
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ at[i]) * 0x100000001b3u;
    both[0] = hash;
    both[1] = ~hash;
    PMPI_Allreduce(both, largest, 2, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    return largest[0] == hash && largest[1] == ~hash;
}
