/* The timeline that QCCL_TRACE=out.json asks for: what each rank's threads did and when, in
 * Chrome's trace event format (docs/timeline.md).
 *
 * Off, a mark costs one load.  On, a thread writes marks into memory of its own without a lock; the
 * file is written when the last communicator goes and when the process ends.  Marks of one thread
 * nest.  Whatever goes wrong with a timeline is logged and is never an error of a call. */
#ifndef QCCL_BASE_TRACE_H
#define QCCL_BASE_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    TRACE_CHUNK = 512,  /* marks that a thread's memory grows by */
    TRACE_CHUNKS = 512, /* of all threads together; what comes after is dropped, and counted */
    TRACE_DEPTH = 16,   /* marks open at once in one thread */
    TRACE_NAME = 32,    /* bytes of a name with its zero; longer ones are cut */
};

extern atomic_bool qccl_trace_is_on;

static inline bool qccl_trace_on(void)
{
    return atomic_load_explicit(&qccl_trace_is_on, memory_order_relaxed);
}

/* The same with the timeline on. */
void qccl_trace_push(int rank, const char *name);
void qccl_trace_pop(int rank);
void qccl_trace_add(int rank, const char *name, uint64_t begin_ns, uint64_t end_ns);

/* What this thread does for a rank from now on, until the matching end. */
static inline void qccl_trace_begin(int rank, const char *name)
{
    if (qccl_trace_on())
        qccl_trace_push(rank, name);
}

static inline void qccl_trace_end(int rank)
{
    if (qccl_trace_on())
        qccl_trace_pop(rank);
}

/* What this thread did for a rank, by CLOCK_MONOTONIC; spans that touch and have the same name
 * become one. */
static inline void qccl_trace_span(int rank, const char *name, uint64_t begin_ns, uint64_t end_ns)
{
    if (qccl_trace_on())
        qccl_trace_add(rank, name, begin_ns, end_ns);
}

/* Names the calling thread's row, whether or not the timeline is on. */
void qccl_trace_thread(const char *name);

/* A communicator begins and ends its life.  The first one reads QCCL_TRACE: another path than
 * before begins a new timeline, none turns it off; the last one writes the file. */
void qccl_trace_open(void);
void qccl_trace_close(void);

/* This process is one rank of several: its file is out.rankN.json.  The first call counts. */
void qccl_trace_rank_file(int rank);

#endif
