/* Communicators under the drop-in: which of them are compressed, and that what hangs on them comes
 * and goes with them; threads; and errors through the program's own handler.
 *
 *     dropin_comms off | on          as in dropin_calls.c
 *     dropin_comms doubles           QCCL_DROPIN lets doubles through to the library
 *     dropin_comms named             QCCL_DROPIN takes the communicators named "fast" alone */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/dropin/user.h"

enum { COUNT = 3000, THREADS = 3, ROUNDS = 40 };

/* Whether an allreduce on comm has other bits than the bare MPI's: it was compressed. */
static bool compressed(MPI_Comm comm)
{
    static _Thread_local float in[COUNT], out[COUNT], exact[COUNT];
    user_fill(in, COUNT);
    MPI_Allreduce(in, out, COUNT, MPI_FLOAT, MPI_SUM, comm);
    PMPI_Allreduce(in, exact, COUNT, MPI_FLOAT, MPI_SUM, comm);
    return memcmp(out, exact, sizeof out) != 0;
}

static MPI_Comm half(void)
{
    MPI_Comm part;
    MPI_Comm_split(MPI_COMM_WORLD, user_rank * 2 < user_nranks ? 0 : 1, user_rank, &part);
    return part;
}

static void test_kinds(void)
{
    MPI_Comm part = half(), inter;
    user_ok(!compressed(MPI_COMM_SELF), "MPI_COMM_SELF is MPI's");
    /* Between the two halves of the world. */
    MPI_Intercomm_create(part, 0, MPI_COMM_WORLD,
                         user_rank * 2 < user_nranks ? (user_nranks + 1) / 2 : 0, 9, &inter);
    user_ok(!compressed(inter), "an inter-communicator is MPI's");
    MPI_Comm_free(&inter);
    MPI_Comm_free(&part);
}

static void test_coming_and_going(bool on)
{
    bool all = true;
    MPI_Comm dup, second;
    for (int i = 0; i < ROUNDS; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &dup);
        all = all && compressed(dup) == on;
        MPI_Comm_free(&dup);
    }
    user_ok(all, "communicators that are freed and made again work alike");
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    all = compressed(dup) == on;
    MPI_Comm_dup(dup, &second);
    all = all && compressed(second) == on && compressed(dup) == on;
    MPI_Comm_free(&dup);
    user_ok(all && compressed(second) == on, "a duplicate outlives the communicator it comes from");
    MPI_Comm_free(&second);
    /* Left for MPI_Finalize. */
    MPI_Comm_split(MPI_COMM_WORLD, 0, -user_rank, &second);
    user_ok(compressed(second) == on, "ranks may have another order");
}

/* ------------------------------------------------------------------ threads */

struct worker {
    pthread_t thread;
    MPI_Comm comm;
    bool on, good;
};

static void *work(void *argument)
{
    struct worker *worker = argument;
    worker->good = true;
    for (int i = 0; i < ROUNDS; i++)
        worker->good = compressed(worker->comm) == worker->on && worker->good;
    return NULL;
}

static void test_threads(bool on)
{
    struct worker workers[THREADS] = {0};
    bool good = true;
    for (int t = 0; t < THREADS; t++) {
        workers[t].on = on;
        MPI_Comm_dup(MPI_COMM_WORLD, &workers[t].comm);
    }
    for (int t = 0; t < THREADS; t++)
        pthread_create(&workers[t].thread, NULL, work, &workers[t]);
    for (int t = 0; t < THREADS; t++) {
        pthread_join(workers[t].thread, NULL);
        good = good && workers[t].good;
        MPI_Comm_free(&workers[t].comm);
    }
    user_ok(good, "threads with a communicator each work at once");
}

/* ------------------------------------------------------------------ errors */

static int handled;

static void count_error(MPI_Comm *comm, int *error, ...)
{
    (void)comm;
    handled += *error != MPI_SUCCESS;
}

/* Every rank promises COUNT values and gives fewer. */
static void test_errors(void)
{
    static float in[COUNT], out[COUNT * 8];
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    MPI_Comm dup;
    MPI_Errhandler handler;
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    MPI_Comm_create_errhandler(count_error, &handler);
    MPI_Comm_set_errhandler(dup, handler);
    int error = MPI_Allgather(in, COUNT - 1, MPI_FLOAT, out, COUNT, MPI_FLOAT, dup);
    user_ok(error != MPI_SUCCESS && handled == 1,
            "an error goes to the communicator's handler once");
    MPI_Error_string(error, text, &length);
    /* Or what a rank sees that hears of another's error before it has its own. */
    user_ok(strstr(text, "qccl: rank") && (strstr(text, "2999") || strstr(text, "gave up")),
            "its text says what was wrong: %s", text);
    user_ok(compressed(MPI_COMM_WORLD), "other communicators go on");
    MPI_Errhandler_free(&handler);
    MPI_Comm_free(&dup);
}

/* ------------------------------------------------------------------ rules */

static void test_doubles(void)
{
    static double in[COUNT], out[COUNT], exact[COUNT];
    static float narrow[COUNT], narrow_exact[COUNT];
    for (size_t i = 0; i < COUNT; i++)
        in[i] = (double)user_value(user_rank, i);
    MPI_Allreduce(in, out, COUNT, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    PMPI_Allreduce(in, exact, COUNT, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < COUNT; i++) {
        narrow[i] = (float)out[i];
        narrow_exact[i] = (float)exact[i];
    }
    struct user_error error = user_compare(narrow, narrow_exact, COUNT, true, true);
    user_ok(!error.same && error.within, "doubles that a rule names are compressed");
    MPI_Reduce_scatter_block(in, out, COUNT / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    PMPI_Reduce_scatter_block(in, exact, COUNT / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < COUNT; i++) {
        narrow[i] = (float)out[i];
        narrow_exact[i] = (float)exact[i];
    }
    error = user_compare(narrow, narrow_exact, COUNT / 8, true, false);
    user_ok(!error.same && error.within, "a reduce-scatter of doubles likewise");
    user_ok(!compressed(MPI_COMM_WORLD), "floats, which it does not name, are MPI's");
}

static void test_named(void)
{
    MPI_Comm fast, slow;
    MPI_Comm_dup(MPI_COMM_WORLD, &fast);
    MPI_Comm_dup(MPI_COMM_WORLD, &slow);
    MPI_Comm_set_name(fast, "fast 1");
    MPI_Comm_set_name(slow, "slow 1");
    user_ok(compressed(fast), "a communicator whose name a rule takes is compressed");
    user_ok(!compressed(slow), "another one is MPI's");
    MPI_Comm_free(&fast);
    MPI_Comm_free(&slow);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "off";
    bool on = strcmp(mode, "on") == 0;
    user_start(&argc, &argv, MPI_THREAD_MULTIPLE);
    if (strcmp(mode, "doubles") == 0) {
        test_doubles();
    } else if (strcmp(mode, "named") == 0) {
        test_named();
    } else {
        test_kinds();
        test_coming_and_going(on);
        test_threads(on);
        if (on)
            test_errors();
    }
    MPI_Finalize();
    return user_end();
}
