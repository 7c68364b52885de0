/* A program that used MPI_Allreduce and now calls qcclAllReduce: its answer, and how far it may be
 * from the old one.
 *
 * Every rank has measured the same quantities x, each with a weight.  The best estimate minimises
 * the sum over ranks and quantities of weight * (x - measured)^2 / 2; gradient descent finds it,
 * with one allreduce of the gradient a step.
 *
 *     x <- x - rate * sum over ranks of weight * (x - measured)
 *
 * What encoding changes in one gradient value is less than a step of the quantizer: the scale of
 * its group, for int4 1/7 of the group's largest magnitude, rounded up to a bfloat16.  Each rank's
 * gradient is encoded once, and the sum once more.  A change d of the gradient moves x by
 * rate * d, and what two runs differ by shrinks by |1 - rate * total weight| a step; so the
 * program follows a bound for the difference of its two answers, quantity by quantity. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/mpi/rank_test.h"

enum { QUANTITIES = 3000, STEPS = 60, GROUP = 128, LEVELS = 7 };

struct problem {
    float weight[QUANTITIES], measured[QUANTITIES]; /* this rank's */
    float total_weight[QUANTITIES];                 /* of all ranks */
    float rate;
};

static void make_problem(struct problem *p)
{
    float largest = 0;
    for (int i = 0; i < QUANTITIES; i++) {
        uint64_t seed = (uint64_t)test_rank * QUANTITIES + (uint64_t)i;
        p->weight[i] = 1.0f + 0.5f * mixed_float(2 * seed);
        p->measured[i] = 10.0f * mixed_float(777 + (uint64_t)i) + mixed_float(2 * seed + 1);
    }
    MPI_Allreduce(p->weight, p->total_weight, QUANTITIES, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < QUANTITIES; i++)
        largest = fmaxf(largest, p->total_weight[i]);
    p->rate = 1.0f / largest;
}

static void local_gradient(const struct problem *p, const float *x, float *gradient)
{
    for (int i = 0; i < QUANTITIES; i++)
        gradient[i] = p->weight[i] * (x[i] - p->measured[i]);
}

static void descend(const struct problem *p, float *x, const float *gradient)
{
    for (int i = 0; i < QUANTITIES; i++)
        x[i] -= p->rate * gradient[i];
}

