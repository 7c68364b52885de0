/* The frame of a rank program: every rank runs the same checks, rank 0 prints TAP for all of them.
 *
 * ok() is collective: a check passes when it does on every rank, and what a failing rank noted
 * before is printed below. A check that must hold for the program to go on is require(), which
 * ends the job.  A job that is too small for a test prints a plan of no checks with SKIP and ends
 * with 0: for TAP any other status is an error. */
#ifndef QCCL_TESTS_RANK_TEST_H
#define QCCL_TESTS_RANK_TEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "qccl/qccl_mpi.h"

extern int test_rank, test_nranks;
extern bool test_open_mpi;

/* MPI_Init_thread; skips the program when the job has fewer ranks than the test needs, or less
 * thread support. */
void rank_test_start(int *argc, char ***argv, int thread_level, int min_ranks);
/* Prints the plan and finalizes MPI; what main returns. */
int rank_test_end(void);
/* The exit code without MPI_Finalize, for a test that has called it. */
int rank_test_end_finalized(void);

/* Keeps a sentence about a failure on this rank for the next ok(); the first one counts. */
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* One line of TAP about all ranks.  Returns what it printed. */
bool ok(bool here, const char *sentence, ...) __attribute__((format(printf, 2, 3)));
/* Whether result is what is expected and the last error contains each of the texts; notes what is
 * wrong. */
bool result_is(qcclResult_t result, qcclResult_t expected, const char *text1, const char *text2);
/* Ends the job unless the condition holds. */
void require(bool condition, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Ends the job unless a call of the library succeeded. */
void require_success(qcclResult_t result, const char *call);

/* Seconds since some moment. */
double seconds_now(void);
void sleep_seconds(double seconds);

/* A 64-bit number from a seed, well mixed (SplitMix64), and a float around +-1 from it. */
uint64_t mix(uint64_t seed);
float mixed_float(uint64_t seed);

/* FNV-1a of bytes. */
uint64_t hash_bytes(const void *bytes, size_t count);
/* Whether all ranks of a communicator hold the same number. */
bool same_everywhere(uint64_t value, MPI_Comm comm);

#endif
