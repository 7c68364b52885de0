/* Ranks as threads, and what is common to both kinds of world; see world.h. */
#include "bench/world.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/report.h"

struct thread_state {
    pthread_barrier_t barrier;
    double **slots; /* each rank's array during a combination */
};

static qcclResult_t thread_comms(struct bench_world *world, qcclComm_t *comms,
                                 const qcclConfig_t *config)
{
    return qcclCommInitThreads(comms, world->nranks, config);
}

static void thread_barrier(struct bench_world *world)
{
    struct thread_state *state = world->state;
    pthread_barrier_wait(&state->barrier);
}

static double combined(double a, double b, enum bench_combine how)
{
    switch (how) {
    case BENCH_SUM:
        return a + b;
    case BENCH_MAX:
        return a > b ? a : b;
    default:
        return a < b ? a : b;
    }
}

static void thread_combine(struct bench_world *world, int rank, double *values, size_t count,
                           enum bench_combine how)
{
    struct thread_state *state = world->state;
    state->slots[rank] = values;
    thread_barrier(world);
    if (rank == 0)
        for (int peer = 1; peer < world->nranks; peer++)
            for (size_t i = 0; i < count; i++)
                values[i] = combined(values[i], state->slots[peer][i], how);
    thread_barrier(world);
    if (rank != 0)
        for (size_t i = 0; i < count; i++)
            values[i] = state->slots[0][i];
    thread_barrier(world);
}

static int thread_agree(struct bench_world *world, int status)
{
    (void)world;
    return status;
}

static void thread_fail(struct bench_world *world)
{
    (void)world; /* the other ranks are threads of this process and end with it */
}

static void thread_close(struct bench_world *world)
{
    struct thread_state *state = world->state;
    pthread_barrier_destroy(&state->barrier);
    free(state->slots);
    free(state);
}

static const struct bench_backend thread_backend = {
    .name = "threads",
    .comms = thread_comms,
    .barrier = thread_barrier,
    .combine = thread_combine,
    .agree = thread_agree,
    .fail = thread_fail,
    .close = thread_close,
};

static int open_threads(struct bench_world *world, int ranks)
{
    struct thread_state *state = calloc(1, sizeof *state);
    double **slots = calloc((size_t)ranks, sizeof *slots);
    if (!state || !slots || pthread_barrier_init(&state->barrier, NULL, (unsigned)ranks)) {
        free(state);
        free(slots);
        return bench_error("no memory for %d ranks", ranks);
    }
    state->slots = slots;
    *world = (struct bench_world){
        .backend = &thread_backend, .nranks = ranks, .first = 0, .local = ranks, .state = state};
    return 0;
}

int bench_world_open(struct bench_world *world, int ranks, int ranks_by_default)
{
    if (!bench_launched())
        return open_threads(world, ranks ? ranks : ranks_by_default);
    int status = bench_world_open_mpi(world);
    if (status || !ranks || ranks == world->nranks)
        return status;
    status = bench_usage_error("--ranks %d, but the launcher started %d processes", ranks,
                               world->nranks);
    bench_world_close(world);
    return status;
}

qcclResult_t bench_world_comms(struct bench_world *world, qcclComm_t *comms,
                               const qcclConfig_t *config)
{
    return world->backend->comms(world, comms, config);
}

void bench_world_barrier(struct bench_world *world)
{
    world->backend->barrier(world);
}

void bench_world_combine(struct bench_world *world, int rank, double *values, size_t count,
                         enum bench_combine how)
{
    world->backend->combine(world, rank, values, count, how);
}

int bench_world_agree(struct bench_world *world, int status)
{
    return world->backend->agree(world, status);
}

struct thread {
    pthread_t id;
    void (*body)(void *context, int rank);
    void *context;
    int rank;
};

static void *run_thread(void *argument)
{
    const struct thread *thread = argument;
    thread->body(thread->context, thread->rank);
    return NULL;
}

int bench_world_run(struct bench_world *world, void (*body)(void *context, int rank), void *context)
{
    struct thread *threads = calloc((size_t)world->local, sizeof *threads);
    if (!threads)
        return bench_error("no memory for %d ranks", world->local);
    for (int i = 0; i < world->local; i++)
        threads[i] = (struct thread){.body = body, .context = context, .rank = world->first + i};
    /* The first rank runs here: MPI wants its calls from the thread that initialised it. */
    for (int i = 1; i < world->local; i++)
        if (pthread_create(&threads[i].id, NULL, run_thread, &threads[i]))
            bench_world_fail(world, threads[i].rank, "cannot start a thread for this rank");
    run_thread(&threads[0]);
    for (int i = 1; i < world->local; i++)
        pthread_join(threads[i].id, NULL);
    free(threads);
    return 0;
}

_Noreturn void bench_world_fail(struct bench_world *world, int rank, const char *format, ...)
{
    char sentence[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    bench_error("rank %d: %s", rank, sentence);
    world->backend->fail(world);
    fflush(NULL);
    _Exit(EXIT_WRONG);
}

void bench_world_close(struct bench_world *world)
{
    if (world->backend)
        world->backend->close(world);
    free(world->nodes);
    *world = (struct bench_world){.backend = NULL};
}
