/* Arbitrary bytes as a message: decoding either refuses them and writes nothing, or gives every
 * value, and nothing is read or written beyond the buffers.  Each input is tried as it is and with
 * its checksums made right, so that the fields behind them are reached. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "tests/fuzz/fuzz.h"

enum { HEADER_BYTES = 64, COUNT_MOST = 1 << 16 };

static uint64_t field(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    while (bytes--)
        value = value << 8 | at[bytes];
    return value;
}

static void put(uint8_t *at, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

static void make_sums_right(uint8_t *message, size_t size)
{
    memcpy(message, "QCCL\1", 5);
    if (message[7] & 2)
        put(message + 48, XXH3_64bits(message + HEADER_BYTES, size - HEADER_BYTES));
    put(message + 56, XXH3_64bits(message, 56));
}

/* Decodes to one type, into a buffer of exactly the right size. */
static qcclResult_t decode_as(const uint8_t *message, size_t size, qcclDataType_t type,
                              size_t count, int add)
{
    size_t bytes = count * qcclTypeBytes(type);
    uint8_t *out = malloc(bytes + 1);
    if (!out)
        return qcclOutOfMemory;
    memset(out, 0x3c, bytes);
    qcclResult_t result = qcclDecode(message, size, out, type, count, add);
    fuzz_require(result == qcclSuccess || result == qcclCorruptMessage);
    for (size_t i = 0; result != qcclSuccess && i < bytes; i++)
        fuzz_require(out[i] == 0x3c);
    free(out);
    return result;
}

/* A message that decodes also sums with itself and encodes again. */
static void sum_twice(const uint8_t *message, size_t size, size_t count)
{
    const void *messages[2] = {message, message};
    const size_t sizes[2] = {size, size};
    const qcclCodec_t codec = {.format = qcclFormatInt4, .group = 64};
    const qcclPosition_t position = {.seed = size};
    size_t bytes;
    fuzz_require(qcclEncodedBytes(&codec, count, &bytes) == qcclSuccess);
    uint8_t *again = aligned_alloc(64, (bytes + 63) / 64 * 64);
    float *values = malloc((count + 1) * sizeof *values);
    if (again && values) {
        fuzz_require(qcclDecodeSum(messages, sizes, 2, 0.5f, values, qcclFloat32, count) ==
                     qcclSuccess);
        fuzz_require(qcclDecodeSumEncode(messages, sizes, 2, 0.5f, &codec, &position, count, again,
                                         bytes) == qcclSuccess);
        fuzz_require(decode_as(again, bytes, qcclFloat32, count, 0) == qcclSuccess);
    }
    free(again);
    free(values);
}

static void decode_all(const uint8_t *message, size_t size)
{
    uint64_t count = size >= HEADER_BYTES ? field(message + 16, 8) : 1;
    if (count > COUNT_MOST)
        count = COUNT_MOST;
    qcclResult_t first = decode_as(message, size, qcclFloat32, count, 0);
    fuzz_require(decode_as(message, size, qcclFloat32, count, 1) == first);
    fuzz_require(decode_as(message, size, qcclBfloat16, count, 0) == first);
    fuzz_require(decode_as(message, size, qcclFloat16, count, 1) == first);
    fuzz_require(decode_as(message, size, qcclFloat32, count + 1, 0) == qcclCorruptMessage);
    if (first == qcclSuccess)
        sum_twice(message, size, count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *message = malloc(size ? size : 1); /* aligned, and not a byte longer than it may be */
    if (!message)
        return 0;
    memcpy(message, data, size);
    decode_all(message, size);
    if (size >= HEADER_BYTES) {
        make_sums_right(message, size);
        decode_all(message, size);
    }
    free(message);
    return 0;
}
