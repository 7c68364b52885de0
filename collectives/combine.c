/* Four arithmetic domains serve all types: signed and unsigned 64-bit integers, whose low bits are
 * those of the narrow types, float and double.  A block is widened, combined part by part, and
 * narrowed. */
#include "collectives/combine.h"

#include <string.h>

#include "base/half.h"

enum { BLOCK = 512 };

union block {
    int64_t i[BLOCK];
    uint64_t u[BLOCK];
    float f[BLOCK];
    double d[BLOCK];
};

enum domain { SIGNED, UNSIGNED, FLOAT, DOUBLE };

static enum domain domain_of(qcclDataType_t type)
{
    switch (type) {
    case qcclInt8:
    case qcclInt32:
    case qcclInt64:
        return SIGNED;
    case qcclUint8:
    case qcclUint32:
    case qcclUint64:
        return UNSIGNED;
    case qcclFloat64:
        return DOUBLE;
    default:
        return FLOAT;
    }
}

/* Reads an element at any address. */
static uint64_t bits_at(const void *in, size_t i, size_t bytes)
{
    uint8_t b1;
    uint16_t b2;
    uint32_t b4;
    uint64_t b8;
    const char *at = (const char *)in + i * bytes;
    switch (bytes) {
    case 1:
        memcpy(&b1, at, 1);
        return b1;
    case 2:
        memcpy(&b2, at, 2);
        return b2;
    case 4:
        memcpy(&b4, at, 4);
        return b4;
    default:
        memcpy(&b8, at, 8);
        return b8;
    }
}

/* The low bits of a word as a value of an integer type, sign extended. */
static uint64_t extended(uint64_t word, qcclDataType_t type)
{
    size_t unused = 64 - 8 * qcclTypeBytes(type);
    uint64_t sign = domain_of(type) == SIGNED ? (uint64_t)1 << (63 - unused) : 0;
    return ((word << unused >> unused) ^ sign) - sign;
}

static void widen_integers(union block *block, const void *in, size_t n, qcclDataType_t type)
{
    for (size_t i = 0; i < n; i++)
        block->u[i] = extended(bits_at(in, i, qcclTypeBytes(type)), type);
}

static void widen(union block *block, const void *in, size_t n, qcclDataType_t type)
{
    switch (type) {
    case qcclFloat32:
        memcpy(block->f, in, n * sizeof(float));
        break;
    case qcclFloat64:
        memcpy(block->d, in, n * sizeof(double));
        break;
    case qcclBfloat16:
        for (size_t i = 0; i < n; i++)
            block->f[i] = qccl_bf16_to_float((uint16_t)bits_at(in, i, 2));
        break;
    case qcclFloat16:
        for (size_t i = 0; i < n; i++)
            block->f[i] = qccl_fp16_to_float((uint16_t)bits_at(in, i, 2));
        break;
    default:
        widen_integers(block, in, n, type);
    }
}

static void narrow(void *out, const union block *block, size_t n, qcclDataType_t type)
{
    size_t bytes = qcclTypeBytes(type);
    char *to = out;
    for (size_t i = 0; i < n; i++, to += bytes) {
        uint64_t u;
        uint16_t h;
        switch (type) {
        case qcclFloat32:
            memcpy(to, &block->f[i], sizeof(float));
            break;
        case qcclFloat64:
            memcpy(to, &block->d[i], sizeof(double));
            break;
        case qcclBfloat16:
        case qcclFloat16:
            h = type == qcclFloat16 ? qccl_fp16_nearest(block->f[i])
                                    : qccl_bf16_nearest(block->f[i]);
            memcpy(to, &h, sizeof h);
            break;
        default:
            u = block->u[i];
            for (size_t b = 0; b < bytes; b++)
                to[b] = (char)(u >> (8 * b));
        }
    }
}