/* As the program was. */
static void solve_mpi(const struct problem *p, float *x)
{
    float gradient[QUANTITIES];
    for (int step = 0; step < STEPS; step++) {
        local_gradient(p, x, gradient);
        MPI_Allreduce(MPI_IN_PLACE, gradient, QUANTITIES, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        descend(p, x, gradient);
    }
}

/* ------------------------------------------------------------------ the bound */

/* The largest step of any group's quantizer: magnitude / LEVELS, and the bfloat16 above it. */
static double largest_step(double magnitude)
{
    return magnitude / LEVELS * (1.0 + 0x1p-7);
}

static int group_end(int begin)
{
    return begin + GROUP < QUANTITIES ? begin + GROUP : QUANTITIES;
}

/* error[i] = the most that encoding and rounding change in value i of the sum of all ranks'
 * gradients.  Groups begin at multiples of GROUP, since shards are whole groups. */
static void bound_of_sum(const float *gradient, double *error)
{
    double steps[QUANTITIES], magnitudes[QUANTITIES];
    for (int begin = 0; begin < QUANTITIES; begin += GROUP) {
        double largest = 0;
        for (int i = begin; i < group_end(begin); i++)
            largest = fmax(largest, fabs((double)gradient[i]));
        for (int i = begin; i < group_end(begin); i++) {
            steps[i] = largest_step(largest);
            magnitudes[i] = largest;
        }
    }
    MPI_Allreduce(MPI_IN_PLACE, steps, QUANTITIES, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, magnitudes, QUANTITIES, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < QUANTITIES; i++) {
        /* Adding n values rounds n - 1 times, in this program and in the other. */
        double rounding =
            2.0 * (test_nranks - 1) * (double)FLT_EPSILON * (magnitudes[i] + steps[i]);
        error[i] = steps[i] + largest_step(magnitudes[i] + steps[i] + rounding) + rounding;
    }
}

/* The bound for the difference of the two runs after one step more. */
static void bound_of_step(const struct problem *p, const float *x, const double *error,
                          double *difference)
{
    for (int i = 0; i < QUANTITIES; i++) {
        double shrink = fabs(1.0 - (double)p->rate * (double)p->total_weight[i]);
        /* The gradient and the step are computed in floats, twice: a few roundings of values of
         * this size. */
        double size = fabs((double)x[i]) + 11.0 + difference[i];
        difference[i] = shrink * difference[i] + (double)p->rate * error[i] +
                        2.0 * (test_nranks + 4) * (double)FLT_EPSILON * size;
    }
}

/* ------------------------------------------------------------------ as the program is now */

static void solve_qccl(const struct problem *p, float *x, double *difference)
{
    qcclComm_t comm;
    qcclConfig_t config = QCCL_CONFIG_INITIALIZER;
    float gradient[QUANTITIES];
    double error[QUANTITIES];
    config.policy = "allreduce: int4; min=0";
    require_success(qcclCommInitMpi(&comm, MPI_COMM_WORLD, &config), "qcclCommInitMpi");
    for (int step = 0; step < STEPS; step++) {
        local_gradient(p, x, gradient);
        bound_of_sum(gradient, error);
        require_success(
            qcclAllReduce(gradient, gradient, QUANTITIES, qcclFloat32, qcclSum, comm, NULL),
            "qcclAllReduce");
        descend(p, x, gradient);
        bound_of_step(p, x, error, difference);
    }
    qcclStats_t stats = {.size = sizeof stats};
    require_success(qcclCommGetStats(comm, &stats), "qcclCommGetStats");
    ok(test_nranks == 1 || (stats.calls == STEPS && stats.raw_bytes > stats.wire_bytes),
       "every step was compressed");
    if (test_rank == 0 && stats.wire_bytes)
        printf("# ratio %.2f\n", (double)stats.raw_bytes / (double)stats.wire_bytes);
    require_success(qcclCommDestroy(comm), "qcclCommDestroy");
}

static bool within(const float *a, const float *b, const double *difference)
{
    for (int i = 0; i < QUANTITIES; i++)
        if (!(fabs((double)a[i] - (double)b[i]) <= difference[i])) {
            note("quantity %d: %g and %g differ by more than %g", i, (double)a[i], (double)b[i],
                 difference[i]);
            return false;
        }
    return true;
}

/* Root mean square of the difference, and of the start's: the start is 0. */
static double distance(const float *a, const float *b)
{
    double sum = 0;
    for (int i = 0; i < QUANTITIES; i++)
        sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    return sqrt(sum / QUANTITIES);
}

int main(int argc, char **argv)
{
    static struct problem problem;
    static float x_mpi[QUANTITIES], x_qccl[QUANTITIES], zero[QUANTITIES];
    static double difference[QUANTITIES];
    rank_test_start(&argc, &argv, MPI_THREAD_SINGLE, 1);
    make_problem(&problem);
    solve_mpi(&problem, x_mpi);
    solve_qccl(&problem, x_qccl, difference);
    ok(within(x_qccl, x_mpi, difference),
       "the answer is as near to MPI_Allreduce's as the quantizer's step says");
    double largest = 0;
    for (int i = 0; i < QUANTITIES; i++)
        largest = fmax(largest, difference[i]);
    if (test_rank == 0)
        printf("# rms distance %.3g, largest bound %.3g, rms of the answer %.3g\n",
               distance(x_mpi, x_qccl), largest, distance(x_mpi, zero));
    ok(same_everywhere(hash_bytes(x_qccl, sizeof x_qccl), MPI_COMM_WORLD),
       "all ranks have the same bits after %d steps", STEPS);
    return rank_test_end();
}
