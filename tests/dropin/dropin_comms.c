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

/* ------------------------------------------------------------------ non-blocking */

/* Every form of non-blocking call. */
struct forms {
    MPI_Comm comm;
    MPI_Request requests[5];
    float sum[COUNT], blocks[2][COUNT], all[2][8 * COUNT];
};

static void start_forms(struct forms *f, const float *in)
{
    static int counts[8], displs[8];
    MPI_Datatype pair;
    for (int r = 0; r < 8; r++) {
        counts[r] = COUNT / 2;
        displs[r] = r * COUNT / 2;
    }
    MPI_Type_contiguous(2, MPI_FLOAT, &pair);
    MPI_Type_commit(&pair);
    MPI_Iallreduce(in, f->sum, COUNT, MPI_FLOAT, MPI_SUM, f->comm, &f->requests[0]);
    MPI_Ireduce_scatter_block(in, f->blocks[0], COUNT, MPI_FLOAT, MPI_SUM, f->comm,
                              &f->requests[1]);
    MPI_Ireduce_scatter(in, f->blocks[1], counts, MPI_FLOAT, MPI_SUM, f->comm, &f->requests[2]);
    memcpy(f->all[0] + (size_t)user_rank * COUNT, in, COUNT * sizeof *in);
    MPI_Iallgather(MPI_IN_PLACE, 0, MPI_FLOAT, f->all[0], COUNT, MPI_FLOAT, f->comm,
                   &f->requests[3]);
    MPI_Iallgatherv(in, COUNT / 2, pair, f->all[1], counts, displs, pair, f->comm, &f->requests[4]);
    MPI_Type_free(&pair); /* while the call goes on */
}

/* Whether the results are those of the bare MPI, or near them. */
static bool forms_are_right(const struct forms *f, const float *in, bool on)
{
    static float exact[8 * COUNT];
    bool right = true;
    PMPI_Allreduce(in, exact, COUNT, MPI_FLOAT, MPI_SUM, f->comm);
    struct user_error error = user_compare(f->sum, exact, COUNT, true, true);
    right = error.within && (on ? !error.same : true) && right;
    PMPI_Reduce_scatter_block(in, exact, COUNT, MPI_FLOAT, MPI_SUM, f->comm);
    error = user_compare(f->blocks[0], exact, COUNT, true, false);
    right = error.within && (on ? !error.same : true) && right;
    PMPI_Reduce_scatter_block(in, exact, COUNT / 2, MPI_FLOAT, MPI_SUM, f->comm);
    error = user_compare(f->blocks[1], exact, COUNT / 2, true, false);
    right = error.within && (on ? !error.same : true) && right;
    PMPI_Allgather(in, COUNT, MPI_FLOAT, exact, COUNT, MPI_FLOAT, f->comm);
    for (int i = 0; i < 2; i++) {
        error = user_compare(f->all[i], exact, (size_t)user_nranks * COUNT, false, false);
        right = error.within && error.same != on && right;
    }
    return right;
}

/* On two communicators, in another order on odd ranks, with a blocking call behind; waits in some
 * ways. */
static void test_nonblocking(bool on)
{
    static struct forms forms[2];
    static float in[8 * COUNT];
    MPI_Status statuses[5];
    int done = 0, index;
    bool blocking = true;
    user_fill(in, 8 * COUNT);
    for (int i = 0; i < 2; i++)
        MPI_Comm_dup(MPI_COMM_WORLD, &forms[i].comm);
    for (int i = 0; i < 2; i++) {
        struct forms *f = &forms[user_rank % 2 ? 1 - i : i];
        start_forms(f, in);
    }
    for (int i = 0; i < 2; i++)
        blocking = compressed(forms[i].comm) == on && blocking;
    user_ok(blocking, "a blocking call behind non-blocking ones is %s",
            on ? "compressed" : "MPI's");
    MPI_Waitall(5, forms[0].requests, statuses);
    while (!done)
        MPI_Test(&forms[1].requests[0], &done, MPI_STATUS_IGNORE);
    for (int i = 1; i < 5; i++)
        MPI_Waitany(5, forms[1].requests, &index, MPI_STATUS_IGNORE);
    for (int i = 0; i < 2; i++) {
        user_ok(forms_are_right(&forms[i], in, on), "non-blocking calls are %s",
                on ? "compressed, and inside the bound" : "MPI's");
        for (int k = 0; k < 5; k++)
            done = done && forms[i].requests[k] == MPI_REQUEST_NULL;
        MPI_Comm_free(&forms[i].comm);
    }
    user_ok(done, "their requests are done");
}