static void combine_signed(int64_t *a, const int64_t *b, size_t n, qcclRedOp_t op)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t x = (uint64_t)a[i], y = (uint64_t)b[i];
        if (op == qcclProd)
            a[i] = (int64_t)(x * y);
        else if (op == qcclMax)
            a[i] = a[i] > b[i] ? a[i] : b[i];
        else if (op == qcclMin)
            a[i] = a[i] < b[i] ? a[i] : b[i];
        else
            a[i] = (int64_t)(x + y);
    }
}

static void combine_unsigned(uint64_t *a, const uint64_t *b, size_t n, qcclRedOp_t op)
{
    for (size_t i = 0; i < n; i++) {
        if (op == qcclProd)
            a[i] *= b[i];
        else if (op == qcclMax)
            a[i] = a[i] > b[i] ? a[i] : b[i];
        else if (op == qcclMin)
            a[i] = a[i] < b[i] ? a[i] : b[i];
        else
            a[i] += b[i];
    }
}

static void combine_floats(float *a, const float *b, size_t n, qcclRedOp_t op)
{
    if (op == qcclSum || op == qcclAvg) {
        for (size_t i = 0; i < n; i++)
            a[i] += b[i];
        return;
    }
    for (size_t i = 0; i < n; i++) {
        if (op == qcclProd)
            a[i] *= b[i];
        else if (a[i] != a[i] || b[i] != b[i])
            a[i] += b[i];
        else if (op == qcclMax ? b[i] > a[i] : b[i] < a[i])
            a[i] = b[i];
    }
}

static void combine_doubles(double *a, const double *b, size_t n, qcclRedOp_t op)
{
    for (size_t i = 0; i < n; i++) {
        if (op == qcclSum || op == qcclAvg)
            a[i] += b[i];
        else if (op == qcclProd)
            a[i] *= b[i];
        else if (a[i] != a[i] || b[i] != b[i])
            a[i] += b[i];
        else if (op == qcclMax ? b[i] > a[i] : b[i] < a[i])
            a[i] = b[i];
    }
}

static void combine(union block *a, const union block *b, size_t n, enum domain domain,
                    qcclRedOp_t op)
{
    switch (domain) {
    case SIGNED:
        combine_signed(a->i, b->i, n, op);
        break;
    case UNSIGNED:
        combine_unsigned(a->u, b->u, n, op);
        break;
    case FLOAT:
        combine_floats(a->f, b->f, n, op);
        break;
    case DOUBLE:
        combine_doubles(a->d, b->d, n, op);
        break;
    }
}

/* An integer sum wraps as its type does before it is divided. */
static void divide(union block *a, size_t n, qcclDataType_t type, int by)
{
    enum domain domain = domain_of(type);
    for (size_t i = 0; i < n; i++)
        switch (domain) {
        case SIGNED:
            a->u[i] = extended(a->u[i], type);
            a->i[i] /= by;
            break;
        case UNSIGNED:
            a->u[i] = extended(a->u[i], type) / (uint64_t)by;
            break;
        case FLOAT:
            a->f[i] *= 1.0f / (float)by;
            break;
        case DOUBLE:
            a->d[i] *= 1.0 / by;
            break;
        }
}

void qccl_combine(void *out, const void *const *parts, int nparts, size_t count,
                  qcclDataType_t type, qcclRedOp_t op)
{
    enum domain domain = domain_of(type);
    size_t bytes = qcclTypeBytes(type);
    union block total, term;
    for (size_t begin = 0; begin < count; begin += BLOCK) {
        size_t n = count - begin < BLOCK ? count - begin : BLOCK;
        widen(&total, (const char *)parts[0] + begin * bytes, n, type);
        for (int p = 1; p < nparts; p++) {
            widen(&term, (const char *)parts[p] + begin * bytes, n, type);
            combine(&total, &term, n, domain, op);
        }
        if (op == qcclAvg)
            divide(&total, n, type, nparts);
        narrow((char *)out + begin * bytes, &total, n, type);
    }
}
