/* Parsers of command-line words; see options.h. */
#include "bench/options.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct word {
    const char *text;
    int value;
};

/* The first word of a value is the one that is printed. */
static const struct word type_words[] = {
    {.text = "int8", .value = qcclInt8},      {.text = "uint8", .value = qcclUint8},
    {.text = "int32", .value = qcclInt32},    {.text = "uint32", .value = qcclUint32},
    {.text = "int64", .value = qcclInt64},    {.text = "uint64", .value = qcclUint64},
    {.text = "half", .value = qcclFloat16},   {.text = "float", .value = qcclFloat32},
    {.text = "double", .value = qcclFloat64}, {.text = "bfloat16", .value = qcclBfloat16},
    {.text = "fp16", .value = qcclFloat16},   {.text = "float16", .value = qcclFloat16},
    {.text = "fp32", .value = qcclFloat32},   {.text = "float32", .value = qcclFloat32},
    {.text = "fp64", .value = qcclFloat64},   {.text = "float64", .value = qcclFloat64},
    {.text = "bf16", .value = qcclBfloat16},  {.text = "char", .value = qcclInt8},
    {.text = "int", .value = qcclInt32},      {.text = NULL},
};

static const struct word op_words[] = {
    {.text = "sum", .value = qcclSum}, {.text = "prod", .value = qcclProd},
    {.text = "min", .value = qcclMin}, {.text = "max", .value = qcclMax},
    {.text = "avg", .value = qcclAvg}, {.text = NULL},
};

static const struct word coll_words[] = {
    {.text = "allreduce", .value = qcclCollAllReduce},
    {.text = "reducescatter", .value = qcclCollReduceScatter},
    {.text = "allgather", .value = qcclCollAllGather},
    {.text = "delta", .value = qcclCollAllGatherDelta},
    {.text = NULL},
};

static bool find_word(const struct word *words, const char *text, int *value)
{
    for (; words->text; words++)
        if (strcasecmp(words->text, text) == 0) {
            *value = words->value;
            return true;
        }
    return false;
}

static const char *name_of(const struct word *words, int value)
{
    for (; words->text; words++)
        if (words->value == value)
            return words->text;
    return "?";
}

bool bench_parse_type(const char *text, qcclDataType_t *type)
{
    int value;
    if (!find_word(type_words, text, &value))
        return false;
    *type = (qcclDataType_t)value;
    return true;
}

bool bench_parse_op(const char *text, qcclRedOp_t *op)
{
    int value;
    if (!find_word(op_words, text, &value))
        return false;
    *op = (qcclRedOp_t)value;
    return true;
}

bool bench_parse_coll(const char *text, qcclColl_t *coll)
{
    int value;
    if (!find_word(coll_words, text, &value))
        return false;
    *coll = (qcclColl_t)value;
    return true;
}

const char *bench_type_name(qcclDataType_t type)
{
    return name_of(type_words, (int)type);
}

const char *bench_op_name(qcclRedOp_t op)
{
    return name_of(op_words, (int)op);
}

const char *bench_coll_name(qcclColl_t coll)
{
    return name_of(coll_words, (int)coll);
}

const char *bench_type_names(void)
{
    return "int8, uint8, int32, uint32, int64, uint64, half (fp16), float (fp32), double (fp64), "
           "bfloat16 (bf16)";
}

const char *bench_op_names(void)
{
    return "sum, prod, min, max, avg";
}

bool bench_type_compresses(qcclDataType_t type)
{
    return type == qcclFloat32 || type == qcclBfloat16 || type == qcclFloat16;
}

bool bench_parse_integer(const char *text, uint64_t low, uint64_t high, uint64_t *value)
{
    char *end;
    if (!isdigit((unsigned char)*text))
        return false;
    errno = 0;
    bool hex = text[0] == '0' && (text[1] | 0x20) == 'x';
    unsigned long long number = strtoull(text, &end, hex ? 16 : 10);
    if (errno || *end || number < low || number > high)
        return false;
    *value = number;
    return true;
}

bool bench_parse_int(const char *text, int low, int high, int *value)
{
    uint64_t number;
    if (!bench_parse_integer(text, (uint64_t)low, (uint64_t)high, &number))
        return false;
    *value = (int)number;
    return true;
}

bool bench_parse_bytes(const char *text, size_t *bytes)
{
    char *end;
    if (!isdigit((unsigned char)*text))
        return false;
    double number = strtod(text, &end);
    static const char letters[] = "KMGT";
    if (*end) {
        const char *letter = strchr(letters, toupper((unsigned char)*end));
        if (letter) {
            number *= (double)((size_t)1 << (10 * (letter - letters + 1)));
            end += 1 + (end[1] == 'i' && end[2] == 'B');
        }
        if (strcmp(end, "B") == 0)
            end++;
    }
    if (*end || number > 0x1p62)
        return false;
    *bytes = (size_t)number;
    return true;
}

int bench_parse_nodes(const char *text, int *nodes, int capacity)
{
    int count = 0;
    for (;;) {
        char *end;
        if (!isdigit((unsigned char)*text) || count == capacity)
            return -1;
        long node = strtol(text, &end, 10);
        if (node > 0x7fffffff || (*end && *end != ','))
            return -1;
        nodes[count++] = (int)node;
        if (!*end)
            return count;
        text = end + 1;
    }
}