/* Communicators that are freed while calls go on, beside a non-blocking call of MPI's own. */
static void test_freed_early(void)
{
    static float values[COUNT], exact[COUNT], root[COUNT];
    bool right = true;
    for (int i = 0; i < ROUNDS; i++) {
        MPI_Comm dup;
        MPI_Request requests[2];
        MPI_Status statuses[2];
        user_fill(values, COUNT);
        memcpy(root, values, sizeof root);
        PMPI_Allreduce(values, exact, COUNT, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        MPI_Comm_dup(MPI_COMM_WORLD, &dup);
        MPI_Iallreduce(MPI_IN_PLACE, values, COUNT, MPI_FLOAT, MPI_SUM, dup, &requests[0]);
        MPI_Ibcast(root, COUNT, MPI_FLOAT, 0, dup, &requests[1]);
        MPI_Comm_free(&dup);
        MPI_Waitall(2, requests, statuses);
        struct user_error error = user_compare(values, exact, COUNT, true, true);
        right = right && error.within && !error.same && root[5] == user_value(0, 5);
    }
    user_ok(right, "communicators may be freed while non-blocking calls go on");
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
    MPI_Request request;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* requests know no other */
    error = MPI_Iallgather(in, COUNT, MPI_FLOAT, out, COUNT, MPI_FLOAT, dup, &request);
    user_ok(error == MPI_SUCCESS ? MPI_Wait(&request, MPI_STATUS_IGNORE) != MPI_SUCCESS : true,
            "a non-blocking call on the broken communicator is an error, and no hang");
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

static bool compressed_later(MPI_Comm comm)
{
    static float in[COUNT], out[COUNT], exact[COUNT];
    MPI_Request request;
    user_fill(in, COUNT);
    MPI_Iallreduce(in, out, COUNT, MPI_FLOAT, MPI_SUM, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    PMPI_Allreduce(in, exact, COUNT, MPI_FLOAT, MPI_SUM, comm);
    return memcmp(out, exact, sizeof out) != 0;
}

static void test_named(void)
{
    static float values[COUNT];
    MPI_Comm fast, slow;
    MPI_Comm_dup(MPI_COMM_WORLD, &fast);
    MPI_Comm_dup(MPI_COMM_WORLD, &slow);
    MPI_Comm_set_name(fast, "fast 1");
    MPI_Comm_set_name(slow, "slow 1");
    user_ok(compressed(fast), "a communicator whose name a rule takes is compressed");
    user_ok(!compressed_later(fast), "a non-blocking call cannot compare names, and is MPI's");
    user_ok(!compressed(slow), "another one is MPI's");
    MPI_Comm_set_name(slow, user_rank ? "slow 2" : "fast 2");
    MPI_Comm_set_errhandler(slow, MPI_ERRORS_RETURN);
    user_ok(MPI_Allreduce(MPI_IN_PLACE, values, COUNT, MPI_FLOAT, MPI_SUM, slow) != MPI_SUCCESS,
            "a name that a rule takes on some ranks only is an error on all");
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
        test_nonblocking(on);
        if (on) { /* Open MPI 4.1 itself crashes when a communicator is freed early */
            test_freed_early();
            test_errors();
        }
    }
    MPI_Finalize();
    return user_end();
}
