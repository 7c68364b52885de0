/* See rank_test.h. */
#include "tests/mpi/rank_test.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { NOTE_BYTES = 400 };

int test_rank, test_nranks;
bool test_open_mpi;
static int tests_run, tests_failed;
static char noted[NOTE_BYTES];

/* For a message that is too long, MPICH calls the error handler of MPI_COMM_WORLD (docs/mpi.md);
 * Open MPI must do without. */
static void look_at_mpi(void)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(version, &length);
    test_open_mpi = strstr(version, "Open MPI") != NULL;
    if (!test_open_mpi)
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
}

void rank_test_start(int *argc, char ***argv, int thread_level, int min_ranks)
{
    int provided = MPI_THREAD_SINGLE;
    MPI_Init_thread(argc, argv, thread_level, &provided);
    look_at_mpi();
    MPI_Comm_rank(MPI_COMM_WORLD, &test_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &test_nranks);
    if (test_nranks >= min_ranks && provided >= thread_level)
        return;
    if (test_rank == 0)
        printf("1..0 # SKIP needs %d ranks and thread level %d\n", min_ranks, thread_level);
    MPI_Finalize();
    exit(EXIT_SUCCESS);
}

int rank_test_end_finalized(void)
{
    if (test_rank == 0)
        printf("1..%d\n", tests_run);
    fflush(stdout);
    return tests_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

int rank_test_end(void)
{
    MPI_Finalize();
    return rank_test_end_finalized();
}

void note(const char *format, ...)
{
    va_list args;
    if (noted[0])
        return;
    va_start(args, format);
    vsnprintf(noted, sizeof noted, format, args);
    va_end(args);
}

static void print_notes(const char *notes)
{
    for (int r = 0; r < test_nranks; r++) {
        const char *text = notes + (size_t)r * NOTE_BYTES;
        if (text[0])
            printf("# rank %d: %s\n", r, text);
    }
}

bool ok(bool here, const char *sentence, ...)
{
    int mine = here, all = 0;
    char *notes = NULL;
    va_list args;
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (here)
        noted[0] = 0;
    else if (!noted[0])
        snprintf(noted, sizeof noted, "failed; last error: %s", qcclGetLastError());
    if (test_rank == 0)
        notes = calloc((size_t)test_nranks, NOTE_BYTES);
    MPI_Gather(noted, NOTE_BYTES, MPI_CHAR, notes, NOTE_BYTES, MPI_CHAR, 0, MPI_COMM_WORLD);
    tests_run++;
    tests_failed += !all;
    if (test_rank == 0) {
        printf("%sok %d - %d ranks: ", all ? "" : "not ", tests_run, test_nranks);
        va_start(args, sentence);
        vprintf(sentence, args);
        va_end(args);
        printf("\n");
        if (notes)
            print_notes(notes);
        fflush(stdout);
    }
    free(notes);
    noted[0] = 0;
    return all;
}

bool result_is(qcclResult_t result, qcclResult_t expected, const char *text1, const char *text2)
{
    const char *sentence = result ? qcclGetLastError() : "";
    bool right = result == expected && (!text1 || strstr(sentence, text1)) &&
                 (!text2 || strstr(sentence, text2));
    if (!right)
        note("result %d (\"%s\") instead of %d with \"%s\" and \"%s\"", (int)result, sentence,
             (int)expected, text1 ? text1 : "", text2 ? text2 : "");
    return right;
}

void require(bool condition, const char *format, ...)
{
    va_list args;
    if (condition)
        return;
    printf("Bail out! rank %d of %d: ", test_rank, test_nranks);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
}

void require_success(qcclResult_t result, const char *call)
{
    require(result == qcclSuccess, "%s returned %d: %s", call, (int)result, qcclGetLastError());
}

double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void sleep_seconds(double seconds)
{
    struct timespec t = {.tv_sec = (time_t)seconds};
    t.tv_nsec = (long)(1e9 * (seconds - (double)t.tv_sec));
    nanosleep(&t, NULL);
}

uint64_t mix(uint64_t seed)
{
    uint64_t z = seed + 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

float mixed_float(uint64_t seed)
{
    return (float)(int32_t)(mix(seed) >> 32) * 0x1p-31f;
}

uint64_t hash_bytes(const void *bytes, size_t count)
{
    const unsigned char *b = bytes;
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ b[i]) * 0x100000001b3u;
    return hash;
}

bool same_everywhere(uint64_t value, MPI_Comm comm)
{
    uint64_t low = 0, high = 0;
    MPI_Allreduce(&value, &low, 1, MPI_UINT64_T, MPI_MIN, comm);
    MPI_Allreduce(&value, &high, 1, MPI_UINT64_T, MPI_MAX, comm);
    return low == high;
}
