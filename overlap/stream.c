/* Streams and events.
 *
 * A stream counts the jobs that were put on it and those that are done; an event is a place in that
 * count, so recording one costs nothing and waiting for one is waiting for a number.  The counts
 * outlive the stream as long as an event refers to them. */
#include "overlap/stream.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/trace.h"

struct job {
    qcclResult_t (*run)(void *);
    void *argument;
    uint64_t place; /* so many are done before it */
    struct job *next;
};

struct qcclStream {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a job came, or one is done */
    struct job *first, **end;
    uint64_t put, done;
    qcclResult_t error; /* the first, and its sentence */
    char sentence[512];
    int priority;
    bool closing;
    int users; /* the stream itself, events and jobs that wait for it */
    pthread_t worker;
};

struct qcclEvent {
    pthread_mutex_t lock;
    struct qcclStream *stream; /* NULL: complete */
    uint64_t place;            /* complete once so many jobs are done */
};

/* A place in a stream that another one waits for. */
struct place {
    struct qcclStream *stream;
    uint64_t place;
};

/* ------------------------------------------------------------------ life of the counts */

static void use(struct qcclStream *s)
{
    pthread_mutex_lock(&s->lock);
    s->users++;
    pthread_mutex_unlock(&s->lock);
}

static void release(struct qcclStream *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    bool last = --s->users == 0;
    pthread_mutex_unlock(&s->lock);
    if (!last)
        return;
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    qccl_free(s);
}

static void await(struct qcclStream *s, uint64_t place)
{
    pthread_mutex_lock(&s->lock);
    while (s->done < place)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

/* ------------------------------------------------------------------ the worker */

/* With the lock held. */
static void finish(struct qcclStream *s, qcclResult_t result)
{
    if (result != qcclSuccess && s->error == qcclSuccess) {
        s->error = result;
        snprintf(s->sentence, sizeof s->sentence, "%s", qccl_last_error());
    }
    s->done++;
    pthread_cond_broadcast(&s->changed);
}

/* Runs the first job, with the lock held before and after. */
static void run_first(struct qcclStream *s)
{
    struct job *job = s->first;
    s->first = job->next;
    if (!s->first)
        s->end = &s->first;
    pthread_mutex_unlock(&s->lock);
    qcclResult_t result = job->run(job->argument);
    qccl_free(job);
    pthread_mutex_lock(&s->lock);
    finish(s, result);
}

/* The calling thread asks for the shortest slice.  A worker mostly waits, and once its message is
 * there the next one leaves only when it runs again.  Since Linux 6.12 a slice says how soon that
 * is, and not how much a thread gets; before, this does nothing. */
static void ask_for_short_slices(void)
{
    const struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t slice_ns, deadline, period;
    } wanted = {.size = sizeof wanted,
                .policy = SCHED_OTHER,
                .nice = getpriority(PRIO_PROCESS, 0),
                .slice_ns = 100000}; /* the least there is */
    if (sched_getscheduler(0) == SCHED_OTHER)
        syscall(SYS_sched_setattr, 0, &wanted, 0);
}

static void *work(void *argument)
{
    struct qcclStream *s = argument;
    char name[16], row[TRACE_NAME];
    snprintf(name, sizeof name, "qccl stream %d", s->priority);
    snprintf(row, sizeof row, "stream (priority %d)", s->priority);
    pthread_setname_np(pthread_self(), name);
    qccl_trace_thread(row);
    /* Linux has a niceness for each thread: here its maker's, and the priority on top. */
    setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + s->priority);
    ask_for_short_slices();
    pthread_mutex_lock(&s->lock);
    while (s->first || !s->closing)
        if (s->first && s->first->place == s->done) /* else another thread does what is before it */
            run_first(s);
        else
            pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

