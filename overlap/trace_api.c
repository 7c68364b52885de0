/* The program's own marks in the timeline, so that communication is seen beside what it hides
 * under. */
#include "base/status.h"
#include "base/trace.h"

qcclResult_t qcclTraceBegin(int rank, const char *name)
{
    CHECK_ARG(name, "qcclTraceBegin: name is NULL");
    CHECK_ARG(rank >= 0, "qcclTraceBegin: rank %d is negative", rank);
    qccl_trace_begin(rank, name);
    return qcclSuccess;
}

qcclResult_t qcclTraceEnd(int rank)
{
    CHECK_ARG(rank >= 0, "qcclTraceEnd: rank %d is negative", rank);
    qccl_trace_end(rank);
    return qcclSuccess;
}
