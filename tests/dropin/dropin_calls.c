/* Every form of the collectives in C, as a program would write them, against the bare MPI.
 *
 *     dropin_calls off | on
 *
 * off: nothing is compressed, and every result has the bits of the bare MPI.  on: int4 for
 * everything of 1 KiB; what can be compressed is, inside the bound, and everything else is
 * exact. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/dropin/user.h"

#if defined OPEN_MPI
#include <mpi-ext.h>
#endif

enum { COUNT = 3000, RANKS_MAX = 8, ROOM = RANKS_MAX * COUNT * 2 };

static bool on;
static float in[ROOM], out[ROOM], exact[ROOM];

static void begin(void)
{
    user_fill(in, ROOM);
    memset(out, 0, sizeof out);
    memset(exact, 0, sizeof exact);
}

/* Checks a result in `out`. */
static void expect(const char *what, size_t count, bool sums, bool again)
{
    struct user_error error = user_compare(out, exact, count, sums, again);
    user_ok(on ? !error.same && error.within : error.same, "%s is %s", what,
            on ? "compressed, and inside the bound" : "the bare MPI's");
}

static void expect_exact(const char *what, const void *result, const void *bare, size_t bytes)
{
    user_ok(memcmp(result, bare, bytes) == 0, "%s has the bits of the bare MPI", what);
}

/* ------------------------------------------------------------------ allreduce */

