/* Pools of values and how ranks read them; see input.h. */
#include "bench/input.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/half.h"
#include "bench/options.h"
#include "bench/report.h"

/* A prime, so that a pool's period falls together with no group, shard or message. */
enum { RANDOM_POOL = 1048573 };

void bench_to_float(const void *values, qcclDataType_t type, size_t first, size_t count, float *out)
{
    const unsigned char *from = (const unsigned char *)values + first * qcclTypeBytes(type);
    if (type == qcclFloat32) {
        memcpy(out, from, count * sizeof *out);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        uint16_t half;
        memcpy(&half, from + 2 * i, sizeof half);
        out[i] = type == qcclBfloat16 ? bench_from_bf16(half) : bench_from_fp16(half);
    }
}

void bench_from_float(const float *values, qcclDataType_t type, size_t count, void *out)
{
    unsigned char *to = out;
    if (type == qcclFloat32) {
        memcpy(to, values, count * sizeof *values);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        uint16_t half = type == qcclBfloat16 ? bench_to_bf16(values[i]) : bench_to_fp16(values[i]);
        memcpy(to + 2 * i, &half, sizeof half);
    }
}

/* The finalizer of SplitMix64 (Steele et al. 2014). */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Normal values, two from each pair of uniform ones (Box and Muller 1958). */
static void fill_normal(float *values, size_t count, uint64_t seed)
{
    uint64_t key = mix(seed);
    for (size_t i = 0; i < count; i++) {
        double u = ((double)(mix(key + i / 2 * 2) >> 11) + 0.5) * 0x1p-53;
        double angle = 6.283185307179586 * (double)(mix(key + i / 2 * 2 + 1) >> 11) * 0x1p-53;
        values[i] = (float)(sqrt(-2.0 * log(u)) * (i % 2 ? sin(angle) : cos(angle)));
    }
}

static int open_random(struct bench_inputs *inputs)
{
    struct bench_file *pool = &inputs->pools[0];
    *pool = (struct bench_file){.count = RANDOM_POOL, .type = qcclFloat32};
    pool->values = malloc(RANDOM_POOL * sizeof(float));
    if (!pool->values)
        return bench_error("no memory for %d values", RANDOM_POOL);
    fill_normal(pool->values, pool->count, inputs->seed);
    return 0;
}

/* Loads a file and turns its values into fp32. */
static int open_pool(const char *path, struct bench_file *pool)
{
    struct bench_file file;
    int status = bench_file_load(path, qcclFloat32, &file);
    if (status)
        return status;
    float *values = malloc((file.count + 1) * sizeof *values);
    if (file.count == 0)
        status = bench_error("%s: holds no values", path);
    else if (!values)
        status = bench_error("%s: no memory for its values", path);
    if (status) {
        free(values);
    } else {
        bench_to_float(file.values, file.type, 0, file.count, values);
        *pool = (struct bench_file){.values = values, .count = file.count, .type = qcclFloat32};
    }
    bench_file_free(&file);
    return status;
}

int bench_inputs_open(struct bench_inputs *inputs, int nranks, uint64_t seed, char *const *files,
                      int nfiles)
{
    int npools = nfiles ? nfiles : 1;
    *inputs = (struct bench_inputs){.npools = npools, .nranks = nranks, .seed = seed};
    inputs->pools = calloc((size_t)npools, sizeof *inputs->pools);
    if (!inputs->pools)
        return bench_error("no memory for %d inputs", npools);
    int status = nfiles ? 0 : open_random(inputs);
    for (int i = 0; i < nfiles && !status; i++)
        status = open_pool(files[i], &inputs->pools[i]);
    if (status)
        bench_inputs_free(inputs);
    return status;
}

void bench_inputs_free(struct bench_inputs *inputs)
{
    for (int i = 0; inputs->pools && i < inputs->npools; i++)
        bench_file_free(&inputs->pools[i]);
    free(inputs->pools);
    *inputs = (struct bench_inputs){.pools = NULL};
}

void bench_inputs_read(const struct bench_inputs *inputs, int rank, size_t first, size_t count,
                       float *out)
{
    const struct bench_file *pool = &inputs->pools[rank % inputs->npools];
    const float *values = pool->values;
    /* Ranks that share a pool start as far apart as it allows. */
    int sharers = (inputs->nranks + inputs->npools - 1) / inputs->npools;
    size_t offset = pool->count / (size_t)sharers * (size_t)(rank / inputs->npools);
    size_t at = (first + offset) % pool->count;
    while (count) {
        size_t run = pool->count - at < count ? pool->count - at : count;
        memcpy(out, values + at, run * sizeof *out);
        out += run;
        count -= run;
        at = 0;
    }
}

int bench_inputs_small(const struct bench_inputs *inputs, int rank, size_t i, qcclRedOp_t op)
{
    uint64_t random = mix(mix(inputs->seed ^ (uint64_t)rank << 40) + i);
    return op == qcclProd ? 1 + (int)(random >> 63) : (int)(random >> 60);
}

/* Stores a small number as an element of any type. */
static void store_small(unsigned char *to, qcclDataType_t type, int value)
{
    const size_t size = qcclTypeBytes(type);
    const uint64_t word = (uint64_t)value;
    const double wide = value;
    const float single = (float)value;
    switch (type) {
    case qcclFloat64:
        memcpy(to, &wide, sizeof wide);
        break;
    case qcclFloat32:
    case qcclFloat16:
    case qcclBfloat16:
        bench_from_float(&single, type, 1, to);
        break;
    default: /* the low bytes, little-endian */
        memcpy(to, &word, size);
    }
}

void bench_inputs_fill(const struct bench_inputs *inputs, int rank, size_t first, size_t count,
                       qcclDataType_t type, qcclRedOp_t op, void *out)
{
    enum { BLOCK = 1024 };
    float block[BLOCK];
    unsigned char *to = out;
    size_t size = qcclTypeBytes(type);
    if (op == qcclProd || (!bench_type_compresses(type) && type != qcclFloat64)) {
        for (size_t i = 0; i < count; i++)
            store_small(to + i * size, type, bench_inputs_small(inputs, rank, first + i, op));
        return;
    }
    for (size_t i = 0; i < count; i += BLOCK) {
        size_t run = count - i < BLOCK ? count - i : BLOCK;
        bench_inputs_read(inputs, rank, first + i, run, block);
        if (type == qcclFloat64)
            for (size_t j = 0; j < run; j++)
                memcpy(to + (i + j) * size, &(double){block[j]}, size);
        else
            bench_from_float(block, type, run, to + i * size);
    }
}