qcclResult_t qcclStreamCreate(qcclStream_t *stream, int priority)
{
    CHECK_ARG(stream, "qcclStreamCreate: stream is NULL");
    CHECK_ARG(priority >= 0 && priority <= QCCL_PRIORITY_LOWEST,
              "qcclStreamCreate: priority %d is not in 0..%d", priority, QCCL_PRIORITY_LOWEST);
    struct qcclStream *s = qccl_alloc(1, sizeof *s);
    if (!s)
        return qccl_fail(qcclOutOfMemory, "no memory for a stream");
    s->end = &s->first;
    s->priority = priority;
    s->users = 1;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    int error = pthread_create(&s->worker, NULL, work, s);
    if (error) {
        release(s);
        return qccl_fail(qcclSystemError, "qcclStreamCreate: no thread: %s", strerror(error));
    }
    *stream = s;
    return qcclSuccess;
}

/* A function that the stream runs would wait for its own end. */
static qcclResult_t check_waiter(const struct qcclStream *s, const char *name)
{
    if (!pthread_equal(pthread_self(), s->worker))
        return qcclSuccess;
    return qccl_fail(qcclInvalidUsage, "%s: called by a function that this stream runs", name);
}

qcclResult_t qcclStreamDestroy(qcclStream_t stream)
{
    if (!stream)
        return qcclSuccess;
    RETURN_IF_FAILED(check_waiter(stream, "qcclStreamDestroy"));
    pthread_mutex_lock(&stream->lock);
    stream->closing = true;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    pthread_join(stream->worker, NULL);
    qcclResult_t result = stream->error;
    if (result != qcclSuccess)
        qccl_fail(result, "%s", stream->sentence);
    release(stream);
    return result;
}

/* ------------------------------------------------------------------ the queue */

int qccl_stream_priority(qcclStream_t stream)
{
    return stream->priority;
}

qcclResult_t qccl_stream_put_placed(qcclStream_t stream, void (*placed)(void *),
                                    qcclResult_t (*run)(void *), void *argument)
{
    struct job *job = qccl_alloc(1, sizeof *job);
    if (!job)
        return qccl_fail(qcclOutOfMemory, "no memory for work on a stream");
    job->run = run;
    job->argument = argument;
    pthread_mutex_lock(&stream->lock);
    if (placed)
        placed(argument);
    *stream->end = job;
    stream->end = &job->next;
    job->place = stream->put++;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    return qcclSuccess;
}

qcclResult_t qccl_stream_put(qcclStream_t stream, qcclResult_t (*run)(void *), void *argument)
{
    return qccl_stream_put_placed(stream, NULL, run, argument);
}

void qccl_stream_run(qcclStream_t stream, void (*placed)(void *), qcclResult_t (*run)(void *),
                     void *argument)
{
    pthread_mutex_lock(&stream->lock);
    placed(argument);
    for (uint64_t place = stream->put++; stream->done < place;)
        pthread_cond_wait(&stream->changed, &stream->lock);
    pthread_mutex_unlock(&stream->lock);
    qcclResult_t result = run(argument);
    pthread_mutex_lock(&stream->lock);
    finish(stream, result);
    pthread_mutex_unlock(&stream->lock);
}

qcclResult_t qcclStreamLaunch(qcclStream_t stream, qcclResult_t (*function)(void *), void *argument)
{
    CHECK_ARG(stream && function, "qcclStreamLaunch: %s is NULL", stream ? "function" : "stream");
    return qccl_stream_put(stream, function, argument);
}

/* The first error of the stream's work.  Called with the lock held. */
static qcclResult_t first_error(const struct qcclStream *s)
{
    return s->error == qcclSuccess ? qcclSuccess : qccl_fail(s->error, "%s", s->sentence);
}

qcclResult_t qcclStreamSynchronize(qcclStream_t stream)
{
    CHECK_ARG(stream, "qcclStreamSynchronize: stream is NULL");
    RETURN_IF_FAILED(check_waiter(stream, "qcclStreamSynchronize"));
    pthread_mutex_lock(&stream->lock);
    for (uint64_t place = stream->put; stream->done < place;)
        pthread_cond_wait(&stream->changed, &stream->lock);
    qcclResult_t result = first_error(stream);
    pthread_mutex_unlock(&stream->lock);
    return result;
}

