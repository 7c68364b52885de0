/* The public codec calls: arguments checked, then handed to the block loops. */
#include "base/cpu.h"
#include "base/environment.h"
#include "base/memory.h"
#include "base/status.h"
#include "quant/codec.h"
#include "quant/segment.h"

static qcclResult_t check_values(const char *call, const void *values, qcclDataType_t type,
                                 size_t count)
{
    CHECK_ARG(type == qcclFloat32 || type == qcclBfloat16 || type == qcclFloat16,
              "%s: datatype %d is none of fp32, bf16, fp16", call, (int)type);
    CHECK_ARG(values || count == 0, "%s: values is NULL for %zu values", call, count);
    CHECK_ARG(count <= (size_t)1 << 48, "%s: count %zu is too large", call, count);
    return qcclSuccess;
}

static qcclResult_t check_target(const char *call, const qcclCodec_t *codec,
                                 const qcclPosition_t *position, size_t count, const void *message,
                                 size_t capacity)
{
    CHECK_ARG(codec && position && message, "%s: %s is NULL", call,
              !codec      ? "codec"
              : !position ? "position"
                          : "message");
    RETURN_IF_FAILED(qccl_codec_check(codec));
    CHECK_ARG((uintptr_t)message % 8 == 0, "%s: message is not aligned to 8 bytes", call);
    CHECK_ARG(position->rank < 1u << 24 && position->stage <= WIRE_STAGE_MAX,
              "%s: position has rank %u, stage %u; below 2^24 and 128 are allowed", call,
              (unsigned)position->rank, (unsigned)position->stage);
    CHECK_ARG(position->first % TILE_ELEMS == 0 && position->first % codec->group == 0,
              "%s: first=%llu is no multiple of 128 and of group=%d", call,
              (unsigned long long)position->first, codec->group);
    CHECK_ARG(qccl_wire_bytes(codec, count) <= capacity,
              "%s: a message of %zu values takes %zu bytes, capacity is %zu", call, count,
              qccl_wire_bytes(codec, count), capacity);
    return qcclSuccess;
}

static qcclResult_t open_message(const char *call, const void *bytes_of_message, size_t bytes,
                                 size_t count, struct message *m)
{
    CHECK_ARG(bytes_of_message, "%s: message is NULL", call);
    CHECK_ARG((uintptr_t)bytes_of_message % 8 == 0, "%s: message is not aligned to 8 bytes", call);
    RETURN_IF_FAILED(qccl_wire_open(bytes_of_message, bytes, m));
    if (m->count != count)
        return qccl_fail(qcclCorruptMessage, "%s: message has %zu values instead of %zu", call,
                         m->count, count);
    return qcclSuccess;
}

qcclResult_t qcclEncodedBytes(const qcclCodec_t *codec, size_t count, size_t *bytes)
{
    CHECK_ARG(codec && bytes, "qcclEncodedBytes: %s is NULL", codec ? "bytes" : "codec");
    CHECK_ARG(count <= (size_t)1 << 48, "qcclEncodedBytes: count %zu is too large", count);
    RETURN_IF_FAILED(qccl_codec_check(codec));
    *bytes = qccl_wire_bytes(codec, count);
    return qcclSuccess;
}

qcclResult_t qcclEncode(const qcclCodec_t *codec, const qcclPosition_t *position,
                        const void *values, qcclDataType_t datatype, size_t count, float *residual,
                        void *message, size_t capacity)
{
    RETURN_IF_FAILED(check_values("qcclEncode", values, datatype, count));
    RETURN_IF_FAILED(check_target("qcclEncode", codec, position, count, message, capacity));
    CHECK_ARG((uintptr_t)residual % sizeof(float) == 0,
              "qcclEncode: residual is not aligned to 4 bytes");
    struct source source = {.values = values, .type = datatype};
    struct encoding encoding = {.codec = *codec,
                                .position = *position,
                                .residual = residual,
                                .checked = qccl_env_flag("QCCL_CHECK"),
                                .message = message};
    return qccl_encode_segment(&source, count, &encoding);
}