static void test_allreduce(void)
{
    begin();
    MPI_Allreduce(in, out, COUNT, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    PMPI_Allreduce(in, exact, COUNT, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    expect("an allreduce", COUNT, true, true);
    user_ok(user_same_everywhere(out, COUNT * sizeof *out), "all ranks have the same bits of it");

    memcpy(out, in, COUNT * sizeof *out);
    MPI_Allreduce(MPI_IN_PLACE, out, COUNT, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    expect("an allreduce in place", COUNT, true, true);

    MPI_Allreduce(in, out, COUNT, MPI_REAL, MPI_SUM, MPI_COMM_WORLD);
    expect("an allreduce of Fortran's MPI_REAL", COUNT, true, true);
}

static void test_special_values(void)
{
    bool nan = true, whole = true, zero = true;
    begin();
    in[77] = user_rank == user_nranks - 1 ? NAN : 1.0f;
    MPI_Allreduce(in, out, COUNT, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    nan = isnan(out[77]);
    user_ok(nan, "a NaN of one rank arrives on every rank");
    /* With a 7 in every group the step is 1, and whole numbers up to 7 are kept; one rank's
     * alone, so that the sum is such too. */
    for (int i = 0; i < COUNT; i++)
        in[i] = user_rank ? 0.0f : (float)(i % 15 - 7);
    MPI_Allreduce(in, out, COUNT, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < COUNT; i++)
        whole = whole && out[i] == (float)(i % 15 - 7);
    user_ok(whole, "values that the codec holds exactly are exact");
    memset(in, 0, sizeof in);
    MPI_Allreduce(in, out, COUNT, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < COUNT; i++)
        zero = zero && out[i] == 0.0f;
    user_ok(zero, "zeros stay zeros");
}

/* ------------------------------------------------------------------ reduce-scatter */

static void test_reduce_scatter(void)
{
    int equal[RANKS_MAX], uneven[RANKS_MAX], lonely[RANKS_MAX];
    for (int r = 0; r < RANKS_MAX; r++) {
        equal[r] = COUNT;
        uneven[r] = COUNT + 64 * r;
        lonely[r] = r == 0 ? COUNT : 0;
    }
    begin();
    MPI_Reduce_scatter_block(in, out, COUNT, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    PMPI_Reduce_scatter_block(in, exact, COUNT, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    expect("a reduce-scatter of blocks", COUNT, true, false);

    memcpy(out, in, sizeof out);
    MPI_Reduce_scatter_block(MPI_IN_PLACE, out, COUNT, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    expect("a reduce-scatter of blocks in place", COUNT, true, false);

    MPI_Reduce_scatter(in, out, equal, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    PMPI_Reduce_scatter(in, exact, equal, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    expect("a reduce-scatter of equal counts", COUNT, true, false);

    size_t mine = (size_t)uneven[user_rank];
    MPI_Reduce_scatter(in, out, uneven, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    PMPI_Reduce_scatter(in, exact, uneven, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    expect("a reduce-scatter of different counts", mine, true, false);

    memcpy(out, in, sizeof out);
    MPI_Reduce_scatter(MPI_IN_PLACE, out, uneven, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    expect("a reduce-scatter of different counts in place", mine, true, false);

    memset(out, 0, sizeof out);
    memset(exact, 0, sizeof exact);
    MPI_Reduce_scatter(in, out, lonely, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    PMPI_Reduce_scatter(in, exact, lonely, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (user_nranks > 2)
        expect_exact("a reduce-scatter to one rank alone", out, exact, sizeof out);
}

/* ------------------------------------------------------------------ all-gather */

static void test_allgather(void)
{
    size_t all = (size_t)user_nranks * COUNT;
    MPI_Datatype triple, spread;
    begin();
    MPI_Allgather(in, COUNT, MPI_FLOAT, out, COUNT, MPI_FLOAT, MPI_COMM_WORLD);
    PMPI_Allgather(in, COUNT, MPI_FLOAT, exact, COUNT, MPI_FLOAT, MPI_COMM_WORLD);
    expect("an allgather", all, false, false);
    user_ok(user_same_everywhere(out, all * sizeof *out), "all ranks have the same bits of it");

    memset(out, 0, sizeof out);
    memcpy(out + (size_t)user_rank * COUNT, in, COUNT * sizeof *out);
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, out, COUNT, MPI_FLOAT, MPI_COMM_WORLD);
    expect("an allgather in place", all, false, false);

    MPI_Type_contiguous(3, MPI_FLOAT, &triple);
    MPI_Type_commit(&triple);
    MPI_Allgather(in, COUNT / 3, triple, out, COUNT, MPI_FLOAT, MPI_COMM_WORLD);
    expect("an allgather from a contiguous derived type", all, false, false);
    MPI_Allgather(in, COUNT, MPI_FLOAT, out, COUNT / 3, triple, MPI_COMM_WORLD);
    expect("an allgather to a contiguous derived type", all, false, false);
    MPI_Type_free(&triple);

    /* Rank 0 alone has its values two floats apart, on both sides. */
    MPI_Type_vector(COUNT, 1, 2, MPI_FLOAT, &spread);
    MPI_Type_commit(&spread);
    memset(out, 0, sizeof out);
    memset(exact, 0, sizeof exact);
    MPI_Datatype type = user_rank == 0 ? spread : MPI_FLOAT;
    int count = user_rank == 0 ? 1 : COUNT;
    MPI_Allgather(in, count, type, out, COUNT, MPI_FLOAT, MPI_COMM_WORLD);
    PMPI_Allgather(in, count, type, exact, COUNT, MPI_FLOAT, MPI_COMM_WORLD);
    expect("an allgather of values with gaps on one rank", all, false, false);
    MPI_Type_free(&spread);
}

static void test_allgatherv(void)
{
    int counts[RANKS_MAX], displs[RANKS_MAX], packed[RANKS_MAX], at = 0;
    for (int r = 0; r < RANKS_MAX; r++) {
        counts[r] = COUNT - 50 * r;
        displs[r] = (RANKS_MAX - 1 - r) * (COUNT + 10);
        packed[r] = at;
        at += counts[r];
    }
    begin();
    int mine = counts[user_rank];
    size_t before = (size_t)displs[user_rank];
    MPI_Allgatherv(in, mine, MPI_FLOAT, out, counts, packed, MPI_FLOAT, MPI_COMM_WORLD);
    PMPI_Allgatherv(in, mine, MPI_FLOAT, exact, counts, packed, MPI_FLOAT, MPI_COMM_WORLD);
    expect("an allgatherv", (size_t)packed[user_nranks - 1] + (size_t)counts[user_nranks - 1],
           false, false);

    memset(out, 0, sizeof out);
    memset(exact, 0, sizeof exact);
    MPI_Allgatherv(in, mine, MPI_FLOAT, out, counts, displs, MPI_FLOAT, MPI_COMM_WORLD);
    PMPI_Allgatherv(in, mine, MPI_FLOAT, exact, counts, displs, MPI_FLOAT, MPI_COMM_WORLD);
    expect("an allgatherv to places out of order", ROOM, false, false);

    memset(out, 0, sizeof out);
    memcpy(out + before, in, (size_t)mine * sizeof *out);
    MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_FLOAT, out, counts, displs, MPI_FLOAT, MPI_COMM_WORLD);
    expect("an allgatherv in place", ROOM, false, false);
}

/* ------------------------------------------------------------------ what is never compressed */

static void add_floats(void *from, void *to, int *count, MPI_Datatype *type)
{
    const float *a = from;
    float *b = to;
    (void)type;
    for (int i = 0; i < *count; i++)
        b[i] += a[i];
}

static void test_other_values(void)
{
    static int ints[COUNT], sum[COUNT], bare[COUNT];
    static double doubles[COUNT], dsum[COUNT], dbare[COUNT];
    MPI_Op op;
    begin();
    for (int i = 0; i < COUNT; i++) {
        ints[i] = i * (user_rank + 1);
        doubles[i] = (double)in[i];
    }
    MPI_Allreduce(ints, sum, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    PMPI_Allreduce(ints, bare, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    expect_exact("an allreduce of ints", sum, bare, sizeof sum);
    MPI_Allreduce(doubles, dsum, COUNT, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    PMPI_Allreduce(doubles, dbare, COUNT, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    expect_exact("an allreduce of doubles", dsum, dbare, sizeof dsum);
    MPI_Allreduce(in, out, COUNT, MPI_FLOAT, MPI_MAX, MPI_COMM_WORLD);
    PMPI_Allreduce(in, exact, COUNT, MPI_FLOAT, MPI_MAX, MPI_COMM_WORLD);
    expect_exact("a maximum", out, exact, COUNT * sizeof *out);
    MPI_Allreduce(in, out, 200, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    PMPI_Allreduce(in, exact, 200, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    expect_exact("a message below min=", out, exact, 200 * sizeof *out);
    MPI_Op_create(add_floats, 1, &op);
    MPI_Allreduce(in, out, COUNT, MPI_FLOAT, op, MPI_COMM_WORLD);
    PMPI_Allreduce(in, exact, COUNT, MPI_FLOAT, op, MPI_COMM_WORLD);
    expect_exact("an operation of the program's own", out, exact, COUNT * sizeof *out);
    MPI_Op_free(&op);
}

static void test_nonblocking(void)
{
    MPI_Request requests[5];
    MPI_Status statuses[5];
    int counts[RANKS_MAX], displs[RANKS_MAX];
    for (int r = 0; r < RANKS_MAX; r++) {
        counts[r] = COUNT;
        displs[r] = r * COUNT;
    }
    float *results[5], *from = in;
    begin();
    for (int i = 0; i < 5; i++)
        results[i] = calloc((size_t)user_nranks * COUNT, sizeof **results);
    MPI_Iallreduce(from, results[0], COUNT, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &requests[0]);
    MPI_Ireduce_scatter_block(from, results[1], COUNT, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD,
                              &requests[1]);
    MPI_Ireduce_scatter(from, results[2], counts, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &requests[2]);
    MPI_Iallgather(from, COUNT, MPI_FLOAT, results[3], COUNT, MPI_FLOAT, MPI_COMM_WORLD,
                   &requests[3]);
    MPI_Iallgatherv(from, COUNT, MPI_FLOAT, results[4], counts, displs, MPI_FLOAT, MPI_COMM_WORLD,
                    &requests[4]);
    MPI_Waitall(5, requests, statuses);
    /* MPI may add in another order than in a blocking call: within float's own roundings. */
    PMPI_Allreduce(from, exact, COUNT, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    bool close = true;
    for (int i = 0; i < COUNT; i++)
        close = close &&
                fabsf(results[0][i] - exact[i]) <= (float)(user_nranks * user_nranks) * 0x1p-23f;
    user_ok(close, "a non-blocking allreduce without MPI_THREAD_MULTIPLE is MPI's");
    PMPI_Allgather(from, COUNT, MPI_FLOAT, exact, COUNT, MPI_FLOAT, MPI_COMM_WORLD);
    size_t bytes = (size_t)user_nranks * COUNT * sizeof *exact;
    expect_exact("a non-blocking allgather", results[3], exact, bytes);
    expect_exact("a non-blocking allgatherv", results[4], exact, bytes);
    user_ok(memcmp(results[1], results[2], COUNT * sizeof **results) == 0,
            "both non-blocking reduce-scatters agree");
    for (int i = 0; i < 5; i++)
        free(results[i]);
}

/* MPI 4 has them, and Open MPI 4 under another name. */
static void test_persistent(void)
{
#if MPI_VERSION >= 4 || defined OMPI_HAVE_MPI_EXT_PCOLLREQ
    MPI_Request request;
    begin();
#if MPI_VERSION >= 4
    MPI_Allreduce_init(in, out, COUNT, MPI_FLOAT, MPI_MAX, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
#else
    MPIX_Allreduce_init(in, out, COUNT, MPI_FLOAT, MPI_MAX, MPI_COMM_WORLD, MPI_INFO_NULL,
                        &request);
#endif
    for (int i = 0; i < 2; i++) {
        in[5] += 10;
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        PMPI_Allreduce(in, exact, COUNT, MPI_FLOAT, MPI_MAX, MPI_COMM_WORLD);
        expect_exact("a persistent allreduce", out, exact, COUNT * sizeof *out);
    }
    MPI_Request_free(&request);
#endif
}

int main(int argc, char **argv)
{
    user_start(&argc, &argv, MPI_THREAD_SINGLE);
    on = argc > 1 && strcmp(argv[1], "on") == 0;
    test_allreduce();
    test_special_values();
    test_reduce_scatter();
    test_allgather();
    test_allgatherv();
    test_other_values();
    test_nonblocking();
    test_persistent();
    MPI_Finalize();
    return user_end();
}