qcclResult_t qcclStreamQuery(qcclStream_t stream)
{
    CHECK_ARG(stream, "qcclStreamQuery: stream is NULL");
    pthread_mutex_lock(&stream->lock);
    qcclResult_t result = stream->done < stream->put ? qcclInProgress : first_error(stream);
    pthread_mutex_unlock(&stream->lock);
    return result;
}

/* ------------------------------------------------------------------ events */

qcclResult_t qcclEventCreate(qcclEvent_t *event)
{
    CHECK_ARG(event, "qcclEventCreate: event is NULL");
    struct qcclEvent *e = qccl_alloc(1, sizeof *e);
    if (!e)
        return qccl_fail(qcclOutOfMemory, "no memory for an event");
    pthread_mutex_init(&e->lock, NULL);
    *event = e;
    return qcclSuccess;
}

qcclResult_t qcclEventDestroy(qcclEvent_t event)
{
    if (!event)
        return qcclSuccess;
    release(event->stream);
    pthread_mutex_destroy(&event->lock);
    qccl_free(event);
    return qcclSuccess;
}

qcclResult_t qcclEventRecord(qcclEvent_t event, qcclStream_t stream)
{
    uint64_t place = 0;
    CHECK_ARG(event, "qcclEventRecord: event is NULL");
    if (stream) {
        pthread_mutex_lock(&stream->lock);
        stream->users++;
        place = stream->put;
        pthread_mutex_unlock(&stream->lock);
    }
    pthread_mutex_lock(&event->lock);
    struct qcclStream *before = event->stream;
    event->stream = stream;
    event->place = place;
    pthread_mutex_unlock(&event->lock);
    release(before);
    return qcclSuccess;
}

/* Where the event stands now; its stream, when not NULL, has one user more. */
static struct place place_of(struct qcclEvent *event)
{
    pthread_mutex_lock(&event->lock);
    struct place at = {.stream = event->stream, .place = event->place};
    if (at.stream)
        use(at.stream);
    pthread_mutex_unlock(&event->lock);
    return at;
}

qcclResult_t qcclEventSynchronize(qcclEvent_t event)
{
    CHECK_ARG(event, "qcclEventSynchronize: event is NULL");
    struct place at = place_of(event);
    if (at.stream)
        await(at.stream, at.place);
    release(at.stream);
    return qcclSuccess;
}

qcclResult_t qcclEventQuery(qcclEvent_t event)
{
    CHECK_ARG(event, "qcclEventQuery: event is NULL");
    struct place at = place_of(event);
    bool complete = true;
    if (at.stream) {
        pthread_mutex_lock(&at.stream->lock);
        complete = at.stream->done >= at.place;
        pthread_mutex_unlock(&at.stream->lock);
    }
    release(at.stream);
    return complete ? qcclSuccess : qcclInProgress;
}

static qcclResult_t await_place(void *argument)
{
    struct place *at = argument;
    await(at->stream, at->place);
    release(at->stream);
    qccl_free(at);
    return qcclSuccess;
}

qcclResult_t qcclStreamWaitEvent(qcclStream_t stream, qcclEvent_t event)
{
    CHECK_ARG(stream && event, "qcclStreamWaitEvent: %s is NULL", stream ? "event" : "stream");
    struct place at = place_of(event);
    if (!at.stream || at.stream == stream) { /* its own order sees to that */
        release(at.stream);
        return qcclSuccess;
    }
    struct place *kept = qccl_alloc(1, sizeof *kept);
    qcclResult_t result = qcclOutOfMemory;
    if (kept) {
        *kept = at;
        result = qccl_stream_put(stream, await_place, kept);
    }
    if (result == qcclSuccess)
        return qcclSuccess;
    release(at.stream);
    qccl_free(kept);
    return qccl_fail(result, "no memory to wait for an event");
}
