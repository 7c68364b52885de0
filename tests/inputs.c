/* The patterns; integers first, one exact product last, so that any language can repeat them. */
#include "tests/inputs.h"

#include <string.h>

#include "base/half.h"

static const char *const names[INPUT_PATTERNS] = {
    [INPUT_NORMAL] = "normal",     [INPUT_WIDE] = "wide",     [INPUT_SPIKE] = "spike",
    [INPUT_NEGATIVE] = "negative", [INPUT_EQUAL] = "equal",   [INPUT_DENORMAL] = "denormal",
    [INPUT_TINY] = "tiny",         [INPUT_HUGE] = "huge",     [INPUT_SPECIAL] = "special",
    [INPUT_BLOCKS] = "blocks",     [INPUT_LEVELS] = "levels",
};

uint64_t input_mix(uint64_t z)
{
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t input_hash(uint64_t seed, int rank, size_t i)
{
    return input_mix(input_mix(seed + (uint64_t)rank) + i);
}

/* Four 16-bit numbers added and centred: a bell shape. */
static float bell(uint64_t h)
{
    int sum =
        (int)(h & 0xffff) + (int)(h >> 16 & 0xffff) + (int)(h >> 32 & 0xffff) + (int)(h >> 48);
    return (float)(sum - 131070);
}

static float special(uint64_t h)
{
    static const uint32_t bits[8] = {0x7fc00000, 0x7f800000, 0xff800000, 0x80000000,
                                     0x00000001, 0x7f7fffff, 0x00000000, 0x807fffff};
    return (h >> 40) % 61 ? bell(h) * 0x1p-15f : qccl_bits_float(bits[h >> 32 & 7]);
}

float input_value(enum pattern pattern, uint64_t seed, int rank, size_t i)
{
    uint64_t h = input_hash(seed, rank, i);
    uint32_t sign = (uint32_t)(h >> 63) << 31, mantissa = (uint32_t)h & 0x7fffff, bits;
    switch (pattern) {
    case INPUT_WIDE:
        bits = (uint32_t)h;
        return qccl_bits_float((bits >> 23 & 255) == 255 ? bits & ~0x40000000u : bits);
    case INPUT_SPIKE:
        return bell(h) * (h % 97 ? 0x1p-25f : 0x1p10f);
    case INPUT_NEGATIVE:
        return -(float)((h & 0xffff) + 1) * 0x1p-8f;
    case INPUT_EQUAL:
        return (float)((int)(input_mix(seed + (uint64_t)rank) % 1000) - 500) * 0x1p-3f;
    case INPUT_DENORMAL:
        return qccl_bits_float(sign | mantissa);
    case INPUT_TINY:
        return qccl_bits_float(sign | (25 + (uint32_t)(h >> 32) % 5) << 23 | mantissa);
    case INPUT_HUGE:
        return qccl_bits_float(sign | (250 + (uint32_t)(h >> 32) % 5) << 23 | mantissa);
    case INPUT_SPECIAL:
        return special(h);
    case INPUT_BLOCKS:
        return i / 32 % 2 ? 0.0f : bell(h) * 0x1p-15f;
    case INPUT_LEVELS:
        return (float)((int)(h % 15) - 7);
    default:
        return bell(h) * 0x1p-15f;
    }
}

const char *input_name(enum pattern pattern)
{
    return names[pattern];
}

enum pattern input_named(const char *name)
{
    int p = 0;
    while (p < INPUT_PATTERNS && strcmp(names[p], name) != 0)
        p++;
    return (enum pattern)p;
}

void input_store(void *at, qcclDataType_t type, enum pattern pattern, uint64_t seed, int rank,
                 size_t i)
{
    float x = input_value(pattern, seed, rank, i);
    double d = x;
    uint16_t h;
    uint64_t integer = input_hash(seed, rank, i);
    switch (type) {
    case qcclFloat32:
        memcpy(at, &x, sizeof x);
        break;
    case qcclFloat64:
        memcpy(at, &d, sizeof d);
        break;
    case qcclBfloat16:
    case qcclFloat16:
        h = type == qcclFloat16 ? qccl_fp16_nearest(x) : qccl_bf16_nearest(x);
        memcpy(at, &h, sizeof h);
        break;
    default:
        memcpy(at, &integer, qcclTypeBytes(type));
    }
}

void input_fill(void *buffer, size_t count, qcclDataType_t type, enum pattern pattern,
                uint64_t seed, int rank)
{
    char *at = buffer;
    for (size_t i = 0; i < count; i++, at += qcclTypeBytes(type))
        input_store(at, type, pattern, seed, rank, i);
}

uint64_t input_fnv(const void *bytes, size_t count)
{
    const unsigned char *b = bytes;
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ b[i]) * 0x100000001b3u;
    return hash;
}
