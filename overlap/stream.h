/* Streams: ordered queues, each with a worker thread.  What they run is opaque to them. */
#ifndef QCCL_OVERLAP_STREAM_H
#define QCCL_OVERLAP_STREAM_H

#include "qccl/qccl.h"

/* Puts run(argument) at the end of the queue; on an error it will not be run. */
qcclResult_t qccl_stream_put(qcclStream_t stream, qcclResult_t (*run)(void *), void *argument);

/* The same, and as the work gets its place it is told: placed(argument) is called once, before run,
 * and no other work gets a place on the stream meanwhile; on an error it is not called.  Must not
 * use the stream. */
qcclResult_t qccl_stream_put_placed(qcclStream_t stream, void (*placed)(void *),
                                    qcclResult_t (*run)(void *), void *argument);

/* The same, but the work is done by the calling thread, which waits for what is before it; the
 * stream keeps its error as of all its work. */
void qccl_stream_run(qcclStream_t stream, void (*placed)(void *), qcclResult_t (*run)(void *),
                     void *argument);

int qccl_stream_priority(qcclStream_t stream);

#endif
