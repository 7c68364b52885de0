/* The public calls that need nothing but base: version, sentences, element types. */
#include "base/status.h"

qcclResult_t qcclGetVersion(int *version)
{
    CHECK_ARG(version, "qcclGetVersion: version is NULL");
    *version = QCCL_VERSION;
    return qcclSuccess;
}

const char *qcclGetErrorString(qcclResult_t result)
{
    switch (result) {
#define QCCL_RESULT_CASE(name, value, sentence) \
    case name:                                  \
        return sentence;
        QCCL_RESULTS(QCCL_RESULT_CASE)
#undef QCCL_RESULT_CASE
    default:
        return "unknown result code";
    }
}

const char *qcclGetLastError(void)
{
    return qccl_last_error();
}

size_t qcclTypeBytes(qcclDataType_t datatype)
{
    static const uint8_t bytes[qcclNumTypes] = {
        [qcclInt8] = 1,    [qcclUint8] = 1,    [qcclInt32] = 4,   [qcclUint32] = 4,
        [qcclInt64] = 8,   [qcclUint64] = 8,   [qcclFloat16] = 2, [qcclFloat32] = 4,
        [qcclFloat64] = 8, [qcclBfloat16] = 2,
    };
    return (unsigned)datatype < qcclNumTypes ? bytes[datatype] : 0;
}