qcclResult_t qcclDecode(const void *message, size_t bytes, void *values, qcclDataType_t datatype,
                        size_t count, int add)
{
    struct message m;
    RETURN_IF_FAILED(check_values("qcclDecode", values, datatype, count));
    RETURN_IF_FAILED(open_message("qcclDecode", message, bytes, count, &m));
    return qccl_decode_segment(&m, values, datatype, add != 0);
}

enum { MESSAGES_MAX = 1 << 16, MESSAGES_ON_STACK = 16 };

/* Opens all messages of a sum and runs it; open and parts have room for all. */
static qcclResult_t sum_terms(const char *call, const void *const *messages, const size_t *bytes,
                              int nmessages, struct message *open, struct part *parts,
                              struct reduction *r)
{
    for (int i = 0; i < nmessages; i++) {
        RETURN_IF_FAILED(open_message(call, messages[i], bytes[i], r->count, &open[i]));
        const qcclCodec_t *a = &open[0].codec, *b = &open[i].codec;
        CHECK_ARG(a->format == b->format && a->group == b->group && a->hadamard == b->hadamard,
                  "%s: message %d has another codec than message 0", call, i);
        parts[i] = (struct part){.message = &open[i]};
    }
    r->codec = open[0].codec;
    r->parts = parts;
    r->nparts = nmessages;
    return qccl_reduce_segment(r);
}

static qcclResult_t sum_messages(const char *call, const void *const *messages, const size_t *bytes,
                                 int nmessages, struct reduction *r)
{
    struct message open[MESSAGES_ON_STACK], *more;
    struct part parts[MESSAGES_ON_STACK], *more_parts;
    CHECK_ARG(messages && bytes, "%s: %s is NULL", call, messages ? "bytes" : "messages");
    CHECK_ARG(nmessages >= 1 && nmessages <= MESSAGES_MAX, "%s: nmessages %d is not in 1..%d", call,
              nmessages, MESSAGES_MAX);
    if (nmessages <= MESSAGES_ON_STACK)
        return sum_terms(call, messages, bytes, nmessages, open, parts, r);
    more = qccl_alloc((size_t)nmessages, sizeof *more);
    more_parts = qccl_alloc((size_t)nmessages, sizeof *more_parts);
    qcclResult_t result = qcclOutOfMemory;
    if (more && more_parts)
        result = sum_terms(call, messages, bytes, nmessages, more, more_parts, r);
    else
        qccl_fail(result, "%s: no memory to list %d messages", call, nmessages);
    qccl_free(more_parts);
    qccl_free(more);
    return result;
}

qcclResult_t qcclDecodeSum(const void *const *messages, const size_t *bytes, int nmessages,
                           float weight, void *values, qcclDataType_t datatype, size_t count)
{
    RETURN_IF_FAILED(check_values("qcclDecodeSum", values, datatype, count));
    struct reduction r = {.count = count, .weight = weight, .values = values, .type = datatype};
    return sum_messages("qcclDecodeSum", messages, bytes, nmessages, &r);
}

qcclResult_t qcclDecodeSumEncode(const void *const *messages, const size_t *bytes, int nmessages,
                                 float weight, const qcclCodec_t *codec,
                                 const qcclPosition_t *position, size_t count, void *message,
                                 size_t capacity)
{
    CHECK_ARG(count <= (size_t)1 << 48, "qcclDecodeSumEncode: count %zu is too large", count);
    RETURN_IF_FAILED(
        check_target("qcclDecodeSumEncode", codec, position, count, message, capacity));
    struct encoding encoding = {.codec = *codec,
                                .position = *position,
                                .checked = qccl_env_flag("QCCL_CHECK"),
                                .message = message};
    struct reduction r = {.count = count, .weight = weight, .encoding = &encoding};
    return sum_messages("qcclDecodeSumEncode", messages, bytes, nmessages, &r);
}

const char *qcclCpuName(int index)
{
    int level = (int)qccl_cpu_detected() - index;
    return index < 0 || level < 0 ? NULL : qccl_cpu_name((enum qccl_cpu)level);
}

qcclResult_t qcclSetCpu(const char *name)
{
    return qccl_cpu_cap(name);
}
