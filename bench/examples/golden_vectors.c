/* Prints the golden vectors of docs/wire-format.md: for each codec the bytes of a message and the
 * values it decodes to.
 *
 * Inputs are x[i] = ((37 * i) mod 101 - 50) / 8, which fp32 holds exactly.  Lines of 16 zero bytes
 * are left out.  The vector of the special groups has a NaN in its first group and zeros in its
 * second, and carries a checksum over its payload. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "qccl/qccl.h"

enum { COUNT_MAX = 96, MESSAGE_MAX = 1024 };

static const struct vector {
    const char *codec;
    size_t count;
    bool special;
} vectors[] = {
    {.codec = "none", .count = 5},
    {.codec = "bf16", .count = 5},
    {.codec = "int8:group=32", .count = 40},
    {.codec = "int4:group=32", .count = 40},
    {.codec = "int2:group=32", .count = 40},
    {.codec = "sr1:group=32", .count = 40},
    {.codec = "sign1:group=32", .count = 40},
    {.codec = "int4:group=32,hadamard=32,round=nearest", .count = 44},
    {.codec = "int4:group=32", .count = 96, .special = true},
};

static void check(qcclResult_t result)
{
    if (result == qcclSuccess)
        return;
    fprintf(stderr, "golden_vectors: %s\n", qcclGetLastError());
    exit(1);
}

static float input(const struct vector *v, size_t i)
{
    if (v->special && i < 64)
        return i == 7 ? NAN : i < 32 ? 1.0f : 0.0f;
    return (float)((int)(37 * i % 101) - 50) / 8.0f;
}

static void print_bytes(const unsigned char *bytes, size_t count)
{
    static const unsigned char zeros[16];
    for (size_t at = 0; at < count; at += 16) {
        if (memcmp(bytes + at, zeros, sizeof zeros) == 0)
            continue;
        printf("    %04zx ", at);
        for (size_t i = 0; i < 16; i++)
            printf(" %02x", bytes[at + i]);
        putchar('\n');
    }
}

static void print_vector(const struct vector *v)
{
    _Alignas(8) unsigned char message[MESSAGE_MAX];
    float values[COUNT_MAX], decoded[COUNT_MAX];
    qcclCodec_t codec;
    size_t bytes;
    qcclPosition_t position = {
        .seed = 0x0123456789abcdef, .segment = 2, .sequence = 3, .rank = 5, .stage = 1};
    for (size_t i = 0; i < v->count; i++)
        values[i] = input(v, i);
    setenv("QCCL_CHECK", v->special ? "1" : "0", 1);
    check(qcclCodecParse(v->codec, &codec));
    check(qcclEncodedBytes(&codec, v->count, &bytes));
    check(qcclEncode(&codec, &position, values, qcclFloat32, v->count, NULL, message,
                     sizeof message));
    check(qcclDecode(message, bytes, decoded, qcclFloat32, v->count, 0));

    printf("%s, %zu values%s: %zu bytes\n", v->codec, v->count,
           v->special ? ", special groups, checksum" : "", bytes);
    print_bytes(message, bytes);
    for (size_t i = 0; i < v->count; i++)
        printf("%s%.9g%s", i % 8 ? " " : "    ", decoded[i],
               i % 8 == 7 || i + 1 == v->count ? "\n" : "");
    putchar('\n');
}

int main(void)
{
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
        print_vector(&vectors[i]);
    return 0;
}
