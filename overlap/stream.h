/* Streams: ordered queues, each with a worker thread.  What they run is opaque to them. */
#ifndef QCCL_OVERLAP_STREAM_H
#define QCCL_OVERLAP_STREAM_H

#include "qccl/qccl.h"

/* Puts run(argument) at the end of the queue; on an error it will not be run. */
qcclResult_t qccl_stream_put(qcclStream_t stream, qcclResult_t (*run)(void *), void *argument);

int qccl_stream_priority(qcclStream_t stream);

#endif
