/* For programs that use MPI and know nothing of qccl: values, bounds, and checks that hold on every
 * rank.
 *
 * The program's MPI_ calls meet whatever is preloaded; PMPI_ is the bare MPI.  So one run has both
 * answers: a call that was passed through has the bits of the bare one, a compressed one has others
 * and is within the bound that follows from the quantizer's step. */
#ifndef QCCL_TESTS_DROPIN_USER_H
#define QCCL_TESTS_DROPIN_USER_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>

extern int user_rank, user_nranks;

void user_start(int *argc, char ***argv, int threads);
/* Prints the plan; what main returns after MPI_Finalize. */
int user_end(void);

/* One line of TAP; it passes when `here` is true on every rank. */
void user_ok(bool here, const char *sentence, ...) __attribute__((format(printf, 2, 3)));

/* The i-th value of a rank: between -1 and 1, unlike its neighbours. */
float user_value(int rank, size_t i);
void user_fill(float *values, size_t count);

/* How a result lies to the bare MPI's. */
struct user_error {
    bool same;   /* every bit on this rank */
    bool within; /* no value is further off than the bound */
};
/* sums: whether values were added over the ranks; again: whether the sum was encoded once more. */
struct user_error user_compare(const float *result, const float *exact, size_t count, bool sums,
                               bool again);
/* Whether all ranks of the world have the same bytes. */
bool user_same_everywhere(const void *bytes, size_t count);

#endif
